"""Prefect tasks: the tables of the report, from the runs of every data set."""

from __future__ import annotations

import polars as pl
from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from tasks.protocol.store import REPORT, read_parquet, runs_folder, write_json, write_whole
from tasks.tables.display import displayed, markdown
from tasks.tables.main import headline, main_table, with_holes


@task(cache_policy=NO_CACHE)
def gather(datasets: list[str]) -> pl.DataFrame:
    """The long metrics of all `datasets`, in their order."""
    return pl.concat([read_parquet(runs_folder(dataset) / "metrics.parquet") for dataset in datasets])


@task(cache_policy=NO_CACHE)
def write_main(metrics: pl.DataFrame, missing: list[str], calibrators: list[str]) -> pl.DataFrame:
    """Write the main table as CSV (full precision) and Markdown (rounded), and show it in the Prefect UI."""
    table = with_holes(main_table(metrics), missing, calibrators)
    write_whole(REPORT / "main.csv", table.write_csv)
    write_whole(REPORT / "main.md", lambda partial: partial.write_text(markdown(table), encoding="utf-8"))
    header, rows = displayed(table)
    create_table_artifact([dict(zip(header, row, strict=True)) for row in rows], key="main", description="Main table")
    return table


@task(cache_policy=NO_CACHE)
def write_headline(table: pl.DataFrame) -> None:
    """Write the headline numbers for `dvc metrics`."""
    write_json(REPORT / "metrics.json", headline(table))
