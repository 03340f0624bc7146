"""Metrics of projected decisions and their bootstrap intervals.

Intervals come from one paired bootstrap over test groups. Three quantities are averaged over protocol seeds:

- `before`: metric of the confidence, or of the calibrator's probabilities;
- `after`: the same metric of MRP, or of MRC;
- `delta`: after minus before.

All calibrators and seeds share the resamples. Means over calibrators and deltas can therefore be computed in each
resample.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import scipy

from relmap.decisions import Calibrator, ProtocolDecisions, decide
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
from tasks.results.values import AVERAGE, SIMPLEX, ProjectedDecisions, SeedResults

RESAMPLED_METRICS = tuple(key for key, metric in METRICS.items() if metric.resampled)
AFTER_VARIANTS = ("mrp", SIMPLEX)  # compared with the confidence, or with the calibrator's probabilities

# Calibrator and variant of two scores of the same decisions, whose log losses are compared.
RECALIBRATION = ("matrix", "confidence")
RECALIBRATION_BASELINE = ("ts", "mrp")

FITTED_PER_MEMBER = ("ts",)  # calibrators that the label spread averages over members; others are fitted on their mean

Key = tuple[str, str, str]  # calibrator, variant and metric
MeanValues = Mapping[Key, float]  # means over seeds
Measurement = tuple[str, str, MetricValue]  # variant, metric and value
IntervalRow = dict[str, str | int | float]


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


def bootstrap_rows(
    results: Sequence[SeedResults],
    test: ProtocolDecisions,
    values: MeanValues,
    calibrators: Sequence[str],
    params: MetricParams,
) -> list[IntervalRow]:
    """Compute bootstrap intervals of all metrics.

    The quantity `versus_mrp` is the correctness log loss of matrix scaling minus that of MRP with temperature scaling,
    if both ran.

    Args:
        results: Results of each protocol seed.
        test: Test rows with their groups.
        values: Metrics of all test rows, averaged over seeds.
        calibrators: Calibrators to compute intervals for, and to average over.
        params: Settings of the metrics.

    Returns:
        Rows with calibrator, metric, quantity, value, standard_error, low, high (95%), p (NaN except for changes) and
        groups. With fewer than ten groups, all numbers but the value are NaN. The same holds for AUPR-Error with ties
        by threshold, which the bootstrap does not support.
    """
    draws = draw_resamples(test.group, resamples=params.resamples, seed=BOOTSTRAP_SEED)
    has_recalibration = (*RECALIBRATION, "nll_correct") in values
    compares_recalibration = has_recalibration and RECALIBRATION_BASELINE[0] in calibrators
    replicates: dict[Key, np.ndarray] = {}
    if draws.clusters >= MIN_BOOTSTRAP_GROUPS:
        for calibrator in calibrators:
            replicates |= _draw_replicates(results, test.label, calibrator, params, draws, RESAMPLED_METRICS)
        if compares_recalibration and RECALIBRATION[0] not in calibrators:
            replicates |= _draw_replicates(results, test.label, RECALIBRATION[0], params, draws, ("nll_correct",))
    estimates = _Estimates(values, replicates, tuple(calibrators))
    rows: list[IntervalRow] = []
    for calibrator, metric in product((*calibrators, AVERAGE), RESAMPLED_METRICS):
        rows += _before_and_after_rows(estimates, calibrator, metric)
    if compares_recalibration:
        recalibrated = estimates.get(*RECALIBRATION, "nll_correct")
        change = recalibrated - estimates.get(*RECALIBRATION_BASELINE, "nll_correct")
        rows.append(_interval_row(RECALIBRATION[0], "nll_correct", "versus_mrp", change, is_change=True))
    return [{**row, "groups": draws.groups} for row in rows]


def _draw_replicates(
    results: Sequence[SeedResults],
    labels: np.ndarray,
    calibrator: str,
    params: MetricParams,
    draws: Resamples,
    metric_keys: Collection[str],
) -> dict[Key, np.ndarray]:
    """Compute the bootstrap replicates of metrics of one calibrator, averaged over seeds."""
    replicates_of_seeds: list[dict[tuple[str, str], np.ndarray]] = []
    for seed_results in results:
        for decisions in seed_results.projections:
            if decisions.calibrator != calibrator:
                continue
            # the other variants have no intervals
            compared_logits = {key: decisions.reliability_logits[key] for key in ("confidence", "mrp")}
            compared = replace(decisions, reliability_logits=compared_logits)
            measurements = compute_metrics(compared, labels, params, draws=draws, metric_keys=metric_keys)
            replicates_of_seeds.append({(variant, metric): value for variant, metric, value in measurements})
    means = {}
    for key in replicates_of_seeds[0]:
        means[calibrator, *key] = np.mean([replicates[key] for replicates in replicates_of_seeds], axis=0)
    return means


@dataclass(frozen=True, eq=False)
class _Estimates:
    """Means over seeds with their bootstrap replicates, also averaged over calibrators."""

    values: MeanValues
    replicates: Mapping[Key, np.ndarray]
    calibrators: tuple[str, ...]

    def has_metric(self, variant: str, metric: str) -> bool:
        """Return whether a metric was computed; all calibrators have the same metrics."""
        return (self.calibrators[0], variant, metric) in self.values

    def get(self, calibrator: str, variant: str, metric: str) -> Estimate:
        """Return the estimate of one calibrator, or of AVERAGE over all of them."""
        averaged = self.calibrators if calibrator == AVERAGE else (calibrator,)
        keys = [(name, variant, metric) for name in averaged]
        replicates = None
        if self.replicates:
            replicates = np.mean([self.replicates[key] for key in keys], axis=0)
        value = float(np.mean([self.values[key] for key in keys]))
        return Estimate(value, replicates)


def _before_and_after_rows(estimates: _Estimates, calibrator: str, metric: str) -> list[IntervalRow]:
    """Return the rows of one metric before and after the projection, and of its change."""
    before = estimates.get(calibrator, "confidence", metric)
    rows = [_interval_row(calibrator, metric, "before", before)]
    for variant in AFTER_VARIANTS:
        if estimates.has_metric(variant, metric):
            after = estimates.get(calibrator, variant, metric)
            rows.append(_interval_row(calibrator, metric, "after", after))
            rows.append(_interval_row(calibrator, metric, "delta", after - before, is_change=True))
    return rows


def _interval_row(
    calibrator: str, metric: str, quantity: str, estimate: Estimate, *, is_change: bool = False
) -> IntervalRow:
    interval = estimate.interval
    return {
        "calibrator": calibrator,
        "metric": metric,
        "quantity": quantity,
        "value": estimate.value,
        "standard_error": interval.standard_error,
        "low": interval.low,
        "high": interval.high,
        "p": estimate.p_value if is_change else np.nan,
    }
