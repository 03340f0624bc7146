"""Descents: Newton's method for smooth convex objectives (Boyd and Vandenberghe, 2004, section 9.5), and Adam.

Adam (Kingma and Ba, 2015) takes arrays of NumPy, for calibrators with few parameters, and tensors of torch. Torch's own
loads a compiler at its first step, which takes longer than all epochs of a fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

SETTLED = 1e-20  # of what a step promises to take off the objective, after which rounding has the last word
MOST_STEPS = 200
MOST_HALVINGS = 40

Numbers = TypeVar("Numbers", np.ndarray, "torch.Tensor")
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


@dataclass
class Adam(Generic[Numbers]):
    """Adam with the published decay rates, and the state of one descent.

    Attributes:
        learning_rate: Factor of each step.
        count: Number of steps so far.
        first: Running mean of the gradient; None before the first step.
        second: Running mean of the squared gradient.
    """

    learning_rate: float
    count: int = 0
    first: Numbers | None = None
    second: Numbers | None = None

    def step(self, gradient: Numbers) -> Numbers:
        """Compute the change of the parameters for one step.

        Args:
            gradient: Gradient of the loss, an array or a tensor of any shape.

        Returns:
            What to add to the parameters, of the same shape.
        """
        self.count += 1
        squared = gradient**2
        self.first = 0.1 * gradient if self.first is None else 0.9 * self.first + 0.1 * gradient
        self.second = 0.001 * squared if self.second is None else 0.999 * self.second + 0.001 * squared
        spread = (self.second / (1 - 0.999**self.count)) ** 0.5 + 1e-8
        return -(self.learning_rate * (self.first / (1 - 0.9**self.count)) / spread)
