"""Calibration of the most reliable rows: ties, weights, groups and false alarms."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binom

from relmap.decisions import FixedDecisions
from relmap.evaluation.assessment import MapAssessment
from relmap.evaluation.drift import CellDrift, detect_drift
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.top_calibration import (
    TopCalibration,
    describe_top_calibration,
    measure_top_calibration,
)
from relmap.maps.held_out import summarize_reference_cells, summarize_top_cells
from relmap.maps.score import FittedMap, ScoredDecisions
from relmap.report.page import top_rows_table
from tests import maps

ROWS_PER_GROUP = [1, 7]  # rows of a group


def make_sample(reliability: np.ndarray, correct: np.ndarray, group=None, weight=None) -> EvaluationSample:
    """Return a sample of one label with the given reliability and correctness."""
    decision = np.zeros(len(reliability), dtype=np.int64)
    label = np.where(correct, 0, 1)
    rows = FixedDecisions(
        decision=decision, confidence=np.full(len(reliability), 0.5), label=label, group=group, weight=weight
    )
    return EvaluationSample.from_rows(rows, ScoredDecisions(rows.confidence, logit(reliability)), maps.METRIC_SETTINGS)


def simulate(seed: int, n: int, accuracy_loss: float = 0.0, level: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Simulate reliability and correct; the accuracy of the most reliable tenth is lower by `accuracy_loss`."""
    generator = np.random.default_rng(seed)
    reliability = expit(level + 1.5 * generator.normal(size=n))
    is_top = reliability >= np.quantile(reliability, 0.9)
    return reliability, generator.random(n) < reliability - accuracy_loss * is_top


