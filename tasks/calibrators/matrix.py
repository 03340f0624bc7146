"""Matrix scaling (Guo et al., 2017): multinomial logistic regression on the logits. A rival, outside the paper's six.

It sees each label apart, so it can remove a label-wise residual itself, at the price of other decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from tasks.calibrators.scale import typical_spread
from tasks.calibrators.temperature import fit_temperature

RIDGE = 1e-6  # on the mean log loss: next to nothing, yet no weight runs away


@dataclass(frozen=True, eq=False)
class Matrix:
    """An affine map of the logits, centred in each row: what a row's logits have in common says nothing."""

    weights: np.ndarray  # (K, K) float64, a row for each new logit
    bias: np.ndarray  # (K,) float64

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        return np.asarray(log_softmax(centred(logits) @ self.weights.T + self.bias, axis=1))


def fit_matrix(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Matrix:
    """Logits `(n, K)` and labels `(n,)` 0..K-1 to the weights and bias that minimise the mean log loss."""
    n_labels = np.shape(logits)[1]
    return fit_weights(logits, labels, np.ones((n_labels, n_labels), dtype=bool), seed=seed)


def fit_weights(logits: np.ndarray, labels: np.ndarray, free: np.ndarray, *, seed: int) -> Matrix:
    """Fit the bias and the weights that are `free (K, K)` bool; the other weights are 0.

    A weak ridge pulls them towards temperature scaling, where the search starts, so the loss on these rows is never
    above that of temperature scaling. It decides only where the rows are silent: a label that they do not hold gets
    the small probability at which ridge and loss balance (some 1e-5), and not 0. The logits are measured in units of
    their spread, so their scale does not matter.
    """
    n_labels = len(free)
    unit = typical_spread(logits)
    features, truth = centred(logits) / unit, np.eye(n_labels)[labels]
    same = fit_temperature(logits, labels, seed=seed).beta * unit * np.eye(n_labels)
    start = np.concatenate([same[free], np.zeros(n_labels)])

    def unpacked(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weights = np.zeros(free.shape)
        weights[free] = parameters[:-n_labels]
        return weights, parameters[-n_labels:]

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights, bias = unpacked(parameters)
        log_probabilities = log_softmax(features @ weights.T + bias, axis=1)
        excess = (np.exp(log_probabilities) - truth) / len(truth)
        slope = np.concatenate([(excess.T @ features)[free], excess.sum(axis=0)])
        log_loss = -(truth * log_probabilities).sum(axis=1).mean()
        away = parameters - start
        return log_loss + RIDGE * (away**2).sum(), slope + 2 * RIDGE * away

    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 0, "maxcor": 20, "maxiter": 2000, "maxfun": 4000},
    )
    weights, bias = unpacked(found.x)
    return Matrix(weights / unit, bias)


def centred(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to logits `(n, K)` float64 that mean the same and sum to 0 in each row."""
    logits = np.asarray(logits, dtype=np.float64)
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))
