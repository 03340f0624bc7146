"""Prefect flow: `dvc repro` under one API server for all its stages; what ran, why, and what it changed."""

import signal
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import typer
from prefect import flow
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.futures import PrefectFuture, wait
from prefect.logging import get_run_logger
from pydantic import Field
from rich.console import Console
from rich.table import Column, Table

from flows import processes
from flows.engine import alive, mark_crashed, progress, server_variables, tell
from flows.notifications import HOOKS
from flows.processes import Process
from flows.server import server_needed
from flows.stage_output import StageOutput, show_stage
from relmap.errors import InputError
from relmap.io import atomic
from tasks.datasets import declared_set
from tasks.expectations.check import list_failed_expectations
from tasks.provenance.declared import declared, stage_names
from tasks.provenance.history import Happened, ended, happened
from tasks.provenance.lock import locked
from tasks.provenance.manifest import leaves
from tasks.provenance.stage import command
from tasks.records import store
from tasks.records.errors import RunFailed
from tasks.records.results import display_name
from tasks.settings.params import Params, load_params
from tasks.tables.display import shown
from tasks.tables.paper import main_table
from tasks.watch import watched

Target = Annotated[str, Field(pattern="^(report|(download|train|reliability)@[a-z0-9_]+)$")]
SECONDS_BETWEEN_LOOKS = 0.5
LAST = store.STATE / "last_result.json"  # the headline numbers of the last whole report, whatever made it


def _checked(targets: list[str]) -> Params:
    """What params.yaml says; a mistake in it, or in one of the data sets of `targets`, is told before a stage runs."""
    params = load_params()
    for target in targets:
        declared(target)  # InputError where it is no stage of dvc.yaml
    everything = not targets or "report" in targets
    for name in params.datasets if everything else {target.partition("@")[2] for target in targets}:
        declared_set(name, params.dataset(name))
    return params


def clear_away(since: datetime) -> None:
    """End and remove what an earlier refresh has left that was killed, or that found gates closed before `since`.

    Headline numbers that are there are kept, unless some are holes: DVC removes them before it makes the report.
    """
    if store.manifest_file("", "report").exists():
        with suppress(InputError):  # they are gone, or spoilt
            atomic.write_json(LAST, store.read_json(store.REPORT / "metrics.json"))
    processes.end_left_behind()
    processes.quarantine_corrupt_dvc_files()
    processes.remove_empty_runs()
    for kept in store.failed_gates_file("").parent.glob("*.json"):
        if kept.stat().st_mtime < since.timestamp():
            kept.unlink(missing_ok=True)


def start(run: list[Process], output: StageOutput, targets: list[str], force: bool, params: Params) -> None:
    """Start DVC for what is asked for, and read what it prints.

    Stages of chosen targets draw their progress on a terminal, so there they keep it.
    """
    captured = not (targets and sys.stdout.isatty())
    processes.start_run(run, targets, force, params, server_variables(), captured)
    for process in run:
        if captured:
            output.follow(process)


def repro(
    run: list[Process], output: StageOutput, targets: list[str], force: bool, params: Params, since: datetime
) -> int:
    """Bring `targets` (everything, if none) up to date, by what `run` has started, if anything; DVC's exit status."""
    try:
        if not run:
            start(run, output, targets, force, params)
        datasets = [] if targets else list(params.datasets)
        follow(run, output, datasets, since)
        status = processes.finish(run)
        if not targets and not status:
            report = processes.start_repro(
                ["--force"] * force + ["--single-item", "report"], server_variables(), **processes.CAPTURED
            )
            run.append(report)
            output.follow(report)
            follow(run, output, [], since)
            status = processes.finish(run)
        return status
    finally:
        processes.end(run)


