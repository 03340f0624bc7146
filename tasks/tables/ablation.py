"""The paper's structural ablation: every variant, averaged over all data sets and calibrators."""

from __future__ import annotations

import polars as pl

from tasks.protocol.keys import EXACT, PAPER_VARIANTS, VARIANTS
from tasks.tables.runs import KEYS, Runs, finished, joined_sources

METRICS = ("nll_correct", "aupr_error", "aurc", "selacc_50")
OURS = (*(name for name in VARIANTS if name not in PAPER_VARIANTS), EXACT)
ORDER = pl.DataFrame({"variant": [*PAPER_VARIANTS, *OURS]}).with_columns(ours=pl.col("variant").is_in(OURS))


def ablation_table(runs: Runs) -> pl.DataFrame:
    """Unweighted mean over the (data set, calibrator) cells of their means over seeds; `ours` marks what we added."""
    means = _means(runs.rows(), "variant", sources=pl.col("source").unique())
    table = ORDER.join(means, on="variant", how="inner", maintain_order="left")
    return finished(
        table.select(
            "variant",
            *METRICS,
            "ours",
            pl.col("sources").map_elements(joined_sources, return_dtype=pl.String).alias("source"),
        )
    )


def ablation_by_dataset(runs: Runs) -> pl.DataFrame:
    """The same for each data set, one's own too: means over the paper's calibrators of means over seeds."""
    means = _means(runs.rows(own=True), "dataset", "source", "variant")
    sets = means.select("dataset", "source").unique(maintain_order=True)
    table = sets.join(ORDER, how="cross").join(means, on=["dataset", "source", "variant"], maintain_order="left")
    return finished(table.select("dataset", "variant", *METRICS, "ours", "source"))


def _means(rows: pl.DataFrame, *by: str, **others: pl.Expr) -> pl.DataFrame:
    """Means over seeds, then over the cells (data set, calibrator) that `by` leaves together."""
    chosen = rows.filter(pl.col("metric").is_in(METRICS))
    cells = chosen.group_by(*KEYS, "variant", "metric", maintain_order=True).agg(pl.col("value").mean())
    columns = [pl.col("value").filter(pl.col("metric") == metric).mean().alias(metric) for metric in METRICS]
    return cells.group_by(*by, maintain_order=True).agg(*columns, **others)
