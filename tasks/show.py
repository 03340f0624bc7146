"""Prefect tasks: what one data set measured, or which gate stopped it, on the page of their run."""

from pathlib import Path
from typing import Any

import polars as pl
from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from tasks.expectations.check import violated
from tasks.metrics.registry import COMPARED
from tasks.protocol.results import display_name
from tasks.protocol.store import Base


@task(task_run_name="show/{base.name}", cache_policy=NO_CACHE)
def show(base: Base, metrics: pl.DataFrame, folder: Path) -> None:
    """Show a table of confidence beside MRP, mean over protocol seeds, and a link to the files in `folder`."""
    pair, key, shown = ["confidence", "mrp"], base.name.replace("_", "-"), display_name(base.name, base.source)
    both = metrics.filter(pl.col("variant").is_in(pair), pl.col("metric").is_in(COMPARED))
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


@task(task_run_name="show gates/{base.name}", cache_policy=NO_CACHE)
def show_gates(base: Base, gates: list[dict[str, Any]]) -> None:
    """Show what the records of `gates` name as violated: where, what was expected, what was found."""
    shown = display_name(base.name, base.source)
    create_table_artifact(
        [row | {"dataset": shown} for row in violated(gates)],
        key=f"gates-{base.name.replace('_', '-')}",
        description=f"{shown}: a gate is closed, and nothing of this run is reported. What failed, and where:",
    )
