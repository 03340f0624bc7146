"""Properties of DIAG, Spline, matrix and vector scaling, h-cal and SMART."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

from relmap.calibrators.diagonal import Diagonal, fit_diagonal
from relmap.calibrators.hcalibration import (
    HCalibration,
    HCalibrationSettings,
    TrainingEvents,
    _mapping_loss,
    _residual_loss,
    fit_hcal,
)
from relmap.calibrators.identity import floored_log_softmax
from relmap.calibrators.matrix import Matrix, center_rows, fit_matrix, fit_vector, median_spread, multinomial_loss
from relmap.calibrators.optimizers import Adam, newton
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.calibrators.smart import SmartSettings, TrainingRows, _summed_loss, fit_smart, initial_parameters
from relmap.calibrators.spline import fit_spline
from relmap.calibrators.temperature import Temperature, fit_temperature
from relmap.decisions import decide
from relmap.metrics.probability import log_loss_per_row
from tests.fits import simulate_logits_and_labels


def test_registry_lists_calibrators_by_role():
    assert calibrators_with_role("paper") == ("uncal", "ts", "diag", "spline", "hcal", "smart")
    assert calibrators_with_role("rival") == ("sms", "vector", "matrix")
    assert all(calibrator.fit.__name__.startswith("fit_") for calibrator in CALIBRATORS.values())


@pytest.mark.parametrize("n_labels", [2, 3, 10])
@pytest.mark.parametrize("factor", [1, 0.4])
def test_equal_factors_equal_temperature_scaling(n_labels, factor):
    logits, _ = simulate_logits_and_labels(200, n_labels)
    for calibrator in (Diagonal(np.full(n_labels - 1, factor)), HCalibration(np.full(50, factor))):
        np.testing.assert_allclose(calibrator(logits), Temperature(factor)(floored_log_softmax(logits)), atol=1e-12)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_diagonal_factors_minimize_penalized_log_loss(n_labels):
    logits, labels = simulate_logits_and_labels(300, n_labels)

    def objective(log_factors: np.ndarray) -> float:
        calibrator = Diagonal(np.exp(log_factors))
        return float(log_loss_per_row(calibrator(logits), labels, 0).mean() + 1e-3 * (log_factors**2).mean())

    optimum = np.log(fit_diagonal(logits, labels, seed=1).factors)
    np.testing.assert_allclose(approx_fprime(optimum, objective, 1e-6), 0, atol=1e-5)


def test_spline_equals_the_scikit_learn_pipeline_for_any_row_order():
    logits, labels = simulate_logits_and_labels(600, 3)
    logits[:300] = np.round(logits[:300])  # many ties
    basis = SplineTransformer(8, degree=3, knots="uniform", extrapolation="constant", include_bias=False)
    model = make_pipeline(basis, StandardScaler(with_mean=False), LogisticRegression(C=1, max_iter=1000))
    model.fit(softmax(logits, axis=1).max(axis=1)[:, None], decide(logits) == labels)
    confidence = np.linspace(0, 1, 2001)  # beyond the outer knots too
    expected = model.predict_proba(confidence[:, None])[:, 1].clip(1e-6, 1 - 1e-6)
    for order in (np.arange(600), np.random.default_rng(1).permutation(600)):
        calibrator = fit_spline(logits[order], labels[order], seed=1)
        np.testing.assert_allclose(calibrator.calibrate_confidence(confidence), expected, rtol=0, atol=1e-9)


def test_spline_keeps_the_proportions_of_other_labels_and_may_change_the_decision():
    logits, labels = simulate_logits_and_labels(400, 5)
    is_other_label = np.arange(5) != decide(logits)[:, None]
    calibrated = fit_spline(logits, labels, seed=1)(logits)
    after = log_softmax(calibrated[is_other_label].reshape(400, 4), axis=1)
    before = log_softmax(logits[is_other_label].reshape(400, 4), axis=1)
    np.testing.assert_allclose(after, before, atol=1e-9)

    logits = np.tile(np.log([0.9, 0.1]), (40, 1))
    calibrated = fit_spline(logits, np.array([1] * 30 + [0] * 10), seed=1)(logits)
    assert (decide(calibrated) == 1).all()


@pytest.mark.parametrize("start", [0.0, 0.5, 50.0])
def test_newton_finds_the_minimum_from_a_distant_start(start):
    def pseudo_huber(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Nearly linear far from the minimum, where a full step overshoots by the cube of the distance."""
        root = np.sqrt(1 + x**2)
        return float(root.sum()), x / root, np.diag(root**-3)

    np.testing.assert_allclose(newton(pseudo_huber, np.array([start, -start / 3]), 1e-12), 0, atol=1e-12)


