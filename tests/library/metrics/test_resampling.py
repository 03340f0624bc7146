"""Resamples, and the metrics that they compute, compared with repeated rows."""

import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from scipy.stats import norm

from relmap.metrics import resampling
from relmap.metrics.comparison import (
    BETTER,
    NO_DIFFERENCE,
    WORSE,
    Comparison,
    compare_interval,
    describe_metrics,
)
from relmap.metrics.intervals import (
    percentile_interval,
)
from relmap.metrics.registry import (
    METRICS,
    DecisionView,
    LabelView,
    ProbabilityView,
    ReliabilityView,
    compute_reliability_metrics,
)
from relmap.metrics.reliability import (
    RiskOrder,
    TieGroups,
    expected_retained_errors,
    find_tie_groups,
    order_by_risk,
    ranking_metrics,
)
from relmap.metrics.resampling import Resamples, draw_resamples
from relmap.metrics.spread import LabelCells, assign_confidence_groups
from relmap.settings import METRIC_DEFAULTS
from tests.fits import simulate_reliability_logits

SCORES = st.sampled_from([-np.inf, -1.0, 0.0, 2.0, np.inf])


COVERAGE = np.arange(1, 101) / 100


ROWS = st.lists(st.tuples(SCORES, st.booleans(), st.integers(0, 4)), min_size=1, max_size=25)


def draw_counts(draws: Resamples) -> np.ndarray:
    """Count how often each row is in each resample, shape (n_resamples, n_rows)."""
    n = len(draws.cluster)
    return draws.sums(np.ones(n), np.arange(n), n).T.astype(int)


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_weighted_rows_have_the_metrics_of_repeated_rows(rows):
    score, correct, weight = (np.array(column) for column in zip(*rows, strict=True))
    order = order_by_risk(score, correct)
    ones = np.ones(len(score), dtype=int)
    weights = np.stack([ones, weight if weight.any() else ones])  # a sample without rows has no metrics
    sums = np.stack(
        [np.bincount(order.cell, row_weights[order.row], 3 * order.groups) for row_weights in weights], axis=1
    )
    groups = order.build_tie_groups(sums)
    measured = ranking_metrics(groups)
    retained = expected_retained_errors(groups, COVERAGE)
    for index, copies in enumerate(weights):
        repeated = np.repeat(score, copies), np.repeat(correct, copies)
        expected = compute_reliability_metrics(*repeated)
        assert {name: expected[name] for name in measured} == pytest.approx(
            {name: values[index] for name, values in measured.items()}, abs=1e-10, nan_ok=True
        )
        assert retained[index] == pytest.approx(
            expected_retained_errors(find_tie_groups(*repeated), COVERAGE)[0], abs=1e-12
        )


@pytest.mark.parametrize("key", [key for key, m in METRICS.items() if m.resampled and m.view is not LabelView])
def test_metric_of_a_resample_equals_the_metric_of_repeated_rows(key, decisions):
    metric = METRICS[key]
    rows = decisions.take(slice(1503))
    arrays = {
        DecisionView: (),
        ReliabilityView: (np.round(rows.logits[:, 0], 1),),
        ProbabilityView: (rows.decision, log_softmax(rows.logits, axis=1), rows.label),
    }[metric.view]
    draws = draw_resamples(rows.group, resamples=5, seed=3)
    params = METRIC_DEFAULTS.model_copy(update={"ece_bins": 7})
    measured = metric.function(metric.view(rows.correct, params, draws, *arrays))
    repeated = []
    for copies in draw_counts(draws):
        repeated_arrays = [np.repeat(array, copies, axis=0) for array in arrays]
        repeated.append(metric.view(np.repeat(rows.correct, copies), params, None, *repeated_arrays))

    assert measured == pytest.approx([metric.function(view) for view in repeated], abs=1e-10)


