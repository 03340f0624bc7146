"""Newton steps of the pooled lines, compared with dense matrices."""

import numpy as np
import pytest

from relmap.projection.pooled import NewtonSystem


def make_system(n_shared: int, n_by_label: int, n_labels: int) -> tuple[NewtonSystem, np.ndarray, np.ndarray]:
    """Make a system, with its dense Hessian and gradient: shared coefficients first, then each label's."""
    generator = np.random.default_rng(n_shared + 10 * n_by_label)
    size = n_shared + n_labels * n_by_label
    root = generator.normal(size=(size, size))
    hessian = root @ root.T + size * np.eye(size)
    blocks = [slice(n_shared + k * n_by_label, n_shared + (k + 1) * n_by_label) for k in range(n_labels)]
    for first in blocks:
        for second in blocks:
            if first != second:
                hessian[first, second] = 0
    gradient = generator.normal(size=size)
    system = NewtonSystem(
        shared_gradient=gradient[:n_shared],
        label_gradient=np.stack([gradient[block] for block in blocks]),
        shared_hessian=hessian[:n_shared, :n_shared],
        cross_hessian=np.stack([hessian[:n_shared, block] for block in blocks]),
        label_hessian=np.stack([hessian[block, block] for block in blocks]),
    )
    return system, hessian, gradient


@pytest.mark.parametrize(("n_shared", "n_by_label", "n_labels"), [(2, 2, 3), (4, 1, 5), (1, 3, 1)])
def test_the_step_solves_the_dense_system(n_shared, n_by_label, n_labels):
    system, hessian, gradient = make_system(n_shared, n_by_label, n_labels)
    step = system.solve()
    expected = -np.linalg.solve(hessian, gradient)
    np.testing.assert_allclose(step.step, expected, rtol=1e-10)
    assert step.predicted_decrease == pytest.approx(-gradient @ expected)
    assert step.predicted_decrease > 0


@pytest.mark.parametrize(("n_shared", "n_by_label", "n_labels"), [(2, 2, 3), (4, 1, 5)])
def test_the_log_determinant_equals_the_dense_computation(n_shared, n_by_label, n_labels):
    system, hessian, _ = make_system(n_shared, n_by_label, n_labels)
    assert system.log_determinant() == pytest.approx(np.linalg.slogdet(hessian)[1])
