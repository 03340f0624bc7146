"""Fit a monotone correction to the out-of-fold logits of a score.

A score with few parameters can be miscalibrated for the most reliable rows. With label noise the accuracy has an upper
limit, but the logit of a linear score continues to rise and overstates their accuracy. The correction g of the logit t
is piecewise linear, with knots at quantiles of the out-of-fold logits:

    g(t) = t + level + sum_j slope_j (r_j(t) - mean of r_j),   level ~ N(0, 0.1²),   slope_j ~ N(0, deviation²),

where r_j(t) is the length of the part of interval j below t, the first and the last interval are unbounded, and
1 + slope_j >= 0.05. So g is strictly increasing and preserves the ranking. The coefficients are averaged over a grid of
deviations, weighted by the marginal likelihood (Laplace's approximation: MacKay, 1992). With few rows, or if the score
is already calibrated, the correction is small.
"""

from dataclasses import dataclass
from typing import NamedTuple

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
SUFFICIENT_DECREASE = 1e-4  # share of the linearly predicted decrease
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
        group: Group of each row, shape (n,); None for independent rows. If the residuals of a group are correlated, its
            rows count as fewer, by the design effect, so that single groups do not determine the correction.

    Returns:
        The correction, or None where the logits have too few distinct values.
    """
    weight = np.ones(len(logit)) if weight is None else weight
    logit = np.clip(logit, -MAX_LOGIT, MAX_LOGIT)
    order = np.lexsort((weight, correct, logit))  # rounding errors of sums depend on the order of their terms
    logit = logit[order]
    weight = weight[order]
    effective_weight = weight * weight.sum() / (weight**2).sum()
    if group is not None:
        residual = scipy.special.expit(logit) - correct[order]
        effective_weight = effective_weight / _design_effect(residual, effective_weight, group[order])
    knots = np.unique(np.quantile(logit, KNOT_QUANTILES))
    if len(knots) < MIN_KNOTS:
        return None
    distances = _interval_distances(logit, knots)
    mean_distances = np.average(distances, axis=0, weights=effective_weight)
    regression = _PenalizedRegression(
        offset=logit,
        features=np.column_stack([np.ones(len(logit)), distances - mean_distances]),
        correct=correct[order],
        weight=effective_weight,
    )
    coefficients = _average_over_deviations(regression)
    level = coefficients[0]
    slopes = coefficients[1:]
    values = knots + level + ((_interval_distances(knots, knots) - mean_distances) * slopes).sum(axis=1)
    return Correction(knots, values, first_slope=1 + float(slopes[0]), last_slope=1 + float(slopes[-1]))


def _design_effect(residual: np.ndarray, weight: np.ndarray, group: np.ndarray) -> float:
    """Return the variance of the mean residual relative to that of independent rows, at least 1."""
    deviation = weight * (residual - np.average(residual, weights=weight))
    _, group_code = np.unique(group, return_inverse=True)
    group_sums = np.bincount(group_code, deviation)
    independent_variance = float((deviation**2).sum())
    if independent_variance == 0:
        return 1.0
    n_groups = len(group_sums)
    clustered_variance = float((group_sums**2).sum()) * n_groups / max(n_groups - 1, 1)
    return max(1.0, clustered_variance / independent_variance)


def _average_over_deviations(regression: "_PenalizedRegression") -> np.ndarray:
    """Average the coefficients over the grid of deviations, weighted by the evidence, shape (F,)."""
    fits: list[_PenalizedFit] = []
    start = np.zeros(regression.features.shape[1])
    for deviation in SLOPE_DEVIATIONS:
        fits.append(regression.fit(deviation, start))
        start = fits[-1].coefficients
    evidence_weights = scipy.special.softmax([fit.log_evidence for fit in fits])
    return np.average([fit.coefficients for fit in fits], axis=0, weights=evidence_weights)


def _interval_distances(logit: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the length of the part of each of the J + 1 intervals below each logit, shape (n, J + 1).

    The first interval is unbounded below: its length is measured from the first knot, and is at most 0.
    """
    begins = np.r_[-np.inf, knots]
    ends = np.r_[knots, np.inf]
    return np.asarray(np.clip(logit[:, None], begins, ends) - np.r_[knots[0], knots])


