"""Simulated predictions: margins, pivots, shares and labels equal calculations by hand or loops."""

import numpy as np
import polars as pl
from scipy.special import expit, logit, softmax

from relmap.simulation import predictions
from relmap.simulation.predictions import (
    DAMPING_FACTORS,
    LABEL_NAMES,
    Relevance,
    decisions_with_margins,
    draw_labels,
    simulate_predictions,
    solve_relevance,
)


class FixedNumbers:
    """Source of randomness that returns the given numbers."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = np.array(numbers)

    def random(self, shape: int | tuple[int, int]) -> np.ndarray:
        return self._numbers[: int(np.prod(shape))].reshape(shape)


def draw_evidence(rows: int, n_labels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, n_labels)) * 2


def test_margins_and_odds_are_computed_from_a_softmax():
    scores = np.array([[1.0, 3.0, 2.5], [0.5, -1.0, 0.25], [2.0, 2.0, -4.0]])
    decided = decisions_with_margins(scores)
    probabilities = softmax(scores, axis=1)
    assert decided.decision.tolist() == [1, 0, 0]
    np.testing.assert_allclose(decided.margin, logit(probabilities[[0, 1, 2], [1, 0, 0]]))
    expected = probabilities / probabilities[[0, 1, 2], [1, 0, 0]][:, None]
    expected[[0, 1, 2], [1, 0, 0]] = 0
    np.testing.assert_allclose(decided.odds, expected)


def naive_pivots(scores: np.ndarray) -> list[float]:
    """Average the margin of the rows of each decided label, with weights p (1 - p); 0 without rows."""
    pivots = []
    for label in range(scores.shape[1]):
        weighted = 0.0
        total = 0.0
        for row in scores:
            if row.argmax() == label:
                p = softmax(row)[label]
                weighted += p * (1 - p) * np.log(p / (1 - p))
                total += p * (1 - p)
        pivots.append(weighted / total if total else 0.0)
    return pivots


def test_the_relevance_is_solved_by_damped_steps_towards_the_label_shares():
    evidence = draw_evidence(60, 3)
    mix = np.array([0.2, 0.5, 0.3])
    sharpness = np.exp(0.8 * 0.5 * np.array([-1.0, 1.0, -1.0]))
    bias = np.log(mix)
    for step in [0.6] * 40 + [0.2] * 10:
        truth = Relevance(bias, sharpness, np.array(naive_pivots(evidence + bias)))
        bias = bias + step * np.log(mix / truth(evidence).mean(axis=0))
    solved = solve_relevance(evidence, mix, residual=0.5, log_sharpness=0.8)
    np.testing.assert_allclose(solved.sharpness, sharpness)
    np.testing.assert_allclose(solved.bias, bias)
    np.testing.assert_allclose(solved.pivot, naive_pivots(evidence + bias))
    assert len(DAMPING_FACTORS) == 50


def test_a_label_without_decided_rows_has_the_pivot_0():
    evidence = draw_evidence(40, 3) + np.array([30.0, 0.0, 30.0])
    solved = solve_relevance(evidence, np.array([0.5, 1e-9, 0.5]), residual=1.0)
    assert solved.pivot[1] == 0
    assert (solved.pivot[[0, 2]] > 0).all()


def test_a_label_with_a_single_decided_row_has_the_margin_of_this_row_as_its_pivot():
    evidence = np.array([[4.0, 0.0]] * 9 + [[0.0, 4.0]])
    solved = solve_relevance(evidence, np.array([0.9, 0.1]), residual=0.5)
    scores = evidence + solved.bias
    assert np.argmax(scores, axis=1).tolist() == [0] * 9 + [1]
    np.testing.assert_allclose(solved.pivot, [scores[0, 0] - scores[0, 1], scores[9, 1] - scores[9, 0]])


def test_the_sharpness_is_1_5_by_default():
    sharpness = solve_relevance(draw_evidence(50, 2), np.array([0.3, 0.7]), residual=2.0).sharpness
    np.testing.assert_allclose(np.log(sharpness), [-3.0, 3.0])


def test_rows_beyond_the_limit_do_not_change_the_truth(monkeypatch):
    assert predictions.MAX_SOLVER_ROWS == 20_000
    monkeypatch.setattr(predictions, "MAX_SOLVER_ROWS", 30)
    evidence = draw_evidence(32, 2)
    mix = np.array([0.6, 0.4])
    solved = [solve_relevance(evidence[:rows], mix, residual=1.0).bias.tolist() for rows in (29, 30, 32)]
    assert solved[0] != solved[1]
    assert solved[1] == solved[2]


def test_a_label_is_drawn_by_cumulative_probabilities():
    probabilities = np.array([[0.25, 0.5, 0.25]] * 6)
    numbers = FixedNumbers([0.0, 0.25, 0.2500001, 0.75, 0.7500001, 0.99])
    labels = draw_labels(probabilities, numbers)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert labels.dtype == np.int64


def test_predictions_are_overconfident_logits_of_the_simulated_truth():
    frame = simulate_predictions(25, seed=4)
    generator = np.random.default_rng(4)
    evidence = 1.6 * generator.normal(size=(25, 3))
    truth = solve_relevance(evidence, np.array([0.5, 0.3, 0.2]), 1.0)
    label = draw_labels(truth(evidence), generator)
    assert frame.columns == ["query", "logits", "label"]
    assert frame["query"].to_list() == ["query 0"] * 10 + ["query 1"] * 10 + ["query 2"] * 5
    assert frame["logits"].dtype == pl.List(pl.Float64)
    np.testing.assert_allclose(np.array(frame["logits"].to_list()), 1.5 * (evidence + truth.bias))
    assert frame["label"].to_list() == [LABEL_NAMES[value] for value in label]
    assert LABEL_NAMES == ("irrelevant", "partial", "exact")


def test_a_decision_below_its_pivot_gets_less_reliable_with_its_sharpness():
    truth = Relevance(np.array([0.5, 0.0]), np.array([2.0, 0.5]), np.array([1.0, 3.0]))
    probabilities = truth(np.array([[1.0, 0.0], [0.0, 4.5]]))
    # margins 1.5 and 4: 1 + 2 (1.5 - 1) = 2, and 3 + 0.5 (4 - 3) = 3.5
    np.testing.assert_allclose(probabilities, [[expit(2.0), expit(-2.0)], [expit(-3.5), expit(3.5)]])


def test_noise_replaces_a_share_of_the_labels_by_uniform_ones_and_keeps_the_label_shares():
    evidence = draw_evidence(400, 3)
    mix = np.array([0.2, 0.5, 0.3])
    solved = solve_relevance(evidence, mix, residual=1.0, log_sharpness=0.4, noise=0.3)
    plain = Relevance(solved.bias, solved.sharpness, solved.pivot)
    np.testing.assert_allclose(solved(evidence), 0.7 * plain(evidence) + 0.1)
    np.testing.assert_allclose(solved(evidence).mean(axis=0), mix, atol=0.005)
