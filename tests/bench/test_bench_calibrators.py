"""Fits of the calibrators beside other libraries' fits on the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from tasks.calibrators.temperature import fit_temperature

pytestmark = [
    pytest.mark.bench,
    pytest.mark.filterwarnings("default"),  # peers warn of what is theirs
]
ROWS, K = 8000, 5


def made_up() -> tuple[np.ndarray, np.ndarray]:
    """Logits `(n, K)` that are half as large again as they should be, and labels `(n,)`."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(ROWS, K)) * 2
    return 1.5 * logits, (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)


def slope(beta: float, logits: np.ndarray, labels: np.ndarray) -> float:
    """Of the mean log loss in beta."""
    said = (softmax(beta * logits, axis=1) * logits).sum(axis=1)
    return float((said - logits[np.arange(len(labels)), labels]).mean())


def test_temperature(race):
    from sklearn.calibration import _TemperatureScaling  # what its CalibratedClassifierCV fits

    logits, labels = made_up()
    race.beside("scikit-learn", lambda: _TemperatureScaling().fit(logits, labels).beta_, aim=2)
    race.floor(lambda: np.exp(logits).sum())  # one exponential of each logit
    ours, theirs = race.run("temperature", ROWS, lambda: fit_temperature(logits, labels, seed=0), rounds=30)
    assert abs(slope(ours.beta, logits, labels)) < 1e-10
    np.testing.assert_allclose(ours.beta, theirs, rtol=1e-6)


def test_temperature_beside_netcal(race):
    from netcal.scaling import TemperatureScaling

    logits, labels = made_up()
    probabilities = softmax(logits, axis=1)

    def netcal() -> float:
        """What it calls the temperature is the factor of the logits."""
        return TemperatureScaling(detection=False).fit(probabilities, labels).temperature[0]

    race.beside("netcal", netcal, aim=2)
    ours, theirs = race.run("temperature", ROWS, lambda: fit_temperature(logits, labels, seed=0), rounds=10)
    np.testing.assert_allclose(ours.beta, theirs, rtol=1e-4)  # it stops earlier
