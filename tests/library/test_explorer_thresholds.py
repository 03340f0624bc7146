"""Aggregated results at thresholds for the report page: a naive reference for each number, and limits of size."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit
from scipy.stats import binomtest, norm

from relmap.evaluation.evaluate import evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.io.rows import PredictedRows
from relmap.maps.reliability_map import ScoredDecisions
from relmap.report.threshold_explorer import (
    MAX_CELLS,
    MAX_THRESHOLDS,
    ThresholdExplorer,
    ThresholdResults,
    choose_thresholds,
)
from tests import maps

LARGEST_JSON = 700_000  # bytes
NAMES = ("bad", "fair", "good")
KINDS = st.sampled_from(["alone", "groups", "weights", "groups and weights"])


def decided(seed: int, n: int, kind: str = "alone", n_labels: int = 3, *, tied: bool = False) -> EvaluationSample:
    """Rows with a reliability, in steps of a twentieth if `tied`; no row is decided as label 1."""
    generator = np.random.default_rng(seed)
    reliability = generator.uniform(0.02, 0.98, n)
    reliability = np.round(20 * reliability) / 20 if tied else reliability
    decision = generator.choice([label for label in range(n_labels) if label != 1], n)
    correct = generator.random(n) < reliability
    label = np.where(correct, decision, (decision + 1) % n_labels)
    group = np.array([f"group {number}" for number in generator.integers(0, max(1, n // 4), n)])
    weight = generator.uniform(0.5, 4, n)
    rows = PredictedRows(
        logits=None,
        confidence=reliability,
        decision=decision,
        label=label,
        group=group if "groups" in kind else None,
        weight=weight if "weights" in kind else None,
    )
    with np.errstate(divide="ignore"):
        return EvaluationSample.from_rows(rows, ScoredDecisions(reliability, logit(reliability)), maps.RULES)


def naive_interval(correct: list[bool], cluster: list[int], row: list[int]) -> tuple[float, float]:
    """Wilson's interval at the effective number of rows, from copies, a group at a time."""
    if len(set(cluster)) < 10:
        return np.nan, np.nan
    n, share = len(correct), float(np.mean(correct))
    residuals, squares = [], []
    for name in set(cluster):
        own = [z for z, of in zip(correct, cluster, strict=True) if of == name]
        residuals.append((sum(own) - share * len(own)) ** 2)
        squares.append(len(own) ** 2)
    kish = n**2 / sum(row.count(number) ** 2 for number in set(row))
    by_groups = share * (1 - share) * n**2 / sum(residuals) if sum(residuals) > 1e-12 else np.inf
    effective = min(kish, by_groups if 0 < share < 1 else n**2 / sum(squares))
    z = norm.ppf(0.975)
    centre = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half = z / (1 + z**2 / effective) * np.sqrt(share * (1 - share) / effective + z**2 / (4 * effective**2))
    return centre - half, centre + half


def check_against_naive(results: ThresholdResults, judged: EvaluationSample, thresholds: np.ndarray) -> None:
    """Compare every number with a loop over the copies of rows."""
    rows = judged.rows
    own_rows = np.array([results.label is None or decision == results.label for decision in rows.decision])
    own = own_rows[judged.row_number]
    assert (results.n_rows, results.total) == (own_rows.sum(), own.sum())
    for place, threshold in enumerate(thresholds):
        automatic_rows = own_rows & (judged.scored.reliability >= threshold)
        automatic = automatic_rows[judged.row_number]
        found = (results.automatic_rows[place], results.automatic[place], results.correct[place])
        assert found == (automatic_rows.sum(), automatic.sum(), judged.correct[automatic].sum())
        parts = (judged.correct[automatic], judged.cluster[automatic], judged.row_number[automatic])
        expected = naive_interval(*(part.tolist() for part in parts))
        np.testing.assert_allclose([results.low[place], results.high[place]], expected, atol=1e-7)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 60), KINDS, st.booleans())
def test_every_number_is_that_of_a_loop_over_rows(seed, n, kind, tied):
    judged = decided(seed, n, kind, tied=tied)
    explorer = ThresholdExplorer.from_sample(judged, 0.5)
    every = np.linspace(0, len(explorer.thresholds) - 1, 25).astype(int)  # a loop over all would take long
    for results in (explorer.overall, *explorer.labels):
        fields = {name: value[every] for name, value in vars(results).items() if isinstance(value, np.ndarray)}
        sampled = ThresholdResults(results.label, results.n_rows, results.total, **fields)
        check_against_naive(sampled, judged, explorer.thresholds[every])
    assert [results.label for results in explorer.labels] == sorted(set(judged.rows.decision.tolist()))
    assert explorer.weighted == ("weights" in kind)


def test_intervals_of_independent_rows_are_those_of_wilson():
    explorer = ThresholdExplorer.from_sample(decided(1, 500), 0.5)
    for place in range(0, len(explorer.thresholds), 7):
        automatic, correct = int(explorer.overall.automatic[place]), int(explorer.overall.correct[place])
        if automatic < 10:
            assert np.isnan(explorer.overall.low[place])
            continue
        expected = binomtest(correct, automatic).proportion_ci(method="wilson")
        assert explorer.overall.low[place] == pytest.approx(expected.low)
        assert explorer.overall.high[place] == pytest.approx(expected.high)


