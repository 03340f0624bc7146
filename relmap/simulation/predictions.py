"""Simulated predictions of a relevance model over three labels, and the true label probabilities P(y|x) behind them.

The score of each label is f(x) = bias + evidence(x). Let d = argmax f(x), and let g be the logit of softmax(f)_d. The
true probability of d is

    P(d|x) = sigmoid(pivot_d + sharpness_d (g - pivot_d)),

and the other labels share the remaining probability in the same proportions as in softmax(f). Each decided label has
its own sharpness. By default, it is above 1 for the most frequent label and below 1 for the others. With residual 0,
every sharpness is 1 and P(y|x) = softmax(f(x)). Otherwise, decisions with equal confidence are correct more often for
some labels than for others. Neither a linear model nor a calibrator that treats labels alike can represent this. The
pivot is a typical g of the label, so that a linear model cannot represent the difference by a constant either.
"""

from typing import NamedTuple

import numpy as np
import polars as pl
import scipy

from relmap.decisions import decide

LABEL_NAMES = ("irrelevant", "partial", "exact")
LABEL_SHARES = np.array([0.5, 0.3, 0.2])
EVIDENCE_DEVIATION = 1.6  # standard deviation of the evidence for a label, in logits; it sets the accuracy
RESIDUAL = 1.0  # size of the differences in accuracy between labels at the same confidence; twins have the same value
OVERCONFIDENCE = 1.5  # factor of the logits; with 1 and without a residual, their softmax would be the true probability
ROWS_PER_QUERY = 10
LOG_SHARPNESS = 1.5  # logarithm of the sharpness of the most frequent label at residual 1, by default
MAX_SOLVER_ROWS = 20_000  # rows used to solve for the bias
DAMPING_FACTORS = 40 * (0.6,) + 10 * (0.2,)  # of each step of the solver


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
        log_sharpness: Logarithm of the sharpness of the most frequent label at residual 1; all other labels have the
            negative of this logarithm. Below 0, the margin is least informative for the most frequent label.
        noise: Share of the labels that are drawn uniformly; each label needs a share above noise / K.

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


def simulate_predictions(rows: int, *, seed: int) -> pl.DataFrame:
    """Simulate overconfident predictions with true labels; at the same confidence, accuracy differs between labels.

    Args:
        rows: Number of rows.
        seed: Seed of the simulation.

    Returns:
        Columns `query`, `logits` (a list of three) and `label` (a name); the rows of a query are contiguous.
    """
    generator = np.random.default_rng(seed)
    evidence = EVIDENCE_DEVIATION * generator.normal(size=(rows, len(LABEL_NAMES)))
    relevance = solve_relevance(evidence, LABEL_SHARES, RESIDUAL)
    true_probabilities = relevance(evidence)
    label = draw_labels(true_probabilities, generator)
    logits = OVERCONFIDENCE * (evidence + relevance.bias)
    return pl.DataFrame(
        {
            "query": [f"query {row // ROWS_PER_QUERY}" for row in range(rows)],
            "logits": pl.Series(logits).arr.to_list(),
            "label": np.array(LABEL_NAMES)[label].tolist(),
        }
    )
