"""The paper's budgeted fallback: what MRP adds to the accuracy of the decisions that are kept, at four coverages."""

import polars as pl

from tasks.protocol.results import AVERAGE
from tasks.tables.runs import BOLD, KEYS, Runs, finished, joined_sources, table, values

COVERAGES = (10, 50, 70, 90)  # percent


@table(
    "budgeted_fallback",
    "Change of the accuracy of the decisions kept at each coverage, MRP minus confidence.",
    f"Means over calibrators and protocol seeds. {BOLD}",
)
def budgeted_fallback_table(runs: Runs) -> pl.DataFrame:
    """Return MRP minus confidence in selective accuracy, meant over calibrators, and in the last row over sets."""
    metrics = [f"selacc_{coverage}" for coverage in COVERAGES]
    deltas = {f"delta_{name}": values("mrp", name).mean() - values("confidence", name).mean() for name in metrics}
    cells = runs.rows().group_by(*KEYS, maintain_order=True).agg(**deltas)
    sets = cells.group_by("dataset", "source", maintain_order=True).agg(pl.col(*deltas).mean())
    whole = sets.with_columns(dataset=pl.lit(AVERAGE)).group_by("dataset")
    average = whole.agg(pl.col(*deltas).mean(), source=joined_sources())
    return pl.concat([finished(sets, runs), finished(average)])
