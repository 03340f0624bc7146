"""Fits of the calibrators compared with other libraries on the same rows."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax

from benchmarks.conftest import ON_ONE_CORE_TOO
from relmap.calibrators.hcalibration import HCalibrationSettings, fit_hcal
from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.calibrators.smart import N_HIDDEN, SmartSettings, fit_smart, initial_parameters
from relmap.calibrators.structured import fit_sms
from relmap.calibrators.temperature import fit_temperature
from tests.fits import simulate_logits_and_labels
from tests.torch_fits import minimize_with_adam

pytestmark = pytest.mark.filterwarnings("default")  # other libraries emit warnings
K = 5
FITS = 18
ROWS = (8000, 400)  # measured, and in a quick run
ONE_AT_A_TIME = f"one at a time, torch autograd (1 of them, times {FITS})"


@ON_ONE_CORE_TOO
def test_temperature(comparison, size):
    from netcal.scaling import TemperatureScaling
    from sklearn.calibration import _TemperatureScaling  # what its CalibratedClassifierCV fits

    rows = size(*ROWS)
    logits, labels = simulate_logits_and_labels(rows, K)
    tenth = simulate_logits_and_labels(rows // 10, K)
    probabilities = softmax(logits, axis=1)

    def netcal() -> float:
        """Return the factor of the logits, which netcal calls the temperature."""
        return TemperatureScaling(detection=False).fit(probabilities, labels).temperature[0]

    comparison.add_alternative("scikit-learn", lambda: _TemperatureScaling().fit(logits, labels).beta_)
    comparison.add_alternative("netcal", netcal)
    comparison.add_growth(lambda: fit_temperature(*tenth, seed=0))
    comparison.add_floor(lambda: np.exp(logits).sum())  # one exponential of each logit
    fitted, scikit_learn_beta, netcal_beta, _ = comparison.run(
        "temperature", rows, lambda: fit_temperature(logits, labels, seed=0), rounds=10
    )

    np.testing.assert_allclose(fitted.beta, scikit_learn_beta, rtol=1e-6)
    np.testing.assert_allclose(fitted.beta, netcal_beta, rtol=1e-4)  # it stops earlier


@ON_ONE_CORE_TOO
def test_structured_matrix_scaling(comparison, size):
    from probmetrics.calibrators import SMSCalibrator  # of the method's authors

    rows = size(*ROWS)
    logits, labels = simulate_logits_and_labels(rows, K)
    tenth = simulate_logits_and_labels(rows // 10, K)
    probabilities = softmax(logits, axis=1)
    comparison.add_alternative(
        "probmetrics", lambda: SMSCalibrator().fit(probabilities, labels).predict_proba(probabilities)
    )
    comparison.add_growth(lambda: fit_sms(*tenth, seed=0))
    comparison.add_floor(lambda: np.exp(logits).sum())  # one exponential of each logit
    fitted, reference, _ = comparison.run("structured matrix scaling", rows, lambda: fit_sms(logits, labels, seed=0))

    if comparison.is_full:  # with few rows they differ more: relmap averages it with temperature scaling
        assert np.abs(np.exp(fitted(logits)) - reference).mean() < 0.02


def compare_with_autograd(
    comparison, rows: int, operation: str, fit: Callable, autograd: Callable, **tenth_options: object
):
    """Compare all fits with one fit by autograd; return the rows and result of the first fit and that of autograd."""
    sets = [simulate_logits_and_labels(rows, K, seed) for seed in range(FITS)]
    tenths = [simulate_logits_and_labels(rows // 10, K, seed) for seed in range(FITS)]
    autograd(*tenths[0])  # torch loads code at the first step
    comparison.add_alternative(ONE_AT_A_TIME, lambda: autograd(*sets[0]), times=FITS)
    comparison.add_growth(lambda: [fit(*data, seed=0, **tenth_options) for data in tenths])
    fitted, reference, _ = comparison.run(
        operation, FITS * rows, lambda: [fit(*data, seed=0) for data in sets], rounds=1, warm_up=False
    )
    return sets[0], fitted[0], reference


def test_smart(comparison, size):
    (logits, labels), fitted, reference = compare_with_autograd(
        comparison, size(*ROWS), "SMART, 18 fits", fit_smart, autograd_smart
    )
    # the release keeps the network of its best epoch after a further step, which can raise the loss a little
    assert -fitted(logits)[np.arange(len(labels)), labels].mean() <= reference + 1e-4


def autograd_smart(logits: np.ndarray, labels: np.ndarray) -> float:
    """Fit SMART with autograd from the same start, and return the mean log loss after the last step."""
    import torch
    from torch.nn.functional import cross_entropy, relu, softplus

    torch.set_num_threads(1)  # two are slower at this size
    z = torch.from_numpy(floored_log_softmax(logits))
    target = torch.from_numpy(labels)
    margin = -z.topk(2).values.diff()
    standardized_margin = (margin - margin.mean()) / margin.std(correction=0)

    def loss(parameters: torch.Tensor) -> torch.Tensor:
        first, two, three, four, five, six = parameters.split([N_HIDDEN, N_HIDDEN, N_HIDDEN**2, N_HIDDEN, N_HIDDEN, 1])
        second = relu(relu(standardized_margin * first + two) @ three.reshape(N_HIDDEN, N_HIDDEN).T + four)
        return cross_entropy(z / (softplus(second @ five + six) + 0.1)[:, None], target)

    return loss(minimize_with_adam(initial_parameters(0), loss, SmartSettings())).item()


def test_hcal(comparison, size):
    tenth_settings = HCalibrationSettings(batch=HCalibrationSettings().batch // 10)
    _, fitted, reference = compare_with_autograd(
        comparison, size(*ROWS), "h-cal, 18 fits", fit_hcal, autograd_hcal, settings=tenth_settings
    )
    np.testing.assert_allclose(np.append(fitted.first_slope, fitted.factors), reference, atol=1e-5)


def autograd_hcal(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Fit h-cal with autograd and the same steps and rules, and return its slopes."""
    import torch

    torch.set_num_threads(1)  # two are slower at this size
    chosen = HCalibrationSettings()
    surprise = torch.from_numpy(-log_softmax(floored_log_softmax(logits)))
    y = torch.from_numpy(labels)
    width = 100 / chosen.segments
    segment = (surprise / width).long()  # no event is beyond the last segment
    generator = np.random.default_rng(0)
    slopes = torch.ones(chosen.segments + 1, dtype=torch.float64)
    descent = torch.optim.Adam([slopes.requires_grad_()], lr=chosen.learning_rate)

    def loss_of(rows: slice | np.ndarray) -> torch.Tensor:
        magnitudes = slopes.abs()
        offset = width * (magnitudes.cumsum(dim=0) - 1)[segment[rows]]
        mapped = offset + magnitudes[segment[rows] + 1] * (surprise[rows] - offset)
        p = (-mapped).softmax(dim=1)
        labels_of_rows = y[rows]
        return (
            1e5
            * torch.stack(
                [
                    mean_moving_average(
                        p[labels_of_rows != excluded], labels_of_rows[labels_of_rows != excluded], chosen
                    )
                    for excluded in range(K)
                ]
            ).mean()
        )

    best = None
    lowest = np.inf
    stale = 0
    for _ in range(chosen.epochs):
        order = generator.permutation(len(logits))
        for rows in np.split(order, range(chosen.batch, len(order), chosen.batch)):
            descent.zero_grad()
            loss_of(rows).backward()
            descent.step()
        with torch.no_grad():
            loss = loss_of(slice(None)).item()
        stale = 0 if loss < lowest else stale + 1
        if stale == 0:
            best = slopes.detach().abs().clone().numpy()
            lowest = loss
        elif stale == chosen.patience:
            break
    return best


def mean_moving_average(p, y, chosen: HCalibrationSettings):
    """Return the mean absolute moving average of the residuals of probabilities (n, K) and labels (n,)."""
    import torch

    order = p.flatten().argsort(stable=True)
    residual = (p - torch.nn.functional.one_hot(y, K)).flatten()[order]
    half = (chosen.window - 1) // 2
    total = torch.nn.functional.pad(residual, (half + 1, half)).cumsum(dim=0)
    return ((total[2 * half + 1 :] - total[: -2 * half - 1]) / (2 * half + 1)).abs().mean()
