"""Label-wise 2D on a torch device: the fit of `surface.fit_surfaces` for many fits at once, in float64.

The rows are sorted by cell: one interval of the confidence and one of the gap, of one label of one fit. Within a cell,
the logit of a row is a weighted sum of the values at the four corners of the cell, so that the gradient of a corner is
a sum over consecutive rows. Such sums use no atomic additions: a device returns the same bits every time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import softplus

from relmap.calibrators.optimizers import Adam
from relmap.projection.mrp import locate_interval, lock_device, uniform_knots
from relmap.projection.mrp_adam import one_thread
from relmap.projection.surface import (
    N_GAP_KNOTS,
    SurfaceRows,
    Surfaces,
    bending_matrices,
    build_surfaces,
    initial_parameters,
    place_gap_knots,
)
from relmap.settings import ProjectionParams


class SurfaceCells(NamedTuple):
    """Rows of B fits by cell, on a device. R counts the rows and C = B K (J - 1) (G - 1) the cells.

    Attributes:
        n_rows: Number of rows of each fit, at least 1, shape (B, 1, 1, 1), float64.
        rows_per_cell: Shape (C,), int64.
        cell: Cell of each row, increasing, shape (R,), int64.
        weights: Weights of the four corners in each row, four tensors of shape (R,), float64.
        correct: 1 for correct rows and 0 for wrong rows, shape (R,), float64.
    """

    n_rows: torch.Tensor
    rows_per_cell: torch.Tensor
    cell: torch.Tensor
    weights: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
    correct: torch.Tensor

    def gradient(self, values: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the mean log loss with respect to the values.

        Args:
            values: Logits at the knots, shape (B, K, J, G).

        Returns:
            Gradient, shape (B, K, J, G); 0 without rows.
        """
        logit = torch.zeros_like(self.correct)
        for corner, weight in zip(_corners(values), self.weights, strict=True):
            logit += weight * corner.flatten()[self.cell]
        residual = torch.sigmoid(logit) - self.correct
        gradient = torch.zeros_like(values)
        for corner_gradient, weight in zip(_corners(gradient), self.weights, strict=True):
            sums = torch.segment_reduce(weight * residual, "sum", lengths=self.rows_per_cell, unsafe=True)
            corner_gradient.add_(sums.reshape(corner_gradient.shape))
        return gradient / self.n_rows


def fit_surface_batch(
    fits: Sequence[SurfaceRows], *, n_labels: int, settings: ProjectionParams, device: str
) -> list[Surfaces]:
    """Fit a surface for each label of each of several fits by Adam.

    The result agrees with that of `fit_surfaces` up to rounding.

    Args:
        fits: Rows of each of B fits.
        n_labels: Number of labels K.
        settings: Knots of the confidence, smoothness, learning rate and epochs.
        device: Name of a torch device.

    Returns:
        Surfaces of each fit after the last epoch.

    Raises:
        InputError: The lock of an accelerator needs a package that is not installed.
    """
    if not fits:
        return []
    knots = uniform_knots(settings.knots)
    gap_knots = [place_gap_knots(rows.gap) for rows in fits]
    shape = (n_labels, len(knots), N_GAP_KNOTS)
    start = np.tile(initial_parameters(shape), (len(fits), 1, 1, 1))
    cells = _build_cells(fits, n_labels, knots, gap_knots)
    with one_thread(), lock_device(device):
        on_device = SurfaceCells(
            n_rows=cells.n_rows.to(device),
            rows_per_cell=cells.rows_per_cell.to(device),
            cell=cells.cell.to(device),
            weights=tuple(weight.to(device) for weight in cells.weights),
            correct=cells.correct.to(device),
        )
        values = _run_adam(torch.from_numpy(start).to(device), on_device, settings).cpu().numpy()
    pairs = zip(gap_knots, values, strict=True)
    return [build_surfaces(knots, own_gap_knots, own_values) for own_gap_knots, own_values in pairs]


