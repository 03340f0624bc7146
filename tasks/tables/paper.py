"""The paper's tables, in its order; ablation and label spread also for each data set and each calibrator."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from relmap.projection.variants import variants_with_role
from tasks.records.results import AVERAGE, SIMPLEX
from tasks.records.splits import SPLITS
from tasks.tables.runs import BOLD, BOOSTED, DEVIATION, KEYS, Runs, compared, finished, joined_sources, table, values

COVERAGES = (10, 50, 70, 90)  # percent
OURS = "Variants marked ours are not in the paper."
ABLATED = ("nll_correct", "aupr_error", "aurc", "selacc_50")
PAPER_VARIANTS = variants_with_role("paper")
PROBABILITIES = {"fixed_ece": "ece", "top_ece": "top_ece", "nll": "nll", "brier": "brier"}
LINEAR = "mslr_web10k"
BASES = {"linear": LINEAR, "lightgbm_balanced": BOOSTED}
# The paper does not say; an ECE of .292 for the linear base is its main table's uncalibrated row.
UNCALIBRATED = "uncal"
TEXTS = ("dataset", "domain", "n_classes", "labels", "task")
SCHEMA = pl.Schema(
    dict.fromkeys(TEXTS, pl.String)
    | {"n_classes": pl.Int64}
    | {f"{counted}_{split}": pl.Int64 for counted in ("rows", "groups") for split in SPLITS}
    | dict.fromkeys([*(f"class_priors_{split}" for split in SPLITS), "preset", "source"], pl.String)
)


@table("main", "Reliability of fixed decisions: confidence, MRP, and the change.", f"{DEVIATION} {BOLD}")
def main_table(runs: Runs) -> pl.DataFrame:
    """Return one row for each data set (one's own come last) and calibrator; columns are the paper's, and `source`.

    `<metric>_conf` and `<metric>_mrp`, each with its deviation `_std` over the protocol seeds (n - 1), and
    `<metric>_delta`, MRP minus confidence. The deviation says how much three splits differ; it is no confidence
    interval. A data set that failed has rows without numbers, with `source` failed.
    """
    columns = {name: values("confidence", name).mean() for name in ("accuracy", "ece")} | compared()
    return finished(runs.cells(columns, own=True), runs, own=True)


@table(
    "budgeted_fallback",
    "Change of the accuracy of the decisions kept at each coverage, MRP minus confidence.",
    f"Means over calibrators and protocol seeds. {BOLD}",
)
def budgeted_fallback_table(runs: Runs) -> pl.DataFrame:
    """Return MRP minus confidence in selective accuracy, meant over calibrators, and in the last row over sets."""
    metrics = [f"selacc_{coverage}" for coverage in COVERAGES]
    deltas = {f"delta_{name}": values("mrp", name).mean() - values("confidence", name).mean() for name in metrics}
    sets = runs.cells(deltas).group_by("dataset", "source", maintain_order=True).agg(pl.col(*deltas).mean())
    whole = sets.with_columns(dataset=pl.lit(AVERAGE)).group_by("dataset")
    average = whole.agg(pl.col(*deltas).mean(), source=joined_sources())
    return pl.concat([finished(sets, runs), finished(average)])


@table(
    "label_spread",
    "Label-conditioned reliability spread under SMART, in percentage points, beside that of shuffled labels.",
    "Random is the 95th percentile over shuffles. Runs are counted over calibrators and protocol seeds.",
    digits=1,
)
def label_spread_table(runs: Runs) -> pl.DataFrame:
    """Return a row for each data set: the mean spread of all calibrators, in points, beside that of shuffled labels.

    `runs_above_random` counts over all calibrators and seeds, as the paper's 18 of 18 does.
    """
    return _spreads(runs, "dataset", "source")


@table(
    "label_spread_by_calibrator",
    "Label-conditioned reliability spread of each calibrator, in percentage points.",
    "Random is the 95th percentile over shuffles. Runs are counted over protocol seeds.",
    digits=1,
)
def label_spread_by_calibrator(runs: Runs) -> pl.DataFrame:
    """Return the same for each calibrator, counted over its own seeds."""
    return _spreads(runs, *KEYS)


def _spreads(runs: Runs, *by: str) -> pl.DataFrame:
    columns = {"spread": "label_spread", "random": "label_spread_null_p95"}
    runs_of_seeds = runs.rows().group_by(*KEYS, "seed", maintain_order=True)
    wide = runs_of_seeds.agg(**{name: values("confidence", metric).first() for name, metric in columns.items()})
    # An undefined spread is above nothing: NaN would compare as the largest number.
    above = ((pl.col("spread") > pl.col("random")) & pl.col("spread").is_not_nan()).fill_null(value=False)
    spread, random = (pl.col(name).mean() for name in columns)
    table = wide.group_by(*by, maintain_order=True).agg(
        label_spread_pp=100 * spread,
        random_p95_pp=100 * random,
        ratio=spread / random,
        runs_above_random=pl.format("{}/{}", above.sum(), pl.len()),
    )
    return finished(table, runs)


@table("ablation", "Structural ablation, averaged over data sets and calibrators.", OURS, digits=4)
def ablation_table(runs: Runs) -> pl.DataFrame:
    """Return unweighted means over (data set, calibrator) of their means over seeds; `ours` marks what we added."""
    means = _ablated(runs.rows(), "variant", source=joined_sources())
    return _marked(_variants(means).join(means, on="variant", how="inner", maintain_order="left"))


@table("ablation_by_dataset", "Structural ablation of each data set, averaged over calibrators.", OURS, digits=4)
def ablation_by_dataset(runs: Runs) -> pl.DataFrame:
    """Return the same for each data set, one's own too: means over calibrators of means over seeds."""
    means = _ablated(runs.rows(own=True), "dataset", "source", "variant")
    cells = means.select("dataset", "source").unique(maintain_order=True).join(_variants(means), how="cross")
    return _marked(cells.join(means, on=("dataset", "source", "variant"), maintain_order="left"))


def _variants(means: pl.DataFrame) -> pl.DataFrame:
    """The paper's variants in its order, ours, and whatever else ran."""
    ours = variants_with_role("rival", "sensitivity")
    return pl.DataFrame({"variant": [*dict.fromkeys([*PAPER_VARIANTS, *ours, *means["variant"]])]})


def _ablated(rows: pl.DataFrame, *by: str, **others: pl.Expr) -> pl.DataFrame:
    """Means over seeds, then over the cells (data set, calibrator) that `by` leaves together."""
    chosen = rows.filter(pl.col("metric").is_in(ABLATED), pl.col("variant") != SIMPLEX)
    cells = chosen.group_by(*KEYS, "variant", "metric", maintain_order=True).agg(pl.col("value").mean())
    columns = [pl.col("value").filter(pl.col("metric") == metric).mean().alias(metric) for metric in ABLATED]
    return cells.group_by(*by, maintain_order=True).agg(*columns, **others)


def _marked(rows: pl.DataFrame) -> pl.DataFrame:
    return finished(rows.with_columns(ours=~pl.col("variant").is_in(PAPER_VARIANTS)))


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
    for name, metric in PROBABILITIES.items():
        base, projected = values("confidence", metric).mean(), values(SIMPLEX, metric).mean()
        columns |= {f"{name}_base": base, f"{name}_mrc": projected, f"{name}_delta": projected - base}
    for name, metric in {"q_below_uniform_pct": "infeasible_share", "solved_pct": "solved_share"}.items():
        columns[name] = 100 * values(SIMPLEX, metric).mean()
    labels = {fact["dataset"]: len(fact["labels"]) for fact in runs.facts}
    n_classes = pl.col("dataset").replace_strict(labels, default=None, return_dtype=pl.Int64).alias("n_classes")
    return finished(runs.cells(columns).select("dataset", n_classes, pl.exclude("dataset")), runs)


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


@table("datasets", "Data sets, and what was realised of them.", "Class priors in the order of the labels.")
def datasets_table(runs: Runs) -> pl.DataFrame:
    """Return one row for each data set; priors are shares of the true labels, in the order of `labels`."""
    described = pl.DataFrame([_described(fact) for fact in runs.facts if fact["dataset"] != BOOSTED], schema=SCHEMA)
    return finished(described, runs, own=True)


def _described(fact: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: fact.get(name) for name in ("dataset", "domain", "task", "preset", "source")}
    row |= {"n_classes": len(fact["labels"]), "labels": "/".join(fact["labels"])}
    for split in SPLITS:
        row |= {f"{counted}_{split}": fact.get(counted, {}).get(split) for counted in ("rows", "groups")}
        counts = fact.get("class_counts", {}).get(split, [])
        row[f"class_priors_{split}"] = "/".join(f"{count / max(sum(counts), 1):.3f}" for count in counts) or None
    return row


TABLES = (  # of results, in the paper's order
    main_table,
    budgeted_fallback_table,
    label_spread_table,
    ablation_table,
    simplex_projection_table,
    robustness_table,
)
