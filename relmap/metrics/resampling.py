"""Paired bootstrap over clusters of rows: the metrics of many resamples of the test rows.

A resample draws as many clusters as there are, with replacement, and contains all rows of a cluster as often as it is
drawn, because the rows of a query are dependent (Field and Welsh, 2007). All scores use the same resamples. Therefore a
replicate of the difference between two scores is the difference between their replicates, and the same holds for means
over seeds. Models are not refitted: intervals reflect the sampling of test clusters, given the fits. With few clusters,
say below 30, intervals are too short.

If there are more than MAX_TIE_GROUPS tie groups, neighboring groups are merged. A resample then needs six
thousand sums for any number of rows. The order of two neighbors among MAX_TIE_GROUPS groups hardly affects the metrics.

For the label spread, the confidence groups and the cells with enough rows are determined once, from all rows, and are
the same in every resample. Sampling noise increases calibration errors and label spreads, because they contain absolute
values and maxima. Their replicates are therefore biased upwards. The bias of a difference between two of them is
smaller.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from relmap.metrics.probability import N_BINS, confidence_bins
from relmap.metrics.reliability import (
    RiskOrder,
    TieGroups,
    expected_retained_errors,
    harmonic_sums,
    order_by_risk,
    ranking_metrics,
)
from relmap.metrics.spread import assign_label_cells, mean_spread
from relmap.settings import METRIC_DEFAULTS, MetricParams

BOOTSTRAP_SEED = 0  # fixed, so that no result can influence it
MAX_CLUSTERS = 1000  # more groups are merged; a standard deviation of 1,000 numbers has a relative standard error of 2%
CHUNK_RESAMPLES = 32  # resamples that are summed at once: their counts fit in a cache
MIN_DENSITY = 0.05  # share of nonzero cells above which multiplying dense matrices is faster
# With 8,000 to 400,000 rows, merging changes the ends of intervals by at most 0.1 standard errors; another seed by 0.3.
MAX_TIE_GROUPS = 2**11
MIN_BOOTSTRAP_GROUPS = 10  # with 5, a true null hypothesis is rejected at the 5% level in 15% of cases


@dataclass(frozen=True, eq=False)
class Resamples:
    """R resamples of n rows in C clusters.

    The methods compute a metric of each resample; it is NaN for resamples in which it is undefined.

    Attributes:
        cluster: Cluster 0..C-1 of each row, shape (n,), int64.
        clusters: Number of clusters C.
        resamples: Number of resamples R.
        seed: Seed of the draws.
        groups: Number of groups before groups were merged into clusters.
    """

    cluster: np.ndarray
    clusters: int
    resamples: int
    seed: int
    groups: int

    @cached_property
    def rows(self) -> np.ndarray:
        """Number of rows of each resample, shape (R,), float64."""
        (rows,) = self.sums(np.ones(len(self.cluster)))
        return np.asarray(rows)

    def sums(self, values: np.ndarray, cell: np.ndarray | int = 0, n_cells: int = 1) -> np.ndarray:
        """Sum values over the rows of each cell in each resample.

        Args:
            values: Shape (n,).
            cell: Cell 0..n_cells-1 of each row, shape (n,).
            n_cells: Number of cells.

        Returns:
            Sums, shape (n_cells, R).
        """
        cell_and_cluster = cell * self.clusters + self.cluster
        cluster_sums = np.bincount(cell_and_cluster, weights=values, minlength=n_cells * self.clusters)
        matrix = scipy.sparse.csr_array(cluster_sums.reshape(n_cells, self.clusters))
        return np.concatenate(list(self._resample_sums(matrix)), axis=1)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Average values over the rows of each resample.

        Args:
            values: Shape (n,), float64 or bool.

        Returns:
            Means, shape (R,).
        """
        (sums,) = self.sums(values)
        return np.asarray(sums / self.rows)

    def ece(self, confidence: np.ndarray, correct: np.ndarray, n_bins: int = N_BINS) -> np.ndarray:
        """Compute `probability.ece` of each resample.

        Args:
            confidence: Confidence in [0, 1], shape (n,).
            correct: Shape (n,), bool.
            n_bins: Number of bins.

        Returns:
            Calibration errors in [0, 1], shape (R,).

        Raises:
            ValueError: A confidence is NaN or outside [0, 1]; the message names the row.
        """
        bin_of_row = confidence_bins(confidence, n_bins)
        gaps = self.sums(confidence - correct, bin_of_row, n_bins)
        return np.asarray(np.abs(gaps).sum(axis=0) / self.rows)

    def label_spread(
        self, confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, params: MetricParams = METRIC_DEFAULTS
    ) -> np.ndarray:
        """Compute `LabelCells.spread` of each resample.

        In each resample, a cell without rows is omitted.

        Args:
            confidence: Confidence in [0, 1], shape (n,).
            decision: Decided label, shape (n,).
            correct: Shape (n,), bool.
            params: Number of groups and smallest counted cell.

        Returns:
            Label spreads, shape (R,).

        Raises:
            ValueError: A confidence is NaN; the message names the row.
        """
        cell, (n_groups, n_labels) = assign_label_cells(confidence, decision, params)
        n_cells = n_groups * n_labels
        rows = self.sums(np.ones(len(cell)), cell, n_cells)
        is_small = np.bincount(cell, minlength=n_cells) < params.spread_minimum_cell
        rows[is_small] = 0
        sums = self.sums(correct - confidence, cell, n_cells)
        shape = (n_groups, n_labels, self.resamples)
        return mean_spread(rows.reshape(shape), sums.reshape(shape))

    def ranking_metrics(self, logit: np.ndarray, correct: np.ndarray) -> dict[str, np.ndarray]:
        """Compute `reliability.ranking_metrics` of each resample.

        Args:
            logit: Logit of the reliability, shape (n,).
            correct: Shape (n,), bool.

        Returns:
            Each metric by name, shape (R,).

        Raises:
            ValueError: A logit is NaN; the message names the row.
        """
        order = order_by_risk(logit, correct).coarsen(MAX_TIE_GROUPS)
        harmonic = harmonic_sums(int(self.rows.max()))
        chunks = [ranking_metrics(groups, harmonic) for groups in self._tie_group_chunks(order)]
        metrics = {}
        for name in chunks[0]:
            metrics[name] = np.concatenate([chunk[name] for chunk in chunks])
        return metrics

    def errors_retained(self, logit: np.ndarray, correct: np.ndarray, coverage: np.ndarray) -> np.ndarray:
        """Compute `reliability.expected_retained_errors` of each resample.

        Args:
            logit: Logit of the reliability, shape (n,).
            correct: Shape (n,), bool.
            coverage: Coverages in [0, 1], shape (c,).

        Returns:
            Errors as shares of all rows, shape (R, c).

        Raises:
            ValueError: A logit is NaN; the message names the row.
        """
        order = order_by_risk(logit, correct).coarsen(MAX_TIE_GROUPS)
        chunks = [expected_retained_errors(groups, coverage) for groups in self._tie_group_chunks(order)]
        return np.concatenate(chunks)

    def _tie_group_chunks(self, order: RiskOrder) -> Iterator[TieGroups]:
        """Yield the tie groups of an order, each time under the weights of at most CHUNK_RESAMPLES resamples."""
        exact_dtype = np.float32 if self.rows.max() < 2**24 else np.float64  # float32 counts up to 2**24 exactly
        ones = np.ones(len(order.row), dtype=exact_dtype)
        cell_and_cluster = (order.cell, self.cluster[order.row])
        n_cells = 3 * order.groups  # as in RiskOrder
        matrix: scipy.sparse.csr_array | np.ndarray
        matrix = scipy.sparse.csr_array((ones, cell_and_cluster), shape=(n_cells, self.clusters))
        if matrix.nnz > MIN_DENSITY * n_cells * self.clusters:
            matrix = matrix.toarray()  # sums of whole numbers are the same in any order
        for sums in self._resample_sums(matrix):
            yield order.build_tie_groups(sums)

    def _resample_sums(self, matrix: "scipy.sparse.csr_array | np.ndarray") -> Iterator[np.ndarray]:
        """Yield the sums of each cell over the drawn clusters, each time for at most CHUNK_RESAMPLES resamples.

        Args:
            matrix: Sums of each cell and cluster, shape (cells, C).

        Yields:
            Shape (cells, number of resamples).
        """
        for start in range(0, self.resamples, CHUNK_RESAMPLES):
            counts = self._counts[:, start : start + CHUNK_RESAMPLES]
            yield (matrix @ counts.astype(matrix.dtype)).astype(np.float64, copy=False)

    @cached_property
    def _counts(self) -> np.ndarray:
        """Number of draws of each cluster in each resample, shape (C, R); uint16 suffices for MAX_CLUSTERS."""
        generator = np.random.default_rng(self.seed)
        counts = []
        for _ in range(self.resamples):
            resample = generator.integers(self.clusters, size=self.clusters)
            counts.append(np.bincount(resample, minlength=self.clusters).astype(np.uint16))
        return np.stack(counts, axis=1)


def draw_resamples(group: np.ndarray, *, resamples: int, seed: int) -> Resamples:
    """Draw resamples of groups of rows.

    If there are more than MAX_CLUSTERS groups, they are merged at random into MAX_CLUSTERS clusters, which are drawn
    instead of groups. The variance of a sum over a resample is then approximately the same. Groups are numbered in the
    order of their names, so the order of rows does not matter.

    Args:
        group: Group of each row, shape (n,); `arange(n)` for independent rows.
        resamples: Number of resamples R.
        seed: Seed of the draws.

    Returns:
        The resamples.

    Raises:
        ValueError: There is no row, or no resample.
    """
    if len(group) == 0 or resamples < 1:
        raise ValueError(f"{resamples} resamples of {len(group)} rows: both must be at least 1")
    names, group_number = np.unique(group, return_inverse=True)
    n_groups = len(names)
    cluster = group_number
    if n_groups > MAX_CLUSTERS:
        cluster_of_group = np.random.default_rng(seed).permutation(n_groups) % MAX_CLUSTERS
        cluster = cluster_of_group[group_number]
    cluster.flags.writeable = False
    return Resamples(cluster, min(n_groups, MAX_CLUSTERS), resamples, seed, n_groups)
