"""Prefect tasks: the results of one data set, written once all are there, and shown, or the gate that stopped it."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy
from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact

from relmap.calibrators.registry import PAPER_FIGURE_CALIBRATOR
from relmap.decisions import FixedDecisions
from relmap.io.atomic import write_atomically, write_json
from relmap.metrics.registry import COMPARED_METRICS
from tasks.expectations.check import list_failed_expectations
from tasks.provenance.manifest import library_versions
from tasks.records.advice import in_words, numbers
from tasks.records.results import Projected, ProjectedDecisions, display_name
from tasks.records.store import Base, base_folder, read_json, read_parquet
from tasks.settings.params import Params

SCORED_ROWS = 50_000  # beyond this many test rows, scores.parquet holds a sample of them
SIMPLEX_ROWS = 2000  # that simplex.parquet holds at most
MEASURED = (  # what `dvc metrics` shows of a data set
    *("accuracy", "commonest_label", "nll_correct_delta", "aurc_conf", "aurc_mrp"),
    *("found_per_1000_conf", "found_per_1000_mrp"),
)
CURVE = ("label", "values", "rows", "fallback")


def sampled(n: int, most: int) -> np.ndarray:
    """Return row numbers of `n` rows: all of them, or a sample of `most` under a fixed seed."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def _decided(seed: Projected, rows: ProjectedDecisions, test: FixedDecisions, kept: np.ndarray) -> dict[str, Any]:
    return {
        "row": kept,
        "group": test.group[kept].tolist(),
        "label": test.labels[kept],
        "decision": rows.decision[kept],
        "calibrator": [rows.calibrator] * len(kept),
        "seed": [seed.seed] * len(kept),
        "confidence": np.exp(rows.log_probabilities[kept, rows.decision[kept]]),
        "reliability": scipy.special.expit(rows.reliability_logits["mrp"][kept]),
    }


def scores(projected: list[Projected], test: FixedDecisions, calibrators: tuple[str, ...]) -> pl.DataFrame:
    """Return a row for each scored test row, calibrator of the tables and seed; rank by the logits, unsaturated."""
    kept = sampled(len(test), SCORED_ROWS)
    return pl.concat(
        pl.DataFrame(
            _decided(seed, rows, test, kept)
            | {f"logit_{name}": values[kept] for name, values in rows.reliability_logits.items()}
        )
        for seed in projected
        for rows in seed.rows
        if rows.calibrator in calibrators
    )


def simplex(projected: list[Projected], test: FixedDecisions, calibrators: tuple[str, ...]) -> pl.DataFrame:
    """Return sampled test rows and probabilities before and after MRC: first seed, headline's calibrator if it ran."""
    kept = sampled(len(test), SIMPLEX_ROWS)
    shown = PAPER_FIGURE_CALIBRATOR if PAPER_FIGURE_CALIBRATOR in calibrators else calibrators[-1]
    rows = next(rows for rows in projected[0].rows if rows.calibrator == shown)
    of_mrc = {name: getattr(rows.simplex, name)[kept] for name in ("alpha", "feasible", "solved")}
    before, after = (np.exp(of[kept]).tolist() for of in (rows.log_probabilities, rows.simplex.log_probabilities))
    decided = pl.DataFrame(_decided(projected[0], rows, test, kept) | of_mrc | {"base": before, "mrc": after})
    return decided.drop("group", "confidence")


def optimum(projected: list[Projected], metrics: pl.DataFrame) -> dict[str, Any]:
    """Return how far MRP as published is from the optimum of its objective, at worst over calibrators and seeds."""
    rows = [rows for seed in projected for rows in seed.rows]
    place, pair = ["calibrator", "seed", "metric"], ["mrp", "mrp_exact"]
    both = metrics.filter(pl.col("variant").is_in(pair)).pivot("variant", index=place, values="value")
    gap = (pl.col("mrp") - pl.col("mrp_exact")).abs().max()
    gaps = both.group_by("metric", maintain_order=True).agg(gap)
    return {
        "adam_objective_above_it": max(of.adam_above_optimum for of in rows),
        "kkt_residual": max(of.kkt for of in rows),
        "largest_difference": dict(gaps.iter_rows()),
    }


