"""Tables of the paper, in its order; ablation and label spread also for each data set and each calibrator."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from relmap.projection.registry import variants_with_role
from tasks.records.splits import SPLITS
from tasks.results.values import AVERAGE, SIMPLEX
from tasks.tables.runs import (
    BOLD_NOTE,
    BOOSTED,
    DEVIATION_NOTE,
    KEYS,
    Runs,
    comparison_columns,
    finish_table,
    join_sources,
    select_values,
    table,
)

COVERAGES = (10, 50, 70, 90)  # percent
OTHER_VARIANTS_NOTE = "Variants with `added` = yes are not in the paper."
ABLATION_METRICS = ("nll_correct", "aupr_error", "aurc", "selacc_50")
PAPER_VARIANTS = variants_with_role("paper")
PROBABILITY_METRICS = {"fixed_ece": "ece", "top_ece": "top_ece", "nll": "nll", "brier": "brier"}
SIMPLEX_SHARES = {"q_below_uniform_pct": "infeasible_share", "solved_pct": "solved_share"}
LINEAR_DATASET = "mslr_web10k"  # with the linear base predictor
BASE_PREDICTORS = {"linear": LINEAR_DATASET, "lightgbm_balanced": BOOSTED}
# Inferred: the paper names no calibrator, but its ECE of the linear base (.292) is the ECE without calibration.
UNCALIBRATED = "uncal"

DATASETS_SCHEMA = pl.Schema(
    {"dataset": pl.String, "domain": pl.String, "n_classes": pl.Int64, "labels": pl.String, "task": pl.String}
    | {f"{unit}_{split}": pl.Int64 for unit in ("rows", "groups") for split in SPLITS}
    | dict.fromkeys([*(f"class_priors_{split}" for split in SPLITS), "preset", "source"], pl.String)
)


@table("main", "Reliability of fixed decisions: confidence, MRP, and the change.", f"{DEVIATION_NOTE} {BOLD_NOTE}")
def main_table(runs: Runs) -> pl.DataFrame:
    """Compare confidence and MRP for each data set and calibrator.

    Args:
        runs: Results of all data sets.

    Returns:
        One row for each data set and calibrator, own data sets last. `<metric>_conf` and `<metric>_mrp` have a
        standard deviation `_std` over protocol seeds (n - 1), and `<metric>_delta` is MRP minus confidence. A failed
        data set has rows without numbers.
    """
    columns = {
        "accuracy": select_values("confidence", "accuracy").mean(),
        "ece": select_values("confidence", "ece").mean(),
        **comparison_columns(),
    }
    return finish_table(runs.aggregate(columns, include_own=True), runs, include_own=True)


@table(
    "budgeted_fallback",
    "Change of the accuracy of the retained decisions at each coverage, MRP minus confidence.",
    f"Means over calibrators and protocol seeds. {BOLD_NOTE}",
)
def budgeted_fallback_table(runs: Runs) -> pl.DataFrame:
    """Compute the change of selective accuracy, MRP minus confidence, averaged over calibrators.

    Args:
        runs: Results of all data sets.

    Returns:
        One row for each data set, and the average over data sets as the last row.
    """
    deltas = {}
    for coverage in COVERAGES:
        metric = f"selacc_{coverage}"
        deltas[f"delta_{metric}"] = select_values("mrp", metric).mean() - select_values("confidence", metric).mean()
    by_dataset = runs.aggregate(deltas).group_by("dataset", "source", maintain_order=True).agg(pl.col(*deltas).mean())
    average = by_dataset.with_columns(dataset=pl.lit(AVERAGE)).group_by("dataset")
    average_row = average.agg(pl.col(*deltas).mean(), source=join_sources())
    return pl.concat([finish_table(by_dataset, runs), finish_table(average_row)])


@table(
    "label_spread",
    "Label-conditioned reliability spread in percentage points, compared with shuffled labels.",
    "Means over calibrators and protocol seeds; the text of the paper names SMART only. Random is the 95th percentile "
    "over shuffles. Runs are counted over calibrators and protocol seeds.",
    digits=1,
)
def label_spread_table(runs: Runs) -> pl.DataFrame:
    """Compare the label spread of each data set with that of shuffled labels.

    Args:
        runs: Results of all data sets.

    Returns:
        Means over all calibrators, in percentage points. `runs_above_random` counts calibrators and seeds, such as 18
        of 18 in the paper.
    """
    return _compute_spreads(runs, "dataset", "source")


@table(
    "label_spread_by_calibrator",
    "Label-conditioned reliability spread of each calibrator, in percentage points.",
    "Random is the 95th percentile over shuffles. Runs are counted over protocol seeds.",
    digits=1,
)
def label_spread_by_calibrator(runs: Runs) -> pl.DataFrame:
    """Compare the label spread of each data set and calibrator with that of shuffled labels.

    Args:
        runs: Results of all data sets.

    Returns:
        Means over seeds, in percentage points. `runs_above_random` counts seeds.
    """
    return _compute_spreads(runs, *KEYS)


def _compute_spreads(runs: Runs, *by: str) -> pl.DataFrame:
    runs_of_seeds = runs.table_metrics().group_by(*KEYS, "seed", maintain_order=True)
    wide = runs_of_seeds.agg(
        spread=select_values("confidence", "label_spread").first(),
        random=select_values("confidence", "label_spread_null_p95").first(),
    )
    # polars compares NaN as the largest number, but an undefined spread is not above random
    is_above = ((pl.col("spread") > pl.col("random")) & pl.col("spread").is_not_nan()).fill_null(value=False)
    spread = pl.col("spread").mean()
    random = pl.col("random").mean()
    rows = wide.group_by(*by, maintain_order=True).agg(
        label_spread_pp=100 * spread,
        random_p95_pp=100 * random,
        ratio=spread / random,
        runs_above_random=pl.format("{}/{}", is_above.sum(), pl.len()),
    )
    return finish_table(rows, runs)


@table("ablation", "Structural ablation, averaged over data sets and calibrators.", OTHER_VARIANTS_NOTE, digits=4)
def ablation_table(runs: Runs) -> pl.DataFrame:
    """Average the metrics of each variant over data sets and calibrators.

    Args:
        runs: Results of all data sets.

    Returns:
        Means over seeds, averaged over all pairs of data set and calibrator with equal weights. `added` marks variants
        that are not in the paper.
    """
    means = _average_ablation(runs.table_metrics(), "variant", source=join_sources())
    return _mark_other_variants(_ordered_variants(means).join(means, on="variant", maintain_order="left"))


@table(
    "ablation_by_dataset",
    "Structural ablation of each data set, averaged over calibrators.",
    OTHER_VARIANTS_NOTE,
    digits=4,
)
def ablation_by_dataset(runs: Runs) -> pl.DataFrame:
    """Average the metrics of each variant over calibrators, for each data set.

    Args:
        runs: Results of all data sets.

    Returns:
        Means over calibrators of means over seeds, own data sets included. `added` marks variants that are not in the
        paper.
    """
    means = _average_ablation(runs.table_metrics(include_own=True), "dataset", "source", "variant")
    datasets = means.select("dataset", "source").unique(maintain_order=True)
    cells = datasets.join(_ordered_variants(means), how="cross")
    return _mark_other_variants(cells.join(means, on=("dataset", "source", "variant"), maintain_order="left"))


def _ordered_variants(means: pl.DataFrame) -> pl.DataFrame:
    """List the paper's variants in its order, then the other variants of the registry, then all others that ran."""
    others = variants_with_role("rival", "sensitivity")
    return pl.DataFrame({"variant": [*dict.fromkeys([*PAPER_VARIANTS, *others, *means["variant"]])]})