def test_without_errors_a_group_counts_as_one_row():
    n_groups, rows_of_group = 20, 5
    reliability, decision = np.full(100, 0.9), np.zeros(100, dtype=np.int64)
    group = np.repeat([f"g{place:02}" for place in range(n_groups)], rows_of_group)
    rows = PredictedRows(None, reliability, decision, decision, group)
    explorer = ThresholdExplorer.from_sample(
        EvaluationSample.from_rows(rows, ScoredDecisions(reliability, logit(reliability)), maps.RULES), 0.5
    )
    expected = binomtest(n_groups, n_groups).proportion_ci(method="wilson")
    assert explorer.overall.low[0] == pytest.approx(expected.low)
    assert explorer.overall.high[0] == 1


@pytest.mark.parametrize("kind", ["alone", "groups", "weights", "groups and weights"])
def test_with_all_rows_automatic_the_accuracy_is_that_of_the_evaluation(kind):
    judged = decided(2, 400, kind)
    explorer, evaluation = ThresholdExplorer.from_sample(judged, 0.5), evaluate_map(maps.document(), judged)
    by_label = [(results, evaluation["labels"][results.label]["correct"]) for results in explorer.labels]
    for results, expected in [(explorer.overall, evaluation["accuracy"]), *by_label]:
        accuracy = results.correct[0] / results.automatic[0]
        assert accuracy == pytest.approx(expected["value"])
        assert (results.low[0], results.high[0]) == pytest.approx((expected["low"], expected["high"]))


@given(
    st.lists(st.floats(0, 1) | st.sampled_from([0.5, 0.9, 1.0, 0.0]), min_size=1, max_size=80),
    st.sampled_from([50, 1000]),
)
@settings(deadline=None, max_examples=60)
def test_thresholds_rise_from_0_to_1_hold_the_given_one_and_tie_with_no_row(values, n_max):
    reliability = np.array(values)
    thresholds = choose_thresholds(reliability, n_max, 0.625)
    assert len(thresholds) <= n_max
    assert (np.diff(thresholds) > 0).all()
    assert (thresholds[0], thresholds[-1]) == (0, 1)
    assert 0.625 in thresholds
    inner = thresholds[1:-1]
    assert np.abs(reliability[:, None] - inner[inner != 0.625]).min(initial=1) > 4e-10


def test_a_threshold_separates_any_two_levels_of_few_rows():
    reliability = decided(3, 300).scored.reliability
    thresholds = choose_thresholds(reliability, MAX_THRESHOLDS, 0.5)
    automatic = {int((reliability >= threshold).sum()) for threshold in thresholds}
    assert automatic == set(range(301))


def test_thresholds_of_many_rows_are_even_by_rows():
    reliability = np.random.default_rng(0).beta(20, 2, 50_000)
    thresholds = choose_thresholds(reliability, MAX_THRESHOLDS, 0.5)
    assert 900 < len(thresholds) <= MAX_THRESHOLDS
    automatic = np.array([(reliability >= threshold).sum() for threshold in thresholds])
    assert -np.diff(automatic).min() < 2 * 50_000 / 890
    assert set((np.arange(1, 100) / 100).tolist()) <= set(thresholds.tolist())


@pytest.mark.parametrize(("n_rows", "n_labels"), [(20_000, 3), (20_000, 19), (20_000, 300)])
def test_the_json_is_small_and_holds_aggregates_alone(n_rows, n_labels):
    judged = decided(4, n_rows, "groups", n_labels)
    explorer = ThresholdExplorer.from_sample(judged, 0.5)
    text = explorer.to_json(tuple(f"label {place}" for place in range(n_labels)))
    assert len(text) < LARGEST_JSON
    content = json.loads(text)
    assert set(content) == {"thresholds", "initial", "weighted", "lines"}
    n_thresholds = len(content["thresholds"])
    assert n_thresholds <= MAX_THRESHOLDS
    assert n_thresholds * len(content["lines"]) <= MAX_CELLS
    for line in content["lines"]:
        columns = {name: value for name, value in line.items() if isinstance(value, list)}
        assert set(columns) == {"automatic", "correct", "low", "high"}
        assert {len(value) for value in columns.values()} == {n_thresholds}
    assert "group" not in text


def test_names_of_labels_cannot_end_the_script_and_are_as_they_were():
    names = ("</script><b>\"'&", "never decided", "<!--\u2028")
    text = ThresholdExplorer.from_sample(decided(5, 50), 0.5).to_json(names)
    assert "<" not in text
    assert [line["name"] for line in json.loads(text)["lines"]] == ["All decisions", names[0], names[2]]


def test_numbers_of_weighted_rows_come_with_the_counts_of_labelled_rows():
    judged = decided(6, 80, "weights")
    content = json.loads(ThresholdExplorer.from_sample(judged, 0.5).to_json(NAMES))
    line = content["lines"][0]
    assert content["weighted"]
    assert (line["rows"], line["automatic_rows"][0]) == (80, 80)
    assert line["automatic"][0] == line["total"] == len(judged)


def test_the_page_starts_with_the_rows_of_the_given_threshold_and_few_digits():
    reliability = decided(7, 200).scored.reliability
    for threshold in (0.6371, 0.5, 0.0, 1.0, float(reliability[3]), float(reliability.max())):
        explorer = ThresholdExplorer.from_sample(decided(7, 200), threshold)
        first = explorer.thresholds[explorer.initial]
        assert explorer.overall.automatic[explorer.initial] == (reliability >= threshold).sum()
        assert (first == threshold) == (round(threshold, 4) == threshold)
        assert len(str(first)) <= 8