def curves(projected: list[Projected], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return every fitted lattice: knots, values for each label, and the rows behind each label."""
    lattices = []
    for seed, rows in ((of.seed, rows) for of in projected for rows in of.rows):
        for variant, lattice in rows.lattices.items():
            names = labels if len(lattice.values) > 1 else ("every label",)
            columns = lattice.values.tolist(), map(int, lattice.rows), lattice.fallback
            of_labels = [dict(zip(CURVE, row, strict=True)) for row in zip(names, *columns, strict=True)]
            place = {"calibrator": rows.calibrator, "seed": seed, "variant": variant}
            lattices.append(place | {"knots": lattice.knots.tolist(), "curves": of_labels})
    return lattices


@task(task_run_name="write/{base.name}")
def write_runs(
    base: Base, results: dict[str, list[Any]], params: Params, provenance: dict[str, Any], folder: Path
) -> pl.DataFrame:
    """Write the results into `folder`, the same bytes for the same inputs, and return the metrics.

    `results` are what the tasks made, each a list: records of `gates`, `projected`, and as frames `metrics`, `rivals`,
    `sensitivity` and `intervals`.
    """
    projected = results["projected"]
    named = {"dataset": base.name, "source": base.source}
    named_columns = [pl.lit(value).alias(name) for name, value in named.items()]
    frames = {name: pl.concat(results[name]) for name in ("metrics", "rivals", "sensitivity", "intervals")}
    frames["simplex"] = simplex(projected, base.test, params.calibrators)
    for name, frame in frames.items():
        write_atomically(folder / f"{name}.parquet", frame.select(*named_columns, pl.all()).write_parquet)
    scored = scores(projected, base.test, params.calibrators).with_columns(source=pl.lit(base.source))
    write_atomically(folder / "scores.parquet", scored.write_parquet)
    write_json(folder / "curves.json", named | {"lattices": curves(projected, base.labels)})
    passed = [*results["gates"], *(record for seed in projected for record in seed.gates)]
    write_json(folder / "gates.json", named | {"gates": passed})
    sizes = {"test_rows": len(base.test), "scored_rows": len(sampled(len(base.test), SCORED_ROWS))}
    facts = {
        "fallbacks": [sentence for seed in projected for sentence in seed.fallbacks(base.labels)],
        "optimum": optimum(projected, frames["metrics"]),
    }
    write_json(folder / "run.json", named | sizes | facts | provenance | {"versions": library_versions()})
    return frames["metrics"]


@task(task_run_name="show/{base.name}")
def show(base: Base, metrics: pl.DataFrame, folder: Path) -> None:
    """Show a table of confidence beside MRP, mean over protocol seeds, and a link to the files in `folder`."""
    pair, key, shown = ["confidence", "mrp"], base.name.replace("_", "-"), display_name(base.name, base.source)
    both = metrics.filter(pl.col("variant").is_in(pair), pl.col("metric").is_in(COMPARED_METRICS))
    place = ["calibrator", "metric"]
    means = both.pivot("variant", index=place, values="value", aggregate_function="mean", maintain_order=True)
    rows = means.with_columns(change=pl.col("mrp") - pl.col("confidence")).with_columns(pl.selectors.float().round(5))
    create_table_artifact(
        rows.to_dicts(),
        key=f"metrics-{key}",
        description=f"{shown}: mean over protocol seeds, test rows ranked by confidence and by MRP. In full: {folder}/",
    )
    create_link_artifact(
        folder.resolve().as_uri(), link_text=f"{folder}/", key=f"files-{key}", description=f"{shown}: files"
    )


@task(task_run_name="verdict/{base.name}")
def verdict(base: Base, params: Params, folder: Path, place: Path | None) -> list[str]:
    """Return the verdict on the results in `folder` in words; its numbers go to `place`, if there is one."""
    metrics = read_parquet(folder / "metrics.parquet").filter(pl.col("calibrator").is_in(params.calibrators))
    intervals, facts = read_parquet(folder / "intervals.parquet"), read_json(base_folder(base.name) / "base.json")
    (row,) = numbers(metrics, intervals, [facts]).iter_rows(named=True)
    if place is not None:
        write_json(place, {name: row[name] for name in MEASURED if row[name] is not None})
    return in_words(row, intervals, params.metrics.smallest_relevant_change)


@task(task_run_name="show gates/{base.name}")
def show_gates(base: Base, gates: list[dict[str, Any]]) -> None:
    """Show the failed expectations of gates as a table: place, expectation, values found."""
    shown = display_name(base.name, base.source)
    create_table_artifact(
        [row | {"dataset": shown} for row in list_failed_expectations(gates)],
        key=f"gates-{base.name.replace('_', '-')}",
        description=f"{shown}: a gate failed, so no result of this run is reported. Failed expectations:",
    )
