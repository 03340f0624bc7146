"""Cheap rivals: does a class-wise calibrator do as well as MRP on top of another, and at how many labelled rows?"""

import polars as pl

from tasks.tables.runs import BOLD, DEVIATION, Runs, compared, finished, in_order, table

FIT_ROWS = ("calibrator_fit_rows", "projection_fit_rows")


@table(
    "rivals",
    "Class-wise calibrators beside MRP, by labelled rows.",
    f"{DEVIATION} {BOLD} With 0 projection-fit rows the calibrator was given the rows of both parts. "
    "Where a set is split by group, the first rows are those of whole groups.",
)
def rivals_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each data set, number of rows asked for, and calibrator: means and deviations over seeds.

    `calibrator_fit_rows` and `projection_fit_rows` are the means of what was there. With 0 projection-fit rows the
    calibrator was given the rows of both parts, and MRP has no numbers.
    """
    columns = compared()
    frame = runs.rivals.with_columns(alone=pl.col("projection_fit_rows") == 0)
    rows = in_order(runs, frame, own=True, by=("dataset", "rows", "alone", "calibrator", "seed"))
    cells = rows.group_by("dataset", "rows", "calibrator", "alone", "source", maintain_order=True)
    means = cells.agg(pl.col(*FIT_ROWS).mean().round().cast(pl.Int64), **columns)
    return finished(means.select("dataset", "rows", *FIT_ROWS, "calibrator", *columns, "source"))
