"""DIAG equals slow computations of the definition."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from relmap.calibrators.diagonal import Diagonal, fit_diagonal
from tests.fits import simulate_logits_and_labels


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
