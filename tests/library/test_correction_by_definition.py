"""The correction equals a slow computation of its definition, with weights and groups."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from relmap.fitting.correction import (
    LEVEL_DEVIATION,
    MAX_LOGIT,
    MIN_SLOPE,
    _PenalizedRegression,
    _Point,
    fit_correction,
)
from relmap.maps.correction import Correction
from scipy.optimize import minimize
from scipy.special import expit

PRIOR_OF_LEVEL = 0.1
PRIORS_OF_SLOPE = (0.2, 0.5, 1.0)
QUANTILES = (0.25, 0.5, 0.75, 0.95)
MIN_SLOPE_COEFFICIENT = -0.95  # a slope is 1 plus its coefficient, and at least MIN_SLOPE = 0.05


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to fit a correction on."""

    logit: np.ndarray
    correct: np.ndarray
    weight: np.ndarray
    group: np.ndarray

    def take(self, rows: np.ndarray) -> "Rows":
        return Rows(self.logit[rows], self.correct[rows], self.weight[rows], self.group[rows])


def make_rows(n_rows: int = 90, ceiling: float = 0.75, seed: int = 0) -> Rows:
    """Make rows of unequal groups, whose accuracy has a ceiling and depends on the group."""
    generator = np.random.default_rng(seed)
    group = generator.integers(0, 17, n_rows) * generator.integers(0, 2, n_rows)
    logit = 0.7 + 1.9 * generator.normal(size=n_rows)
    accuracy = np.minimum(expit(logit + generator.normal(0, 1.5, 17)[group]), ceiling)
    return Rows(logit, generator.random(n_rows) < accuracy, generator.uniform(0.2, 6, n_rows), group)


def covered_lengths(logit: float, knots: np.ndarray) -> list[float]:
    """Return the length of the part of each interval below a logit; minus the distance to the first knot below it."""
    lengths = [min(logit, knots[0]) - knots[0]]
    for begin, end in pairwise(knots):
        lengths.append(min(max(logit, begin), end) - begin)
    lengths.append(max(logit, knots[-1]) - knots[-1])
    return lengths


def design_effect(rows: Rows) -> float:
    residual = expit(rows.logit) - rows.correct
    deviation = rows.weight * (residual - (rows.weight * residual).sum() / rows.weight.sum())
    groups = set(rows.group.tolist())
    clustered = sum(deviation[rows.group == group].sum() ** 2 for group in groups) * len(groups) / (len(groups) - 1)
    return max(1.0, clustered / (deviation**2).sum())


def penalized_loss(coefficients: np.ndarray, rows: Rows, features: np.ndarray, deviation: float) -> float:
    logit = rows.logit + features @ coefficients
    losses = np.where(rows.correct, np.logaddexp(0, -logit), np.logaddexp(0, logit))
    penalty = (coefficients[0] / PRIOR_OF_LEVEL) ** 2 + ((coefficients[1:] / deviation) ** 2).sum()
    return float((rows.weight * losses).sum() + penalty / 2)


def hessian_of_loss(coefficients: np.ndarray, rows: Rows, features: np.ndarray, deviation: float) -> np.ndarray:
    reliability = expit(rows.logit + features @ coefficients)
    hessian = np.diag([PRIOR_OF_LEVEL**-2] + [deviation**-2] * (features.shape[1] - 1))
    for feature, weight, share in zip(features, rows.weight, reliability, strict=True):
        hessian += weight * share * (1 - share) * np.outer(feature, feature)
    return hessian


