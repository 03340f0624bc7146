"""Fits of the calibrators beside other libraries' fits on the same rows."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit, softmax

from relmap.calibrators.hcalibration import HCalibrationSettings, fit_hcal
from relmap.calibrators.identity import floored_log_softmax
from relmap.calibrators.smart import N_HIDDEN, SmartSettings, fit_smart, initial_parameters
from relmap.calibrators.temperature import fit_temperature
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.whole_vector import fit_whole_vector
from tests.bench.conftest import ON_ONE_CORE_TOO
from tests.fits import simulate_logits_and_labels
from tests.torch_fits import minimize_with_adam

pytestmark = [pytest.mark.bench, pytest.mark.filterwarnings("default")]  # peers warn of what is theirs
ROWS, K, FITS = 8000, 5, 18
ALONE = f"one at a time, torch autograd (1 of them, times {FITS})"


@ON_ONE_CORE_TOO
def test_temperature(race):
    from netcal.scaling import TemperatureScaling
    from sklearn.calibration import _TemperatureScaling  # what its CalibratedClassifierCV fits

    logits, labels = simulate_logits_and_labels(ROWS, K)
    few, probabilities = simulate_logits_and_labels(ROWS // 10, K), softmax(logits, axis=1)

    def netcal() -> float:
        """What it calls the temperature is the factor of the logits."""
        return TemperatureScaling(detection=False).fit(probabilities, labels).temperature[0]

    race.beside("scikit-learn", lambda: _TemperatureScaling().fit(logits, labels).beta_, aim=2)
    race.beside("netcal", netcal, aim=2)
    race.growth(lambda: fit_temperature(*few, seed=0))
    race.floor(lambda: np.exp(logits).sum())  # one exponential of each logit
    ours, scikit_learns, netcals, _ = race.run(
        "temperature", ROWS, lambda: fit_temperature(logits, labels, seed=0), rounds=10
    )
    np.testing.assert_allclose(ours.beta, scikit_learns, rtol=1e-6)
    np.testing.assert_allclose(ours.beta, netcals, rtol=1e-4)  # it stops earlier


@ON_ONE_CORE_TOO
def test_whole_vector(race):
    from probmetrics.calibrators import SMSCalibrator  # of the method's authors

    logits, labels = simulate_logits_and_labels(ROWS, K)
    few, probabilities = simulate_logits_and_labels(ROWS // 10, K), softmax(logits, axis=1)
    race.beside("probmetrics", lambda: SMSCalibrator().fit(probabilities, labels).predict_proba(probabilities), aim=2)
    race.growth(lambda: fit_whole_vector(*few))
    race.floor(lambda: np.exp(logits).sum())  # one exponential of each logit
    fitted, theirs, _ = race.run("whole vector", ROWS, lambda: fit_whole_vector(logits, labels))
    decision, row = logits.argmax(axis=1), np.arange(ROWS)
    reliability = expit(fitted(CalibratedDecisions(np.zeros(ROWS), decision, None, logits)))
    assert np.abs(reliability - theirs[row, decision]).mean() < 0.02  # ours is weighed against temperature


def beside_autograd(race, operation: str, fit: Callable, autograd: Callable, **of_few: object):
    """The rows of the first of all fits, its value, and what autograd makes of it."""
    sets, few = ([simulate_logits_and_labels(rows, K, seed) for seed in range(FITS)] for rows in (ROWS, ROWS // 10))
    autograd(*few[0])  # what torch loads at the first step
    race.beside(ALONE, lambda: autograd(*sets[0]), aim=5, times=FITS)
    race.growth(lambda: [fit(*own, seed=0, **of_few) for own in few])
    ours, theirs, _ = race.run(
        operation, FITS * ROWS, lambda: [fit(*own, seed=0) for own in sets], rounds=1, warm_up=False
    )
    return sets[0], ours[0], theirs


def test_smart(race):
    (logits, labels), fitted, theirs = beside_autograd(race, "SMART, 18 fits", fit_smart, autograd_smart)
    assert -fitted(logits)[np.arange(ROWS), labels].mean() <= theirs + 1e-9


def autograd_smart(logits: np.ndarray, labels: np.ndarray) -> float:
    """SMART as one would write it, with the same start and steps, to the mean log loss after the last one."""
    import torch
    from torch.nn.functional import cross_entropy, relu, softplus

    torch.set_num_threads(1)  # two are slower at this size
    z, target = torch.from_numpy(floored_log_softmax(logits)), torch.from_numpy(labels)
    margin = -z.topk(2).values.diff()
    at = (margin - margin.mean()) / margin.std(correction=0)

    def loss(parameters: torch.Tensor) -> torch.Tensor:
        first, two, three, four, five, six = parameters.split([N_HIDDEN, N_HIDDEN, N_HIDDEN**2, N_HIDDEN, N_HIDDEN, 1])
        second = relu(relu(at * first + two) @ three.reshape(N_HIDDEN, N_HIDDEN).T + four)
        return cross_entropy(z / (softplus(second @ five + six) + 0.1)[:, None], target)

    return loss(minimize_with_adam(initial_parameters(0), loss, SmartSettings())).item()


def test_hcal(race):
    in_as_many_batches = HCalibrationSettings(batch=HCalibrationSettings().batch // 10)
    _, fitted, theirs = beside_autograd(race, "h-cal, 18 fits", fit_hcal, autograd_hcal, settings=in_as_many_batches)
    np.testing.assert_allclose(fitted.factors, theirs, atol=1e-5)


def autograd_hcal(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """h-cal as one would write it, with the same steps and rules, to its factors."""
    import torch

    torch.set_num_threads(1)  # two are slower at this size
    chosen, surprise, y = (
        HCalibrationSettings(),
        torch.from_numpy(-floored_log_softmax(logits)),
        torch.from_numpy(labels),
    )
    segment = (surprise * chosen.segments / 100).long().clamp(max=chosen.segments - 1)
    generator, log_factors = np.random.default_rng(0), torch.zeros(chosen.segments, dtype=torch.float64)
    descent = torch.optim.Adam([log_factors.requires_grad_()], lr=chosen.learning_rate)

    def loss_of(rows: slice | np.ndarray) -> torch.Tensor:
        p = (-log_factors.exp()[segment[rows]] * surprise[rows]).softmax(dim=1)
        of = y[rows]
        return torch.stack([average_of(p[of != left], of[of != left], chosen) for left in range(K)]).mean()

    best, lowest, stale = None, np.inf, 0
    for _ in range(chosen.epochs + 1):
        with torch.no_grad():
            loss = loss_of(slice(None)).item()
        stale = 0 if loss < lowest else stale + 1
        if stale == 0:
            best, lowest = log_factors.detach().exp().numpy(), loss
        elif stale > chosen.patience:
            break
        order = generator.permutation(len(logits))
        for rows in np.split(order, range(chosen.batch, len(order), chosen.batch)):
            descent.zero_grad()
            loss_of(rows).backward()
            descent.step()
    return best


def average_of(p, y, chosen: HCalibrationSettings):
    """Probabilities `(n, K)` and labels `(n,)` of torch to the mean absolute moving average of their residuals."""
    import torch

    order = p.flatten().argsort(stable=True)
    residual = (p - torch.nn.functional.one_hot(y, K)).flatten()[order]
    half = (min(chosen.window, len(residual) // 5) - 1) // 2
    total = torch.nn.functional.pad(residual, (half + 1, half)).cumsum(dim=0)
    return ((total[2 * half + 1 :] - total[: -2 * half - 1]) / (2 * half + 1)).abs().mean()
