"""Every metric of the fixed decisions under one calibrator by variant and name, as results are filed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.metrics.probability import accuracy, brier, ece, nll, top_ece
from tasks.metrics.reliability import reliability_metrics
from tasks.metrics.spread import label_spread, label_spread_null
from tasks.protocol.keys import SIMPLEX
from tasks.protocol.params import MetricParams
from tasks.protocol.results import ProjectedDecisions

Measurement = tuple[str, str, float]  # variant, metric, value

# Which metrics a choice in params.yaml bears on; the others need not be measured again when it is made otherwise.
BEARS_ON = {
    "ece_bins": {"ece", "top_ece"},
    "ece_binning": {"ece", "top_ece"},
    "smallest_probability": {"nll"},
    "ties": {"aupr_error"},
    "smallest_reliability": {"nll_correct"},
    "spread_groups": {"label_spread", "label_spread_null_p95"},
    "spread_minimum_cell": {"label_spread", "label_spread_null_p95"},
    "spread_permutations": {"label_spread_null_p95"},
    "spread_reading": {"label_spread_null_p95"},
}


def measured(rows: ProjectedDecisions, labels: np.ndarray, params: MetricParams, seed: int) -> Iterator[Measurement]:
    """Everything, of test rows whose true labels are `labels (n,)`; `seed` shuffles the labels of the null spread."""
    yield "confidence", "accuracy", accuracy(rows.decision, labels)
    yield from of_probabilities(rows, labels, params)
    yield from of_spread(rows, labels, params, seed)
    yield from of_reliabilities(rows, labels, params)
    yield SIMPLEX, "infeasible_share", float(np.mean(~rows.simplex.feasible))
    yield SIMPLEX, "solved_share", float(np.mean(rows.simplex.solved))


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
    bins, binning = params.ece_bins, params.ece_binning
    for variant, log_probabilities in (
        ("confidence", rows.log_probabilities),
        (SIMPLEX, rows.simplex.log_probabilities),
    ):
        confidence = np.exp(log_probabilities[np.arange(len(labels)), rows.decision])
        yield variant, "ece", ece(confidence, rows.decision == labels, bins, binning)
        yield variant, "top_ece", top_ece(log_probabilities, labels, bins, binning)
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
        reading=params.spread_reading,
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
