"""MRP in plain torch: its objective, automatic gradients and Adam. Tests compare the library with it."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, softplus
from torch.optim.adam import adam

from relmap.projection.mrp import FitRows, initial_curve
from relmap.settings import ProjectionParams
from tests.fits import interpolation_weights

torch.set_num_threads(1)  # at these sizes a second thread costs ten times what it saves

Objective = Callable[[torch.Tensor], torch.Tensor]


def make_objective(rows: FitRows, n_knots: int, smoothness: float) -> Objective:
    """Build MRP's objective, a function of curve values of shape (n_labels, n_knots) (paper, section 3.4)."""
    weight = torch.from_numpy(interpolation_weights(rows[0], n_knots))
    decision = torch.from_numpy(np.array(rows[1]))
    target = torch.from_numpy(np.array(rows[2], dtype=np.float64))

    def objective(values: torch.Tensor) -> torch.Tensor:
        loss = binary_cross_entropy_with_logits((weight * values[decision]).sum(dim=1), target)
        return loss + smoothness * values.diff(n=2, dim=1).square().mean()

    return objective


def fit_mrp_with_torch(rows: FitRows, n_labels: int, settings: ProjectionParams) -> np.ndarray:
    """Fit the curve values of one fit, shape (n_labels, n_knots)."""
    objective = make_objective(rows, settings.knots, settings.smoothness)
    start = np.tile(initial_curve(settings.knots), (n_labels, 1))

    def values_of(theta: torch.Tensor) -> torch.Tensor:
        return torch.cat([theta[:, :1], softplus(theta[:, 1:])], dim=1).cumsum(dim=1)

    theta = minimize_with_adam(start, lambda theta: objective(values_of(theta)), settings)
    return values_of(theta).numpy()


def minimize_with_adam(start: np.ndarray, objective: Objective, settings: ProjectionParams) -> torch.Tensor:
    """Minimize an objective with torch's Adam for the epochs of `settings`.

    Uses its functional form: the class loads a compiler at its first step, which takes longer than all the epochs.
    """
    theta = torch.from_numpy(start).requires_grad_()
    first_moment = torch.zeros_like(theta)
    second_moment = torch.zeros_like(theta)
    step = torch.tensor(0.0)
    for _ in range(settings.epochs):
        (gradient,) = torch.autograd.grad(objective(theta), theta)
        with torch.no_grad():
            adam(
                [theta],
                [gradient],
                [first_moment],
                [second_moment],
                [],
                [step],
                lr=settings.learning_rate,
                beta1=0.9,
                beta2=0.999,
                eps=1e-8,
                weight_decay=0,
                amsgrad=False,
                maximize=False,
            )
    return theta.detach()
