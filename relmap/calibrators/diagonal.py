"""DIAG (Rahimi et al., 2020), in the paper's form (section 4.2): a positive factor for each gap between sorted logits.

The published network learns one increasing function of a logit. The paper rescales the gaps between neighbors in the
sorted row instead. With one constant factor for each rank, the loss is convex and the fit is exact.
"""

from typing import Annotated, NamedTuple

import numpy as np
import scipy

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.io.serialization import Axes, Positive, Value

RIDGE = 1e-3  # weight of the mean squared log factor


class Diagonal(Value, kind="diagonal"):
    """Calibrator that multiplies gaps between sorted logits by positive factors; the order of labels does not change.

    Attributes:
        factors: Factor of each gap, from the gap between the two largest logits down, shape (K - 1,).
    """

    factors: Annotated[np.ndarray, Axes("K-1", of=Positive)]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        rows = _sort_rows(logits)
        calibrated = np.empty(rows.order.shape)
        np.put_along_axis(calibrated, rows.order, _log_probabilities(self.factors * rows.gaps), axis=1)
        return calibrated


def fit_diagonal(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Diagonal:  # noqa: ARG001 - deterministic
    """Fit the factors by mean log loss plus a ridge on their logarithms, with L-BFGS.

    The ridge is the same as in the authors' code. It shrinks each factor towards 1. Without it, a factor would not be
    determined if, for example, its gap is 0 in all rows, or the true label is on the same side of it in all rows.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Unused.

    Returns:
        The fitted calibrator.
    """
    rows = _sort_rows(logits)
    gaps = rows.gaps
    rank = np.argmax(rows.order == np.asarray(labels)[:, None], axis=1)
    # whether the logit of the true label is above the gap, shape (n, K - 1)
    label_is_above = rank[:, None] <= np.arange(gaps.shape[1])

    def objective(log_factors: np.ndarray) -> tuple[float, np.ndarray]:
        factors = np.exp(log_factors)
        log_p = _log_probabilities(factors * gaps)
        probability_above = np.exp(log_p).cumsum(axis=1)[:, :-1]  # of the labels above each gap
        log_loss = -np.take_along_axis(log_p, rank[:, None], axis=1).mean()
        # d(log loss of a row) / d(factor) = gap * (probability above the gap - 1 if the true label is above it)
        factor_gradient = (gaps * (probability_above - label_is_above)).mean(axis=0)
        ridge_gradient = 2 * RIDGE * log_factors / len(factors)
        return log_loss + RIDGE * (log_factors**2).mean(), factor_gradient * factors + ridge_gradient

    optimum = scipy.optimize.minimize(
        objective,
        np.zeros(gaps.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 0, "maxcor": 20, "maxiter": 1000, "maxfun": 2000},
    )
    return Diagonal(np.exp(optimum.x))


class SortedLogits(NamedTuple):
    """Rows sorted by decreasing logit.

    Attributes:
        order: Labels from the largest logit down, shape (n, K).
        gaps: Differences between neighboring logits, at least 0, shape (n, K - 1).
    """

    order: np.ndarray
    gaps: np.ndarray


def _sort_rows(logits: np.ndarray) -> SortedLogits:
    log_p = floored_log_softmax(logits)
    order = np.argsort(-log_p, axis=1, kind="stable")
    gaps = -np.diff(np.take_along_axis(log_p, order, axis=1), axis=1)
    return SortedLogits(order, gaps)


def _log_probabilities(gaps: np.ndarray) -> np.ndarray:
    """Convert gaps (n, K - 1) to log-probabilities (n, K), the largest first."""
    below_largest = np.concatenate([np.zeros((len(gaps), 1)), gaps.cumsum(axis=1)], axis=1)
    return log_softmax(-below_largest)
