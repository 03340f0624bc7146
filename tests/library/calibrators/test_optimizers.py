"""Newton's method and Adam by their definitions."""

import numpy as np
import pytest

from relmap.calibrators import optimizers
from relmap.calibrators.optimizers import Adam, newton

Derivatives = tuple[float, np.ndarray, np.ndarray]


class Recorded:
    """Objective that records the points at which it is evaluated."""

    def __init__(self, derivatives) -> None:
        self.derivatives = derivatives
        self.points: list[float] = []

    def __call__(self, x: np.ndarray) -> Derivatives:
        self.points.append(float(x[0]))
        return self.derivatives(x)


def quadratic(x: np.ndarray) -> Derivatives:
    return float(2 * (x[0] - 3) ** 2), np.array([4 * (x[0] - 3)]), np.array([[4.0]])


def pseudo_huber(x: np.ndarray) -> Derivatives:
    root = float(np.sqrt(1 + x[0] ** 2))
    return root, np.array([x[0] / root]), np.array([[root**-3]])


def test_one_step_minimizes_a_quadratic_function_and_another_one_confirms_it():
    objective = Recorded(quadratic)
    assert newton(objective, np.array([-5.0]), 1e-9).tolist() == [3]
    assert objective.points == [-5, 3, 3]


@pytest.mark.parametrize(("tolerance", "n_points"), [(255.9, 3), (256.0, 2), (1e6, 2)])
def test_the_last_step_has_at_most_the_predicted_decrease_of_the_tolerance(tolerance, n_points):
    """The first step is 8, at a gradient of -32: the predicted decrease is 256."""
    objective = Recorded(quadratic)
    newton(objective, np.array([-5.0]), 1e-9, tolerance=tolerance)
    assert len(objective.points) == n_points


def test_a_step_is_halved_until_the_objective_decreases_enough():
    objective = Recorded(pseudo_huber)
    newton(objective, np.array([2.0]), 1e-9)
    full_step = -2 * 5  # -gradient / Hessian = -x (1 + x²)
    tried = [2 + full_step * 0.5**halvings for halvings in range(3)]
    assert objective.points[:4] == pytest.approx([2, *tried])
    values = [pseudo_huber(np.array([point]))[0] for point in tried]
    predicted_decrease = 10 * 2 / np.sqrt(5)  # of the full step: its length times the gradient
    limits = [np.sqrt(5) - 1e-4 * 0.5**halvings * predicted_decrease for halvings in range(3)]
    assert [value <= limit for value, limit in zip(values, limits, strict=True)] == [False, False, True]


def test_a_decrease_below_a_share_of_the_predicted_one_is_not_enough():
    """A step of 1 decreases the objective by 0.9 or 1.1 times the required part of the predicted decrease of 1."""
    for share, is_accepted in ((0.9, False), (1.1, True)):

        def objective(x: np.ndarray, decrease: float = share * 1e-4) -> Derivatives:
            value = 1 - decrease if x[0] == 1 else 1.0 + 1e-3 * (x[0] != 0)
            return value, np.array([-1.0]), np.eye(1)

        found = newton(objective, np.zeros(1), 1e-9, tolerance=10)
        assert found.tolist() == ([1.0] if is_accepted else [0.0])


def test_the_search_along_a_step_ends_after_40_halvings():
    objective = Recorded(lambda x: (float(x[0] != 0), np.array([-1.0]), np.eye(1)))
    assert newton(objective, np.zeros(1), 1e-9).tolist() == [0]
    assert objective.points == [0, *[0.5**halvings for halvings in range(40)]]


def test_the_number_of_steps_is_limited(monkeypatch):
    monkeypatch.setattr(optimizers, "MAX_STEPS", 7)
    objective = Recorded(lambda x: (-float(x[0]), np.array([-1.0]), np.eye(1)))
    assert newton(objective, np.zeros(1), 1e-9).tolist() == [7]


@pytest.mark.parametrize(("curvature", "step"), [(1e-3, 2.0), (0.25, 2.0), (0.5, 2.0), (0.8, 1.25), (-3.0, 2.0)])
def test_curvatures_below_the_bound_are_raised_to_it(curvature, step):
    objective = Recorded(lambda x: (-float(x[0]), np.array([-1.0]), np.array([[curvature]])))
    newton(objective, np.zeros(1), 0.5, tolerance=1e9)
    assert objective.points == pytest.approx([0, step])


def test_steps_solve_the_system_of_equations():
    hessian = np.array([[4.0, 1.0], [1.0, 0.5]])
    minimum = np.array([1.5, -2.0])

    def objective(x: np.ndarray) -> Derivatives:
        distance = x - minimum
        return float(distance @ hessian @ distance) / 2, hessian @ distance, hessian

    np.testing.assert_allclose(newton(objective, np.array([7.0, 9.0]), 1e-9), minimum, atol=1e-12)


def test_adam_takes_the_published_steps():
    gradients = [np.array([2.0, -0.5]), np.array([-1.0, 0.25]), np.array([0.5, 3.0])]
    adam = Adam(learning_rate=0.125)
    first = np.zeros(2)
    second = np.zeros(2)
    for number, gradient in enumerate(gradients, start=1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        unbiased_first = first / (1 - 0.9**number)
        unbiased_second = second / (1 - 0.999**number)
        expected = -0.125 * unbiased_first / (np.sqrt(unbiased_second) + 1e-8)
        np.testing.assert_allclose(adam.step(gradient), expected, rtol=1e-12)
        assert adam.n_steps == number


def test_adam_does_not_divide_by_zero():
    assert Adam(learning_rate=0.5).step(np.zeros(2)).tolist() == [0, 0]
    tiny = Adam(learning_rate=1.0).step(np.array([1e-8]))
    assert tiny == pytest.approx(-0.5)


@pytest.mark.parametrize("value", [1e-3, 1.0, -1e6])
@pytest.mark.parametrize(("n_roundings", "is_accepted"), [(3, True), (5, False)])
def test_an_increase_by_rounding_is_accepted(value, n_roundings, is_accepted):
    """Values have rounding errors of about the machine epsilon, relative to 1 or to the value if it is larger."""
    increase = n_roundings * np.finfo(float).eps * max(1, abs(value))

    def objective(x: np.ndarray) -> Derivatives:
        return value + increase * (x[0] != 0), np.array([-1e-14]), np.array([[1e-14]])

    found = newton(objective, np.zeros(1), 1e-20, tolerance=1)
    assert found.tolist() == ([pytest.approx(1)] if is_accepted else [0])
