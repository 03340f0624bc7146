"""A reliability from the whole vector of logits: what a class-wise recalibration says of the fixed decision.

Temperature scaling first, then a bias and a factor for each label and what one logit says of another label, which a
ridge draws to temperature scaling (structured matrix scaling: Berta et al., 2025, with their penalties). Where the rows
say little of all that, it is temperature scaling: the two are weighed by their marginal likelihoods. It is a score of
the decision that was made: neither the decision nor a probability follows it.
"""

from typing import Annotated

import numpy as np
import scipy

from relmap.calibrators.identity import log_softmax
from relmap.calibrators.matrix import add_ridge, multinomial_loss
from relmap.calibrators.temperature import fit_temperature
from relmap.decisions import confidence_logit
from relmap.optimizers import newton
from relmap.projection.decisions import CalibratedDecisions
from relmap.serialization import Axes, Value

MAX_LABELS = 12  # for which it is offered; the time of a fit grows with the fourth power
MIN_RELATIVE_LOGIT = (
    -87.0
)  # of a logit beside the row's largest: e to it is the smallest number of float32, and far ones mislead


class WholeVector(Value, kind="whole_vector"):
    """The probability of the decision under recalibrated logits."""

    weights: Annotated[np.ndarray, Axes("K", "K")]  # a row for each new logit, of logits beside the row's largest
    bias: Annotated[np.ndarray, Axes("K")]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions with their uncalibrated logits `(n, K)` to logit of the reliability `(n,)` float64."""
        assert decisions.logits is not None
        recalibrated = log_softmax(_beside_largest(decisions.logits) @ self.weights.T + self.bias)
        return confidence_logit(recalibrated, decisions.decision)


def fit_whole_vector(logits: np.ndarray, labels: np.ndarray) -> WholeVector:
    """The recalibration of n rows: logits `(n, K)` and true labels `(n,)` 0..K-1.

    With logits in units of the temperature, K/n times the square is added to the mean log loss for each bias and for
    what each factor differs from 1 by, and K (K - 1)/n times for each weight of another label's logit. What this moves
    counts as much as it is likely beside temperature scaling, by Laplace's approximation and even odds. Beyond
    `MOST_LABELS` labels it is temperature scaling.
    """
    beside, (n, n_labels) = _beside_largest(logits), logits.shape
    beta, start = fit_temperature(beside, labels, seed=0).beta, np.eye(n_labels, n_labels + 1)
    table = start
    if n_labels <= MAX_LABELS:
        ridge = np.full(start.shape, 2 * n_labels * (n_labels - 1) / n)
        np.fill_diagonal(ridge, 2 * n_labels / n)
        ridge[:, -1] = 2 * n_labels / n
        loss = multinomial_loss(np.vstack([beta * beside.T, np.ones(n)]), np.asarray(labels), n_labels)
        posterior = add_ridge(loss, start, np.arange(start.size), ridge.ravel())
        moved = newton(posterior, start.ravel(), float(ridge.min()), settled=1e-9 / n)
        value, _, hessian = posterior(moved)
        evidence = n * (loss(start.ravel())[0] - value) + (np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]) / 2
        table = start + scipy.special.expit(evidence) * (moved.reshape(start.shape) - start)
    return WholeVector(beta * table[:, :-1], table[:, -1])


def _beside_largest(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, dtype=np.float64)
    return np.maximum(logits - logits.max(axis=1, keepdims=True), MIN_RELATIVE_LOGIT)