def _build_cells(
    fits: Sequence[SurfaceRows], n_labels: int, knots: np.ndarray, gap_knots: Sequence[np.ndarray]
) -> SurfaceCells:
    """Sort the rows of each fit by cell, and within a cell by their contents, so that their order is irrelevant."""
    cells_per_fit = n_labels * (len(knots) - 1) * (N_GAP_KNOTS - 1)
    sorted_cells = []
    sorted_weights = []
    sorted_correct = []
    for number, (rows, own_knots) in enumerate(zip(fits, gap_knots, strict=True)):
        clipped_gap = np.clip(rows.gap, own_knots[0], own_knots[-1])
        interval, weight = locate_interval(rows.confidence, knots)
        gap_interval, gap_weight = locate_interval(clipped_gap, own_knots)
        cell = (rows.decision * (len(knots) - 1) + interval) * (N_GAP_KNOTS - 1) + gap_interval
        order = np.lexsort((rows.correct, gap_weight, weight, cell))
        sorted_cells.append(number * cells_per_fit + cell[order])
        weight = weight[order]
        gap_weight = gap_weight[order]
        lower = (1 - weight) * (1 - gap_weight), (1 - weight) * gap_weight
        upper = weight * (1 - gap_weight), weight * gap_weight
        sorted_weights.append(np.stack([*lower, *upper]))
        sorted_correct.append(np.asarray(rows.correct, dtype=np.float64)[order])
    cell = np.concatenate(sorted_cells)
    weights = np.concatenate(sorted_weights, axis=1)
    n_rows = np.array([max(len(rows.correct), 1) for rows in fits], dtype=np.float64)
    return SurfaceCells(
        n_rows=torch.from_numpy(n_rows)[:, None, None, None],
        rows_per_cell=torch.from_numpy(np.bincount(cell, minlength=len(fits) * cells_per_fit)),
        cell=torch.from_numpy(cell),
        weights=tuple(torch.from_numpy(corner) for corner in weights),
        correct=torch.from_numpy(np.concatenate(sorted_correct)),
    )


def _corners(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the values at the four corners of each cell, views of shape (B, K, J - 1, G - 1)."""
    return values[..., :-1, :-1], values[..., :-1, 1:], values[..., 1:, :-1], values[..., 1:, 1:]


def _run_adam(theta: torch.Tensor, cells: SurfaceCells, settings: ProjectionParams) -> torch.Tensor:
    """Run Adam from the parameters `theta`; return the values after the last epoch, both of shape (B, K, J, G)."""
    _, n_labels, n_knots, n_gap_knots = theta.shape
    bending = bending_matrices((n_labels, n_knots, n_gap_knots), settings.smoothness)
    bending_of_confidence = torch.from_numpy(bending.confidence).to(theta.device)
    bending_of_gap = torch.from_numpy(bending.gap).to(theta.device)
    cumulative = torch.ones(n_knots, n_knots, dtype=theta.dtype, device=theta.device).tril()
    gap_cumulative = torch.ones(n_gap_knots, n_gap_knots, dtype=theta.dtype, device=theta.device).tril()
    optimizer: Adam[torch.Tensor] = Adam(settings.learning_rate)
    for _ in range(settings.epochs):
        values = _surface_values(theta, cumulative, gap_cumulative)
        value_gradient = cells.gradient(values)
        value_gradient += bending_of_confidence @ values + values @ bending_of_gap
        # an increment changes its knot and all later knots along both axes
        increment_gradient = cumulative.T @ value_gradient @ gap_cumulative
        softplus_slope = torch.sigmoid(theta)
        softplus_slope[..., 0, 0] = 1  # the start value is not transformed
        theta = theta + optimizer.step(increment_gradient * softplus_slope)
    return _surface_values(theta, cumulative, gap_cumulative)


def _surface_values(theta: torch.Tensor, cumulative: torch.Tensor, gap_cumulative: torch.Tensor) -> torch.Tensor:
    """Convert parameters, as in `initial_parameters`, to values at the knots, shape (B, K, J, G)."""
    increments = softplus(theta)
    increments[..., 0, 0] = theta[..., 0, 0]
    return cumulative @ increments @ gap_cumulative.T
