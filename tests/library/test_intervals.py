"""The bootstrap over clusters: against repeated rows, nominal coverage and other people's implementations."""

from itertools import combinations
from typing import get_args

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from scipy.stats import binomtest, norm

from relmap.metrics import resampling
from relmap.metrics.intervals import (
    Estimate,
    Sign,
    classify_change,
    classify_relevant_change,
    combine_signs,
    holm_adjust,
    percentile_interval,
    share_confidence_interval,
    two_sided_p,
)
from relmap.metrics.registry import (
    METRICS,
    DecisionView,
    LabelView,
    ProbabilityView,
    ReliabilityView,
    compute_reliability_metrics,
)
from relmap.metrics.reliability import expected_retained_errors, find_tie_groups, order_by_risk, ranking_metrics
from relmap.metrics.resampling import Resamples, draw_resamples
from relmap.metrics.spread import assign_confidence_groups
from relmap.settings import METRIC_DEFAULTS
from tests.fits import simulate_reliability_logits

BETTER, WORSE, NOT_CERTAIN, BOTH, NO_DIFFERENCE = get_args(Sign)

SCORES = st.sampled_from([-np.inf, -1.0, 0.0, 2.0, np.inf])
COVERAGE = np.arange(1, 101) / 100
ROWS = st.lists(st.tuples(SCORES, st.booleans(), st.integers(0, 4)), min_size=1, max_size=25)


def times_drawn(draws: Resamples) -> np.ndarray:
    """How often each row is in each resample, `(R, n)`."""
    n = len(draws.cluster)
    return draws.sums(np.ones(n), np.arange(n), n).T.astype(int)


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_a_weight_counts_as_that_many_tied_rows(rows):
    t, correct, weight = (np.array(column) for column in zip(*rows, strict=True))
    order = order_by_risk(t, correct)
    weights = np.stack([np.ones(len(t), dtype=int), np.maximum(weight, weight.sum() == 0)])
    sums = np.stack([np.bincount(order.cell, of[order.row], 3 * order.groups) for of in weights], axis=1)
    groups = order.weighted(sums)
    measured = ranking_metrics(groups)
    retained = expected_retained_errors(groups, COVERAGE)
    for at, times in enumerate(weights):
        repeated = np.repeat(t, times), np.repeat(correct, times)
        expected = compute_reliability_metrics(*repeated)
        assert {name: expected[name] for name in measured} == pytest.approx(
            {name: values[at] for name, values in measured.items()}, abs=1e-10, nan_ok=True
        )
        assert retained[at] == pytest.approx(
            expected_retained_errors(find_tie_groups(*repeated), COVERAGE)[0], abs=1e-12
        )


@pytest.mark.parametrize("key", [key for key, m in METRICS.items() if m.resampled and m.view is not LabelView])
def test_a_metric_of_a_resample_equals_that_of_its_repeated_rows(key, decisions):
    metric = METRICS[key]
    rows = decisions.take(slice(1503))
    arrays = {
        DecisionView: (),
        ReliabilityView: (np.round(rows.logits[:, 0], 1),),
        ProbabilityView: (rows.decision, log_softmax(rows.logits, axis=1), rows.labels),
    }[metric.view]
    draws = draw_resamples(rows.group, resamples=5, seed=3)
    params = METRIC_DEFAULTS.model_copy(update={"ece_bins": 7})
    measured = metric.function(metric.view(rows.correct, params, draws, *arrays))
    repeated = [
        metric.view(*(np.repeat(rows.correct, times), params, None), *(np.repeat(x, times, axis=0) for x in arrays))
        for times in times_drawn(draws)
    ]
    assert measured == pytest.approx([metric.function(view) for view in repeated], abs=1e-10)


