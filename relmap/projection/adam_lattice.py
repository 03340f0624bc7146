"""MRP's lattice as published: label-wise monotone curves, fitted by Adam (paper, sections 3.4 and 4.3).

The problem is convex and separates over labels; B fits and their labels descend side by side, in float64.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import softplus

from relmap.optimizers import Adam
from relmap.projection.device import device_turn
from relmap.projection.lattice import GENTLE, NODES, FitRows, first_curve, sort_rows, uniform_knots
from relmap.settings import ProjectionParams

WHOLE = 64  # rows of several vector registers: the CPU rounds exp differently in the odd rows at the end of an array


def fit_lattices(
    fits: Sequence[FitRows], *, n_labels: int, settings: ProjectionParams, device: str = "cpu"
) -> np.ndarray:
    """Confidence, decision and correct of B fits, each with rows of its own, to lattice values `(B, K, J)`.

    The same rows in any order give the same bits on one machine, and on the CPU each fit of a batch the same as alone.
    A label without rows keeps its start.
    """
    cells = sort_into_cells(fits, n_labels=n_labels, knots=uniform_knots(settings.knots), device=device)
    start = np.tile(first_curve(settings.knots), (len(fits), n_labels, 1))
    with _one_thread(), device_turn(device):
        return _descend(torch.from_numpy(start).to(device), cells, settings).cpu().numpy()


class Cells(NamedTuple):
    """The rows of B fits by cell: as masses of a few nodes, and one by one for curves too steep for those."""

    counts: torch.Tensor  # (B,) float64, the rows of each fit, at least 1
    hits: torch.Tensor  # (B, K, J) float64, sum over the correct rows of their weights at the knots
    places: torch.Tensor  # (B, K, J - 1, N) float64, weights of the upper knot at the nodes
    masses: torch.Tensor  # (B, K, J - 1, N) float64, of the nodes
    weight: torch.Tensor  # (R,) float64, weight of the upper knot of each row of the cells with more rows than nodes
    true: torch.Tensor  # (R,) float64, 1, and 0 for rows that fill up a cell
    lengths: torch.Tensor  # (B, K, J - 1) int64, such rows of each cell, those that fill up among them

    def gradient(self, values: torch.Tensor) -> torch.Tensor:
        """Gradient of the mean log loss in `values (B, K, J)`, of that shape; 0 where there are no rows."""
        left, rise = values[..., :-1], values.diff(dim=-1)
        at_nodes = torch.sigmoid(left[..., None] + rise[..., None] * self.places).mul_(self.masses)
        # with q the reliability of each row and w its weight, sums of q and of q w by cell
        total, upper = at_nodes.sum(dim=-1), at_nodes.mul_(self.places).sum(dim=-1)
        steep = (rise.abs() > GENTLE) & (self.lengths > 0)
        if steep.any():
            lengths, mine = self.lengths[steep], steep.flatten().repeat_interleave(self.lengths.flatten())
            weight, true = self.weight[mine], self.true[mine]
            t = rise[steep].repeat_interleave(lengths) * weight + left[steep].repeat_interleave(lengths)
            by_row = torch.sigmoid(t).mul_(true)
            for of_cells, terms in ((total, by_row), (upper, by_row * weight)):
                # it adds nothing atomically, so that CUDA too gives the same bits every time
                of_cells[steep] = torch.segment_reduce(terms, "sum", lengths=lengths, unsafe=True)
        gradient = -self.hits
        gradient[..., :-1] += total - upper
        gradient[..., 1:] += upper
        return gradient.div_(self.counts[:, None, None])


def sort_into_cells(fits: Sequence[FitRows], *, n_labels: int, knots: np.ndarray, device: str) -> Cells:
    """The rows of each fit, and knots `(J,)`, to cells on a device."""
    rows = sort_rows(fits, n_labels, knots)
    many = rows.lengths > NODES
    lengths, weight = np.where(many, rows.lengths, 0), rows.weight[np.repeat(many, rows.lengths)]
    filled = -(-lengths // WHOLE) * WHOLE  # cells filled up to whole vector registers
    place_in_cell = np.arange(filled.sum()) - np.repeat(np.cumsum(filled) - filled, filled)
    true = place_in_cell < np.repeat(lengths, filled)
    whole = np.zeros(len(true))
    whole[true] = weight
    shape = (len(fits), n_labels, len(knots) - 1)
    hits, by_node = (
        rows.hits.reshape(*shape[:2], -1),
        (part.reshape(*shape, NODES) for part in (rows.places, rows.masses)),
    )
    arrays = (rows.counts.astype(np.float64), hits, *by_node, whole, true.astype(np.float64), filled.reshape(shape))
    return Cells(*(torch.from_numpy(array).to(device) for array in arrays))


def _descend(theta: torch.Tensor, cells: Cells, settings: ProjectionParams) -> torch.Tensor:
    """Adam from `theta (B, K, J)`, (b, eta) of every curve, to the values `(B, K, J)` of the last epoch."""
    # Sums run over the last axis, so that no fit feels its neighbours, in one order, so that rounding lets none fall.
    _, labels, knots = theta.shape
    identity = torch.eye(knots, dtype=theta.dtype, device=theta.device)
    below = torch.ones_like(identity).tril()
    bend = identity.diff(n=2, dim=0)
    bending = 2 * settings.smoothness / (labels * (knots - 2)) * bend.T @ bend
    optimizer: Adam[torch.Tensor] = Adam(settings.learning_rate)
    values = _values(theta, below)
    for _ in range(settings.epochs):
        in_values = cells.gradient(values) + (values[..., None, :] * bending).sum(dim=-1)
        gradient = (in_values[..., None, :] * below.T).sum(dim=-1)  # b lifts every knot, an increment those after it
        gradient[..., 1:] *= torch.sigmoid(theta[..., 1:])
        theta = theta + optimizer.step(gradient)
        values = _values(theta, below)
    return values


def _values(theta: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """(b, eta) to a_j = b + the sum of softplus(eta_r) over r < j, both `(B, K, J)`."""
    steps = torch.cat([theta[..., :1], softplus(theta[..., 1:])], dim=-1)
    return (steps[..., None, :] * below).sum(dim=-1)


_NO_OTHER_FIT = Lock()  # the number of threads belongs to the process, so fits of two threads take turns


@contextmanager
def _one_thread() -> Iterator[None]:
    """One torch thread: at these sizes more do not help, and where they cut an array can show in its last bits."""
    with _NO_OTHER_FIT:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
