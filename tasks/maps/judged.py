"""Fixed decisions under two views of how sure they are, confidence and reliability: every metric, and its replicates.

The replicates are of one paired bootstrap over groups (`tasks.metrics.resampling`), given the fitted map. Beyond
`MOST_RESAMPLED` rows some of the groups are resampled, and the replicates are shrunk to what all would show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import logit

from tasks.maps.reliability_map import Scored
from tasks.metrics.bounded import SEED
from tasks.metrics.comparison import found_per_1000
from tasks.metrics.probability import confidence_bins
from tasks.metrics.registry import of_reliability
from tasks.metrics.reliability import rows_kept
from tasks.metrics.resampling import Resamples, resample, some_clusters
from tasks.predictions.rows import PredictedRows
from tasks.protocol.params import MetricParams

MOST_RESAMPLED = 20_000  # rows, in whole groups; all of 1e6 rows would take a minute
LEAST_RESAMPLED = 200  # groups; where few hold many rows, they are worth the wait
FEWEST_ERRORS = 3.0  # that a change at one coverage varies by, where some of the groups must speak for all
KEPT_TENTHS = {10: 9, 30: 7, 50: 5, 90: 1}  # percent of the rows that are reviewed to tenths that are kept
VIEWS = ("confidence", "reliability")

Numbers = dict[str, dict[str, Any]]  # one of VIEWS, then the metric: a number, or its (R,) replicates


@dataclass(frozen=True, eq=False)
class Judged:
    """Fixed decisions that are right or wrong, by two views of how sure they are; all arrays share the `n` rows."""

    correct: np.ndarray  # (n,) bool
    decision: np.ndarray  # (n,) int64
    cluster: np.ndarray  # (n,) int64, 0..C-1, the rows of one group
    logit: dict[str, np.ndarray]  # by VIEWS: (n,) float64, infinite ones too
    probability: dict[str, np.ndarray]  # the same in [0, 1]

    @classmethod
    def of(cls, rows: PredictedRows, scored: Scored) -> Judged:
        """Without a group, each row stands by itself."""
        logits = {"confidence": logit(scored.confidence), "reliability": scored.logit}
        # what a map leaves as it is must not move to another bin of the ECE by the rounding of a sigmoid
        kept = logits["confidence"] == logits["reliability"]
        reliability = np.where(kept, scored.confidence, scored.reliability)
        cluster = np.arange(len(rows))
        if rows.group is not None:  # numbered in the order of their names
            cluster = pl.Series(rows.group, dtype=pl.String).rank("dense").to_numpy().astype(np.int64) - 1
        probabilities = {"confidence": scored.confidence, "reliability": reliability}
        return cls(rows.correct, rows.decision, cluster, logits, probabilities)

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def clusters(self) -> int:
        """C, how many groups there are."""
        return int(self.cluster.max()) + 1

    def some(self) -> Judged:
        """The rows that are resampled: all, or those of some groups, which are numbered again."""
        rows = some_clusters(self.cluster, rows=MOST_RESAMPLED, least=LEAST_RESAMPLED, seed=SEED)
        if rows.all():
            return self
        views = ({by: of[rows] for by, of in view.items()} for view in (self.logit, self.probability))
        cluster = np.unique(self.cluster[rows], return_inverse=True)[1]
        return Judged(self.correct[rows], self.decision[rows], cluster, *views)


def measured(rows: Judged, params: MetricParams, draws: Resamples | None = None) -> Numbers:
    """Every metric by confidence and by reliability, a number each; or `(R,)`, of the resamples of the same rows.

    `found_30` are the errors found per 1,000 reviews where 30% are reviewed.
    """
    return _with_ece(_with_gaps(rows, params, draws))


def _with_gaps(rows: Judged, params: MetricParams, draws: Resamples | None = None) -> Numbers:
    """The same with `gaps`, `(bins,)` or `(bins, R)`, whose absolute values the calibration error is the sum of."""
    n, bins, wrong = len(rows), params.ece_bins, ~rows.correct
    sizes, errors = (n, np.count_nonzero(wrong)) if draws is None else (draws.rows.astype(int), draws.sums(wrong)[0])
    found: Numbers = {}
    for by in VIEWS:
        metrics = of_reliability(rows.logit[by], rows.correct, params, draws)
        bin_of_row, gap = confidence_bins(rows.probability[by], bins), rows.probability[by] - rows.correct
        sums = np.bincount(bin_of_row, gap, bins) if draws is None else draws.sums(gap, bin_of_row, bins)
        metrics["gaps"] = sums / sizes
        for percent, tenths in KEPT_TENTHS.items():
            kept = rows_kept(sizes, tenths)
            kept_errors = np.round(kept * (1 - metrics[f"selacc_{tenths}0"]), 9)
            with np.errstate(invalid="ignore"):  # of a few rows none is reviewed
                metrics[f"found_{percent}"] = found_per_1000(errors, kept_errors, np.float64(sizes - kept))
        found[by] = metrics
    return found


def replicated(rows: Judged, some: Judged, params: MetricParams) -> Numbers:
    """Replicates `(R,)` of the metrics of `rows`, from the groups that `some` of them are.

    Those of some groups are shrunk (`some_clusters`). The calibration error is no smooth statistic, but its gaps are
    means: they are shrunk, and then summed.
    """
    found = _with_gaps(some, params, resample(some.cluster, resamples=params.resamples, seed=SEED))
    if len(some) < len(rows):
        values, centre = _with_gaps(rows, params), _with_gaps(some, params)
        unknown, shrinkage = _too_few_errors(values, found, len(some)), np.sqrt(some.clusters / rows.clusters)
        for by, metrics in found.items():
            for name, drawn in metrics.items():
                shrunk = values[by][name] + shrinkage * (drawn.T - centre[by][name])  # the gaps are by bin
                metrics[name] = np.full(params.resamples, np.nan) if name in unknown else shrunk.T
    return _with_ece(found)


def _with_ece(found: Numbers) -> Numbers:
    for metrics in found.values():
        metrics["ece"] = np.abs(metrics.pop("gaps")).sum(axis=0)
    return found


def _too_few_errors(values: Numbers, found: Numbers, rows: int) -> set[str]:
    """Metrics at one coverage that hang on so few errors among these rows that they cannot speak for more rows."""
    unknown: set[str] = set()
    for percent, tenths in KEPT_TENTHS.items():
        name = f"selacc_{tenths}0"
        changes = found["reliability"][name] - found["confidence"][name]
        unchanged = values["reliability"][name] == values["confidence"][name] and not changes.any()
        if not unchanged and changes.std() * rows_kept(rows, tenths) < FEWEST_ERRORS:
            unknown |= {name, f"found_{percent}"}
    return unknown
