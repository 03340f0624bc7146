"""Does reliability differ between decided labels at equal confidence (paper, section 5.3)?

Rows are cut into groups of equal mass by confidence. Within a group, the spread is the largest minus the smallest
mean residual Z - c of a decided label; the whole is their mean, weighted by the counted rows of the groups.
Results do not depend on the order of rows, not even by rounding.
"""

from typing import NamedTuple

import numpy as np

from tasks.metrics.probability import reject_nan
from tasks.protocol.params import METRIC_DEFAULTS, MetricParams

BINS = 32  # of equal width, of the residuals of a group


class LabelCells(NamedTuple):
    """The C cells (confidence group, decided label) that have rows, ordered by group, then label."""

    group: np.ndarray  # (C,) int64, 0 is the lowest confidence
    label: np.ndarray  # (C,) int64
    rows: np.ndarray  # (C,) int64, at least 1
    residual: np.ndarray  # (..., C) float64, mean over the rows of the cell


class SortedRows(NamedTuple):
    """Rows by group, label and residual, and where each cell begins."""

    group: np.ndarray
    label: np.ndarray
    residual: np.ndarray
    start: np.ndarray  # (C,)

    @classmethod
    def of(cls, confidence: np.ndarray, decision: np.ndarray, residual: np.ndarray, groups: int) -> "SortedRows":
        """Return rows `(n,)` sorted, cut by their confidence into so many groups.

        Raises:
            ValueError: a confidence or residual is NaN; the message names the row.
        """
        reject_nan(residual, "residual")
        group = confidence_groups(confidence, groups)
        decision = np.asarray(decision, dtype=np.int64)
        order = np.argsort(residual)
        cell = (group * (decision.max(initial=0) + 1) + decision)[order]
        order = order[np.argsort(cell.astype(np.min_scalar_type(cell.max(initial=0))), kind="stable")]  # by radix
        group, label = group[order], decision[order]
        new_cell = (np.diff(group, prepend=-1) != 0) | (np.diff(label, prepend=-1) != 0)
        return cls(group, label, residual[order], np.flatnonzero(new_cell))

    @property
    def counts(self) -> np.ndarray:
        """The rows of each cell, `(C,)`."""
        return np.diff(self.start, append=len(self.group))

    def cells(self, sums: np.ndarray) -> LabelCells:
        """The cells, where their residuals sum to `(..., C)`."""
        return LabelCells(self.group[self.start], self.label[self.start], self.counts, sums / self.counts)

    def spread(self, params: MetricParams) -> float:
        """The paper's label spread, where the residuals are Z - c."""
        return float(mean_spread(self.means(), params.spread_minimum_cell))

    def null(self, params: MetricParams, seed: int) -> float:
        """95th percentile of `spread` over `spread_permutations` shuffles of the decided labels inside each group.

        Shuffling keeps the rows of every cell, so the same cells count. NaN where the spread itself is. Nothing is
        shuffled: how many rows of each bin of residuals fall in each cell is drawn, at a cost that rows do not add to.
        """
        deals, generator = params.spread_permutations, np.random.default_rng(seed)
        sums = _dealt(self, deals, generator) if len(self.start) else np.empty((deals, 0))
        return float(np.quantile(mean_spread(self.cells(sums), params.spread_minimum_cell), 0.95))

    def means(self) -> LabelCells:
        """The cells as they are."""
        return self.cells(np.add.reduceat(self.residual, self.start) if len(self.start) else np.empty(0))


