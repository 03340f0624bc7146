"""Prefect task: the metrics of one protocol seed, as long rows."""

from __future__ import annotations

import numpy as np
import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.measured import measured
from tasks.protocol.params import MetricParams
from tasks.protocol.results import Projected


@task(task_run_name="measure/{projected.seed}", cache_policy=NO_CACHE)
def measure(projected: Projected, labels: np.ndarray, params: MetricParams) -> pl.DataFrame:
    """Rows of calibrator, seed, variant, metric, value on the test rows; `labels` `(n,)` are the true ones."""
    return pl.DataFrame(
        [
            (rows.calibrator, projected.seed, *found)
            for rows in projected.rows
            for found in measured(rows, labels, params, projected.seed)
        ],
        schema=["calibrator", ("seed", pl.Int64), "variant", "metric", ("value", pl.Float64)],
        orient="row",
    )
