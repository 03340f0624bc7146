"""Uncal: the base predictor's own probabilities, the first row of every table; and the scale that others start from."""

import numpy as np
from scipy.special import log_softmax

from tasks.protocol.values import Value


class Identity(Value, kind="identity"):
    """The calibrator that changes nothing."""

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64."""
        return np.asarray(log_softmax(np.asarray(logits, dtype=np.float64), axis=1))


def fit_identity(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Identity:  # noqa: ARG001 - the one contract
    """Map logits `(n, K)` and labels `(n,)` to the identity; nothing is learned."""
    return Identity()


def floored(logits: np.ndarray) -> np.ndarray:
    """Map logits `(n, K)` to log(p + 1e-12) `(n, K)` float64 in [-27.6, 0]: no label is further from the top than that.

    What the paper's DIAG, h-cal and SMART start from, as their authors have it; there in float32.
    """
    return np.asarray(np.logaddexp(Identity()(logits), np.log(1e-12)))