def _average_ablation(metrics: pl.DataFrame, *by: str, **further_columns: pl.Expr) -> pl.DataFrame:
    """Average over seeds, then over all data sets and calibrators with the same values of `by`."""
    chosen = metrics.filter(pl.col("metric").is_in(ABLATION_METRICS), pl.col("variant") != SIMPLEX)
    cells = chosen.group_by(*KEYS, "variant", "metric", maintain_order=True).agg(pl.col("value").mean())
    means = [pl.col("value").filter(pl.col("metric") == metric).mean().alias(metric) for metric in ABLATION_METRICS]
    return cells.group_by(*by, maintain_order=True).agg(*means, **further_columns)


def _mark_other_variants(rows: pl.DataFrame) -> pl.DataFrame:
    return finish_table(rows.with_columns(added=~pl.col("variant").is_in(PAPER_VARIANTS)))


@table(
    "simplex_projection",
    "Class probabilities of the calibrator (base) and of the top-label simplex projection (MRC).",
    f"Means over protocol seeds. {BOLD_NOTE}",
    digits=4,
)
def simplex_projection_table(runs: Runs) -> pl.DataFrame:
    """Compare the class probabilities of MRC with those of the calibrator.

    Args:
        runs: Results of all data sets.

    Returns:
        Means over seeds for each data set and calibrator, and MRC minus calibrator. `q_below_uniform_pct` is the
        percentage of test rows whose reliability is below 1/K and cannot be reached, and `solved_pct` the percentage of
        rows whose power was found.
    """
    columns: dict[str, pl.Expr] = {}
    for name, metric in PROBABILITY_METRICS.items():
        base = select_values("confidence", metric).mean()
        projected = select_values(SIMPLEX, metric).mean()
        columns[f"{name}_base"] = base
        columns[f"{name}_mrc"] = projected
        columns[f"{name}_delta"] = projected - base
    for name, metric in SIMPLEX_SHARES.items():
        columns[name] = 100 * select_values(SIMPLEX, metric).mean()
    label_counts = {fact["dataset"]: len(fact["labels"]) for fact in runs.facts}
    n_classes = pl.col("dataset").replace_strict(label_counts, default=None, return_dtype=pl.Int64).alias("n_classes")
    return finish_table(runs.aggregate(columns).select("dataset", n_classes, pl.exclude("dataset")), runs)


