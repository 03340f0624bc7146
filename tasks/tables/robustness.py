"""The paper's robustness check: does the gain outlive a stronger base predictor?"""

import polars as pl

from tasks.tables.runs import BOOSTED, Runs, compared, finished, table, values

LINEAR = "mslr_web10k"
BASES = {"linear": LINEAR, "lightgbm_balanced": BOOSTED}
# The paper does not say; an ECE of .292 for the linear base is its main table's uncalibrated row.
UNCALIBRATED = "uncal"


@table(
    "robustness",
    "MSLR-WEB10K under a stronger base predictor.",
    "Bases with a calibrator's name are ours. Means over seeds.",
)
def robustness_table(runs: Runs) -> pl.DataFrame:
    """Return the uncalibrated bases of MSLR-WEB10K; below them ours, under calibrators that are not the paper's."""
    columns = {name: values("confidence", name).mean() for name in ("accuracy", "ece")}
    columns |= {name: mean for name, mean in compared().items() if name.endswith(("_conf", "_mrp"))}
    cells = runs.metrics.sort("seed", maintain_order=True).group_by("dataset", "source", "calibrator").agg(**columns)
    shown = [(UNCALIBRATED, "")] + [(rival, f"+{rival}") for rival in runs.others()]
    places = [(dataset, under, base + suffix) for under, suffix in shown for base, dataset in BASES.items()]
    order = pl.DataFrame(places, schema=["dataset", "calibrator", "base"], orient="row")
    table = order.join(cells, on=["dataset", "calibrator"], how="inner", maintain_order="left")
    return finished(table.select(pl.lit(LINEAR).alias("dataset"), "base", *columns, "source"))