def test_newton_never_increases_the_objective():
    # The gradient predicts a decrease that the loss does not have
    minimum = newton(lambda x: (float(np.abs(x).sum()), np.sign(x), np.eye(1) * 1e-3), np.array([0.3]), 1e-3)
    assert abs(minimum.item()) <= 0.3

    singular_minimum = newton(
        lambda x: (x[0] ** 2, np.array([2 * x[0], 0]), np.diag([2.0, 0])), np.array([3.0, 1]), 1e-6
    )
    assert singular_minimum == pytest.approx([0, 1])


@given(n=st.integers(1, 30), n_labels=st.integers(2, 5), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_gradient_and_hessian_of_the_multinomial_loss_equal_finite_differences(n, n_labels, seed):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(3, n))
    labels = generator.integers(0, n_labels, n)
    loss = multinomial_loss(features, labels, n_labels)
    coefficients = generator.normal(size=3 * n_labels)
    value, gradient, hessian = loss(coefficients)
    log_probabilities = log_softmax(features.T @ coefficients.reshape(n_labels, 3).T, axis=1)

    assert value == pytest.approx(log_loss_per_row(log_probabilities, labels, 0).mean())
    np.testing.assert_allclose(gradient, approx_fprime(coefficients, lambda point: loss(point)[0], 1e-7), atol=1e-5)
    np.testing.assert_allclose(hessian, approx_fprime(coefficients, lambda point: loss(point)[1], 1e-7), atol=1e-5)