@dataclass(frozen=True, eq=False)
class _PenalizedFit:
    """Level and slopes, shape (F,), and their log evidence."""

    coefficients: np.ndarray
    log_evidence: float


class _Point(NamedTuple):
    """Coefficients, shape (F,), and their penalized loss in nats."""

    coefficients: np.ndarray
    loss: float


@dataclass(frozen=True, eq=False)
class _PenalizedRegression:
    """Penalized logistic regression with an offset and lower bounds, on n rows.

    Attributes:
        offset: Logits before the correction, shape (n,).
        features: Features of level and slopes, shape (n, F).
        correct: Whether each decision is correct, shape (n,), bool.
        weight: Weight of each row, shape (n,).
    """

    offset: np.ndarray
    features: np.ndarray
    correct: np.ndarray
    weight: np.ndarray

    def fit(self, deviation: float, start: np.ndarray) -> _PenalizedFit:
        """Fit level and slopes by projected Newton steps.

        A coefficient at its lower bound that the gradient pushes below it is fixed in a step; the others are free.

        Args:
            deviation: Standard deviation of the prior of the slopes.
            start: Coefficients to start from, shape (F,).

        Returns:
            Coefficients and log evidence.
        """
        n_features = self.features.shape[1]
        ridge = np.full(n_features, deviation**-2)
        ridge[0] = LEVEL_DEVIATION**-2
        bounds = np.full(n_features, MIN_SLOPE - 1)
        bounds[0] = -np.inf
        point = _Point(start, self._loss(start, ridge))
        for _ in range(MAX_NEWTON_STEPS):
            gradient, hessian = self._derivatives(point.coefficients, ridge)
            is_free = (point.coefficients > bounds) | (gradient < 0)
            step = np.zeros(n_features)
            step[is_free] = -np.linalg.solve(hessian[np.ix_(is_free, is_free)], gradient[is_free])
            accepted = self._line_search(point, step, gradient, bounds, ridge)
            if accepted is None:
                break
            decrease = point.loss - accepted.loss
            point = accepted
            if decrease <= TOLERANCE:
                break
        return _PenalizedFit(point.coefficients, self._log_evidence(point, ridge))

    def _line_search(
        self, point: _Point, step: np.ndarray, gradient: np.ndarray, bounds: np.ndarray, ridge: np.ndarray
    ) -> _Point | None:
        """Halve a step until the loss decreases enough (Armijo's rule); None if it never does."""
        for _ in range(MAX_HALVINGS):
            coefficients = np.maximum(point.coefficients + step, bounds)
            loss = self._loss(coefficients, ridge)
            predicted_change = float(gradient @ (coefficients - point.coefficients))
            if loss <= point.loss + SUFFICIENT_DECREASE * predicted_change:
                return _Point(coefficients, loss)
            step = step / 2
        return None

    def _log_evidence(self, point: _Point, ridge: np.ndarray) -> float:
        """Return Laplace's approximation -loss + (sum_j log ridge_j - log det H) / 2."""
        _, hessian = self._derivatives(point.coefficients, ridge)
        _, log_determinant = np.linalg.slogdet(hessian)
        return float(-point.loss + (np.log(ridge).sum() - log_determinant) / 2)

    def _loss(self, coefficients: np.ndarray, ridge: np.ndarray) -> float:
        """Return the penalized log loss, in nats."""
        logit = self._corrected_logit(coefficients)
        log_loss = (self.weight * np.logaddexp(0, np.where(self.correct, -logit, logit))).sum()
        return float(log_loss + (ridge * coefficients**2).sum() / 2)

    def _derivatives(self, coefficients: np.ndarray, ridge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and Hessian of the loss.

        They are sums instead of matrix products, whose rounding errors depend on the number of threads.
        """
        reliability = scipy.special.expit(self._corrected_logit(coefficients))
        gradient = (self.features * (self.weight * (reliability - self.correct))[:, None]).sum(axis=0)
        curvature = self.weight * reliability * (1 - reliability)
        hessian = np.einsum("ni,n,nj->ij", self.features, curvature, self.features)
        return gradient + ridge * coefficients, hessian + np.diag(ridge)

    def _corrected_logit(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the corrected logits, shape (n,)."""
        return np.asarray(self.offset + (self.features * coefficients).sum(axis=1))
