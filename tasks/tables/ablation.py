"""The paper's structural ablation: every variant, averaged over all data sets and calibrators."""

import polars as pl

from tasks.projection.variants import variants_for
from tasks.protocol.results import SIMPLEX
from tasks.tables.runs import KEYS, Runs, finished, joined_sources, table

NOTE = "Variants marked ours are not in the paper."
METRICS = ("nll_correct", "aupr_error", "aurc", "selacc_50")
PAPER_VARIANTS, OURS = variants_for("paper"), variants_for("rival", "sensitivity")
IS_OURS = ~pl.col("variant").is_in(PAPER_VARIANTS)


@table("ablation", "Structural ablation, averaged over data sets and calibrators.", NOTE, digits=4)
def ablation_table(runs: Runs) -> pl.DataFrame:
    """Return unweighted means over (data set, calibrator) of their means over seeds; `ours` marks what we added."""
    means = _means(runs.rows(), "variant", source=joined_sources())
    rows = _variants(means).join(means, on="variant", how="inner", maintain_order="left")
    return finished(rows.with_columns(ours=IS_OURS))


@table("ablation_by_dataset", "Structural ablation of each data set, averaged over calibrators.", NOTE, digits=4)
def ablation_by_dataset(runs: Runs) -> pl.DataFrame:
    """Return the same for each data set, one's own too: means over calibrators of means over seeds."""
    means = _means(runs.rows(own=True), "dataset", "source", "variant")
    cells = means.select("dataset", "source").unique(maintain_order=True).join(_variants(means), how="cross")
    rows = cells.join(means, on=("dataset", "source", "variant"), maintain_order="left")
    return finished(rows.with_columns(ours=IS_OURS))


def _variants(means: pl.DataFrame) -> pl.DataFrame:
    """The paper's variants in its order, ours, and whatever else ran."""
    return pl.DataFrame({"variant": [*dict.fromkeys([*PAPER_VARIANTS, *OURS, *means["variant"]])]})


def _means(rows: pl.DataFrame, *by: str, **others: pl.Expr) -> pl.DataFrame:
    """Means over seeds, then over the cells (data set, calibrator) that `by` leaves together."""
    chosen = rows.filter(pl.col("metric").is_in(METRICS), pl.col("variant") != SIMPLEX)
    cells = chosen.group_by(*KEYS, "variant", "metric", maintain_order=True).agg(pl.col("value").mean())
    columns = [pl.col("value").filter(pl.col("metric") == metric).mean().alias(metric) for metric in METRICS]
    return cells.group_by(*by, maintain_order=True).agg(*columns, **others)
