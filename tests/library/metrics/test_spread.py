"""Label spread and its shuffled baseline compared with loops, a query over sorted rows and a known truth."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relmap.metrics import spread
from relmap.metrics.spread import N_RESIDUAL_BINS, LabelCells, assign_confidence_groups, mean_spread
from relmap.settings import METRIC_DEFAULTS, MetricParams


def spread_params(**choices: int) -> MetricParams:
    return METRIC_DEFAULTS.model_copy(update={f"spread_{name}": value for name, value in choices.items()})


def simulate(n: int, shift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate confidence, decision and correct; the accuracy of label 0 of 3 is lower by `shift`."""
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.4, 1, n)
    decision = generator.integers(0, 3, n)
    return confidence, decision, generator.random(n) < confidence - shift * (decision == 0)


@pytest.mark.parametrize(("groups", "excess"), [(1, 0), (1, 1), (10, 0), (10, 29)])
def test_spread_equals_a_query_over_sorted_rows(groups, excess):
    confidence, decision, correct = simulate(2013, 0.2)
    decision = np.where(np.arange(2013) % 100 == 0, 4, decision)  # a label in small cells
    decision[confidence < 0.45] = 1  # one cell of the lowest tenth is large
    frame = pl.DataFrame({"confidence": confidence, "decision": decision, "residual": correct - confidence})
    sizes = np.bincount(assign_confidence_groups(confidence, groups))
    with_group = frame.sort("confidence").with_columns(group=np.repeat(np.arange(groups), sizes))
    by_cell = with_group.group_by("group", "decision")
    expected = by_cell.agg(pl.len().alias("rows"), pl.col("residual").mean()).sort("group", "decision")
    cells = LabelCells.from_decisions(confidence, decision, correct, spread_params(groups=groups))
    cell = np.argwhere(cells.rows)
    rows = cells.rows[cells.rows > 0]
    columns = [cell, rows[:, None], (cells.sums[cells.rows > 0] / rows)[:, None]]

    assert np.hstack(columns) == pytest.approx(expected.to_numpy())
    assert (cells.sums[cells.rows == 0] == 0).all()

    minimum_cell = int(rows.min()) + excess  # without excess, the smallest cell is counted too
    large_cells = expected.filter(pl.col("rows") >= minimum_cell)
    comparable_cells = large_cells.filter(pl.len().over("group") > 1)
    residual = pl.col("residual")
    by_group = comparable_cells.group_by("group").agg(residual.max() - residual.min(), pl.col("rows").sum())
    params = spread_params(groups=groups, minimum_cell=minimum_cell)
    measured = LabelCells.from_decisions(confidence, decision, correct, params).spread()

    assert measured == pytest.approx(np.average(by_group["residual"], weights=by_group["rows"]), abs=1e-12)


def test_each_cell_has_the_residuals_of_its_own_rows_by_hand():
    confidence = np.array([0.5, 0.4, 0.7, 0.6])  # two groups of two rows: 0.4 and 0.5, 0.6 and 0.7
    decision = np.array([1, 0, 1, 0])
    correct = np.array([False, True, False, True])
    cells = LabelCells.from_decisions(confidence, decision, correct, spread_params(groups=2, minimum_cell=1))

    assert cells.rows.tolist() == [[1, 1], [1, 1]]
    assert cells.sums == pytest.approx(np.array([[0.6, -0.5], [0.4, -0.7]]))
    assert cells.spread() == pytest.approx((1.1 + 1.1) / 2)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.integers(1, 12))
def test_groups_have_equal_sizes_and_never_split_ties(levels, groups):
    confidence = np.array(levels) / 8
    measured = assign_confidence_groups(confidence, groups)
    ordered = measured[np.argsort(confidence, kind="stable")]

    assert measured.min() >= 0
    assert measured.max() < groups
    assert (np.diff(ordered) >= 0).all()
    for level in set(levels):
        assert len(set(measured[confidence == level / 8])) == 1

    untied = assign_confidence_groups(np.arange(len(levels)), groups)
    assert np.ptp(np.bincount(untied, minlength=groups)) <= 1


