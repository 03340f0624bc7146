"""What a refresh has done, for people: in the terminal, and as artifacts of its run."""

from __future__ import annotations

import sys
from collections import defaultdict

from prefect.artifacts import create_link_artifact, create_table_artifact
from rich.console import Console
from rich.table import Table

from tasks.audit.changes import leaves
from tasks.audit.history import Happened, last_finished
from tasks.protocol.store import REPORT, read_csv, read_json
from tasks.tables.display import displayed


def print_main_table() -> None:
    """Print the main table of the report, and where the report is."""
    header, rows = displayed("main", read_csv(REPORT / "main.csv"))
    table = Table(title="The same fixed decisions, ranked by confidence and by MRP (± in the CSV)")
    for place, name in enumerate(header):
        table.add_column(name.replace("nll_correct", "nll").replace("_", " "), no_wrap=place < 2)
    for row in rows:
        table.add_row(*(text.split(" ± ")[0] for text in row))
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(read_json(REPORT / "metrics.json")["headline"], highlight=False)
    console.print(f"report: {REPORT.resolve()}")


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
    create_link_artifact(REPORT.resolve().as_uri(), link_text=f"{REPORT}/", key="refresh-report", description="report")
    if rows:
        print(f"against the last finished run, {len(changed) or 'none'} of {len(rows)} headline numbers changed")
    for row in changed:
        print(f"  {row['number']}: {row['before']:.6g} → {row['now']:.6g}")
