"""Properties of h-calibration."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, softmax

from relmap.calibrators.hcalibration import (
    HCalibration,
    HCalibrationSettings,
    TrainingEvents,
    _mapping_loss,
    _residual_loss,
    fit_hcal,
)
from relmap.calibrators.identity import floored_log_softmax
from tests.fits import simulate_logits_and_labels


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


def loss_with_ties_in_random_order(probabilities: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Compute the loss of h-calibration, window 21, with tied events in random order."""
    generator = np.random.default_rng(seed)
    losses = []
    for label in range(probabilities.shape[1]):
        p = probabilities[labels != label]
        hit = np.eye(probabilities.shape[1])[labels[labels != label]]
        order = np.lexsort((generator.random(p.size), p.ravel()))
        residual = (p - hit).ravel()[order]
        losses.append(np.abs(np.convolve(residual, np.ones(21), "same")).mean() / 21)
    return float(np.mean(losses))


def test_float32_changes_the_residual_loss_only_by_the_order_of_tied_events():
    generator = np.random.default_rng(3)
    labels = generator.integers(3, size=300)
    probabilities = generator.dirichlet([1.0, 1.0, 1.0], size=300)
    loss = _residual_loss(probabilities, labels, 21, with_gradient=False)[0]
    in_float32 = probabilities.astype(np.float32)
    assert len(np.unique(in_float32)) == probabilities.size
    assert loss_with_ties_in_random_order(in_float32, labels, 0) == pytest.approx(loss, rel=1e-6)

    near_one = probabilities.copy()
    near_one[:20] = [1 - 2e-9, 1e-9, 1e-9]  # saturated rows, which are 1 in float32
    near_one[:20, 0] -= 1e-12 * np.arange(20)
    loss = _residual_loss(near_one, labels, 21, with_gradient=False)[0]
    assert loss_with_ties_in_random_order(near_one.astype(np.float32), labels, 0) != pytest.approx(loss, rel=1e-4)


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