def test_label_spread_of_a_resample_uses_the_cells_of_all_rows():
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.4, 1, 90)
    decision = generator.choice([0, 2, 5], 90, p=[0.5, 0.35, 0.15])
    correct = generator.random(90) < confidence
    draws = draw_resamples(np.arange(90) // 3, resamples=40, seed=1)
    settings = METRIC_DEFAULTS.model_copy(update={"spread_groups": 4, "spread_minimum_cell": 4})
    measured = draws.label_spread(confidence, decision, correct, settings)
    confidence_group = assign_confidence_groups(confidence, 4)
    rows = pl.DataFrame({"group": confidence_group, "decision": decision, "residual": correct - confidence})
    cell = ("group", "decision")
    counts = rows.group_by(cell).len()["len"]
    assert counts.min() < 4 < counts.max()  # some are below the minimum

    n_empty_cells = 0
    for copies, value in zip(draw_counts(draws), measured, strict=True):
        rows_of_large_cells = rows.with_columns(copies=copies).filter(pl.len().over(cell) >= 4)
        n_copies = pl.col("copies").sum()
        cells = rows_of_large_cells.group_by(cell).agg(pl.col("residual").dot("copies") / n_copies, n_copies)
        n_empty_cells += (cells["copies"] == 0).sum()
        comparable_cells = cells.filter(pl.col("copies") > 0).filter(pl.len().over("group") > 1)
        residual = pl.col("residual")
        groups = comparable_cells.group_by("group").agg(residual.max() - residual.min(), n_copies)
        assert value == pytest.approx(np.average(groups["residual"], weights=groups["copies"]), abs=1e-12)
    assert n_empty_cells > 0

    too_large_minimum = settings.model_copy(update={"spread_minimum_cell": 90})
    assert np.isnan(
        draws.label_spread(confidence, decision, correct, too_large_minimum)
    ).all()  # all cells are below the minimum


def test_resampling_a_single_cluster_keeps_the_label_spread():
    confidence = np.arange(20) / 20
    decision = np.array([*[0, 2] * 5, *[0, 1] * 5])  # no row of high confidence is decided for the last label
    correct = np.arange(20) % 3 > 0
    params = METRIC_DEFAULTS.model_copy(update={"spread_groups": 2, "spread_minimum_cell": 3})
    measured = draw_resamples(np.zeros(20), resamples=2, seed=0).label_spread(confidence, decision, correct, params)
    expected = LabelCells.from_decisions(confidence, decision, correct, params).spread()
    assert measured == pytest.approx([expected, expected])
    assert expected > 0


def test_clusters_are_resampled_whole_and_reproducibly():
    group = np.array(["b", "a", "b", "c", "a", "b"])
    counts = draw_counts(draw_resamples(group, resamples=50, seed=0))
    same_seed = draw_counts(draw_resamples(group, resamples=50, seed=0))
    other_seed = draw_counts(draw_resamples(group, resamples=50, seed=1))

    assert (counts == same_seed).all()
    assert (counts != other_seed).any()
    for name in "abc":
        assert (counts[:, group == name] == counts[:, group == name][:, :1]).all()
    assert (counts[:, [0, 1, 3]].sum(axis=1) == 3).all()  # the first row of each of the three groups
    assert len(np.unique(counts, axis=0)) == 10  # every way to draw 3 of 3 groups with replacement


def test_resamples_need_a_row_and_a_resample():
    for group, resamples, message in (
        (np.arange(3), 0, "0 resamples of 3 rows"),
        (np.arange(0), 5, "5 resamples of 0 rows"),
    ):
        with pytest.raises(ValueError, match=f"^{message}: .*at least 1$"):
            draw_resamples(group, resamples=resamples, seed=0)

    draws = draw_resamples(np.array([7]), resamples=1, seed=0)
    assert (draws.clusters, draws.resamples, draws.groups, draws.rows.tolist()) == (1, 1, 1, [1.0])
    with pytest.raises(ValueError, match="read-only"):
        draws.cluster[0] = 1


def test_resamples_in_chunks_equal_all_resamples_at_once(monkeypatch):
    score, correct = simulate_reliability_logits(60, levels=9)
    draws = draw_resamples(np.arange(60) // 4, resamples=7, seed=2)
    at_once = draws.ranking_metrics(score, correct)
    retained = draws.errors_retained(score, correct, COVERAGE)
    monkeypatch.setattr(resampling, "CHUNK_RESAMPLES", 3)

    in_chunks = draws.ranking_metrics(score, correct)
    assert {name: values.tolist() for name, values in in_chunks.items()} == {
        name: values.tolist() for name, values in at_once.items()
    }
    assert retained.shape == (7, len(COVERAGE))
    assert draws.errors_retained(score, correct, COVERAGE).tolist() == retained.tolist()
    assert draws.mean(score) == pytest.approx(draw_counts(draws) @ score / draw_counts(draws).sum(axis=1))


@pytest.mark.parametrize(("max_groups", "starts"), [(6, [0, 2, 7, 13, 18, 20]), (3, [0, 10, 20]), (2, [0, 20])])
def test_merging_tie_groups_sums_their_rows_and_is_finer_at_both_ends(max_groups, starts):
    # From low risk to high: two correct rows, then a tie of a correct and a wrong row, and so on. Each of the twenty
    # ties with a wrong row is a group; the last group is empty. Merged groups begin at the groups `starts`.
    score = -np.arange(80.0) // 2
    correct = np.arange(80) % 4 < 3
    copies = np.random.default_rng(0).integers(4, size=(80, 2))

    def weigh(order: RiskOrder) -> TieGroups:
        sums = [np.bincount(order.cell, weight[order.row], 3 * order.groups) for weight in copies.T]
        return order.build_tie_groups(np.stack(sums, axis=1))

    order = order_by_risk(score, correct)
    coarse = order.coarsen(max_groups)
    single = weigh(order)
    merged = weigh(coarse)
    last = [*(start - 1 for start in starts[1:]), 20]

    assert (order.groups, coarse.groups) == (21, max_groups)
    assert coarse.row is order.row
    assert merged.before.tolist() == single.before[starts].tolist()
    assert merged.upto.tolist() == single.upto[last].tolist()
    assert merged.wrong.tolist() == np.add.reduceat(single.wrong, starts).tolist()


def test_as_many_tie_groups_as_allowed_are_not_merged():
    order = order_by_risk(*simulate_reliability_logits(300, levels=30))
    for max_groups in (order.groups, order.groups + 1):
        assert order.coarsen(max_groups) is order
    assert order.coarsen(order.groups - 1).groups < order.groups


def test_more_than_a_thousand_groups_are_merged():
    draws = draw_resamples(np.arange(1000), resamples=1, seed=0)
    assert (draws.clusters, draws.groups, draws.cluster.tolist()) == (1000, 1000, list(range(1000)))

    draws = draw_resamples(np.arange(1001), resamples=1, seed=0)
    assert (draws.clusters, draws.groups, len(set(draws.cluster))) == (1000, 1001, 1000)
    assert (draw_resamples(np.arange(1001), resamples=1, seed=1).cluster != draws.cluster).any()


@pytest.mark.parametrize(("n_errors", "is_exact"), [(2**11 - 1, True), (2**11, False)])
def test_more_than_2048_tie_groups_are_merged(n_errors, is_exact, monkeypatch):
    score = -np.arange(2.0 * n_errors)
    correct = np.arange(2 * n_errors) % 2 == 0
    draws = draw_resamples(np.arange(2 * n_errors) % 7, resamples=2, seed=0)
    measured = draws.ranking_metrics(score, correct)["aurc"], draws.errors_retained(score, correct, COVERAGE)
    monkeypatch.setattr(resampling, "MAX_TIE_GROUPS", 10**6)
    exact = draws.ranking_metrics(score, correct)["aurc"], draws.errors_retained(score, correct, COVERAGE)

    for values, exact_values in zip(measured, exact, strict=True):
        assert values == pytest.approx(exact_values, rel=1e-3)
        assert (values.tolist() == exact_values.tolist()) == is_exact


@pytest.mark.parametrize(("n_rows", "number_type"), [(2**24 - 1, np.float32), (2**24 + 1, np.float64)])
def test_row_counts_use_float32_only_where_it_is_exact(n_rows, number_type, monkeypatch):
    dtypes = []
    original_sums = Resamples._resample_sums

    def recorded_sums(draws: Resamples, matrix: np.ndarray) -> np.ndarray:
        dtypes.append(matrix.dtype)
        return original_sums(draws, matrix)

    monkeypatch.setattr(Resamples, "_resample_sums", recorded_sums)
    draws = draw_resamples(np.arange(4), resamples=2, seed=0)
    vars(draws)["rows"] = np.array([4.0, n_rows])  # the second resample seems to have n_rows rows
    (groups,) = draws._tie_group_chunks(order_by_risk(np.arange(4.0), np.array([True, False, True, True])))
    assert dtypes == [number_type]
    assert groups.upto.dtype == np.float64


def test_results_do_not_depend_on_row_order():
    score, correct = simulate_reliability_logits(900, levels=20)
    group = np.arange(900) // 5
    score[:40] = np.inf
    score[40:80] = -np.inf
    measured = []
    for order in (np.arange(900), np.random.default_rng(4).permutation(900)):
        rows = (score[order], correct[order])
        draws = draw_resamples(group[order], resamples=30, seed=1)
        losses = []
        ranking = [expected_retained_errors(find_tie_groups(*rows), COVERAGE), draws.errors_retained(*rows, COVERAGE)]
        for metrics in (compute_reliability_metrics(*rows), compute_reliability_metrics(*rows, draws=draws)):
            losses.append(metrics.pop("nll_correct"))
            ranking += metrics.values()
        measured.append((np.hstack(losses), np.hstack([np.ravel(values) for values in ranking])))
    # The order of the rows changes the rounding of sums of losses; sums of counts are exact
    (losses, ranking), (other_losses, other_ranking) = measured

    assert losses == pytest.approx(other_losses, abs=1e-12)
    assert (ranking == other_ranking).all()


def test_merged_groups_have_the_variance_of_single_groups(monkeypatch):
    """With 100 merged clusters the standard error of a standard error is 7%; five times that is allowed."""
    score, correct = simulate_reliability_logits(20_000)
    group = np.arange(20_000) // 5
    exact = compute_reliability_metrics(score, correct, draws=draw_resamples(group, resamples=400, seed=0))
    monkeypatch.setattr(resampling, "MAX_CLUSTERS", 100)  # of 4,000
    draws = draw_resamples(group, resamples=400, seed=0)
    assert len(np.unique(np.stack([draws.cluster, group]), axis=1).T) == 4000  # each group is in one merged cluster
    assert (draws.clusters, draws.groups, set(np.bincount(draws.cluster))) == (100, 4000, {200})
    for key, replicates in compute_reliability_metrics(score, correct, draws=draws).items():
        assert percentile_interval(replicates).standard_error == pytest.approx(
            percentile_interval(exact[key]).standard_error, rel=0.35
        )

    order = np.random.default_rng(0).permutation(len(score))
    assert (draw_resamples(group[order], resamples=400, seed=0).cluster == draws.cluster[order]).all()


def test_merging_tie_groups_changes_intervals_less_than_resampling_noise(monkeypatch):
    score, correct = simulate_reliability_logits(20_000)
    group = np.arange(20_000) // 5
    draws = draw_resamples(group, resamples=400, seed=0)
    changed_score = score + np.random.default_rng(1).normal(size=len(score)) / 3

    def interval_numbers() -> np.ndarray:
        before = compute_reliability_metrics(score, correct, draws=draws)
        after = compute_reliability_metrics(changed_score, correct, draws=draws)
        numbers = []
        for key in before:
            for replicates in (before[key], after[key] - before[key]):
                interval = percentile_interval(replicates)
                numbers.append([interval.low, interval.high, interval.standard_error])
        return np.array(numbers)

    with monkeypatch.context() as unmerged:
        unmerged.setattr(resampling, "MAX_TIE_GROUPS", 10**6)  # of about 4,000
        exact = interval_numbers()
    # Standard error of a quantile of 400 normal numbers, in units of their standard deviation
    noise = np.sqrt(0.025 * 0.975 / draws.resamples) / norm.pdf(norm.ppf(0.025))
    assert (np.abs(interval_numbers() - exact) <= noise * exact[:, 2:]).all()


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.1, 0.2, BETTER),
        (-0.2, -0.1, WORSE),
        (-0.1, 0.2, NO_DIFFERENCE),
        (0.0, 0.2, NO_DIFFERENCE),
        (-0.2, 0.0, NO_DIFFERENCE),
        (None, None, NO_DIFFERENCE),
        (np.nan, np.nan, NO_DIFFERENCE),
    ],
)
def test_only_an_interval_that_excludes_zero_is_better_or_worse(low, high, word):
    opposite = {BETTER: WORSE, WORSE: BETTER}.get(word, word)
    assert compare_interval(low, high, direction=1) == word
    assert compare_interval(low, high, direction=-1) == compare_interval(low, high) == opposite
    assert Comparison(change=0.0, low=low, high=high).word == opposite


def test_known_changes_of_metrics_are_listed_in_their_order():
    unknown = {"change": None, "low": None, "high": None}
    changes = {
        "aurc": {"change": 0.25, "low": None, "high": None},
        "aupr_error": unknown,
        "nll_correct": {"change": -0.5, "low": -0.75, "high": 0.125},
    }
    (line,) = describe_metrics(changes)
    numbers = r"correctness log loss -0\.5000 \(95% .*-0\.7500 .*\+0\.1250\), AURC \+0\.2500\.$"
    assert re.search(f"confidence .*reliability: {numbers}", line)
    assert describe_metrics({"aurc": unknown}) == describe_metrics({}) == []
