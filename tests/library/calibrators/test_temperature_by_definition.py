"""Temperature scaling equals slow computations of the definition."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from relmap.calibrators.temperature import LOG_BETA_BOUNDS, Temperature, _find_root, fit_temperature
from tests.fits import simulate_logits_and_labels


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
