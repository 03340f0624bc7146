"""The rows of a batch of fits, laid out so that the log loss and its slope are a few array operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tasks.projection.curves import place
from tasks.projection.quadrature import GENTLE, NODES, nodes

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]  # confidence, decision and correct of one fit, (m,) each
WHOLE = 64  # rows of several vector registers: the CPU rounds exp differently in the odd rows at the end of an array


@dataclass(frozen=True, eq=False)
class SortedRows:
    """One fit's rows in the order of label and confidence, so that a cell (label, interval) lies in one piece."""

    confidence: np.ndarray  # (m,) float64
    right: np.ndarray  # (m,) bool, correct
    weight: np.ndarray  # (m,) float64, weight of the knot to the right of each row
    lengths: np.ndarray  # (K (J - 1),) int64, rows of each cell
    hits: np.ndarray  # (K, J) float64, sum over the right rows of their weights at the knots
    places: np.ndarray  # (K (J - 1), N) float64, weights at the nodes of each cell
    masses: np.ndarray  # (K (J - 1), N) float64, of the nodes


def sort_rows(fit: Triple, n_labels: int, knots: np.ndarray) -> SortedRows:
    """Confidence in [0, 1], decision 0..K-1 and correct `(m,)`; the same rows in any order give the same sums."""
    order = np.argsort(fit[0])
    confidence, decision, correct = (np.asarray(part)[order] for part in fit)
    interval, weight = place(confidence, knots)
    cell = decision * (len(knots) - 1) + interval
    cells = n_labels * (len(knots) - 1)
    order = np.argsort(cell.astype(np.min_scalar_type(cells)), kind="stable")  # narrow numbers are sorted by radix
    cell, weight, confidence, right = cell[order], weight[order], confidence[order], correct[order] != 0
    # only the right rows are summed: those of equal confidence are equal, in whatever order they came
    at, hit = cell[right] + cell[right] // (len(knots) - 1), weight[right]  # a curve has a knot more than intervals
    hits = np.bincount(at, 1 - hit, n_labels * len(knots)) + np.bincount(at + 1, hit, n_labels * len(knots))
    lengths = np.bincount(cell, minlength=cells)
    hits = hits.reshape(n_labels, -1).astype(np.float64)  # bincount counts in int where nothing is
    return SortedRows(confidence, right, weight, lengths, hits, *nodes(weight, lengths))


@dataclass(frozen=True, eq=False)
class Cells:
    """The rows of B fits by cell: as masses of a few nodes, and one by one for curves too steep for those.

    A sum over a cell is free of atomic additions, so that CUDA too gives the same bits every time, and blind to the
    order in which the rows came.
    """

    counts: torch.Tensor  # (B,) float64, the rows of each fit, at least 1
    hits: torch.Tensor  # (B, K, J) float64, sum over the right rows of their weights at the knots
    places: torch.Tensor  # (B, K, J - 1, N) float64, weights of the right knot at the nodes
    masses: torch.Tensor  # (B, K, J - 1, N) float64, of the nodes
    weight: torch.Tensor  # (R,) float64, weight of the right knot of each row of the cells with more rows than nodes
    true: torch.Tensor  # (R,) float64, 1, and 0 for rows that fill up a cell
    lengths: torch.Tensor  # (B, K, J - 1) int64, such rows of each cell, those that fill up among them

    def slope(self, values: torch.Tensor) -> torch.Tensor:
        """Slope of the mean log loss in `values (B, K, J)`, of that shape; 0 where there are no rows."""
        total, upper = self._sums(values)
        slope = -self.hits
        slope[..., :-1] += total - upper
        slope[..., 1:] += upper
        return slope.div_(self.counts[:, None, None])

    def _sums(self, values: torch.Tensor) -> list[torch.Tensor]:
        """With q the reliability of each row and w its weight, sums of q and of q w by cell."""
        left, rise = values[..., :-1], values.diff(dim=-1)
        at_nodes = torch.sigmoid(left[..., None] + rise[..., None] * self.places).mul_(self.masses)
        sums = [at_nodes.sum(dim=-1), at_nodes.mul_(self.places).sum(dim=-1)]
        steep = (rise.abs() > GENTLE) & (self.lengths > 0)
        if steep.any():
            lengths, mine = self.lengths[steep], steep.flatten().repeat_interleave(self.lengths.flatten())
            weight, true = self.weight[mine], self.true[mine]
            t = rise[steep].repeat_interleave(lengths) * weight + left[steep].repeat_interleave(lengths)
            by_row = torch.sigmoid(t).mul_(true)
            for found, terms in zip(sums, (by_row, by_row * weight), strict=True):
                found[steep] = torch.segment_reduce(terms, "sum", lengths=lengths, unsafe=True)
        return sums


def sort_into_cells(fits: Sequence[Triple], *, n_labels: int, knots: np.ndarray, device: str) -> Cells:
    """Confidence in [0, 1], decision 0..K-1 and correct of each fit, `(m,)` of its own, and knots `(J,)` to cells."""
    every = [sort_rows(fit, n_labels, knots) for fit in fits]
    counts = np.array([max(len(rows.weight), 1) for rows in every], dtype=np.float64)
    hits = np.stack([rows.hits for rows in every])
    places, masses, lengths, weight = (
        np.concatenate([getattr(rows, part) for rows in every]) for part in ("places", "masses", "lengths", "weight")
    )
    many = lengths > NODES
    weight, true, filled = _fill(weight[np.repeat(many, lengths)], np.where(many, lengths, 0))
    shape = (len(fits), n_labels, len(knots) - 1)
    by_node = (part.reshape(*shape, NODES) for part in (places, masses))
    arrays = (counts, hits, *by_node, weight, true, filled.reshape(shape))
    return Cells(*(torch.from_numpy(array).to(device) for array in arrays))


def _fill(weight: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows `(R,)` of C cells filled up to whole vector registers: weights, 1 where true, new lengths."""
    filled = -(-lengths // WHOLE) * WHOLE
    place_in_cell = np.arange(filled.sum()) - np.repeat(np.cumsum(filled) - filled, filled)
    true = place_in_cell < np.repeat(lengths, filled)
    whole = np.zeros(len(true))
    whole[true] = weight
    return whole, true.astype(np.float64), filled