def follow(run: list[Process], output: StageOutput, datasets: list[str], since: datetime) -> None:
    """Show each stage as a task run while it runs, until all processes have ended.

    Args:
        run: Processes of DVC.
        output: What they print.
        datasets: Data sets whose share that has ended is shown as an artifact; none, if it is not to be shown.
        since: When the refresh began.
    """
    advance = progress("refresh", len(datasets), "data sets that have ended") if datasets else None
    shown: list[PrefectFuture[None]] = []
    running = True
    while running:
        running = any(process.poll() is None for process in run)
        if not running:
            output.wait()
        while not output.started.empty():
            shown.append(show_stage.submit(output.started.get(), output, since))
        if advance is not None:
            # those that were up to date leave no record
            advance(len(ended(datasets, since)) if running else len(datasets))
        if running:
            time.sleep(SECONDS_BETWEEN_LOOKS)
    wait(shown)


def _report_with_holes(failed: Mapping[str, str], params: Params, stale: set[str]) -> list[str]:
    """Write the report with holes where stages failed or are `stale`, as no stage of DVC; what is to be said of it."""
    reasons = {stage.partition("@")[2]: f"{stage}: {why}" for stage, why in failed.items()}
    unfinished = {stage.partition("@")[2] for stage in stale}
    holes = {name: reasons.get(name, "its stages did not run") for name in params.datasets if name in unfinished}
    if not holes:  # it is the report itself that failed
        return []
    from flows.report import report  # noqa: PLC0415 - half a second that most runs do not need

    try:
        with locked("report"):
            declared("report").manifest.unlink(missing_ok=True)
            report(missing=holes)
    except InputError as error:
        return [str(error)]
    return ["the report marks what is missing"]


def with_needed(target: str) -> list[str]:
    """Return the stages that bring a target up to date: itself, and those before it.

    Args:
        target: A stage of dvc.yaml.

    Returns:
        Names of stages, the target last. The report needs every stage of every data set.
    """
    stage, _, dataset = target.partition("@")
    if not dataset:
        return [name for name in stage_names() if name != target] + [target]
    before = ("download", "train", "reliability")
    return [f"{name}@{dataset}" for name in before[: before.index(stage) + 1]]


def _brought_up(
    run: list[Process], output: StageOutput, targets: list[str], force: bool, params: Params, since: datetime
) -> list[str]:
    """Run DVC, and show what became of the stages and what it changed; returns what went wrong, a sentence each."""
    status = repro(run, output, targets, force, params, since)
    stages = happened(since, stale := processes.stale_stages() if status else set())
    wanted = {name for target in targets for name in with_needed(target)}
    _show_stages([of for of in stages if not targets or of.how in {"ran", "restored", "failed"} or of.stage in wanted])
    show_failed_gates(list(params.datasets))
    if status:
        failed = {of.stage: of.why for of in stages if of.how == "failed"}
        wrong = [f"{stage}: {why}" for stage, why in failed.items()]
        wrong = wrong or ["DVC could not run a stage; its own words stand above"]
        return wrong if targets else [*wrong, *_report_with_holes(failed, params, stale)]
    if not targets or "report" in targets:
        _show_headline()
    return []


def _show_stages(stages: list[Happened]) -> None:
    """What became of each stage, and why: as an artifact, and in words without those that were skipped."""
    rows = [{"stage": run.stage, "what": run.how, "seconds": run.seconds, "why": run.why} for run in stages]
    create_table_artifact(rows, key="refresh-stages", description="What became of each stage, and why it ran.")
    alike = defaultdict(list)
    for run in stages:
        alike[run.how, run.why].append(run.stage)
    for (how, why), names in alike.items():
        if how != "skipped":
            tell(f"{', '.join(names)} {how}: {why.splitlines()[0]}")  # all of it stands where it was said first
    skipped = [run.stage for run in stages if run.how == "skipped"]
    tell(f"{len(skipped)} of {len(stages)} stages were up to date" if skipped else "no stage was up to date")
    if skipped:
        get_run_logger().info("up to date: %s", ", ".join(skipped))


def show_failed_gates(datasets: list[str]) -> None:
    """What the gates found that closed, as an artifact: of each data set that one has stopped; else nothing."""
    rows = list[dict[str, Any]]()
    for dataset in datasets:
        path = store.failed_gates_file(dataset)
        if not path.exists():
            continue
        run = store.read_json(path)
        rows += [
            row | {"dataset": display_name(run["dataset"], run["source"])}
            for row in list_failed_expectations(run["gates"])
        ]
    if rows:
        create_table_artifact(rows, key="refresh-gates", description="Gates that failed: expectations and rows.")


