"""A paired bootstrap over clusters of rows: the metrics of many resamples of the test rows.

A resample draws as many clusters as there are, with replacement, and takes all rows of a cluster as often as it is
drawn: rows of one query stand and fall together (Field and Welsh, 2007). One draw serves all that is compared, so the
replicates of a difference, or of an average over seeds, are differences and averages of replicates. The fits are not
repeated: what varies is the drawing of test clusters, given the fits. Of few clusters, say below 30, intervals come
out too short.

The order of neighbours among many errors hardly matters: of more than MOST_GROUPS tie groups, neighbours are tied, so
that a resample is a few thousand sums, whatever the rows.

What the confidences of all rows decide stays so in every resample: the groups and the counted cells of the label
spread. Calibration errors and label spreads are sums of absolute values, or maxima, to which drawing adds noise, so
their replicates lie above the value; the difference of two is affected less.
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

MAX_CLUSTERS = 1000  # that are drawn: the deviation of as many numbers is known to 2%, and all rows speak
CHUNK_RESAMPLES = 32  # resamples that are summed together: their counts stay near a cache
MAX_TIE_GROUPS = (
    2**12
)  # at 441,677 rows an end of an interval moves by 0.05 standard errors at most, less than by drawing
MIN_BOOTSTRAP_GROUPS = (
    10  # with fewer, resampling them says far too little: at 5, a true null is rejected in 15% of cases
)


@dataclass(frozen=True, eq=False)
class Resamples:
    """R resamples of n rows in C clusters. Every metric is `(R,)`, NaN where it is undefined."""

    cluster: np.ndarray  # (n,) int64, 0..C-1
    clusters: int
    resamples: int
    seed: int
    groups: int  # in the clusters

    @cached_property
    def rows(self) -> np.ndarray:
        """How many rows each resample has, `(R,)` float64."""
        return self.sums(np.ones(len(self.cluster)))[0]

    def sums(self, values: np.ndarray, cell: np.ndarray | int = 0, cells: int = 1) -> np.ndarray:
        """The sum of values `(n,)` over the rows of each cell, `(cells, R)`; cell is `(n,)`, 0..cells-1."""
        of_cell = np.bincount(cell * self.clusters + self.cluster, values, cells * self.clusters)
        return np.concatenate(list(self._summed(scipy.sparse.csr_array(of_cell.reshape(cells, self.clusters)))), axis=1)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """The mean of values `(n,)`: of a loss, or of a bool."""
        return np.asarray(self.sums(values)[0] / self.rows)

    def ece(self, confidence: np.ndarray, correct: np.ndarray, bins: int = N_BINS) -> np.ndarray:
        """`probability.ece` of fixed decisions, in [0, 1]: confidence `(n,)`, correct `(n,)` bool."""
        bin_of_row = confidence_bins(confidence, bins)
        return np.asarray(np.abs(self.sums(confidence - correct, bin_of_row, bins)).sum(axis=0) / self.rows)

    def label_spread(
        self, confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, params: MetricParams = METRIC_DEFAULTS
    ) -> np.ndarray:
        """`LabelCells.spread`; where a resample has no row of a cell, it does without that cell."""
        cell, shape = assign_label_cells(confidence, decision, params)
        rows = self.sums(np.ones(len(cell)), cell, shape[0] * shape[1])
        rows[np.bincount(cell, minlength=len(rows)) < params.spread_minimum_cell] = 0
        sums = self.sums(correct - confidence, cell, len(rows))
        return mean_spread(rows.reshape(*shape, -1), sums.reshape(*shape, -1))

    def ranking_metrics(self, logit: np.ndarray, correct: np.ndarray) -> dict[str, np.ndarray]:
        """`reliability.ranking_metrics` by name: logits `(n,)` and correct `(n,)` bool."""
        order, harmonic = order_by_risk(logit, correct).coarse(MAX_TIE_GROUPS), harmonic_sums(int(self.rows.max()))
        ranked = [ranking_metrics(groups, harmonic) for groups in self._weighted(order)]
        return {name: np.concatenate([some[name] for some in ranked]) for name in ranked[0]}

    def errors_retained(self, logit: np.ndarray, correct: np.ndarray, coverage: np.ndarray) -> np.ndarray:
        """`reliability.errors_retained` at coverages `(c,)` in each resample, `(R, c)`."""
        order = order_by_risk(logit, correct).coarse(MAX_TIE_GROUPS)
        return np.concatenate([expected_retained_errors(groups, coverage) for groups in self._weighted(order)])

    def _weighted(self, order: RiskOrder) -> Iterator[TieGroups]:
        """The groups of an order under TOGETHER draws or fewer, until there are R."""
        exact = np.float32 if self.rows.max() < 2**24 else np.float64
        ones, places = np.ones(len(order.row), dtype=exact), (order.cell, self.cluster[order.row])
        of_cell = scipy.sparse.csr_array((ones, places), shape=(3 * order.groups, self.clusters))
        return (order.weighted(sums) for sums in self._summed(of_cell))

    def _summed(self, of_cell: "scipy.sparse.csr_array") -> Iterator[np.ndarray]:
        """What is drawn of `(cells, C)`, `(cells, TOGETHER or fewer)`, until there are R."""
        for start in range(0, self.resamples, CHUNK_RESAMPLES):
            counts = self._counts[:, start : start + CHUNK_RESAMPLES]
            yield (of_cell @ counts.astype(of_cell.dtype)).astype(np.float64, copy=False)

    @cached_property
    def _counts(self) -> np.ndarray:
        """How often each cluster is in each resample, `(C, R)`: among so many, none comes to 65,536."""
        generator = np.random.default_rng(self.seed)
        drawn = (generator.integers(self.clusters, size=self.clusters) for _ in range(self.resamples))
        return np.stack([np.bincount(of_one, minlength=self.clusters).astype(np.uint16) for of_one in drawn], axis=1)


def draw_resamples(group: np.ndarray, *, resamples: int, seed: int) -> Resamples:
    """Draw `resamples` resamples of rows whose group `(n,)` says which stay together; `arange(n)` parts them all.

    Beyond `MOST_CLUSTERS` groups, as many bags of whole groups, dealt at random, are drawn in their place: bags vary as
    the groups in them do. Groups are numbered in the order of their names, so the order of rows does not matter.

    Raises:
        ValueError: there is no row, or no resample.
    """
    if len(group) == 0 or resamples < 1:
        raise ValueError(f"{resamples} resamples of {len(group)} rows: both must be at least 1")
    names, cluster = np.unique(group, return_inverse=True)
    if len(names) > MAX_CLUSTERS:
        cluster = (np.random.default_rng(seed).permutation(len(names)) % MAX_CLUSTERS)[cluster]
    cluster.flags.writeable = False
    return Resamples(cluster, min(len(names), MAX_CLUSTERS), resamples, seed, len(names))


BOOTSTRAP_SEED = 0  # of the resamples, which no result may choose
