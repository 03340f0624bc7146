"""Log-softmax equals slow computations of the definition."""

import numpy as np
from scipy.special import log_softmax, softmax

from relmap.calibrators import identity
from relmap.calibrators.hcalibration import (
    HCalibration,
)
from relmap.calibrators.identity import Identity, fit_identity, floored_log_softmax

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [-4.0, -1.5, -2.0], [1.0, 1.25, 5.0]])


def test_uncalibrated_probabilities_are_a_softmax_with_a_floor():
    np.testing.assert_allclose(Identity()(LOGITS), log_softmax(LOGITS, axis=1), rtol=1e-14)
    extreme = np.array([[0.0, -1000.0], [800.0, 790.0]])
    np.testing.assert_allclose(Identity()(extreme), log_softmax(extreme, axis=1), rtol=1e-14)
    np.testing.assert_allclose(floored_log_softmax(extreme), np.log(softmax(extreme, axis=1) + 1e-12), atol=1e-15)
    assert identity.log_softmax(LOGITS.astype(np.float32)).dtype == np.float64
    assert fit_identity(LOGITS, np.zeros(4), seed=1) == Identity()


def test_mapping_of_earlier_maps_multiplies_by_the_factor_of_the_segment():
    logits = np.array([[0.0, -3.0, -500.0]])
    factors = np.linspace(0.5, 2, 40)
    log_p = floored_log_softmax(logits)[0]
    segments = [0, 1, 11]  # of width 2.5; the floor makes the last value 27.6
    expected = log_softmax(factors[segments] * log_p)
    np.testing.assert_allclose(HCalibration(factors)(logits)[0], expected, atol=1e-9)
