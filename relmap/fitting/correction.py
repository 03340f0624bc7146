"""Fit a monotone correction to the out-of-fold logits of a score.

A score with few parameters can be wrong where users act on it. With label noise the accuracy levels off, but the logit
of a linear score goes on rising, and the most reliable rows are overstated. The correction g of the logit t is
piecewise linear, with knots at quantiles of the out-of-fold logits:

    g(t) = t + level + sum_j slope_j (r_j(t) - mean of r_j),   level ~ N(0, 0.1²),   slope_j ~ N(0, deviation²),

where r_j(t) is the distance that t has covered of interval j, the first and the last of which have no outer end, and
1 + slope_j >= 0.05. So g increases strictly, and the ranking of the rows stays. The coefficients are averaged over a
grid of deviations, weighted by the marginal likelihood (Laplace's approximation: MacKay, 1992): few rows, or rows
without a gap, leave the score nearly as it is.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from relmap.maps.correction import Correction

KNOT_QUANTILES = (0.25, 0.5, 0.75, 0.95)  # of the out-of-fold logits
SLOPE_DEVIATIONS = (0.2, 0.5, 1.0)  # standard deviations of the prior of a slope
LEVEL_DEVIATION = 0.1  # of the prior of the level, in logits: a score that was fitted is right on average
MIN_SLOPE = 0.05  # of the corrected logit; a slope of 0 would tie rows
MAX_LOGIT = 40.0  # a float64 reliability is 1 from 37 on
MIN_KNOTS = 2
MAX_NEWTON_STEPS = 100
MAX_HALVINGS = 40
TOLERANCE = 1e-10  # of the objective, in nats


def fit_correction(
    logit: np.ndarray,
    correct: np.ndarray,
    weight: np.ndarray | None = None,
    group: np.ndarray | None = None,
) -> Correction | None:
    """Fit a correction that makes the reliability agree with the share of correct rows.

    The order of the rows does not matter.

    Args:
        logit: Out-of-fold logits of the reliability, shape (n,).
        correct: Whether each decision is correct, shape (n,), bool.
        weight: Number of rows that each row represents, shape (n,), above 0; None if each represents one. Rows of
            unequal weight count as their effective number (Kish, 1965).
        group: Group of each row, shape (n,); None for independent rows. The rows of groups whose residuals agree count
            as fewer, by the design effect, so that the correction does not follow single groups.

    Returns:
        The correction, or None where the logits have too few distinct values.
    """
    weight = np.ones(len(logit)) if weight is None else weight
    logit = np.clip(logit, -MAX_LOGIT, MAX_LOGIT)
    order = np.lexsort((weight, correct, logit))  # sums depend on the order of their terms
    logit, weight = logit[order], weight[order]
    weight = weight * weight.sum() / (weight**2).sum()
    if group is not None:
        weight = weight / _design_effect(scipy.special.expit(logit) - correct[order], weight, group[order])
    knots = np.unique(np.quantile(logit, KNOT_QUANTILES))
    if len(knots) < MIN_KNOTS:
        return None
    progress = _progress(logit, knots)
    middle = np.average(progress, axis=0, weights=weight)
    features = np.column_stack([np.ones(len(logit)), progress - middle])
    rows = _Rows(logit, features, np.asarray(correct, dtype=bool)[order], weight)
    fits: list[_Fit] = []
    for deviation in SLOPE_DEVIATIONS:
        fits.append(rows.fit(deviation, start=fits[-1].coefficients if fits else np.zeros(features.shape[1])))
    shares = scipy.special.softmax([fit.log_evidence for fit in fits])
    level, *slopes = np.average([fit.coefficients for fit in fits], axis=0, weights=shares)
    values = knots + level + ((_progress(knots, knots) - middle) * slopes).sum(axis=1)
    return Correction(knots, values, first_slope=1 + float(slopes[0]), last_slope=1 + float(slopes[-1]))


def _design_effect(residual: np.ndarray, weight: np.ndarray, group: np.ndarray) -> float:
    """Return how many times larger the variance of the mean residual is than that of independent rows, at least 1."""
    deviation = weight * (residual - np.average(residual, weights=weight))
    _, code = np.unique(group, return_inverse=True)
    sums = np.bincount(code, deviation)
    independent = float((deviation**2).sum())
    if independent == 0:
        return 1.0
    clustered = float((sums**2).sum()) * len(sums) / max(len(sums) - 1, 1)
    return max(1.0, clustered / independent)


def _progress(logit: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the distance that each logit has covered of each of the J + 1 intervals, shape (n, J + 1).

    The first interval ends at the first knot, where the distance is 0, and has no beginning.
    """
    begins = np.r_[-np.inf, knots]
    ends = np.r_[knots, np.inf]
    return np.clip(logit[:, None], begins, ends) - np.r_[knots[0], knots]


@dataclass(frozen=True, eq=False)
class _Fit:
    coefficients: np.ndarray  # (F,) level and slopes
    log_evidence: float


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a penalized logistic regression with an offset and lower bounds."""

    offset: np.ndarray  # (n,) logits before the correction
    features: np.ndarray  # (n, F) of level and slopes
    correct: np.ndarray  # (n,) bool
    weight: np.ndarray  # (n,)

    def fit(self, deviation: float, start: np.ndarray) -> _Fit:
        """Fit level and slopes under a prior of the slopes, by Newton's method on the coefficients off their bounds."""
        n_features = self.features.shape[1]
        ridge = np.full(n_features, deviation**-2)
        ridge[0] = LEVEL_DEVIATION**-2
        lowest = np.full(n_features, MIN_SLOPE - 1)
        lowest[0] = -np.inf
        coefficients = start
        loss = self._loss(coefficients, ridge)
        for _ in range(MAX_NEWTON_STEPS):
            gradient, hessian = self._derivatives(coefficients, ridge)
            free = (coefficients > lowest) | (gradient < 0)
            step = np.zeros(n_features)
            step[free] = -np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
            for _ in range(MAX_HALVINGS):
                moved = np.maximum(coefficients + step, lowest)
                new_loss = self._loss(moved, ridge)
                if new_loss <= loss + 1e-4 * float(gradient @ (moved - coefficients)):
                    break
                step = step / 2
            else:
                break
            decrease = loss - new_loss
            coefficients = moved
            loss = new_loss
            if decrease <= TOLERANCE:
                break
        _, hessian = self._derivatives(coefficients, ridge)
        log_evidence = -loss + (np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]) / 2
        return _Fit(coefficients, float(log_evidence))

    def _loss(self, coefficients: np.ndarray, ridge: np.ndarray) -> float:
        """Return the penalized log loss, in nats."""
        logit = self._corrected(coefficients)
        log_loss = (self.weight * np.logaddexp(0, np.where(self.correct, -logit, logit))).sum()
        return float(log_loss + (ridge * coefficients**2).sum() / 2)

    def _derivatives(self, coefficients: np.ndarray, ridge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and Hessian of the loss, by sums: bits of matrix products depend on the number of threads."""
        reliability = scipy.special.expit(self._corrected(coefficients))
        gradient = (self.features * (self.weight * (reliability - self.correct))[:, None]).sum(axis=0)
        curvature = self.weight * reliability * (1 - reliability)
        hessian = np.einsum("ni,n,nj->ij", self.features, curvature, self.features)
        return gradient + ridge * coefficients, hessian + np.diag(ridge)

    def _corrected(self, coefficients: np.ndarray) -> np.ndarray:
        return np.asarray(self.offset + (self.features * coefficients).sum(axis=1))
