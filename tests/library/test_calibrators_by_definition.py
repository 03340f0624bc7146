"""Calibrators equal slow computations of their definitions; stored parameters, limits and messages."""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit, log_softmax, logit, logsumexp, softmax

from relmap.calibrators import hcalibration, identity, smart
from relmap.calibrators.diagonal import Diagonal, fit_diagonal
from relmap.calibrators.hcalibration import (
    HCalibration,
    HCalibrationSettings,
    Pieces,
    TrainingEvents,
    _locate_segment,
    _mapping_loss,
    _moving_sum,
    _residual_loss,
    _stable_argsort,
    fit_hcal,
)
from relmap.calibrators.identity import Identity, fit_identity, floored_log_softmax
from relmap.calibrators.linear import transform_rows
from relmap.calibrators.matrix import (
    Matrix,
    add_ridge,
    center_rows,
    fit_matrix,
    fit_vector,
    median_spread,
    multinomial_loss,
)
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role, fit_prefixes
from relmap.calibrators.smart import Smart, SmartSettings, fit_smart, initial_parameters
from relmap.calibrators.spline import (
    PublishedSpline,
    Spline,
    fit_published_spline,
    fit_spline,
    fit_spline_of_confidence,
)
from relmap.calibrators.structured import StructuredMatrix, fit_sms
from relmap.calibrators.temperature import LOG_BETA_BOUNDS, Temperature, _find_root, fit_temperature
from relmap.decisions import decide
from relmap.errors import InputError
from tests.fits import simulate_logits_and_labels

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [-4.0, -1.5, -2.0], [1.0, 1.25, 5.0]])


def test_registry_has_titles_classes_and_settings_of_each_calibrator():
    entries = []
    for key, entry in CALIBRATORS.items():
        entries.append((key, entry.title, entry.role, entry.model_type, entry.fit, entry.settings_type))
        assert entry.key == key
    assert entries == [
        ("uncal", "Uncal.", "paper", Identity, fit_identity, None),
        ("ts", "TS", "paper", Temperature, fit_temperature, None),
        ("diag", "DIAG", "paper", Diagonal, fit_diagonal, None),
        ("spline", "Spline", "paper", Spline, fit_spline, None),
        ("hcal", "h-cal", "paper", HCalibration, fit_hcal, HCalibrationSettings),
        ("smart", "SMART", "paper", Smart, fit_smart, SmartSettings),
        ("sms", "structured matrix scaling", "rival", StructuredMatrix, fit_sms, None),
        ("vector", "vector scaling", "rival", Matrix, fit_vector, None),
        ("matrix", "matrix scaling", "rival", Matrix, fit_matrix, None),
    ]
    assert [key for key, entry in CALIBRATORS.items() if entry.accepts_confidence] == ["uncal", "spline"]
    assert [*calibrators_with_role("paper"), *calibrators_with_role("rival")] == list(CALIBRATORS)


def test_default_settings_equal_the_settings_of_the_authors():
    logits, labels = simulate_logits_and_labels(50, 3)
    hcal_settings = HCalibrationSettings(
        segments=50, window=201, learning_rate=0.005, epochs=80, patience=18, batch=6000
    )
    smart_settings = SmartSettings(learning_rate=0.005, epochs=120, patience=28)
    assert (HCalibrationSettings(), SmartSettings()) == (hcal_settings, smart_settings)
    by_default = fit_hcal(logits, labels, seed=1)
    np.testing.assert_array_equal(by_default.factors, fit_hcal(logits, labels, seed=1, settings=hcal_settings).factors)
    default_network = fit_smart(logits, labels, seed=1)
    network = fit_smart(logits, labels, seed=1, settings=smart_settings)
    np.testing.assert_array_equal(default_network.parameters, network.parameters)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("smart", {"epochs": 3, "depth": 2}, "params.yaml, calibrator_settings: smart has no setting epochs, depth"),
        ("ts", {"epochs": 3}, "params.yaml, calibrator_settings: ts has no setting epochs"),
    ],
)
def test_unknown_settings_are_rejected(name, settings, message):
    with pytest.raises(InputError) as error:
        fit_prefixes(name, LOGITS, np.array([0, 1, 1, 2]), [4], seed=1, settings=settings)
    assert str(error.value) == f"{message}; correct or remove it"


def test_seed_and_settings_reach_the_fit():
    logits, labels = simulate_logits_and_labels(30, 3)
    (fitted,) = fit_prefixes("smart", logits, labels, [25], seed=7, settings={"epochs": 4, "patience": 2})
    expected = fit_smart(logits[:25], labels[:25], seed=7, settings=SmartSettings(epochs=4, patience=2))
    np.testing.assert_array_equal(fitted.parameters, expected.parameters)
    (temperature,) = fit_prefixes("ts", logits, labels, [25], seed=7, settings={})
    assert temperature == fit_temperature(logits[:25], labels[:25], seed=1)  # the fit uses no random numbers


def test_uncalibrated_probabilities_are_a_softmax_with_a_floor():
    np.testing.assert_allclose(Identity()(LOGITS), log_softmax(LOGITS, axis=1), rtol=1e-14)
    extreme = np.array([[0.0, -1000.0], [800.0, 790.0]])
    np.testing.assert_allclose(Identity()(extreme), log_softmax(extreme, axis=1), rtol=1e-14)
    np.testing.assert_allclose(floored_log_softmax(extreme), np.log(softmax(extreme, axis=1) + 1e-12), atol=1e-15)
    assert identity.log_softmax(LOGITS.astype(np.float32)).dtype == np.float64
    assert fit_identity(LOGITS, np.zeros(4), seed=1) == Identity()


