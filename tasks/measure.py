"""Prefect tasks: the metrics of one protocol seed, as long rows, and their intervals over all seeds."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.measured import averaged, bounded, measured
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.params import MetricParams
from tasks.protocol.results import METRICS, Calibrated, Projected


@task(task_run_name="measure/{projected.seed}", cache_policy=NO_CACHE)
def measure(
    projected: Projected,
    labels: np.ndarray,
    params: MetricParams,
    members: Sequence[FixedDecisions] = (),
    calibrated: Sequence[Sequence[Calibrated]] = (),
) -> pl.DataFrame:
    """Return rows of calibrator, seed, variant, metric, value on the test rows; `labels` `(n,)` are the true ones.

    The label spread is that of the mean probabilities of `members`, each with its own `calibrated`, if there are any.
    """
    values: list[tuple[object, ...]] = []
    for place, rows in enumerate(projected.rows):
        run = averaged(rows, members, [fits[place].value for fits in calibrated]) if members else None
        measurements = measured(rows, labels, params, seed=projected.seed, run=run)
        values += [(rows.calibrator, projected.seed, *measurement) for measurement in measurements]
    return pl.DataFrame(values, schema=METRICS, orient="row")


@task(cache_policy=NO_CACHE)
def bootstrap_intervals(
    projected: list[Projected],
    measured: list[pl.DataFrame],
    test: FixedDecisions,
    calibrators: tuple[str, ...],
    params: MetricParams,
) -> pl.DataFrame:
    """Return rows of calibrator, metric, quantity, value, standard_error, low, high, p, for those in `calibrators`.

    The intervals are of a paired bootstrap over the groups of `test`.
    """
    ran = [rows.calibrator for rows in projected[0].rows if rows.calibrator in calibrators]
    keys = ["calibrator", "variant", "metric"]
    means = pl.concat(measured).group_by(keys).agg(pl.col("value").mean())
    values = {(calibrator, variant, metric): value for calibrator, variant, metric, value in means.iter_rows()}
    return pl.DataFrame(bounded(projected, test, values, ran, params), infer_schema_length=None)
