"""What a refresh has done, for people: in the terminal, and as artifacts of its run."""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any

from prefect.artifacts import (
    create_link_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from rich.console import Console
from rich.table import Table

from flows.repro import Process
from tasks.audit.changes import leaves
from tasks.audit.history import Happened, Moment, failed_since, last_finished
from tasks.expectations.check import violated
from tasks.protocol.store import REPORT, failed_gates_file, read_csv, read_json, read_text
from tasks.provenance.stage import read_record
from tasks.tables.display import display_name, shown
from tasks.tables.main import main_table

EVERY = 2.0  # seconds between two looks at how far the data sets are


def print_main_table() -> None:
    """Print the main table of the report, and the headline."""
    main = shown(main_table, read_csv(REPORT / "main.csv"))
    table = Table(title="The same fixed decisions, ranked by confidence and by MRP (± in the CSV)")
    for place, name in enumerate(main.columns):
        table.add_column(name.replace("nll_correct", "nll").replace("_", " "), no_wrap=place < 2)
    for row in main.texts:
        table.add_row(*(text.split(" ± ")[0] for text in row))
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(read_text(REPORT / "headline.txt").strip(), highlight=False)


def link_report() -> None:
    """Say where the page of the report is, here and as an artifact."""
    page = REPORT / "index.html"
    create_link_artifact(
        page.resolve().as_uri(), link_text=str(page), key="refresh-report", description=f"report: {page.resolve()}"
    )
    print(f"report: {page.resolve()}")


def follow_lanes(lanes: list[Process], datasets: list[str], since: Moment) -> None:
    """Wait for all `lanes`; meanwhile, as an artifact, what share of `datasets` has ended since then.

    Those that are up to date leave no record, and count once all lanes have ended.
    """
    page: Any = create_progress_artifact(0.0, key="refresh-progress", description="data sets that have ended")
    shown = 0.0
    for lane in lanes:
        while lane.poll() is None:
            with suppress(TimeoutExpired):
                lane.wait(EVERY)
            if (percent := 100 * len(ended(datasets, since)) / len(datasets)) > shown:
                update_progress_artifact(page, percent)
                shown = percent
    if shown < 100:
        update_progress_artifact(page, 100.0)


def ended(datasets: list[str], since: Moment) -> set[str]:
    """Those that have finished all their stages since then, and those of which a stage has failed."""
    last = {name: read_record(f"reliability@{name}") for name in datasets}
    finished = {name for name, one in last.items() if one and one.started >= since.at and one.outcome == "finished"}
    return finished | (failed_since(since) & set(datasets))


def show_failed_gates(datasets: list[str]) -> None:
    """What the gates found that closed, as an artifact: of each data set that one has stopped; else nothing."""
    stopped = [read_json(path) for path in map(failed_gates_file, datasets) if path.exists()]
    rows = [
        row | {"dataset": display_name(one["dataset"], one["source"])}
        for one in stopped
        for row in violated(one["gates"])
    ]
    if rows:
        create_table_artifact(rows, key="refresh-gates", description="Gates that are closed: what failed, and where.")


def show_stages(stages: list[Happened]) -> None:
    """What became of each stage, and why: as an artifact, and in words without those that were skipped."""
    rows = [{"stage": one.stage, "what": one.how, "seconds": one.seconds, "why": one.why} for one in stages]
    create_table_artifact(rows, key="refresh-stages", description="What became of each stage, and why it ran.")
    alike = defaultdict(list)
    for one in stages:
        alike[one.how, one.why].append(one.stage)
    for (how, why), names in alike.items():
        if how != "skipped":
            print(f"{', '.join(names)} {how}: {why.splitlines()[0]}")  # all of it stands where it was told
    skipped = sum(one.how == "skipped" for one in stages)
    print(f"{skipped} of {len(stages)} stages were up to date" if skipped else "no stage was up to date")


def show_headline() -> None:
    """How the headline numbers changed against the last finished run, as an artifact and in words."""
    before, after = dict(leaves(last_finished().metrics)), dict(leaves(read_json(REPORT / "metrics.json")))
    numbers = [name for name, value in after.items() if isinstance(value, int | float)]
    rows = [
        {"number": name, "before": before[name], "now": after[name], "change": after[name] - before[name]}
        for name in numbers
        if isinstance(before.get(name), int | float)
    ]
    changed = [row for row in rows if row["change"]]
    create_table_artifact(rows, key="refresh-headline", description="Headline numbers against the last finished run.")
    if rows:
        print(f"against the last finished run, {len(changed) or 'none'} of {len(rows)} headline numbers changed")
    for row in changed:
        print(f"  {row['number']}: {row['before']:.6g} → {row['now']:.6g}")
