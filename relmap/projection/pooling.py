"""Lines and shifts of the logit of the confidence that lean on one another: partial pooling, for few labelled rows.

With x the logit z of the confidence, standardised, the logit of the reliability of a decision k is

    t = z + (a + a_k) + (b + b_k) x,   a, b ~ N(0, shared²),   a_k ~ N(0, intercept²),   b_k ~ N(0, slope²).

What all labels share shrinks to the identity, and what is a label's own to what all share. How strongly, the rows say:
the deviations are those of `LEVELS` with the largest marginal likelihood (Laplace's approximation: MacKay, 1992;
Tierney and Kadane, 1986), 0 among them, where a part is left out. Slopes of labels are less apart than shifts: their
deviation has a half-normal prior itself (Gelman, 2006). So a label of three rows stands on the others, one of three
thousand on its own, and there is no number of rows at which that turns. Signals, further columns `(n, S)`, enter
as x does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Annotated

import numpy as np
import scipy

from relmap.projection.curves import Curves
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.labelwise import MAX_LOGIT, Lines
from relmap.serialization import Axes, Number, Share, Value

PooledFit = tuple[
    float, np.ndarray, np.ndarray
]  # log marginal likelihood, in nats; shared (F,), own coefficients (K, F)
DEVIATION_LEVELS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)  # deviations of a prior, in logits
TOLERANCE = 1e-12  # what a step must promise to take off the objective, in nats
SEARCH_TOLERANCE = 1e-5  # the same while deviations are compared
MAX_NEWTON_STEPS = 100
MAX_SEARCH_ROUNDS = 4  # of a search that ends, as a rule, with the second
MIN_EVIDENCE_GAIN = 1.0  # nats of evidence that it takes to let a part in, so that chance seldom does
SLOPE_DEVIATION_SCALE = (
    0.5  # scale of the half-normal prior of slopes' deviation; without it few kind rows make one far too steep
)
MIN_SPREAD = 0.01  # of the logits that a slope is fitted on; what differs by less is the same
N_SEARCH_ROWS = 1000  # rows that a search begins with, at most, evenly spread


class WithSignals(Value, kind="signals"):
    """A line for each label, and what further columns add to it: monotone in the confidence whatever these say."""

    line: Lines
    weights: Annotated[np.ndarray, Axes("S", "K", of=Number)]  # of each signal for each label

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions with signals `(n, S)` to logit of the reliability `(n,)` float64."""
        assert decisions.signals is not None
        return np.asarray(self.line(decisions) + (decisions.signals * self.weights.T[decisions.decision]).sum(axis=1))

    def _contradictions(self) -> list[str]:
        return self.line.violations(self.weights.shape[1])


class ShrunkCurves(Value, kind="shrunk"):
    """Monotone curves that lean on lines: t = (1 - share) line + share curve, with a share for each label."""

    line: Lines
    curves: Curves
    share: Annotated[np.ndarray, Axes("K", of=Share)]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions to logit of the reliability `(n,)` float64, by confidence and label."""
        share = self.share[decisions.decision]
        # a sum of two products, neither of which falls as the confidence rises, to the last bit
        return np.asarray((1 - share) * self.line(decisions) + share * self.curves(decisions))

    def _contradictions(self) -> list[str]:
        return self.line.violations(len(self.share)) + self.curves.violations(len(self.share))


@dataclass(frozen=True)
class Prior:
    """Standard deviations of what all labels share and of what is a label's own, in logits; 0 leaves a part out."""

    shared: float = 0.0
    intercept: float = 0.0
    slope: float = 0.0
    signals: float = 0.0  # of what a signal adds for all labels
    signals_by_label: float = 0.0

    def deviations(self, features: int) -> tuple[np.ndarray, np.ndarray]:
        """Of the shared coefficients and of a label's own, `(features,)` both: 1, x and the signals."""
        more = features - 2
        shared = [self.shared, self.shared, *[self.signals] * more]
        return np.array(shared), np.array([self.intercept, self.slope, *[self.signals_by_label] * more])


