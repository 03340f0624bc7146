"""Uncalibrated probabilities, a constant confidence, and the log-softmax that the calibrators share."""

from functools import reduce
from typing import Annotated

import numpy as np
from pydantic import Field

from relmap.io.serialization import Value


class Identity(Value, kind="identity"):
    """The calibrator that changes nothing."""

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Convert logits to log-probabilities.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        return log_softmax(logits)


def fit_identity(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Identity:  # noqa: ARG001 - common signature
    """Return the identity, with the signature of the other fits.

    Args:
        logits: Unused.
        labels: Unused.
        seed: Unused.

    Returns:
        The identity.
    """
    return Identity()


class Constant(Value, kind="constant"):
    """The same confidence for every decision.

    Attributes:
        share: Estimated share of correct decisions.
    """

    share: Annotated[float, Field(gt=0, lt=1)]


def fit_constant(correct: float, rows: int) -> Constant:
    """Estimate the accuracy by Laplace's rule, (correct + 1) / (rows + 2), which is never 0 or 1.

    Args:
        correct: Number of correct decisions; not whole if the rows are weighted.
        rows: Number of rows.

    Returns:
        The constant confidence.
    """
    return Constant((correct + 1) / (rows + 2))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Convert logits to log-probabilities, several times as fast as SciPy for few labels.

    The result is stored label by label, so that sums over labels are sums of contiguous columns. The labels are added
    in a fixed order, so that rounding errors of a row do not depend on the other rows.

    Args:
        logits: Shape (n, K); each row has a finite logit.

    Returns:
        Log-probabilities, shape (n, K), float64.
    """
    by_label = np.array(np.transpose(logits), dtype=np.float64, order="C")
    by_label -= by_label.max(axis=0)
    by_label -= np.log(reduce(np.add, map(np.exp, by_label)))
    return by_label.T


def floored_log_softmax(logits: np.ndarray) -> np.ndarray:
    """Compute log(p + 1e-12), which DIAG, h-cal and SMART use as logits in the authors' code (there in float32).

    Args:
        logits: Shape (n, K).

    Returns:
        Values in [-27.6, 0], shape (n, K), float64.
    """
    return np.asarray(np.logaddexp(log_softmax(logits), np.log(1e-12)))