@table(
    "robustness",
    "MSLR-WEB10K with a stronger base predictor.",
    "Base predictors with the name of a calibrator are not in the paper. Means over seeds.",
)
def robustness_table(runs: Runs) -> pl.DataFrame:
    """Compare the base predictors of MSLR-WEB10K.

    Args:
        runs: Results of all data sets.

    Returns:
        The uncalibrated base predictors of the paper, then those with calibrators that are not in the paper.
    """
    comparison_means = {name: mean for name, mean in comparison_columns().items() if name.endswith(("_conf", "_mrp"))}
    columns = {
        "accuracy": select_values("confidence", "accuracy").mean(),
        "ece": select_values("confidence", "ece").mean(),
        **comparison_means,
    }
    metrics = runs.metrics.sort("seed")
    cells = metrics.group_by("dataset", "source", "calibrator").agg(**columns)
    order = []
    for calibrator in (UNCALIBRATED, *runs.other_calibrators()):
        suffix = "" if calibrator == UNCALIBRATED else f"+{calibrator}"
        for base, dataset in BASE_PREDICTORS.items():
            order.append((dataset, calibrator, base + suffix))
    rows = pl.DataFrame(order, schema=["dataset", "calibrator", "base"], orient="row")
    rows = rows.join(cells, on=["dataset", "calibrator"], maintain_order="left")
    return finish_table(rows.select(pl.lit(LINEAR_DATASET).alias("dataset"), "base", *columns, "source"))


@table("datasets", "Sizes and class priors of the data sets.", "Class priors are in the order of the labels.")
def datasets_table(runs: Runs) -> pl.DataFrame:
    """Describe the data sets.

    Args:
        runs: Results of all data sets.

    Returns:
        One row for each data set. Class priors are the shares of the true labels, in the order of `labels`.
    """
    rows = [_describe_dataset(fact) for fact in runs.facts if fact["dataset"] != BOOSTED]
    return finish_table(pl.DataFrame(rows, schema=DATASETS_SCHEMA), runs, include_own=True)


def _describe_dataset(fact: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: fact.get(name) for name in ("dataset", "domain", "task", "preset", "source")}
    row["n_classes"] = len(fact["labels"])
    row["labels"] = "/".join(fact["labels"])
    for split in SPLITS:
        row[f"rows_{split}"] = fact.get("rows", {}).get(split)
        row[f"groups_{split}"] = fact.get("groups", {}).get(split)
        counts = fact.get("class_counts", {}).get(split, [])
        priors = [f"{count / max(sum(counts), 1):.3f}" for count in counts]
        row[f"class_priors_{split}"] = "/".join(priors) or None
    return row


TABLES = (  # of results, in the order of the paper
    main_table,
    budgeted_fallback_table,
    label_spread_table,
    ablation_table,
    simplex_projection_table,
    robustness_table,
)
