"""The paper's simplex projection: class probabilities of the calibrator beside those of MRC."""

import polars as pl

from tasks.protocol.results import SIMPLEX
from tasks.tables.runs import BOLD, KEYS, Runs, finished, table, values

METRICS = {"fixed_ece": "ece", "top_ece": "top_ece", "nll": "nll", "brier": "brier"}


@table(
    "simplex_projection",
    "Class probabilities of the calibrator (base) and of the top-label simplex projection (MRC).",
    f"Means over protocol seeds. {BOLD}",
    digits=4,
)
def simplex_projection_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each data set and calibrator: means over seeds, MRC minus calibrator, and two shares of rows.

    `q_below_uniform_pct`: percent of test rows whose reliability is below 1/K, out of reach; `solved_pct`: percent of
    rows whose power was found.
    """
    columns: dict[str, pl.Expr] = {}
    for name, metric in METRICS.items():
        base, projected = values("confidence", metric).mean(), values(SIMPLEX, metric).mean()
        columns |= {f"{name}_base": base, f"{name}_mrc": projected, f"{name}_delta": projected - base}
    for name, metric in {"q_below_uniform_pct": "infeasible_share", "solved_pct": "solved_share"}.items():
        columns[name] = 100 * values(SIMPLEX, metric).mean()
    cells = runs.rows().group_by(*KEYS, maintain_order=True).agg(**columns)
    labels = {fact["dataset"]: len(fact["labels"]) for fact in runs.facts}
    table = cells.with_columns(n_classes=pl.col("dataset").replace_strict(labels, default=None, return_dtype=pl.Int64))
    return finished(table.select("dataset", "n_classes", "calibrator", *columns, "source"), runs)
