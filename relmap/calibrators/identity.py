"""Uncal: the base predictor's own probabilities, the first row of every table; and the scale that others start from."""

from functools import reduce

import numpy as np

from relmap.serialization import Value


class Identity(Value, kind="identity"):
    """The calibrator that changes nothing."""

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64."""
        return log_softmax(logits)


def fit_identity(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Identity:  # noqa: ARG001 - the one contract
    """Map logits `(n, K)` and labels `(n,)` to the identity; nothing is learned."""
    return Identity()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Map logits `(n, K)`, one of each row finite, to log-probabilities `(n, K)` float64, stored label by label.

    SciPy's takes several times as long: so stored, what is taken over the few labels is of whole columns.
    """
    by_label = np.array(np.transpose(logits), dtype=np.float64, order="C")
    by_label -= by_label.max(axis=0)
    by_label -= np.log(reduce(np.add, map(np.exp, by_label)))  # in one order, so that a row alone has the same bits
    return by_label.T


def floored_log_softmax(logits: np.ndarray) -> np.ndarray:
    """Map logits `(n, K)` to log(p + 1e-12) `(n, K)` float64 in [-27.6, 0]: no label is further from the top than that.

    What the paper's DIAG, h-cal and SMART start from, as their authors have it; there in float32.
    """
    return np.asarray(np.logaddexp(log_softmax(logits), np.log(1e-12)))
