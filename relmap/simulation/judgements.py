"""The model of truth behind every twin: how P(y|x) comes about, how large a residual it leaves, and who judged what.

Evidence gives each label a score that is linear in what a linear predictor sees, so that a linear predictor can be
right: f(x) = bias + evidence(x). Let d = argmax f(x) and g the logit of softmax(f)_d. The truth is

    P(d|x) = sigmoid(pivot_d + sharpness_d (g - pivot_d)),   the other labels share the rest as in softmax(f).

Each decided label has its own sharpness: by default the commonest is told apart sharply, the others hardly. With
residual 0 all are 1 and P(y|x) = softmax(f(x)), exactly. Else at one and the same confidence some decided labels are
right more often than others. A linear model cannot represent that, nor can any calibrator that treats labels alike. The
pivot is a typical g of the label, so that a linear model finds no constant to absorb.

Each twin has its own `Difficulty`. It is chosen so that the paper's base predictor, trained on the twin with the number
of rows and the seed of params.yaml, has about the accuracy and the label spread that the paper prints for the data set.
Other seeds draw other evidence: accuracy then differs by up to .06 and label spread by up to 12 percentage points. The
paper's base predictors use balanced class weights. Where evidence is weak and a label is rare, the weights alone cause
a large label spread, as on the paper's data; the sharpness adds what is missing. No result of MRP was used for this
choice.
"""

from typing import NamedTuple

import numpy as np
import scipy

from relmap.decisions import decide

N_SLOTS = 6  # properties of a candidate that say something about its label
N_PHRASES = 6  # of each
LOG_SHARPNESS = 1.5  # default of `Difficulty.log_sharpness`
MAX_SOLVER_ROWS = 20_000  # rows that the bias is solved on at most
DAMPING_STEPS = 40 * (0.6,) + 10 * (0.2,)  # the damping of each
REPEAT_EVERY = 5  # one judgement in so many is of a candidate that was judged before,
REPEAT_LAG = 1001  # so many judgements ago: under another query, and no multiple of AGAIN, so never a third time


class Difficulty(NamedTuple):
    """How hard the labels of a twin are to predict.

    Attributes:
        strength: Standard deviation of the evidence for a label, in logits. It sets the accuracy that is attainable.
        log_sharpness: Logarithm of the sharpness of the commonest label at residual 1; its negative is that of all
            other labels. Below 0 the commonest label is the one whose margin says little.
    """

    strength: float
    log_sharpness: float


class Relevance(NamedTuple):
    """P(y|x) for K labels, given their evidence."""

    bias: np.ndarray  # (K,)
    sharpness: np.ndarray  # (K,), > 0
    pivot: np.ndarray  # (K,), logits

    def __call__(self, evidence: np.ndarray) -> np.ndarray:
        """Evidence `(n, K)` to the true probabilities `(n, K)`, rows summing to one."""
        decision, margin, odds = decisions_with_margins(evidence + self.bias)
        decided = scipy.special.expit(self.pivot[decision] + self.sharpness[decision] * (margin - self.pivot[decision]))
        probabilities = odds * ((1 - decided) * np.exp(margin))[:, None]
        probabilities[np.arange(len(odds)), decision] = decided
        return np.asarray(probabilities)