def test_a_row_that_equals_an_inner_quantile_is_in_the_lower_group():
    assert assign_confidence_groups(np.array([1, 2, 3, 4, 4, 4, 4, 5, 6, 7]) / 10, 2).tolist() == [0] * 7 + [1] * 3
    assert assign_confidence_groups(np.full(9, 0.5), 3).tolist() == [0] * 9
    assert assign_confidence_groups(np.array([0.5]), 10).tolist() == [0]
    # the quantiles of 0, 1, 2, 3, 4 at 1/4 steps are 1, 2 and 3
    assert assign_confidence_groups(np.arange(5.0), 4).tolist() == [0, 0, 1, 2, 3]


def test_results_depend_on_the_seed_but_not_on_row_order():
    confidence, decision, correct = simulate(1000, 0.2)
    confidence = np.round(confidence, 2)  # with ties at the borders of groups
    order = np.random.default_rng(1).permutation(1000)
    in_order = (confidence, decision, correct)
    shuffled = (confidence[order], decision[order], correct[order])
    in_order = LabelCells.from_decisions(*in_order, spread_params(permutations=50))
    shuffled = LabelCells.from_decisions(*shuffled, spread_params(permutations=50))

    assert in_order.spread() == shuffled.spread()
    assert in_order.shuffled_quantile(1) == shuffled.shuffled_quantile(1) != in_order.shuffled_quantile(2)


@pytest.mark.parametrize("n", [0, 1, 30])
def test_spread_without_two_cells_is_nan(n):
    confidence, _, correct = simulate(n, 0.0)
    cells = LabelCells.from_decisions(
        confidence, np.zeros(n, dtype=int), correct, spread_params(minimum_cell=1, permutations=5)
    )
    assert cells.rows.shape == (METRIC_DEFAULTS.spread_groups, 1)
    assert np.isnan([cells.spread(), cells.shuffled_quantile(0)]).all()


def shuffled_null(confidence, decision, correct, groups: int, permutations: int, seed: int) -> float:
    """Compute the null distribution by its definition: shuffle the residuals of each group."""
    generator = np.random.default_rng(seed)
    residual = correct - confidence
    group = assign_confidence_groups(confidence, groups)
    cells = LabelCells.from_decisions(confidence, decision, correct, spread_params(groups=groups))
    of_group = [residual[group == number] for number in range(groups)]
    spreads = []
    for _ in range(permutations):
        shuffled = np.concatenate([generator.permutation(rows) for rows in of_group])
        spreads.append(replace(cells, residual=shuffled).spread())
    return float(np.quantile(spreads, 0.95))


@pytest.mark.parametrize("n", [2000, 9000])
def test_shuffled_quantile_agrees_with_exact_shuffles(n):
    confidence, decision, correct = simulate(n, 0.3)
    # accuracy and decisions differ between groups, so shuffling across them would give another result
    correct = correct & (confidence > 0.6)
    is_in_two_thirds = np.arange(n) % 3 > 0
    decision = np.where((confidence < 0.7) & is_in_two_thirds, 0, decision)
    rows = (confidence, decision, correct)
    seeds = range(10)
    exact = [shuffled_null(*rows, 4, 200, seed) for seed in seeds]
    measured = [
        LabelCells.from_decisions(*rows, spread_params(groups=4, permutations=200)).shuffled_quantile(seed)
        for seed in seeds
    ]
    standard_error = np.hypot(np.std(exact, ddof=1), np.std(measured, ddof=1)) / np.sqrt(len(seeds))

    assert abs(np.mean(measured) - np.mean(exact)) < 3.5 * standard_error < 0.12 * np.mean(exact)


def test_bins_with_one_distinct_residual_each_contain_the_centered_residuals():
    residual = np.array([0.1, 0.1, 0.4, 0.9, -0.2, -0.2, 0.7])  # groups of four, two and one rows
    rows, means = spread._bin_residuals(np.array([4, 2, 1]), residual)
    # the bins of the first group have the width (0.9 - 0.1) / 32 = 0.025: 0.4 is in bin (0.4 - 0.1) / 0.025 = 12
    expected_rows = np.zeros((3, N_RESIDUAL_BINS), dtype=int)
    expected_rows[0, [0, 12, 31]] = [2, 1, 1]
    expected_rows[1:, 0] = [2, 1]
    expected_means = np.zeros((3, N_RESIDUAL_BINS))
    expected_means[0, [0, 12, 31]] = [0.1 - 0.375, 0.4 - 0.375, 0.9 - 0.375]

    assert rows.tolist() == expected_rows.tolist()
    assert means == pytest.approx(expected_means, abs=1e-15)


