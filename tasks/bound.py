"""Prefect task: intervals of what one data set measured, from a paired bootstrap over its test groups."""

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.bounded import bounded
from tasks.protocol.decisions import FixedDecisions
from tasks.protocol.params import MetricParams
from tasks.protocol.results import Projected


@task(cache_policy=NO_CACHE)
def bound(
    projected: list[Projected],
    measured: list[pl.DataFrame],
    test: FixedDecisions,
    calibrators: tuple[str, ...],
    params: MetricParams,
) -> pl.DataFrame:
    """Rows of calibrator, metric, quantity, value, standard_error, low, high, p, for those in `calibrators`."""
    ran = [rows.calibrator for rows in projected[0].rows if rows.calibrator in calibrators]
    keys = ["calibrator", "variant", "metric"]
    means = pl.concat(measured).group_by(keys).agg(pl.col("value").mean())
    values = {(calibrator, variant, metric): value for calibrator, variant, metric, value in means.iter_rows()}
    return pl.DataFrame(bounded(projected, test, values, ran, params), infer_schema_length=None)
