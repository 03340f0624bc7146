"""Structured matrix scaling (Berta et al., 2025): biases and weights of all logits, with a ridge towards a temperature.

A class-wise calibrator sees all logits, so its confidence can depend on the decided label. With few rows the ridge
keeps it close to temperature scaling, and the fit is averaged with temperature scaling by their marginal likelihoods.

Four details are ours. The ridge is a quarter of the published one. Logits far below the largest one of their row are
compressed, since single rows with huge logits would otherwise determine the weights. The temperature is bounded, since
it would be infinite if every row is correct. A label that no row has, as its true label or as its largest logit, has
only the temperature, since a bias would lower its probability although nothing is known about it.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.calibrators.identity import log_softmax
from relmap.calibrators.linear import transform_rows
from relmap.calibrators.matrix import add_ridge, median_spread, multinomial_loss
from relmap.calibrators.optimizers import newton
from relmap.calibrators.temperature import fit_bounded_temperature
from relmap.io.serialization import Axes, Positive, Value

MAX_LABELS = 12  # with more labels, no weights are fitted; the time of a fit grows with the fourth power of K
RIDGE_SCALE = 0.25  # relative to the published ridge
COMPRESSION_SPREADS = 2.0  # distance from the largest logit, in median spreads, at which compression sets in
NEWTON_TOLERANCE = 1e-9  # predicted decrease of the sum of the log losses


class StructuredMatrix(Value, kind="sms"):
    """An affine map of the compressed logits of a row.

    Attributes:
        scale: Distance s from the largest logit at which compression sets in; a distance d becomes s asinh(d / s).
        weights: One row for each new logit, shape (K, K). They apply to the compressed logits minus the largest one.
        bias: Bias of each new logit, shape (K,).
    """

    scale: Positive
    weights: Annotated[np.ndarray, Axes("K", "K")]
    bias: Annotated[np.ndarray, Axes("K")]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        return log_softmax(transform_rows(compress(logits, self.scale), self.weights) + self.bias)


def fit_sms(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> StructuredMatrix:
    """Fit biases and weights by mean log loss plus the ridge, and average them with temperature scaling.

    With compressed logits divided by the temperature, the objective is the mean log loss plus K/(4n) times the square
    of each bias and of each factor minus 1, plus K (K - 1)/(4n) times the square of each weight of another label's
    logit. The change from temperature scaling is multiplied by its posterior probability: by Laplace's approximation
    (MacKay, 1992), with prior odds of 1. Beyond MAX_LABELS labels the result is temperature scaling.

    Biases and weights are fitted to the probabilities among the labels that some row has, as its true label or as its
    largest logit, and K is their number. The other labels have the bias 0, the factor 1, and no weights between them
    and any other label.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Seed of the temperature.

    Returns:
        The fitted calibrator.
    """
    n_rows, n_labels = np.shape(logits)
    scale = COMPRESSION_SPREADS * median_spread(logits)
    compressed = compress(logits, scale)
    beta = fit_bounded_temperature(compressed, labels, seed=seed).beta
    table = np.eye(n_labels, n_labels + 1)  # temperature scaling: factors 1; the last column is the bias
    if n_labels <= MAX_LABELS:
        known_labels = np.union1d(labels, np.argmax(logits, axis=1))
        features = np.vstack([beta * compressed.take(known_labels, axis=1).T, np.ones(n_rows)])
        temperature_scaling = np.eye(len(known_labels), len(features))
        fitted = _average_by_evidence(features, np.searchsorted(known_labels, labels), temperature_scaling)
        table[np.ix_(known_labels, np.append(known_labels, n_labels))] = fitted
    return StructuredMatrix(scale=scale, weights=beta * table[:, :-1], bias=table[:, -1])


def compress(logits: np.ndarray, scale: float) -> np.ndarray:
    """Compress the distances of logits from the largest one of their row: nearly linear at first, then logarithmic.

    Args:
        logits: Shape (n, K).
        scale: Distance at which compression sets in, above 0.

    Returns:
        Minus the compressed distances, shape (n, K), float64, at most 0.
    """
    logits = np.asarray(logits, dtype=np.float64)
    relative = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(scale * np.arcsinh(relative / scale))


def _average_by_evidence(features: np.ndarray, labels: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Fit a table of weights (K, K + 1) to features (K + 1, n), averaged with `start` by marginal likelihood.

    The log evidence of the optimum relative to the start is n (loss(start) - objective) + (log |ridge| - log |H|) / 2.

    Returns:
        Weights, shape (K, K + 1).
    """
    n_labels = len(start)
    n_rows = features.shape[1]
    ridge = np.full(start.shape, 2 * RIDGE_SCALE * n_labels * (n_labels - 1) / n_rows)
    np.fill_diagonal(ridge, 2 * RIDGE_SCALE * n_labels / n_rows)
    ridge[:, -1] = 2 * RIDGE_SCALE * n_labels / n_rows
    loss = multinomial_loss(features, labels, n_labels)
    objective = add_ridge(loss, start, np.arange(start.size), ridge.ravel())
    optimum = newton(objective, start.ravel(), float(ridge.min()), tolerance=NEWTON_TOLERANCE / n_rows)
    value, _, hessian = objective(optimum)
    loss_of_start = loss(start.ravel())[0]
    log_determinants = np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]
    log_evidence = n_rows * (loss_of_start - value) + log_determinants / 2
    posterior_probability = scipy.special.expit(log_evidence)
    return np.asarray(start + posterior_probability * (optimum.reshape(start.shape) - start))
