"""The rows behind the exact optimum, on the host or on a device: all that a fit does to arrays as long as its rows.

The rows lie in the order of their cells (problem, interval). A pass sums six terms of each row by cell: at the nodes
that stand for the rows of a cell, or row by row where the curve is too steep for those. The sums go back to the host.
Nothing adds atomically, so a device too should give the same bits every time; torch's CPU does, CUDA we have not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch

from tasks.projection.quadrature import GENTLE, NODES

TERMS = 6


class Rows(Protocol):
    """The rows of C cells, of which none is empty."""

    def only(self, stays: np.ndarray) -> Rows:
        """The rows of the cells `stays (C,)` bool, in their order."""
        ...

    def sums(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Value at the left knot of each cell and its rise to the right one, `(C,)` both, to sums `(6, C)` float64.

        With t the logit of a row's reliability q, and w the weight of the knot on its right, the sums are those of
        softplus(t), of q w^r, r < 2, and of q(1-q) w^r, r < 3.
        """
        ...


@dataclass(frozen=True, eq=False)
class HostRows:
    """Rows in NumPy."""

    lengths: np.ndarray  # (C,) int64, rows of each cell
    weight: np.ndarray  # (R,) float64, weight of the knot to the right of each row
    places: np.ndarray  # (C, N) float64, weights at the nodes of each cell
    masses: np.ndarray  # (C, N) float64, of the nodes

    def only(self, stays: np.ndarray) -> HostRows:
        """As the protocol has it."""
        weight = self.weight[np.repeat(stays, self.lengths)]
        return HostRows(self.lengths[stays], weight, self.places[stays], self.masses[stays])

    def sums(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """As the protocol has it."""
        t = left[:, None] + rise[:, None] * self.places
        sums = np.array([(terms * self.masses).sum(axis=1) for terms in _terms(np, t, self.places)])
        steep = (np.abs(rise) > GENTLE) & (self.lengths > NODES)
        if steep.any():
            sums[:, steep] = self.only(steep).sums_by_row(left[steep], rise[steep])
        return sums

    def sums_by_row(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """The same by a term for each row; there is at least one cell."""
        t = np.repeat(rise, self.lengths) * self.weight + np.repeat(left, self.lengths)
        starts = np.cumsum(self.lengths) - self.lengths
        return np.array([np.add.reduceat(terms, starts) for terms in _terms(np, t, self.weight)])


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Rows in torch, on any of its devices that has float64; only (C,) arrays come and go."""

    lengths: torch.Tensor  # (C,) int64, rows of each cell
    weight: torch.Tensor  # (R,) float64, weight of the knot to the right of each row
    places: torch.Tensor  # (C, N) float64, weights at the nodes of each cell
    masses: torch.Tensor  # (C, N) float64, of the nodes

    @classmethod
    def on(cls, device: str, rows: HostRows) -> DeviceRows:
        """The same rows on a device."""
        arrays = (rows.lengths, rows.weight, rows.places, rows.masses)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    def only(self, stays: np.ndarray) -> DeviceRows:
        """As the protocol has it."""
        kept = torch.from_numpy(stays).to(self.lengths.device)
        rows = kept.repeat_interleave(self.lengths, output_size=len(self.weight))
        return DeviceRows(self.lengths[kept], self.weight[rows], self.places[kept], self.masses[kept])

    def sums(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """As the protocol has it."""
        at_left, rising = (torch.from_numpy(x).to(self.weight.device)[:, None] for x in (left, rise))
        by_term = _terms(torch, at_left + rising * self.places, self.places)
        sums = torch.stack([(terms * self.masses).sum(dim=1) for terms in by_term]).cpu().numpy()
        steep = (np.abs(rise) > GENTLE) & (self.lengths > NODES).cpu().numpy()
        if steep.any():
            sums[:, steep] = self.only(steep).sums_by_row(left[steep], rise[steep])
        return np.asarray(sums)

    def sums_by_row(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """The same by a term for each row; there is at least one cell."""
        by_cell = torch.from_numpy(np.stack([left, rise])).to(self.weight.device)
        at_left, rising = by_cell.repeat_interleave(self.lengths, dim=1, output_size=len(self.weight))
        by_term = _terms(torch, rising * self.weight + at_left, self.weight)
        sums = [torch.segment_reduce(terms, "sum", lengths=self.lengths, unsafe=True) for terms in by_term]
        return np.asarray(torch.stack(sums).cpu().numpy())


def _terms(library: ModuleType, t: Any, weight: Any) -> Iterator[Any]:
    """What `Rows.sums` sums, one array after the other, from t `(..., R)` and w `(R,)` of NumPy or of torch."""
    tail = library.exp(-abs(t))
    yield t.clip(0) + library.log1p(tail)
    probability = library.where(t >= 0, 1, tail) / (1 + tail)
    yield probability
    yield probability * weight
    variance = tail / (1 + tail) ** 2
    yield variance
    yield variance * weight
    yield variance * weight * weight
