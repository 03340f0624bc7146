"""The rows of a batch of fits, laid out so that the log loss and its slope are a few array operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import softplus

from tasks.projection.curves import place


@dataclass(frozen=True)
class Cells:
    """The rows of B fits, each fit sorted by label and confidence, so that a cell (label, interval) lies in one piece.

    Sorting makes a sum over a cell free of atomic additions, so that CUDA too gives the same bits every time, and
    blind to the order in which the rows came. Each fit is filled up to whole vector registers with rows of weight 0
    (N is then its length): the CPU rounds exp differently in the odd rows at the end of an array.
    """

    count: int  # m, the true rows of each fit
    knot: torch.Tensor  # (B * N,) int64, the left knot of each row among the B * K * J
    next_knot: torch.Tensor  # (B * N,) int64, the one after it
    left: torch.Tensor  # (B * N,) float64, weight of the left knot
    right: torch.Tensor  # (B * N,) float64, weight of the right knot
    correct: torch.Tensor  # (B * N,) float64
    lengths: torch.Tensor  # (B * K * (J - 1),) int64, rows of each cell

    def reliability_logits(self, values: torch.Tensor) -> torch.Tensor:
        """Values `(B, K, J)` to the logit of each row's reliability, `(B * N,)`; 0 for the rows that fill up."""
        flat = values.reshape(-1)
        left = flat.index_select(0, self.knot).mul_(self.left)
        return left.addcmul_(flat.index_select(0, self.next_knot), self.right)

    def slope(self, values: torch.Tensor) -> torch.Tensor:
        """Slope of the mean log loss in `values (B, K, J)`, of that shape; 0 where there are no rows."""
        residual = self.reliability_logits(values).sigmoid_().sub_(self.correct)
        slope = torch.zeros_like(values)
        for side, weight in ((slope[..., :-1], self.left), (slope[..., 1:], self.right)):
            sums = torch.segment_reduce(residual * weight, "sum", lengths=self.lengths, unsafe=True)
            side.add_(sums.view_as(side))
        return slope.div_(max(self.count, 1))

    def loss(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of the log loss over the rows of each fit, `(B,)`; each row that fills up adds log 2, always."""
        t = self.reliability_logits(values)
        return (softplus(t) - self.correct * t).view(len(values), -1).sum(dim=1)


def sort_into_cells(
    confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, n_labels: int, knots: np.ndarray, device: str
) -> Cells:
    """Confidence in [0, 1], decision 0..K-1 and correct, each `(B, m)`, and knots `(J,)` to their cells."""
    fits, count = confidence.shape
    intervals = len(knots) - 1
    order = np.lexsort((correct, confidence, decision), axis=1)
    confidence, decision, correct = (np.take_along_axis(x, order, axis=1) for x in (confidence, decision, correct))
    interval, weight = place(confidence, knots)
    cell = _fill(decision * intervals + interval, n_labels * intervals - 1)  # within its fit
    cell += np.arange(0, fits * n_labels * intervals, n_labels * intervals)[:, None]
    lengths = np.bincount(cell.ravel(), minlength=fits * n_labels * intervals)
    knot = cell + cell // intervals  # a curve has one knot more than it has intervals
    arrays = (knot, knot + 1, _fill(1 - weight, 0), _fill(weight, 0), _fill(correct.astype(np.float64), 0), lengths)
    return Cells(count, *(torch.from_numpy(array.ravel()).to(device) for array in arrays))


def _fill(array: np.ndarray, value: float) -> np.ndarray:
    """Append `value` to each row of `(B, m)` up to the next multiple of 64, at least one."""
    return np.pad(array, ((0, 0), (0, 64 - array.shape[1] % 64)), constant_values=value)
