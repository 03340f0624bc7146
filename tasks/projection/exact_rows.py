"""The rows behind the exact optimum, on the host or on a device: all that a fit does to arrays as long as its rows.

The rows lie in the order of their cells (problem, interval). A pass sums six terms of each row by cell: at the nodes
that stand for the rows of a cell, or row by row where the curve is too steep for those. The sums go back to the host.
Nothing adds atomically, so a device too should give the same bits every time; torch's CPU does, CUDA we have not run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tasks.projection.quadrature import GENTLE, NODES

TERMS = 6


@dataclass(frozen=True, eq=False)
class CellRows:
    """The rows of C cells, of which none is empty; arrays of NumPy, or of torch on a device that has float64."""

    lengths: Any  # (C,) int64, rows of each cell
    weight: Any  # (R,) float64, weight of the upper knot of each row's interval
    places: Any  # (C, N) float64, weights at the nodes of each cell
    masses: Any  # (C, N) float64, of the nodes

    def on(self, device: str) -> "CellRows":
        """The same rows in torch on a device; only arrays of a number for each cell come and go from then on."""
        arrays = (self.lengths, self.weight, self.places, self.masses)
        return CellRows(*(torch.from_numpy(array).to(device) for array in arrays))

    def only(self, stays: np.ndarray) -> "CellRows":
        """The rows of the cells `stays (C,)` bool, in their order."""
        kept = self._beside(stays)
        return CellRows(self.lengths[kept], self.weight[self._by_row(kept)], self.places[kept], self.masses[kept])

    def sums(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Value at the left knot of each cell and its rise to the right one, `(C,)` both, to sums `(6, C)` float64.

        With t the logit of a row's reliability q, and w the weight of the knot on its right, the sums are those of
        softplus(t), of q w^r, r < 2, and of q(1-q) w^r, r < 3.
        """
        t = self._beside(left)[:, None] + self._beside(rise)[:, None] * self.places
        sums = _on_host([(terms * self.masses).sum(axis=1) for terms in self._terms(t, self.places)])
        steep = (np.abs(rise) > GENTLE) & (_on_host(self.lengths) > NODES)
        if steep.any():
            sums[:, steep] = self.only(steep).sums_by_row(left[steep], rise[steep])
        return sums

    def sums_by_row(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """The same by a term for each row; there is at least one cell."""
        t = self._by_row(self._beside(rise)) * self.weight + self._by_row(self._beside(left))
        terms = self._terms(t, self.weight)
        if self._library is np:
            starts = np.cumsum(self.lengths) - self.lengths
            return np.array([np.add.reduceat(of_rows, starts) for of_rows in terms])
        return _on_host([torch.segment_reduce(part, "sum", lengths=self.lengths, unsafe=True) for part in terms])

    @property
    def _library(self) -> ModuleType:
        return torch if isinstance(self.weight, torch.Tensor) else np

    def _beside(self, of_cells: np.ndarray) -> Any:
        """An array of the host where the rows are."""
        return of_cells if self._library is np else torch.from_numpy(of_cells).to(self.weight.device)

    def _by_row(self, of_cells: Any) -> Any:
        """A number for each cell, `(C,)`, as one for each of its rows, `(R,)`."""
        if self._library is np:
            return np.repeat(of_cells, self.lengths)
        return of_cells.repeat_interleave(self.lengths, output_size=len(self.weight))

    def _terms(self, t: Any, weight: Any) -> Iterator[Any]:
        """What `sums` sums, one array after the other, from t and w of one shape."""
        library = self._library
        tail = library.exp(-abs(t))
        yield t.clip(0) + library.log1p(tail)
        probability = library.where(t >= 0, 1, tail) / (1 + tail)
        yield probability
        yield probability * weight
        variance = tail / (1 + tail) ** 2
        yield variance
        yield variance * weight
        yield variance * weight * weight


def _on_host(arrays: Any) -> np.ndarray:
    """An array, or several of one shape stacked, in NumPy."""
    if isinstance(arrays, list) and isinstance(arrays[0], torch.Tensor):
        arrays = torch.stack(arrays)
    return arrays.cpu().numpy() if isinstance(arrays, torch.Tensor) else np.asarray(arrays)
