"""Calibration of the most reliable rows: by another way, with ties, weights and groups, and its false alarms."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binom

from relmap.api import MapAssessment
from relmap.evaluation.drift import detect_drift, summarize_reference_cells, summarize_top_cells
from relmap.evaluation.sample import EvaluationSample
from relmap.evaluation.top_calibration import (
    TopCalibration,
    describe_top_calibration,
    describe_top_warnings,
    measure_top_calibration,
)
from relmap.io.rows import PredictedRows
from relmap.maps.reliability_map import FittedMap, ScoredDecisions
from relmap.report.page import top_rows_table
from tests import maps

SEVERAL = [1, 7]  # rows of a group


def decided(reliability: np.ndarray, correct: np.ndarray, group=None, weight=None) -> EvaluationSample:
    """Rows of one label with a reliability, and whether they are correct."""
    decision = np.zeros(len(reliability), dtype=np.int64)
    label = np.where(correct, 0, 1)
    rows = PredictedRows(None, np.full(len(reliability), 0.5), decision, label, group, None, weight)
    return EvaluationSample.from_rows(rows, ScoredDecisions(rows.confidence, logit(reliability)), maps.RULES)


def drawn(seed: int, n: int, worse: float = 0.0, level: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Reliabilities, and correct decisions that are rarer by `worse` among the most reliable tenth."""
    generator = np.random.default_rng(seed)
    reliability = expit(level + 1.5 * generator.normal(size=n))
    top = reliability >= np.quantile(reliability, 0.9)
    return reliability, generator.random(n) < reliability - worse * top


