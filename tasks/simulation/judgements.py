"""Judgements of the simulated data sets ("twins"), whose labels are drawn from true probabilities P(y|x).

The evidence for a label is linear in the features of a linear predictor, so that such a predictor can represent it;
`relmap.simulation.predictions` defines the probabilities. Each twin has its own `Difficulty`. It is chosen with the
other parameters of the twin such that the paper's base predictor, trained with the number of rows and the seed of
params.yaml, behaves as the paper reports: accuracy, calibration, label spread, and the metrics of confidence and MRP.
With other seeds, the accuracy differs by up to 6 percentage points and the label spread by up to 12. The paper's base
predictors use balanced class weights. If evidence is weak and a label is rare, these weights alone cause a large label
spread, as on the paper's data; the sharpness adds the rest.
"""

from typing import NamedTuple

import numpy as np

from relmap.simulation.predictions import draw_labels, solve_relevance

N_SLOTS = 6  # properties of a candidate that depend on its label
N_PHRASES = 6  # values of each property, by default
REPEAT_EVERY = 5  # every fifth judgement repeats an earlier candidate
# Distance of a judgement from the one that it repeats. It is large, so that they are in different queries. It is not a
# multiple of REPEAT_EVERY, so that no candidate is judged three times.
REPEAT_LAG = 1001


class Difficulty(NamedTuple):
    """Parameters that set how well the labels of a twin can be predicted.

    Attributes:
        strength: Standard deviation of the evidence for a label, in logits. It sets the accuracy that is attainable.
        log_sharpness: Logarithm of the sharpness of the most frequent label at residual 1; all other labels have the
            negative of this logarithm. Below 0, the margin is least informative for the most frequent label.
        noise: Share of the labels that are drawn uniformly, independent of the evidence.
    """

    strength: float
    log_sharpness: float
    noise: float = 0.0


class Judgements(NamedTuple):
    """n judgements of m candidates, in an order that is independent of their labels.

    Attributes:
        candidate: Candidate 0..m-1 of each judgement, shape (n,), int64.
        first: First judgement of each candidate, shape (m,), int64.
        choice: Phrase of each candidate in each slot, from 0, shape (m, N_SLOTS), int64.
        probabilities: True P(y|x), shape (n, K), float64.
        label: Label of each judgement, shape (n,), int64.
    """

    candidate: np.ndarray
    first: np.ndarray
    choice: np.ndarray
    probabilities: np.ndarray
    label: np.ndarray


def simulate_judgements(
    rows: int,
    mix: tuple[float, ...],
    difficulty: Difficulty,
    residual: float,
    generator: np.random.Generator,
    n_phrases: int = N_PHRASES,
) -> Judgements:
    """Draw judgements whose labels are independent given the evidence.

    Args:
        rows: Number of judgements.
        mix: Shares of the K labels.
        difficulty: Strength of the evidence and logarithm of the sharpness.
        residual: Factor of the logarithm of the sharpness; with 0, the true probabilities are a softmax of linear
            scores.
        generator: Source of randomness.
        n_phrases: Number of phrases of each slot.

    Returns:
        The judgements, their true probabilities and their labels.
    """
    row = np.arange(rows)
    is_repeat = (row >= REPEAT_LAG) & (row % REPEAT_EVERY == 0)
    candidate = np.cumsum(~is_repeat) - 1
    candidate[is_repeat] = candidate[row[is_repeat] - REPEAT_LAG]
    choice = generator.integers(n_phrases, size=(int((~is_repeat).sum()), N_SLOTS))
    weights = generator.normal(size=(N_SLOTS, n_phrases, len(mix)))
    weights -= weights.mean(axis=1, keepdims=True)
    weights *= difficulty.strength / np.sqrt(N_SLOTS) / weights.std(axis=1, keepdims=True)
    evidence = sum(weights[slot, choice[:, slot]] for slot in range(N_SLOTS))[candidate]
    relevance = solve_relevance(evidence, np.array(mix), residual, difficulty.log_sharpness, difficulty.noise)
    probabilities = relevance(evidence)
    return Judgements(
        candidate=candidate,
        first=np.flatnonzero(~is_repeat),
        choice=choice,
        probabilities=probabilities,
        label=draw_labels(probabilities, generator),
    )


def draw_queries(
    rows: int,
    sizes: tuple[int, int],
    generator: np.random.Generator,
    label: np.ndarray | None = None,
) -> np.ndarray:
    """Divide judgements into queries of random size.

    With `label`, a query continues until it has a candidate of each label. The end of a query then depends on its
    labels, but no predictor can use this, since texts contain neither the size of a query nor a position in it.

    Args:
        rows: Number of judgements.
        sizes: Smallest and largest size of a query; both are possible.
        generator: Source of randomness.
        label: Label of each judgement, 0 or 1, shape (rows,).

    Returns:
        Query of each judgement, shape (rows,), int64: 0, 0, …, 1, ….
    """
    # for a query that starts at each row: its earliest possible end, at which it has each label
    earliest_end = np.zeros(rows, dtype=np.int64)
    if label is not None:
        for value in (0, 1):
            position = np.where(label == value, np.arange(rows), rows)
            next_position = np.minimum.accumulate(position[::-1])[::-1]
            earliest_end = np.maximum(earliest_end, next_position + 1)
    low, high = sizes
    starts = [0]
    drawn_sizes = low + ((high + 1 - low) * generator.random(rows // low + 1)).astype(np.int64)
    for size in drawn_sizes:
        start = max(starts[-1] + int(size), int(earliest_end[starts[-1]]))
        if start >= rows or earliest_end[start] > rows:
            break
        starts.append(start)
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=rows))
