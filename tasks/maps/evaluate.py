"""What a reliability map buys on labelled rows: confidence beside reliability, for the same fixed decisions.

Intervals are of one paired bootstrap over groups (`tasks.metrics.resampling`), given the fitted map. Beyond
`MOST_RESAMPLED` rows some of the groups are resampled, and the replicates are shrunk to what all would show.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.special import logit, ndtri

from tasks.maps.document import MapDocument
from tasks.maps.reliability_map import Scored
from tasks.metrics.comparison import Comparison, Estimate, found_per_1000
from tasks.metrics.measured import SEED
from tasks.metrics.probability import confidence_bins
from tasks.metrics.registry import Reliability, metrics_of, of_reliability
from tasks.metrics.reliability import rows_kept
from tasks.metrics.resampling import FEWEST_GROUPS, Resamples, resample, some_clusters
from tasks.metrics.spread import label_spread, label_spread_null
from tasks.predictions.rows import PredictedRows
from tasks.protocol.errors import BadInput
from tasks.protocol.params import METRIC_DEFAULTS, MetricParams

METRICS = (*(metric.key for metric in metrics_of(Reliability)), "ece")
MOST_RESAMPLED = 20_000  # rows, in whole groups; all of 1e6 rows would take a minute
LEAST_RESAMPLED = 200  # groups; where few hold many rows, they are worth the wait
FEWEST_ERRORS = 3.0  # that a change at one coverage varies by, where some of the groups must speak for all
KEPT_TENTHS = {10: 9, 30: 7, 50: 5, 90: 1}  # percent of the rows that are reviewed to tenths that are kept
VIEWS = ("confidence", "reliability")

Numbers = dict[str, dict[str, Any]]  # one of VIEWS, then the metric: a number, or its (R,) replicates


@dataclass(frozen=True, eq=False)
class JudgedDecisions:
    """Fixed decisions that are right or wrong, by two views of how sure they are; all arrays share the `n` rows."""

    correct: np.ndarray  # (n,) bool
    decision: np.ndarray  # (n,) int64
    cluster: np.ndarray  # (n,) int64, 0..C-1, the rows of one group
    logit: dict[str, np.ndarray]  # by VIEWS: (n,) float64, infinite ones too
    probability: dict[str, np.ndarray]  # the same in [0, 1]

    @classmethod
    def of(cls, rows: PredictedRows, scored: Scored) -> "JudgedDecisions":
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

    def some(self) -> "JudgedDecisions":
        """The rows that are resampled: all, or those of some groups, which are numbered again."""
        rows = some_clusters(self.cluster, rows=MOST_RESAMPLED, least=LEAST_RESAMPLED, seed=SEED)
        if rows.all():
            return self
        views = ({by: of[rows] for by, of in view.items()} for view in (self.logit, self.probability))
        cluster = np.unique(self.cluster[rows], return_inverse=True)[1]
        return JudgedDecisions(self.correct[rows], self.decision[rows], cluster, *views)


def evaluate(
    document: MapDocument, rows: PredictedRows, scored: Scored, params: MetricParams = METRIC_DEFAULTS
) -> dict[str, Any]:
    """Every metric by confidence and by reliability, with 95% intervals of the change; ready for JSON.

    Undefined numbers are None, and so are all intervals where there are fewer than ten groups. Errors are those found
    per 1,000 reviews of the least sure rows, over a random order of tied rows. The label spread, and what shuffles of
    the labels show, are of the rows that are resampled.

    Args:
        rows: labelled.
        scored: what the map of `document` says of them.

    Raises:
        BadInput: there is no row.
    """
    if not len(rows):
        raise BadInput("there is no row to evaluate; give predictions with their labels")
    judged = JudgedDecisions.of(rows, scored)
    some, values, drawn = judged.some(), _with_ece(_measured(judged, params)), judged.clusters >= FEWEST_GROUPS
    replicates = replicated(judged, some, params) if drawn else None
    resampled = {"resamples": params.resamples, "rows": len(some), "groups": some.clusters}
    n, errors = len(judged), int(np.count_nonzero(~judged.correct))
    spread, shuffled = spread_and_shuffled(some.probability["confidence"], some.decision, some.correct, params, SEED)
    return {
        "rows": n,
        "errors": errors,
        "groups": judged.clusters,
        "grouped": rows.group is not None,
        "resampled": {name: count * drawn for name, count in resampled.items()},
        "accuracy": _shares(judged, np.zeros(n, dtype=np.int64), 1)[0],
        "metrics": {name: _compared(name, values, replicates) for name in METRICS},
        "reviews": [
            {"reviewed": percent / 100, "reviews": int(n - rows_kept(n, tenths)), "at_random": 1000 * errors / n}
            | _compared(f"found_{percent}", values, replicates)
            for percent, tenths in KEPT_TENTHS.items()
        ],
        "labels": _labels(document, judged),
        # of the same rows, since the noise in both falls with these
        "label_spread": {"value": spread, "shuffled_p95": shuffled, "rows": len(some)},
    }


def _compared(name: str, values: Numbers, replicates: Numbers | None) -> dict[str, float | None]:
    drawn = {} if replicates is None else {by: replicates[by][name] for by in VIEWS}
    pair = Comparison(*(Estimate(values[by][name], drawn.get(by)) for by in VIEWS))
    change, where = pair.change, pair.change.interval
    numbers = {"confidence": pair.before.value, "reliability": pair.after.value, "change": change.value}
    numbers |= {"low": where.low, "high": where.high, "p": change.p}
    return {name: plain(number) for name, number in numbers.items()}


def _labels(document: MapDocument, judged: JudgedDecisions) -> list[dict[str, Any]]:
    """What is said and what is right of each label's decisions, and what the map has behind it."""
    decision, n_labels = judged.decision, document.n_labels
    shares, rows = _shares(judged, decision, n_labels), np.bincount(decision, minlength=n_labels)
    means = {
        f"mean_{by}": np.bincount(decision, probability, n_labels) / np.where(rows, rows, np.nan)
        for by, probability in judged.probability.items()
    }
    behind, fallback = document.projection.rows_by_label, document.projection.fallback
    return [
        {
            "label": label,
            "name": document.shown_names[label],
            "rows": int(rows[label]),
            "fit_rows": behind[label] if fallback else None,
            "fallback": fallback[label] if fallback else None,
            **{name: plain(mean[label]) for name, mean in means.items()},
            "correct": share,
        }
        for label, share in enumerate(shares)
    ]


