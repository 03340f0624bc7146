"""The paper's structural ablation: every variant, averaged over all data sets and calibrators."""

from __future__ import annotations

import polars as pl

from tasks.protocol.keys import EXACT, PAPER_VARIANTS, VARIANTS
from tasks.tables.runs import KEYS, Runs, finished, joined_sources

METRICS = ("nll_correct", "aupr_error", "aurc", "selacc_50")
OURS = (*(name for name in VARIANTS if name not in PAPER_VARIANTS), EXACT)


def ablation_table(runs: Runs) -> pl.DataFrame:
    """Unweighted mean over the (data set, calibrator) cells of their means over seeds; `ours` marks what we added."""
    rows = runs.rows().filter(pl.col("metric").is_in(METRICS))
    cells = rows.group_by(*KEYS, "variant", "metric", maintain_order=True).agg(pl.col("value").mean())
    columns = [pl.col("value").filter(pl.col("metric") == metric).mean().alias(metric) for metric in METRICS]
    means = cells.group_by("variant", maintain_order=True).agg(*columns, sources=pl.col("source").unique())
    order = pl.DataFrame({"variant": [*PAPER_VARIANTS, *OURS]}).with_columns(ours=pl.col("variant").is_in(OURS))
    table = order.join(means, on="variant", how="inner", maintain_order="left")
    return finished(
        table.select(
            "variant",
            *METRICS,
            "ours",
            pl.col("sources").map_elements(joined_sources, return_dtype=pl.String).alias("source"),
        )
    )
