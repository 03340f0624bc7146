"""The paper's main table: confidence beside MRP for each data set and calibrator, mean and deviation over seeds."""

from __future__ import annotations

import polars as pl

COMPARED = ("nll_correct", "aupr_error", "aurc")
KEYS = ("dataset", "source", "calibrator")


def main_table(metrics: pl.DataFrame) -> pl.DataFrame:
    """Long metrics (`dataset, source, calibrator, seed, variant, metric, value`) to one row for each cell.

    Columns are the paper's: `<metric>_conf`, `<metric>_mrp`, each with its deviation `_std` over the protocol seeds
    (population, as numpy's default), and `<metric>_delta`, MRP minus confidence. The deviation says how much three
    splits differ; it is no confidence interval.
    """
    cells = metrics.group_by(*KEYS, "variant", "metric", maintain_order=True).agg(
        mean=pl.col("value").mean(), std=pl.col("value").std(ddof=0)
    )

    def values(variant: str, metric: str, *, prefix: str, std: bool) -> pl.DataFrame:
        names = {"mean": prefix} | ({"std": f"{prefix}_std"} if std else {})
        chosen = cells.filter((pl.col("variant") == variant) & (pl.col("metric") == metric))
        return chosen.select(*KEYS, *names).rename(names)

    table = metrics.select(KEYS).unique(maintain_order=True)
    for metric in ("accuracy", "ece"):
        table = table.join(values("confidence", metric, prefix=metric, std=False), on=KEYS, maintain_order="left")
    for metric in COMPARED:
        for variant, short in (("confidence", "conf"), ("mrp", "mrp")):
            found = values(variant, metric, prefix=f"{metric}_{short}", std=True)
            table = table.join(found, on=KEYS, maintain_order="left")
        table = table.with_columns(
            (pl.col(f"{metric}_mrp") - pl.col(f"{metric}_conf")).alias(f"{metric}_delta"),
        )
    return table.select("dataset", "calibrator", pl.exclude(KEYS), "source")


def with_holes(table: pl.DataFrame, missing: list[str], calibrators: list[str]) -> pl.DataFrame:
    """Append a row without numbers, and with `source` failed, for each calibrator of each data set that failed."""
    holes = pl.DataFrame(
        [
            {"dataset": name, "calibrator": calibrator, "source": "failed"}
            for name in missing
            for calibrator in calibrators
        ],
        schema={"dataset": pl.String, "calibrator": pl.String, "source": pl.String},
    )
    return pl.concat([table, holes], how="diagonal")


def headline(table: pl.DataFrame) -> dict[str, dict[str, float]]:
    """For each data set the change of each metric, MRP minus confidence, meant over its calibrators."""
    finished = table.filter(pl.col("source") != "failed").group_by("dataset", maintain_order=True)
    means = finished.agg(pl.col(f"{metric}_delta").mean() for metric in COMPARED)
    return {row["dataset"]: {metric: row[f"{metric}_delta"] for metric in COMPARED} for row in means.to_dicts()}
