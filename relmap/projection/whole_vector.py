"""Reliability from all logits of a row: the probability of the decision under a class-wise recalibration.

The logits are scaled by a temperature. Then each label gets a bias, a factor of its own logit, and weights of the other
logits. They are fitted with a ridge towards temperature scaling (structured matrix scaling, with the penalties of Berta
et al., 2025). The fit and temperature scaling are averaged, weighted by their marginal likelihoods, so that the result
is close to temperature scaling unless the rows contain evidence against it. The result only scores the fixed decision;
it changes neither decisions nor probabilities.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.calibrators.identity import log_softmax
from relmap.calibrators.linear import transform_rows
from relmap.calibrators.matrix import add_ridge, multinomial_loss
from relmap.calibrators.temperature import fit_temperature
from relmap.decisions import confidence_logit
from relmap.optimizers import newton
from relmap.projection.decisions import CalibratedDecisions
from relmap.serialization import Axes, Value

MAX_LABELS = 12  # with more labels, no weights are fitted; the time of a fit grows with the fourth power of K
# Smaller differences from the largest logit of the row are raised to this limit: exp(-87) is about the smallest normal
# float32, so that smaller probabilities of a float32 model are inaccurate.
MIN_RELATIVE_LOGIT = -87.0


class WholeVector(Value, kind="whole_vector"):
    """The probability of the decision under recalibrated logits.

    Attributes:
        weights: One row for each new logit, shape (K, K). They apply to the logits minus the largest logit of the row.
        bias: Bias of each new logit, shape (K,).
    """

    weights: Annotated[np.ndarray, Axes("K", "K")]
    bias: Annotated[np.ndarray, Axes("K")]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by their logits.

        Args:
            decisions: n decisions with uncalibrated logits, shape (n, K).

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        assert decisions.logits is not None
        relative = _relative_to_largest(decisions.logits)
        recalibrated = log_softmax(transform_rows(relative, self.weights) + self.bias)
        return confidence_logit(recalibrated, decisions.decision)


def fit_whole_vector(logits: np.ndarray, labels: np.ndarray) -> WholeVector:
    """Fit the recalibration.

    With logits divided by the temperature, the objective is the mean log loss plus K/n times the square of each bias
    and of each factor minus 1, plus K (K - 1)/n times the square of each weight of another label's logit. The change
    from temperature scaling is multiplied by its posterior probability: by Laplace's approximation, with prior odds 1.
    Beyond MAX_LABELS labels the result is temperature scaling.

    Args:
        logits: Uncalibrated logits, shape (n, K).
        labels: True labels 0..K-1, shape (n,).

    Returns:
        The fitted model.
    """
    n_rows, n_labels = logits.shape
    relative = _relative_to_largest(logits)
    beta = fit_temperature(relative, labels, seed=0).beta
    temperature_scaling = np.eye(n_labels, n_labels + 1)  # factors 1; the last column is the bias
    table = temperature_scaling
    if n_labels <= MAX_LABELS:
        features = np.vstack([beta * relative.T, np.ones(n_rows)])
        table = _average_by_evidence(features, np.asarray(labels), temperature_scaling)
    return WholeVector(weights=beta * table[:, :-1], bias=table[:, -1])


def _average_by_evidence(features: np.ndarray, labels: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Fit a table of weights (K, K + 1) to features (K + 1, n), averaged with `start` by marginal likelihood.

    The log evidence of the optimum relative to the start is n (loss(start) - objective) + (log |ridge| - log |H|) / 2.

    Returns:
        Weights, shape (K, K + 1).
    """
    n_labels = len(start)
    n_rows = features.shape[1]
    ridge = np.full(start.shape, 2 * n_labels * (n_labels - 1) / n_rows)
    np.fill_diagonal(ridge, 2 * n_labels / n_rows)
    ridge[:, -1] = 2 * n_labels / n_rows
    loss = multinomial_loss(features, labels, n_labels)
    objective = add_ridge(loss, start, np.arange(start.size), ridge.ravel())
    optimum = newton(objective, start.ravel(), float(ridge.min()), tolerance=1e-9 / n_rows)
    value, _, hessian = objective(optimum)
    loss_of_start = loss(start.ravel())[0]
    log_determinants = np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]
    log_evidence = n_rows * (loss_of_start - value) + log_determinants / 2
    posterior_probability = scipy.special.expit(log_evidence)
    return np.asarray(start + posterior_probability * (optimum.reshape(start.shape) - start))


def _relative_to_largest(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, dtype=np.float64)
    return np.asarray(np.maximum(logits - logits.max(axis=1, keepdims=True), MIN_RELATIVE_LOGIT))