def test_transformed_rows_are_a_matrix_product_that_skips_weights_of_zero():
    weights = np.array([[0.5, 0.0, -2.0], [3.0, 1.5, 0.0]])
    np.testing.assert_allclose(transform_rows(LOGITS, weights), LOGITS @ weights.T, rtol=1e-14)
    infinite = LOGITS.copy()
    infinite[1, 1] = np.inf
    assert np.isfinite(transform_rows(infinite, weights)[:, 0]).all()


def shuffled_labels(n_labels: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n_labels)


@pytest.mark.parametrize("name", ["uncal", "ts", "diag", "spline", "vector", "matrix"])
def test_renumbering_the_labels_does_not_change_the_calibration(name):
    logits, labels = simulate_logits_and_labels(120, 4, shift=np.array([0.0, 1.0, -1.0, 0.5]))
    order = shuffled_labels(4, 3)  # new label k is the old label order[k]
    (expected,) = fit_prefixes(name, logits, labels, [120], seed=1)
    (renumbered,) = fit_prefixes(name, logits[:, order], np.argsort(order)[labels], [120], seed=1)
    np.testing.assert_allclose(renumbered(logits[:, order]), expected(logits)[:, order], atol=1e-6)


@pytest.mark.parametrize("name", ["ts", "diag", "spline", "vector", "matrix"])
def test_repeated_rows_do_not_change_a_fit_by_mean_loss(name):
    logits, labels = simulate_logits_and_labels(80, 3)
    (once,) = fit_prefixes(name, logits, labels, [80], seed=1)
    (twice,) = fit_prefixes(name, np.tile(logits, (2, 1)), np.tile(labels, 2), [160], seed=1)
    # the ridge of the spline is relative to the number of rows
    tolerance = 0.1 if name == "spline" else 1e-6
    np.testing.assert_allclose(np.exp(twice(logits)), np.exp(once(logits)), atol=tolerance)


# Temperature scaling