def decisions_with_margins(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores `(n, K)` to the argmax d `(n,)`, the logit of softmax_d `(n,)`, and the odds of the others.

    The odds `(n, K)` are softmax_k / softmax_d, and 0 for d itself: they sum to exp(-logit).
    """
    decision, row = decide(scores), np.arange(len(scores))
    odds = np.exp(scores - scores[row, decision][:, None])
    odds[row, decision] = 0
    return decision, -np.log(odds @ np.ones(scores.shape[1])), odds


def solve_relevance(
    evidence: np.ndarray, mix: np.ndarray, residual: float, log_sharpness: float = LOG_SHARPNESS
) -> Relevance:
    """The truth under which the labels occur in the shares `mix (K,)` on rows of this evidence `(n, K)`.

    The bias climbs, damped, by the log of what each share lacks; the pivots follow it.
    """
    evidence = evidence[:MAX_SOLVER_ROWS]
    tilt = np.where(np.arange(len(mix)) == np.argmax(mix), 1.0, -1.0)
    sharpness = np.exp(log_sharpness * residual * tilt)
    bias = np.log(mix)
    for step in DAMPING_STEPS:
        relevance = Relevance(bias, sharpness, _pivots(evidence + bias))
        bias = bias + step * (np.log(mix) - np.log(relevance(evidence).mean(axis=0)))
    return Relevance(bias, sharpness, _pivots(evidence + bias))


def _pivots(scores: np.ndarray) -> np.ndarray:
    """For each label the mean margin of the rows of `scores (n, K)` that decide it, `(K,)`; 0 where none does."""
    decision, margin, _ = decisions_with_margins(scores)
    # so sharpening moves no label's mean accuracy, to first order
    weight = scipy.special.expit(margin) * scipy.special.expit(-margin)
    total = np.bincount(decision, weights=weight, minlength=scores.shape[1])
    summed = np.bincount(decision, weights=weight * margin, minlength=scores.shape[1])
    return np.divide(summed, total, out=np.zeros_like(total), where=total > 0)


def draw_labels(probabilities: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Probabilities `(n, K)` to one label each, `(n,)` int64, independent given their row."""
    drawn = generator.random((len(probabilities), 1))
    return np.asarray((np.cumsum(probabilities[:, :-1], axis=1) < drawn).sum(axis=1))


class Judgements(NamedTuple):
    """`n` judgements of `m` candidates, in an order that says nothing about their labels."""

    candidate: np.ndarray  # (n,) int64, 0..m-1
    first: np.ndarray  # (m,) int64, the row in which each candidate is judged first
    choice: np.ndarray  # (m, SLOTS) int64, the phrase of a candidate in each slot
    probabilities: np.ndarray  # (n, K) float64, the true P(y|x)
    label: np.ndarray  # (n,) int64


def simulate_judgements(
    rows: int, mix: tuple[float, ...], difficulty: Difficulty, residual: float, generator: np.random.Generator
) -> Judgements:
    """Draw judgements whose labels are independent given the evidence.

    Args:
        rows: Number of judgements.
        mix: Shares of the K labels.
        difficulty: Strength of the evidence and size of the residual.
        residual: Factor of the residual; with 0 the truth is a softmax of linear scores.
        generator: Source of randomness.

    Returns:
        The judgements, their true probabilities and their labels.
    """
    row = np.arange(rows)
    again = (row >= REPEAT_LAG) & (row % REPEAT_EVERY == 0)
    candidate = np.cumsum(~again) - 1
    candidate[again] = candidate[row[again] - REPEAT_LAG]
    choice = generator.integers(N_PHRASES, size=(int((~again).sum()), N_SLOTS))
    weights = generator.normal(size=(N_SLOTS, N_PHRASES, len(mix)))
    weights -= weights.mean(axis=1, keepdims=True)
    weights *= difficulty.strength / np.sqrt(N_SLOTS) / weights.std(axis=1, keepdims=True)
    evidence = sum(weights[slot, choice[:, slot]] for slot in range(N_SLOTS))[candidate]
    relevance = solve_relevance(evidence, np.array(mix), residual, difficulty.log_sharpness)
    probabilities = relevance(evidence)
    return Judgements(candidate, np.flatnonzero(~again), choice, probabilities, draw_labels(probabilities, generator))


def draw_queries(
    rows: int,
    sizes: tuple[int, int],
    generator: np.random.Generator,
    label: np.ndarray | None = None,
) -> np.ndarray:
    """Divide judgements into queries of random size.

    With `label`, a query goes on until it has a candidate of each label. Where it ends then says something about its
    labels, but neither its size nor a position in it is part of any text.

    Args:
        rows: Number of judgements.
        sizes: Smallest and largest size of a query; both are possible.
        generator: Source of randomness.
        label: Label of each judgement, 0 or 1, shape (rows,).

    Returns:
        Query of each judgement, shape (rows,), int64: 0, 0, …, 1, ….
    """
    shortest = np.zeros(rows, dtype=np.int64)  # end of the shortest piece from each row that has each label
    for value in () if label is None else (0, 1):
        place = np.where(label == value, np.arange(rows), rows)
        shortest = np.maximum(shortest, np.minimum.accumulate(place[::-1])[::-1] + 1)
    low, high = sizes
    starts = [0]
    drawn_sizes = low + ((high + 1 - low) * generator.random(rows // low + 1)).astype(np.int64)
    for size in drawn_sizes:
        start = max(starts[-1] + int(size), int(shortest[starts[-1]]))
        if start >= rows or shortest[start] > rows:
            break
        starts.append(start)
    return np.repeat(np.arange(len(starts)), np.diff(starts, append=rows))
