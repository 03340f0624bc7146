"""Descents: Newton's method for smooth convex objectives (Boyd and Vandenberghe, 2004, section 9.5), and Adam.

Adam (Kingma and Ba, 2015) is for calibrators with a handful of parameters, where starting torch outlasts the fit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

TOLERANCE = 1e-20  # of what a step promises to take off the objective, after which rounding has the last word
MAX_STEPS = 200
MAX_HALVINGS = 40

# parameters (P,) to value, gradient (P,) and Hessian (P, P)
Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def newton(
    objective: Objective, start: np.ndarray, least_eigenvalue: float, *, settled: float = TOLERANCE
) -> np.ndarray:
    """The parameters `(P,)` that minimise `objective`, searched from `start (P,)`.

    A step that promises to take no more than `settled` off the objective is the last. `least_eigenvalue > 0` is what no
    eigenvalue of the Hessian lies below but for rounding, such as that of a ridge.
    A step that does not take enough off the objective is halved, so beyond rounding it never rises.
    """
    parameters, (value, gradient, hessian) = start, objective(start)
    for _ in range(MAX_STEPS):
        eigenvalues, axes = np.linalg.eigh(hessian)
        step = -axes @ ((axes.T @ gradient) / np.maximum(eigenvalues, least_eigenvalue))
        promised = -float(gradient @ step)
        rounding = 4 * np.finfo(float).eps * max(1.0, abs(value))  # a sum of numbers near 1, however small it is
        for _ in range(MAX_HALVINGS):
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


@dataclass
class Adam:
    """The memory of one descent, with the published decay rates."""

    learning_rate: float
    count: int = 0
    first: np.ndarray | float = 0.0  # running mean of the gradient
    second: np.ndarray | float = 0.0  # and of its square

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """Slope of the loss in the parameters to what to add to them, of that shape."""
        self.count += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        spread = np.sqrt(self.second / (1 - 0.999**self.count)) + 1e-8
        return np.asarray(-self.learning_rate * self.first / (1 - 0.9**self.count) / spread)