@given(st.integers(0, 10**6), st.integers(10, 300), st.booleans())
@settings(max_examples=40, deadline=None)
def test_gap_is_the_mean_over_random_orders_of_tied_rows(seed, n, tied):
    reliability, correct = simulate(seed, n)
    reliability = np.round(reliability, 1).clip(0.1, 0.9) if tied else reliability
    generator = np.random.default_rng(seed)
    gaps = []
    for _ in range(400 if tied else 1):
        order = np.lexsort((generator.random(n), -reliability))
        gaps.append([(reliability - correct)[order[: -(-tenths * n // 10)]].mean() for tenths in (1, 3)])
    measured = measure_top_calibration(make_sample(reliability, correct))

    np.testing.assert_allclose([top.gap for top in measured], np.mean(gaps, axis=0), atol=0.1 if tied else 1e-9)
    for top in measured:
        assert top.gap == pytest.approx(top.predicted - top.correct, abs=1e-12)
        assert top.low < top.gap < top.high


@pytest.mark.parametrize("per_group", ROWS_PER_GROUP)
def test_grouped_copies_count_as_one_row_and_weights_as_copies(per_group):
    """Copies of a row in its group change neither the gap nor its interval."""
    reliability, correct = simulate(4, 500)
    group = np.array([f"g{row:03}" for row in range(500)])
    single = measure_top_calibration(make_sample(reliability, correct, group))
    copies = np.repeat(np.arange(500), per_group)
    repeated = measure_top_calibration(make_sample(reliability[copies], correct[copies], group[copies]))
    weighted = measure_top_calibration(make_sample(reliability, correct, group, np.full(500, 3.0)))

    for single_top, repeated_top, weighted_top in zip(single, repeated, weighted, strict=True):
        for other in (repeated_top, weighted_top):
            assert (other.gap, other.share) == pytest.approx((single_top.gap, single_top.share), abs=1e-9)
            assert other.standard_error == pytest.approx(single_top.standard_error, rel=0.05)
        assert weighted_top.rows == single_top.rows

    more_correct = measure_top_calibration(make_sample(reliability, correct, group, np.where(correct, 9.0, 1.0)))
    assert more_correct[1].gap < single[1].gap - 0.02

    ungrouped = measure_top_calibration(make_sample(reliability[copies], correct[copies], weight=np.ones(len(copies))))
    assert {top.tied for top in more_correct} == {0}
    assert "sampling weights" in more_correct[0].describe_rows()
    assert ungrouped[1].standard_error == pytest.approx(single[1].standard_error / np.sqrt(per_group), rel=0.2)


def test_standard_error_without_errors_uses_the_weights():
    sample = make_sample(np.full(200, 0.9), np.full(200, True), weight=np.tile([1.0, 3.0], 100))
    share = np.tile([1.0, 3.0], 100) / 400
    expected = np.sqrt((share**2).sum() * 0.9 * 0.1)
    for top in measure_top_calibration(sample):
        assert top.standard_error == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("level", [1.5, 4.0])
def test_false_warning_rate_is_at_most_five_percent(level):
    n_simulations = 300
    alarms = 0
    for seed in range(n_simulations):
        sample = make_sample(*simulate(seed, (150, 400, 1500)[seed % 3], level=level))
        alarms += any(top.is_miscalibrated for top in measure_top_calibration(sample))
    assert alarms <= binom.ppf(0.999, n_simulations, 0.05)


def test_gap_at_the_top_gives_a_warning():
    n_warnings = 0
    for seed in range(30):
        lines = describe_top_calibration(
            measure_top_calibration(make_sample(*simulate(seed, 2000, accuracy_loss=0.12)))
        )
        n_warnings += bool(re.match(r"Warning: .*overstates .* 10% \(200 rows\)", lines[0]))
        assert len(lines) == 2
    assert n_warnings >= 27
    understated = measure_top_calibration(make_sample(np.full(400, 0.5), np.arange(400) % 10 > 0))
    assert re.search("Warning: .*understates .* 10%", describe_top_calibration(understated)[0])


def test_few_groups_have_no_interval_and_no_warning():
    reliability, correct = simulate(0, 900, accuracy_loss=0.5)
    group = np.array([f"g{row % 9}" for row in range(900)])
    for top in measure_top_calibration(make_sample(reliability, correct, group)):
        assert (top.standard_error, top.low, top.high, top.p_value, top.is_miscalibrated) == (
            None,
            None,
            None,
            None,
            False,
        )
        assert "interval" not in top.describe()


def test_gap_rounded_to_zero_has_no_sign():
    top = TopCalibration(0.1, 100, 1000, 0, 0.9, 0.9, -1e-5, 0.01, -1e-5, 0.02, 0.9)
    text = top.describe()
    assert "difference +0.000 (95% interval +0.000 to +0.020)" in text
    tied = dataclasses.replace(top, rows=180, tied=90)
    assert re.search("180 of 1,000 rows.* 90 rows .*limit", tied.describe())
    assert "-0" not in "".join(top_rows_table([dataclasses.asdict(top) | {"is_miscalibrated": False}]).rows[0])


def test_evaluation_reports_the_top_rows():
    rows = maps.rows_of_frame(maps.make_predictions(1200), "group")
    document = maps.make_map("mrp")
    map_assessment = MapAssessment(
        document, rows, FittedMap.from_document(document)(rows), "new", [], np.zeros(len(rows), dtype=bool)
    )
    evaluation = map_assessment.evaluate()
    top = evaluation.to_dict()["top"]

    assert [(entry["share"], entry["rows"]) for entry in top] == [(0.1, 120), (0.3, 360)]
    assert any("most reliable 10% (120 rows)" in line for line in evaluation.lines)


def fit_and_test_drift(accuracy_loss: float, seed: int, n: int = 4000):
    """Simulate a map with held-out rows and new rows, and test the new rows for drift."""
    reliability, correct = simulate(seed, n)
    decision = np.random.default_rng(seed).integers(0, 3, n)
    halves, cells = summarize_reference_cells(reliability, decision, correct, None, 3)
    quantiles = tuple(np.quantile(reliability, np.linspace(0, 1, 101)).tolist())
    top = summarize_top_cells(reliability, correct, None, quantiles)
    document = maps.make_map_with_held_out(halves=halves, cells=cells, quantiles=quantiles, top=top)
    new_reliability, new_correct = simulate(seed + 10**6, n, accuracy_loss=accuracy_loss)
    new_decision = np.random.default_rng(seed + 1).integers(0, 3, n)
    return document, detect_drift(document, new_reliability, new_decision, new_correct, None)


def test_drift_compares_the_top_with_held_out_rows():
    document, drifted = fit_and_test_drift(accuracy_loss=0.1, seed=0)
    assert [(top.share, top.rows) for top in document.held_out.top] == [(0.1, 400), (0.3, 1200)]
    assert re.search(r"no longer holds .*most reliable 10%, \D*0\.9", drifted.describe(maps.LABEL_NAMES)[0])

    first = drifted.as_json()["top"][0]
    assert first["p"] < 0.01
    assert first["expected"] - first["correct"] == pytest.approx(0.1, abs=0.05)
    assert drifted.describe(None)[0] == drifted.describe(maps.LABEL_NAMES)[0]


def test_top_drift_false_alarm_rate_is_at_most_its_level():
    alarms = sum(not fit_and_test_drift(accuracy_loss=0.0, seed=seed, n=1500)[1].holds for seed in range(200))
    assert alarms <= binom.ppf(0.999, 200, 0.01)


def test_earlier_map_has_no_top_drift_test():
    document, drifted = fit_and_test_drift(accuracy_loss=0.2, seed=2)
    reliability, correct = simulate(5, 2000, accuracy_loss=0.2)
    earlier = document.model_copy(update={"held_out": document.held_out.model_copy(update={"top": ()})})
    tested = detect_drift(earlier, reliability, np.zeros(2000, dtype=np.int64), correct, None)
    assert tested.top == ()
    assert len(drifted.top) == 2


def test_correlated_groups_increase_the_reference_variance():
    reliability, correct = simulate(1, 400)
    copies = np.repeat(np.arange(400), 5)
    quantiles = np.quantile(reliability, np.linspace(0, 1, 101)).tolist()
    single = summarize_top_cells(reliability, correct, None, quantiles)
    grouped = summarize_top_cells(reliability[copies], correct[copies], copies, quantiles)
    few_groups = summarize_top_cells(reliability[copies], correct[copies], copies % 9, quantiles)

    assert few_groups == ()
    for single_cell, grouped_cell in zip(single, grouped, strict=True):
        assert grouped_cell.variance / grouped_cell.rows == pytest.approx(single_cell.variance / single_cell.rows)


def test_copies_of_a_row_in_its_group_add_no_evidence_of_drift():
    document, _ = fit_and_test_drift(accuracy_loss=0.0, seed=3)
    reliability, correct = simulate(7, 1500, accuracy_loss=0.1)
    decision = np.zeros(1500, dtype=np.int64)
    copies = np.repeat(np.arange(1500), 4)
    rows = (reliability[copies], decision[copies], correct[copies])
    grouped = detect_drift(document, *rows, copies)
    ungrouped = detect_drift(document, *rows, None)
    for grouped_top, ungrouped_top in zip(grouped.top, ungrouped.top, strict=True):
        assert ungrouped_top.p_value < grouped_top.p_value / 2


@pytest.mark.parametrize(("half", "expected"), [("lower", "below 0.75"), ("upper", "0.75 and above")])
def test_the_rows_of_a_cell_are_described_by_name_or_number_of_the_label(half, expected):
    cell = CellDrift(
        label=1,
        half=half,
        median=0.75,
        rows=40,
        mean_reliability=0.5,
        accuracy=0.5,
        expected_accuracy=0.5,
        p_value=None,
    )
    assert re.fullmatch(rf"1 .*reliability {expected}", cell.describe_rows(None))
    assert re.fullmatch(rf"yes .*reliability {expected}", cell.describe_rows(["no", "yes"]))