def penalized_gradient(calibrator: Matrix, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the gradient of mean log loss plus ridge, shape (K, K + 1): weights of logits of spread 1, then bias."""
    n_labels = logits.shape[1]
    unit = median_spread(logits)
    start = fit_temperature(logits, labels, seed=1).beta * unit * np.eye(n_labels, n_labels + 1)
    gradient = 2e-6 * (np.column_stack([calibrator.weights * unit, calibrator.bias]) - start)
    for row, probability, label in zip(center_rows(logits) / unit, np.exp(calibrator(logits)), labels, strict=True):
        gradient += np.outer(probability - np.eye(n_labels)[label], np.append(row, 1)) / len(labels)
    return gradient


def make_difficult_rows(case: str, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels of a case that is difficult to fit."""
    logits, labels = simulate_logits_and_labels(200, n_labels, shift=np.linspace(0, 2, n_labels))
    match case:
        case "reversed logits":
            logits = -logits
        case "a label without rows":
            has_rows = labels != 1
            logits = logits[has_rows]
            labels = labels[has_rows]
        case "four rows":
            logits = logits[:4]
            labels = labels[:4]
        case "one label":
            labels = np.zeros_like(labels)
        case "outliers":
            logits = np.append(logits[40:], 1e3 * logits[:5], axis=0)
            labels = labels[:165]
        case "equal logits":
            logits = np.ones_like(logits)
    return logits, labels


@pytest.mark.parametrize("n_labels", [2, 3, 5])
@pytest.mark.parametrize(
    "case",
    ["simulated", "reversed logits", "a label without rows", "four rows", "one label", "outliers", "equal logits"],
)
def test_matrix_and_vector_scaling_have_zero_gradient(n_labels, case):
    logits, labels = make_difficult_rows(case, n_labels)
    matrix = fit_matrix(logits, labels, seed=1)
    vector = fit_vector(logits, labels, seed=1)
    np.testing.assert_allclose(penalized_gradient(matrix, logits, labels), 0, atol=1e-10)

    free = np.eye(n_labels, n_labels + 1, dtype=bool)
    free[:, -1] = True
    np.testing.assert_allclose(penalized_gradient(vector, logits, labels)[free], 0, atol=1e-10)
    np.testing.assert_array_equal(vector.weights, np.diag(np.diag(vector.weights)))


def test_residual_loss_equals_a_double_loop_and_its_gradient_finite_differences():
    logits, labels = simulate_logits_and_labels(60, 3)
    probabilities = softmax(logits, axis=1)
    losses = []
    for excluded_label in range(3):
        events = (
            (probabilities[i, k], probabilities[i, k] - (k == labels[i]))
            for i in np.flatnonzero(labels != excluded_label)
            for k in range(3)
        )
        residuals = [residual for _, residual in sorted(events)]
        window_means = [sum(residuals[max(0, i - 5) : i + 6]) / 11 for i in range(len(residuals))]
        losses.append(np.abs(window_means).mean())

    def loss(point: np.ndarray) -> float:
        return _residual_loss(point.reshape(probabilities.shape), labels, 11, with_gradient=False)[0]

    value, gradient = _residual_loss(probabilities, labels, 11, with_gradient=True)
    assert value == pytest.approx(np.mean(losses), rel=1e-12)
    assert gradient.ravel() == pytest.approx(approx_fprime(probabilities.ravel(), loss, 1e-10), rel=1e-4, abs=1e-6)


def test_hcal_applies_the_slope_and_the_offset_of_each_segment():
    logits = np.log([[0.9, 0.1]])  # -log p is .105, in the first segment, 0 to 2, and 2.303, in the second, 2 to 4
    calibrated = HCalibration(np.r_[0.5, 2.0, np.ones(48)], 1.0)(logits)
    second = 1.0 + 2.0 * (-np.log(0.1) - 1.0)  # the offset of the second segment is 2 (1 + 0.5 - 1)
    assert calibrated == pytest.approx(log_softmax([[0.5 * np.log(0.9), -second]], axis=1))


def test_hcal_takes_a_step_for_each_batch():
    logits, labels = simulate_logits_and_labels(90, 3)
    steps = {}
    for batch in (90, 30):
        fit_settings = HCalibrationSettings(window=11, epochs=1, patience=1, batch=batch, learning_rate=0.01)
        factors = fit_hcal(logits, labels, seed=1, settings=fit_settings).factors
        steps[batch] = np.abs(factors - 1).max()
    assert steps[90] == pytest.approx(0.01, rel=1e-3)  # the first step of Adam has the size of the learning rate
    assert steps[30] > 0.015


@pytest.mark.parametrize("n", [300, 1300])  # one batch; three
def test_hcal_lowers_its_loss_and_is_reproducible(n):
    logits, labels = simulate_logits_and_labels(n, 3)
    settings = HCalibrationSettings(window=51, epochs=15, batch=500)
    first = fit_hcal(logits, labels, seed=1, settings=settings)
    second = fit_hcal(logits, labels, seed=1, settings=settings)
    assert (first.factors == second.factors).all()
    assert (first.factors > 0).all()

    loss_before, _ = _residual_loss(softmax(logits, axis=1), labels, 51, with_gradient=False)
    loss_after, _ = _residual_loss(np.exp(first(logits)), labels, 51, with_gradient=False)
    assert loss_after < loss_before


def test_gradient_of_hcal_equals_finite_differences():
    logits, labels = simulate_logits_and_labels(60, 3)
    surprisal = -floored_log_softmax(logits)
    ten_segments = (surprisal / 10).astype(int)
    events = TrainingEvents(surprisal, ten_segments, labels)
    slopes = np.linspace(-0.5, 1.5, 11)  # width 10; the absolute values count

    gradient = _mapping_loss(slopes, events, window=11)[1]

    expected = approx_fprime(slopes, lambda point: _mapping_loss(point, events, window=11)[0], 1e-9)
    assert np.abs(expected).max() > 100
    assert gradient == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("n_labels", [2, 5])
def test_smart_keeps_the_order_of_labels_and_lowers_the_log_loss(n_labels):
    logits, labels = simulate_logits_and_labels(800, n_labels)
    calibrated = fit_smart(logits, labels, seed=1)(logits)

    assert (np.argsort(calibrated, axis=1) == np.argsort(logits, axis=1)).all()
    assert (
        log_loss_per_row(calibrated, labels).mean() < log_loss_per_row(log_softmax(logits, axis=1), labels).mean() - 0.1
    )


@pytest.mark.parametrize("n_labels", [2, 4])
def test_gradient_of_the_smart_network_equals_finite_differences(n_labels):
    parameters = initial_parameters(3)
    generator = np.random.default_rng(0)
    relative_logits = -generator.exponential(2, (n_labels, 17))
    relative_logits[0] = 0
    true_label = generator.integers(n_labels, size=17)
    rows = TrainingRows(np.linspace(-2, 3, 17), relative_logits, relative_logits[true_label, np.arange(17)])

    _, gradient = _summed_loss(parameters, rows)

    expected = approx_fprime(parameters, lambda point: _summed_loss(point, rows)[0], 1e-7)
    assert gradient == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("fit", "settings"), [(fit_smart, SmartSettings), (fit_hcal, HCalibrationSettings)], ids=["smart", "hcal"]
)
def test_patience_stops_a_fit_and_the_best_epoch_is_returned(fit, settings, monkeypatch):
    logits, labels = simulate_logits_and_labels(200, 3)
    steps = []
    original_step = Adam.step

    def recorded_step(adam: Adam, gradient: np.ndarray) -> np.ndarray:
        steps.append(gradient)
        return original_step(adam, gradient)

    monkeypatch.setattr(Adam, "step", recorded_step)
    short = fit(logits, labels, seed=1, settings=settings(epochs=3, learning_rate=5.0, patience=3))(logits)
    long = fit(logits, labels, seed=1, settings=settings(epochs=1000, learning_rate=5.0, patience=3))(logits)

    assert 3 + 3 < len(steps) < 500  # 3 of the short fit, and at least 4 of the long fit, whose patience is 3
    if fit is fit_smart:  # SMART minimizes the log loss, and h-cal another loss
        assert log_loss_per_row(long, labels).mean() <= log_loss_per_row(short, labels).mean()
