"""Every metric of the fixed decisions by calibrator, variant and name, as results are filed, and its intervals.

Intervals are of one paired bootstrap over test groups. A quantity is the mean over protocol seeds: `before` (by
confidence, or of the calibrator's probabilities), `after` (by MRP, or of MRC's) and their `delta`. All calibrators and
seeds share the resamples, so that `average` over the calibrators, and every delta, has replicates of its own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import scipy

from relmap.decisions import Calibrator, FixedDecisions, decide
from relmap.metrics.intervals import Estimate
from relmap.metrics.registry import (
    METRICS,
    DecisionView,
    LabelView,
    MetricValue,
    ProbabilityView,
    ReliabilityView,
    SimplexView,
    metrics_for_views,
)
from relmap.metrics.resampling import BOOTSTRAP_SEED, MIN_BOOTSTRAP_GROUPS, Resamples, draw_resamples
from relmap.settings import MetricParams
from tasks.records.results import AVERAGE, SIMPLEX, Projected, ProjectedDecisions

BOUNDED = tuple(key for key, metric in METRICS.items() if metric.resampled)
AFTER = ("mrp", SIMPLEX)  # what a confidence, or the calibrator's probabilities, are compared with
RECALIBRATED, BESIDE = ("matrix", "confidence"), ("ts", "mrp")  # whose losses are compared, of the same decisions
Key = tuple[str, str, str]  # calibrator, variant and metric
Values = Mapping[Key, float]  # means over seeds
Measurement = tuple[str, str, MetricValue]  # variant, metric, value


def measured(
    rows: ProjectedDecisions,
    labels: np.ndarray,
    params: MetricParams,
    *,
    seed: int = 0,
    run: ProjectedDecisions | None = None,
    draws: Resamples | None = None,
    only: Collection[str] = METRICS.keys(),
) -> Iterator[Measurement]:
    """Yield the metrics that `only` names, of test rows with the true `labels (n,)`, or of each of their resamples.

    `seed` shuffles the labels of the null spread. The spread is that of `run`, the members of a model run together,
    where there are several.
    """
    run = run or rows
    common, of_run = ((decided.decision == labels, params, draws) for decided in (rows, run))
    views: list[tuple[str, DecisionView]] = [
        ("confidence", DecisionView(*common)),
        ("confidence", ProbabilityView(*common, rows.decision, rows.log_probabilities, labels)),
        (SIMPLEX, ProbabilityView(*common, rows.decision, rows.simplex.log_probabilities, labels)),
        ("confidence", LabelView(*of_run, run.decision, run.log_probabilities, labels, seed)),
        *((variant, ReliabilityView(*common, logit)) for variant, logit in rows.reliability_logits.items()),
        (SIMPLEX, SimplexView(*common, rows.simplex.feasible, rows.simplex.solved)),
    ]
    for variant, view in views:
        for metric in metrics_for_views(type(view)):
            if metric.key in only:
                yield variant, metric.key, metric.function(view)


def averaged(
    rows: ProjectedDecisions, members: Sequence[FixedDecisions], calibrators: Sequence[Calibrator]
) -> ProjectedDecisions:
    """Return `rows` with the mean probabilities of the `members` of a model run, each under its own calibrator.

    The decision is the first largest of the mean uncalibrated probabilities: inferred, as the paper says nothing of it.
    """
    uncalibrated = np.mean([scipy.special.softmax(member.logits, axis=1) for member in members], axis=0)
    fits = zip(calibrators, members, strict=True)
    with np.errstate(divide="ignore"):
        mean = np.log(np.mean([np.exp(calibrator(member.logits)) for calibrator, member in fits], axis=0))
    return replace(rows, decision=decide(uncalibrated), log_probabilities=mean)


def changed_metrics(params: MetricParams, other: MetricParams) -> set[str]:
    """Return the keys of the metrics that depend on a choice in which `params` and `other` differ."""
    changed = {name for name in MetricParams.model_fields if getattr(params, name) != getattr(other, name)}
    return {key for key, metric in METRICS.items() if changed & {*metric.choices}}


def bounded(
    projected: Sequence[Projected],
    test: FixedDecisions,
    values: Values,
    calibrators: Sequence[str],
    params: MetricParams,
) -> list[dict[str, Any]]:
    """Return rows of calibrator, metric, quantity, value, standard_error, low, high (95%), groups and, of a delta, p.

    With fewer than ten groups all but the value is NaN, as is AUPR-Error's where ties are not read as expected (the
    bootstrap knows no other reading). `values` are the metrics themselves, of the whole test set; `calibrators` those
    to bound and to average over. The quantity `beside_mrp` is the correctness NLL of matrix scaling alone less that of
    MRP under a temperature, where both ran.
    """
    draws = draw_resamples(test.group, resamples=params.resamples, seed=BOOTSTRAP_SEED)
    drawn: dict[Key, np.ndarray] = {}
    rival = RECALIBRATED[0] if BESIDE[0] in calibrators and (*RECALIBRATED, "nll_correct") in values else None
    bounded_too = () if rival is None or rival in calibrators else (rival,)
    for name in (*calibrators, *bounded_too) if draws.clusters >= MIN_BOOTSTRAP_GROUPS else ():
        seeds, only = [], BOUNDED if name in calibrators else ("nll_correct",)
        for rows in (rows for seed in projected for rows in seed.rows if rows.calibrator == name):
            both = replace(rows, reliability_logits={by: rows.reliability_logits[by] for by in ("confidence", "mrp")})
            replicates = measured(both, test.labels, params, draws=draws, only=only)
            seeds.append({(variant, metric): values for variant, metric, values in replicates})
        drawn |= {(name, *key): np.mean([seed[key] for seed in seeds], axis=0) for key in seeds[0]}

    def estimate(calibrator: str, variant: str, metric: str) -> Estimate:
        keys = [(name, variant, metric) for name in (calibrators if calibrator == AVERAGE else [calibrator])]
        replicates = np.mean([drawn[key] for key in keys], axis=0) if drawn else None
        return Estimate(float(np.mean([values[key] for key in keys])), replicates)

    table = []
    for calibrator, metric in product((*calibrators, AVERAGE), BOUNDED):
        place = {"calibrator": calibrator, "metric": metric}
        before = estimate(calibrator, "confidence", metric)
        table.append(place | {"quantity": "before"} | _numbers(before))
        for variant in AFTER:
            if (calibrators[0], variant, metric) in values:
                after = estimate(calibrator, variant, metric)
                table.append(place | {"quantity": "after"} | _numbers(after))
                table.append(place | {"quantity": "delta"} | _numbers(after - before) | {"p": (after - before).p_value})
    if rival is not None:
        change = estimate(*RECALIBRATED, "nll_correct") - estimate(*BESIDE, "nll_correct")
        place = {"calibrator": rival, "metric": "nll_correct", "quantity": "beside_mrp"}
        table.append(place | _numbers(change) | {"p": change.p_value})
    return [{**row, "groups": draws.groups} for row in table]


def _numbers(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, **estimate.interval._asdict(), "p": np.nan}
