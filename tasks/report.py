"""Prefect tasks: the tables of the report, from the runs of every data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl
from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from tasks.protocol.store import REPORT, base_folder, read_json, read_parquet, runs_folder, write_json, write_whole
from tasks.tables import TABLES
from tasks.tables.display import displayed, markdown, note
from tasks.tables.headline import headline, headline_sentence
from tasks.tables.latex import latex
from tasks.tables.layouts import LAYOUTS
from tasks.tables.runs import Runs

SHOWN_ROWS = 200  # of a table in the Prefect UI


@task(cache_policy=NO_CACHE)
def gather(datasets: list[str], missing: list[str], calibrators: tuple[str, ...]) -> Runs:
    """The results of all `datasets`, in their order; those in `missing` become marked holes."""
    frames = {
        name: pl.concat([read_parquet(runs_folder(dataset) / f"{name}.parquet") for dataset in datasets])
        for name in ("metrics", "intervals", "rivals", "sensitivity")
    }
    facts = tuple(read_json(base_folder(dataset) / "base.json") for dataset in datasets)
    return Runs(**frames, facts=facts, missing=tuple(missing), calibrators=calibrators)


@task(task_run_name="{name}", cache_policy=NO_CACHE)
def write_table(name: str, runs: Runs) -> None:
    """Write one table as CSV (full precision), Markdown and LaTeX (rounded), and show it in the Prefect UI."""
    table = TABLES[name](runs)
    write_whole(REPORT / f"{name}.csv", table.write_csv)
    for ending, text in (("md", markdown(name, table)), ("tex", latex(name, table))):
        write_whole(REPORT / f"{name}.{ending}", partial(Path.write_text, data=text, encoding="utf-8"))
    header, rows = displayed(name, table)
    cut = f" The first {SHOWN_ROWS} of {len(rows)} rows." if len(rows) > SHOWN_ROWS else ""
    shown = [dict(zip(header, row, strict=True)) for row in rows[:SHOWN_ROWS]]
    create_table_artifact(
        shown, key=name.replace("_", "-"), description=f"{LAYOUTS[name].caption} {note(name, table)}{cut}"
    )


@task(cache_policy=NO_CACHE)
def write_headline(runs: Runs) -> str:
    """Write the headline numbers for `dvc metrics`; returns the headline in words."""
    sentence = headline_sentence(runs)
    write_json(REPORT / "metrics.json", {"headline": sentence} | headline(runs))
    return sentence
