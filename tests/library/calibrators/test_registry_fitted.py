"""Properties that all fitted calibrators share."""

import numpy as np
import pytest

from relmap.calibrators.optimizers import newton
from relmap.calibrators.registry import CALIBRATORS, calibrators_with_role


def test_registry_lists_calibrators_by_role():
    assert calibrators_with_role("paper") == ("uncal", "ts", "diag", "spline", "hcal", "smart")
    assert calibrators_with_role("rival") == ("sms", "vector", "matrix")
    assert all(calibrator.fit.__name__.startswith("fit_") for calibrator in CALIBRATORS.values())


@pytest.mark.parametrize("start", [0.0, 0.5, 50.0])
def test_newton_finds_the_minimum_from_a_distant_start(start):
    def pseudo_huber(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Nearly linear far from the minimum, where a full step overshoots by the cube of the distance."""
        root = np.sqrt(1 + x**2)
        return float(root.sum()), x / root, np.diag(root**-3)

    np.testing.assert_allclose(newton(pseudo_huber, np.array([start, -start / 3]), 1e-12), 0, atol=1e-12)


def test_newton_never_increases_the_objective():
    # The gradient predicts a decrease that the loss does not have
    minimum = newton(lambda x: (float(np.abs(x).sum()), np.sign(x), np.eye(1) * 1e-3), np.array([0.3]), 1e-3)
    assert abs(minimum.item()) <= 0.3

    singular_minimum = newton(
        lambda x: (x[0] ** 2, np.array([2 * x[0], 0]), np.diag([2.0, 0])), np.array([3.0, 1]), 1e-6
    )
    assert singular_minimum == pytest.approx([0, 1])
