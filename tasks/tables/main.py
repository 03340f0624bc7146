"""The paper's main table: confidence beside MRP for each data set and calibrator, mean and deviation over seeds.

And the intervals of its changes: do they cover zero, on each data set and over all of them?
"""

import polars as pl

from tasks.metrics import intervals, registry
from tasks.protocol.results import AVERAGE
from tasks.tables.runs import BOLD, DEVIATION, KEYS, PAPER_DATASETS, Runs, compared, finished, in_order, table, values


@table("main", "Reliability of fixed decisions: confidence, MRP, and the change.", f"{DEVIATION} {BOLD}")
def main_table(runs: Runs) -> pl.DataFrame:
    """Return one row for each data set (one's own come last) and calibrator; columns are the paper's, and `source`.

    `<metric>_conf` and `<metric>_mrp`, each with its deviation `_std` over the protocol seeds (n - 1), and
    `<metric>_delta`, MRP minus confidence. The deviation says how much three splits differ; it is no confidence
    interval. A data set that failed has rows without numbers, with `source` failed.
    """
    columns = {name: values("confidence", name).mean() for name in ("accuracy", "ece")} | compared()
    cells = runs.rows(own=True).group_by(*KEYS, maintain_order=True).agg(**columns)
    return finished(cells.select("dataset", "calibrator", *columns, "source"), runs, own=True)


@table(
    "intervals",
    "MRP minus confidence, with 95% intervals.",
    "Intervals cover the drawing of test groups, given the fits of the protocol seeds; with fewer than ten groups "
    "there is none. Holm's correction is over data sets, for the averages over calibrators.",
    digits=4,
)
def intervals_table(runs: Runs) -> pl.DataFrame:
    """Return MRP minus confidence for each data set and calibrator, and the mean over those of the paper's that ran.

    `p_holm`, of the averages only, is corrected over data sets for each metric: the paper's are one family, one's own
    another.
    """
    chosen = runs.intervals.filter((pl.col("quantity") == "delta") & pl.col("metric").is_in(registry.COMPARED))
    rows = in_order(runs, chosen, own=True).rename({"value": "delta"})
    average, family = pl.col("calibrator") == AVERAGE, pl.col("dataset").is_in(PAPER_DATASETS)
    p_of_all = pl.col("p").fill_null(float("nan"))
    corrected = p_of_all.map_batches(lambda p: pl.Series(intervals.holm(p.to_numpy())), return_dtype=pl.Float64)
    p_holm = pl.when(average).then(corrected.over(average, family, "metric"))
    return finished(rows.with_columns(p_holm=p_holm).select(pl.exclude("quantity", "groups"), "groups"))
