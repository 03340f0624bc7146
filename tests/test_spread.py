"""The label spread and its shuffled baseline, against hand-worked cells, naive loops and a known truth."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.metrics.spread import confidence_groups, label_cells, label_spread, label_spread_null, mean_spread


def drawn(n: int, shift: float, seed: int = 0, K: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Confidence, decision, correct and the true residual; label 0 is right less often by `shift`."""
    generator = np.random.default_rng(seed)
    confidence, decision = generator.uniform(0.4, 1, n), generator.integers(0, K, n)
    residual = -shift * (decision == 0)
    return confidence, decision, generator.random(n) < confidence + residual, residual


def test_spread_by_hand():
    # two groups by confidence. Low: label 0 has .1 wrong, .2 right; label 1 has .3 right, .4 right
    # means of Z - c: (-.1 + .8)/2 = .35 and (.7 + .6)/2 = .65, spread .3
    # high: label 0 has .6 right, .7 wrong; label 1 has .8 right, .9 right: (.4 - .7)/2 = -.15 and .15, spread .3
    confidence = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9])
    decision = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    correct = np.array([0, 1, 1, 1, 1, 0, 1, 1], dtype=bool)
    cells = label_cells(confidence, decision, correct - confidence, groups=2)
    assert cells.group.tolist() == [0, 0, 1, 1]
    assert cells.label.tolist() == [0, 1, 0, 1]
    assert cells.rows.tolist() == [2, 2, 2, 2]
    assert cells.residual == pytest.approx([0.35, 0.65, -0.15, 0.15])
    assert mean_spread(cells, minimum_cell=2) == pytest.approx(0.3)
    assert label_spread(confidence, decision, correct, groups=2, minimum_cell=2) == pytest.approx(0.3)


def test_spread_equals_a_query_over_sorted_rows():
    confidence, decision, correct, _ = drawn(4013, 0.2)
    by_rank = pl.DataFrame({"c": confidence, "d": decision, "r": correct - confidence}).sort("c")
    sizes = np.bincount(confidence_groups(confidence, 10))
    cells = (
        by_rank.with_columns(g=np.repeat(np.arange(10), sizes)).group_by("g", "d").agg(pl.col("r").mean(), n=pl.len())
    )
    groups = cells.group_by("g").agg(pl.col("r").max() - pl.col("r").min(), pl.col("n").sum())
    expected = np.average(groups["r"], weights=groups["n"])
    assert label_spread(confidence, decision, correct) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.integers(1, 12))
def test_groups_hold_equal_mass_and_never_part_equals(levels, groups):
    confidence = np.array(levels) / 8
    found = confidence_groups(confidence, groups)
    ordered = found[np.argsort(confidence, kind="stable")]
    assert found.min() >= 0
    assert found.max() < groups
    assert (np.diff(ordered) >= 0).all()
    for level in set(levels):
        assert len(set(found[confidence == level / 8])) == 1
    untied = confidence_groups(np.arange(len(levels)), groups)
    assert np.ptp(np.bincount(untied, minlength=groups)) <= 1


def test_a_tie_goes_where_its_middle_falls():
    # ten rows in two groups: the tie covers 3 to 7, its middle 5 is the border, and the border belongs above
    assert confidence_groups(np.array([1, 2, 3, 4, 4, 4, 4, 5, 6, 7]) / 10, 2).tolist() == [0] * 3 + [1] * 7
    assert confidence_groups(np.full(9, 0.5), 3).tolist() == [1] * 9


def test_the_order_of_rows_changes_no_bit():
    confidence, decision, correct, _ = drawn(3000, 0.2)
    confidence = np.round(confidence, 2)  # with ties at the borders of groups
    order = np.random.default_rng(1).permutation(3000)
    here, there = (confidence, decision, correct), (confidence[order], decision[order], correct[order])
    assert label_spread(*here) == label_spread(*there)
    assert label_spread_null(*here, permutations=50, seed=1) == label_spread_null(*there, permutations=50, seed=1)


def test_a_small_cell_does_not_count():
    confidence, decision, correct, _ = drawn(1000, 0.0, K=2)
    odd = np.arange(1000) % 100 == 0  # ten rows of a third label, always wrong
    decision, correct = np.where(odd, 2, decision), correct & ~odd
    with_it, without_it = (label_spread(confidence, decision, correct, groups=1, minimum_cell=m) for m in (10, 11))
    cells = label_cells(confidence, decision, correct - confidence, groups=1)
    assert cells.rows[2] == 10
    assert with_it == pytest.approx(np.ptp(cells.residual))
    assert without_it == pytest.approx(np.ptp(cells.residual[:2]))