@given(st.integers(0, 10**6), st.integers(10, 300), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_gap_is_the_mean_over_random_orders_of_tied_rows(seed, n, tied):
    reliability, correct = drawn(seed, n)
    reliability = np.round(reliability, 1).clip(0.1, 0.9) if tied else reliability
    generator, gaps = np.random.default_rng(seed), []
    for _ in range(400 if tied else 1):
        order = np.lexsort((generator.random(n), -reliability))
        gaps.append([(reliability - correct)[order[: -(-tenths * n // 10)]].mean() for tenths in (1, 3)])
    found = measure_top_calibration(decided(reliability, correct))
    np.testing.assert_allclose([top.gap for top in found], np.mean(gaps, axis=0), atol=0.1 if tied else 1e-9)
    for top in found:
        assert top.gap == pytest.approx(top.predicted - top.correct, abs=1e-12)
        assert top.low < top.gap < top.high


@pytest.mark.parametrize("per_group", SEVERAL)
def test_rows_of_a_group_count_as_one_and_weights_as_copies(per_group):
    """Weights and groups together: copies of a row in its group change neither the gap nor its interval."""
    reliability, correct = drawn(4, 500)
    group = np.array([f"g{row:03}" for row in range(500)])
    single = measure_top_calibration(decided(reliability, correct, group))
    copies = np.repeat(np.arange(500), per_group)
    repeated = measure_top_calibration(decided(reliability[copies], correct[copies], group[copies]))
    weighted = measure_top_calibration(decided(reliability, correct, group, np.full(500, 3.0)))
    for one, several, heavy in zip(single, repeated, weighted, strict=True):
        for other in (several, heavy):
            assert (other.gap, other.share) == pytest.approx((one.gap, one.share), abs=1e-9)
            assert other.standard_error == pytest.approx(one.standard_error, rel=0.05)
        assert heavy.rows == one.rows
    heavy_half = measure_top_calibration(decided(reliability, correct, group, np.where(correct, 9.0, 1.0)))
    assert heavy_half[1].gap < single[1].gap - 0.02
    unevenly = measure_top_calibration(decided(reliability[copies], correct[copies], weight=np.ones(len(copies))))
    assert unevenly[1].standard_error == pytest.approx(single[1].standard_error / np.sqrt(per_group), rel=0.2)


def test_copies_of_a_row_are_not_rows_where_no_resample_has_an_error():
    judged = decided(np.full(200, 0.9), np.full(200, True), weight=np.tile([1.0, 3.0], 100))
    share = np.tile([1.0, 3.0], 100) / 400
    expected = np.sqrt((share**2).sum() * 0.9 * 0.1)
    for top in measure_top_calibration(judged):
        assert top.standard_error == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("level", [1.5, 4.0])
def test_a_calibrated_map_is_warned_of_in_at_most_five_percent(level):
    sets = 300
    alarms = 0
    for seed in range(sets):
        judged = decided(*drawn(seed, (150, 400, 1500)[seed % 3], level=level))
        alarms += bool(describe_top_warnings(measure_top_calibration(judged)))
    assert alarms <= binom.ppf(0.999, sets, 0.05)


def test_a_gap_at_the_top_is_warned_of_first():
    found = 0
    for seed in range(30):
        lines = describe_top_calibration(measure_top_calibration(decided(*drawn(seed, 2000, worse=0.12))))
        found += lines[0].startswith("Warning: the map overstates the most reliable 10% (200 rows)")
        assert len(lines) == 2
    assert found >= 27
    understated = measure_top_calibration(decided(np.full(400, 0.5), np.arange(400) % 10 > 0))
    assert "Warning: the map understates the most reliable 10%" in describe_top_calibration(understated)[0]


def test_few_groups_have_no_interval_and_no_warning():
    reliability, correct = drawn(0, 900, worse=0.5)
    few = np.array([f"g{row % 9}" for row in range(900)])
    for top in measure_top_calibration(decided(reliability, correct, few)):
        assert (top.standard_error, top.low, top.high, top.p_value, top.is_off) == (None, None, None, None, False)
        assert "interval" not in top.describe()


def test_a_gap_that_rounds_to_zero_has_no_sign():
    top = TopCalibration(0.1, 100, 0.9, 0.9, -1e-5, 0.01, -1e-5, 0.02, 0.9)
    words = top.describe()
    assert "difference +0.000 (95% interval +0.000 to +0.020)" in words
    assert "-0" not in "".join(top_rows_table([dataclasses.asdict(top) | {"off": False}]).rows[0])


def test_the_evaluation_and_the_recommendation_of_a_map_report_the_top():
    rows = maps.checked(maps.predictions(1200), "group")
    document = maps.document("mrp")
    judged = MapAssessment(
        document, rows, FittedMap.from_document(document)(rows), "new", [], np.zeros(len(rows), dtype=bool)
    )
    evaluation = judged.evaluate()
    top = evaluation.to_dict()["top"]
    assert [(each["share"], each["rows"]) for each in top] == [(0.1, 120), (0.3, 360)]
    assert any("most reliable 10% (120 rows)" in line for line in evaluation.lines)


def judged_twice(worse: float, seed: int, n: int = 4000):
    """A map with held-out rows, and whether drift finds that the top of new rows is worse."""
    reliability, correct = drawn(seed, n)
    decision = np.random.default_rng(seed).integers(0, 3, n)
    halves, cells = summarize_reference_cells(reliability, decision, correct, None, 3)
    quantiles = tuple(np.quantile(reliability, np.linspace(0, 1, 101)).tolist())
    top = summarize_top_cells(reliability, correct, None, quantiles)
    document = maps.held_out(halves=halves, cells=cells, quantiles=quantiles, top=top)
    new, right = drawn(seed + 10**6, n, worse=worse)
    decided_new = np.random.default_rng(seed + 1).integers(0, 3, n)
    return document, detect_drift(document, new, decided_new, right, None)


def test_drift_tests_the_top_against_the_held_out_rows():
    document, drifted = judged_twice(worse=0.1, seed=0)
    assert [(top.share, top.rows) for top in document.held_out.top] == [(0.1, 400), (0.3, 1200)]
    assert "The map no longer holds for the most reliable 10%, at reliability 0.9" in drifted.describe(maps.NAMES)[0]
    worst = drifted.as_json()["top"][0]
    assert worst["p"] < 0.01
    assert worst["expected"] - worst["correct"] == pytest.approx(0.1, abs=0.05)
    assert drifted.describe(None)[0] == drifted.describe(maps.NAMES)[0]


def test_an_unchanged_top_raises_no_more_alarms_than_stated():
    alarms = sum(not judged_twice(worse=0.0, seed=seed, n=1500)[1].holds for seed in range(200))
    assert alarms <= binom.ppf(0.999, 200, 0.01)


def test_a_map_of_earlier_versions_has_no_reference_and_no_test_of_the_top():
    document, drifted = judged_twice(worse=0.2, seed=2)
    reliability, correct = drawn(5, 2000, worse=0.2)
    earlier = document.model_copy(update={"held_out": document.held_out.model_copy(update={"top": ()})})
    tested = detect_drift(earlier, reliability, np.zeros(2000, dtype=np.int64), correct, None)
    assert tested.top == ()
    assert len(drifted.top) == 2


def test_groups_that_err_together_widen_the_reference_of_the_top():
    reliability, correct = drawn(1, 400)
    copies, quantiles = np.repeat(np.arange(400), 5), np.quantile(reliability, np.linspace(0, 1, 101)).tolist()
    single, grouped, few = (
        summarize_top_cells(reliability[rows], correct[rows], names, quantiles)
        for rows, names in ((np.arange(400), None), (copies, copies), (copies, copies % 9))
    )
    assert few == ()
    for one, other in zip(single, grouped, strict=True):
        assert other.variance / other.rows == pytest.approx(one.variance / one.rows)
