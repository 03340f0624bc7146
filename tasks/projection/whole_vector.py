"""A reliability from the whole vector of logits: what a class-wise recalibration says of the fixed decision.

The recalibration shrinks part by part: to temperature scaling first, whose factor is free, then a bias and a factor for
each label, then what one logit says of another label (structured matrix scaling: Berta et al., 2025). It is a score of
the decision that was made: neither the decision nor a probability follows it.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from tasks.calibrators.matrix import Matrix, centred, multinomial_loss, with_ridge
from tasks.calibrators.scale import typical_spread
from tasks.calibrators.temperature import fit_temperature
from tasks.projection.decisions import Decisions
from tasks.projection.pooling import begin_with, search_from_some
from tasks.protocol.decisions import confidence_logit
from tasks.protocol.newton import Objective, newton
from tasks.protocol.values import Value

LEVELS = (0.0, 0.1, 0.3, 1.0)  # deviations of a prior of coefficients, for logits of unit spread; 0 leaves a part out
MOST_LABELS = 12  # for which it is offered; the time of a fit grows with the fourth power
MOST_LABELS_ACROSS = 8  # for which one logit may speak of another label


@dataclass(frozen=True, eq=False)
class WholeVector(Value):
    """The probability of the decision under recalibrated logits."""

    kind: Literal["whole_vector"] = field(default="whole_vector", kw_only=True)
    recalibration: Matrix

    def __call__(self, decisions: Decisions) -> np.ndarray:
        """n decisions with their uncalibrated logits `(n, K)` to logit of the reliability `(n,)` float64."""
        assert decisions.logits is not None
        return confidence_logit(self.recalibration(decisions.logits), decisions.decision)

    def violations(self, n_labels: int | None = None) -> list[str]:
        """What is wrong with the weights, for K labels where that is known; empty if nothing is."""
        return self.recalibration.violations(n_labels)


@dataclass(frozen=True)
class _Prior:
    """Deviations of the coefficients from those of temperature scaling."""

    bias: float = 0.0
    own: float = 0.0  # of a label's own logit
    across: float = 0.0  # of the other logits


def fit_whole_vector(logits: np.ndarray, labels: np.ndarray) -> WholeVector:
    """The recalibration of n rows: logits `(n, K)` and true labels `(n,)` 0..K-1.

    The deviations are those of `LEVELS` with the largest marginal likelihood in Laplace's approximation, searched one
    at a time from temperature scaling on; which is all there is beyond `MOST_LABELS` labels.
    """
    n_labels = logits.shape[1]
    beta, unit = fit_temperature(logits, labels, seed=0).beta, typical_spread(logits)
    if n_labels > MOST_LABELS:
        return WholeVector(Matrix(beta * np.eye(n_labels), np.zeros(n_labels)))
    features = np.vstack([(centred(logits) / unit).T, np.ones(len(labels))])
    start, every = beta * unit * np.eye(n_labels, n_labels + 1), begin_with(len(labels))
    some, everything = (_Rows(features[:, rows], np.asarray(labels)[rows], start) for rows in (every, slice(None)))
    parts = ("bias", "own", "across") if n_labels <= MOST_LABELS_ACROSS else ("bias", "own")
    prior = search_from_some(_Prior(), parts, LEVELS, some, everything)
    table = everything.tried[prior][1]
    return WholeVector(Matrix(table[:, :-1] / unit, table[:, -1]))


@dataclass(frozen=True, eq=False)
class _Rows:
    """What coefficients are fitted on."""

    features: np.ndarray  # (K + 1, n)
    labels: np.ndarray  # (n,)
    start: np.ndarray  # (K, K + 1) coefficients of temperature scaling, the mean of the prior
    tried: dict[_Prior, tuple[float, np.ndarray]] = field(default_factory=dict)

    @cached_property
    def log_loss(self) -> Objective:
        """The mean log loss of a flattened table of coefficients."""
        return multinomial_loss(self.features, self.labels, len(self.start))

    def fit(self, prior: _Prior, near: _Prior) -> tuple[float, np.ndarray]:
        """The log marginal likelihood, in nats, and the coefficients of the largest posterior density, `(K, K + 1)`."""
        deviations, n, start = np.full(self.start.shape, prior.across), len(self.labels), self.start
        np.fill_diagonal(deviations, prior.own)
        deviations[:, -1] = prior.bias
        free = np.flatnonzero(deviations > 0)
        ridge = 1 / (n * deviations.flat[free] ** 2)
        posterior, table = with_ridge(self.log_loss, start, free, ridge), start.copy()
        if len(free):
            known = self.tried.get(near, (0.0, start))[1].flat[free]
            table.flat[free] = newton(posterior, known, float(ridge.min()), settled=1e-9 / n)
        value, _, hessian = posterior(table.flat[free])
        evidence = -n * value + (np.log(n * ridge).sum() - np.linalg.slogdet(n * hessian)[1]) / 2
        return float(evidence), table