def _shares(judged: JudgedDecisions, cell: np.ndarray, cells: int) -> list[dict[str, float | None]]:
    """The share of right rows in each cell, and Wilson's interval at the effective number of rows.

    Rows of a group stand and fall together, so they count for as many as would, each by itself, leave the share as
    uncertain as the groups do (Kish, 1965); where all rows are right, or wrong, as if each group were one row.
    """
    pair, at = np.unique(cell * judged.clusters + judged.cluster, return_inverse=True)
    cell, rows, n_correct = pair // judged.clusters, np.bincount(at), np.bincount(at, judged.correct)
    total = np.bincount(cell, rows, cells)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.bincount(cell, n_correct, cells) / total
        by_groups = share * (1 - share) * total**2 / np.bincount(cell, (n_correct - share[cell] * rows) ** 2, cells)
        as_groups = total**2 / np.bincount(cell, rows.astype(float) ** 2, cells)
        effective = np.minimum(np.where((share > 0) & (share < 1), by_groups, as_groups), total)
        z2 = ndtri(0.975) ** 2 / effective
        middle, half = share + z2 / 2, np.sqrt(z2 * (share * (1 - share) + z2 / 4))
    enough = np.bincount(cell, minlength=cells) >= FEWEST_GROUPS
    low, high = (np.where(enough, np.clip((middle + side * half) / (1 + z2), 0, 1), np.nan) for side in (-1, 1))
    cells_of = zip(share, low, high, strict=True)
    return [dict(zip(("value", "low", "high"), map(plain, numbers), strict=True)) for numbers in cells_of]


def spread_and_shuffled(
    confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, params: MetricParams, seed: int
) -> tuple[float | None, float | None]:
    """The label spread of rows `(n,)`, and the 95th percentile of it over shuffled labels; None where undefined."""
    groups, cell, shuffles = params.spread_groups, params.spread_minimum_cell, params.spread_permutations
    rows = confidence, decision, correct
    shuffled = label_spread_null(*rows, groups=groups, minimum_cell=cell, permutations=shuffles, seed=seed)
    return plain(label_spread(*rows, groups=groups, minimum_cell=cell)), plain(shuffled)


def plain(number: float) -> float | None:
    """A number as JSON has it; None where it is undefined."""
    return float(number) if np.isfinite(number) else None


def _measured(rows: JudgedDecisions, params: MetricParams, draws: Resamples | None = None) -> Numbers:
    """Every metric by confidence and by reliability, a number each; or `(R,)`, of the resamples of the same rows.

    `found_30` are the errors found per 1,000 reviews where 30% are reviewed. In place of the calibration error there
    are the `gaps` that it sums the absolute values of, `(bins,)` or `(bins, R)`.
    """
    n, bins, wrong = len(rows), params.ece_bins, ~rows.correct
    sizes, errors = (n, np.count_nonzero(wrong)) if draws is None else (draws.rows.astype(int), draws.sums(wrong)[0])
    numbers: Numbers = {}
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
        numbers[by] = metrics
    return numbers


def replicated(rows: JudgedDecisions, some: JudgedDecisions, params: MetricParams) -> Numbers:
    """Replicates `(R,)` of the metrics of `rows`, from the groups that `some` of them are.

    Those of some groups are shrunk (`some_clusters`). The calibration error is no smooth statistic, but its gaps are
    means: they are shrunk, and then summed.
    """
    replicates = _measured(some, params, resample(some.cluster, resamples=params.resamples, seed=SEED))
    if len(some) < len(rows):
        values, centre = _measured(rows, params), _measured(some, params)
        unknown, shrinkage = _too_few_errors(values, replicates, len(some)), np.sqrt(some.clusters / rows.clusters)
        for by, metrics in replicates.items():
            for name, drawn in metrics.items():
                shrunk = values[by][name] + shrinkage * (drawn.T - centre[by][name])  # the gaps are by bin
                metrics[name] = np.full(params.resamples, np.nan) if name in unknown else shrunk.T
    return _with_ece(replicates)


def _with_ece(numbers: Numbers) -> Numbers:
    for metrics in numbers.values():
        metrics["ece"] = np.abs(metrics.pop("gaps")).sum(axis=0)
    return numbers


def _too_few_errors(values: Numbers, replicates: Numbers, rows: int) -> set[str]:
    """Metrics at one coverage that hang on so few errors among these rows that they cannot speak for more rows."""
    unknown: set[str] = set()
    for percent, tenths in KEPT_TENTHS.items():
        name = f"selacc_{tenths}0"
        changes = replicates["reliability"][name] - replicates["confidence"][name]
        unchanged = values["reliability"][name] == values["confidence"][name] and not changes.any()
        if not unchanged and changes.std() * rows_kept(rows, tenths) < FEWEST_ERRORS:
            unknown |= {name, f"found_{percent}"}
    return unknown
