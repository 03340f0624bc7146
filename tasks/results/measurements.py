"""Metrics of projected decisions, of all test rows or of each resample."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import scipy

from relmap.decisions import Calibrator, ProtocolDecisions, decide
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
from relmap.metrics.resampling import Resamples
from relmap.settings import MetricParams
from tasks.results.values import SIMPLEX, ProjectedDecisions

FITTED_PER_MEMBER = ("ts",)  # calibrators that the label spread averages over members; others are fitted on their mean

Measurement = tuple[str, str, MetricValue]  # variant, metric and value


def compute_metrics(
    decisions: ProjectedDecisions,
    labels: np.ndarray,
    params: MetricParams,
    *,
    seed: int = 0,
    spread_probabilities: np.ndarray | None = None,
    spread_labels: np.ndarray | None = None,
    draws: Resamples | None = None,
    metric_keys: Collection[str] = METRICS.keys(),
) -> Iterator[Measurement]:
    """Compute the metrics of test rows, or of each of their resamples.

    Args:
        decisions: n test rows of one calibrator.
        labels: True labels, shape (n,).
        params: Settings of the metrics.
        seed: Seed of the shuffles of labels for the label spread under chance.
        spread_probabilities: Calibrated log-probabilities of the mean of the members of a model run, for the label
            spread, shape (m, K); None to use those of `decisions`.
        spread_labels: True labels of the test rows of that run, which may be other rows, shape (m,); None to use
            `labels`.
        draws: Resamples of the rows; None for all rows.
        metric_keys: Keys of the metrics to compute.

    Yields:
        Variant, metric and value: a float for all rows, or one value for each of R resamples, shape (R,).
    """
    if spread_probabilities is None:
        spread_probabilities = decisions.log_probabilities
    if spread_labels is None:
        spread_labels = labels
    for variant, view in _build_views(decisions, labels, params, seed, spread_probabilities, spread_labels, draws):
        for metric in metrics_for_views(type(view)):
            if metric.key in metric_keys:
                yield variant, metric.key, metric.function(view)


def _build_views(
    decisions: ProjectedDecisions,
    labels: np.ndarray,
    params: MetricParams,
    seed: int,
    spread_probabilities: np.ndarray,
    spread_labels: np.ndarray,
    draws: Resamples | None,
) -> list[tuple[str, DecisionView]]:
    """Build the views that metrics are computed from, each with its variant."""
    correct = decisions.decision == labels
    base_probabilities = ProbabilityView(
        correct,
        params,
        draws,
        decision=decisions.decision,
        log_probabilities=decisions.log_probabilities,
        labels=labels,
    )
    simplex = decisions.simplex
    simplex_probabilities = ProbabilityView(
        correct,
        params,
        draws,
        decision=decisions.decision,
        log_probabilities=simplex.log_probabilities,
        labels=labels,
    )
    top_label = decide(spread_probabilities)  # of the calibrator, as in the authors' code; not the fixed decision
    label_view = LabelView(
        top_label == spread_labels,
        params,
        draws,
        decision=top_label,
        log_probabilities=spread_probabilities,
        labels=spread_labels,
        seed=seed,
    )
    reliability_views = [
        (variant, ReliabilityView(correct, params, draws, logit))
        for variant, logit in decisions.reliability_logits.items()
    ]
    return [
        ("confidence", DecisionView(correct, params, draws)),
        ("confidence", base_probabilities),
        (SIMPLEX, simplex_probabilities),
        ("confidence", label_view),
        *reliability_views,
        (SIMPLEX, SimplexView(correct, params, draws, feasible=simplex.feasible, solved=simplex.solved)),
    ]


def average_members(members: Sequence[ProtocolDecisions]) -> ProtocolDecisions:
    """Average the probabilities of the members of a model run.

    Args:
        members: Decisions of each member on the same rows.

    Returns:
        The rows with log(mean probability + 1e-12) as logits, and the first largest of them as decision.
    """
    logits = np.log(np.mean([scipy.special.softmax(member.logits, axis=1) for member in members], axis=0) + 1e-12)
    return replace(members[0], decision=decide(logits), logits=logits)


def average_calibrated_members(members: Sequence[ProtocolDecisions], calibrators: Sequence[Calibrator]) -> np.ndarray:
    """Average the calibrated probabilities of the members of a model run.

    Args:
        members: Decisions of each member on the same n rows.
        calibrators: Calibrator of each member.

    Returns:
        Logarithm of the mean probabilities, shape (n, K).
    """
    calibrated = [np.exp(calibrator(member.logits)) for calibrator, member in zip(calibrators, members, strict=True)]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.mean(calibrated, axis=0)))


def find_affected_metrics(params: MetricParams, other: MetricParams) -> set[str]:
    """Find the metrics that can change from one set of settings to another.

    Args:
        params: Settings of the metrics.
        other: The other settings.

    Returns:
        Keys of the metrics that depend on a setting with another value.
    """
    changed = {name for name in MetricParams.model_fields if getattr(params, name) != getattr(other, name)}
    return {key for key, metric in METRICS.items() if changed.intersection(metric.choices)}
