"""Properties of DIAG."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from relmap.calibrators.diagonal import Diagonal, fit_diagonal
from relmap.calibrators.hcalibration import (
    HCalibration,
)
from relmap.calibrators.identity import floored_log_softmax
from relmap.calibrators.temperature import Temperature
from relmap.metrics.probability import log_loss_per_row
from tests.fits import simulate_logits_and_labels


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
