"""True label probabilities P(y|x) of the simulated data sets ("twins"), and labels that are drawn from them.

The score of each label is f(x) = bias + evidence(x). It is linear in the features of a linear predictor, so that such a
predictor can represent it. Let d = argmax f(x), and let g be the logit of softmax(f)_d. The true probability of d is

    P(d|x) = sigmoid(pivot_d + sharpness_d (g - pivot_d)),

and the other labels share the remaining probability in the same proportions as in softmax(f). Each decided label has
its own sharpness. By default, it is above 1 for the most frequent label and below 1 for the others. With residual 0,
every sharpness is 1 and P(y|x) = softmax(f(x)). Otherwise, decisions with equal confidence are correct more often for
some labels than for others. Neither a linear model nor a calibrator that treats labels alike can represent this. The
pivot is a typical g of the label, so that a linear model cannot represent the difference by a constant either.

Each twin has its own `Difficulty`. It is chosen with the other parameters of the twin such that the paper's base
predictor, trained with the number of rows and the seed of params.yaml, behaves as the paper reports: accuracy,
calibration, label spread, and the metrics of confidence and MRP. With other seeds, the accuracy differs by up to 6
percentage points and the label spread by up to 12. The paper's base predictors use balanced class weights. If evidence
is weak and a label is rare, these weights alone cause a large label spread, as on the paper's data; the sharpness adds
the rest.
"""

from typing import NamedTuple

import numpy as np
import scipy

from relmap.decisions import decide

N_SLOTS = 6  # properties of a candidate that depend on its label
N_PHRASES = 6  # values of each property, by default
LOG_SHARPNESS = 1.5  # default of `Difficulty.log_sharpness`
MAX_SOLVER_ROWS = 20_000  # rows used to solve for the bias
DAMPING_FACTORS = 40 * (0.6,) + 10 * (0.2,)  # of each step of the solver
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


class Relevance(NamedTuple):
    """True probabilities P(y|x) for K labels.

    Attributes:
        bias: Bias of each label, shape (K,).
        sharpness: Sharpness of each label, above 0, shape (K,).
        pivot: Pivot of each label in logits, shape (K,).
        noise: Share of the labels that are drawn uniformly, independent of the evidence.
    """

    bias: np.ndarray
    sharpness: np.ndarray
    pivot: np.ndarray
    noise: float = 0.0

    def __call__(self, evidence: np.ndarray) -> np.ndarray:
        """Compute the true probabilities.

        Args:
            evidence: Shape (n, K).

        Returns:
            Probabilities, shape (n, K); rows sum to 1.
        """
        decided = decisions_with_margins(evidence + self.bias)
        pivot = self.pivot[decided.decision]
        p_decided = scipy.special.expit(pivot + self.sharpness[decided.decision] * (decided.margin - pivot))
        remaining = (1 - p_decided) * np.exp(decided.margin)
        probabilities = decided.odds * remaining[:, None]
        probabilities[np.arange(len(evidence)), decided.decision] = p_decided
        return np.asarray((1 - self.noise) * probabilities + self.noise / probabilities.shape[1])


class DecidedScores(NamedTuple):
    """Decisions by the largest score.

    Attributes:
        decision: Label d with the largest score, shape (n,).
        margin: Logit of softmax_d, shape (n,).
        odds: softmax_k / softmax_d, and 0 for k = d, shape (n, K); rows sum to exp(-margin).
    """

    decision: np.ndarray
    margin: np.ndarray
    odds: np.ndarray


def decisions_with_margins(scores: np.ndarray) -> DecidedScores:
    """Decide by the largest score.

    Args:
        scores: Shape (n, K).

    Returns:
        The decisions with their margins and the odds of the other labels.
    """
    decision = decide(scores)
    row = np.arange(len(scores))
    odds = np.exp(scores - scores[row, decision][:, None])
    odds[row, decision] = 0
    margin = -np.log(odds @ np.ones(scores.shape[1]))
    return DecidedScores(decision, margin, odds)


def solve_relevance(
    evidence: np.ndarray,
    mix: np.ndarray,
    residual: float,
    log_sharpness: float = LOG_SHARPNESS,
    noise: float = 0.0,
) -> Relevance:
    """Find the true probabilities under which the labels have given shares.

    In each step, the bias changes by the damped log ratio of the required to the current shares, and the pivots are
    computed from the new bias.

    Args:
        evidence: Evidence of the rows, shape (n, K).
        mix: Required share of each label, shape (K,).
        residual: Factor of `log_sharpness`; with 0, the true probabilities are a softmax of linear scores.
        log_sharpness: As in `Difficulty`.
        noise: As in `Difficulty`; each label needs a share above noise / K.

    Returns:
        The model of the true probabilities.
    """
    evidence = evidence[:MAX_SOLVER_ROWS]
    sign = np.where(np.arange(len(mix)) == np.argmax(mix), 1.0, -1.0)
    sharpness = np.exp(log_sharpness * residual * sign)
    bias = np.log(mix)
    for damping in DAMPING_FACTORS:
        relevance = Relevance(bias, sharpness, _pivots(evidence + bias), noise)
        bias = bias + damping * (np.log(mix) - np.log(relevance(evidence).mean(axis=0)))
    return Relevance(bias, sharpness, _pivots(evidence + bias), noise)


def _pivots(scores: np.ndarray) -> np.ndarray:
    """Compute the weighted mean margin of the rows of each decided label, shape (K,); 0 without rows.

    With weights p (1 - p), the sharpness does not change the mean accuracy of a label to first order.

    Returns:
        Pivot of each label, shape (K,).
    """
    decided = decisions_with_margins(scores)
    n_labels = scores.shape[1]
    weight = scipy.special.expit(decided.margin) * scipy.special.expit(-decided.margin)
    total = np.bincount(decided.decision, weights=weight, minlength=n_labels)
    weighted_sum = np.bincount(decided.decision, weights=weight * decided.margin, minlength=n_labels)
    return np.divide(weighted_sum, total, out=np.zeros_like(total), where=total > 0)


def draw_labels(probabilities: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw one label for each row, independently.

    Args:
        probabilities: Shape (n, K).
        generator: Source of randomness.

    Returns:
        Labels 0..K-1, shape (n,), int64.
    """
    uniform = generator.random((len(probabilities), 1))
    return np.asarray((np.cumsum(probabilities[:, :-1], axis=1) < uniform).sum(axis=1))


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
