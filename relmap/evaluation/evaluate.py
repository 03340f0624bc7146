"""What a reliability map buys on labelled rows: confidence beside reliability, for the same fixed decisions.

Intervals are of one paired bootstrap over groups (`relmap.metrics.resampling`), given the fitted map. Where rows were
drawn with known probabilities, each stands for as many as its inverse says.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import scipy

from relmap.decisions import confidence_logit
from relmap.errors import InputError
from relmap.io.rows import PredictedRows
from relmap.maps.document import MapDocument
from relmap.maps.reliability_map import Scored
from relmap.metrics.intervals import Estimate, effective_rows, errors_found_per_1000, wilson_interval
from relmap.metrics.probability import ece
from relmap.metrics.registry import ReliabilityView, compute_reliability_metrics, metrics_for_views
from relmap.metrics.reliability import correctness_log_loss, count_retained_rows
from relmap.metrics.resampling import BOOTSTRAP_SEED, MIN_BOOTSTRAP_GROUPS, Resamples, draw_resamples
from relmap.metrics.spread import LabelCells
from relmap.projection.decisions import CalibratedDecisions
from relmap.settings import METRIC_DEFAULTS, MetricParams

METRICS = (*(metric.key for metric in metrics_for_views(ReliabilityView)), "ece")
KEPT_TENTHS = {10: 9, 30: 7, 50: 5, 90: 1}  # percent of the rows that are reviewed to tenths that are kept
VIEWS = ("confidence", "reliability")

Numbers = dict[str, dict[str, Any]]  # one of VIEWS, then the metric: a number, or its (R,) replicates


@dataclass(frozen=True, eq=False)
class JudgedDecisions:
    """Fixed decisions that are right or wrong, by two views of how sure they are; all arrays share the `n` rows.

    A row that stands for others is there as often as `PredictedRows.copies` says, in one cluster.
    """

    rows: PredictedRows  # each once
    scored: Scored  # what a map says of them
    params: MetricParams
    at: np.ndarray  # (n,) which of the rows each is
    correct: np.ndarray  # (n,) bool
    decision: np.ndarray  # (n,) int64
    cluster: np.ndarray  # (n,) int64, 0..C-1, the rows of one group
    logit: dict[str, np.ndarray]  # by VIEWS: (n,) float64, infinite ones too
    probability: dict[str, np.ndarray]  # the same in [0, 1]

    @classmethod
    def of(cls, rows: PredictedRows, scored: Scored, params: MetricParams = METRIC_DEFAULTS) -> "JudgedDecisions":
        """Without a group, each row stands by itself; InputError where there is none."""
        if not len(rows):
            raise InputError("there is no row to evaluate; give predictions with their labels")
        logits = {"confidence": scipy.special.logit(scored.confidence), "reliability": scored.logit}
        # what a map leaves as it is must not move to another bin of the ECE by the rounding of a sigmoid
        kept = logits["confidence"] == logits["reliability"]
        reliability = np.where(kept, scored.confidence, scored.reliability)
        cluster = np.arange(len(rows))
        if rows.group is not None:  # numbered in the order of their names
            cluster = pl.Series(rows.group, dtype=pl.String).rank("dense").to_numpy().astype(np.int64) - 1
        at, probabilities = rows.copies, {"confidence": scored.confidence, "reliability": reliability}
        logits, probabilities = ({by: of[at] for by, of in view.items()} for view in (logits, probabilities))
        of_rows = rows.correct[at], rows.decision[at], cluster[at]
        return cls(rows, scored, params, at, *of_rows, logits, probabilities)

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def clusters(self) -> int:
        """C, how many groups there are."""
        return int(self.cluster.max()) + 1

    @cached_property
    def draws(self) -> Resamples | None:
        """The resamples that all intervals share; None where there are fewer than ten groups."""
        enough = self.clusters >= MIN_BOOTSTRAP_GROUPS
        return draw_resamples(self.cluster, resamples=self.params.resamples, seed=BOOTSTRAP_SEED) if enough else None

    def mean(self, values: np.ndarray) -> dict[str, float | None]:
        """The mean of values `(n,)`, its standard error, and its 95% interval; ready for JSON."""
        estimate = Estimate(float(np.mean(values)), None if self.draws is None else self.draws.mean(values))
        return {name: plain(x) for name, x in ({"value": estimate.value} | estimate.interval._asdict()).items()}


def evaluate(document: MapDocument, judged: JudgedDecisions) -> dict[str, Any]:
    """Every metric by confidence and by reliability, with 95% intervals of the change; ready for JSON.

    Undefined numbers are None, and so are all intervals where there are fewer than ten groups. Errors are those found
    per 1,000 reviews of the least sure rows, over a random order of tied rows. All are of as many rows as the given
    ones stand for, but for the counts, and the label spread with what shuffles of the labels show. `judged` is what the
    map of `document` says.
    """
    rows, scored = judged.rows, judged.scored
    cells = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct, judged.params)
    return compared(judged) | {
        "accuracy": _shares(judged, np.zeros(len(judged), dtype=np.int64), 1)[0],
        "labels": _labels(document, rows, judged),
        "label_spread": {
            "value": plain(cells.spread()),
            "shuffled_p95": plain(cells.shuffled_quantile(BOOTSTRAP_SEED)),
        },
    }


def compared(judged: JudgedDecisions) -> dict[str, Any]:
    """The part of an evaluation that holds both views against one another, and how many rows that rests on."""
    rows, draws, values = judged.rows, judged.draws, _measured(judged)
    replicates = None if draws is None else _measured(judged, draws)
    n, wrong = len(rows), float(1000 * np.mean(~judged.correct))
    return {
        "rows": n,
        "errors": int(np.count_nonzero(~rows.correct)),
        "groups": judged.clusters,
        "grouped": rows.group is not None,
        "weighted": rows.weight is not None,
        "resamples": 0 if draws is None else draws.resamples,
        "metrics": {name: _compared(name, values, replicates) for name in METRICS},
        "reviews": [
            {"reviewed": percent / 100, "reviews": int(n - count_retained_rows(n, tenths)), "at_random": wrong}
            | _compared(f"found_{percent}", values, replicates)
            for percent, tenths in KEPT_TENTHS.items()
        ],
    }


def others_judged(document: MapDocument, judged: JudgedDecisions) -> dict[str, Any]:
    """What else the fit had to choose from does on rows that no fit has seen, in log loss; ready for JSON.

    `candidates` are as the choice of a map has them, beside the confidence, and `recalibrated` is matrix scaling beside
    the map; None where the map does not hold them.
    """
    rows, others, smallest = judged.rows, document.others, judged.params.smallest_reliability
    if others is None:
        return {"candidates": None, "recalibrated": None}

    taken, recalibrated, confidence = document.projection.name, None, scipy.special.logit(judged.scored.confidence)
    seen = CalibratedDecisions(confidence, rows.decision, None, rows.logits, rows.signals)
    scores = {"confidence": confidence, taken: judged.scored.logit}
    scores |= {name: np.asarray(variant(seen)) for name, variant in others.variants.items()}
    if others.matrix is not None and rows.logits is not None:
        probabilities = others.matrix(rows.logits)
        scores["matrix"] = confidence_logit(probabilities, rows.decision)
    loss = {name: correctness_log_loss(of, rows.correct, smallest)[judged.at] for name, of in scores.items()}

    def beside(before: str, after: str) -> dict[str, float | None]:
        numbers = judged.mean(loss[after] - loss[before])
        return {"change": numbers.pop("value"), **numbers}

    if "matrix" in scores:
        moved = float(np.mean((probabilities.argmax(axis=1) != rows.decision)[judged.at]))
        recalibrated = beside(taken, "matrix") | {"decisions_changed": moved}
    names = [each.variant for each in document.choice.candidates if each.variant in loss]
    candidates = [
        {"variant": name, "nll_correct": float(loss[name].mean())} | beside("confidence", name) for name in names
    ]
    return {"candidates": candidates, "recalibrated": recalibrated}


def _compared(name: str, values: Numbers, replicates: Numbers | None) -> dict[str, float | None]:
    drawn = {} if replicates is None else {by: replicates[by][name] for by in VIEWS}
    before, after = (Estimate(values[by][name], drawn.get(by)) for by in VIEWS)
    change, where = after - before, (after - before).interval
    numbers = {"confidence": before.value, "reliability": after.value, "change": change.value}
    numbers |= {"low": where.low, "high": where.high, "p": change.p_value}
    return {name: plain(number) for name, number in numbers.items()}


def _labels(document: MapDocument, rows: PredictedRows, judged: JudgedDecisions) -> list[dict[str, Any]]:
    """What is said and what is right of each label's decisions, and what the map has behind it."""
    decision, n_labels = judged.decision, document.n_labels
    shares, many = _shares(judged, decision, n_labels), np.bincount(decision, minlength=n_labels)
    counts = np.bincount(rows.decision, minlength=n_labels).tolist()
    means = {
        f"mean_{by}": np.bincount(decision, probability, n_labels) / np.where(many, many, np.nan)
        for by, probability in judged.probability.items()
    }
    behind, fallback = document.projection.rows_by_label, document.projection.fallback
    return [
        {
            "label": label,
            "name": document.shown_names[label],
            "rows": counts[label],
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
    own, (pair, at) = cell, np.unique(cell * judged.clusters + judged.cluster, return_inverse=True)
    cell, rows, n_correct = pair // judged.clusters, np.bincount(at), np.bincount(at, judged.correct)
    total = np.bincount(cell, rows, cells)
    with np.errstate(invalid="ignore"):
        share = np.bincount(cell, n_correct, cells) / total
    effective = effective_rows(
        share,
        total,
        squared_residuals=np.bincount(cell, (n_correct - share[cell] * rows) ** 2, cells),
        squared_rows=np.bincount(cell, rows.astype(float) ** 2, cells),
        squared_copies=np.bincount(own, np.bincount(judged.at)[judged.at], cells),
    )
    enough = np.bincount(cell, minlength=cells) >= MIN_BOOTSTRAP_GROUPS
    low, high = (np.where(enough, end, np.nan) for end in wilson_interval(share, effective))
    cells_of = zip(share, low, high, strict=True)
    return [dict(zip(("value", "low", "high"), map(plain, numbers), strict=True)) for numbers in cells_of]


def plain(number: float) -> float | None:
    """A number as JSON has it; None where it is undefined."""
    return float(number) if np.isfinite(number) else None


def _measured(rows: JudgedDecisions, draws: Resamples | None = None) -> Numbers:
    """Every metric by confidence and by reliability, a number each; or `(R,)`, of the resamples of the same rows.

    `found_30` are the errors found per 1,000 reviews where 30% are reviewed.
    """
    n, wrong, error = len(rows), ~rows.correct, ece if draws is None else draws.ece
    sizes, errors = (n, np.count_nonzero(wrong)) if draws is None else (draws.rows.astype(int), draws.sums(wrong)[0])
    numbers: Numbers = {}
    for by in VIEWS:
        metrics = compute_reliability_metrics(rows.logit[by], rows.correct, rows.params, draws)
        metrics["ece"] = error(rows.probability[by], rows.correct, rows.params.ece_bins)
        for percent, tenths in KEPT_TENTHS.items():
            kept = count_retained_rows(sizes, tenths)
            kept_errors = np.round(kept * (1 - metrics[f"selacc_{tenths}0"]), 9)
            with np.errstate(invalid="ignore"):  # of a few rows none is reviewed
                metrics[f"found_{percent}"] = errors_found_per_1000(errors, kept_errors, np.float64(sizes - kept))
        numbers[by] = metrics
    return numbers
