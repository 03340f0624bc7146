"""What the paper has no table of: intervals, rivals by labelled rows, and what each choice of ours changes."""

import polars as pl

from relmap.metrics import intervals, registry
from relmap.projection.variants import variants_with_role
from tasks.records.results import AVERAGE
from tasks.tables.runs import BOLD, BOOSTED, DEVIATION, PAPER_DATASETS, Runs, compared, finished, in_order, table

FIT_ROWS = ("calibrator_fit_rows", "projection_fit_rows")
# An alternative that is a variant or a data set of its own, and the default that it stands beside.
ALTERNATIVES = (
    *(("variant", key, "mrp") for key in variants_with_role("sensitivity")),
    ("dataset", BOOSTED, "mslr_web10k"),
)


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
    chosen = runs.intervals.filter((pl.col("quantity") == "delta") & pl.col("metric").is_in(registry.COMPARED_METRICS))
    rows = in_order(runs, chosen, own=True).rename({"value": "delta"})
    average, family = pl.col("calibrator") == AVERAGE, pl.col("dataset").is_in(PAPER_DATASETS)
    p_of_all = pl.col("p").fill_null(float("nan"))
    corrected = p_of_all.map_batches(lambda p: pl.Series(intervals.holm_adjust(p.to_numpy())), return_dtype=pl.Float64)
    p_holm = pl.when(average).then(corrected.over(average, family, "metric"))
    return finished(rows.with_columns(p_holm=p_holm).select(pl.exclude("quantity", "groups"), "groups"))


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


@table(
    "sensitivity",
    "What each choice changes.",
    "Means over the protocol seeds that both were run with.",
    digits=4,
    place="beside",
)
def sensitivity_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each option and number measured under it and its default: means over seeds, and the difference.

    `calibrator`, `variant` and `dataset` name the default; where `option` is a calibrator, a variant or a data set,
    it stands in its place.
    """
    swaps = [*(("calibrator", other, "ts") for other in runs.others()), *ALTERNATIVES]
    options = [runs.sensitivity]
    for column, other, default in swaps:  # the rows of `other` are filed under the default that they stand beside
        rows = runs.metrics.filter(pl.col(column) == other).with_columns(pl.lit(default).alias(column))
        options.append(rows.with_columns(option=pl.lit(other)).select(runs.sensitivity.columns))
    keys = ("dataset", "source", "calibrator", "seed", "variant", "metric")
    pairs = pl.concat(options).join(runs.metrics.rename({"value": "default"}), on=keys, maintain_order="left")
    rows = in_order(runs, pairs, own=True, by=("dataset", "calibrator")).sort("seed", maintain_order=True)
    place = ("dataset", "calibrator", "option", "variant", "metric", "source")
    difference = (pl.col("value") - pl.col("default")).mean()
    cells = rows.group_by(*place, maintain_order=True)
    return finished(cells.agg(pl.col("default", "value").mean(), difference=difference))
