"""MRP as one would write it in torch: its objective, its gradients and Adam. Tests compare the library with it."""

from collections.abc import Callable

import numpy as np
import torch
from fits import hats
from torch.nn.functional import binary_cross_entropy_with_logits, softplus
from torch.optim.adam import adam

from relmap.projection.lattice import FitRows, initial_curve
from relmap.settings import ProjectionParams

torch.set_num_threads(1)  # at these sizes a second thread costs ten times what it saves


def stated_objective(rows: FitRows, knots: int, smoothness: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """MRP's objective of values `(K, J)` (paper, section 3.4), with a weight for each row and knot."""
    weight, decision = torch.from_numpy(hats(rows[0], knots)), torch.from_numpy(np.array(rows[1]))
    target = torch.from_numpy(np.array(rows[2], dtype=np.float64))

    def objective(values: torch.Tensor) -> torch.Tensor:
        loss = binary_cross_entropy_with_logits((weight * values[decision]).sum(dim=1), target)
        return loss + smoothness * values.diff(n=2, dim=1).square().mean()

    return objective


def mrp_of_torch(rows: FitRows, n_labels: int, settings: ProjectionParams) -> np.ndarray:
    """The values `(K, J)` of one fit as one would write it in torch."""
    stated, start = stated_objective(rows, settings.knots, settings.smoothness), initial_curve(settings.knots)

    def values_of(theta: torch.Tensor) -> torch.Tensor:
        return torch.cat([theta[:, :1], softplus(theta[:, 1:])], dim=1).cumsum(dim=1)

    theta = descended(np.tile(start, (n_labels, 1)), lambda theta: stated(values_of(theta)), settings)
    return values_of(theta).numpy()


def descended(start: np.ndarray, objective: Callable[[torch.Tensor], torch.Tensor], settings: ProjectionParams):
    """Where torch's own Adam and gradients are after the epochs of `settings`, from `start`.

    Its functional form: the class loads a compiler at its first step, which takes longer than all the epochs.
    """
    theta = torch.from_numpy(start).requires_grad_()
    first, second, count = torch.zeros_like(theta), torch.zeros_like(theta), torch.tensor(0.0)
    published = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0, "amsgrad": False, "maximize": False}
    for _ in range(settings.epochs):
        (gradient,) = torch.autograd.grad(objective(theta), theta)
        with torch.no_grad():
            adam([theta], [gradient], [first], [second], [], [count], lr=settings.learning_rate, **published)
    return theta.detach()
