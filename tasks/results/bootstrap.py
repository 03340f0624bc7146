"""Bootstrap intervals of metrics and of their changes.

They come from one paired bootstrap over test groups. Three quantities are averaged over protocol seeds:

- `before`: metric of the confidence, or of the calibrator's probabilities;
- `after`: the same metric of MRP, or of MRC;
- `delta`: after minus before.

All calibrators and seeds share the resamples. Means over calibrators and deltas can therefore be computed in each
resample.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from relmap.decisions import ProtocolDecisions
from relmap.metrics.intervals import Estimate
from relmap.metrics.registry import METRICS
from relmap.metrics.resampling import BOOTSTRAP_SEED, MIN_BOOTSTRAP_GROUPS, Resamples, draw_resamples
from relmap.settings import MetricParams
from tasks.results.measurements import compute_metrics
from tasks.results.values import AVERAGE, SIMPLEX, SeedResults

RESAMPLED_METRICS = tuple(key for key, metric in METRICS.items() if metric.resampled)
AFTER_VARIANTS = ("mrp", SIMPLEX)  # compared with the confidence, or with the calibrator's probabilities

# Calibrator and variant of two scores of the same decisions, whose log losses are compared.
RECALIBRATION = ("matrix", "confidence")
RECALIBRATION_BASELINE = ("ts", "mrp")

Key = tuple[str, str, str]  # calibrator, variant and metric
MeanValues = Mapping[Key, float]  # means over seeds
IntervalRow = dict[str, str | int | float]


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
