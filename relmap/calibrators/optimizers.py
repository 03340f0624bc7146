"""Optimizers: Newton's method for smooth convex objectives (Boyd and Vandenberghe, 2004, section 9.5), and Adam.

Adam (Kingma and Ba, 2015) takes arrays of NumPy, for calibrators with few parameters, and tensors of torch. Torch's own
Adam imports a compiler at its first step, which takes longer than all epochs of a fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

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


class NewtonStep(NamedTuple):
    """Newton step at a point.

    Attributes:
        step: Change of the parameters, shape (P,).
        predicted_decrease: Decrease of the function per unit of the step size, to first order.
    """

    step: np.ndarray
    predicted_decrease: float


class Point(Protocol):
    """Point of a smooth convex function."""

    @property
    def value(self) -> float:
        """Value of the function."""

    def newton_step(self) -> NewtonStep:
        """Solve for the Newton step, -H^-1 g with the gradient g and the Hessian H."""


FoundPoint = TypeVar("FoundPoint", bound=Point)


def find_minimum(
    evaluate: Callable[[np.ndarray], FoundPoint], start: np.ndarray, *, tolerance: float = TOLERANCE
) -> FoundPoint:
    """Minimize a smooth convex function by Newton's method with backtracking.

    A step that does not decrease the function enough is halved, so the function never rises by more than rounding.

    Args:
        evaluate: Returns the point with given parameters, shape (P,).
        start: Starting point, shape (P,).
        tolerance: The first step with at most this predicted decrease is the last step.

    Returns:
        The minimum.
    """
    parameters = start
    point = evaluate(start)
    for _ in range(MAX_STEPS):
        step, predicted_decrease = point.newton_step()
        # rounding error of the value, which is a sum or mean of numbers of about 1 or more
        rounding = 4 * np.finfo(float).eps * max(1.0, abs(point.value))
        for halvings in range(MAX_HALVINGS):
            size = 0.5**halvings
            next_point = evaluate(parameters + size * step)
            if next_point.value <= point.value - ARMIJO * size * predicted_decrease + rounding:
                break
        else:  # no step decreases the value by more than its rounding error
            return point
        parameters = parameters + size * step
        point = next_point
        if predicted_decrease <= tolerance:
            break
    return point


class DensePoint(NamedTuple):
    """Point with a dense Hessian.

    Attributes:
        parameters: Shape (P,).
        value: Value of the function.
        gradient: Shape (P,).
        hessian: Shape (P, P).
        min_eigenvalue: Eigenvalues of the Hessian that are lower, because of rounding, are raised to this bound.
    """

    parameters: np.ndarray
    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    min_eigenvalue: float

    def newton_step(self) -> NewtonStep:
        """Solve for the Newton step.

        Returns:
            The step and its predicted decrease.
        """
        eigenvalues, eigenvectors = np.linalg.eigh(self.hessian)
        coordinates = (eigenvectors.T @ self.gradient) / np.maximum(eigenvalues, self.min_eigenvalue)
        step = -eigenvectors @ coordinates
        return NewtonStep(step, -float(self.gradient @ step))


def newton(
    objective: Objective, start: np.ndarray, min_eigenvalue: float, *, tolerance: float = TOLERANCE
) -> np.ndarray:
    """Minimize a smooth convex function with a dense Hessian.

    Args:
        objective: Returns value, gradient and Hessian at parameters of shape (P,).
        start: Starting point, shape (P,).
        min_eigenvalue: Positive lower bound of the eigenvalues of the Hessian, such as the weight of a ridge penalty.
        tolerance: See `find_minimum`.

    Returns:
        Parameters at the minimum, shape (P,).
    """

    def evaluate(parameters: np.ndarray) -> DensePoint:
        return DensePoint(parameters, *objective(parameters), min_eigenvalue)

    return find_minimum(evaluate, start, tolerance=tolerance).parameters


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
