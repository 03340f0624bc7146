"""The fixed-decision protocol: what is decided once and never again (paper, section 3.1)."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np


@dataclass(frozen=True)
class FixedDecisions:
    """The fixed decisions of `n` rows over `K` labels; every array shares the rows, in one order.

    The decision is stored, never computed again from probabilities: a softmax saturates, and then its argmax drifts.
    """

    logits: np.ndarray  # (n, K) float64, the saved seed-0 logits
    labels: np.ndarray  # (n,) int64, the true label, 0..K-1
    decision: np.ndarray  # (n,) int64, the predicted label, 0..K-1
    group: np.ndarray  # (n,) str, the query (or whatever the rows of one group share)

    @property
    def correct(self) -> np.ndarray:
        """The event Z, `(n,)` bool: is the fixed decision the true label?"""
        return np.asarray(self.labels == self.decision)

    @property
    def n_labels(self) -> int:
        """K, the number of labels, whether or not each of them is decided somewhere."""
        return int(self.logits.shape[1])

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray | slice) -> "FixedDecisions":
        """The same value for `rows` (int or bool index, or a slice) only, in that order."""
        return FixedDecisions(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def decide(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to decisions `(n,)` int64: the first label among equals, in float64."""
    return np.argmax(np.asarray(logits, dtype=np.float64), axis=1)


def confidence_logit(log_probabilities: np.ndarray, decision: np.ndarray) -> np.ndarray:
    """logit of the confidence of the fixed decision, `(n, K)` and `(n,)` to `(n,)`.

    Computed as log p_d - log of the sum of the others: where p_d rounds to 1 the logit still tells rows apart.
    A probability of exactly 0 or 1 gives an infinite logit of the right sign.
    """
    by_label = np.ascontiguousarray(np.transpose(log_probabilities))  # sums over labels are sums of whole arrays
    chosen = np.take_along_axis(by_label, decision[None], axis=0)[0]
    others = np.where(np.arange(len(by_label) - 1)[:, None] < decision, by_label[:-1], by_label[1:])
    top = others.max(axis=0)
    top[np.isneginf(top)] = 0
    others -= top
    with np.errstate(divide="ignore"):
        rest = np.log(reduce(np.add, map(np.exp, others))) + top
    return np.asarray(chosen - rest)


Calibrator = Callable[[np.ndarray], np.ndarray]  # logits (n, K) to log-probabilities (n, K)
