"""DIAG (Rahimi et al., 2020), in the paper's form (section 4.2): a positive factor for each gap between sorted logits.

The published network learns one increasing function of a logit. The paper rescales the gaps between neighbours in
the sorted row instead; with one constant factor for each place in the order the loss is convex and the fit exact.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.serialization import Axes, Positive, Value

RIDGE = 1e-3  # weight of the mean squared log factor


class Diagonal(Value, kind="diagonal"):
    """Gaps between sorted logits times positive factors: the order of the labels within a row is kept."""

    factors: Annotated[np.ndarray, Axes("K-1", of=Positive)]  # the first for the gap from the largest logit to the next

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64."""
        order, gaps = _sorted_gaps(logits)
        calibrated = np.empty(order.shape)
        np.put_along_axis(calibrated, order, _from_gaps(self.factors * gaps), axis=1)
        return calibrated


def fit_diagonal(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Diagonal:  # noqa: ARG001 - exact
    """Map logits `(n, K)` and labels `(n,)` 0..K-1 to the factors of least mean log loss plus ridge, by L-BFGS.

    The ridge is the authors': it pulls every factor towards 1, and so decides where the rows are silent: gaps that are
    always 0, ranks that are never the true label.
    """
    order, gaps = _sorted_gaps(logits)
    rank = np.argmax(order == np.asarray(labels)[:, None], axis=1)
    above = rank[:, None] <= np.arange(gaps.shape[1])  # (n, K-1): is the true label above the gap?

    def loss(log_factors: np.ndarray) -> tuple[float, np.ndarray]:
        factors = np.exp(log_factors)
        log_probabilities = _from_gaps(factors * gaps)
        mass_above = np.exp(log_probabilities).cumsum(axis=1)[:, :-1]
        log_loss = -np.take_along_axis(log_probabilities, rank[:, None], axis=1).mean()
        gradient = (gaps * (mass_above - above)).mean(axis=0) * factors
        return log_loss + RIDGE * (log_factors**2).mean(), gradient + 2 * RIDGE * log_factors / len(factors)

    optimum = scipy.optimize.minimize(
        loss,
        np.zeros(gaps.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 0, "maxcor": 20, "maxiter": 1000, "maxfun": 2000},
    )
    return Diagonal(np.exp(optimum.x))


def _sorted_gaps(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map logits `(n, K)` to the labels `(n, K)` from the largest logit down and the gaps `(n, K-1)` between them."""
    logits = floored_log_softmax(logits)
    order = np.argsort(-logits, axis=1, kind="stable")
    return order, -np.diff(np.take_along_axis(logits, order, axis=1), axis=1)


def _from_gaps(gaps: np.ndarray) -> np.ndarray:
    """Map gaps `(n, K-1)` to log-probabilities `(n, K)`, the largest first."""
    below = np.concatenate([np.zeros((len(gaps), 1)), gaps.cumsum(axis=1)], axis=1)
    return log_softmax(-below)
