"""Does a reliability map still hold? Its residuals on new labelled rows against those on rows held out at its fit.

Rows fall into cells: the decided label, and whether the reliability lies below the median of that label or not. In
each, the mean residual (correct - reliability) of the new rows is compared with that of the held-out rows, and not
with 0: a map fitted to finitely many rows is a little wrong from its first day, and many new rows would find that out
though nothing has changed. The most reliable 10% and 30% of the held-out rows are two more cells, of all labels
together; new rows belong to them where their reliability reaches the same limit. What is noticed is a change of how
often decisions are correct at a reliability; another mix of labels is no such change.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy

from relmap.errors import InputError
from relmap.maps.document import Cell, Half, MapDocument, TopCell
from relmap.metrics.intervals import holm_adjust
from relmap.metrics.probability import reject_nan
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS

FEWEST_ROWS = 20  # of a cell, on either side, for a test
ROUNDING = 1e-12  # a difference of mean residuals that is none
SHOWN = 5  # cells in words
HALVES: tuple[Half, Half] = ("lower", "upper")
TOP_SHARES = (0.1, 0.3)  # of the held-out rows, the most reliable ones


@dataclass(frozen=True)
class CellDrift:
    """The new rows of a cell, and what was to be expected of them."""

    label: int
    half: Half
    border: float  # between the halves
    rows: int
    says: float  # mean reliability
    correct: float  # share of correct decisions
    expected: float | None  # that share, were the mean residual as on the held-out rows; None where there are none
    p: float | None  # of no change, adjusted for all cells that are tested; None where rows are too few for a test

    def in_words(self, names: Sequence[str] | None) -> str:
        """The label, by its name if there are names, and the reliabilities."""
        where = f"below {self.border:.3g}" if self.half == "lower" else f"{self.border:.3g} and above"
        return f"{names[self.label] if names else self.label} at reliability {where}"


@dataclass(frozen=True)
class TopDrift:
    """New rows as reliable as the most reliable held-out rows.

    Attributes:
        share: Share of the held-out rows that reach the limit.
        limit: Minimum reliability.
        rows: Number of new rows that reach it.
        says: Their mean reliability.
        correct: Share of correct decisions among them.
        expected: That share if their mean residual were that of the held-out rows.
        p: P-value of no change, adjusted for all cells that are tested; None where rows are too few for a test.
    """

    share: float
    limit: float
    rows: int
    says: float
    correct: float
    expected: float
    p: float | None

    def in_words(self, _names: Sequence[str] | None) -> str:
        """Describe the rows."""
        return f"the most reliable {100 * self.share:.0f}%, at reliability {self.limit:.3g} and above"


@dataclass(frozen=True)
class Drift:
    """Each cell with new rows, by label and half, and the chance `level` of an alarm where nothing has changed."""

    level: float
    cells: tuple[CellDrift, ...]
    top: tuple[TopDrift, ...] = ()  # empty for maps without a reference

    @property
    def changed(self) -> tuple[CellDrift | TopDrift, ...]:
        """The cells in which the map no longer holds, the clearest first."""
        clear = [(cell.p, cell) for cell in self._all if cell.p is not None and cell.p <= self.level]
        return tuple(cell for _, cell in sorted(clear, key=lambda pair: pair[0]))

    @property
    def _all(self) -> tuple[CellDrift | TopDrift, ...]:
        return (*self.cells, *self.top)

    @property
    def holds(self) -> bool:
        """No test speaks against the map; neither does it where no cell could be tested, which the words say."""
        return not self.changed

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; p is null where a cell could not be tested."""
        return {
            "holds": self.holds,
            "level": self.level,
            "cells": [asdict(cell) for cell in self.cells],
            "top": [asdict(cell) for cell in self.top],
        }

    def in_words(self, names: Sequence[str] | None = None) -> list[str]:
        """Ten lines or fewer; `names` are those of the labels 0..K-1, or None."""
        changed, untested = self.changed, [cell for cell in self._all if cell.p is None]
        tested = len(untested) < len(self._all)
        lines = [
            f"The map no longer holds for {cell.in_words(names)}: says {cell.says:.2f}, correct {cell.correct:.2f} "
            f"({cell.rows:,} rows, {cell.expected:.2f} expected, p {cell.p:.2g})."
            for cell in changed[:SHOWN]
        ]
        if changed:
            more = f"Nor for {len(changed) - SHOWN} more such parts. " if len(changed) > SHOWN else ""
            lines.append(f"{more}Fit it again.")
        elif tested:
            lines.append("The map still holds: at a reliability, decisions are correct as often as when it was fitted.")
        else:
            lines.append("It cannot be said whether the map still holds: no label has enough labelled rows for a test.")
        if untested:
            shown = "; ".join(cell.in_words(names) for cell in untested[:SHOWN])
            more = f"; and {len(untested) - SHOWN} more" if len(untested) > SHOWN else ""
            lines.append(f"Not tested, since there are too few rows here or at the fit: {shown}{more}.")
        if tested:
            lines.append(
                f"An unchanged stream is called a changed one in at most {100 * self.level:g}% of evaluations. A "
                "change of the mix of labels is not looked for: the map can hold for another mix."
            )
        return lines


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
    for label in np.unique(decision):
        halves[label] = np.median(reliability[decision == label])
    cells = _cells(halves, reliability, decision, correct, group)
    return tuple(halves.tolist()), tuple(
        cell for cell, groups in cells if group is None or groups >= MIN_BOOTSTRAP_GROUPS
    )


