"""The rows of a batch of fits, laid out so that the log loss and its slope are a few array operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import softplus

from tasks.projection.curves import place

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]  # confidence, decision and correct of one fit, (m,) each


@dataclass(frozen=True)
class Cells:
    """The rows of B fits, each fit sorted by label and confidence, so that a cell (label, interval) lies in one piece.

    Sorting makes a sum over a cell free of atomic additions, so that CUDA too gives the same bits every time, and
    blind to the order in which the rows came. Each fit is filled up to whole vector registers with rows of weight 0
    (N is the length of all together): the CPU rounds exp differently in the odd rows at the end of an array.
    """

    counts: torch.Tensor  # (B,) float64, the true rows of each fit, at least 1
    knot: torch.Tensor  # (N,) int64, the left knot of each row among the B * K * J
    next_knot: torch.Tensor  # (N,) int64, the one after it
    left: torch.Tensor  # (N,) float64, weight of the left knot
    right: torch.Tensor  # (N,) float64, weight of the right knot
    correct: torch.Tensor  # (N,) float64
    lengths: torch.Tensor  # (B * K * (J - 1),) int64, rows of each cell
    fit_lengths: torch.Tensor  # (B,) int64, rows of each fit, those that fill up among them

    def reliability_logits(self, values: torch.Tensor) -> torch.Tensor:
        """Values `(B, K, J)` to the logit of each row's reliability, `(N,)`; 0 for the rows that fill up."""
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
        return slope.div_(self.counts[:, None, None])

    def loss(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of the log loss over the rows of each fit, `(B,)`; each row that fills up adds log 2, always."""
        t = self.reliability_logits(values)
        loss = torch.segment_reduce(softplus(t) - self.correct * t, "sum", lengths=self.fit_lengths, unsafe=True)
        return torch.as_tensor(loss)


def sort_into_cells(fits: Sequence[Triple], *, n_labels: int, knots: np.ndarray, device: str) -> Cells:
    """Confidence in [0, 1], decision 0..K-1 and correct of each fit, `(m,)` of its own, and knots `(J,)` to cells."""
    sorted_fits = [_sorted(fit, n_labels, knots) for fit in fits]
    intervals = n_labels * (len(knots) - 1)
    cell = np.concatenate([of + number * intervals for number, (of, *_) in enumerate(sorted_fits)])
    weight, filled, correct = (np.concatenate([fit[part] for fit in sorted_fits]) for part in (1, 2, 3))
    knot = cell + cell // (len(knots) - 1)  # a curve has one knot more than it has intervals
    lengths = np.bincount(cell, minlength=len(fits) * intervals)
    counts = np.array([max(len(confidence), 1) for confidence, _, _ in fits], dtype=np.float64)
    fit_lengths = np.array([len(of) for of, *_ in sorted_fits])
    arrays = (counts, knot, knot + 1, filled - weight, weight, correct, lengths, fit_lengths)
    return Cells(*(torch.from_numpy(array).to(device) for array in arrays))


def _sorted(fit: Triple, n_labels: int, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One fit's rows in order: cell, weight of the right knot, of both knots (0 for rows that fill up), correct."""
    order = np.lexsort((fit[2], fit[0], fit[1]))
    confidence, decision, correct = (np.asarray(array)[order] for array in fit)
    interval, weight = place(confidence, knots)
    last = n_labels * (len(knots) - 1) - 1
    cell = _fill(decision * (len(knots) - 1) + interval, last)
    return cell, _fill(weight, 0.0), _fill(np.ones_like(weight), 0.0), _fill(correct.astype(np.float64), 0.0)


def _fill(array: np.ndarray, value: float) -> np.ndarray:
    """Append `value` to `(m,)` up to the next multiple of 64, at least one."""
    return np.pad(array, (0, 64 - len(array) % 64), constant_values=value)
