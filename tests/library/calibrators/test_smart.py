"""Properties of SMART."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax

from relmap.calibrators.hcalibration import (
    HCalibrationSettings,
    fit_hcal,
)
from relmap.calibrators.optimizers import Adam
from relmap.calibrators.smart import SmartSettings, TrainingRows, _summed_loss, fit_smart, initial_parameters
from relmap.metrics.probability import log_loss_per_row
from tests.fits import simulate_logits_and_labels


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
