"""Newton's method (Boyd and Vandenberghe, 2004, section 9.5) for smooth convex losses of a few parameters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SETTLED = 1e-20  # of what a step promises to take off the loss, after which rounding has the last word
MOST_STEPS = 200
MOST_HALVINGS = 40

Loss = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]  # parameters (P,) to value, slope (P,), Hessian


def newton(loss: Loss, start: np.ndarray, least_curvature: float) -> np.ndarray:
    """The parameters `(P,)` that minimise `loss`, which gives value, slope `(P,)` and Hessian `(P, P)`.

    `least_curvature > 0` is what no eigenvalue of the Hessian lies below but for rounding, such as that of a ridge.
    A step that does not take enough off the loss is halved, so beyond rounding the loss never rises.
    """
    parameters, (value, slope, hessian) = start, loss(start)
    for _ in range(MOST_STEPS):
        curvature, axes = np.linalg.eigh(hessian)
        step = -axes @ ((axes.T @ slope) / np.maximum(curvature, least_curvature))
        promised = -float(slope @ step)
        rounding = 4 * np.finfo(float).eps * max(1.0, abs(value))  # a sum of numbers near 1, however small it is
        for _ in range(MOST_HALVINGS):
            new_value, new_slope, new_hessian = loss(parameters + step)
            if new_value <= value + 1e-4 * float(slope @ step) + rounding:
                break
            step = step / 2
        else:
            break
        parameters, value, slope, hessian = parameters + step, new_value, new_slope, new_hessian
        if promised <= SETTLED:
            break
    return parameters
