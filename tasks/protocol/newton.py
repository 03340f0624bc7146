"""Newton's method (Boyd and Vandenberghe, 2004, section 9.5) for smooth convex objectives of a few parameters."""

from collections.abc import Callable

import numpy as np

SETTLED = 1e-20  # of what a step promises to take off the objective, after which rounding has the last word
MOST_STEPS = 200
MOST_HALVINGS = 40

# parameters (P,) to value, gradient (P,) and Hessian (P, P)
Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def newton(objective: Objective, start: np.ndarray, least_eigenvalue: float, *, settled: float = SETTLED) -> np.ndarray:
    """The parameters `(P,)` that minimise `objective`, searched from `start (P,)`.

    A step that promises to take no more than `settled` off the objective is the last. `least_eigenvalue > 0` is what no
    eigenvalue of the Hessian lies below but for rounding, such as that of a ridge.
    A step that does not take enough off the objective is halved, so beyond rounding it never rises.
    """
    parameters, (value, gradient, hessian) = start, objective(start)
    for _ in range(MOST_STEPS):
        eigenvalues, axes = np.linalg.eigh(hessian)
        step = -axes @ ((axes.T @ gradient) / np.maximum(eigenvalues, least_eigenvalue))
        promised = -float(gradient @ step)
        rounding = 4 * np.finfo(float).eps * max(1.0, abs(value))  # a sum of numbers near 1, however small it is
        for _ in range(MOST_HALVINGS):
            new_value, new_gradient, new_hessian = objective(parameters + step)
            if new_value <= value + 1e-4 * float(gradient @ step) + rounding:
                break
            step = step / 2
        else:
            break
        parameters, value, gradient, hessian = parameters + step, new_value, new_gradient, new_hessian
        if promised <= settled:
            break
    return parameters
