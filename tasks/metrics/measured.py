"""Every metric of the fixed decisions under one calibrator by variant and name, as results are filed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import softmax

from tasks.metrics.probability import accuracy, brier, ece, nll, top_ece
from tasks.metrics.reliability import reliability_metrics
from tasks.metrics.spread import label_spread, label_spread_null
from tasks.protocol.decisions import FixedDecisions, decide
from tasks.protocol.keys import SIMPLEX
from tasks.protocol.params import MetricParams
from tasks.protocol.results import Calibrator, ProjectedDecisions

Measurement = tuple[str, str, float]  # variant, metric, value

# Which metrics a choice in params.yaml bears on; the others need not be measured again when it is made otherwise.
BEARS_ON = {
    "ece_bins": {"ece", "top_ece"},
    "smallest_probability": {"nll"},
    "ties": {"aupr_error"},
    "smallest_reliability": {"nll_correct"},
    "spread_groups": {"label_spread", "label_spread_null_p95"},
    "spread_minimum_cell": {"label_spread", "label_spread_null_p95"},
    "spread_permutations": {"label_spread_null_p95"},
}


def measured(
    rows: ProjectedDecisions,
    labels: np.ndarray,
    params: MetricParams,
    seed: int,
    run: ProjectedDecisions | None = None,
) -> Iterator[Measurement]:
    """Everything, of test rows whose true labels are `labels (n,)`; `seed` shuffles the labels of the null spread.

    The spread is that of `run`, the members of a model run together, where there are several.
    """
    yield "confidence", "accuracy", accuracy(rows.decision, labels)
    yield from of_probabilities(rows, labels, params)
    yield from of_spread(run or rows, labels, params, seed)
    yield from of_reliabilities(rows, labels, params)
    yield SIMPLEX, "infeasible_share", float(np.mean(~rows.simplex.feasible))
    yield SIMPLEX, "solved_share", float(np.mean(rows.simplex.solved))


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


def remeasured(
    rows: ProjectedDecisions, labels: np.ndarray, params: MetricParams, other: MetricParams, seed: int
) -> Iterator[Measurement]:
    """Those metrics that `other` may change, where it differs from `params`, under `other`."""
    changed = {name for name in BEARS_ON if getattr(params, name) != getattr(other, name)}
    wanted = set().union(*(BEARS_ON[name] for name in changed))
    parts: list[Iterator[Measurement]] = []
    if wanted & {"ece", "top_ece", "nll"}:
        parts.append(of_probabilities(rows, labels, other))
    if wanted & {"label_spread", "label_spread_null_p95"}:
        parts.append(of_spread(rows, labels, other, seed))
    if wanted & {"aupr_error", "nll_correct"}:
        parts.append(of_reliabilities(rows, labels, other))
    yield from (found for part in parts for found in part if found[1] in wanted)


def of_probabilities(rows: ProjectedDecisions, labels: np.ndarray, params: MetricParams) -> Iterator[Measurement]:
    """Of the calibrator's class probabilities and of MRC's; no projection of a reliability changes them."""
    for variant, log_probabilities in (
        ("confidence", rows.log_probabilities),
        (SIMPLEX, rows.simplex.log_probabilities),
    ):
        confidence = np.exp(log_probabilities[np.arange(len(labels)), rows.decision])
        yield variant, "ece", ece(confidence, rows.decision == labels, params.ece_bins)
        yield variant, "top_ece", top_ece(log_probabilities, labels, params.ece_bins)
        yield variant, "nll", nll(log_probabilities, labels, params.smallest_probability)
        yield variant, "brier", brier(log_probabilities, labels)


def of_spread(rows: ProjectedDecisions, labels: np.ndarray, params: MetricParams, seed: int) -> Iterator[Measurement]:
    """The label spread of the confidence, and what shuffled labels show."""
    confidence = np.exp(rows.log_probabilities[np.arange(len(labels)), rows.decision])
    correct, groups, cell = rows.decision == labels, params.spread_groups, params.spread_minimum_cell
    spread = label_spread(confidence, rows.decision, correct, groups=groups, minimum_cell=cell)
    shuffled = label_spread_null(
        confidence,
        rows.decision,
        correct,
        groups=groups,
        minimum_cell=cell,
        permutations=params.spread_permutations,
        seed=seed,
    )
    yield "confidence", "label_spread", spread
    yield "confidence", "label_spread_null_p95", shuffled


def of_reliabilities(rows: ProjectedDecisions, labels: np.ndarray, params: MetricParams) -> Iterator[Measurement]:
    """How well each variant's reliability predicts and ranks correctness."""
    for variant, logit in rows.reliability_logits.items():
        metrics = of_reliability(logit, rows.decision == labels, params)
        yield from ((variant, metric, value) for metric, value in metrics.items())


def of_reliability(logit: np.ndarray, correct: np.ndarray, params: MetricParams) -> dict[str, float]:
    """The metrics of one reliability, given as its logit `(n,)`, as `params` reads ties and certainty."""
    return reliability_metrics(logit, correct, ties=params.ties, smallest=params.smallest_reliability)
