"""Lattices fitted by Adam on PyTorch, in float64 and for many fits at once: MRP as published, and Label-wise 2D.

MRP's curves (paper, sections 3.4 and 4.3) are convex problems that separate over labels. Label-wise 2D gives what
`surface.fit_surfaces` gives. Sums over rows use no atomic additions: a device returns the same bits every time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import softplus

from relmap.calibrators.optimizers import Adam
from relmap.projection.mrp import (
    MAX_NODE_RISE,
    N_NODES,
    FitRows,
    SortedCells,
    initial_curve,
    locate_interval,
    lock_device,
    sort_into_cells,
    uniform_knots,
)
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

# cells are padded to full vector registers, since the CPU rounds exp differently in the last rows of an array
CELL_ROW_MULTIPLE = 64


def fit_lattices(
    fits: Sequence[FitRows], *, n_labels: int, settings: ProjectionParams, device: str = "cpu"
) -> np.ndarray:
    """Fit the published lattice to the rows of each of several fits.

    On one machine, the result is the same, bit for bit, in any order of the rows. On the CPU, the result of a fit does
    not depend on the other fits. A label without rows keeps its initial curve.

    Args:
        fits: Rows of each of B fits.
        n_labels: Number of labels K.
        settings: Knots, smoothness, learning rate and epochs.
        device: Name of a torch device.

    Returns:
        Logits at the knots after the last epoch, shape (B, K, J), float64.

    Raises:
        InputError: The lock of an accelerator needs a package that is not installed.
    """
    cells = build_cell_tensors(fits, n_labels=n_labels, knots=uniform_knots(settings.knots), device=device)
    start = np.tile(initial_curve(settings.knots), (len(fits), n_labels, 1))
    with one_thread(), lock_device(device):
        values = _descend_curves(torch.from_numpy(start).to(device), cells, settings)
        fitted: np.ndarray = values.cpu().numpy()
    return fitted


class CellTensors(NamedTuple):
    """Rows of B fits by cell: as nodes with masses, and row by row for curves that are too steep for the nodes.

    R counts the rows of the cells with more rows than nodes, and the padding of these cells.

    Attributes:
        n_rows: Number of rows of each fit, at least 1, shape (B,), float64.
        correct_weight: Sum over the correct rows of their weights at each knot, shape (B, K, J), float64.
        nodes: Weight of the upper knot at the nodes of each cell, shape (B, K, J - 1, N), float64.
        masses: Masses of the nodes, shape (B, K, J - 1, N), float64.
        weight: Weight of the upper knot of each row, 0 for padding, shape (R,), float64.
        is_row: 1 for rows and 0 for padding, shape (R,), float64.
        rows_per_cell: Number of the R entries in each cell, 0 for cells with at most as many rows as nodes, shape
            (B, K, J - 1), int64.
    """

    n_rows: torch.Tensor
    correct_weight: torch.Tensor
    nodes: torch.Tensor
    masses: torch.Tensor
    weight: torch.Tensor
    is_row: torch.Tensor
    rows_per_cell: torch.Tensor

    def gradient(self, values: torch.Tensor) -> torch.Tensor:
        """Compute the gradient of the mean log loss.

        With q the reliability of a row and w its weight of the upper knot, the derivative with respect to the value at
        a knot sums (q - correct) times the row's weight at that knot.

        Args:
            values: Logits at the knots, shape (B, K, J).

        Returns:
            Gradient with respect to the values, shape (B, K, J); 0 without rows.
        """
        left = values[..., :-1]
        rise = values.diff(dim=-1)
        node_q = torch.sigmoid(left[..., None] + rise[..., None] * self.nodes).mul_(self.masses)
        q_sum = node_q.sum(dim=-1)
        q_upper_sum = node_q.mul_(self.nodes).sum(dim=-1)
        is_steep = (rise.abs() > MAX_NODE_RISE) & (self.rows_per_cell > 0)
        if is_steep.any():
            self._replace_steep_sums(is_steep, left, rise, q_sum, q_upper_sum)
        gradient = -self.correct_weight
        gradient[..., :-1] += q_sum - q_upper_sum
        gradient[..., 1:] += q_upper_sum
        return gradient.div_(self.n_rows[:, None, None])

    def _replace_steep_sums(
        self,
        is_steep: torch.Tensor,
        left: torch.Tensor,
        rise: torch.Tensor,
        q_sum: torch.Tensor,
        q_upper_sum: torch.Tensor,
    ) -> None:
        """Replace the sums of q and q w of steep cells by sums over their rows, in place."""
        lengths = self.rows_per_cell[is_steep]
        in_steep_cell = is_steep.flatten().repeat_interleave(self.rows_per_cell.flatten())
        weight = self.weight[in_steep_cell]
        logit = rise[is_steep].repeat_interleave(lengths) * weight + left[is_steep].repeat_interleave(lengths)
        q = torch.sigmoid(logit).mul_(self.is_row[in_steep_cell])
        # segment_reduce uses no atomic additions, so that CUDA returns the same bits every time
        q_sum[is_steep] = torch.segment_reduce(q, "sum", lengths=lengths, unsafe=True)
        q_upper_sum[is_steep] = torch.segment_reduce(q * weight, "sum", lengths=lengths, unsafe=True)


def build_cell_tensors(fits: Sequence[FitRows], *, n_labels: int, knots: np.ndarray, device: str) -> CellTensors:
    """Sort the rows of several fits into cells on a device.

    Args:
        fits: Rows of each of B fits.
        n_labels: Number of labels K.
        knots: Knots in [0, 1], shape (J,).
        device: Name of a torch device.

    Returns:
        The cells.
    """
    cells = sort_into_cells(fits, n_labels, knots)
    shape = (len(fits), n_labels, len(knots) - 1)
    weight, is_row, padded_lengths = _pad_large_cells(cells)
    arrays = CellTensors(
        n_rows=cells.n_rows.astype(np.float64),
        correct_weight=cells.correct_weight.reshape(len(fits), n_labels, len(knots)),
        nodes=cells.nodes.reshape(*shape, N_NODES),
        masses=cells.masses.reshape(*shape, N_NODES),
        weight=weight,
        is_row=is_row.astype(np.float64),
        rows_per_cell=padded_lengths.reshape(shape),
    )
    return CellTensors._make(torch.from_numpy(array).to(device) for array in arrays)


def _pad_large_cells(cells: SortedCells) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pad the rows of cells with more rows than nodes; return their weights, a mask of rows, and the padded lengths."""
    is_large = cells.rows_per_cell > N_NODES
    lengths = np.where(is_large, cells.rows_per_cell, 0)
    padded_lengths = -(-lengths // CELL_ROW_MULTIPLE) * CELL_ROW_MULTIPLE
    starts = np.cumsum(padded_lengths) - padded_lengths
    position_in_cell = np.arange(padded_lengths.sum()) - np.repeat(starts, padded_lengths)
    is_row = position_in_cell < np.repeat(lengths, padded_lengths)
    weight = np.zeros(len(is_row))
    weight[is_row] = cells.weight[np.repeat(is_large, cells.rows_per_cell)]
    return weight, is_row, padded_lengths


def _descend_curves(theta: torch.Tensor, cells: CellTensors, settings: ProjectionParams) -> torch.Tensor:
    """Run Adam (Kingma and Ba, 2015) from the parameters `theta` (B, K, J).

    Sums run over the last axis in a fixed order, so that fits are independent and rounding makes no curve fall.

    Returns:
        Values of the curves after the last epoch, shape (B, K, J).
    """
    _, n_labels, n_knots = theta.shape
    identity = torch.eye(n_knots, dtype=theta.dtype, device=theta.device)
    cumulative = torch.ones_like(identity).tril()
    second_difference = identity.diff(n=2, dim=0)
    bending = 2 * settings.smoothness / (n_labels * (n_knots - 2)) * second_difference.T @ second_difference
    optimizer: Adam[torch.Tensor] = Adam(settings.learning_rate)
    values = _curve_values(theta, cumulative)
    for _ in range(settings.epochs):
        value_gradient = cells.gradient(values) + (values[..., None, :] * bending).sum(dim=-1)
        # an increment changes the values at its knot and all later knots; it is the softplus of an entry of theta
        gradient = (value_gradient[..., None, :] * cumulative.T).sum(dim=-1)
        gradient[..., 1:] *= torch.sigmoid(theta[..., 1:])
        theta = theta + optimizer.step(gradient)
        values = _curve_values(theta, cumulative)
    return values


def _curve_values(theta: torch.Tensor, cumulative: torch.Tensor) -> torch.Tensor:
    """Convert theta (B, K, J) to values a_j = theta_1 + sum of softplus(theta_r) over 1 < r <= j, shape (B, K, J)."""
    steps = torch.cat([theta[..., :1], softplus(theta[..., 1:])], dim=-1)
    return (steps[..., None, :] * cumulative).sum(dim=-1)


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
    cells = _build_surface_cells(fits, n_labels, knots, gap_knots)
    with one_thread(), lock_device(device):
        on_device = SurfaceCells(
            n_rows=cells.n_rows.to(device),
            rows_per_cell=cells.rows_per_cell.to(device),
            cell=cells.cell.to(device),
            weights=tuple(weight.to(device) for weight in cells.weights),
            correct=cells.correct.to(device),
        )
        values = _descend_surfaces(torch.from_numpy(start).to(device), on_device, settings).cpu().numpy()
    pairs = zip(gap_knots, values, strict=True)
    return [build_surfaces(knots, own_gap_knots, own_values) for own_gap_knots, own_values in pairs]


def _build_surface_cells(
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


def _descend_surfaces(theta: torch.Tensor, cells: SurfaceCells, settings: ProjectionParams) -> torch.Tensor:
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


_THREAD_LOCK = Lock()  # the number of threads is a setting of the process, so concurrent fits take turns


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread: more do not help at these sizes, and the way they split an array can change rounding.

    Yields:
        None.
    """
    with _THREAD_LOCK:
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(n_threads)