def search_prior(prior: Prior, parts: Sequence[str], rows: "PooledProblem", reach: int) -> Prior:
    """The prior of the largest evidence of `rows`, searched from `prior` on, one of its `parts` at a time.

    A part moves by `reach` of the `LEVELS`, from 0 up, at most; it is left out unless that costs more than `DOUBT`.
    Evidence counts what the prior of a deviation takes off. What `rows.fit(prior, the one before)` says, the evidence
    first, is kept in `rows.tried`.
    """
    for _ in range(MAX_SEARCH_ROUNDS):
        before = prior
        for part in parts:
            now = DEVIATION_LEVELS.index(getattr(prior, part))
            near = DEVIATION_LEVELS[max(now - reach, 0) : now + reach + 1]
            scale = SLOPE_DEVIATION_SCALE if part == "slope" else math.inf
            candidates = {
                replace(prior, **{part: at}): MIN_EVIDENCE_GAIN * (at == 0) - (at / scale) ** 2 / 2 for at in near
            }
            for candidate in candidates:
                if candidate not in rows.tried:
                    rows.tried[candidate] = rows.fit(candidate, prior)
            prior = max(candidates, key=lambda candidate: rows.tried[candidate][0] + candidates[candidate])
        if prior == before:
            break
    return prior


class PooledLineFitter:
    """n rows to fit pooled lines on: what was tried for one set of free parts is known for the next."""

    def __init__(
        self,
        confidence_logit: np.ndarray,
        decision: np.ndarray,
        correct: np.ndarray,
        n_labels: int,
        signals: np.ndarray | None = None,
    ) -> None:
        """Logits of the confidence `(n,)`, decisions 0..K-1, correct and signals `(n, S)`, in any order of the rows."""
        columns = () if signals is None else tuple(signals.T)
        order = np.lexsort((*columns, correct, confidence_logit, decision))
        z = confidence_logit[order].astype(np.float64)
        certain, self._farthest = np.isinf(z), MAX_LOGIT
        if certain.any():
            self._farthest = min(float(np.abs(z[~certain]).max(initial=2)) + float(np.log(2)), MAX_LOGIT)
        z = np.clip(z, -self._farthest, self._farthest)
        self._middle, self._spread = float(z.mean()), max(float(z.std()), MIN_SPREAD)
        x = (z - self._middle) / self._spread
        features = np.column_stack([np.ones(len(z)), x, *(column[order] for column in columns)])
        every = np.unique(np.linspace(0, len(z) - 1, min(N_SEARCH_ROWS, len(z))).astype(np.int64))
        label, correct = decision[order], correct[order]
        self._all = PooledProblem(z, features, label, correct, n_labels)
        self._some = PooledProblem(z[every], features[every], label[every], correct[every], n_labels)
        self._signals = signals is not None

    def lines(self, *free: str) -> Lines | WithSignals:
        """The lines for which the parts `free` of `Prior` have the deviations of the largest marginal likelihood.

        The others are left out: without "slope" only shifts differ between labels, without "intercept" too all labels
        share a line. Of many rows some are enough to begin the search with. A label whose line would fall is flat, at
        what its rows have on average. A confidence of exactly 0 or 1 counts as half as far from it as the nearest
        other one. The order of the rows does not matter.
        """
        prior = search_prior(search_prior(Prior(), free, self._some, len(DEVIATION_LEVELS)), free, self._all, 1)
        _, shared, own = self._all.fit(prior, prior, TOLERANCE)
        coefficients = shared + own
        slope = 1 + coefficients[:, 1] / self._spread
        intercept = coefficients[:, 0] - coefficients[:, 1] * self._middle / self._spread
        intercept = np.where(slope >= 0, intercept, self._all.mean_logits(coefficients[:, :2]))
        line = Lines(np.maximum(slope, 0), intercept, self._farthest)
        return WithSignals(line, coefficients[:, 2:].T) if self._signals else line


