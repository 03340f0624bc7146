"""Who judged what: candidates with their evidence, judgements with their labels, and the queries they belong to."""

from dataclasses import dataclass

import numpy as np

from tasks.simulation.language import CHOICES, SLOTS
from tasks.simulation.relevance import draw_labels, solve_relevance

STRENGTH = 2.0  # standard deviation of the evidence for a label, in logits
AGAIN = 5  # one judgement in so many is of a candidate that was judged before,
BACK = 1001  # so many judgements ago: under another query, and no multiple of AGAIN, so never a third time


@dataclass(frozen=True)
class Judgements:
    """`n` judgements of `m` candidates, in an order that says nothing about their labels."""

    candidate: np.ndarray  # (n,) int64, 0..m-1
    choice: np.ndarray  # (m, SLOTS) int64, the phrase of a candidate in each slot
    probabilities: np.ndarray  # (n, K) float64, the true P(y|x)
    label: np.ndarray  # (n,) int64

    @property
    def first(self) -> np.ndarray:
        """The row in which each candidate is judged first, `(m,)`."""
        return np.unique(self.candidate, return_index=True)[1]


def judge(rows: int, mix: tuple[float, ...], residual: float, generator: np.random.Generator) -> Judgements:
    """Draw `rows` judgements whose labels occur in the shares `mix (K,)`, independently given the evidence."""
    row = np.arange(rows)
    again = (row >= BACK) & (row % AGAIN == 0)
    candidate = np.cumsum(~again) - 1
    candidate[again] = candidate[row[again] - BACK]
    choice = generator.integers(CHOICES, size=(int((~again).sum()), SLOTS))
    weights = generator.normal(size=(SLOTS, CHOICES, len(mix)))
    weights -= weights.mean(axis=1, keepdims=True)
    weights *= STRENGTH / np.sqrt(SLOTS) / weights.std(axis=1, keepdims=True)
    evidence = sum(weights[slot, choice[:, slot]] for slot in range(SLOTS))[candidate]
    probabilities = solve_relevance(evidence, np.array(mix), residual)(evidence)
    return Judgements(candidate, choice, probabilities, draw_labels(probabilities, generator))


def draw_queries(
    rows: int, sizes: tuple[int, int], generator: np.random.Generator, label: np.ndarray | None = None
) -> np.ndarray:
    """Cut `rows` judgements into queries of a size drawn from `sizes` (both ends count): `(rows,)` int64, 0, 0, …

    With `label (rows,)` 0 or 1, a query goes on until it has a candidate of each label. Where it ends then says
    something about its labels, but neither its size nor a place in it stands in any text.
    """
    shortest = np.zeros(rows, dtype=np.int64)  # end of the shortest piece from each row that has each label
    for value in () if label is None else (0, 1):
        place = np.where(label == value, np.arange(rows), rows)
        shortest = np.maximum(shortest, np.minimum.accumulate(place[::-1])[::-1] + 1)
    low, high = sizes
    starts = [0]
    for size in generator.integers(low, high + 1, rows // low + 1):
        start = max(starts[-1] + int(size), int(shortest[starts[-1]]))
        if start >= rows or shortest[start] > rows:
            break
        starts.append(start)
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=rows))
