"""Does reliability differ between decided labels at equal confidence (paper, section 5.3)?

Rows are cut into groups of equal mass by confidence. Within a group, the spread is the largest minus the smallest
mean residual Z - c of a decided label; the whole is their mean, weighted by the counted rows of the groups.
Results do not depend on the order of rows, not even by rounding.
"""

from dataclasses import dataclass

import numpy as np

from relmap.metrics.probability import reject_nan
from relmap.settings import METRIC_DEFAULTS, MetricParams

N_RESIDUAL_BINS = 32  # of equal width, of the residuals of a group


@dataclass(frozen=True, eq=False)
class LabelCells:
    """Rows by cell (confidence group, decided label), and by residual within each."""

    rows: np.ndarray  # (G, L) int64, of each cell; a cell may be empty
    residual: np.ndarray  # (n,) float64, cell after cell
    params: MetricParams

    @classmethod
    def of(
        cls, confidence: np.ndarray, decision: np.ndarray, event: np.ndarray, params: MetricParams = METRIC_DEFAULTS
    ) -> "LabelCells":
        """Return rows `(n,)` in as many groups as `params` says; their residual is event - confidence.

        The event is correct `(n,)` bool for the paper's diagnostic, or P(d|x) where the truth is known.

        Raises:
            ValueError: a confidence or residual is NaN; the message names the row.
        """
        cell, shape = assign_label_cells(confidence, decision, params)
        residual = event - confidence
        reject_nan(residual, "residual")
        rows = np.bincount(cell, minlength=shape[0] * shape[1])
        narrow = cell.astype(np.min_scalar_type(len(rows)))  # such numbers are sorted by radix
        residual = residual[np.argsort(narrow, kind="stable")]
        for of_cell in np.split(residual, np.cumsum(rows)[:-1]):
            of_cell.sort()  # the residuals of a cell are a view of all
        return cls(rows.reshape(shape), residual, params)

    @property
    def sums(self) -> np.ndarray:
        """The residuals summed over each cell, `(G, L)`."""
        ends, sums = np.cumsum(self.rows), np.zeros(self.rows.size)
        filled = self.rows.ravel() > 0
        sums[filled] = np.add.reduceat(self.residual, (ends - self.rows.ravel())[filled])
        return sums.reshape(self.rows.shape)

    def spread(self) -> float:
        """The label spread, in [0, 2] for residuals in [-1, 1]."""
        return float(mean_spread(self._counted(self.rows), self.sums[..., None])[0])

    def null(self, seed: int) -> float:
        """95th percentile of `spread` over `spread_permutations` shuffles of the decided labels inside each group.

        Shuffling keeps the rows of every cell, so the same cells count. NaN where the spread itself is. Nothing is
        shuffled: how many rows of each bin of residuals fall in each cell is drawn, at a cost that rows do not add to.
        """
        sizes = self.rows[self.rows.any(axis=1)][:, self.rows.any(axis=0)]
        if not sizes.size:
            return np.nan
        sums = _dealt(sizes, self.residual, self.params.spread_permutations, np.random.default_rng(seed))
        return float(np.quantile(mean_spread(self._counted(sizes), sums), 0.95))

    def _counted(self, rows: np.ndarray) -> np.ndarray:
        return np.where(rows >= self.params.spread_minimum_cell, rows, 0)[..., None]


def assign_confidence_groups(confidence: np.ndarray, groups: int) -> np.ndarray:
    """Confidence `(n,)` to its group `(n,)` int64, 0..groups-1, of n/groups rows each where no rows tie.

    Rows of equal confidence are never parted: they go together to the group in which their middle place falls.
    So a large tie makes its group larger, and its neighbours smaller or empty.
    """
    reject_nan(confidence, "confidence")
    # values are sorted, and not rows, which takes several times as long
    values, rows = np.unique(confidence, return_counts=True)
    twice_middle = 2 * np.cumsum(rows) - rows
    group = groups * twice_middle // (2 * max(len(confidence), 1))
    begins = np.searchsorted(group, np.arange(1, groups))
    return np.searchsorted(values[begins[begins < len(values)]], confidence, side="right")


def assign_label_cells(
    confidence: np.ndarray, decision: np.ndarray, params: MetricParams
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the cell of each row `(n,)`, group by group, and how many groups and labels there are."""
    labels = int(np.max(decision, initial=0)) + 1
    cell = assign_confidence_groups(confidence, params.spread_groups) * labels + np.asarray(decision, dtype=np.int64)
    return cell, (params.spread_groups, labels)


def mean_spread(rows: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return the mean over groups of the largest minus the smallest mean residual of a cell, `(R,)`.

    Of rows that count, `(G, L, R)` or `(G, L, 1)`, and sums of residuals `(G, L, R)`. Groups of fewer than two cells
    with rows are left out; NaN if none remain. A group weighs as much as it has rows that count.
    """
    filled = rows > 0
    means = np.divide(sums, rows, out=np.zeros_like(sums), where=filled)
    spread = means.max(axis=1, where=filled, initial=-2.0) - means.min(axis=1, where=filled, initial=2.0)
    weight = rows.sum(axis=1) * (filled.sum(axis=1) > 1)
    total, counted = (spread * weight).sum(axis=0), weight.sum(axis=0)
    return np.divide(total, counted, out=np.full(len(total), np.nan), where=counted > 0)


def _dealt(sizes: np.ndarray, residual: np.ndarray, deals: int, generator: np.random.Generator) -> np.ndarray:
    """Sums over the cells, `(G, L, deals)`, of residuals less their group's mean, dealt at random to a group's cells.

    The cells are of `sizes (G, L)`, in whose order the rows' residuals `(n,)` are; no group and no label is empty.
    """
    rows = sizes.sum(axis=1)
    first, group = np.cumsum(rows) - rows, np.repeat(np.arange(len(rows)), rows)
    residual = residual - (np.add.reduceat(residual, first) / rows)[group]
    lowest, highest = (of.reduceat(residual, first)[group] for of in (np.minimum, np.maximum))
    width = np.where(highest > lowest, highest - lowest, 1)
    cell = group * N_RESIDUAL_BINS + np.minimum(
        N_RESIDUAL_BINS * ((residual - lowest) / width), N_RESIDUAL_BINS - 1
    ).astype(np.int64)
    in_bin, sums = (
        np.bincount(cell, of, len(first) * N_RESIDUAL_BINS).reshape(-1, N_RESIDUAL_BINS) for of in (None, residual)
    )
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
    return dealt.swapaxes(0, 1)
