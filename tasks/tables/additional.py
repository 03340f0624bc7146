"""Tables that the paper does not have: intervals, rivals by number of labelled rows, and effects of alternatives."""

from typing import NamedTuple

import polars as pl

from relmap.metrics.intervals import holm_adjust
from relmap.metrics.registry import COMPARED_METRICS
from relmap.projection.registry import variants_with_role
from tasks.results.values import AVERAGE
from tasks.tables.runs import (
    BOLD_NOTE,
    BOOSTED,
    DEVIATION_NOTE,
    PAPER_DATASETS,
    Runs,
    comparison_columns,
    finish_table,
    sort_rows,
    table,
)

FIT_ROW_COLUMNS = ("calibrator_fit_rows", "projection_fit_rows")
DEFAULT_CALIBRATOR = "ts"


class Replacement(NamedTuple):
    """A calibrator, variant or data set of the results that the sensitivity table compares with its default.

    Attributes:
        column: Column of metrics.parquet that names the calibrator, variant or data set.
        alternative: Key of the alternative.
        default: Key of the default.
    """

    column: str
    alternative: str
    default: str


@table(
    "intervals",
    "MRP minus confidence, with 95% intervals.",
    "Intervals reflect the sampling of test groups, for the given fits of the protocol seeds. There are none with "
    "fewer than ten groups. The p-values of averages over calibrators have Holm's correction over data sets.",
    digits=4,
)
def intervals_table(runs: Runs) -> pl.DataFrame:
    """Compute MRP minus confidence for each data set and calibrator, and on average over the calibrators that ran.

    Args:
        runs: Results of all data sets.

    Returns:
        Rows with `delta` and its interval. `p_holm`, for averages only, is corrected over data sets for each metric:
        the paper's data sets are one family, own data sets another.
    """
    is_compared = (pl.col("quantity") == "delta") & pl.col("metric").is_in(COMPARED_METRICS)
    rows = sort_rows(runs, runs.intervals.filter(is_compared), include_own=True).rename({"value": "delta"})
    is_average = pl.col("calibrator") == AVERAGE
    is_paper_dataset = pl.col("dataset").is_in(PAPER_DATASETS)
    p_value = pl.col("p").fill_null(float("nan"))
    adjusted = p_value.map_batches(
        lambda p_values: pl.Series(holm_adjust(p_values.to_numpy())), return_dtype=pl.Float64
    )
    p_holm = pl.when(is_average).then(adjusted.over(is_average, is_paper_dataset, "metric"))
    return finish_table(rows.with_columns(p_holm=p_holm).select(pl.exclude("quantity", "groups"), "groups"))


@table(
    "rivals",
    "Class-wise calibrators compared with MRP, by number of labelled rows.",
    f"{DEVIATION_NOTE} {BOLD_NOTE} With 0 projection-fit rows, the calibrator was fitted on the rows of both parts. "
    "For data sets that are split by group, the first rows are whole groups.",
)
def rivals_table(runs: Runs) -> pl.DataFrame:
    """Compare calibrators with and without MRP for each data set and requested number of rows.

    Args:
        runs: Results of all data sets.

    Returns:
        Means and standard deviations over seeds. `calibrator_fit_rows` and `projection_fit_rows` are means of the
        available numbers of rows. With 0 projection-fit rows, the calibrator was fitted on the calibrator-fit and the
        projection-fit rows together, and MRP has no numbers.
    """
    columns = comparison_columns()
    frame = runs.rivals.with_columns(on_both_parts=pl.col("projection_fit_rows") == 0)
    order = ("dataset", "rows", "on_both_parts", "calibrator", "seed")
    rows = sort_rows(runs, frame, include_own=True, by=order)
    grouped = rows.group_by("dataset", "rows", "calibrator", "on_both_parts", "source", maintain_order=True)
    means = grouped.agg(pl.col(*FIT_ROW_COLUMNS).mean().round().cast(pl.Int64), **columns)
    return finish_table(means.select("dataset", "rows", *FIT_ROW_COLUMNS, "calibrator", *columns, "source"))


@table(
    "sensitivity",
    "Effect of each choice.",
    "Means over the protocol seeds for which both the alternative and the default ran.",
    digits=4,
    placement="link",
)
def sensitivity_table(runs: Runs) -> pl.DataFrame:
    """Compare each alternative setting, calibrator, variant or data set with its default.

    Args:
        runs: Results of all data sets.

    Returns:
        One row for each alternative (column `option`) and metric: means over seeds, and the difference. The columns
        `calibrator`, `variant` and `dataset` name the default.
    """
    alternatives = [runs.sensitivity]
    for replacement in _list_replacements(runs):
        rows = runs.metrics.filter(pl.col(replacement.column) == replacement.alternative)
        default = pl.lit(replacement.default).alias(replacement.column)
        rows = rows.with_columns(default, option=pl.lit(replacement.alternative))
        alternatives.append(rows.select(runs.sensitivity.columns))
    keys = ("dataset", "source", "calibrator", "seed", "variant", "metric")
    defaults = runs.metrics.rename({"value": "default"})
    pairs = pl.concat(alternatives).join(defaults, on=keys, maintain_order="left")
    rows = sort_rows(runs, pairs, include_own=True, by=("dataset", "calibrator")).sort("seed", maintain_order=True)
    difference = (pl.col("value") - pl.col("default")).mean()
    grouped = rows.group_by("dataset", "calibrator", "option", "variant", "metric", "source", maintain_order=True)
    return finish_table(grouped.agg(pl.col("default", "value").mean(), difference=difference))


def _list_replacements(runs: Runs) -> list[Replacement]:
    replacements = []
    for calibrator in runs.other_calibrators():
        replacements.append(Replacement("calibrator", calibrator, DEFAULT_CALIBRATOR))
    for variant in variants_with_role("sensitivity"):
        replacements.append(Replacement("variant", variant, "mrp"))
    replacements.append(Replacement("dataset", BOOSTED, "mslr_web10k"))
    return replacements
