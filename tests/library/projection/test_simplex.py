"""MRC: projection of rows to a given reliability on their power path, and its limits."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logit, logsumexp

from relmap.decisions import confidence_logit, decide
from relmap.metrics.probability import ece
from relmap.projection import simplex
from relmap.projection.simplex import MAX_ALPHA, MAX_RELIABILITY_LOGIT, MIN_EXCESS_OVER_UNIFORM, project_simplex

SIZES = {"n": st.integers(1, 60), "K": st.integers(2, 10), "scale": st.floats(1e-2, 30), "seed": st.integers(0, 10**9)}


def simulate_rows(n: int, K: int, scale: float = 2.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate log-probabilities (n, K), top decisions (n,) and logits of a reliability (n,) in (1/K, 1 - 1e-6)."""
    rng = np.random.default_rng(seed)
    log_probabilities = log_softmax(rng.normal(size=(n, K)) * scale, axis=1)
    lowest = -np.log(K - 1)
    return log_probabilities, decide(log_probabilities), rng.uniform(lowest, MAX_RELIABILITY_LOGIT, n)


def probability_of_decision(log_probabilities: np.ndarray, decision: np.ndarray) -> np.ndarray:
    """Return the probability of the decision, shape (n,)."""
    return np.exp(log_probabilities[np.arange(len(decision)), decision])


