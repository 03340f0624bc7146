"""Parts of the search for the optimum of the lattice."""

import numpy as np
import pytest

from relmap.projection.mrp_exact import Bounds, NewtonState, _decreases_enough, _newton_direction

BOUNDS = Bounds(lower=np.array([-np.inf, 1.0, 1.0]), upper=np.array([np.inf, 5.0, 5.0]))


def test_variables_are_projected_on_their_bounds():
    theta = np.array([[-9.0, 0.5, 7.0], [9.0, 3.0, 1.0]])
    np.testing.assert_array_equal(BOUNDS.project(theta), [[-9, 1, 5], [9, 3, 1]])
    gradient = np.array([[0.25, 3.0, -0.5], [-0.125, 0.0, -9.0]])
    inside = BOUNDS.project(theta)
    np.testing.assert_allclose(BOUNDS.kkt_residual(inside, gradient), [0.25, 4.0])


@pytest.mark.parametrize(
    ("theta", "gradient", "kkt_residual", "free"),
    [
        ((0.0, 3.0, 3.0), (1.0, 2.0, -1.0), 0.5, (True, True, True)),
        ((0.0, 1.0, 3.0), (1.0, 2.0, -1.0), 0.5, (True, False, True)),
        ((0.0, 1.0, 3.0), (1.0, -2.0, -1.0), 0.5, (True, True, True)),
        ((0.0, 3.0, 5.0), (1.0, 2.0, -1.0), 0.5, (True, True, False)),
        ((0.0, 3.0, 5.0), (1.0, 2.0, 1.0), 0.5, (True, True, True)),
        ((0.0, 1.0009, 4.9992), (1.0, 2.0, -1.0), 0.5, (True, False, False)),
        ((0.0, 1.0011, 4.9988), (1.0, 2.0, -1.0), 0.5, (True, True, True)),
        ((0.0, 1.0004, 4.9997), (1.0, 2.0, -1.0), 0.00025, (True, True, True)),
        ((0.0, 1.0002, 4.9999), (1.0, 2.0, -1.0), 0.00025, (True, False, False)),
    ],
)
def test_variables_at_a_bound_take_a_scaled_gradient_step(theta, gradient, kkt_residual, free):
    """At a bound: the gradient pushes the variable there, and it is within 0.001 and within the KKT residual."""
    hessian = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
    direction = _newton_direction(
        np.array([theta]), np.array([gradient]), hessian[None], np.array([kkt_residual]), BOUNDS
    )[0]
    is_free = np.array(free)
    expected = -np.array(gradient) / np.diagonal(hessian)
    expected[is_free] = -np.linalg.solve(hessian[np.ix_(is_free, is_free)], np.array(gradient)[is_free])
    np.testing.assert_allclose(direction, expected, rtol=1e-10)


def test_an_objective_must_decrease_by_a_share_of_the_prediction_up_to_rounding():
    state = NewtonState(
        theta=np.array([[1.0, 2.0], [9.0, 9.0], [3.0, 1.0]]),
        objective=np.array([0.5, 9.0, 0.5]),
        gradient=np.array([[2.0, 4.0], [9.0, 9.0], [1.0, 0.0]]),
        direction=np.zeros((3, 2)),
        step_size=np.ones(3),
        kkt_residual=np.ones(3),
    )
    problems = np.array([0, 2])
    trial = np.array([[0.5, 1.5], [4.0, 1.0]])  # predicted decreases of 3 and -1
    limits = np.array([0.5 - 3e-4, 0.5])
    assert _decreases_enough(state, problems, trial, limits + 2e-15).tolist() == [True, True]
    assert _decreases_enough(state, problems, trial, limits + 6e-15).tolist() == [False, False]
