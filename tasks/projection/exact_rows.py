"""The rows behind the exact optimum, on the host or on a device: all that a fit does to arrays as long as its rows.

The rows lie in the order of their cells (problem, interval). A pass over them sums six terms of each row by cell; the
sums go back to the host. Nothing adds atomically, so a device too should give the same bits every time; torch's CPU
does, CUDA we have not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch

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

    def only(self, stays: np.ndarray) -> HostRows:
        """As the protocol has it."""
        return HostRows(self.lengths[stays], self.weight[np.repeat(stays, self.lengths)])

    def sums(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """As the protocol has it."""
        t = np.repeat(rise, self.lengths)
        t *= self.weight
        t += np.repeat(left, self.lengths)
        sums, starts = np.zeros((TERMS, len(self.lengths))), np.cumsum(self.lengths) - self.lengths
        if len(starts):
            for total, terms in zip(sums, _terms(np, t, self.weight), strict=True):
                np.add.reduceat(terms, starts, out=total)
        return sums


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Rows in torch, on any of its devices that has float64; only (C,) arrays come and go."""

    lengths: torch.Tensor  # (C,) int64, rows of each cell
    weight: torch.Tensor  # (R,) float64, weight of the knot to the right of each row

    @classmethod
    def on(cls, device: str, rows: HostRows) -> DeviceRows:
        """The same rows on a device."""
        return cls(torch.from_numpy(rows.lengths).to(device), torch.from_numpy(rows.weight).to(device))

    def only(self, stays: np.ndarray) -> DeviceRows:
        """As the protocol has it."""
        kept = torch.from_numpy(stays).to(self.lengths.device)
        return DeviceRows(self.lengths[kept], self.weight[self._repeated(kept)])

    def sums(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """As the protocol has it."""
        if not len(left):
            return np.zeros((TERMS, 0))
        at_left, rising = (self._repeated(torch.from_numpy(x).to(self.weight.device)) for x in (left, rise))
        by_term = _terms(torch, rising.mul_(self.weight).add_(at_left), self.weight)
        sums = [torch.segment_reduce(terms, "sum", lengths=self.lengths, unsafe=True) for terms in by_term]
        return np.asarray(torch.stack(sums).cpu().numpy())

    def _repeated(self, by_cell: torch.Tensor) -> torch.Tensor:
        """`(C,)` to the rows, `(R,)`."""
        return by_cell.repeat_interleave(self.lengths, output_size=len(self.weight))


def _terms(library: ModuleType, t: Any, weight: Any) -> Iterator[Any]:
    """What `Rows.sums` sums, one `(R,)` after the other, from t and w `(R,)` of NumPy or of torch."""
    tail = library.exp(-abs(t))
    yield t.clip(0) + library.log1p(tail)
    probability = library.where(t >= 0, 1, tail) / (1 + tail)
    yield probability
    yield probability * weight
    variance = tail / (1 + tail) ** 2
    yield variance
    yield variance * weight
    yield variance * weight * weight
