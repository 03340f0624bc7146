"""What each of our choices changes: the default beside its named alternative, over the same seeds."""

import polars as pl

from tasks.projection.variants import variants_for
from tasks.tables.runs import BOOSTED, SENSITIVITY, Runs, finished, in_order, table

# An alternative that is a variant or a data set of its own, and the default that it stands beside.
ALTERNATIVES = (
    *(("variant", key, "mrp") for key in variants_for("sensitivity")),
    ("dataset", BOOSTED, "mslr_web10k"),
)
KEYS = ("dataset", "source", "calibrator", "seed", "variant", "metric")
SEEDS = "Means over the protocol seeds that both were run with."


@table("sensitivity", "What each choice changes.", SEEDS, digits=4, place="beside")
def sensitivity_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each option and each number measured under it: means over seeds, and what the option adds.

    `calibrator`, `variant` and `dataset` name the default; where `option` is a calibrator, a variant or a data set,
    it stands in its place.
    """
    swaps = [*(("calibrator", other, "ts") for other in runs.others()), *ALTERNATIVES]
    options = pl.concat([runs.sensitivity, *(_alternatives(runs.metrics, *swap) for swap in swaps)])
    pairs = options.join(runs.metrics.rename({"value": "default"}), on=KEYS, how="left", maintain_order="left")
    keys = ("dataset", "calibrator", "option", "variant", "metric")
    rows = in_order(runs, pairs, own=True, by=("dataset", "calibrator"))
    cells = rows.sort("seed", maintain_order=True).group_by(*keys, "source", maintain_order=True)
    means = cells.agg(
        pl.col("default", "value").mean(), (pl.col("value") - pl.col("default")).mean().alias("difference")
    )
    return finished(means.select(*keys, "default", "value", "difference", "source"))


def _alternatives(metrics: pl.DataFrame, column: str, other: str, default: str) -> pl.DataFrame:
    """Rows of `other`, filed under the `default` that they stand beside, with `other` as the option."""
    rows = metrics.filter(pl.col(column) == other)
    return rows.with_columns(pl.lit(default).alias(column), option=pl.lit(other)).select(*SENSITIVITY)
