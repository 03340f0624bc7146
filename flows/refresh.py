"""Prefect flow: `dvc repro` under one API server for all its stages, then the tables where a person sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from prefect import flow, get_client
from rich.console import Console
from rich.table import Table

from flows.report import report
from tasks.protocol.errors import BadInput
from tasks.protocol.params import WatchedMap, load_params
from tasks.protocol.store import REPORT, read_csv, read_json
from tasks.tables.display import displayed
from tasks.watch import MapBroken, watch

DVC = (sys.executable, "-m", "dvc")
STARTED: list[subprocess.Popen[bytes]] = []  # what runs while the API server starts: stages that need none


def own_server() -> dict[str, str]:
    """The environment in which stages report to this run's API server."""
    with get_client(sync_client=True) as client:
        return {"PREFECT_API_URL": str(client.api_url)}


def start_repro(targets: list[str], **environment: str) -> subprocess.Popen[bytes]:
    """Start `dvc repro --keep-going` in a process group of its own."""
    tools = Path(sys.executable).parent  # holds the `python` that the stages call
    environment["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    command = [*DVC, "--wait-for-lock", "repro", "--keep-going", *targets]
    return subprocess.Popen(command, env=os.environ | environment, start_new_session=True)  # noqa: S603 - our own


def start_lanes(stage: str, datasets: list[str], lanes: int, **environment: str) -> list[subprocess.Popen[bytes]]:
    """Deal the data sets to `lanes`, each with a DVC of its own that brings them up to `stage`; they share no stage.

    DVC runs one stage at a time, and waits for another's lock. On a dumb terminal the bars of two lanes do not draw
    over each other.
    """
    dealt = [[f"{stage}@{name}" for name in datasets[lane::lanes]] for lane in range(lanes)]
    return [start_repro(targets, TERM="dumb", **environment) for targets in dealt if targets]


def finish(processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all; returns the first exit status that is not 0, and ends those still running if we end."""
    try:
        return next((status for status in [process.wait() for process in processes] if status), 0)
    finally:
        end(processes)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End those of the process groups that still run."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def repro(targets: list[str], datasets: list[str], lanes: int) -> int:
    """Bring `targets` (everything, if none) up to date; returns DVC's exit status.

    The data sets go side by side in `lanes`, then a last DVC makes the report; where a lane failed it tries all again,
    and says what is missing.
    """
    server = own_server()
    finish(STARTED)
    if not targets and not finish(start_lanes("reliability", datasets, lanes, **server)):
        targets = ["--single-item", "report"]  # DVC need not look at all that the lanes have just finished
    return finish([start_repro(targets, **server)])


def unfinished(datasets: list[str]) -> list[str]:
    """The data sets with a stage that is not up to date; what lies under `data/runs/` for them is not to be shown."""
    told = subprocess.run([*DVC, "status", "--json"], check=True, capture_output=True, text=True)  # noqa: S603 - our own command
    stale = {stage.split("@")[-1] for stage in json.loads(told.stdout)}
    return [name for name in datasets if name in stale]


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


class RefreshFailed(Exception):
    """What did not end well, in words."""


def watched(maps: Mapping[str, WatchedMap]) -> list[str]:
    """Hold each map in use against its labelled rows; what is wrong, a sentence each."""
    runs = {name: watch.submit(name, entry) for name, entry in maps.items()}
    wrong = []
    for name, run in runs.items():
        try:
            print(f"{name}: {run.result()}")
        except MapBroken as error:
            wrong.append(str(error))
        except (BadInput, OSError) as error:
            wrong.append(f"{name} could not be held against its rows: {error}")
    return wrong


@flow(flow_run_name="refresh")
def refresh(arguments: list[str] | None = None) -> None:
    """Bring everything up to date, then look at the maps in use.

    Where a data set failed, the others finish and the report marks the hole. Raises RefreshFailed with all that went
    wrong, once all else is done.
    """
    params = load_params()
    wrong = []
    failed = repro(arguments or [], list(params.datasets), params.lanes)
    try:
        if failed:
            wrong.append("some stages failed, see above; the report marks what is missing")
            report(missing=unfinished(list(params.datasets)))
        print_main_table()
    except BadInput as error:
        wrong.append(str(error))
    wrong += watched(params.watched)
    if wrong:
        raise RefreshFailed("; ".join(wrong))


if __name__ == "__main__":
    try:
        params = load_params()  # a mistake in params.yaml is told before a server starts
        if not sys.argv[1:]:
            STARTED += start_lanes("train", list(params.datasets), params.lanes)
        refresh(sys.argv[1:])
    except (BadInput, RefreshFailed) as error:
        sys.exit(f"refresh: {error}")
    finally:
        end(STARTED)
