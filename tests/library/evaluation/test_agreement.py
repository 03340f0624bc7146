"""Agreement of decisions with true labels: texts, exact intervals, and limits of the estimates."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import logit
from scipy.stats import binomtest

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.agreement import (
    MAX_LISTED_LABELS,
    PopulationSummary,
    describe_agreement,
    format_share,
    measure_agreement,
)
from relmap.evaluation.sample import EvaluationSample
from relmap.io.files import open_predictions
from relmap.maps.score import ScoredDecisions, ignore_progress
from tests import maps

N_ROWS = 40
UNKNOWN = {"value": None, "low": None, "high": None}


def test_a_population_with_a_column_of_an_unsupported_type_is_rejected_with_its_file(tmp_path):
    path = tmp_path / "new.parquet"
    table = pa.table({"decision": [0, 1], "confidence": pa.nulls(2, pa.binary())})
    pq.write_table(table, path)
    predictions = open_predictions(path)
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}: .* confidence .*binary"):
        PopulationSummary.from_file(maps.make_map(confidence_only=True), predictions, ignore_progress)


def share(value: float | None, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def label_agreement(name: str) -> dict[str, object]:
    return {"name": name, "precision": share(0.25, 0.125, 0.5), "recall": share(1.0)}


def make_agreement(n_labels: int, kappa: dict[str, float | None]) -> dict[str, object]:
    labels = [label_agreement(f"label {k}") for k in range(n_labels)]
    return {"rows": 1234, "accuracy": share(0.8125, 0.75, 0.875), "kappa": kappa, "labels": labels}


def score(reliability: np.ndarray) -> ScoredDecisions:
    return ScoredDecisions(confidence=reliability, logit=logit(reliability))


def measure(correct: np.ndarray) -> dict[str, object]:
    """Measure the agreement of decisions for label 0 in groups of two rows; other labels are never decided."""
    n_rows = len(correct)
    decision = np.zeros(n_rows, dtype=np.int64)
    rows = FixedDecisions(
        decision=decision, label=np.where(correct, 0, 1), group=np.array([f"q{row // 2}" for row in range(n_rows)])
    )
    sample = EvaluationSample.from_rows(rows, score(np.full(n_rows, 0.5)), maps.METRIC_SETTINGS)
    return measure_agreement(maps.make_map(), sample)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (UNKNOWN, "unknown"),
        (share(0.8125), "81.2%"),
        (share(0.8125, low=0.5), "81.2%"),
        (share(0.8125, high=0.9), "81.2%"),
        (share(0.0625, 0.03125, 0.25), "6.2% (3.1 to 25.0%)"),
    ],
)
def test_a_share_is_formatted_with_its_interval_if_both_ends_are_known(estimate, text):
    assert format_share(estimate) == text


def test_the_description_has_kappa_and_each_label():
    agreement = make_agreement(2, share(-0.001, -0.25, 0.5))
    kappa, *labels = describe_agreement(agreement)
    assert re.search(r"kappa.*: 0\.00 \(95% .*-0\.25 to 0\.50\)", kappa)
    assert len(labels) == 2
    for k, line in enumerate(labels):
        assert re.search(rf"label {k}: precision 25\.0% \(12\.5 to 50\.0%\), recall 100\.0%", line)


def test_the_description_omits_an_undefined_kappa():
    (line,) = describe_agreement(make_agreement(1, UNKNOWN))
    assert line.startswith("  label 0:")


@pytest.mark.parametrize(
    ("n_more", "last_line"), [(0, None), (1, "  labels not shown: 1"), (7, "  labels not shown: 7")]
)
def test_the_description_lists_the_first_labels_and_counts_the_others(n_more, last_line):
    lines = describe_agreement(make_agreement(5 + n_more, UNKNOWN))
    listed = [line for line in lines if "precision" in line]
    assert len(listed) == MAX_LISTED_LABELS == 5
    assert lines[len(listed) :] == ([last_line] if last_line else [])


@pytest.mark.parametrize("is_correct", [True, False])
def test_identical_groups_have_the_interval_of_the_same_number_of_independent_rows(is_correct):
    accuracy = measure(np.full(N_ROWS, is_correct))["accuracy"]
    n_groups = N_ROWS // 2
    expected = binomtest(n_groups if is_correct else 0, n_groups).proportion_ci(0.95, method="exact")
    assert accuracy == pytest.approx({"value": float(is_correct), "low": expected.low, "high": expected.high})


def test_identical_groups_that_are_half_correct_have_an_interval_of_width_zero():
    accuracy = measure(np.arange(N_ROWS) % 2 == 0)["accuracy"]
    assert accuracy == {"value": 0.5, "low": 0.5, "high": 0.5}


def test_fewer_than_ten_groups_have_no_interval():
    correct = np.arange(18) % 3 == 0
    assert measure(correct)["accuracy"] == share(pytest.approx(1 / 3))


def test_labels_without_decisions_have_no_precision():
    agreement = measure(np.arange(N_ROWS) % 3 == 0)
    assert [label["name"] for label in agreement["labels"]] == list(maps.LABEL_NAMES)
    assert agreement["labels"][1]["precision"] == UNKNOWN
    assert agreement["labels"][1]["recall"]["value"] == 0
    assert agreement["labels"][2]["recall"] == UNKNOWN


@pytest.mark.parametrize(
    ("accuracy", "reliability_of_wrong", "population_logit", "limit"), [(0.8, 0.1, 100.0, 1.0), (0.2, 0.6, -100.0, 0.0)]
)
def test_the_estimate_for_a_population_stays_between_zero_and_one(
    accuracy, reliability_of_wrong, population_logit, limit
):
    correct = np.random.default_rng(3).random(400) < accuracy
    decision = np.zeros(400, dtype=np.int64)
    reliability = np.where(correct, reliability_of_wrong + 0.3, reliability_of_wrong)
    rows = FixedDecisions(decision=decision, label=np.where(correct, 0, 1))
    sample = EvaluationSample.from_rows(rows, score(reliability), maps.METRIC_SETTINGS)
    population = PopulationSummary.from_scores(decision, np.full(400, population_logit), 3)

    estimate = measure_agreement(maps.make_map(), sample, population)["accuracy"]

    assert estimate == share(limit, estimate["low"], estimate["high"])
    assert 0 <= estimate["low"] <= estimate["high"] <= 1


def test_a_population_is_summarized_by_decision_and_pooled_by_its_counts():
    population = PopulationSummary.from_scores(np.array([0, 2, 2, 2]), np.array([0.0, 100.0, 0.0, -100.0]), 4)
    np.testing.assert_array_equal(population.decision_counts, [1, 0, 3, 0])
    np.testing.assert_allclose(population.mean_reliability, [0.5, 0, 0.5, 0])
    unequal = PopulationSummary.from_scores(np.array([0, 1, 1, 1]), np.array([100.0, 0.0, 0.0, 0.0]), 2)
    pooled = unequal.pool_decisions()
    np.testing.assert_array_equal(pooled.decision_counts, [4])
    np.testing.assert_allclose(pooled.mean_reliability, [(1 + 3 * 0.5) / 4])


def test_few_rows_have_the_accuracy_of_the_labelled_rows_for_any_population():
    rows = FixedDecisions(decision=np.array([0, 0, 0, 1]), label=np.array([0, 0, 1, 1]))
    sample = EvaluationSample.from_rows(rows, score(np.full(4, 0.9)), maps.METRIC_SETTINGS)
    population = PopulationSummary.from_scores(np.array([0, 1]), np.array([-2.0, -2.0]), 3)
    assert measure_agreement(maps.make_map(), sample, population)["accuracy"] == share(0.75)


def test_decisions_that_are_not_in_the_population_keep_the_accuracy_of_their_labelled_rows():
    correct = np.random.default_rng(4).random(400) < 0.7
    decision = np.arange(400) % 2
    rows = FixedDecisions(decision=decision, label=np.where(correct, decision, 2))
    sample = EvaluationSample.from_rows(rows, score(np.where(correct, 0.8, 0.6)), maps.METRIC_SETTINGS)
    population = PopulationSummary.from_scores(np.zeros(9, dtype=np.int64), np.full(9, logit(0.75)), 3)

    labels = measure_agreement(maps.make_map(), sample, population)["labels"]

    assert labels[1]["precision"]["value"] == pytest.approx(correct[decision == 1].mean())
    assert labels[0]["precision"]["value"] != pytest.approx(correct[decision == 0].mean())
