"""Matrix and vector scaling (Guo et al., 2017): logistic regression on the logits. Rivals, outside the paper's six.

They see each label apart, so they can remove a label-wise residual themselves, at the price of other decisions. A
weak ridge pulls them towards temperature scaling, where the search starts, so the loss on their rows is never above
that of temperature scaling. It decides only where the rows are silent: a label that they do not hold gets the small
probability at which ridge and loss balance (some 1e-5), and not 0. The logits are measured in units of their spread, so
their scale does not matter.
"""

from typing import Annotated

import numpy as np

from relmap.calibrators.identity import log_softmax
from relmap.calibrators.temperature import fit_temperature
from relmap.optimizers import Objective, newton
from relmap.serialization import Axes, Value

RIDGE = 1e-6  # on the mean log loss: next to nothing, yet no weight runs away


class Matrix(Value, kind="matrix"):
    """An affine map of the logits, centred in each row: what a row's logits have in common says nothing."""

    weights: Annotated[np.ndarray, Axes("K", "K")]  # a row for each new logit
    bias: Annotated[np.ndarray, Axes("K")]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64."""
        return log_softmax(center_rows(logits) @ self.weights.T + self.bias)


def fit_matrix(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Matrix:
    """Map logits `(n, K)` and labels `(n,)` 0..K-1 to the weights and bias that minimise the mean log loss."""
    n_labels = np.shape(logits)[1]
    return _fit_weights(logits, labels, np.ones((n_labels, n_labels), dtype=bool), seed)


def fit_vector(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Matrix:
    """Map logits `(n, K)` and labels `(n,)` 0..K-1 to a diagonal matrix and a bias that minimise the mean log loss."""
    return _fit_weights(logits, labels, np.eye(np.shape(logits)[1], dtype=bool), seed)


def _fit_weights(logits: np.ndarray, labels: np.ndarray, free: np.ndarray, seed: int) -> Matrix:
    unit = median_spread(logits)
    features = np.vstack([(center_rows(logits) / unit).T, np.ones(len(labels))])  # the last one for the bias
    same = fit_temperature(logits, labels, seed=seed).beta * unit
    start = same * np.eye(len(free), len(features))
    log_loss = multinomial_loss(features, np.asarray(labels), len(free))
    moving = np.flatnonzero(np.append(free, np.ones((len(free), 1), dtype=bool), axis=1))

    loss = add_ridge(log_loss, start, moving, np.full(len(moving), 2 * RIDGE))
    table = start.copy()
    table.flat[moving] = newton(loss, start.flat[moving], 2 * RIDGE)
    return Matrix(table[:, :-1] / unit, table[:, -1])


def add_ridge(log_loss: Objective, start: np.ndarray, free: np.ndarray, ridge: np.ndarray) -> Objective:
    """Return the log loss of the `free` places `(P,)` of a flattened table, the rest as in `start`, with a ridge to it.

    The ridge `(P,)` weighs half the squared distance of each to its start.
    """

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        table = start.copy()
        table.flat[free] = parameters
        value, gradient, hessian = log_loss(table.ravel())
        away, hessian = parameters - start.flat[free], hessian[np.ix_(free, free)] + np.diag(ridge)
        return value + float(ridge @ away**2) / 2, gradient[free] + ridge * away, hessian

    return loss


def multinomial_loss(features: np.ndarray, labels: np.ndarray, n_labels: int) -> Objective:
    """Map features `(D, n)` and labels `(n,)` 0..K-1 to the mean log loss of a flattened table of weights `(K, D)`."""
    rows = np.arange(len(labels))
    feature_pair, products = _pairs(features, features)

    def loss(table: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        scores = table.reshape(n_labels, -1) @ features
        scores -= scores.max(axis=0)
        probabilities = np.exp(scores)
        total = probabilities.sum(axis=0)
        probabilities /= total
        value = float((np.log(total) - scores[labels, rows]).mean())
        label_pair, spread = _pairs(probabilities, -probabilities)
        spread[np.diagonal(label_pair)] += probabilities  # covariances of the label's indicators
        moments = spread @ products.T / len(rows)
        hessian = moments[label_pair[:, None, :, None], feature_pair[:, None, :]]
        probabilities[labels, rows] -= 1
        gradient = probabilities @ features.T / len(rows)
        return value, gradient.ravel(), hessian.reshape(table.size, table.size)

    return loss


def _pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two `(D, n)` to the place `(D, D)` of each pair, and the products `(D (D + 1) / 2, n)` of those i <= j."""
    first, second = np.triu_indices(len(left))
    place = np.empty((len(left), len(left)), dtype=np.int64)
    place[first, second] = place[second, first] = np.arange(len(first))
    return place, left[first] * right[second]


def center_rows(logits: np.ndarray) -> np.ndarray:
    """Map logits `(n, K)` to logits `(n, K)` float64 that mean the same and sum to 0 in each row."""
    logits = np.asarray(logits, dtype=np.float64)
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))


def median_spread(logits: np.ndarray) -> float:
    """Map logits `(n, K)` to the median over rows of largest minus smallest, > 0; 1 if no row tells its labels apart.

    The median, so that a few saturated rows do not set the scale; rows of equal logits do not count.
    """
    spread = np.ptp(np.asarray(logits, dtype=np.float64), axis=1)
    return float(np.median(spread[spread > 0])) if spread.any() else 1.0