def mean_loss(calibrated: np.ndarray, labels: np.ndarray) -> float:
    return float(-calibrated[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("overconfidence", [0.1, 1.0, 30.0])
def test_temperature_has_the_lowest_loss(overconfidence):
    logits, labels = simulate_logits_and_labels(150, 3, overconfidence=overconfidence)

    def slope(log_beta: float) -> float:
        p = softmax(np.exp(log_beta) * logits, axis=1)
        return float(((p * logits).sum(axis=1) - logits[np.arange(150), labels]).mean())

    beta = fit_temperature(logits, labels, seed=1).beta
    assert beta == pytest.approx(np.exp(brentq(slope, -10, 10, xtol=1e-13)), rel=1e-9)
    np.testing.assert_allclose(Temperature(beta)(logits), log_softmax(beta * logits, axis=1), atol=1e-12)


def test_temperature_at_its_bounds_and_without_information():
    certain = np.array([[1.0, 0.0], [0.0, 2.0]])
    low, high = np.exp([-16.0, 16.0])
    assert LOG_BETA_BOUNDS == (-16, 16)
    assert fit_temperature(certain, np.array([0, 1]), seed=1).beta == high
    assert fit_temperature(certain, np.array([1, 0]), seed=1).beta == low
    assert fit_temperature(np.full((3, 2), 7.0), np.array([0, 1, 1]), seed=1).beta == 1
    # the first row has no information; two of the other three are correct: expit(2 beta) = 2 / 3
    equal_gaps = np.array([[1.0, 1.0], [0.0, 2.0], [0.0, 2.0], [2.0, 0.0]])
    assert fit_temperature(equal_gaps, np.array([0, 1, 1, 1]), seed=1).beta == pytest.approx(np.log(2) / 2)


@pytest.mark.parametrize("start", [-100.0, -3.0, 0.0, 2.9, 100.0])
@pytest.mark.parametrize("root", [-15.9, -2.5, 3.0, 15.9])
def test_root_is_found_from_any_start(root, start):
    def flat_far_away(x: float) -> tuple[float, float]:
        return float(np.arctan(20 * (x - root))), float(20 / (1 + (20 * (x - root)) ** 2))

    assert _find_root(flat_far_away, start) == pytest.approx(root, abs=1e-12)


@pytest.mark.parametrize(("sign", "bound"), [(1.0, -16.0), (-1.0, 16.0)])
@pytest.mark.parametrize("start", [-16.0, -3.0, 9.0, 16.0])
def test_function_of_one_sign_has_its_root_at_a_bound(sign, bound, start):
    assert _find_root(lambda x: (sign * float(np.exp(sign * x)), float(np.exp(sign * x))), start) == bound
    assert _find_root(lambda _: (sign, 0.0), start) == bound


# DIAG


@pytest.mark.parametrize("n_labels", [2, 4])
def test_diagonal_factors_equal_the_optimum_of_another_method(n_labels):
    logits, labels = simulate_logits_and_labels(100, n_labels, shift=np.linspace(0, 1, n_labels))
    log_p = np.log(softmax(logits, axis=1) + 1e-12)
    order = np.argsort(-log_p, axis=1)
    gaps = -np.diff(np.take_along_axis(log_p, order, axis=1))
    rank = (order == labels[:, None]).argmax(axis=1)

    def objective(log_factors: np.ndarray) -> float:
        heights = np.column_stack([np.zeros(100), -np.cumsum(np.exp(log_factors) * gaps, axis=1)])
        losses = logsumexp(heights, axis=1) - heights[np.arange(100), rank]
        return float(losses.mean() + 1e-3 * (log_factors**2).sum() / (n_labels - 1))

    expected = minimize(objective, np.zeros(n_labels - 1), options={"gtol": 1e-9})
    np.testing.assert_allclose(np.log(fit_diagonal(logits, labels, seed=1).factors), expected.x, atol=1e-4)


def test_diagonal_scales_the_gaps_between_sorted_logits():
    calibrated = Diagonal(np.array([2.0, 0.5]))(np.array([[0.0, 3.0, 1.0], [1.0, 0.5, 0.75]]))
    # gaps 2 and 1 become 4 and 0.5; gaps 0.25 and 0.25 become 0.5 and 0.125
    expected = log_softmax([[-4.5, 0.0, -4.0], [0.0, -0.625, -0.5]], axis=1)
    np.testing.assert_allclose(calibrated, expected, atol=1e-9)
    tied = Diagonal(np.array([2.0, 0.5]))(np.array([[1.0, 1.0, 0.0]]))
    np.testing.assert_allclose(tied, log_softmax([[0.0, 0.0, -0.5]], axis=1), atol=1e-9)


# Matrix and vector scaling


def test_matrix_is_an_affine_map_of_centered_logits():
    weights = np.array([[1.0, 0.5, 0.0], [-0.25, 2.0, 0.1], [0.3, 0.0, 0.7]])
    bias = np.array([0.1, -0.2, 0.4])
    centered = LOGITS - LOGITS.mean(axis=1)[:, None]
    expected = log_softmax(centered @ weights.T + bias, axis=1)
    np.testing.assert_allclose(Matrix(weights, bias)(LOGITS), expected, atol=1e-12)
    np.testing.assert_allclose(center_rows(LOGITS), centered)


def test_median_spread_omits_rows_of_equal_logits():
    assert median_spread(np.array([[0.0, 4.0], [1.0, 1.0], [3.0, 2.0], [5.0, 5.0], [0.0, 10.0]])) == 4
    assert median_spread(np.ones((3, 2))) == 1


@pytest.mark.parametrize("kind", ["matrix", "vector"])
def test_matrix_and_vector_scaling_equal_the_optimum_of_another_method(kind):
    logits, labels = simulate_logits_and_labels(60, 3, shift=np.array([0.0, 1.0, -0.5]))
    unit = np.median(np.ptp(logits, axis=1))
    features = (logits - logits.mean(axis=1, keepdims=True)) / unit
    start = np.eye(3, 4) * fit_temperature(logits, labels, seed=1).beta * unit
    is_free = np.ones((3, 4), dtype=bool)
    if kind == "vector":
        is_free[:, :3] = np.eye(3, dtype=bool)

    def objective(parameters: np.ndarray) -> float:
        table = start.copy()
        table[is_free] = parameters
        calibrated = log_softmax(features @ table[:, :3].T + table[:, 3], axis=1)
        return mean_loss(calibrated, labels) + 1e-6 * ((table - start) ** 2).sum()

    best = minimize(objective, start[is_free], options={"gtol": 1e-9})
    fitted = (fit_matrix if kind == "matrix" else fit_vector)(logits, labels, seed=1)
    table = np.column_stack([fitted.weights * unit, fitted.bias])
    np.testing.assert_array_equal(table[~is_free], 0)
    assert objective(table[is_free]) <= best.fun + 1e-9
    calibrated = log_softmax(features @ table[:, :3].T + table[:, 3], axis=1)
    np.testing.assert_allclose(fitted(logits), calibrated, atol=1e-12)


def test_ridge_is_added_to_the_free_entries():
    start = np.array([[1.0, 2.0], [3.0, 4.0]])
    free = np.array([0, 3])
    ridge = np.array([0.5, 2.0])
    hessian = np.arange(16.0).reshape(4, 4)

    def log_loss(table: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float(table @ [1.0, 10.0, 100.0, 1000.0]), table * 2, hessian

    value, gradient, curvature = add_ridge(log_loss, start, free, ridge)(np.array([1.5, 3.0]))
    # the table is 1.5, 2, 3, 3, at distances 0.5 and -1 from the start
    assert value == 1.5 + 20 + 300 + 3000 + (0.5 * 0.25 + 2 * 1) / 2
    np.testing.assert_array_equal(gradient, [3 + 0.25, 6 - 2])
    np.testing.assert_array_equal(curvature, [[0 + 0.5, 3], [12, 15 + 2]])
    np.testing.assert_array_equal(start, [[1, 2], [3, 4]])


def test_multinomial_loss_of_large_scores_does_not_overflow():
    # the scores of the rows are (2000, 0) and (4000, 0), so the second row has a loss of 4000
    value, gradient, hessian = multinomial_loss(np.array([[1.0, 2.0]]), np.array([0, 1]), 2)(np.array([2000.0, 0.0]))
    assert value == pytest.approx(4000 / 2)
    np.testing.assert_allclose(gradient, [1.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(hessian, np.zeros((2, 2)), atol=1e-12)


# Spline


def test_spline_is_a_cubic_between_knots_and_constant_outside():
    knots = np.array([0.2, 0.5, 0.9])
    coefficients = np.array([[0.1, 0.2, -0.3, 0.4], [1.0, -2.0, 0.5, 0.25]])
    fitted = Spline(knots, coefficients)

    def cubic(row: int, position: float) -> float:
        return float(expit(coefficients[row] @ position ** np.arange(4)))

    confidence = np.array([0.0, 0.2, 0.35, 0.5, 0.6, 0.9, 1.0])
    expected = [cubic(0, 0), cubic(0, 0), cubic(0, 0.5), cubic(1, 0), cubic(1, 0.25), cubic(1, 1), cubic(1, 1)]
    np.testing.assert_allclose(fitted.calibrate_confidence(confidence), expected, rtol=1e-12)


def test_spline_is_at_least_a_millionth_from_0_and_1():
    steep = Spline(np.array([0.0, 1.0]), np.array([[-30.0, 60.0, 0.0, 0.0]]))
    np.testing.assert_array_equal(steep.calibrate_confidence(np.array([0.0, 0.5, 1.0])), [1e-6, 0.5, 1 - 1e-6])
    calibrated = steep(np.array([[50.0, 0.0, 1.0]]))
    others = np.log(softmax([0.0, 1.0]) * 1e-6)
    np.testing.assert_allclose(calibrated, [[np.log(1 - 1e-6), *others]], rtol=1e-6)


@pytest.mark.parametrize(
    ("confidence", "n_correct"),
    [
        (np.linspace(0.3, 0.9, 8), 8),
        (np.linspace(0.3, 0.9, 8), 0),
        (np.full(8, 0.6), 5),
        (0.6 + np.arange(8) * 1e-10, 5),
    ],
)
def test_spline_without_information_is_the_share_of_correct_rows(confidence, n_correct):
    fitted = fit_spline_of_confidence(confidence, np.arange(8) < n_correct)
    share = (n_correct + 0.5) / 9
    assert fitted.knots.tolist() == [0, 1]
    np.testing.assert_allclose(fitted.coefficients, [[logit(share), 0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(fitted.calibrate_confidence(np.array([0.0, 0.4, 1.0])), share)


def test_spline_of_slightly_different_confidences_has_eight_knots():
    confidence = 0.6 + np.arange(8) * 1e-8
    fitted = fit_spline_of_confidence(confidence, np.arange(8) % 3 > 0)
    np.testing.assert_allclose(fitted.knots, np.linspace(0.6, 0.6 + 7e-8, 8), rtol=1e-12)
    assert fitted.coefficients.shape == (7, 4)


def test_spline_of_logits_is_fitted_to_the_confidence_of_the_decision():
    logits, labels = simulate_logits_and_labels(60, 3)
    confidence = softmax(logits, axis=1).max(axis=1)
    expected = fit_spline_of_confidence(confidence, decide(logits) == labels)
    np.testing.assert_allclose(fit_spline(logits, labels, seed=1).coefficients, expected.coefficients, rtol=1e-9)


@pytest.mark.parametrize(
    ("knots", "expected"),
    [
        ([0.0, 0.5, 1.0], []),
        ([0.0, 0.5, 0.5], ["the knots of the spline do not increase"]),
        ([0.5, 0.4, 1.0], ["the knots of the spline do not increase"]),
    ],
)
def test_knots_of_a_spline_increase(knots, expected):
    assert Spline(np.array(knots), np.zeros((2, 4))).violations(2) == expected


# h-calibration


@pytest.mark.parametrize(
    ("surprisal", "segment"), [(0.0, 0), (1.999, 0), (2.001, 1), (2.0, 1), (99.9, 49), (100.0, 50), (500.0, 50)]
)
def test_events_belong_to_equal_segments_up_to_100(surprisal, segment):
    assert _locate_segment(np.array([surprisal]), 50).tolist() == [segment]


@pytest.mark.parametrize("half_window", [0, 1, 3, 20])
def test_moving_sum_equals_a_loop(half_window):
    values = np.array([5, -2, 7, 1, 0, -4, 3], dtype=np.int64)
    expected = [int(values[max(0, row - half_window) : row + half_window + 1].sum()) for row in range(7)]
    assert _moving_sum(values, half_window).tolist() == expected


def test_sort_is_stable_with_ties_and_close_values():
    generator = np.random.default_rng(0)
    values = generator.choice([0.0, 0.25, np.nextafter(0.25, 1), 0.5, 1e-300, 1.0], 200)
    np.testing.assert_array_equal(_stable_argsort(values), np.argsort(values, kind="stable"))
    close = 0.5 + generator.integers(0, 9, 300) * 2**-53
    np.testing.assert_array_equal(_stable_argsort(close), np.argsort(close, kind="stable"))
    assert _stable_argsort(np.array([0.3])).tolist() == [0]


def expected_residual_loss(p: np.ndarray, labels: np.ndarray, window: int) -> float:
    losses = []
    for excluded in range(p.shape[1]):
        events = []
        for row in range(len(p)):
            for label in range(p.shape[1]):
                if labels[row] != excluded:
                    residual = p[row, label] - (label == labels[row])
                    events.append((p[row, label], row, label, residual))
        if len(events) < 2 * p.shape[1]:
            continue
        residuals = [residual for *_, residual in sorted(events)]
        half = (window - 1) // 2
        sums = [sum(residuals[max(0, i - half) : i + half + 1]) for i in range(len(residuals))]
        losses.append(np.abs(sums).mean() / (2 * half + 1))
    return float(np.mean(losses)) if losses else 0.0


@pytest.mark.parametrize("window", [1, 2, 3, 4, 7, 201])
@pytest.mark.parametrize("n_rows", [1, 4, 12])
def test_residual_loss_equals_loops_for_each_window(n_rows, window):
    """The window has an odd number of events, and zeros outside of them; a label that one row lacks is not counted."""
    logits, labels = simulate_logits_and_labels(n_rows, 3, seed=2)
    p = softmax(logits, axis=1)
    value, gradient = _residual_loss(p, labels, window, with_gradient=True)
    assert value == pytest.approx(expected_residual_loss(p, labels, window), rel=1e-9)
    without_gradient, zeros = _residual_loss(p, labels, window, with_gradient=False)
    assert without_gradient == value
    np.testing.assert_array_equal(zeros, np.zeros((n_rows, 3)))
    assert gradient.shape == (n_rows, 3)
    assert gradient.any() == (n_rows > 1)


def test_residual_loss_with_absent_labels_is_the_mean_over_the_others():
    logits, _ = simulate_logits_and_labels(9, 4, seed=2)
    p = softmax(logits, axis=1)
    for labels in (np.zeros(9, dtype=int), np.arange(9) % 2):
        value, _ = _residual_loss(p, labels, 5, with_gradient=False)
        assert value == pytest.approx(expected_residual_loss(p, labels, 5), rel=1e-9)


class AdamByHand:
    """Adam with its published decay rates."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.first = 0.0
        self.second = 0.0
        self.count = 0

    def step(self, gradient: np.ndarray) -> np.ndarray:
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        first = self.first / (1 - 0.9**self.count)
        second = self.second / (1 - 0.999**self.count)
        return -self.learning_rate * first / (np.sqrt(second) + 1e-8)


def hcal_by_hand(logits: np.ndarray, labels: np.ndarray, seed: int, settings: HCalibrationSettings) -> np.ndarray:
    """Return the slopes after the epoch of the lowest loss; the start is not a candidate."""
    surprisal = -np.log(softmax(logits, axis=1) + 1e-12)
    segment = np.minimum((surprisal * settings.segments / 100).astype(int), settings.segments)
    generator = np.random.default_rng(seed)
    adam = AdamByHand(settings.learning_rate)
    n_rows = len(labels)
    slopes = np.ones(settings.segments + 1)
    path = []
    losses = []
    for _ in range(settings.epochs):
        order = np.arange(n_rows)
        if n_rows > settings.batch:
            order = generator.permutation(n_rows)
        for start in range(0, n_rows, settings.batch):
            rows = order[start : start + settings.batch]
            batch = TrainingEvents(surprisal[rows], segment[rows], labels[rows])
            slopes = slopes + adam.step(_mapping_loss(slopes, batch, settings.window)[1])
        path.append(slopes)
        all_rows = TrainingEvents(surprisal, segment, labels)
        losses.append(_mapping_loss(slopes, all_rows, settings.window)[0])
        if len(losses) - 1 - int(np.argmin(losses)) == settings.patience:
            break
    return np.abs(path[int(np.argmin(losses))])


@pytest.mark.parametrize("batch", [10, 39, 40, 100])
@pytest.mark.parametrize("learning_rate", [0.01, 0.5])
def test_hcal_factors_equal_a_plain_loop(batch, learning_rate):
    logits, labels = simulate_logits_and_labels(40, 3)
    settings = HCalibrationSettings(30, 11, learning_rate, epochs=12, patience=2, batch=batch)
    expected = hcal_by_hand(logits, labels, 5, settings)
    fitted = fit_hcal(logits, labels, seed=5, settings=settings)
    np.testing.assert_allclose(np.append(fitted.first_slope, fitted.factors), expected, rtol=1e-6)
    assert not np.allclose(expected, 1)


def map_by_hand(value: float, slopes: np.ndarray) -> float:
    """Map one value of -log p: the distance from the cumulative offset is multiplied by the slope of the segment."""
    width = 100 / (len(slopes) - 1)
    magnitudes = np.abs(slopes)
    if value >= 100:
        return width * (magnitudes.sum() - 1)
    segment = int(value / width)
    offset = width * (magnitudes[: segment + 1].sum() - 1)
    return offset + magnitudes[segment + 1] * (value - offset)


def map_values(values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    return Pieces.from_slopes(slopes).map(values, _locate_segment(values, len(slopes) - 1))


def test_mapping_equals_a_plain_computation_for_slopes_of_either_sign():
    generator = np.random.default_rng(4)
    slopes = generator.uniform(-0.2, 2, 51)
    values = np.concatenate([np.linspace(0, 130, 400), 2.0 * np.arange(51)])
    expected = [map_by_hand(value, slopes) for value in values]
    np.testing.assert_allclose(map_values(values, slopes), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(map_values(values, -slopes), map_values(values, slopes))


def test_mapping_with_slopes_of_1_is_the_identity_up_to_100():
    values = np.array([0.0, 1.5, 2.0, 57.3, 99.9, 100.0, 250.0])
    np.testing.assert_allclose(map_values(values, np.ones(51)), [0, 1.5, 2, 57.3, 99.9, 100, 100], rtol=1e-12)


def test_mapping_jumps_between_segments_where_the_offset_is_not_their_start():
    only_first_segment = np.ones(51)
    only_first_segment[1] = 1.2
    below = np.nextafter(2.0, 0)
    # the first segment has the offset 0, and the second one the offset 2 (1 + 1.2 - 1) = 2.4, but a slope of 1
    mapped = map_values(np.array([1.0, below, 2.0, 3.0]), only_first_segment)
    np.testing.assert_allclose(mapped, [1.2, 2.4, 2.0, 3.0])
    shifted_only = np.ones(51)
    shifted_only[0] = 1.2  # has no segment, and changes nothing where the slopes are 1
    np.testing.assert_allclose(map_values(np.array([1.0, 99.0, 100.0]), shifted_only), [1.0, 99.0, 100.4])


def test_loss_of_slopes_is_that_of_the_softmax_of_the_mapped_values():
    logits, labels = simulate_logits_and_labels(20, 3)
    surprisal = -floored_log_softmax(logits)
    segment = _locate_segment(surprisal, 40)
    slopes = np.linspace(0.7, 2.2, 41)
    p = softmax(-map_values(surprisal, slopes), axis=1)
    events = TrainingEvents(surprisal, segment, labels)
    value, _ = _mapping_loss(slopes, events, 5)
    assert value == pytest.approx(1e5 * _residual_loss(p, labels, 5, with_gradient=False)[0], rel=1e-9)
    same, zeros = _mapping_loss(slopes, events, 5, with_gradient=False)
    assert same == value
    np.testing.assert_array_equal(zeros, np.zeros(41))
    np.testing.assert_allclose(HCalibration(slopes[1:], slopes[0])(logits), np.log(p), atol=1e-9)
    rows = np.array([3, 0, 7])
    selected = events.select(rows)
    for array, original in zip(selected, events, strict=True):
        np.testing.assert_array_equal(array, original[rows])


def test_mapping_of_earlier_maps_multiplies_by_the_factor_of_the_segment():
    logits = np.array([[0.0, -3.0, -500.0]])
    factors = np.linspace(0.5, 2, 40)
    log_p = floored_log_softmax(logits)[0]
    segments = [0, 1, 11]  # of width 2.5; the floor makes the last value 27.6
    expected = log_softmax(factors[segments] * log_p)
    np.testing.assert_allclose(HCalibration(factors)(logits)[0], expected, atol=1e-9)


# SMART


def network_by_hand(parameters: np.ndarray, margin: float) -> float:
    """Return the temperature of a margin."""
    weight_1, bias_1, weight_2, bias_2, weight_3, bias_3 = np.split(parameters, [16, 32, 288, 304, 320])
    hidden = np.maximum(weight_1 * margin + bias_1, 0)
    hidden = np.maximum(weight_2.reshape(16, 16) @ hidden + bias_2, 0)
    return float(np.log1p(np.exp(weight_3 @ hidden + bias_3[0])) + 0.1)


def test_smart_divides_log_probabilities_by_the_temperature_of_their_margin():
    parameters = initial_parameters(3)
    fitted = Smart(1.5, 0.7, parameters)
    for row, calibrated in zip(LOGITS, fitted(LOGITS), strict=True):
        log_p = np.log(softmax(row) + 1e-12)
        second, largest = np.sort(log_p)[-2:]
        expected_temperature = network_by_hand(parameters, (largest - second - 1.5) / 0.7)
        np.testing.assert_allclose(calibrated, log_softmax(log_p / expected_temperature), atol=1e-10)


def test_initial_parameters_are_uniform_within_the_bounds_of_their_layers():
    draws = np.array([initial_parameters(seed) for seed in range(40)])
    largest = np.abs(draws).max(axis=0)
    assert draws.shape == (40, 321)
    # the bound is 1 / sqrt(number of inputs): one input of the 32 parameters of layer 1, and 16 of the other layers
    assert (largest[:32] <= 1).all()
    assert (largest[:32] > 0.7).all()
    assert (largest[32:] <= 0.25).all()
    assert (largest[32:] > 0.15).all()
    np.testing.assert_array_equal(initial_parameters(7), draws[7])


def smart_by_hand(logits: np.ndarray, labels: np.ndarray, seed: int, settings: SmartSettings) -> Smart:
    """Return the network after the step of the epoch with the lowest loss, which is that before the step."""
    log_p = np.log(softmax(logits, axis=1) + 1e-12)
    ordered = np.sort(log_p, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    mean = margin.mean()
    deviation = margin.std(ddof=1)
    rows = smart.TrainingRows(
        (margin - mean) / deviation,
        (log_p - ordered[:, -1:]).T,
        log_p[np.arange(len(labels)), labels] - ordered[:, -1],
    )
    adam = AdamByHand(settings.learning_rate)
    parameters = initial_parameters(seed)
    path = []
    losses = []
    for _ in range(settings.epochs):
        summed = smart._summed_loss(parameters, rows)
        losses.append(summed.loss / len(labels))
        parameters = parameters + adam.step(summed.gradient / len(labels))
        path.append(parameters)
        if len(losses) - 1 - int(np.argmin(losses)) == settings.patience:
            break
    return Smart(mean, deviation, path[int(np.argmin(losses))])


@pytest.mark.parametrize("chunk_rows", [512, 7])
@pytest.mark.parametrize("learning_rate", [0.01, 1.0])
def test_smart_network_equals_a_plain_loop_in_any_chunks(learning_rate, chunk_rows, monkeypatch):
    monkeypatch.setattr(smart, "CHUNK_ROWS", chunk_rows)
    logits, labels = simulate_logits_and_labels(40, 3)
    settings = SmartSettings(learning_rate, epochs=10, patience=2)
    expected = smart_by_hand(logits, labels, 4, settings)
    fitted = fit_smart(logits, labels, seed=4, settings=settings)
    assert (fitted.mean, fitted.deviation) == pytest.approx((expected.mean, expected.deviation))
    np.testing.assert_allclose(fitted.parameters, expected.parameters, atol=1e-6)
    monkeypatch.setattr(smart, "CHUNK_ROWS", 512)
    whole = fitted(logits)
    monkeypatch.setattr(smart, "CHUNK_ROWS", chunk_rows)
    np.testing.assert_array_equal(fitted(logits), whole)


def test_loss_of_the_network_is_the_log_loss_at_its_temperatures():
    logits, labels = simulate_logits_and_labels(25, 3)
    fitted = fit_smart(logits, labels, seed=2, settings=SmartSettings(epochs=3))
    log_p = floored_log_softmax(logits)
    largest = log_p.max(axis=1)
    margin = (largest - np.sort(log_p, axis=1)[:, -2] - fitted.mean) / fitted.deviation
    rows = smart.TrainingRows(margin, (log_p - largest[:, None]).T, log_p[np.arange(25), labels] - largest)
    summed = smart._summed_loss(fitted.parameters, rows)
    assert summed.loss == pytest.approx(25 * mean_loss(fitted(logits), labels))


def test_deviation_of_equal_margins_is_positive():
    fitted = fit_smart(np.tile([2.0, 0.0], (5, 1)), np.array([0, 0, 0, 1, 0]), seed=1, settings=SmartSettings(epochs=1))
    assert fitted.deviation == 1e-8
    assert fitted.mean == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize(
    ("n_parameters", "expected"),
    [
        (321, []),
        (6, []),
        (13, []),
        (5, ["the network has 5 parameters, which is not H^2 + 4 H + 1"]),
        (1, ["the network has 1 parameters, which is not H^2 + 4 H + 1"]),
        (320, ["the network has 320 parameters, which is not H^2 + 4 H + 1"]),
    ],
)
def test_a_number_of_parameters_that_no_network_has_is_a_violation(n_parameters, expected):
    assert Smart(0.0, 1.0, np.zeros(n_parameters)).violations(3) == expected


def test_network_of_two_hidden_units_is_applied():
    layers = smart._split_layers(np.arange(13.0))
    assert [layer.tolist() for layer in layers] == [[0, 1], [2, 3], [[4, 5], [6, 7]], [8, 9], [10, 11], [12]]
    outputs = smart._run_network(layers, np.array([2.0, -9.0]))
    # margin 2: hidden 2, 5 -> 4 * 2 + 5 * 5 + 8 = 41, 6 * 2 + 7 * 5 + 9 = 56; margin -9: hidden 2, 0 -> 16, 21
    assert outputs.hidden_1.tolist() == [[2, 2], [5, 0]]
    assert outputs.hidden_2.tolist() == [[41, 16], [56, 21]]
    assert outputs.output.tolist() == [41 * 10 + 56 * 11 + 12, 16 * 10 + 21 * 11 + 12]
    np.testing.assert_array_equal(smart._score_margins(layers, np.array([2.0, -9.0])), outputs.output)


def test_margin_is_the_difference_of_the_two_largest_logits():
    assert smart._margin(np.array([[1.0, 5.0, 3.0], [2.0, 2.0, 1.0], [7.0, -1.0, 0.5]])).tolist() == [2, 0, 6.5]


# losses, patience, epochs; steps before the returned parameters, number of losses that are computed
SMART_PATIENCE_CASES = [
    ([5.0, 4.0, 6.0, 6.0, 3.0], 2, 9, 2, 4),
    ([5.0, 5.0, 5.0, 1.0], 2, 9, 1, 3),
    ([5.0, 5 - 5e-8, 5 - 9e-8, 1.0], 2, 9, 1, 3),  # lower by less than 1e-7
    ([5.0, 5 - 2e-7, 6.0, 6.0, 1.0], 2, 9, 2, 4),
    ([5.0, 4.0, 3.0, 2.0, 1.0], 9, 4, 4, 4),
]
HCAL_PATIENCE_CASES = [  # the first loss is that of the start, which is not a candidate
    ([5.0, 4.0, 6.0, 6.0, 3.0], 2, 9, 1, 4),
    ([1.0, 5.0, 5.0, 5.0, 1.0], 2, 9, 1, 4),
    ([9.0, 5.0, 5 - 5e-8, 6.0, 6.0, 1.0], 2, 9, 2, 5),
    ([9.0, 4.0, 3.0, 2.0, 1.0, 0.0], 9, 4, 4, 5),
]


@pytest.mark.parametrize(("losses", "patience", "epochs", "n_steps", "n_losses"), SMART_PATIENCE_CASES)
def test_smart_ends_after_its_patience_and_returns_the_network_after_the_best_epoch(
    losses, patience, epochs, n_steps, n_losses, monkeypatch
):
    """A constant gradient makes each step of Adam as long as the learning rate."""
    remaining = iter(losses)
    n_rows = len(LOGITS)
    monkeypatch.setattr(
        smart, "_summed_loss", lambda *_: smart.SummedLoss(n_rows * next(remaining), np.full(321, n_rows * 2.0))
    )
    fit_settings = SmartSettings(learning_rate=0.1, epochs=epochs, patience=patience)
    fitted = fit_smart(LOGITS, np.array([0, 1, 1, 2]), seed=3, settings=fit_settings)
    np.testing.assert_allclose(fitted.parameters, initial_parameters(3) - 0.1 * n_steps, atol=1e-6)
    assert len(list(remaining)) == len(losses) - n_losses


@pytest.mark.parametrize(("losses", "patience", "epochs", "n_steps", "n_losses"), HCAL_PATIENCE_CASES)
def test_hcal_ends_after_its_patience_and_returns_the_slopes_of_the_lowest_loss(
    losses, patience, epochs, n_steps, n_losses, monkeypatch
):
    remaining = iter(losses)
    monkeypatch.setattr(hcalibration, "_mapping_loss", lambda *_, **__: (next(remaining), np.full(8, 2.0)))
    fit_settings = HCalibrationSettings(segments=7, learning_rate=0.1, epochs=epochs, patience=patience)
    fitted = fit_hcal(LOGITS, np.array([0, 1, 1, 2]), seed=3, settings=fit_settings)
    np.testing.assert_allclose(fitted.factors, 1 - 0.1 * n_steps, atol=1e-6)
    assert fitted.first_slope == pytest.approx(1 - 0.1 * n_steps, abs=1e-6)
    assert len(list(remaining)) == len(losses) - n_losses


def test_one_row_has_no_deviation_of_margins_and_no_loss_of_residuals():
    one_row = (LOGITS[:1], np.array([0]))
    assert fit_smart(*one_row, seed=1, settings=SmartSettings(epochs=1)).deviation == 1e-8
    unchanged = fit_hcal(*one_row, seed=1, settings=HCalibrationSettings(epochs=1))
    np.testing.assert_array_equal(unchanged.factors, np.ones(50))


# Published spline


def test_published_spline_floors_the_rest_of_saturated_rows():
    """With m = 0.7: other labels share 0.3 / max(1 - c, 1e-8), at least 1e-8 each, and all are normalized."""
    calibrate = PublishedSpline(Spline(np.array([0.0, 1.0]), np.array([[logit(0.7), 0, 0, 0]])))
    logits = np.array([[0.0, -1.0, -2.0], [0.0, -40.0, -50.0], [0.0, -19.0, -np.inf]])
    probabilities = np.exp(calibrate(logits))
    np.testing.assert_allclose(probabilities[0], [0.7, *(0.3 * softmax([-1.0, -2.0]))], rtol=1e-6)
    np.testing.assert_allclose(probabilities[1], np.array([0.7, 3e-5, 3e-5]) / 0.70006, rtol=1e-3)
    assert 0.7 < probabilities[2, 0] < 1
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    own_form = np.exp(calibrate.curve(logits))
    np.testing.assert_allclose(own_form[:, 0], 0.7, rtol=1e-12)  # maps give the mapped confidence


def test_published_spline_equals_the_spline_where_confidences_are_not_saturated():
    logits, labels = simulate_logits_and_labels(200, 3)
    published = fit_published_spline(logits, labels, seed=1)
    own_form = fit_spline(logits, labels, seed=1)
    np.testing.assert_allclose(np.exp(published(logits)), np.exp(own_form(logits)), atol=1e-6)


@pytest.mark.parametrize(("label", "expected"), [(0, 1 - 1e-8), (1, 1e-8)])
def test_published_spline_of_equal_outcomes_is_constant(label, expected):
    logits = np.array([[2.0, 0.0], [3.0, 0.0], [0.5, 0.0]])
    fitted = fit_published_spline(logits, np.full(3, label), seed=1)
    np.testing.assert_allclose(fitted.calibrate_confidence(np.array([0.0, 0.6, 1.0])), expected, rtol=1e-9)


@pytest.mark.parametrize(("n_distinct", "n_knots"), [(1, 2), (2, 2), (3, 3), (7, 7), (8, 8), (20, 8)])
def test_published_spline_has_at_most_as_many_knots_as_confidences(n_distinct, n_knots):
    margins = np.arange(60) % n_distinct / 4 + 0.5
    logits = np.stack([margins, np.zeros(60)], axis=1)
    fitted = fit_published_spline(logits, (np.arange(60) % 4 == 0).astype(int), seed=1)
    assert len(fitted.curve.knots) == n_knots


def test_only_tables_of_the_paper_use_published_fits():
    logits, labels = simulate_logits_and_labels(60, 3)
    (for_maps,) = fit_prefixes("spline", logits, labels, [60], seed=1)
    (for_tables,) = fit_prefixes("spline", logits, labels, [60], seed=1, published=True)
    assert isinstance(for_maps, Spline)
    assert isinstance(for_tables, PublishedSpline)
    assert isinstance(fit_prefixes("ts", logits, labels, [60], seed=1, published=True)[0], Temperature)


def test_confidences_in_single_precision_give_the_spline_of_double_precision():
    generator = np.random.default_rng(5)
    confidence = generator.random(300).astype(np.float32)
    correct = generator.random(300) < confidence
    single = fit_spline_of_confidence(confidence, correct)
    double = fit_spline_of_confidence(confidence.astype(np.float64), correct)
    np.testing.assert_array_equal(single.knots, double.knots)
    np.testing.assert_array_equal(single.coefficients, double.coefficients)
