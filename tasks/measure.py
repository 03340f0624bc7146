"""Prefect task: the metrics of one protocol seed, as long rows."""

from __future__ import annotations

import numpy as np
import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.probability import accuracy, brier, ece, nll, top_ece
from tasks.metrics.reliability import reliability_metrics
from tasks.metrics.spread import label_spread, label_spread_null
from tasks.protocol.params import MetricParams
from tasks.protocol.results import Projected


@task(task_run_name="measure/{projected.seed}", cache_policy=NO_CACHE)
def measure(projected: Projected, labels: np.ndarray, params: MetricParams) -> pl.DataFrame:
    """Rows of calibrator, seed, variant, metric, value on the test rows; `labels` `(n,)` are the true ones."""
    found = []
    cells = {"groups": params.spread_groups, "minimum_cell": params.spread_minimum_cell}
    for rows in projected.rows:
        correct = rows.decision == labels
        confidence = np.exp(rows.log_probabilities[np.arange(len(labels)), rows.decision])
        place = {"calibrator": rows.calibrator, "seed": projected.seed}
        of_calibrator = {
            "accuracy": accuracy(rows.decision, labels),
            "ece": ece(confidence, correct, params.ece_bins),
            "top_ece": top_ece(rows.log_probabilities, labels, params.ece_bins),
            "nll": nll(rows.log_probabilities, labels),
            "brier": brier(rows.log_probabilities, labels),
            "label_spread": label_spread(confidence, rows.decision, correct, **cells),
            "label_spread_null_p95": label_spread_null(
                confidence,
                rows.decision,
                correct,
                permutations=params.spread_permutations,
                seed=projected.seed,
                **cells,
            ),
        }
        for variant, logits in rows.reliability_logits.items():
            # a projection changes no decision and no probability, so these stand with the confidence alone
            measured = of_calibrator if variant == "confidence" else {}
            measured = measured | reliability_metrics(logits, correct)
            found += [place | {"variant": variant, "metric": name, "value": value} for name, value in measured.items()]
    return pl.DataFrame(found, schema_overrides={"seed": pl.Int64, "value": pl.Float64})