def test_the_label_spread_keeps_the_groups_and_cells_of_all_rows():
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.4, 1, 90)
    decision = generator.choice([0, 2, 5], 90, p=[0.5, 0.35, 0.15])
    correct = generator.random(90) < confidence
    draws = draw_resamples(np.arange(90) // 3, resamples=40, seed=1)
    four = METRIC_DEFAULTS.model_copy(update={"spread_groups": 4, "spread_minimum_cell": 4})
    measured = draws.label_spread(confidence, decision, correct, four)
    rows = pl.DataFrame({"g": assign_confidence_groups(confidence, 4), "d": decision, "r": correct - confidence})
    counts = rows.group_by("g", "d").len()["len"]
    assert counts.min() < 4 < counts.max()  # some are too small to count
    emptied = 0
    for times, value in zip(times_drawn(draws), measured, strict=True):
        counted = rows.with_columns(n=times).filter(pl.len().over("g", "d") >= 4).group_by("g", "d")
        cells = counted.agg(pl.col("r").dot("n") / pl.col("n").sum(), pl.col("n").sum())
        emptied += (cells["n"] == 0).sum()
        several = cells.filter(pl.col("n") > 0).filter(pl.len().over("g") > 1)
        groups = several.group_by("g").agg(pl.col("r").max() - pl.col("r").min(), pl.col("n").sum())
        assert value == pytest.approx(np.average(groups["r"], weights=groups["n"]), abs=1e-12)
    assert emptied > 0
    more = four.model_copy(update={"spread_minimum_cell": 90})
    assert np.isnan(draws.label_spread(confidence, decision, correct, more)).all()  # no cell counts


def test_clusters_are_drawn_as_a_whole_and_reproducibly():
    group = np.array(["b", "a", "b", "c", "a", "b"])
    drawn, again, other = (times_drawn(draw_resamples(group, resamples=50, seed=seed)) for seed in (0, 0, 1))
    assert (drawn == again).all()
    assert (drawn != other).any()
    for name in "abc":
        assert (drawn[:, group == name] == drawn[:, group == name][:, :1]).all()
    assert (drawn[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert len(np.unique(drawn, axis=0)) == 10  # every way to draw 3 of 3


def test_the_order_of_rows_does_not_change_results():
    t, correct = simulate_reliability_logits(900, levels=20)
    group = np.arange(900) // 5
    t[:40] = np.inf
    t[40:80] = -np.inf
    measured = []
    for order in (np.arange(900), np.random.default_rng(4).permutation(900)):
        rows = (t[order], correct[order])
        draws = draw_resamples(group[order], resamples=30, seed=1)
        metrics = compute_reliability_metrics(*rows), compute_reliability_metrics(*rows, draws=draws)
        losses = np.hstack([by_name.pop("nll_correct") for by_name in metrics])
        retained = expected_retained_errors(find_tie_groups(*rows), COVERAGE), draws.errors_retained(*rows, COVERAGE)
        ranked = [values for by_name in metrics for values in by_name.values()]
        measured.append((losses, np.hstack([*ranked, *map(np.ravel, retained)])))
    (losses, ranked), (other_losses, other_ranked) = measured
    assert losses == pytest.approx(other_losses, abs=1e-12)
    assert (ranked == other_ranked).all()


def test_merged_groups_have_the_variance_of_single_groups(monkeypatch):
    """As exact as 100 bags are: their deviation is off by 7% in two of three cases."""
    t, correct = simulate_reliability_logits(20_000)
    group = np.arange(20_000) // 5
    exact = compute_reliability_metrics(t, correct, draws=draw_resamples(group, resamples=400, seed=0))
    monkeypatch.setattr(resampling, "MAX_CLUSTERS", 100)  # of 4,000
    draws = draw_resamples(group, resamples=400, seed=0)
    assert len(np.unique(np.stack([draws.cluster, group]), axis=1).T) == 4000  # a group falls in one bag
    assert (draws.clusters, draws.groups, set(np.bincount(draws.cluster))) == (100, 4000, {200})
    for key, replicates in compute_reliability_metrics(t, correct, draws=draws).items():
        assert percentile_interval(replicates).standard_error == pytest.approx(
            percentile_interval(exact[key]).standard_error, rel=0.35
        )
    order = np.random.default_rng(0).permutation(len(t))
    assert (draw_resamples(group[order], resamples=400, seed=0).cluster == draws.cluster[order]).all()


def test_merging_tie_groups_moves_intervals_less_than_resampling_does(monkeypatch):
    t, correct = simulate_reliability_logits(20_000)
    group = np.arange(20_000) // 5
    draws = draw_resamples(group, resamples=400, seed=0)
    after = t + np.random.default_rng(1).normal(size=len(t)) / 3

    def ends() -> np.ndarray:
        before, change = (compute_reliability_metrics(at, correct, draws=draws) for at in (t, after))
        measured = [percentile_interval(of) for key in before for of in (before[key], change[key] - before[key])]
        return np.array([[of.low, of.high, of.standard_error] for of in measured])

    exact = ends()
    monkeypatch.setattr(resampling, "MAX_TIE_GROUPS", 1000)  # of about 4,000
    # the standard error of an end that is a quantile of 400 normal numbers, in their deviations
    noise = np.sqrt(0.025 * 0.975 / draws.resamples) / norm.pdf(norm.ppf(0.025))
    assert (np.abs(ends() - exact) <= noise * exact[:, 2:]).all()


def test_an_interval_by_hand():
    measured = percentile_interval(np.arange(201.0))
    assert [measured.low, measured.high] == pytest.approx([5, 195])
    assert measured.standard_error == pytest.approx(np.sqrt(201 * 202 / 12))
    assert np.isnan(percentile_interval(np.zeros(1))).all()


def test_the_interval_of_a_share_is_that_of_scipy():
    rows = np.array([7, 7, 7, 400])
    right = np.array([0, 3, 7, 390])
    exact = [binomtest(int(k), int(n)).proportion_ci() for k, n in zip(right, rows, strict=True)]
    assert np.transpose(share_confidence_interval(right, rows)) == pytest.approx(np.array(exact), abs=1e-9)


def test_p_values_by_hand():
    assert two_sided_p(np.array([1.0, 2.0, 3.0, -1.0, 5.0, 1.0, 1.0, 1.0, 1.0])) == pytest.approx(2 * 2 / 10)
    assert two_sided_p(np.full(99, 2.0)) == two_sided_p(np.full(99, -2.0)) == pytest.approx(2 / 100)  # never 0
    assert two_sided_p(np.array([-1.0, 1.0, 0.0])) == 1
    for sign in (1, -1):
        assert two_sided_p(sign * np.repeat([-1.0, 0.0], [20, 1])) == pytest.approx(2 * 2 / 22)  # 0 is on both sides


def test_resamples_without_errors_are_omitted_and_too_many_give_no_interval():
    t = simulate_reliability_logits(40)[0]
    correct = np.arange(40) >= 3  # three errors: 1 resample in 20 has none
    draws = draw_resamples(np.arange(40), resamples=1000, seed=0)
    undefined = np.isnan(compute_reliability_metrics(t, correct, draws=draws)["aupr_error"])
    assert (undefined == (draws.mean(correct) == 1)).all()
    assert 0 < undefined.mean() < 0.08
    five, six = (np.append(np.full(n, np.nan), np.arange(1.0, 101 - n)) for n in (5, 6))
    assert percentile_interval(five) == percentile_interval(five[5:])
    assert two_sided_p(five) == 2 / 96
    measured = percentile_interval(six)
    assert np.isnan([measured.low, measured.high, measured.standard_error, two_sided_p(six)]).all()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1) | st.just(np.nan), max_size=6))