def expected_values(rows: Rows, *, grouped: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return knots, corrected logits of the knots, and the slope of each interval."""
    effective = rows.weight * rows.weight.sum() / (rows.weight**2).sum()
    if grouped:
        effective = effective / design_effect(rows)
    rows = Rows(rows.logit, rows.correct, effective, rows.group)
    knots = np.quantile(rows.logit, QUANTILES)
    lengths = np.array([covered_lengths(value, knots) for value in rows.logit])
    mean_lengths = (effective[:, None] * lengths).sum(axis=0) / effective.sum()
    features = np.column_stack([np.ones(len(lengths)), lengths - mean_lengths])
    optima = []
    log_evidences = []
    for deviation in PRIORS_OF_SLOPE:
        optimum = minimize(
            penalized_loss,
            np.zeros(6),
            args=(rows, features, deviation),
            method="L-BFGS-B",
            bounds=[(None, None)] + [(MIN_SLOPE_COEFFICIENT, None)] * 5,
            options={"ftol": 1e-14, "gtol": 1e-8},
        ).x
        hessian = hessian_of_loss(optimum, rows, features, deviation)
        log_priors = -2 * np.log(PRIOR_OF_LEVEL) - 2 * 5 * np.log(deviation)
        loss = penalized_loss(optimum, rows, features, deviation)
        optima.append(optimum)
        log_evidences.append(-loss + (log_priors - np.log(np.linalg.det(hessian))) / 2)
    evidences = np.exp(np.array(log_evidences) - max(log_evidences))
    level, *slopes = evidences @ np.array(optima) / evidences.sum()
    values = []
    for knot in knots:
        values.append(knot + level + (np.array(covered_lengths(knot, knots)) - mean_lengths) @ np.array(slopes))
    return knots, np.array(values), 1 + np.array(slopes)


def assert_correction(correction: Correction, rows: Rows, *, grouped: bool) -> None:
    knots, values, slopes = expected_values(rows, grouped=grouped)
    np.testing.assert_allclose(correction.knots, knots, rtol=1e-12)
    np.testing.assert_allclose(correction.values, values, atol=2e-5)
    np.testing.assert_allclose(np.diff(correction.values) / np.diff(correction.knots), slopes[1:-1], atol=1e-4)
    assert (correction.first_slope, correction.last_slope) == pytest.approx((slopes[0], slopes[-1]), abs=1e-4)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("ceiling", [0.75, 0.5])
def test_correction_equals_its_definition_with_weights_and_groups(ceiling, grouped):
    rows = make_rows(ceiling=ceiling)
    assert design_effect(rows) > 1.1
    correction = fit_correction(rows.logit, rows.correct, rows.weight, rows.group if grouped else None)
    assert_correction(correction, rows, grouped=grouped)


def test_correction_without_weights_equals_equal_weights():
    rows = make_rows(seed=1)
    rows = Rows(rows.logit, rows.correct, np.full(90, 3.0), rows.group)
    assert_correction(fit_correction(rows.logit, rows.correct), rows, grouped=False)
    assert_correction(fit_correction(rows.logit, rows.correct, None, rows.group), rows, grouped=True)


def test_slopes_are_at_least_the_minimum_where_the_accuracy_falls():
    """The accuracy falls with the score, so the best slope without a bound is negative in every interval."""
    generator = np.random.default_rng(0)
    logit = generator.normal(size=3000) * 2
    correct = generator.random(3000) < expit(-logit)
    correction = fit_correction(logit, correct)
    slopes = [correction.first_slope, *(np.diff(correction.values) / np.diff(correction.knots)), correction.last_slope]
    assert MIN_SLOPE == 0.05
    np.testing.assert_allclose(slopes, MIN_SLOPE, rtol=1e-9)


def test_the_level_has_no_lower_bound():
    """All logits are too high by 3, and many rows outweigh the prior of the level."""
    generator = np.random.default_rng(0)
    logit = 3 + 2 * generator.normal(size=4000)
    correct = generator.random(4000) < expit(logit - 3)
    correction = fit_correction(logit, correct)
    np.testing.assert_allclose(correction.values[:3], correction.knots[:3] - 3, atol=0.3)


def test_ties_do_not_make_the_correction_depend_on_the_order_of_rows():
    generator = np.random.default_rng(3)
    logit = generator.integers(-3, 6, 400).astype(float) / 1.7
    correct = generator.random(400) < 0.7
    weight = generator.choice([0.3, 1.1, 2.7], 400)
    expected = fit_correction(logit, correct, weight)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(400)
        reordered = fit_correction(logit[order], correct[order], weight[order])
        np.testing.assert_array_equal(reordered.values, expected.values)
        assert (reordered.first_slope, reordered.last_slope) == (expected.first_slope, expected.last_slope)


def test_rows_with_groups_and_weights_may_have_any_order():
    rows = make_rows(seed=2)
    expected = fit_correction(rows.logit, rows.correct, rows.weight, rows.group)
    shuffled = rows.take(np.random.default_rng(0).permutation(90))
    reordered = fit_correction(shuffled.logit, shuffled.correct, shuffled.weight, shuffled.group)
    np.testing.assert_allclose(reordered.values, expected.values, atol=1e-8)


def test_logits_beyond_the_limit_are_equal_to_the_limit():
    rows = make_rows(seed=4)
    logit = rows.logit.copy()
    logit[:30] = np.linspace(40, 60, 30)
    logit[30:60] = -np.linspace(40, 60, 30)
    logit[60] = np.inf
    logit[61] = -np.inf
    expected = fit_correction(np.clip(logit, -40, 40), rows.correct)
    correction = fit_correction(logit, rows.correct)
    assert MAX_LOGIT == 40
    assert correction.knots[0] == -40
    assert correction.knots[-1] == 40
    np.testing.assert_array_equal(correction.values, expected.values)


def test_a_correction_needs_two_distinct_quantiles():
    # the highest knot is the quantile 0.95: it is 1 only if more than 5% of the logits are 1
    correct = np.arange(100) % 3 > 0
    four_percent_ones = np.where(np.arange(100) < 4, 1.0, 0.0)
    six_percent_ones = np.where(np.arange(100) < 6, 1.0, 0.0)
    assert fit_correction(four_percent_ones, correct) is None
    assert fit_correction(six_percent_ones, correct).knots.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("start", [-0.9, 5.0, 40.0])
def test_optimum_does_not_depend_on_the_start(start):
    rows = make_rows(seed=5)
    features = np.column_stack([np.ones(90), rows.logit, np.maximum(rows.logit, 0.4)])
    regression = _PenalizedRegression(rows.logit, features, rows.correct, rows.weight)
    expected = minimize(
        penalized_loss,
        np.zeros(3),
        args=(rows, features, 0.5),
        bounds=[(None, None)] + [(MIN_SLOPE_COEFFICIENT, None)] * 2,
        options={"ftol": 1e-14, "gtol": 1e-8},
    )
    fit = regression.fit(0.5, np.full(3, start))
    np.testing.assert_allclose(fit.coefficients, expected.x, atol=2e-5)
    log_determinant = np.linalg.slogdet(hessian_of_loss(expected.x, rows, features, 0.5))[1]
    log_priors = -2 * np.log(PRIOR_OF_LEVEL) - 2 * 2 * np.log(0.5)
    assert fit.log_evidence == pytest.approx(-expected.fun + (log_priors - log_determinant) / 2, abs=1e-5)


def test_gradient_and_hessian_equal_differences_of_the_loss():
    rows = make_rows(60, seed=6)
    features = np.column_stack([np.ones(60), rows.logit / 3])
    regression = _PenalizedRegression(rows.logit, features, rows.correct, rows.weight)
    point = np.array([0.15, -0.4])
    ridge = np.array([7.0, 3.0])
    gradient, hessian = regression._derivatives(point, ridge)
    for column in range(2):
        step = np.eye(2)[column] * 1e-5
        difference = regression._loss(point + step, ridge) - regression._loss(point - step, ridge)
        assert gradient[column] == pytest.approx(difference / 2e-5, rel=1e-6)
        ahead, _ = regression._derivatives(point + step, ridge)
        behind, _ = regression._derivatives(point - step, ridge)
        np.testing.assert_allclose(hessian[column], (ahead - behind) / 2e-5, rtol=1e-6)


def test_a_step_that_increases_the_loss_is_halved_until_it_has_no_effect():
    generator = np.random.default_rng(2)
    features = np.column_stack([np.ones(80), generator.normal(size=80)])
    regression = _PenalizedRegression(
        offset=np.zeros(80), features=features, correct=generator.random(80) < 0.7, weight=np.ones(80)
    )
    optimum = regression.fit(1.0, np.zeros(2)).coefficients
    ridge = np.array([LEVEL_DEVIATION**-2, 1.0])
    point = _Point(optimum, regression._loss(optimum, ridge))
    gradient, _ = regression._derivatives(optimum, ridge)

    accepted = regression._line_search(point, np.array([0.0, 1e-3]), gradient, np.full(2, -np.inf), ridge)

    assert accepted is None or np.abs(accepted.coefficients - optimum).max() < 1e-6


def make_regression() -> tuple[_PenalizedRegression, np.ndarray, np.ndarray]:
    """Make a regression, the weights of its ridge, and the lower bounds of its coefficients."""
    rows = make_rows(60, seed=7)
    features = np.column_stack([np.ones(60), rows.logit / 3])
    regression = _PenalizedRegression(rows.logit, features, rows.correct, rows.weight)
    return regression, np.array([7.0, 3.0]), np.array([-np.inf, MIN_SLOPE_COEFFICIENT])


@pytest.mark.parametrize(("share", "n_halvings"), [(0.999, 0), (1.001, 1)])
def test_a_step_must_decrease_the_loss_by_a_share_of_the_prediction(share, n_halvings):
    """The gradient is scaled so that the required decrease is a share of the decrease by the full step."""
    regression, ridge, bounds = make_regression()
    start = np.zeros(2)
    gradient, hessian = regression._derivatives(start, ridge)
    step = -np.linalg.solve(hessian, gradient)
    loss = regression._loss(start, ridge)
    decrease = loss - regression._loss(start + step, ridge)
    required_decrease = 1e-4 * -(gradient @ step)  # 1e-4 of the decrease that the gradient predicts
    scaled_gradient = gradient * share * decrease / required_decrease
    accepted = regression._line_search(_Point(start, loss), step, scaled_gradient, bounds, ridge)
    np.testing.assert_allclose(accepted.coefficients, step * 0.5**n_halvings)
    assert accepted.loss == regression._loss(accepted.coefficients, ridge)


def test_no_step_from_the_minimum_increases_the_loss():
    regression, ridge, bounds = make_regression()
    minimum = minimize(regression._loss, np.zeros(2), args=(ridge,), options={"gtol": 1e-10}).x
    point = _Point(minimum, regression._loss(minimum, ridge))
    gradient, _ = regression._derivatives(minimum, ridge)
    step = np.array([2e-3, -1e-3])
    assert 1e-6 < regression._loss(minimum + step, ridge) - point.loss < 1e-4
    accepted = regression._line_search(point, step, gradient, bounds, ridge)
    assert accepted is None or accepted.loss <= point.loss + 1e-12


def test_a_step_is_cut_off_at_the_bounds_and_halved_at_most_40_times():
    regression, ridge, bounds = make_regression()
    point = _Point(np.zeros(2), np.inf)
    accepted = regression._line_search(point, np.array([0.25, -3.0]), np.zeros(2), bounds, ridge)
    assert accepted.coefficients.tolist() == [0.25, MIN_SLOPE_COEFFICIENT]
    tried = []
    loss = regression._loss(point.coefficients, ridge)

    def constant_loss(coefficients: np.ndarray, _ridge: np.ndarray) -> float:
        tried.append(coefficients[0])
        return loss

    object.__setattr__(regression, "_loss", constant_loss)
    assert regression._line_search(_Point(np.zeros(2), -1.0), np.array([1.0, 0.0]), np.zeros(2), bounds, ridge) is None
    assert tried == [0.5**halvings for halvings in range(40)]
