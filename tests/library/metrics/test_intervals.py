"""Intervals, p-values and their corrections by definition."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from relmap.metrics.intervals import (
    Estimate,
    effective_rows,
    errors_found_per_1000,
    format_interval,
    holm_adjust,
    percentile_interval,
    share_confidence_interval,
    two_sided_p,
    wilson_interval,
)
from relmap.metrics.registry import (
    compute_reliability_metrics,
)
from relmap.metrics.resampling import draw_resamples
from tests.fits import simulate_reliability_logits


def test_percentile_interval_of_known_replicates():
    measured = percentile_interval(np.arange(201.0))
    assert [measured.low, measured.high] == pytest.approx([5, 195])
    # the variance of the numbers 0 to n - 1 is n (n + 1) / 12
    assert measured.standard_error == pytest.approx(np.sqrt(201 * 202 / 12))
    assert percentile_interval(np.array([3.0, 5.0])) == pytest.approx((np.sqrt(2), 3.05, 4.95))
    assert np.isnan(percentile_interval(np.zeros(1))).all()


def test_share_interval_equals_scipy():
    rows = np.array([7, 7, 7, 400])
    n_correct = np.array([0, 3, 7, 390])
    exact = [binomtest(int(k), int(n)).proportion_ci() for k, n in zip(n_correct, rows, strict=True)]

    assert np.transpose(share_confidence_interval(n_correct, rows)) == pytest.approx(np.array(exact), abs=1e-9)


def test_wilson_interval_equals_scipy_and_is_unknown_without_rows():
    rows = np.array([7, 7, 7, 400, 60])
    n_correct = np.array([0, 3, 7, 390, 1])
    expected = []
    for correct, total in zip(n_correct, rows, strict=True):
        interval = binomtest(int(correct), int(total)).proportion_ci(method="wilson")
        expected.append([interval.low, interval.high])

    assert np.transpose(wilson_interval(n_correct / rows, rows)) == pytest.approx(np.array(expected), abs=1e-12)
    assert np.isnan(wilson_interval(np.array([np.nan, 0.5]), np.array([9.0, np.nan]))).all()
    low, high = wilson_interval(np.array([0.0, 1.0]), np.array([3.0, 3.0]))
    assert (low.min(), high.max()) == (0, 1)


def test_effective_rows_of_two_groups_by_hand():
    one_copy = np.array(8.0)  # sum of the squared numbers of copies of 8 rows

    def measure(share: float, squared_residuals: float, squared_copies: np.ndarray = one_copy) -> float:
        # groups of 3 and 5 rows
        squared_rows = np.array(3.0**2 + 5.0**2)
        n_rows = np.array(8.0)
        residuals = np.array(squared_residuals)
        return float(effective_rows(np.array(share), n_rows, residuals, squared_rows, squared_copies))

    # 3 and 1 rows are correct: the residuals are 3 - 1.5 and 1 - 2.5
    assert measure(0.5, 4.5) == pytest.approx(0.25 * 64 / 4.5)
    # 2 and 1 rows are correct: the residuals are 2 - 9/8 and 1 - 15/8, that is 7/8 and -7/8
    assert measure(0.375, 98 / 64, np.array(4.0)) == pytest.approx(0.375 * 0.625 * 64 / (98 / 64))
    # at most 8 rows, and fewer if the numbers of copies are unequal
    assert measure(0.375, 98 / 64) == 8
    assert measure(0.5, 4.5, np.array(20.0)) == pytest.approx(64 / 20)
    assert measure(0.5, 0.0) == 8  # the share is 0.5 in both groups
    # if all rows are wrong, or all correct, the groups count as one row each
    assert measure(0.0, 0.0) == measure(1.0, 0.0) == pytest.approx(64 / 34)
    assert np.isnan(effective_rows(np.array([np.nan]), *np.zeros((4, 1)))).all()


def test_errors_found_are_those_outside_of_the_retained_rows():
    # errors in total, errors in the retained rows, number of reviews: 1000 * (50 - 20) / 120
    assert errors_found_per_1000(50.0, 20.0, 120.0) == 250
    assert errors_found_per_1000(np.array([50.0, 8.0]), 2.0, np.array([100.0, 12.0])).tolist() == [480, 500]


def test_interval_is_formatted_if_both_ends_are_known():
    assert format_interval(-0.5, 0.25, "+z.1f") == " (95% interval -0.5 to +0.2)"
    assert format_interval(None, 0.25, "+z.1f") == ""
    assert format_interval(-0.5, None, "+z.1f") == ""


def test_p_values_of_known_replicates():
    # 2 * (1 + number of replicates on the rarer side of 0) / (1 + number of replicates)
    assert two_sided_p(np.array([1.0, 2.0, 3.0, -1.0, 5.0, 1.0, 1.0, 1.0, 1.0])) == pytest.approx(2 * 2 / 10)
    assert two_sided_p(np.full(99, 2.0)) == two_sided_p(np.full(99, -2.0)) == pytest.approx(2 / 100)  # never 0
    assert two_sided_p(np.array([-1.0, 1.0, 0.0])) == 1
    for sign in (1, -1):
        assert two_sided_p(sign * np.repeat([-1.0, 0.0], [20, 1])) == pytest.approx(2 * 2 / 22)  # 0 is on both sides


def test_undefined_replicates_are_omitted_up_to_five_percent():
    score = simulate_reliability_logits(40)[0]
    correct = np.arange(40) >= 3  # three errors: 5% of the resamples have none
    draws = draw_resamples(np.arange(40), resamples=1000, seed=0)
    undefined = np.isnan(compute_reliability_metrics(score, correct, draws=draws)["aupr_error"])
    assert (undefined == (draws.mean(correct) == 1)).all()
    assert 0 < undefined.mean() < 0.08

    five_undefined = np.append(np.full(5, np.nan), np.arange(1.0, 96.0))
    six_undefined = np.append(np.full(6, np.nan), np.arange(1.0, 95.0))
    assert percentile_interval(five_undefined) == percentile_interval(five_undefined[5:])
    assert two_sided_p(five_undefined) == 2 / 96

    measured = percentile_interval(six_undefined)
    assert np.isnan([measured.low, measured.high, measured.standard_error, two_sided_p(six_undefined)]).all()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1) | st.just(np.nan), max_size=6))
def test_holm_equals_closed_bonferroni_testing(p_values):
    # A hypothesis is rejected if every subset that contains it is rejected by Bonferroni
    tested = [i for i, p in enumerate(p_values) if p == p]  # noqa: PLR0124, NaN is a test that was not performed
    subsets = [subset for size in range(len(tested)) for subset in combinations(tested, size + 1)]
    expected = np.full(len(p_values), np.nan)
    for subset in subsets:
        members = list(subset)
        bonferroni = min(1, len(members) * min(p_values[i] for i in members))
        expected[members] = np.fmax(expected[members], bonferroni)

    assert holm_adjust(np.array(p_values)) == pytest.approx(expected, nan_ok=True)


def test_adjusted_p_values_by_hand():
    p_values = np.array([0.02, 0.01, np.nan, 0.6, 0.02])
    assert holm_adjust(p_values) == pytest.approx([0.06, 0.04, np.nan, 0.6, 0.06], nan_ok=True)
    assert p_values[0] == 0.02  # the input does not change
    assert holm_adjust(np.array([0.5, 0.6], dtype=np.float32)).dtype == np.float64
    assert holm_adjust(np.array([])).tolist() == []


def test_difference_of_estimates_is_paired():
    before, after = np.random.default_rng(0).normal(size=(2, 300))
    change = Estimate(3.0, after) - Estimate(1.0, before)
    assert (change.value, change.interval, change.p_value) == (
        2.0,
        percentile_interval(after - before),
        two_sided_p(after - before),
    )

    for unpaired in (Estimate(3.0, after) - Estimate(1.0), Estimate(3.0) - Estimate(1.0, before)):
        assert unpaired.value == 2
        assert unpaired.replicates is None
        assert np.isnan([*unpaired.interval, unpaired.p_value]).all()
