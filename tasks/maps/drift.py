"""Does a reliability map still hold? Its residuals on new labelled rows against those on rows held out at its fit.

Rows fall into cells: the decided label, and whether the reliability lies below the median of that label or not. In
each, the mean residual (correct - reliability) of the new rows is compared with that of the held-out rows, and not
with 0: a map fitted to finitely many rows is a little wrong from its first day, and many new rows would find that out
though nothing has changed. What is noticed is a change of how often decisions are correct at a reliability; another mix
of labels is no such change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import stdtr

from tasks.maps.document import Cell, MapDocument
from tasks.maps.drifted import HALVES, CellDrift, Drift
from tasks.metrics.bounded import FEWEST_GROUPS
from tasks.metrics.checks import reject_nan
from tasks.metrics.intervals import holm
from tasks.protocol.errors import BadInput

FEWEST_ROWS = 20  # of a cell, on either side, for a test
ROUNDING = 1e-12  # a difference of mean residuals that is none


class _Cells(NamedTuple):
    """Cells that have rows, by label and half; the arrays share them."""

    number: np.ndarray  # 2 label + half
    rows: np.ndarray
    groups: np.ndarray
    reliability: np.ndarray  # mean
    residual: np.ndarray  # mean
    variance: np.ndarray


def reference(
    reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, group: np.ndarray | None, n_labels: int
) -> tuple[tuple[float, ...], tuple[Cell, ...]]:
    """What the map stores of held-out rows: for each label 0..K-1 the border of its halves, and the cells.

    Reliability `(n,)` in [0, 1], decision `(n,)` int, correct `(n,)` bool, group `(n,)` or None. The border is the
    median reliability of the label, 0.5 where it has no rows. The variance is that of the residual of one row, such
    that divided by the rows it is that of their mean: rows of a group that err together raise it (cluster-robust,
    Liang and Zeger, 1986). Cells without rows are left out, as are those of fewer than ten groups where there are
    groups: nothing can be tested against them.
    """
    reject_nan(reliability, "reliability")
    halves = np.full(n_labels, 0.5)
    order = np.lexsort((reliability, decision))
    labels, start = np.unique(decision[order], return_index=True)
    halves[labels] = [np.median(part) for part in np.split(reliability[order], start[1:])] if len(labels) else []
    cells = _cells(halves, reliability, decision, correct, group)
    known = cells.groups >= (1 if group is None else FEWEST_GROUPS)
    parts = [
        Cell(
            label=number // 2,
            half=HALVES[number % 2],
            rows=rows,
            mean_reliability=says,
            mean_residual=residual,
            variance=variance,
        )
        for number, rows, _, says, residual, variance in zip(*(part[known].tolist() for part in cells), strict=True)
    ]
    return tuple(halves.tolist()), tuple(parts)


def drift(
    document: MapDocument,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    group: np.ndarray | None,
    *,
    level: float = 0.01,
) -> Drift:
    """Whether the map still holds on new labelled rows, independent of those it was fitted on; rows as in `reference`.

    A two-sample test in each cell with rows enough, by Student's t with one degree of freedom less than the new rows
    have groups (or rows, without groups), adjusted by Holm. Its variance is the larger of two: with that of both
    samples as one, a cell without a new error gives no false alarm; with each sample's own, a cell with some more
    errors than usual gives none.

    Raises
    ------
    BadInput: level is not in (0, 1), or there is no row.
    """
    reject_nan(reliability, "reliability")
    if not 0 < level < 1:
        raise BadInput(f"a level of {level} is not above 0 and below 1; give one such as 0.01")
    if len(reliability) == 0:
        raise BadInput("there is no labelled row to test the map with; give predictions with their labels")
    borders = np.array(document.held_out.halves)
    before = {2 * cell.label + HALVES.index(cell.half): cell for cell in document.held_out.cells}
    now = _cells(borders, reliability, decision, correct, group)
    cells = [before.get(number) for number in now.number.tolist()]
    fewest = 1 if group is None else FEWEST_GROUPS
    p_values = [
        np.nan
        if then is None or min(then.rows, rows) < FEWEST_ROWS or groups < fewest
        else _p_value(then, rows, groups, residual, variance)
        for then, rows, groups, residual, variance in zip(
            cells, now.rows, now.groups, now.residual, now.variance, strict=True
        )
    ]
    return Drift(level, tuple(_described(now, borders, cells, holm(np.array(p_values)))))


def _described(now: _Cells, borders: np.ndarray, before: list[Cell | None], p_values: np.ndarray) -> list[CellDrift]:
    each = zip(*(part.tolist() for part in now), before, p_values.tolist(), strict=True)
    return [
        CellDrift(
            label=number // 2,
            half=HALVES[number % 2],
            border=float(borders[number // 2]),
            rows=rows,
            says=says,
            correct=says + residual,
            expected=None if then is None else says + then.mean_residual,
            p=None if np.isnan(p) else p,
        )
        for number, rows, _, says, residual, _, then, p in each
    ]


def _p_value(then: Cell, rows: int, groups: int, residual: float, variance: float) -> float:
    """Of an unchanged mean residual, two-sided; 0 where it changed though no row differs from another."""
    difference = abs(residual - then.mean_residual)
    if difference <= ROUNDING:
        return 1.0
    both = (then.rows * then.variance + rows * variance) / (then.rows + rows)
    squared = max(both / then.rows + both / rows, then.variance / then.rows + variance / rows)
    return float(2 * stdtr(groups - 1, -difference / np.sqrt(squared))) if squared > 0 else 0.0


def _cells(
    borders: np.ndarray,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    group: np.ndarray | None,
) -> _Cells:
    """The cells of rows `(n,)`, each group (or row, if None) alone; the order of rows does not matter."""
    number = 2 * decision + (reliability >= borders[decision])
    residual = correct - reliability
    name = np.arange(len(number)) if group is None else np.unique(group, return_inverse=True)[1]
    order = np.lexsort((residual, number) if group is None else (residual, name, number))
    number, residual, name = number[order], residual[order], name[order]
    found, start, rows = np.unique(number, return_index=True, return_counts=True)
    if len(found) == 0:
        return _Cells(found, rows, rows, *[np.empty(0)] * 3)
    mean = np.add.reduceat(residual, start) / rows
    first = np.flatnonzero(np.r_[True, (np.diff(number) != 0) | (np.diff(name) != 0)])  # row of each cell and group
    centred = np.add.reduceat(residual - np.repeat(mean, rows), first)
    where = np.searchsorted(first, start)
    groups = np.diff(np.r_[where, len(first)])
    variance = np.add.reduceat(centred**2, where) / rows * (groups / np.maximum(groups - 1, 1))
    return _Cells(found, rows, groups, np.add.reduceat(reliability[order], start) / rows, mean, variance)