def _show_headline() -> None:
    """How the headline numbers changed against the last result, as an artifact and in words."""
    try:
        before = dict(leaves(store.read_json(LAST)))
    except InputError:  # there was none, or it is spoilt
        before = {}
    rows = [
        {"number": name, "before": before[name], "now": value, "change": value - before[name]}
        for name, value in leaves(store.read_json(store.REPORT / "metrics.json"))
        if isinstance(value, int | float) and isinstance(before.get(name), int | float)
    ]
    changed = [row for row in rows if row["change"]]
    create_table_artifact(rows, key="refresh-headline", description="Headline numbers against the last result.")
    if rows:
        tell(f"against the last result, {len(changed) or 'none'} of {len(rows)} headline numbers changed")
    for row in changed:
        tell(f"  {row['number']}: {row['before']:.6g} → {row['now']:.6g}")


def _show_report() -> None:
    """Print the main table of the report and the headline, and say where its page is, here and as an artifact."""
    paper = shown(main_table, store.read_csv(store.REPORT / "main.csv"))
    heads = [name.replace("nll_correct", "nll").replace("_", " ") for name in paper.columns]
    columns = [Column(head, no_wrap=place < 2) for place, head in enumerate(heads)]
    table = Table(*columns, title="The same fixed decisions, ranked by confidence and by MRP (± in the CSV)")
    for row in paper.texts:
        table.add_row(*(text.split(" ± ")[0] for text in row))
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(store.read_text(store.REPORT / "headline.txt").strip(), highlight=False)
    page = (store.REPORT / "index.html").resolve()
    create_link_artifact(page.as_uri(), link_text=str(page), key="refresh-report", description=f"report: {page}")
    tell(f"report: {page}")


def _refreshed(run: list[Process], output: StageOutput, targets: list[str], force: bool) -> None:
    """What the flow `refresh` does, for which what is in `run` has been started already."""
    params = _checked(targets)
    with alive(), locked("refresh") as since:
        if not run:
            clear_away(since)
        mark_crashed()
        wrong = _brought_up(run, output, targets, force, params, since)
        if not targets or "report" in targets:
            try:
                _show_report()
            except InputError as error:
                wrong.append(str(error))
        wrong += watched(params.watched)
    if wrong:
        raise RunFailed("\n  ".join(["not all went well:", *wrong]))


@flow(flow_run_name="refresh", **HOOKS)
def refresh(targets: list[Target] | None = None, force: bool = False) -> None:
    """Bring everything up to date, or only `targets` and what they need, then look at the maps in use.

    Where a data set failed, the others finish and the report marks the hole. Raises RunFailed with all that went
    wrong, once all else is done.
    """
    _refreshed([], StageOutput(), targets or [], force)


def main(
    targets: Annotated[list[str] | None, typer.Argument(help="Stages, such as reliability@wands; else all.")] = None,
    force: Annotated[bool, typer.Option(help="Run also what is up to date.")] = False,
) -> None:
    """Bring the data sets and the report up to date under one API server; says what ran, and why."""
    for ending in (signal.SIGTERM, signal.SIGHUP):  # also of a terminal that is closed: what we started has its own
        signal.signal(ending, lambda number, _frame: sys.exit(128 + number))
    wanted, run, output = targets or [], list[Process](), StageOutput()
    params = _checked(wanted)  # before a server starts

    @flow(name="refresh", flow_run_name="refresh", **HOOKS)
    def refresh_started(targets: list[str], force: bool) -> None:
        _refreshed(run, output, targets, force)

    with locked("refresh") as since:
        try:
            clear_away(since)
            with server_needed(lambda: start(run, output, wanted, force, params)):
                refresh_started(wanted, force)
        finally:
            processes.end(run)


if __name__ == "__main__":
    command(main, "refresh")
