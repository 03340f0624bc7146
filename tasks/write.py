"""Prefect tasks: write and show the results of one data set, or the gate that failed."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy
from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact

from relmap.calibrators.registry import PAPER_FIGURE_CALIBRATOR
from relmap.decisions import ProtocolDecisions
from relmap.io.atomic import write_atomically, write_json
from relmap.metrics.registry import COMPARED_METRICS
from relmap.projection.mrp import Curves
from tasks.expectations.check import list_failed_expectations
from tasks.provenance.versions import library_versions
from tasks.records.durations import measured
from tasks.records.store import Base, base_folder, read_json, read_parquet
from tasks.results.comparison import describe_comparison, summarize_datasets
from tasks.results.values import ProjectedDecisions, SeedResults, display_name
from tasks.settings.params import Params

MAX_SCORED_ROWS = 50_000  # scores.parquet contains a sample of this size if there are more test rows
MAX_SIMPLEX_ROWS = 2000  # likewise for simplex.parquet
DVC_METRICS = (  # numbers of a data set for `dvc metrics`
    "accuracy",
    "commonest_label",
    "nll_correct_delta",
    "aurc_conf",
    "aurc_mrp",
    "found_per_1000_conf",
    "found_per_1000_mrp",
)


def sample_rows(n_rows: int, max_rows: int) -> np.ndarray:
    """Return all row numbers, or a random sample of them under a fixed seed.

    Args:
        n_rows: Number of rows.
        max_rows: Maximum size of the sample.

    Returns:
        Row numbers in increasing order, int.
    """
    if n_rows <= max_rows:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, max_rows, replace=False))


def _decision_columns(
    seed: int, decisions: ProjectedDecisions, test: ProtocolDecisions, rows: np.ndarray
) -> dict[str, Any]:
    """Return the columns that scores.parquet and simplex.parquet share."""
    return {
        "row": rows,
        "group": test.group[rows].tolist(),
        "label": test.label[rows],
        "decision": decisions.decision[rows],
        "calibrator": [decisions.calibrator] * len(rows),
        "seed": [seed] * len(rows),
        "confidence": np.exp(decisions.log_probabilities[rows, decisions.decision[rows]]),
        "reliability": scipy.special.expit(decisions.reliability_logits["mrp"][rows]),
    }


def build_scores(results: list[SeedResults], test: ProtocolDecisions, calibrators: tuple[str, ...]) -> pl.DataFrame:
    """Build the rows of scores.parquet.

    Args:
        results: Results of each protocol seed.
        test: Test rows.
        calibrators: Calibrators that the tables show.

    Returns:
        One row for each sampled test row, calibrator and seed. Rank rows by the columns `logit_<variant>`: confidence
        and reliability saturate at 1.
    """
    rows = sample_rows(len(test), MAX_SCORED_ROWS)
    frames = []
    for seed_results in results:
        for decisions in seed_results.projections:
            if decisions.calibrator in calibrators:
                columns = _decision_columns(seed_results.seed, decisions, test, rows)
                for variant, logit in decisions.reliability_logits.items():
                    columns[f"logit_{variant}"] = logit[rows]
                frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def build_simplex_rows(
    results: list[SeedResults], test: ProtocolDecisions, calibrators: tuple[str, ...]
) -> pl.DataFrame:
    """Build the rows of simplex.parquet: probability vectors before and after MRC.

    Args:
        results: Results of each protocol seed; the first one is used.
        test: Test rows.
        calibrators: Calibrators that the tables show. The calibrator of the paper's figures is used if it is one of
            them, else the last of them.

    Returns:
        One row for each sampled test row.
    """
    rows = sample_rows(len(test), MAX_SIMPLEX_ROWS)
    calibrator = PAPER_FIGURE_CALIBRATOR if PAPER_FIGURE_CALIBRATOR in calibrators else calibrators[-1]
    first = results[0]
    decisions = next(decisions for decisions in first.projections if decisions.calibrator == calibrator)
    simplex = decisions.simplex
    columns = _decision_columns(first.seed, decisions, test, rows)
    columns["alpha"] = simplex.alpha[rows]
    columns["feasible"] = simplex.feasible[rows]
    columns["solved"] = simplex.solved[rows]
    columns["uncalibrated"] = scipy.special.softmax(test.logits[rows], axis=1).tolist()
    columns["base"] = np.exp(decisions.log_probabilities[rows]).tolist()
    columns["mrc"] = np.exp(simplex.log_probabilities[rows]).tolist()
    return pl.DataFrame(columns).drop("group", "confidence")


def summarize_optimality(results: list[SeedResults], metrics: pl.DataFrame) -> dict[str, Any]:
    """Compare MRP as published with the optimum of its objective.

    Args:
        results: Results of each protocol seed.
        metrics: Metrics of all seeds.

    Returns:
        Maxima over calibrators and seeds. `adam_objective_above_it`: objective of MRP as published minus the optimum.
        `kkt_residual`: residual of the optimality conditions at the optimum. `largest_difference`: for each metric, the
        absolute difference between MRP as published and the optimum.
    """
    projections = [decisions for seed_results in results for decisions in seed_results.projections]
    both_variants = metrics.filter(pl.col("variant").is_in(["mrp", "mrp_exact"]))
    by_variant = both_variants.pivot("variant", index=["calibrator", "seed", "metric"], values="value")
    difference = (pl.col("mrp") - pl.col("mrp_exact")).abs()
    largest = by_variant.group_by("metric", maintain_order=True).agg(difference.max())
    return {
        "adam_objective_above_it": max(decisions.objective_excess for decisions in projections),
        "kkt_residual": max(decisions.kkt_residual for decisions in projections),
        "largest_difference": dict(largest.iter_rows()),
    }


def list_lattices(results: list[SeedResults], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """List all fitted curves for curves.json. A lattice has the curves of one calibrator, seed and variant.

    Args:
        results: Results of each protocol seed.
        labels: Names of the K labels.

    Returns:
        For each lattice its calibrator, seed, variant, knots and curves. A curve has a label, the values at the knots,
        the number of fit rows, and the fallback: the model that the label uses instead of an own curve, or "none".
    """
    lattices = []
    for seed_results in results:
        for decisions in seed_results.projections:
            for variant, lattice in decisions.lattices.items():
                lattices.append(
                    {
                        "calibrator": decisions.calibrator,
                        "seed": seed_results.seed,
                        "variant": variant,
                        "knots": lattice.knots.tolist(),
                        "curves": _list_curves(lattice, labels),
                    }
                )
    return lattices


def _list_curves(lattice: Curves, labels: tuple[str, ...]) -> list[dict[str, Any]]:
    names = labels if len(lattice.values) > 1 else ("every label",)
    curves = []
    for name, values, n_rows, fallback in zip(
        names, lattice.values.tolist(), lattice.rows, lattice.fallback, strict=True
    ):
        curves.append({"label": name, "values": values, "rows": int(n_rows), "fallback": fallback})
    return curves


@task(task_run_name="write/{base.name}")
@measured("write")
def write_runs(
    base: Base, results: dict[str, list[Any]], params: Params, provenance: dict[str, Any], folder: Path
) -> pl.DataFrame:
    """Write the results of one data set. The same results give the same bytes.

    Args:
        base: Decisions of the base predictor.
        results: Kind of result -> the results of all tasks of this kind: `gates` (records), `projected` (one
            `SeedResults` for each seed), and `metrics`, `rivals`, `sensitivity` and `intervals` (data frames).
        params: Settings.
        provenance: Facts about the run for run.json.
        folder: Folder of the files.

    Returns:
        The metrics of all seeds.
    """
    projected: list[SeedResults] = results["projected"]
    dataset_facts = {"dataset": base.name, "source": base.source}
    dataset_columns = [pl.lit(value).alias(name) for name, value in dataset_facts.items()]
    frames = {name: pl.concat(results[name]) for name in ("metrics", "rivals", "sensitivity", "intervals")}
    frames["simplex"] = build_simplex_rows(projected, base.test, params.calibrators)
    for name, frame in frames.items():
        write_atomically(folder / f"{name}.parquet", frame.select(*dataset_columns, pl.all()).write_parquet)
    scores = build_scores(projected, base.test, params.calibrators).with_columns(source=pl.lit(base.source))
    write_atomically(folder / "scores.parquet", scores.write_parquet)
    write_json(folder / "curves.json", dataset_facts | {"lattices": list_lattices(projected, base.labels)})
    gate_records = list(results["gates"])
    fallbacks = []
    for seed_results in projected:
        gate_records += seed_results.gate_records
        fallbacks += seed_results.describe_fallbacks(base.labels)
    write_json(folder / "gates.json", dataset_facts | {"gates": gate_records})
    run = {
        **dataset_facts,
        "test_rows": len(base.test),
        "scored_rows": min(len(base.test), MAX_SCORED_ROWS),
        "fallbacks": fallbacks,
        "optimum": summarize_optimality(projected, frames["metrics"]),
        **provenance,
        "versions": library_versions(),
    }
    write_json(folder / "run.json", run)
    return frames["metrics"]


@task(task_run_name="show/{base.name}")
@measured("write")
def show_metrics(base: Base, metrics: pl.DataFrame, folder: Path) -> None:
    """Show a table that compares confidence and MRP, and a link to the files, in the Prefect UI.

    Args:
        base: Decisions of the base predictor.
        metrics: Metrics of all seeds.
        folder: Folder of the files.
    """
    dataset = display_name(base.name, base.source)
    artifact_name = base.name.replace("_", "-")
    is_shown = pl.col("variant").is_in(["confidence", "mrp"]) & pl.col("metric").is_in(COMPARED_METRICS)
    means = metrics.filter(is_shown).pivot(
        "variant", index=["calibrator", "metric"], values="value", aggregate_function="mean"
    )
    rows = means.with_columns(change=pl.col("mrp") - pl.col("confidence"))
    create_table_artifact(
        rows.with_columns(pl.selectors.float().round(5)).to_dicts(),
        key=f"metrics-{artifact_name}",
        description=(
            f"{dataset}: means over protocol seeds, test rows ranked by confidence and by MRP. All results: {folder}/"
        ),
    )
    create_link_artifact(
        folder.resolve().as_uri(),
        link_text=f"{folder}/",
        key=f"files-{artifact_name}",
        description=f"{dataset}: files",
    )


@task(task_run_name="compare/{base.name}")
@measured("write")
def compare(base: Base, params: Params, folder: Path, metrics_path: Path | None) -> list[str]:
    """Compare reliability and confidence for one data set.

    Args:
        base: Decisions of the base predictor.
        params: Settings.
        folder: Folder of the results.
        metrics_path: Path to write the numbers for `dvc metrics` to; None to write nothing.

    Returns:
        Sentences, the comparison first.
    """
    metrics = read_parquet(folder / "metrics.parquet").filter(pl.col("calibrator").is_in(params.calibrators))
    intervals = read_parquet(folder / "intervals.parquet")
    facts = read_json(base_folder(base.name) / "base.json")
    (row,) = summarize_datasets(metrics, intervals, [facts]).iter_rows(named=True)
    if metrics_path is not None:
        write_json(metrics_path, {name: row[name] for name in DVC_METRICS if row[name] is not None})
    return describe_comparison(row, intervals)


@task(task_run_name="show gates/{base.name}")
def show_gates(base: Base, gates: list[dict[str, Any]]) -> None:
    """Show the failed expectations of gates in the Prefect UI, with place and values found.

    Args:
        base: Decisions of the base predictor.
        gates: Records of the gates.
    """
    dataset = display_name(base.name, base.source)
    create_table_artifact(
        [row | {"dataset": dataset} for row in list_failed_expectations(gates)],
        key=f"gates-{base.name.replace('_', '-')}",
        description=f"{dataset}: a gate failed, so no result of this run is reported. Failed expectations:",
    )
