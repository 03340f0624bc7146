"""Label spread: does the reliability differ between decided labels at equal confidence (paper, section 5.3)?

Rows are divided into groups at the quantiles of the confidence. A cell contains the rows of one group and one decided
label, and counts if it has enough rows. The residual of a row is its correctness (1 or 0) minus its confidence. The
spread of a group is the largest minus the smallest mean residual of its counted cells. The label spread is the mean
over groups, weighted by their rows in counted cells. The result is the same, bit for bit, in any order of the rows.
"""

from dataclasses import dataclass

import numpy as np

from relmap.metrics.probability import reject_nan
from relmap.settings import METRIC_DEFAULTS, MetricParams

N_RESIDUAL_BINS = 32  # of equal width, for the residuals of a group


@dataclass(frozen=True, eq=False)
class LabelCells:
    """Residuals of n rows by cell, for G confidence groups and L labels.

    Attributes:
        rows: Number of rows of each cell, shape (G, L), int64; may be 0.
        residual: Residuals, cell after cell and increasing within a cell, shape (n,), float64.
        params: Number of groups, smallest number of rows of a counted cell, and number of permutations.
    """

    rows: np.ndarray
    residual: np.ndarray
    params: MetricParams

    @classmethod
    def from_decisions(
        cls, confidence: np.ndarray, decision: np.ndarray, event: np.ndarray, params: MetricParams = METRIC_DEFAULTS
    ) -> "LabelCells":
        """Sort rows into cells; the residual of a row is `event` minus `confidence`.

        Args:
            confidence: Confidence in [0, 1], shape (n,).
            decision: Decided label, shape (n,).
            event: Whether the decision is correct, shape (n,), bool. If the true probabilities are known, it may also
                be the true probability that the decision is correct.
            params: As in the attributes.

        Returns:
            The cells.

        Raises:
            ValueError: A confidence or residual is NaN; the message names the row.
        """
        cell, shape = assign_label_cells(confidence, decision, params)
        residual = event - confidence
        reject_nan(residual, "residual")
        rows = np.bincount(cell, minlength=shape[0] * shape[1])
        narrow_cell = cell.astype(np.min_scalar_type(len(rows)))  # NumPy sorts narrow integers by radix
        residual = residual[np.argsort(narrow_cell, kind="stable")]
        for cell_residuals in np.split(residual, np.cumsum(rows)[:-1]):
            cell_residuals.sort()  # in place: a view of `residual`
        return cls(rows.reshape(shape), residual, params)

    @property
    def sums(self) -> np.ndarray:
        """Sum of the residuals of each cell, shape (G, L)."""
        rows = self.rows.ravel()
        starts = np.cumsum(rows) - rows
        has_rows = rows > 0
        sums = np.zeros(self.rows.size)
        sums[has_rows] = np.add.reduceat(self.residual, starts[has_rows])
        return sums.reshape(self.rows.shape)

    def spread(self) -> float:
        """Compute the label spread.

        Returns:
            Label spread in [0, 2] for residuals in [-1, 1]; NaN if no group has two counted cells.
        """
        return float(mean_spread(self._counted_rows(self.rows), self.sums[..., None])[0])

    def shuffled_spreads(self, seed: int) -> np.ndarray:
        """Compute the label spread after shuffles of the decided labels within each group.

        Shuffles do not change the number of rows of a cell, so the same cells are counted. Rows are not shuffled
        individually: the number of rows of each bin of residuals in each cell is drawn, at a cost that does not depend
        on the number of rows.

        Args:
            seed: Seed of the shuffles.

        Returns:
            Label spread of each shuffle, shape (spread_permutations,); NaN where the spread is NaN.
        """
        has_group_rows = self.rows.any(axis=1)
        has_label_rows = self.rows.any(axis=0)
        cell_rows = self.rows[has_group_rows][:, has_label_rows]
        if not cell_rows.size:
            return np.full(self.params.spread_permutations, np.nan)
        generator = np.random.default_rng(seed)
        sums = _shuffled_sums(cell_rows, self.residual, self.params.spread_permutations, generator)
        return mean_spread(self._counted_rows(cell_rows), sums)

    def shuffled_quantile(self, seed: int) -> float:
        """Compute the 95% quantile of `shuffled_spreads`.

        Args:
            seed: Seed of the shuffles.

        Returns:
            The quantile; NaN where the spread is NaN.
        """
        return float(np.quantile(self.shuffled_spreads(seed), 0.95))

    def _counted_rows(self, rows: np.ndarray) -> np.ndarray:
        """Replace the number of rows of cells with too few rows by 0, and add an axis, shape (G, L, 1)."""
        return np.where(rows >= self.params.spread_minimum_cell, rows, 0)[..., None]


def assign_confidence_groups(confidence: np.ndarray, n_groups: int) -> np.ndarray:
    """Divide rows into groups at the inner quantiles of the confidence, as in the code of the paper's authors.

    A row that equals a quantile is in the lower group, so rows of equal confidence are in the same group. Ties can
    therefore make a group larger and its neighbors smaller or empty.

    Args:
        confidence: Shape (n,).
        n_groups: Number of groups.

    Returns:
        Group of each row, 0..n_groups-1, shape (n,), int64.

    Raises:
        ValueError: A confidence is NaN; the message names the row.
    """
    reject_nan(confidence, "confidence")
    if len(confidence) == 0:
        return np.zeros(0, dtype=np.int64)
    inner = np.quantile(confidence, np.arange(1, n_groups) / n_groups)
    return np.searchsorted(inner, confidence, side="left")