def test_holm_equals_the_closed_test_of_bonferroni(p_values):
    # a hypothesis is rejected where every set that holds it is: the largest of their Bonferroni p-values
    made = [i for i, p in enumerate(p_values) if p == p]  # noqa: PLR0124, NaN is a test that was not made
    sets = [s for size in range(len(made)) for s in combinations(made, size + 1)]
    of_set = {s: min(1, len(s) * min(p_values[i] for i in s)) for s in sets}
    expected = [max((p for s, p in of_set.items() if i in s), default=np.nan) for i in range(len(p_values))]
    assert holm_adjust(np.array(p_values)) == pytest.approx(np.array(expected), nan_ok=True)


@pytest.mark.parametrize(
    ("low", "high", "p", "sign"),
    [
        (0.1, 0.2, 0.01, BETTER),
        (-0.2, -0.1, 0.01, WORSE),
        (-0.1, 0.2, 0.01, NOT_CERTAIN),
        (0.1, 0.2, 0.05, NOT_CERTAIN),  # the interval alone is not enough
        (0.1, 0.2, None, NOT_CERTAIN),
        (np.nan, np.nan, np.nan, NOT_CERTAIN),
    ],
)
def test_a_change_is_certain_only_by_interval_and_corrected_p_value(low, high, p, sign):
    assert classify_change(1, low, high, p) == sign
    assert classify_change(-1, low, high, p) == {BETTER: WORSE, WORSE: BETTER}.get(sign, sign)


@pytest.mark.parametrize(
    ("change", "low", "high", "sign"),
    [
        (0.15, 0.1, 0.2, BETTER),
        (0.0000035, 0.000001, 0.000006, NO_DIFFERENCE),  # certain, and too small to matter
        (0.0, -0.0005, 0.0005, NO_DIFFERENCE),
        (0.0, -0.0005, 0.002, NOT_CERTAIN),
        (0.0002, -0.1, 0.1, NOT_CERTAIN),  # too few rows to know that it is small
        (-0.15, -0.2, -0.1, WORSE),
        (0.15, None, None, NOT_CERTAIN),
        (0.15, np.nan, np.nan, NOT_CERTAIN),
    ],
)
def test_a_change_below_the_smallest_relevant_one_is_neither_better_nor_worse(change, low, high, sign):
    p = 0.01 if low is not None and low * high > 0 else 0.5
    assert classify_relevant_change(1, change, low, high, p, 0.001) == sign


def test_rankings_have_no_relevant_difference_only_if_no_metric_has_one():
    assert combine_signs([NO_DIFFERENCE, NO_DIFFERENCE]) == NO_DIFFERENCE
    assert combine_signs([NO_DIFFERENCE, NOT_CERTAIN]) == NOT_CERTAIN
    assert combine_signs([NO_DIFFERENCE, BETTER]) == BETTER
    assert combine_signs([BETTER, WORSE]) == BOTH


def test_a_comparison_is_paired():
    before, after = np.random.default_rng(0).normal(size=(2, 300))
    change = Estimate(3.0, after) - Estimate(1.0, before)
    assert (change.value, change.interval, change.p_value) == (
        2.0,
        percentile_interval(after - before),
        two_sided_p(after - before),
    )
    alone = Estimate(3.0, after) - Estimate(1.0)
    assert np.isnan([alone.interval.low, alone.interval.high, alone.p_value]).all()
