"""What the calibrators that are trained step by step promise on their own: h-calibration and SMART."""

import numpy as np
import pytest
from fits import logits_and_labels as simulated
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, softmax

from tasks.calibrators.hcalibration import HCalibration, HCalibrationSettings, _mapped_loss, _residual_loss, fit_hcal
from tasks.calibrators.identity import floored
from tasks.calibrators.smart import SmartSettings, _summed_loss, first_parameters, fit_smart
from tasks.metrics.probability import nll_of_rows
from tasks.protocol.descent import Adam


def test_the_loss_is_that_of_a_naive_double_loop_and_its_slope_that_of_finite_differences():
    logits, labels = simulated(60, 3)
    p = softmax(logits, axis=1)
    losses = []
    for without in range(3):
        events = sorted(
            (p[i, k], p[i, k] - (k == labels[i])) for i in np.flatnonzero(labels != without) for k in range(3)
        )
        residuals = [residual for _, residual in events]
        sums = [sum(residuals[max(0, i - 5) : i + 6]) / 11 for i in range(len(residuals))]
        losses.append(np.abs(sums).mean())

    def loss(at: np.ndarray) -> float:
        return _residual_loss(at.reshape(p.shape), labels, 11)[0]

    value, slope = _residual_loss(p, labels, 11)
    assert value == pytest.approx(np.mean(losses), rel=1e-12)
    assert slope.ravel() == pytest.approx(approx_fprime(p.ravel(), loss, 1e-10), rel=1e-4, abs=1e-6)


def test_each_segment_has_its_own_factor():
    logits = np.log([[0.9, 0.1]])  # -log p is .105, in the first of segments of length 2, and 2.303, in the second
    moved = HCalibration(np.r_[0.5, 2.0, np.ones(48)])(logits)
    assert moved == pytest.approx(log_softmax([[0.5 * np.log(0.9), 2 * np.log(0.1)]], axis=1))


@pytest.mark.parametrize("n", [300, 1300])  # one batch; three
def test_hcal_lowers_its_own_loss_and_draws_by_its_seed(n):
    logits, labels = simulated(n, 3)
    settings = HCalibrationSettings(window=51, epochs=15, batch=500)
    first, second = (fit_hcal(logits, labels, seed=1, settings=settings) for _ in range(2))
    assert (first.factors == second.factors).all()
    assert (first.factors > 0).all()
    values = log_softmax(logits, axis=1), first(logits)
    before, after = (_residual_loss(np.exp(of), labels, 51)[0] for of in values)
    assert after < before


def test_the_slope_of_the_loss_in_the_factors_is_that_of_finite_differences():
    logits, labels = simulated(60, 3)
    surprise = -floored(logits)
    segment = (surprise / 10).astype(int)  # ten segments

    rows, at = (surprise, segment, labels, 11), np.linspace(-0.5, 0.5, 10)
    expected = approx_fprime(at, lambda log_factors: _mapped_loss(log_factors, *rows)[0], 1e-9)
    assert _mapped_loss(at, *rows)[1] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("n_labels", [2, 5])
def test_smart_keeps_every_order_and_fits_better_than_nothing(n_labels):
    logits, labels = simulated(800, n_labels)
    fitted = fit_smart(logits, labels, seed=1)(logits)
    assert (np.argsort(fitted, axis=1) == np.argsort(logits, axis=1)).all()
    assert nll_of_rows(fitted, labels).mean() < nll_of_rows(log_softmax(logits, axis=1), labels).mean() - 0.1


@pytest.mark.parametrize("labels", [2, 4])
def test_the_gradient_of_the_log_loss_in_the_net_is_that_of_finite_differences(labels):
    parameters, x, generator = first_parameters(3), np.linspace(-2, 3, 17), np.random.default_rng(0)
    below = -generator.exponential(2, (labels, 17))
    below[0] = 0
    rows = x, below, below[generator.integers(labels, size=17), np.arange(17)]
    _, gradient = _summed_loss(parameters, *rows)
    assert gradient == pytest.approx(approx_fprime(parameters, lambda at: _summed_loss(at, *rows)[0], 1e-7), abs=1e-4)


@pytest.mark.parametrize(
    ("fit", "settings"), [(fit_smart, SmartSettings), (fit_hcal, HCalibrationSettings)], ids=["smart", "hcal"]
)
def test_patience_ends_a_fit_that_gains_nothing_and_the_best_epoch_is_kept(fit, settings, monkeypatch):
    (logits, labels), steps, step = simulated(200, 3), [], Adam.step
    monkeypatch.setattr(Adam, "step", lambda adam, gradient: steps.append(gradient) or step(adam, gradient))
    short, long = (
        fit(logits, labels, seed=1, settings=settings(epochs=epochs, learning_rate=5.0, patience=3))(logits)
        for epochs in (3, 1000)
    )
    assert 3 + 3 < len(steps) < 500
    if fit is fit_smart:  # whose loss is this one
        assert nll_of_rows(long, labels).mean() <= nll_of_rows(short, labels).mean()