@given(**SIZES)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_decision_gets_its_reliability_and_label_order_is_preserved(n, K, scale, seed):
    rows, decision, reliability_logit = simulate_rows(n, K, scale, seed)
    moved = project_simplex(rows, decision, reliability_logit)
    assert moved.feasible.all()
    assert moved.solved.all()

    reached = moved.alpha < MAX_ALPHA
    uniform = reliability_logit <= logit(1 / K + MIN_EXCESS_OVER_UNIFORM)
    reliability_logit = np.where(uniform, -np.log(K - 1), reliability_logit)
    second, largest = np.sort(rows, axis=1)[:, -2:].T
    assert reached[largest - second > 0.1].all()  # only nearly tied rows need more than the maximal power

    after = moved.log_probabilities
    np.testing.assert_allclose(confidence_logit(after, decision)[reached], reliability_logit[reached], atol=1e-9)
    np.testing.assert_allclose(after, log_softmax(moved.alpha[:, None] * rows, axis=1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(logsumexp(after, axis=1), 0, atol=1e-12)

    order = np.argsort(rows, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(after, order, axis=1), axis=1) >= 0).all()
    assert (after[np.arange(n), decision] == after.max(axis=1)).all()


@pytest.mark.parametrize("K", range(2, 11))
def test_unreachable_reliability_is_clipped_to_the_end_of_the_path(K):
    lowest = -np.log(K - 1)
    just_above = logit(1 / K + 1.5e-7)  # counts as uniform, and 2.5e-7 does not
    solvable = logit(1 / K + 2.5e-7)
    rows = np.tile(np.log(np.append(np.full(K - 1, 0.3 / (K - 1)), 0.7)), (8, 1))
    decision = np.full(8, K - 1)
    reliability_logit = [-np.inf, -30, np.nextafter(lowest, -np.inf), lowest, just_above, solvable, 50.0, np.inf]
    moved = project_simplex(rows, decision, np.array(reliability_logit))

    assert moved.feasible.tolist() == [False, False, False, True, True, True, True, True]
    assert moved.solved.all()
    assert (moved.alpha > 0).tolist() == [False] * 5 + [True] * 3

    reached = probability_of_decision(moved.log_probabilities, decision)
    np.testing.assert_allclose(reached[:5], 1 / K, rtol=1e-15)
    np.testing.assert_allclose(reached[5], 1 / K + 2.5e-7, rtol=0, atol=1e-12)
    np.testing.assert_allclose(1 - reached[6:], 1e-6, rtol=1e-6)


@pytest.mark.parametrize("K", range(2, 8))
def test_tied_labels_share_the_probability_and_only_the_first_is_solved(K):
    for n_tied in range(2, K + 1):
        row = np.log(np.r_[np.full(n_tied, 2.0), np.ones(K - n_tied)] / (K + n_tied))
        highest_logit = -np.log(n_tied - 1)  # of 1 / n_tied, the limit for tied labels
        reliability_logit = highest_logit + np.array([-1e-3, 1e-3, 5.0])
        moved = project_simplex(np.tile(row, (3, 1)), np.zeros(3, dtype=int), reliability_logit)
        assert moved.solved.all()
        assert (moved.alpha[1:] == MAX_ALPHA).all()
        np.testing.assert_allclose(np.exp(moved.log_probabilities[1:, :n_tied]), 1 / n_tied)
        of_last_tied = project_simplex(row[None], np.array([n_tied - 1]), reliability_logit[:1])
        assert not of_last_tied.solved.any()  # only the first of tied labels is on top
        np.testing.assert_array_equal(of_last_tied.log_probabilities, row[None])
        if n_tied < K:
            reached = confidence_logit(moved.log_probabilities, np.zeros(3, dtype=int))
            np.testing.assert_allclose(reached[0], reliability_logit[0], atol=1e-9)


@pytest.mark.parametrize("power", [1.0, 0.0, 0.5])
def test_only_rows_whose_decision_is_not_the_most_probable_label_are_unsolved(power):
    rows, decision, reliability_logit = simulate_rows(6, 3)
    decision[:3] = rows[:3].argmin(axis=1)
    reliability_logit[0] = -3
    moved = project_simplex(rows, decision, reliability_logit, off_top_alpha=power)

    np.testing.assert_allclose(moved.log_probabilities[:3], log_softmax(power * rows[:3], axis=1), atol=1e-14)
    np.testing.assert_array_equal(moved.solved, [False] * 3 + [True] * 3)
    np.testing.assert_array_equal(moved.feasible, [False] + [True] * 5)

    default = project_simplex(rows, decision, reliability_logit)
    np.testing.assert_array_equal(default.log_probabilities[:3], rows[:3])
    np.testing.assert_array_equal(moved.log_probabilities[3:], default.log_probabilities[3:])


def test_zero_probabilities_give_no_nan_and_can_increase():
    rows = np.log(np.array([[0.7, 0.3, 1.0]]).repeat(4, axis=0))
    rows[:, 2] = -np.inf
    rows[1, 1] = -np.inf
    rows[1, 0] = 0
    decision = np.array([0, 0, 0, 1])
    moved = project_simplex(rows, decision, np.array([1.0, 1.0, -0.5, 1.0]))

    assert not np.isnan(moved.log_probabilities).any()
    assert moved.solved.tolist() == [True, True, True, False]

    reached = confidence_logit(moved.log_probabilities, decision)[:3]
    np.testing.assert_allclose(reached, [1.0, 1.0, -0.5], atol=1e-9)
    np.testing.assert_array_equal(moved.log_probabilities[3], rows[3])


@given(**SIZES)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_rows_are_independent(n, K, scale, seed):
    rows, decision, reliability_logit = simulate_rows(n, K, scale, seed)
    together = project_simplex(rows, decision, reliability_logit)
    order = np.random.default_rng(seed).permutation(n)
    shuffled = project_simplex(rows[order], decision[order], reliability_logit[order])
    np.testing.assert_array_equal(shuffled.log_probabilities, together.log_probabilities[order])
    for i in range(min(n, 5)):
        single = project_simplex(rows[i : i + 1], decision[i : i + 1], reliability_logit[i : i + 1])
        np.testing.assert_array_equal(single.log_probabilities[0], together.log_probabilities[i])
        assert single.alpha[0] == together.alpha[i]


@given(K=st.integers(2, 10), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40, derandomize=True)
def test_gaps_of_eighteen_orders_of_magnitude_are_solved(K, seed):
    n_rows = 200
    generator = np.random.default_rng(seed)
    size_of_gap = 10 ** generator.uniform(-12, 6, size=(n_rows, K))
    is_tied = generator.random((n_rows, K)) <= 0.1
    gaps = np.where(is_tied, 0, size_of_gap)
    gaps[:, 0] = 0  # the first label is decided
    near_a_tie = -np.log(generator.integers(1, K, n_rows)) - 10 ** generator.uniform(-16, -1, n_rows)
    anywhere = 5 * generator.normal(size=n_rows)
    target = np.where(generator.random(n_rows) < 0.5, near_a_tie, anywhere)

    projected = project_simplex(log_softmax(-gaps, axis=1), np.zeros(n_rows, dtype=int), target)

    is_reachable = (projected.alpha < MAX_ALPHA) & (target > logit(1 / K + MIN_EXCESS_OVER_UNIFORM))
    reached = projected.solved & projected.feasible & is_reachable
    log_others = logsumexp(projected.log_probabilities[:, 1:], axis=1)
    decided_logit = projected.log_probabilities[:, 0] - log_others
    expected = np.minimum(target, MAX_RELIABILITY_LOGIT)
    # a log-probability near -1e6 has itself lost the tenth digit behind the point
    np.testing.assert_allclose(decided_logit[reached], expected[reached], rtol=0, atol=1e-7)


def test_newton_starts_at_the_solution_of_two_labels(monkeypatch):
    """With two labels the nearest label is the only other one, so no step is needed."""
    monkeypatch.setattr(simplex, "MAX_NEWTON_STEPS", 1)
    gap = np.array([1e-2, 0.1, 1.0, 3.0, 40.0])
    target = np.array([2.0, 0.3, 5.0, 1.0, 7.0])
    projected = project_simplex(log_softmax(np.outer(gap, [0.5, -0.5]), axis=1), np.zeros(5, dtype=int), target)
    assert projected.solved.all()
    np.testing.assert_allclose(projected.alpha, target / gap, rtol=1e-9)


def test_a_probability_of_zero_counts_as_a_gap_of_a_million():
    """With two labels, the power is the target divided by the gap."""
    certain = np.array([[0.0, -np.inf]])
    projected = project_simplex(certain, np.array([0]), np.array([3.0]))
    assert projected.alpha[0] == pytest.approx(3e-6, rel=1e-9)


def test_invalid_rows_are_named():
    rows, decision, reliability_logit = simulate_rows(3, 3)
    for invalid, message in ((np.nan, "log-probability .*row 1 .*NaN"), (-np.inf, "row 1 .*finite")):
        invalid_rows = rows.copy()
        invalid_rows[1] = invalid
        with pytest.raises(ValueError, match=message):
            project_simplex(invalid_rows, decision, reliability_logit)
    reliability_logit[2] = np.nan
    with pytest.raises(ValueError, match=r"reliability .*row 2 .*NaN"):
        project_simplex(rows, decision, reliability_logit)


def test_inputs_are_not_modified():
    frozen = simulate_rows(20, 4)
    for array in frozen:
        array.flags.writeable = False
    moved = project_simplex(*frozen)
    for field in dataclasses.fields(moved):
        assert not any(np.shares_memory(getattr(moved, field.name), array) for array in frozen)
    with pytest.raises(dataclasses.FrozenInstanceError):
        moved.alpha = moved.alpha
    assert project_simplex(frozen[0][:0], frozen[1][:0], frozen[2][:0]).log_probabilities.shape == (0, 4)


@pytest.mark.parametrize("K", [3, 5])
def test_uniform_row_is_in_the_bin_of_its_lower_edge(K):
    rows, decision, reliability_logit = simulate_rows(2, K)
    decision = (decision + 1) % K  # not on top
    moved = project_simplex(rows, decision, reliability_logit, off_top_alpha=0.0)
    uniform = probability_of_decision(moved.log_probabilities, decision)[0]
    # the errors of a correct and a wrong row cancel in part if both are in one bin
    above = 1 / K + 0.01
    assert ece(np.array([uniform, above]), np.array([True, False])) == pytest.approx(abs(uniform + above - 1) / 2)