def assign_label_cells(
    confidence: np.ndarray, decision: np.ndarray, params: MetricParams
) -> tuple[np.ndarray, tuple[int, int]]:
    """Assign rows to cells of confidence group and decided label.

    Args:
        confidence: Confidence in [0, 1], shape (n,).
        decision: Decided label, shape (n,).
        params: Number of groups.

    Returns:
        Cell of each row, group * L + label, shape (n,); and the numbers (G, L) of groups and labels.

    Raises:
        ValueError: A confidence is NaN; the message names the row.
    """
    n_labels = int(np.max(decision, initial=0)) + 1
    group = assign_confidence_groups(confidence, params.spread_groups)
    return group * n_labels + decision, (params.spread_groups, n_labels)


def mean_spread(rows: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Average over groups the largest minus the smallest mean residual of a cell.

    Groups with fewer than two counted cells are omitted. A group is weighted by its counted rows.

    Args:
        rows: Number of counted rows of each cell, shape (G, L, R) or (G, L, 1).
        sums: Sum of their residuals, shape (G, L, R).

    Returns:
        Label spread, shape (R,); NaN if all groups are omitted.
    """
    counted = rows > 0
    means = np.divide(sums, rows, out=np.zeros_like(sums), where=counted)
    # the initial values lie outside the range of residuals; they remain only in groups without a counted cell
    spread = means.max(axis=1, where=counted, initial=-2.0) - means.min(axis=1, where=counted, initial=2.0)
    weight = rows.sum(axis=1) * (counted.sum(axis=1) > 1)
    weighted_sum = (spread * weight).sum(axis=0)
    total_weight = weight.sum(axis=0)
    undefined = np.full(len(weighted_sum), np.nan)
    return np.asarray(np.divide(weighted_sum, total_weight, out=undefined, where=total_weight > 0))


def _shuffled_sums(
    cell_rows: np.ndarray, residual: np.ndarray, n_shuffles: int, generator: np.random.Generator
) -> np.ndarray:
    """Sum centered residuals over cells after random shuffles of the rows of each group.

    All rows of a residual bin get the mean residual of the bin. The numbers of a bin's rows in the cells of its group
    have a multivariate hypergeometric distribution, from which they are drawn label by label.

    Args:
        cell_rows: Number of rows of each cell, shape (G, L); no group and no label is empty.
        residual: Residuals, group after group, shape (n,).
        n_shuffles: Number of shuffles.
        generator: Source of randomness.

    Returns:
        Sums, shape (G, L, n_shuffles).
    """
    bin_rows, bin_means = _bin_residuals(cell_rows.sum(axis=1), residual)
    # rows of each label and group that have no bin yet
    free_rows = np.repeat(cell_rows.T[..., None], n_shuffles, axis=2)
    sums = np.zeros(free_rows.shape)
    last_label = len(free_rows) - 1
    for residual_bin in np.flatnonzero(bin_rows.any(axis=0)):
        # rows of the bin in each group that have no label yet
        remaining = np.repeat(bin_rows[:, residual_bin, None], n_shuffles, axis=1)
        free_of_later_labels = free_rows.sum(axis=0)
        for label in range(last_label):
            free_of_later_labels -= free_rows[label]
            drawn = generator.hypergeometric(free_rows[label], free_of_later_labels, remaining)
            sums[label] += bin_means[:, residual_bin, None] * drawn
            free_rows[label] -= drawn
            remaining -= drawn
        free_rows[last_label] -= remaining
    sums[last_label] = -sums.sum(axis=0)  # centered residuals sum to 0 in each group
    return sums.swapaxes(0, 1)


def _bin_residuals(n_rows: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide the centered residuals of each group into bins of equal width, and average them in each bin.

    The means are scaled so that the variances and covariances of the shuffled sums are exact. The whole distribution is
    exact if the residuals of each bin are equal.

    Args:
        n_rows: Number of rows of each group, shape (G,).
        residual: Residuals, group after group, shape (n,).

    Returns:
        Number of rows and scaled mean residual, shape (G, bins) each.
    """
    n_groups = len(n_rows)
    starts = np.cumsum(n_rows) - n_rows
    group = np.repeat(np.arange(n_groups), n_rows)
    residual = residual - (np.add.reduceat(residual, starts) / n_rows)[group]
    lowest = np.minimum.reduceat(residual, starts)[group]
    highest = np.maximum.reduceat(residual, starts)[group]
    width = np.where(highest > lowest, highest - lowest, 1)
    position = np.minimum(N_RESIDUAL_BINS * ((residual - lowest) / width), N_RESIDUAL_BINS - 1)
    group_bin = group * N_RESIDUAL_BINS + position.astype(np.int64)
    n_bins = n_groups * N_RESIDUAL_BINS
    bin_rows = np.bincount(group_bin, minlength=n_bins).reshape(n_groups, N_RESIDUAL_BINS)
    bin_sums = np.bincount(group_bin, residual, n_bins).reshape(n_groups, N_RESIDUAL_BINS)
    means = bin_sums / np.maximum(bin_rows, 1)
    squares_of_means = (bin_rows * means**2).sum(axis=1)
    squares = np.add.reduceat(residual**2, starts)
    means *= np.sqrt(squares / np.where(squares_of_means > 0, squares_of_means, 1))[:, None]
    return bin_rows, means
