"""What the exact projection minimises (paper, section 3.4): P = B * K convex problems, one for each label of each fit.

Their heights, slopes and curvatures are put together on the host from sums over the rows of each cell; only `rows`
is as long as the rows, and may lie on a device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tasks.projection.cells import sort_rows
from tasks.projection.exact_rows import TERMS, DeviceRows, HostRows, Rows
from tasks.projection.lattice import LatticeSettings

RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Problem:
    """P problems in J variables: rows in the order of their cells (problem, interval), and a quadratic."""

    cell: np.ndarray  # (C,) the cells that have rows, ascending
    rows: Rows  # their rows
    scale: float  # 1 / m
    hits: np.ndarray  # (P, J) sum over the right rows of their weights at the knots
    start: np.ndarray  # (P, J) values
    bending: float  # weight of the sum of the squared second differences
    ridge: np.ndarray  # (P,) weight of the squared distance to the start

    def on(self, device: str) -> Problem:
        """The same problems, their rows on a device; on `cpu` they stay as they are, in NumPy."""
        if device == "cpu" or not isinstance(self.rows, HostRows):
            return self
        return replace(self, rows=DeviceRows.on(device, self.rows))

    def only(self, kept: np.ndarray) -> Problem:
        """The problems `kept (P,)` bool, in their order."""
        intervals = self.start.shape[1] - 1
        owner = self.cell // intervals
        stays = kept[owner]
        renumbered = (np.cumsum(kept) - 1)[owner] * intervals + self.cell % intervals
        parts = {"hits": self.hits[kept], "start": self.start[kept], "ridge": self.ridge[kept]}
        return replace(self, cell=renumbered[stays], rows=self.rows.only(stays), **parts)

    def derivatives(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`theta (P, J)`, b and increments, to the height `(P,)`, its slope `(P, J)` and curvature `(P, J, J)`.

        No sum runs over more than one problem, so that none feels its neighbours.
        """
        values = np.cumsum(theta, axis=1)
        softplus, probability, variance = self._moments(values)
        off, bend = values - self.start, np.diff(values, n=2, axis=1)
        height = self.scale * (softplus - (self.hits * values).sum(axis=1))
        height += self.bending * (bend**2).sum(axis=1) + self.ridge * (off**2).sum(axis=1)

        slope = -self.hits
        slope[:, :-1] += probability[0] - probability[1]
        slope[:, 1:] += probability[1]
        slope = self.scale * slope + 2 * self.ridge[:, None] * off
        for shift, factor in enumerate((1, -2, 1)):
            slope[:, shift : shift + bend.shape[1]] += 2 * self.bending * factor * bend

        knots = values.shape[1]
        second = np.diff(np.eye(knots), n=2, axis=0)
        curvature = 2 * self.bending * second.T @ second + 2 * self.ridge[:, None, None] * np.eye(knots)
        left, right = np.arange(knots - 1), np.arange(1, knots)
        curvature[:, left, left] += self.scale * (variance[0] - 2 * variance[1] + variance[2])
        curvature[:, right, right] += self.scale * variance[2]
        curvature[:, left, right] += self.scale * (variance[1] - variance[2])
        curvature[:, right, left] = curvature[:, left, right]
        return height, _above(slope, 1), _above(_above(curvature, 1), 2)

    def _moments(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `Rows` sums: softplus(t), by problem `(P,)`; q w^r `(2, P, J - 1)` and q(1-q) w^r `(3, P, J - 1)`."""
        shape = (len(values), values.shape[1] - 1)
        left, rise = values[:, :-1].ravel()[self.cell], np.diff(values, axis=1).ravel()[self.cell]
        sums = np.zeros((TERMS, shape[0] * shape[1]))
        sums[:, self.cell] = self.rows.sums(left, rise)
        sums = sums.reshape(-1, *shape)
        return sums[0].sum(axis=1), sums[1:3], sums[3:]


def state_problem(
    confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, n_labels: int, settings: LatticeSettings
) -> Problem:
    """Confidence `(B, m)` in [0, 1], decision 0..K-1 and correct `(B, m)`: sort the rows into cells, on the host."""
    (fits, count), knots = confidence.shape, settings.places
    problems = fits * n_labels
    every = [sort_rows(fit, n_labels, knots) for fit in zip(confidence, decision, correct, strict=True)]
    parts = ("confidence", "right", "weight", "lengths", "places", "masses")
    confidence, right, *of_rows = (np.concatenate([getattr(rows, part) for rows in every]) for part in parts)
    weight, lengths, places, masses = of_rows
    cell = np.flatnonzero(lengths)
    total = lengths.reshape(problems, -1).sum(axis=1)
    held, starts = total > 0, (np.cumsum(total) - total)[total > 0]
    hit, parted = np.zeros(problems), np.ones(problems, dtype=bool)
    if len(starts):
        hit[held] = np.add.reduceat(right, starts, dtype=np.float64)
        highest_wrong = np.maximum.reduceat(np.where(right, -np.inf, confidence), starts)
        parted[held] = highest_wrong <= np.minimum.reduceat(np.where(right, confidence, np.inf), starts)
    return Problem(
        cell=cell,
        rows=HostRows(lengths[cell], weight, places[cell], masses[cell]),
        scale=1 / max(count, 1),
        hits=np.concatenate([rows.hits for rows in every]),
        # the start of the published fit: the base rate, on a line of slope 1.4 that crosses it at c = 5/7
        start=np.log((hit + 1) / (total - hit + 1))[:, None] + 1.4 * (knots - 5 / 7),
        bending=settings.smoothness / (n_labels * (len(knots) - 2)),
        ridge=RIDGE * (parted | (settings.smoothness == 0)),
    )


def _above(array: np.ndarray, axis: int) -> np.ndarray:
    """Sums over each index and all after it: by the chain rule, the slope in the increments from that in the values."""
    return np.flip(np.cumsum(np.flip(array, axis), axis), axis)
