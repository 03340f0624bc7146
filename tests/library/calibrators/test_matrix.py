"""Properties of matrix and vector scaling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import log_softmax

from relmap.calibrators.matrix import Matrix, center_rows, fit_matrix, fit_vector, median_spread, multinomial_loss
from relmap.calibrators.temperature import fit_temperature
from relmap.metrics.probability import log_loss_per_row
from tests.fits import simulate_logits_and_labels


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
