"""What each of our choices changes: the default beside its named alternative, over the same seeds."""

import polars as pl

from tasks.projection.variants import variants_for
from tasks.tables.runs import BOOSTED, Runs, finished, in_order, table

# An alternative that is a variant or a data set of its own, and the default that it stands beside.
ALTERNATIVES = (
    *(("variant", key, "mrp") for key in variants_for("sensitivity")),
    ("dataset", BOOSTED, "mslr_web10k"),
)
KEYS = ("dataset", "source", "calibrator", "seed", "variant", "metric")
SEEDS = "Means over the protocol seeds that both were run with."


@table("sensitivity", "What each choice changes.", SEEDS, digits=4, place="beside")
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
    defaults = runs.metrics.rename({"value": "default"})
    pairs = pl.concat(options).join(defaults, on=KEYS, maintain_order="left")
    keys = ("dataset", "calibrator", "option", "variant", "metric")
    rows = in_order(runs, pairs, own=True, by=("dataset", "calibrator"))
    cells = rows.sort("seed", maintain_order=True).group_by(*keys, "source", maintain_order=True)
    means = cells.agg(pl.col("default", "value").mean(), difference=(pl.col("value") - pl.col("default")).mean())
    return finished(means.select(*keys, "default", "value", "difference", "source"))
