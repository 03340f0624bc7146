"""Every metric of the fixed decisions under one calibrator by variant and name, as results are filed."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import softmax

from tasks.metrics.registry import METRICS, ByLabel, Probabilities, Reliability, Simplex, Value, View, metrics_of
from tasks.metrics.resampling import Resamples
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.keys import SIMPLEX
from tasks.protocol.params import MetricParams
from tasks.protocol.results import Calibrator, ProjectedDecisions

Measurement = tuple[str, str, Value]  # variant, metric, value


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
    """The metrics that `only` names, of test rows whose true labels are `labels (n,)`, or of each of their resamples.

    `seed` shuffles the labels of the null spread. The spread is that of `run`, the members of a model run together,
    where there are several.
    """
    for variant, view in _views(rows, labels, params, seed, run or rows, draws):
        for metric in metrics_of(type(view)):
            if metric.key in only:
                yield variant, metric.key, metric.function(view)


def _views(
    rows: ProjectedDecisions,
    labels: np.ndarray,
    params: MetricParams,
    seed: int,
    run: ProjectedDecisions,
    draws: Resamples | None,
) -> Iterator[tuple[str, View]]:
    """What the metrics are of: decisions, class probabilities before and after MRC, and each variant's reliability."""
    common = rows.decision == labels, params, draws
    yield "confidence", View(*common)
    yield "confidence", Probabilities(*common, rows.decision, rows.log_probabilities, labels)
    yield SIMPLEX, Probabilities(*common, rows.decision, rows.simplex.log_probabilities, labels)
    of_run = run.decision == labels, params, draws
    yield "confidence", ByLabel(*of_run, run.decision, run.log_probabilities, labels, seed)
    yield from ((variant, Reliability(*common, logit)) for variant, logit in rows.reliability_logits.items())
    yield SIMPLEX, Simplex(*common, rows.simplex.feasible, rows.simplex.solved)


def averaged(
    rows: ProjectedDecisions, members: Sequence[FixedDecisions], calibrators: Sequence[Calibrator]
) -> ProjectedDecisions:
    """`rows` with the mean probabilities of the `members` of a model run, each under its own calibrator.

    The decision is the first largest of the mean uncalibrated probabilities: inferred, as the paper says nothing of it.
    """
    uncalibrated = np.mean([softmax(member.logits, axis=1) for member in members], axis=0)
    fits = zip(calibrators, members, strict=True)
    with np.errstate(divide="ignore"):
        mean = np.log(np.mean([np.exp(calibrator(member.logits)) for calibrator, member in fits], axis=0))
    return replace(rows, decision=decide(uncalibrated), log_probabilities=mean)


def changed_metrics(params: MetricParams, other: MetricParams) -> set[str]:
    """Those metrics on which some choice bears that `other` makes otherwise than `params`."""
    changed = {name for name in MetricParams.model_fields if getattr(params, name) != getattr(other, name)}
    return {key for key, metric in METRICS.items() if changed & {*metric.choices}}
