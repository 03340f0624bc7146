"""Optimizers: Newton's method for smooth convex objectives (Boyd and Vandenberghe, 2004, section 9.5), and Adam.

Adam (Kingma and Ba, 2015) takes arrays of NumPy, for calibrators with few parameters, and tensors of torch. Torch's own
Adam imports a compiler at its first step, which takes longer than all epochs of a fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-20  # predicted decrease of the objective at which Newton's method ends; rounding errors are larger
MAX_STEPS = 200
MAX_HALVINGS = 40
ARMIJO = 1e-4  # share of the predicted decrease that a step must achieve
# Adam's published decay rates and epsilon. A gain is 1 - decay; it is written out, since 1 - 0.9 is not 0.1 in floats.
FIRST_DECAY = 0.9
FIRST_GAIN = 0.1
SECOND_DECAY = 0.999
SECOND_GAIN = 0.001
EPSILON = 1e-8

Numbers = TypeVar("Numbers", np.ndarray, "torch.Tensor")
# parameters (P,) to value, gradient (P,) and Hessian (P, P)
Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def newton(
    objective: Objective, start: np.ndarray, min_eigenvalue: float, *, tolerance: float = TOLERANCE
) -> np.ndarray:
    """Minimize a smooth convex function by Newton's method with backtracking.

    A step that does not decrease the objective enough is halved, so the objective never rises by more than rounding.

    Args:
        objective: Returns value, gradient and Hessian at parameters of shape (P,).
        start: Starting point, shape (P,).
        min_eigenvalue: Positive lower bound of the eigenvalues of the Hessian, such as the weight of a ridge penalty.
            Eigenvalues that are lower because of rounding are raised to this bound.
        tolerance: The first step with at most this predicted decrease is the last step.

    Returns:
        Parameters at the minimum, shape (P,).
    """
    parameters = start
    value, gradient, hessian = objective(start)
    for _ in range(MAX_STEPS):
        step = _newton_step(gradient, hessian, min_eigenvalue)
        predicted_decrease = -float(gradient @ step)
        # rounding error of the value, which is a mean of numbers of about 1 or more
        rounding = 4 * np.finfo(float).eps * max(1.0, abs(value))
        for _ in range(MAX_HALVINGS):
            new_value, new_gradient, new_hessian = objective(parameters + step)
            if new_value <= value + ARMIJO * float(gradient @ step) + rounding:
                break
            step = step / 2
        else:  # no step decreases the value by more than its rounding error
            return parameters
        parameters = parameters + step
        value = new_value
        gradient = new_gradient
        hessian = new_hessian
        if predicted_decrease <= tolerance:
            break
    return parameters


def _newton_step(gradient: np.ndarray, hessian: np.ndarray, min_eigenvalue: float) -> np.ndarray:
    """Compute -H^-1 g with eigenvalues of H raised to `min_eigenvalue`."""
    eigenvalues, eigenvectors = np.linalg.eigh(hessian)
    step: np.ndarray = -eigenvectors @ ((eigenvectors.T @ gradient) / np.maximum(eigenvalues, min_eigenvalue))
    return step


@dataclass
class Adam(Generic[Numbers]):
    """State of one run of Adam with the published decay rates.

    Attributes:
        learning_rate: Learning rate.
        n_steps: Number of steps so far.
        first_moment: Running mean of the gradient; None before the first step.
        second_moment: Running mean of the squared gradient; None before the first step.
    """

    learning_rate: float
    n_steps: int = 0
    first_moment: Numbers | None = None
    second_moment: Numbers | None = None

    def step(self, gradient: Numbers) -> Numbers:
        """Compute the next step and update the state.

        Args:
            gradient: Gradient of the loss, an array or a tensor of any shape.

        Returns:
            Step to add to the parameters, of the same shape.
        """
        self.n_steps += 1
        squared = gradient**2
        if self.first_moment is None or self.second_moment is None:
            self.first_moment = FIRST_GAIN * gradient
            self.second_moment = SECOND_GAIN * squared
        else:
            self.first_moment = FIRST_DECAY * self.first_moment + FIRST_GAIN * gradient
            self.second_moment = SECOND_DECAY * self.second_moment + SECOND_GAIN * squared
        scale = (self.second_moment / (1 - SECOND_DECAY**self.n_steps)) ** 0.5 + EPSILON
        return -self.learning_rate * self.first_moment / (1 - FIRST_DECAY**self.n_steps) / scale
