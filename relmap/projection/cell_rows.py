"""Sums over the rows of lattice cells, computed in NumPy, or in torch on another device."""

from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from relmap.projection.lattice import MAX_NODE_RISE, N_NODES

# numpy.ndarray on the host, torch.Tensor on another device; a static type would need torch
DeviceArray = Any


class ArrayBackend(Protocol):
    """Operations that have different names in NumPy and torch."""

    @property
    def library(self) -> ModuleType:
        """Module with the elementwise functions: numpy or torch."""

    def from_host(self, array: np.ndarray) -> DeviceArray:
        """Copy a NumPy array to the device."""

    def stack_on_host(self, arrays: list[DeviceArray]) -> np.ndarray:
        """Stack arrays of one shape into a NumPy array."""

    def repeat(self, per_cell: DeviceArray, rows_per_cell: np.ndarray, n_rows: int) -> DeviceArray:
        """Repeat the value of each cell, shape (C,), for each of its rows, shape (R,)."""

    def sum_cells(self, per_row: DeviceArray, rows_per_cell: np.ndarray) -> DeviceArray:
        """Sum the values of the rows, shape (R,), over each nonempty cell, shape (C,)."""


class NumpyBackend:
    """Array operations of NumPy."""

    @property
    def library(self) -> ModuleType:
        """Module with the elementwise functions."""
        return np

    def from_host(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def stack_on_host(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Stack arrays of one shape."""
        return np.array(arrays)

    def repeat(self, per_cell: np.ndarray, rows_per_cell: np.ndarray, n_rows: int) -> np.ndarray:  # noqa: ARG002
        """Repeat the value of each cell for each of its rows."""
        return np.repeat(per_cell, rows_per_cell)

    def sum_cells(self, per_row: np.ndarray, rows_per_cell: np.ndarray) -> np.ndarray:
        """Sum the values of the rows over each nonempty cell."""
        starts = np.cumsum(rows_per_cell) - rows_per_cell
        return np.add.reduceat(per_row, starts)


class TorchBackend:
    """Array operations of torch on one device.

    Args:
        device: Name of a torch device.
    """

    def __init__(self, device: str) -> None:
        import torch  # noqa: PLC0415 - takes two seconds to import, and the CPU path does not need it

        self._torch = torch
        self._device = device

    @property
    def library(self) -> ModuleType:
        """Module with the elementwise functions."""
        library: ModuleType = self._torch
        return library

    def from_host(self, array: np.ndarray) -> DeviceArray:
        """Copy a NumPy array to the device."""
        return self._torch.from_numpy(array).to(self._device)

    def stack_on_host(self, arrays: list[DeviceArray]) -> np.ndarray:
        """Stack arrays of one shape into a NumPy array."""
        return np.asarray(self._torch.stack(arrays).cpu())

    def repeat(self, per_cell: DeviceArray, rows_per_cell: np.ndarray, n_rows: int) -> DeviceArray:
        """Repeat the value of each cell for each of its rows."""
        return per_cell.repeat_interleave(self.from_host(rows_per_cell), output_size=n_rows)

    def sum_cells(self, per_row: DeviceArray, rows_per_cell: np.ndarray) -> DeviceArray:
        """Sum the values of the rows over each nonempty cell, without atomic additions."""
        return self._torch.segment_reduce(per_row, "sum", lengths=self.from_host(rows_per_cell), unsafe=True)


class CellRows(NamedTuple):
    """R rows of C nonempty cells, cell after cell.

    Attributes:
        rows_per_cell: Number of rows of each cell, shape (C,), int64; always on the host.
        weight: Weight in [0, 1] of the upper knot of each row's interval, shape (R,), float64.
        nodes: Weights at the nodes of each cell, shape (C, N), float64.
        masses: Masses of the nodes, shape (C, N), float64.
        backend: Library and device of `weight`, `nodes` and `masses`.
    """

    rows_per_cell: np.ndarray
    weight: DeviceArray
    nodes: DeviceArray
    masses: DeviceArray
    backend: ArrayBackend = NumpyBackend()

    def to_device(self, device: str) -> "CellRows":
        """Copy the rows to a torch device; afterwards only numbers for each cell are transferred, not for each row.

        Args:
            device: Name of a torch device.

        Returns:
            The same rows on the device.
        """
        backend = TorchBackend(device)
        return CellRows(
            rows_per_cell=self.rows_per_cell,
            weight=backend.from_host(self.weight),
            nodes=backend.from_host(self.nodes),
            masses=backend.from_host(self.masses),
            backend=backend,
        )

    def select(self, cells: np.ndarray) -> "CellRows":
        """Select cells.

        Args:
            cells: Mask of the selected cells, shape (C,), bool.

        Returns:
            The rows of the selected cells, in their order.
        """
        mask = self.backend.from_host(cells)
        return CellRows(
            rows_per_cell=self.rows_per_cell[cells],
            weight=self.weight[self._repeat(mask)],
            nodes=self.nodes[mask],
            masses=self.masses[mask],
            backend=self.backend,
        )

    def sum_terms(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Sum the terms of the log loss and of its derivatives over the rows of each cell.

        A row with weight w of the upper knot has the reliability q = sigmoid(t) with t = left + rise w. The six terms
        are softplus(t); q and q w; and q (1 - q), q (1 - q) w and q (1 - q) w^2. Each is summed over the nodes of a
        cell, or over its rows if the curve is too steep for the nodes.

        Args:
            left: Logit at the left knot of each cell, shape (C,).
            rise: Logit at the right knot minus that at the left knot, shape (C,).

        Returns:
            Sums, shape (6, C), float64.
        """
        t = self.backend.from_host(left)[:, None] + self.backend.from_host(rise)[:, None] * self.nodes
        sums = self.backend.stack_on_host([(term * self.masses).sum(axis=1) for term in self._terms(t, self.nodes)])
        is_steep = (np.abs(rise) > MAX_NODE_RISE) & (self.rows_per_cell > N_NODES)
        if is_steep.any():
            sums[:, is_steep] = self.select(is_steep)._sum_terms_by_row(left[is_steep], rise[is_steep])
        return sums

    def _sum_terms_by_row(self, left: np.ndarray, rise: np.ndarray) -> np.ndarray:
        """Compute the sums of `sum_terms` row by row; there is at least one cell."""
        row_rise = self._repeat(self.backend.from_host(rise))
        row_left = self._repeat(self.backend.from_host(left))
        t = row_rise * self.weight + row_left
        terms = self._terms(t, self.weight)
        return self.backend.stack_on_host([self.backend.sum_cells(term, self.rows_per_cell) for term in terms])

    def _repeat(self, per_cell: DeviceArray) -> DeviceArray:
        return self.backend.repeat(per_cell, self.rows_per_cell, len(self.weight))

    def _terms(self, t: DeviceArray, weight: DeviceArray) -> list[DeviceArray]:
        """Evaluate the six terms of `sum_terms` without overflow, from t and weights of one shape."""
        library = self.backend.library
        tail = library.exp(-abs(t))
        softplus = t.clip(0) + library.log1p(tail)
        q = library.where(t >= 0, 1, tail) / (1 + tail)
        variance = tail / (1 + tail) ** 2
        return [softplus, q, q * weight, variance, variance * weight, variance * weight * weight]
