"""Simulated judgements and queries equal calculations by hand or loops."""

import numpy as np
import pytest

from relmap.simulation.predictions import draw_labels, solve_relevance
from tasks.simulation.judgements import N_PHRASES, N_SLOTS, REPEAT_LAG, Difficulty, draw_queries, simulate_judgements


class FixedNumbers:
    """Source of randomness that returns the given numbers."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = np.array(numbers)

    def random(self, shape: int | tuple[int, int]) -> np.ndarray:
        return self._numbers[: int(np.prod(shape))].reshape(shape)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_judgements_have_the_strength_the_repeats_and_the_truth_of_their_parameters(n_labels):
    mix = (0.7, 0.3) if n_labels == 2 else (0.2, 0.5, 0.3)
    rows = REPEAT_LAG + 12
    simulated = simulate_judgements(rows, mix, Difficulty(2.5, 0.9), 0.5, np.random.default_rng(3))

    repeats = [row for row in range(REPEAT_LAG, rows) if row % 5 == 0]
    assert repeats == [1005, 1010]
    candidate = []
    for row in range(rows):
        earlier = candidate[row - 1001] if row in repeats else len(set(candidate))
        candidate.append(earlier)
    assert simulated.candidate.tolist() == candidate
    assert simulated.first.tolist() == [row for row in range(rows) if row not in repeats]

    random = np.random.default_rng(3)
    choice = random.integers(N_PHRASES, size=(rows - 2, N_SLOTS))
    weights = random.normal(size=(N_SLOTS, N_PHRASES, n_labels))
    weights -= weights.mean(axis=1, keepdims=True)
    weights /= weights.std(axis=1, keepdims=True)
    evidence = np.zeros((rows, n_labels))
    for row in range(rows):
        for slot in range(N_SLOTS):
            evidence[row] += 2.5 / np.sqrt(6) * weights[slot, choice[candidate[row], slot]]
    truth = solve_relevance(evidence, np.array(mix), 0.5, 0.9)(evidence)
    assert simulated.choice.tolist() == choice.tolist()
    np.testing.assert_allclose(simulated.probabilities, truth)
    assert simulated.label.tolist() == draw_labels(truth, random).tolist()


def test_query_sizes_include_both_limits():
    # floor(2 + 3 u) for u = 0, 0.34, 0.99, 0.5
    query = draw_queries(12, (2, 4), FixedNumbers([0.0, 0.34, 0.99, 0.5, 0.5, 0.0, 0.0]))
    assert query.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]


def test_the_last_query_has_the_remaining_rows():
    assert draw_queries(5, (3, 3), FixedNumbers([0.0, 0.0])).tolist() == [0, 0, 0, 1, 1]
    assert draw_queries(3, (3, 3), FixedNumbers([0.0, 0.0])).tolist() == [0, 0, 0]
    assert draw_queries(2, (3, 3), FixedNumbers([0.0])).tolist() == [0, 0]


def test_a_query_continues_until_it_has_both_labels():
    label = np.array([0, 0, 0, 1, 1, 0, 1, 1, 0, 0])
    numbers = [0.0] * 11
    # first other label: row 3 for the query from row 0, row 5 from row 4, row 8 from row 6, and none from row 9, which
    # therefore belongs to the previous query
    assert draw_queries(10, (1, 1), FixedNumbers(numbers), label).tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert draw_queries(10, (1, 1), FixedNumbers(numbers)).tolist() == list(range(10))
    assert draw_queries(4, (1, 1), FixedNumbers(numbers), np.array([1, 0, 1, 0])).tolist() == [0, 0, 1, 1]
