"""The paper's main table: confidence beside MRP for each data set and calibrator, mean and deviation over seeds."""

import polars as pl

from tasks.tables.runs import BOLD, DEVIATION, KEYS, Runs, compared, finished, table, values


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