@dataclass(frozen=True, eq=False)
class PooledProblem:
    offset: np.ndarray  # (n,)
    features: np.ndarray  # (n, F)
    label: np.ndarray  # (n,) decided, rising
    correct: np.ndarray  # (n,) bool
    n_labels: int
    tried: dict[Prior, PooledFit] = field(default_factory=dict)

    def mean_logits(self, line: np.ndarray) -> np.ndarray:
        """Coefficients `(K, 2)` to the logit of each label's mean reliability `(K,)`, of all rows where it has none."""
        q = scipy.special.expit(self.offset + (self.features[:, :2] * line[self.label]).sum(axis=1))
        rows = np.bincount(self.label, minlength=self.n_labels)
        mean = np.bincount(self.label, q, self.n_labels) / np.maximum(rows, 1)
        return np.asarray(scipy.special.logit(np.where(rows, mean, q.mean())))

    def fit(self, prior: Prior, near: Prior, settled: float = SEARCH_TOLERANCE) -> PooledFit:
        """By Newton's method from what is known of `near`; a label's own coefficients are eliminated label by label."""
        n_features = self.features.shape[1]
        of_shared, of_own = prior.deviations(n_features)
        some, each = np.flatnonzero(of_shared > 0), np.flatnonzero(of_own > 0)
        x, y = self.features[:, some], self.features[:, each]
        ridge, ridges = 1 / of_shared[some] ** 2, 1 / of_own[each] ** 2
        shared, own = np.zeros(n_features), np.zeros((self.n_labels, n_features))
        _, u, v = self.tried.get(near, (0.0, shared, own))
        u, v = u[some], v[:, each]

        def objective(u: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray]:
            t = self.offset + (x * u).sum(axis=1) + (y * v[self.label]).sum(axis=1)
            log_loss = np.logaddexp(0, np.where(self.correct, -t, t)).sum()
            return float(log_loss + (ridge * u**2).sum() / 2 + (ridges * v**2).sum() / 2), t

        value, t = objective(u, v)
        for _ in range(MAX_NEWTON_STEPS):
            q = scipy.special.expit(t)
            residual, weight = q - self.correct, q * (1 - q)
            own_hessian = self._by_label(y, y, weight) + np.diag(ridges)
            across = self._by_label(x, y, weight)
            gradient = (x * residual[:, None]).sum(axis=0) + ridge * u
            gradients = self._by_label(y, np.ones((len(t), 1)), residual)[:, :, 0] + ridges * v
            right = np.concatenate([np.swapaxes(across, 1, 2), gradients[..., None]], axis=2)
            solved = np.linalg.solve(own_hessian, right)
            shared_hessian = self._by_label(x, x, weight).sum(axis=0) + np.diag(ridge)
            schur = shared_hessian - (across @ solved[..., :-1]).sum(axis=0)
            step = -np.linalg.solve(schur, gradient - (across @ solved[..., -1:])[..., 0].sum(axis=0))
            steps = -solved[..., -1] - solved[..., :-1] @ step
            promised, size = -float(gradient @ step + (gradients * steps).sum()), 1.0
            if promised <= settled:
                break
            while size > 1e-6:
                new, new_t = objective(u + size * step, v + size * steps)
                if new <= value - 1e-4 * size * promised:
                    break
                size /= 2
            else:
                break
            u, v, t, value = u + size * step, v + size * steps, new_t, new
        curvature = np.linalg.slogdet(schur)[1] + np.linalg.slogdet(own_hessian)[1].sum()
        priors = np.log(ridge).sum() + self.n_labels * np.log(ridges).sum()
        shared[some], own[:, each] = u, v
        return float(-value + (priors - curvature) / 2), shared, own

    def _by_label(self, left: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Two `(n, A)` and `(n, B)` to the weighted sums of their products by label, `(K, A, B)`."""
        sums = np.zeros((self.n_labels, left.shape[1], right.shape[1]))
        starts = np.flatnonzero(np.diff(self.label, prepend=-1))
        for i, j in product(range(left.shape[1]), range(right.shape[1])):
            sums[self.label[starts], i, j] = np.add.reduceat(left[:, i] * right[:, j] * weight, starts)
        return sums