def test_a_group_with_one_cell_does_not_count():
    confidence, decision, correct, _ = drawn(1000, 0.3, K=2)
    low = confidence < np.median(confidence)
    halves = label_spread(confidence, np.where(low, 0, decision), correct, groups=2)
    assert halves == pytest.approx(label_spread(confidence[~low], decision[~low], correct[~low], groups=1))


@pytest.mark.parametrize("n", [0, 1, 30])
def test_spread_without_two_cells_is_nan(n):
    confidence, _, correct, _ = drawn(n, 0.0)
    rows = confidence, np.zeros(n, dtype=int), correct
    assert np.isnan(label_spread(*rows, minimum_cell=1))
    assert np.isnan(label_spread_null(*rows, minimum_cell=1, permutations=5, seed=0))


def test_the_spread_of_the_truth_is_the_shift():
    confidence, decision, correct, residual = drawn(30_000, 0.25)
    assert mean_spread(label_cells(confidence, decision, residual)) == pytest.approx(0.25)
    assert label_spread(confidence, decision, correct) == pytest.approx(0.25, abs=0.03)


def test_equal_residuals_have_no_spread():
    decision = np.tile([0, 1], 200)
    for right in (True, False):
        assert label_spread(np.full(400, 0.7), decision, np.full(400, right)) == pytest.approx(0, abs=1e-12)
        assert label_spread_null(np.full(400, 0.7), decision, np.full(400, right), seed=0) < 1e-12


def test_null_equals_labels_shuffled_one_group_at_a_time():
    confidence, decision, correct, _ = drawn(1200, 0.3)
    correct &= confidence > 0.6  # groups differ, so shuffling across them would show
    generator = np.random.default_rng(7)
    group = confidence_groups(confidence, 4)
    spreads = []
    for _ in range(500):
        shuffled = decision.copy()
        for one in range(4):
            shuffled[group == one] = generator.permutation(decision[group == one])
        spreads.append(label_spread(confidence, shuffled, correct, groups=4))
    found = label_spread_null(confidence, decision, correct, groups=4, seed=1)
    assert found == pytest.approx(np.quantile(spreads, 0.95), rel=0.05)
    assert found < label_spread(confidence, decision, correct, groups=4)


def test_every_shuffle_of_a_few_rows_is_as_likely():
    # residuals .5 -.5 -.5 -.5; label 1 has one row. With the .5 it differs by 1 from the rest, with a -.5 by 1/3
    confidence, decision = np.full(4, 0.5), np.array([0, 0, 0, 1])
    correct = np.array([True, False, False, False])
    rows = {"groups": 1, "minimum_cell": 1, "permutations": 1}
    seen = [label_spread_null(confidence, decision, correct, seed=seed, **rows) for seed in range(800)]
    assert np.unique(np.round(seen, 12)) == pytest.approx([1 / 3, 1.0])
    assert np.mean(np.isclose(seen, 1.0)) == pytest.approx(1 / 4, abs=0.05)


def test_without_a_shift_the_spread_stays_within_the_null():
    outside = 0
    for seed in range(60):
        rows = drawn(1500, 0.0, seed)[:3]
        outside += label_spread(*rows) > label_spread_null(*rows, permutations=100, seed=seed)
    assert outside <= 8  # 3 to expect; 9 and more have chance 0.002


def test_null_is_drawn_from_its_seed():
    rows = drawn(1000, 0.1)[:3]
    one, again, other = (label_spread_null(*rows, permutations=40, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_shuffles_that_are_drawn_apart_differ(monkeypatch):
    monkeypatch.setattr("tasks.metrics.spread.SHUFFLED_AT_ONCE", 1)
    one, many = (label_spread_null(*drawn(1000, 0.1)[:3], permutations=number, seed=1) for number in (1, 40))
    assert one < many


def test_a_nan_names_its_row():
    confidence, decision, correct, residual = drawn(10, 0.0)
    confidence[4] = np.nan
    for spread in (label_spread, lambda *rows: label_spread_null(*rows, seed=0)):
        with pytest.raises(ValueError, match="row 4 "):
            spread(confidence, decision, correct)
    with pytest.raises(ValueError, match="confidence of row 4 "):
        label_cells(confidence, decision, residual)
    with pytest.raises(ValueError, match="residual of row 4 "):
        label_cells(decision, decision, confidence)