def confidence_groups(confidence: np.ndarray, groups: int) -> np.ndarray:
    """Confidence `(n,)` to its group `(n,)` int64, 0..groups-1, of n/groups rows each where no rows tie.

    Rows of equal confidence are never parted: they go together to the group in which their middle place falls.
    So a large tie makes its group larger, and its neighbours smaller or empty.
    """
    reject_nan(confidence, "confidence")
    _, tie, rows = np.unique(confidence, return_inverse=True, return_counts=True)
    twice_middle = 2 * np.cumsum(rows) - rows
    return np.asarray((groups * twice_middle // (2 * max(len(confidence), 1)))[tie])


def label_cells(
    confidence: np.ndarray, decision: np.ndarray, residual: np.ndarray, *, groups: int = METRIC_DEFAULTS.spread_groups
) -> LabelCells:
    """Mean residual by confidence group and decided label; confidence, decision and residual are `(n,)`.

    The residual is Z - c for the paper's diagnostic, or P(d|x) - c where the truth is known.
    """
    return SortedRows.of(confidence, decision, residual, groups).means()


def mean_spread(cells: LabelCells, minimum_cell: int = METRIC_DEFAULTS.spread_minimum_cell) -> np.ndarray:
    """Mean over groups of the largest minus the smallest mean residual, `(...)`, in [0, 2] for residuals in [-1, 1].

    Cells of fewer than `minimum_cell` rows are left out, and groups left with fewer than two; NaN if none remain. A
    group weighs as much as it has rows that count.
    """
    counted = cells.rows >= minimum_cell
    _, start, n_cells = np.unique(cells.group[counted], return_index=True, return_counts=True)
    means, several = cells.residual[..., counted], n_cells > 1
    if not several.any():
        return np.full(means.shape[:-1], np.nan)
    spread = np.maximum.reduceat(means, start, axis=-1) - np.minimum.reduceat(means, start, axis=-1)
    weight = np.add.reduceat(cells.rows[counted], start)[several]
    return np.asarray((spread[..., several] * weight).sum(axis=-1) / weight.sum())


def label_spread(
    confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, params: MetricParams = METRIC_DEFAULTS
) -> float:
    """The paper's label spread: confidence of the fixed decision `(n,)`, decision `(n,)`, correct `(n,)` bool."""
    return SortedRows.of(confidence, decision, correct - confidence, params.spread_groups).spread(params)


def label_spread_null(
    confidence: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    params: MetricParams = METRIC_DEFAULTS,
    *,
    seed: int,
) -> float:
    """Return `SortedRows.null` of confidence, decision and correct `(n,)`."""
    return SortedRows.of(confidence, decision, correct - confidence, params.spread_groups).null(params, seed)


def _dealt(rows: SortedRows, deals: int, generator: np.random.Generator) -> np.ndarray:
    """Sums over the cells, `(deals, C)`, of residuals less their group's mean, dealt at random to a group's cells."""
    _, first, group = np.unique(rows.group, return_index=True, return_inverse=True)
    label = np.unique(rows.label, return_inverse=True)[1]
    sizes = np.zeros((len(first), label.max() + 1), dtype=np.int64)
    np.add.at(sizes, (group[rows.start], label[rows.start]), rows.counts)
    residual = rows.residual - (np.add.reduceat(rows.residual, first) / sizes.sum(axis=1))[group]
    lowest, highest = (of.reduceat(residual, first)[group] for of in (np.minimum, np.maximum))
    width = np.where(highest > lowest, highest - lowest, 1)
    cell = group * BINS + np.minimum(BINS * ((residual - lowest) / width), BINS - 1).astype(np.int64)
    in_bin, sums = (np.bincount(cell, of, len(first) * BINS).reshape(-1, BINS) for of in (None, residual))
    # the rows of a bin all count as their mean, and all sums are stretched, so that their variances and covariances are
    # exact; so is the whole law where each bin holds one value only
    means = sums / np.maximum(in_bin, 1)
    between = (in_bin * means**2).sum(axis=1)
    means *= np.sqrt(np.add.reduceat(residual**2, first) / np.where(between > 0, between, 1))[:, None]
    free = np.repeat(sizes.T[..., None], deals, axis=2)  # places of each label in each group that no bin has taken
    dealt = np.zeros(free.shape)
    for place in np.flatnonzero(in_bin.any(axis=0)):
        left, others = np.repeat(in_bin[:, place, None], deals, axis=1), free.sum(axis=0)
        for at in range(len(free) - 1):
            others -= free[at]
            taken = generator.hypergeometric(free[at], others, left)
            dealt[at] += means[:, place, None] * taken
            free[at] -= taken
            left -= taken
        free[-1] -= left
    dealt[-1] = -dealt.sum(axis=0)
    return dealt.swapaxes(0, 1)[sizes > 0].T