def top_reference(
    reliability: np.ndarray, correct: np.ndarray, group: np.ndarray | None, quantiles: Sequence[float]
) -> tuple[TopCell, ...]:
    """Summarize the most reliable held-out rows, which `drift` compares new rows with.

    Args:
        reliability: Out-of-fold reliability, shape (n,).
        correct: Whether each decision is correct, shape (n,), bool.
        group: Group of each row, shape (n,), or None.
        quantiles: The 101 quantiles of the reliability that the map stores.

    Returns:
        A summary for each share of the rows; those of fewer than ten groups are omitted.
    """
    summaries = []
    for share in TOP_SHARES:
        found = _top_cell(_limit(quantiles, share), reliability, correct, group)
        if found is None or (group is not None and found[1] < MIN_BOOTSTRAP_GROUPS):
            continue
        facts = found[0].model_dump(include={"rows", "mean_reliability", "mean_residual", "variance"})
        summaries.append(TopCell(share=share, **facts))
    return tuple(summaries)


def _limit(quantiles: Sequence[float], share: float) -> float:
    """Return the minimum reliability of the most reliable share of the held-out rows."""
    return quantiles[round(100 * (1 - share))]


def _top_cell(
    limit: float, reliability: np.ndarray, correct: np.ndarray, group: np.ndarray | None
) -> tuple[Cell, int] | None:
    """Return the cell of the rows that reach the limit, and how many groups (or rows) they are; None without any."""
    at = reliability >= limit
    one_label = np.zeros(int(at.sum()), dtype=np.int64)
    cells = _cells(np.array([limit]), reliability[at], one_label, correct[at], None if group is None else group[at])
    return cells[0] if cells else None


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

    Raises:
        InputError: level is not in (0, 1), or there is no row.
    """
    reject_nan(reliability, "reliability")
    if not 0 < level < 1:
        raise InputError(f"a level of {level} is not above 0 and below 1; give one such as 0.01")
    if len(reliability) == 0:
        raise InputError("there is no labelled row to test the map with; give predictions with their labels")
    borders = document.held_out.halves
    before = {(cell.label, cell.half): cell for cell in document.held_out.cells}
    new = _cells(np.array(borders), reliability, decision, correct, group)
    pairs = [(before.get((now.label, now.half)), now) for now, _ in new]
    top = [(then, _top_cell(_limit_of(document, then), reliability, correct, group)) for then in document.held_out.top]
    tested_top = [(then, found) for then, found in top if found is not None]
    numbers = [groups for _, groups in new] + [found[1] for _, found in tested_top]
    testable = [groups if group is None or groups >= MIN_BOOTSTRAP_GROUPS else 0 for groups in numbers]
    compared = [*pairs, *((then, found[0]) for then, found in tested_top)]
    p_values = holm_adjust(np.array([_p_value(*pair, groups) for pair, groups in zip(compared, testable, strict=True)]))
    cells = [
        CellDrift(
            label=now.label,
            half=now.half,
            border=borders[now.label],
            rows=now.rows,
            says=now.mean_reliability,
            correct=now.mean_reliability + now.mean_residual,
            expected=None if then is None else now.mean_reliability + then.mean_residual,
            p=None if np.isnan(p) else p,
        )
        for (then, now), p in zip(pairs, p_values.tolist()[: len(pairs)], strict=True)
    ]
    top_cells = [
        TopDrift(
            share=then.share,
            limit=_limit_of(document, then),
            rows=now.rows,
            says=now.mean_reliability,
            correct=now.mean_reliability + now.mean_residual,
            expected=now.mean_reliability + then.mean_residual,
            p=None if np.isnan(p) else p,
        )
        for (then, (now, _)), p in zip(tested_top, p_values.tolist()[len(pairs) :], strict=True)
    ]
    return Drift(level, tuple(cells), tuple(top_cells))


def _limit_of(document: MapDocument, top: TopCell) -> float:
    return _limit(document.held_out.quantiles, top.share)


def _p_value(then: Cell | TopCell | None, now: Cell, groups: int) -> float:
    """Of an unchanged mean residual, two-sided; 0 where it changed though no row differs; NaN where it is no test."""
    if then is None or groups == 0 or min(then.rows, now.rows) < FEWEST_ROWS:
        return np.nan
    difference = abs(now.mean_residual - then.mean_residual)
    if difference <= ROUNDING:
        return 1.0
    both = (then.rows * then.variance + now.rows * now.variance) / (then.rows + now.rows)
    squared = max(both / then.rows + both / now.rows, then.variance / then.rows + now.variance / now.rows)
    return float(2 * scipy.special.stdtr(groups - 1, -difference / np.sqrt(squared))) if squared > 0 else 0.0


def _cells(
    borders: np.ndarray, reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, group: np.ndarray | None
) -> list[tuple[Cell, int]]:
    """The cells of rows `(n,)` and their groups (rows, if None); the order of rows does not matter."""
    if len(decision) == 0:
        return []
    number = 2 * decision + (reliability >= borders[decision])
    residual = correct - reliability
    name = np.arange(len(number)) if group is None else np.unique(group, return_inverse=True)[1]
    order = np.lexsort((residual, number) if group is None else (residual, name, number))
    number, residual, name = number[order], residual[order], name[order]
    numbers, start, rows = np.unique(number, return_index=True, return_counts=True)
    mean = np.add.reduceat(residual, start) / rows
    first = np.flatnonzero(np.r_[True, (np.diff(number) != 0) | (np.diff(name) != 0)])  # row of each cell and group
    centred, where = np.add.reduceat(residual - np.repeat(mean, rows), first), np.searchsorted(first, start)
    groups = np.diff(np.r_[where, len(first)])
    variance = np.add.reduceat(centred**2, where) / rows * (groups / np.maximum(groups - 1, 1))
    says = np.add.reduceat(reliability[order], start) / rows
    facts = {"rows": rows, "mean_reliability": says, "mean_residual": mean, "variance": variance}
    return [
        (Cell(label=n // 2, half=HALVES[n % 2], **{name: of[i].item() for name, of in facts.items()}), int(groups[i]))
        for i, n in enumerate(numbers.tolist())
    ]