def test_binned_residuals_have_the_mean_and_the_variance_of_the_residuals():
    residual = np.random.default_rng(0).normal(size=300)
    sizes = np.array([60, 40, 200])
    rows, means = spread._bin_residuals(sizes, residual)
    centered = [group - group.mean() for group in np.split(residual, [60, 100])]

    assert rows.sum(axis=1).tolist() == sizes.tolist()
    assert (rows * means).sum(axis=1) == pytest.approx(0, abs=1e-12)
    assert (rows * means**2).sum(axis=1) == pytest.approx([np.square(group).sum() for group in centered])
    for group_rows, group in zip(rows, centered, strict=True):
        edges = np.linspace(group.min(), group.max(), N_RESIDUAL_BINS + 1)
        assert group_rows.tolist() == np.histogram(group, edges)[0].tolist()


def test_groups_and_labels_without_rows_do_not_change_the_shuffled_quantile():
    residual = np.random.default_rng(0).normal(size=15)
    params = spread_params(minimum_cell=1, permutations=20)
    expected = LabelCells(np.array([[3, 0, 4], [2, 1, 5]]), residual, params).shuffled_quantile(3)
    with_empty_cells = np.array([[3, 0, 0, 4], [0, 0, 0, 0], [2, 0, 1, 5]])
    assert LabelCells(with_empty_cells, residual, params).shuffled_quantile(3) == expected > 0


def test_shuffled_sums_of_known_residuals_are_all_their_assignments():
    # two rows of label 0 and one of label 1; the second group is constant
    sizes = np.array([[2, 1], [1, 1]])
    residual = np.array([-1.0, 0.0, 4.0, 0.5, 0.5])
    sums = spread._shuffled_sums(sizes, residual, 300, np.random.default_rng(0))

    assert sums.shape == (2, 2, 300)
    assert sums[1] == pytest.approx(0, abs=1e-15)
    assert sums.sum(axis=1) == pytest.approx(0, abs=1e-14)
    values, counts = np.unique(sums[0, 1].round(12), return_counts=True)
    assert values.tolist() == [-2, -1, 3]  # minus the mean of 1
    assert counts.min() > 70  # each is equally probable


def test_spread_of_groups_by_hand_is_weighted_by_their_counted_rows():
    rows = np.array([[2, 0, 4], [1, 10, 0], [7, 0, 0]])[..., None]
    sums = np.array(
        [
            [[1.0, -0.4], [0.0, 0.0], [-1.0, 0.8]],  # means 0.5 and -0.25, then -0.2 and 0.2
            [[0.3, 0.1], [-1.0, -1.0], [0.0, 0.0]],  # 0.3 and -0.1, then 0.1 and -0.1
            [[5.0, 5.0], [0.0, 0.0], [0.0, 0.0]],  # one label has no spread
        ]
    )
    assert mean_spread(rows, sums) == pytest.approx([(6 * 0.75 + 11 * 0.4) / 17, (6 * 0.4 + 11 * 0.2) / 17])
    assert np.isnan(mean_spread(rows[2:], sums[2:])).all()


def test_shuffle_cost_does_not_depend_on_the_number_of_rows(monkeypatch):
    class Counted(np.random.Generator):
        def hypergeometric(self, *colours):
            calls.append(np.broadcast(*colours).size)
            return super().hypergeometric(*colours)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Counted(np.random.PCG64(seed)))
    generator = np.random.Generator(np.random.PCG64(0))
    for n in (2000, 200_000):
        calls: list[int] = []
        confidence = generator.uniform(0.4, 1, n)
        decision = generator.integers(0, 3, n)
        rows = confidence, decision, generator.random(n) < confidence
        LabelCells.from_decisions(*rows, spread_params(groups=4, permutations=20)).shuffled_quantile(0)
        assert set(calls) == {4 * 20}  # a call draws for all groups and permutations
        assert len(calls) <= N_RESIDUAL_BINS * (3 - 1)  # one call for each bin and each label but the last
