"""How far each compared metric may be off by the drawing of test groups, from one paired bootstrap.

A quantity is the mean over protocol seeds: `before` (by confidence, or of the calibrator's probabilities), `after`
(by MRP, or of MRC's) and their `delta`. All calibrators and seeds share the resamples, so that `average` over the
calibrators, and every delta, has replicates of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.metrics.intervals import interval, two_sided_p
from tasks.metrics.probability import brier_of_rows, nll_of_rows
from tasks.metrics.resampling import FEWEST_GROUPS, Resamples, resample
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.keys import AVERAGE, SIMPLEX
from tasks.protocol.params import MetricParams
from tasks.protocol.results import Projected, ProjectedDecisions

SEED = 0  # of the resamples, which no result may choose
RANKED = ("nll_correct", "aupr_error", "aurc", "selacc_10", "selacc_50", "selacc_70", "selacc_90")
OF_PROBABILITIES = ("ece", "top_ece", "nll", "brier")
UNCHANGED = ("accuracy", "label_spread")  # by any projection, so they have a `before` alone

Replicates = dict[tuple[str, str], np.ndarray]  # variant and metric -> (R,)
Values = Mapping[tuple[str, str, str], float]  # calibrator, variant and metric -> mean over seeds


def bounded(
    projected: Sequence[Projected],
    test: FixedDecisions,
    values: Values,
    calibrators: Sequence[str],
    params: MetricParams,
) -> list[dict[str, Any]]:
    """Rows of calibrator, metric, quantity, value, standard_error, low, high (95%), groups and, of a delta, p.

    With fewer than ten groups all but the value is NaN, as is AUPR-Error's where ties are not read as expected (the
    bootstrap knows no other reading). `values` are the metrics themselves, of the whole test set; `calibrators` those
    to bound and to average over.
    """
    draws = resample(test.group, resamples=params.resamples, seed=SEED)
    found, of_calibrators = [], []
    for name in calibrators:
        seeds = [one for seed in projected for one in seed.rows if one.calibrator == name]
        of_calibrators.append(_mean([replicates(draws, rows, test.labels, params) for rows in seeds]))
        found += _rows(name, of_calibrators[-1], {key: values[name, *key] for key in of_calibrators[-1]})
    average = {key: float(np.mean([values[name, *key] for name in calibrators])) for key in of_calibrators[0]}
    found += _rows(AVERAGE, _mean(of_calibrators), average)
    unknown = dict.fromkeys(("standard_error", "low", "high", "p"), np.nan) if draws.clusters < FEWEST_GROUPS else {}
    return [{**row, "groups": draws.clusters, **unknown} for row in found]


def replicates(draws: Resamples, rows: ProjectedDecisions, labels: np.ndarray, params: MetricParams) -> Replicates:
    """Every metric of the comparison in each resample, under one calibrator and seed."""
    correct = rows.decision == labels
    found: Replicates = {("confidence", "accuracy"): draws.mean(correct.astype(np.float64))}
    for variant, log_probabilities in (
        ("confidence", rows.log_probabilities),
        (SIMPLEX, rows.simplex.log_probabilities),
    ):
        confidence = np.exp(log_probabilities[np.arange(len(labels)), rows.decision])
        found[variant, "ece"] = draws.ece(confidence, correct, params.ece_bins)
        found[variant, "top_ece"] = draws.top_ece(log_probabilities, labels, params.ece_bins)
        found[variant, "nll"] = draws.mean(nll_of_rows(log_probabilities, labels, params.smallest_probability))
        found[variant, "brier"] = draws.mean(brier_of_rows(log_probabilities, labels))
        if variant == "confidence":
            cells = {"groups": params.spread_groups, "minimum_cell": params.spread_minimum_cell}
            found[variant, "label_spread"] = draws.label_spread(confidence, rows.decision, correct, **cells)
    for variant in ("confidence", "mrp"):
        logit = rows.reliability_logits[variant]
        metrics = draws.reliability(logit, correct, smallest=params.smallest_reliability)
        if params.ties != "expected":
            metrics["aupr_error"] = np.full(draws.resamples, np.nan)
        found |= {(variant, metric): metrics[metric] for metric in RANKED}
    return found


def _mean(several: Sequence[Replicates]) -> Replicates:
    return {key: np.mean([one[key] for one in several], axis=0) for key in several[0]}


def _rows(calibrator: str, found: Replicates, values: Mapping[tuple[str, str], float]) -> list[dict[str, Any]]:
    """Each quantity of one calibrator, or of their average."""
    rows = []
    for metric in (*UNCHANGED, *RANKED, *OF_PROBABILITIES):
        before = ("confidence", metric)
        rows.append(_row(calibrator, metric, "before", values[before], found[before]))
        if metric in UNCHANGED:
            continue
        after = (SIMPLEX if metric in OF_PROBABILITIES else "mrp", metric)
        rows.append(_row(calibrator, metric, "after", values[after], found[after]))
        delta = found[after] - found[before]
        rows.append(
            _row(calibrator, metric, "delta", values[after] - values[before], delta) | {"p": two_sided_p(delta)}
        )
    return rows


def _row(calibrator: str, metric: str, quantity: str, value: float, replicates: np.ndarray) -> dict[str, Any]:
    where = interval(replicates)
    return {
        "calibrator": calibrator,
        "metric": metric,
        "quantity": quantity,
        "value": value,
        "standard_error": where.standard_error,
        "low": where.low,
        "high": where.high,
        "p": np.nan,
    }
