"""Matrix and vector scaling equal slow computations of the definition."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from relmap.calibrators.diagonal import Diagonal, fit_diagonal
from relmap.calibrators.hcalibration import (
    HCalibration,
    HCalibrationSettings,
    fit_hcal,
)
from relmap.calibrators.identity import Identity, fit_identity
from relmap.calibrators.matrix import (
    Matrix,
    add_ridge,
    center_rows,
    fit_matrix,
    fit_vector,
    median_spread,
    multinomial_loss,
)
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role
from relmap.calibrators.smart import Smart, SmartSettings, fit_smart
from relmap.calibrators.spline import (
    Spline,
    fit_spline,
)
from relmap.calibrators.structured import StructuredMatrix, fit_sms
from relmap.calibrators.temperature import Temperature, fit_temperature
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


def mean_loss(calibrated: np.ndarray, labels: np.ndarray) -> float:
    return float(-calibrated[np.arange(len(labels)), labels].mean())


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
