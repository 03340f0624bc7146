"""Partially pooled reliabilities: optima of their objectives, shrinkage and evidence."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relmap.projection.whole_vector import MAX_LABELS, fit_whole_vector
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, log_softmax, logit

from relmap.calibrators.temperature import fit_temperature
from relmap.projection import pooling
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.labelwise import MAX_LOGIT
from relmap.projection.pooling import (
    DEVIATION_LEVELS,
    MIN_EVIDENCE_GAIN,
    SLOPE_DEVIATION_SCALE,
    TOLERANCE,
    PenalizedProblem,
    Point,
    PooledLineFitter,
    Prior,
    WithSignals,
    search_prior,
)
from relmap.projection.variants import CURVE_WEIGHT_ROWS, fit_pooled_curves, fit_pooled_lines
from relmap.settings import ProjectionParams
from tests import fits

ALL_COEFFICIENTS = ("shared", "intercept", "slope")
SHIFTS = np.array([1.0, 0.0, -1.0, -2.0])


def simulate_rows(n: int, shifts: np.ndarray = SHIFTS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate logit of the confidence, decision and correct of shape (n,), with a shift of each label's logit."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=n) * 1.5
    decision = generator.integers(0, len(shifts), n)
    return z, decision, generator.random(n) < expit(z + shifts[decision])


def shift_at_half(line, labels: int = 4) -> np.ndarray:
    """Return the value of the line of each label at logit 0."""
    return line(CalibratedDecisions(np.zeros(labels), np.arange(labels)))


@pytest.mark.parametrize("prior", [Prior(1.0, 0.5, 0.25), Prior(0.5, 1.0), Prior(2.0), Prior(slope=1.0)])
def test_coefficients_minimize_the_objective_and_evidence_is_the_laplace_approximation(prior):
    z, decision, correct = simulate_rows(200)
    rows = PooledLineFitter(z, decision, correct, 4).rows
    evidence, shared, own = rows.fit(prior, prior, TOLERANCE)
    shared_deviations = prior.shared_deviations(2)
    label_deviations = prior.label_deviations(2)
    free = np.r_[shared_deviations > 0, np.tile(label_deviations > 0, 4)]
    ridge = np.r_[shared_deviations, np.tile(label_deviations, 4)][free] ** -2.0

    def objective(coefficients: np.ndarray) -> float:
        theta = np.zeros(10)
        theta[free] = coefficients
        t = rows.offset + ((theta[:2] + theta[2:].reshape(4, 2)[rows.label]) * rows.features).sum(axis=1)
        return float(np.logaddexp(0, np.where(rows.correct, -t, t)).sum() + (ridge * coefficients**2).sum() / 2)

    fitted = np.r_[shared, own.ravel()][free]
    reference = minimize(objective, np.zeros(free.sum()), method="BFGS", options={"gtol": 1e-9})

    np.testing.assert_allclose(fitted, reference.x, atol=1e-5)

    hessian = approx_fprime(fitted, lambda point: approx_fprime(point, objective, 3e-5), 3e-5)
    laplace = -objective(fitted) + (np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]) / 2
    assert evidence == pytest.approx(laplace, abs=1e-3)


def test_prior_part_is_included_only_with_enough_evidence():
    def search(evidence: Callable[[Prior], float], parts: tuple[str, ...], reach: int) -> Prior:
        rows = SimpleNamespace(fits={}, fit=lambda prior, _start: SimpleNamespace(log_evidence=evidence(prior)))
        return search_prior(Prior(), parts, rows, reach)

    # the half-normal prior of a slope deviation lowers its score by (deviation / scale)^2 / 2
    for part, min_gain in (
        ("intercept", MIN_EVIDENCE_GAIN),
        ("slope", MIN_EVIDENCE_GAIN + (0.5 / SLOPE_DEVIATION_SCALE) ** 2 / 2),
    ):
        for gain, expected in ((min_gain - 0.01, Prior()), (min_gain + 0.01, Prior(**{part: 0.5}))):
            assert search(lambda prior: gain * (getattr(prior, part) == 0.5), (part,), 9) == expected  # noqa: B023
    # a search of reach 1 raises a deviation by one level in each of four rounds
    assert search(lambda prior: 20 * prior.slope, ALL_COEFFICIENTS, 1).slope == DEVIATION_LEVELS[4]


def test_pooled_lines_recover_label_shifts_and_their_absence():
    z, decision, correct = simulate_rows(2000, np.zeros(4), seed=3)
    flat = PooledLineFitter(z, decision, correct, 4).fit_lines(*ALL_COEFFICIENTS)
    np.testing.assert_array_equal((flat.slope, flat.intercept), ([1] * 4, [0] * 4))
    line = PooledLineFitter(*simulate_rows(4000), 4).fit_lines(*ALL_COEFFICIENTS)
    np.testing.assert_allclose(shift_at_half(line), SHIFTS, atol=0.25)


def test_labels_with_fewer_rows_are_pooled_more():
    z, decision, correct = simulate_rows(4000)
    shared_shift = None
    distances = []
    for n_rows in (0, 5, 50, 1000):
        selected = (decision != 3) | (np.cumsum(decision == 3) <= n_rows)
        line = PooledLineFitter(z[selected], decision[selected], correct[selected], 4).fit_lines(*ALL_COEFFICIENTS)
        shifts = shift_at_half(line)
        shared_shift = shifts[3] if shared_shift is None else shared_shift
        distances.append(shared_shift - shifts[3])
    assert distances == sorted(distances)
    assert distances[1] < 0.5 * distances[3]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), labels=st.integers(1, 5), certain=st.booleans())
def test_pooled_lines_never_fall_and_ignore_row_order(seed, n, labels, certain):
    generator = np.random.default_rng(seed)
    z = np.round(generator.normal(size=n) * 4, 1)
    z[generator.random(n) < 0.2 * certain] = np.inf
    decision = generator.integers(0, labels, n)
    correct = generator.random(n) < 0.5
    line = PooledLineFitter(z, decision, correct, labels).fit_lines(*ALL_COEFFICIENTS)
    order = generator.permutation(n)

    assert line.violations(labels) == []

    shuffled = PooledLineFitter(z[order], decision[order], correct[order], labels).fit_lines(*ALL_COEFFICIENTS)
    np.testing.assert_array_equal((line.slope, line.intercept), (shuffled.slope, shuffled.intercept))
    assert (line.farthest < MAX_LOGIT) == np.isinf(z).any()


def test_a_confidence_of_one_is_moved_to_half_the_distance_of_the_next_one_from_one():
    z, decision, correct = simulate_rows(500)
    z[:50] = np.inf
    line = PooledLineFitter(z, decision, correct, 4).fit_lines(*ALL_COEFFICIENTS)
    nearest = 1 - expit(np.abs(z[50:]).max())
    moved = 1 - expit(line.farthest)
    assert moved == pytest.approx(nearest / 2, rel=0.05)


def test_falling_line_is_replaced_by_the_mean_reliability():
    generator = np.random.default_rng(2)
    decision = generator.integers(0, 2, 4000)
    z = np.where(decision == 1, generator.uniform(2, 5, 4000), generator.normal(size=4000) / 5)
    correct = generator.random(4000) < np.where(decision == 1, 1.2 - z / 6, 0.5)
    for free in (ALL_COEFFICIENTS, ALL_COEFFICIENTS[:2], ALL_COEFFICIENTS[:1]):
        lines = PooledLineFitter(z, decision, correct, 2).fit_lines(*free)
        reliability = expit(lines(CalibratedDecisions(z, decision)))
        for label in (0, 1):
            has_label = decision == label
            assert reliability[has_label].mean() == pytest.approx(correct[has_label].mean(), abs=0.1)
    assert PooledLineFitter(z, decision, correct, 2).fit_lines(*ALL_COEFFICIENTS).slope[1] == 0


def test_only_informative_signals_get_a_weight():
    z, decision, _ = simulate_rows(3000)
    generator = np.random.default_rng(5)
    signals = generator.normal(size=(3000, 2))
    correct = generator.random(3000) < expit(z + SHIFTS[decision] + 1.5 * signals[:, 0])
    fitted = PooledLineFitter(z, decision, correct, 4, signals).fit_lines(
        *ALL_COEFFICIENTS, "signals", "signals_by_label"
    )

    assert isinstance(fitted, WithSignals)
    np.testing.assert_allclose(fitted.weights, [[1.5] * 4, [0] * 4], atol=0.2)

    decisions = CalibratedDecisions(z, decision, signals=signals)
    raised = replace(decisions, confidence_logit=z + 0.5)
    assert (fitted(raised) >= fitted(decisions)).all()


def test_curve_weight_grows_with_the_rows_of_its_label():
    z, decision, correct = simulate_rows(1500)
    batch = fits.make_batch((z[None], decision, correct), 4, ProjectionParams())
    (shrunk,) = fit_pooled_curves(batch)
    (line,) = fit_pooled_lines(batch)
    counts = np.bincount(decision, minlength=4)

    np.testing.assert_allclose(shrunk.share, counts / (counts + CURVE_WEIGHT_ROWS))

    decisions = CalibratedDecisions(np.linspace(-9, 9, 40), np.arange(40) % 4)
    share = shrunk.share[decisions.decision]
    np.testing.assert_allclose(shrunk(decisions), (1 - share) * line(decisions) + share * shrunk.curves(decisions))
    for label in range(4):
        assert (np.diff(shrunk(CalibratedDecisions(np.linspace(-50, 50, 500), np.full(500, label)))) >= 0).all()


@pytest.mark.parametrize(("n_labels", "shift"), [(2, 0.0), (2, 0.3), (3, 0.2), (MAX_LABELS + 1, 1.0)])
def test_whole_vector_is_the_ridge_optimum_weighted_by_its_posterior_probability(n_labels, shift):
    hessian = pytest.importorskip("scipy.differentiate", reason="SciPy has it since 1.15").hessian
    logits, labels = fits.simulate_logits_and_labels(200, n_labels, shift=shift * np.arange(n_labels))
    fitted = fit_whole_vector(logits, labels)
    beta = fit_temperature(logits, labels, seed=0).beta
    start = np.c_[np.eye(n_labels), np.zeros(n_labels)]

    if n_labels > MAX_LABELS:
        np.testing.assert_allclose(np.c_[fitted.weights / beta, fitted.bias], start, rtol=1e-9)
        return

    penalty = np.full(start.shape, n_labels * (n_labels - 1) / 200)
    penalty[:, -1] = n_labels / 200
    np.fill_diagonal(penalty, n_labels / 200)
    inputs = np.c_[beta * (logits - logits.max(axis=1, keepdims=True)), np.ones(200)]

    def objective(flat: np.ndarray) -> np.ndarray:
        """Compute the objective of one table, or of many along further axes, as SciPy requires for Hessians."""
        table = np.moveaxis(flat.reshape(*start.shape, -1), -1, 0)
        log_loss = -log_softmax(inputs @ np.swapaxes(table, 1, 2), axis=2)[:, np.arange(200), labels].mean(axis=1)
        return (log_loss + (penalty * (table - start) ** 2).sum(axis=(1, 2))).reshape(flat.shape[1:])

    optimum = minimize(lambda x: float(objective(x)), start.ravel(), method="BFGS", options={"gtol": 1e-8})
    curvature = np.linalg.slogdet(hessian(objective, optimum.x).ddf)[1] - np.log(2 * penalty).sum()
    probability = expit(200 * (objective(start.ravel()) - optimum.fun) - curvature / 2)

    assert 0.05 < probability < 0.97

    expected = start.ravel() + probability * (optimum.x - start.ravel())
    np.testing.assert_allclose(np.c_[fitted.weights / beta, fitted.bias].ravel(), expected, atol=1e-4)


def test_whole_vector_recovers_a_shift_and_is_robust_to_extreme_logits():
    shift = np.array([1.5, 0.0, -1.5])
    logits, labels = fits.simulate_logits_and_labels(3000, 3, shift=shift, overconfidence=1)
    fitted = fit_whole_vector(logits, labels)
    decision = logits.argmax(axis=1)
    decisions = CalibratedDecisions(np.zeros(3000), decision, None, logits)
    row = np.arange(3000)
    expected = logit(np.exp(log_softmax(logits + shift, axis=1)[row, decision]))

    assert np.abs(fitted(decisions) - expected).mean() < 0.15
    np.testing.assert_allclose(fitted(replace(decisions, logits=logits + row[:, None])), fitted(decisions), atol=1e-6)

    far = np.where(np.eye(3)[2] == 1, -1e3, logits)
    farther = np.where(np.eye(3)[2] == 1, -1e9, logits)
    np.testing.assert_array_equal(fitted(replace(decisions, logits=far)), fitted(replace(decisions, logits=farther)))


@pytest.mark.parametrize("with_signal", [False, True])
def test_lines_in_logits_equal_the_coefficients_of_standardized_features(monkeypatch, with_signal):
    prior = Prior(0.7, 0.4, 0.3, signals=0.5 if with_signal else 0.0, signals_by_label=0.2 if with_signal else 0.0)
    monkeypatch.setattr(pooling, "search_prior", lambda *_arguments, **_options: prior)
    confidence_logit, decision, correct = simulate_rows(400, seed=5)
    confidence_logit = 5 + 3 * confidence_logit
    signals = np.random.default_rng(1).normal(size=(400, 1)) if with_signal else None
    fitter = PooledLineFitter(confidence_logit, decision, correct, 4, signals)
    rows = fitter.rows
    fit = rows.fit(prior, prior, 1e-12)

    fitted = fitter.fit_lines("intercept")

    expected = rows.offset + (rows.features * (fit.shared + fit.by_label[rows.label])).sum(axis=1)
    scored = CalibratedDecisions(rows.offset, rows.label, signals=rows.features[:, 2:] if with_signal else None)
    assert fitted(scored) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("prior", [Prior(1.0, 0.5, 0.25, 0.7, 0.3), Prior(0.5, 1.0), Prior(0.5, slope=0.5, signals=1)])
def test_gradient_and_hessian_agree_with_differences_of_the_objective(prior):
    confidence_logit, decision, correct = simulate_rows(60, seed=2)
    fitter = PooledLineFitter(confidence_logit, decision, correct, 4, np.random.default_rng(1).normal(size=(60, 2)))
    problem = PenalizedProblem(fitter.rows, prior)
    start = problem.initial_point(None)
    generator = np.random.default_rng(3)
    shared = generator.normal(size=start.shared.shape)
    by_label = generator.normal(size=start.by_label.shape)
    n_shared = len(shared)

    def evaluate(flat: np.ndarray) -> Point:
        return problem.evaluate(flat[:n_shared], flat[n_shared:].reshape(by_label.shape))

    def gradient(flat: np.ndarray) -> np.ndarray:
        system = problem.newton_system(evaluate(flat))
        return np.r_[system.shared_gradient, system.label_gradient.ravel()]

    point = np.r_[shared, by_label.ravel()]
    step = 1e-5 * np.eye(len(point))
    slopes = [(evaluate(point + h).objective - evaluate(point - h).objective) / 2e-5 for h in step]
    assert gradient(point) == pytest.approx(slopes, abs=1e-5)

    system = problem.newton_system(evaluate(point))
    curvatures = np.array([(gradient(point + h) - gradient(point - h)) / 2e-5 for h in step])
    np.testing.assert_allclose(system.shared_hessian, curvatures[:n_shared, :n_shared], atol=1e-5)
    np.testing.assert_allclose(
        np.concatenate([*system.cross_hessian], axis=1), curvatures[:n_shared, n_shared:], atol=1e-5
    )
    n_by_label = by_label.shape[1]
    for label, block in enumerate(system.label_hessian):
        own_coefficients = slice(n_shared + label * n_by_label, n_shared + (label + 1) * n_by_label)
        np.testing.assert_allclose(block, curvatures[own_coefficients, own_coefficients], atol=1e-5)


def test_the_fit_under_another_prior_is_the_starting_point_of_the_free_coefficients():
    confidence_logit, decision, correct = simulate_rows(60, seed=2)
    rows = PooledLineFitter(confidence_logit, decision, correct, 4).rows
    fit = rows.fit(Prior(1.0, 0.5, 0.25), Prior())
    point = PenalizedProblem(rows, Prior(0.5, slope=1.0)).initial_point(fit)
    np.testing.assert_array_equal(point.shared, fit.shared)
    np.testing.assert_array_equal(point.by_label, fit.by_label[:, 1:])


@pytest.mark.parametrize(
    ("part", "level", "expected"),
    [
        ("intercept", 0.0, MIN_EVIDENCE_GAIN),
        ("slope", 0.0, MIN_EVIDENCE_GAIN),
        ("intercept", 0.5, 0.0),
        ("slope", 0.5, -0.5),
    ],
)
def test_the_prior_of_standard_deviations_prefers_zero_and_small_slopes(part, level, expected, monkeypatch):
    monkeypatch.setattr(pooling, "SLOPE_DEVIATION_SCALE", 0.5)
    assert pooling._log_prior(part, level) == expected


def test_mean_logits_are_logits_of_the_mean_reliability_of_each_label():
    rows = pooling.PooledRows(
        offset=np.array([0.5, -1.0, 2.0, 3.0]),
        features=np.column_stack([np.ones(4), np.array([1.0, 2.0, -1.0, 0.5])]),
        label=np.array([0, 1, 1, 3]),
        correct=np.array([True, False, True, True]),
        n_labels=4,
    )
    line = np.array([[0.1, 0.2], [0.3, -0.4], [9.0, 9.0], [0.0, 1.0]])
    reliability = expit([0.5 + 0.1 + 0.2, -1 + 0.3 - 0.8, 2 + 0.3 + 0.4, 3.5])
    expected = [reliability[0], reliability[1:3].mean(), reliability.mean(), reliability[3]]
    np.testing.assert_allclose(rows.mean_logits(line), logit(expected))
