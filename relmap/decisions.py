"""Fixed decisions: labels that are decided once and never changed (paper, section 3.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

Calibrator = Callable[[np.ndarray], np.ndarray]  # logits (n, K) to log-probabilities (n, K)


@dataclass(frozen=True)
class FixedDecisions:
    """Fixed decisions of n rows over K labels.

    Decisions are stored and never recomputed from probabilities, whose argmax can change where a softmax saturates.

    Attributes:
        logits: Logits of the base predictor, shape (n, K), float64.
        labels: True labels 0..K-1, shape (n,), int64.
        decision: Decided labels 0..K-1, shape (n,), int64.
        group: Group of each row, such as its query, shape (n,), str.
    """

    logits: np.ndarray
    labels: np.ndarray
    decision: np.ndarray
    group: np.ndarray

    @classmethod
    def concatenate(cls, parts: Sequence["FixedDecisions"]) -> "FixedDecisions":
        """Concatenate rows.

        Args:
            parts: Fixed decisions over the same labels.

        Returns:
            The rows of all parts, in their order.
        """
        return cls(
            logits=np.concatenate([part.logits for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            decision=np.concatenate([part.decision for part in parts]),
            group=np.concatenate([part.group for part in parts]),
        )

    @property
    def correct(self) -> np.ndarray:
        """Whether each decision is the true label (the event Z), shape (n,), bool."""
        return np.asarray(self.labels == self.decision)

    @property
    def n_labels(self) -> int:
        """Number of labels K, including labels that are never decided."""
        return int(self.logits.shape[1])

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray | slice) -> "FixedDecisions":
        """Select rows.

        Args:
            rows: Row numbers, a mask, or a slice.

        Returns:
            The selected rows, in that order.
        """
        return FixedDecisions(
            logits=self.logits[rows],
            labels=self.labels[rows],
            decision=self.decision[rows],
            group=self.group[rows],
        )


def decide(logits: np.ndarray) -> np.ndarray:
    """Decide for the label with the largest logit in float64, the first of equals.

    Args:
        logits: Shape (n, K).

    Returns:
        Decided labels, shape (n,), int64.
    """
    return np.asarray(np.argmax(np.asarray(logits, dtype=np.float64), axis=1))


def confidence_logit(log_probabilities: np.ndarray, decision: np.ndarray) -> np.ndarray:
    """Compute the logit of the confidence, log p_d - log of the sum of the other probabilities.

    The logit distinguishes rows whose p_d rounds to 1. A probability of exactly 0 or 1 gives an infinite logit.

    Args:
        log_probabilities: Shape (n, K).
        decision: Decided labels 0..K-1, shape (n,).

    Returns:
        Logits, shape (n,).
    """
    by_label = np.ascontiguousarray(np.transpose(log_probabilities))  # sums over labels are sums of whole arrays
    decided = np.take_along_axis(by_label, decision[None], axis=0)[0]
    others = np.where(np.arange(len(by_label) - 1)[:, None] < decision, by_label[:-1], by_label[1:])
    largest = others.max(axis=0)
    largest[np.isneginf(largest)] = 0
    others -= largest
    with np.errstate(divide="ignore"):
        log_sum = np.log(reduce(np.add, map(np.exp, others))) + largest
    return np.asarray(decided - log_sum)
