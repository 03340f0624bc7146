"""Matrix and vector scaling (Guo et al., 2017): logistic regression on the logits; not among the paper's calibrators.

Both treat labels separately, so they can remove differences in accuracy between labels at the same confidence, but they
change decisions. A weak ridge shrinks the weights towards temperature scaling. The search starts at temperature
scaling, so the log loss on the fit rows is never higher. The ridge matters only for weights that the rows do not
determine. A label without rows gets the small probability at which ridge and loss balance (about 1e-5), not 0. The
logits are divided by their median spread, so their scale does not matter.
"""

from typing import Annotated

import numpy as np

from relmap.calibrators.identity import log_softmax
from relmap.calibrators.linear import transform_rows
from relmap.calibrators.optimizers import Objective, newton
from relmap.calibrators.temperature import fit_temperature
from relmap.io.serialization import Axes, Value

RIDGE = 1e-6  # relative to the mean log loss: small, but large enough to keep every weight finite


class Matrix(Value, kind="matrix"):
    """An affine map of the logits of a row, from which the mean of the row is subtracted first.

    Attributes:
        weights: One row for each new logit, shape (K, K).
        bias: Bias of each new logit, shape (K,).
    """

    weights: Annotated[np.ndarray, Axes("K", "K")]
    bias: Annotated[np.ndarray, Axes("K")]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        return log_softmax(transform_rows(center_rows(logits), self.weights) + self.bias)


def fit_matrix(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Matrix:
    """Fit a full matrix and a bias by mean log loss plus the ridge.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Unused.

    Returns:
        The fitted calibrator.
    """
    n_labels = np.shape(logits)[1]
    return _fit_weights(logits, labels, np.ones((n_labels, n_labels), dtype=bool), seed)


def fit_vector(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Matrix:
    """Fit a diagonal matrix and a bias by mean log loss plus the ridge.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Unused.

    Returns:
        The fitted calibrator.
    """
    return _fit_weights(logits, labels, np.eye(np.shape(logits)[1], dtype=bool), seed)


def _fit_weights(logits: np.ndarray, labels: np.ndarray, is_free: np.ndarray, seed: int) -> Matrix:
    """Fit the free weights, a mask (K, K), and all biases, starting at temperature scaling."""
    n_labels = len(is_free)
    unit = median_spread(logits)
    features = np.vstack([(center_rows(logits) / unit).T, np.ones(len(labels))])  # the last row is for the bias
    beta = fit_temperature(logits, labels, seed=seed).beta * unit
    start = beta * np.eye(n_labels, n_labels + 1)
    free = np.flatnonzero(np.append(is_free, np.ones((n_labels, 1), dtype=bool), axis=1))
    log_loss = multinomial_loss(features, np.asarray(labels), n_labels)
    objective = add_ridge(log_loss, start, free, np.full(len(free), 2 * RIDGE))
    table = start.copy()
    table.flat[free] = newton(objective, start.flat[free], 2 * RIDGE)
    return Matrix(weights=table[:, :-1] / unit, bias=table[:, -1])


def add_ridge(log_loss: Objective, start: np.ndarray, free: np.ndarray, ridge: np.ndarray) -> Objective:
    """Add a ridge towards a starting point, and fix all other entries of a table.

    The objective is log_loss(table) + sum_j ridge_j (parameter_j - start_j)² / 2.

    Args:
        log_loss: Objective of a flattened table.
        start: Starting point, a table of any shape.
        free: Indices of the free entries of the flattened table, shape (P,).
        ridge: Weight of the ridge of each free entry, shape (P,).

    Returns:
        Objective of the free entries, shape (P,).
    """
    start_parameters = start.flat[free]

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        table = start.copy()
        table.flat[free] = parameters
        value, gradient, hessian = log_loss(table.ravel())
        distance = parameters - start_parameters
        ridged_value = value + float(ridge @ distance**2) / 2
        return ridged_value, gradient[free] + ridge * distance, hessian[np.ix_(free, free)] + np.diag(ridge)

    return objective


def multinomial_loss(features: np.ndarray, labels: np.ndarray, n_labels: int) -> Objective:
    """Build the mean log loss of multinomial logistic regression.

    With the probabilities p of a row, the one-hot vector y of its label, and its features x, the gradient is the mean
    over rows of (p - y) x'. The second derivative in the weights of labels k, l and features i, j is the mean of
    (diag(p) - p p')_kl x_i x_j. Products of pairs are computed once for i <= j.

    Args:
        features: Shape (D, n).
        labels: True labels 0..K-1, shape (n,).
        n_labels: Number of labels K.

    Returns:
        Objective of a flattened table of weights, shape (K D,).
    """
    rows = np.arange(len(labels))
    feature_pair, feature_products = _pair_products(features, features)

    def loss(table: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        scores = table.reshape(n_labels, -1) @ features
        scores -= scores.max(axis=0)
        probabilities = np.exp(scores)
        total = probabilities.sum(axis=0)
        probabilities /= total
        value = float((np.log(total) - scores[labels, rows]).mean())
        label_pair, covariances = _pair_products(probabilities, -probabilities)
        covariances[np.diagonal(label_pair)] += probabilities
        moments = covariances @ feature_products.T / len(rows)
        hessian = moments[label_pair[:, None, :, None], feature_pair[:, None, :]]
        probabilities[labels, rows] -= 1
        gradient = probabilities @ features.T / len(rows)
        return value, gradient.ravel(), hessian.reshape(table.size, table.size)

    return loss


def _pair_products(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the products (D (D + 1) / 2, n) of rows i <= j of two arrays (D, n), and the index (D, D) of each pair."""
    first, second = np.triu_indices(len(left))
    index = np.empty((len(left), len(left)), dtype=np.int64)
    index[first, second] = np.arange(len(first))
    index[second, first] = np.arange(len(first))
    return index, left[first] * right[second]


def center_rows(logits: np.ndarray) -> np.ndarray:
    """Subtract the mean of each row, which does not change its probabilities.

    Args:
        logits: Shape (n, K).

    Returns:
        Centered logits, shape (n, K), float64.
    """
    logits = np.asarray(logits, dtype=np.float64)
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))


def median_spread(logits: np.ndarray) -> float:
    """Compute the median over rows of the largest minus the smallest logit.

    The median is not affected by a few saturated rows. Rows of equal logits are omitted.

    Args:
        logits: Shape (n, K).

    Returns:
        Spread above 0; 1 if all rows have equal logits.
    """
    spread = np.ptp(np.asarray(logits, dtype=np.float64), axis=1)
    return float(np.median(spread[spread > 0])) if spread.any() else 1.0
