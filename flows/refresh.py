"""Prefect flow `refresh`: run `dvc repro` under one API server, and show what ran, why, and what changed."""

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
from prefect.states import State
from pydantic import Field
from rich.console import Console
from rich.table import Column, Table

from flows import processes
from flows.engine import hold_run_lock, mark_crashed_runs, report_message, server_environment, start_progress
from flows.notifications import HOOKS
from flows.processes import Process
from flows.server import ensure_server
from flows.stage_output import StageOutput, show_stage
from relmap.errors import InputError
from relmap.io import atomic
from tasks.datasets import find_declared_dataset
from tasks.expectations.check import list_failed_expectations
from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.history import StageOutcome, ended_datasets, stage_outcomes
from tasks.provenance.lock import hold_lock
from tasks.provenance.manifest import flatten
from tasks.provenance.stage import run_command
from tasks.records import store
from tasks.records.errors import RunFailed
from tasks.records.results import display_name
from tasks.settings.params import Params, load_params
from tasks.tables.display import format_table
from tasks.tables.paper import main_table
from tasks.watch import find_outdated_maps

Target = Annotated[str, Field(pattern="^(report|(download|train|reliability)@[a-z0-9_]+)$")]
POLL_SECONDS = 0.5
LAST_HEADLINE = store.STATE / "last_result.json"  # headline numbers of the last complete report


def check_configuration(targets: list[str]) -> Params:
    """Read params.yaml, and check the targets and the declarations of their data sets before a stage runs.

    Args:
        targets: Stages to run; everything if empty.

    Returns:
        The parameters.

    Raises:
        InputError: params.yaml, a target or a declaration has a mistake.
    """
    params = load_params()
    for target in targets:
        read_dvc_stage(target)
    if not targets or "report" in targets:
        datasets = list(params.datasets)
    else:
        datasets = [target.partition("@")[2] for target in targets]
    for name in datasets:
        find_declared_dataset(name, params.dataset(name))
    return params


def clean_up(since: datetime) -> None:
    """Clean up after an earlier refresh that was killed, and remove records of failed gates from before `since`.

    The headline numbers of the last report are stored first, since DVC removes that report before it writes a new one.
    """
    if store.manifest_file("", "report").exists():
        with suppress(InputError):  # missing or damaged
            atomic.write_json(LAST_HEADLINE, store.read_json(store.REPORT / "metrics.json"))
    processes.end_orphans()
    processes.quarantine_corrupt_dvc_files()
    processes.remove_empty_runs()
    for record in store.failed_gates_file("").parent.glob("*.json"):
        if record.stat().st_mtime < since.timestamp():
            record.unlink(missing_ok=True)


def start_dvc(
    dvc_processes: list[Process], output: StageOutput, targets: list[str], force: bool, params: Params
) -> None:
    """Start DVC and read what it prints.

    Args:
        dvc_processes: Receives the processes of DVC.
        output: Receives what they print. On a terminal, chosen targets print their progress directly.
        targets: Stages to run; everything if empty.
        force: Whether stages that are up to date run too.
        params: Parameters of params.yaml.
    """
    captured = not (targets and sys.stdout.isatty())
    processes.start_run(dvc_processes, targets, force, params, server_environment(), captured)
    if captured:
        for process in dvc_processes:
            output.follow(process)


def run_dvc(
    dvc_processes: list[Process], output: StageOutput, targets: list[str], force: bool, params: Params, since: datetime
) -> int:
    """Run DVC until all targets are up to date or have failed.

    Args:
        dvc_processes: Processes of DVC that have been started already, if any.
        output: What they print.
        targets: Stages to run; everything if empty.
        force: Whether stages that are up to date run too.
        params: Parameters of params.yaml.
        since: Start of the refresh.

    Returns:
        Exit status of DVC.
    """
    try:
        if not dvc_processes:
            start_dvc(dvc_processes, output, targets, force, params)
        datasets = [] if targets else list(params.datasets)
        show_progress(dvc_processes, output, datasets, since)
        status = processes.wait_for_all(dvc_processes)
        if not targets and status == 0:
            # the stages of the data sets are up to date, and the report needs all of them
            options = ["--force"] if force else []
            report = processes.start_repro([*options, "--single-item", "report"], server_environment(), captured=True)
            dvc_processes.append(report)
            output.follow(report)
            show_progress(dvc_processes, output, [], since)
            status = processes.wait_for_all(dvc_processes)
        return status
    except BaseException:  # such as the signal of a cancellation
        output.stopped = True
        raise
    finally:
        processes.end_groups(dvc_processes)


def show_progress(dvc_processes: list[Process], output: StageOutput, datasets: list[str], since: datetime) -> None:
    """Show each stage as a task run while it runs, until all processes have ended.

    Args:
        dvc_processes: Processes of DVC.
        output: What they print.
        datasets: Data sets of the progress artifact. Without any, no progress is shown.
        since: Start of the refresh.

    Raises:
        OSError: The output cannot be printed, for example because the program that read it has ended.
    """
    advance = start_progress("refresh", len(datasets), "data sets that have ended") if datasets else None
    shown: list[PrefectFuture[State[None]]] = []
    running = True
    while running:
        running = any(process.poll() is None for process in dvc_processes)
        if not running:
            output.wait()
        while not output.started.empty():
            shown.append(show_stage.submit(output.started.get(), output, since))
        if output.error is not None:
            raise output.error
        if advance is not None:
            # at the end also the data sets that were up to date, which leave no record
            n_ended = len(ended_datasets(datasets, since)) if running else len(datasets)
            advance(n_ended)
        if running:
            time.sleep(POLL_SECONDS)
    wait(shown)


def _write_incomplete_report(failed: Mapping[str, str], params: Params, outdated: set[str]) -> list[str]:
    """Write and show the report outside of DVC, and mark the data sets that failed as missing.

    Args:
        failed: Stage that failed -> reason.
        params: Parameters of params.yaml.
        outdated: Stages that are not up to date.

    Returns:
        Messages about the report.
    """
    reasons = {stage.partition("@")[2]: f"{stage}: {reason}" for stage, reason in failed.items()}
    unfinished = {stage.partition("@")[2] for stage in outdated}
    missing = {name: reasons.get(name, "its stages did not run") for name in params.datasets if name in unfinished}
    if not missing:  # the report itself failed
        return []
    from flows.report import report  # noqa: PLC0415 - takes half a second, and most runs do not need it

    try:
        with hold_lock("report"):
            read_dvc_stage("report").manifest.unlink(missing_ok=True)
            report(missing=missing)
        _show_report()
    except InputError as error:
        return [str(error)]
    return ["the report marks the missing data sets"]


def stages_up_to(target: str) -> list[str]:
    """List the stages that have to be up to date for a target: the target, and the stages before it.

    Args:
        target: A stage of dvc.yaml.

    Returns:
        Names of stages, the target last. The report needs every stage of every data set.
    """
    stage, _, dataset = target.partition("@")
    if not dataset:
        return [name for name in stage_names() if name != target] + [target]
    dataset_stages = ("download", "train", "reliability")
    return [f"{name}@{dataset}" for name in dataset_stages[: dataset_stages.index(stage) + 1]]


def _run_and_show(
    dvc_processes: list[Process], output: StageOutput, targets: list[str], force: bool, params: Params, since: datetime
) -> list[str]:
    """Run DVC and show the outcomes of stages and the changes of results; return a message for each failure."""
    exit_status = run_dvc(dvc_processes, output, targets, force, params, since)
    outdated = processes.outdated_stages() if exit_status else set()
    outcomes = stage_outcomes(since, outdated)
    if targets:
        needed: set[str] = set()
        for target in targets:
            needed.update(stages_up_to(target))
        affected = {outcome.stage for outcome in outcomes if outcome.status in {"ran", "restored", "failed"}}
        _show_stages([outcome for outcome in outcomes if outcome.stage in needed | affected])
    else:
        _show_stages(outcomes)
    show_failed_gates(list(params.datasets))
    if exit_status:
        failed = {outcome.stage: outcome.reason for outcome in outcomes if outcome.status == "failed"}
        failures = [f"{stage}: {reason}" for stage, reason in failed.items()]
        if not failures:
            failures = ["DVC could not run a stage; see its message above"]
        if not targets:
            failures += _write_incomplete_report(failed, params, outdated)
        if output.disk_full is not None:  # the cause of all other failures, thousands of lines further up
            failures.insert(0, output.disk_full)
        return failures
    if not targets or "report" in targets:
        _show_headline()
        _show_report()
    return []


def _show_stages(outcomes: list[StageOutcome]) -> None:
    """Show an artifact with the outcome of each stage, and print the stages that were not skipped."""
    rows = [
        {"stage": outcome.stage, "what": outcome.status, "seconds": outcome.seconds, "why": outcome.reason}
        for outcome in outcomes
    ]
    create_table_artifact(rows, key="refresh-stages", description="Outcome of each stage, and why it ran.")
    stages_by_outcome = defaultdict(list)
    for outcome in outcomes:
        stages_by_outcome[outcome.status, outcome.reason].append(outcome.stage)
    for (status, reason), stages in stages_by_outcome.items():
        if status != "skipped":
            first_line = reason.splitlines()[0]  # the stage has printed the other lines
            report_message(f"{', '.join(stages)} {status}: {first_line}")
    skipped = [outcome.stage for outcome in outcomes if outcome.status == "skipped"]
    if not skipped:
        report_message("no stage was up to date")
        return
    report_message(f"{len(skipped)} of {len(outcomes)} stages were up to date")
    get_run_logger().info("up to date: %s", ", ".join(skipped))


def show_failed_gates(datasets: list[str]) -> None:
    """Show an artifact with the failed expectations of all data sets that a gate stopped.

    Args:
        datasets: Keys of data sets.
    """
    rows: list[dict[str, Any]] = []
    for dataset in datasets:
        path = store.failed_gates_file(dataset)
        if not path.exists():
            continue
        record = store.read_json(path)
        name = display_name(record["dataset"], record["source"])
        rows += [row | {"dataset": name} for row in list_failed_expectations(record["gates"])]
    if rows:
        create_table_artifact(rows, key="refresh-gates", description="Gates that failed: expectations and rows.")


def _show_headline() -> None:
    """Print how the headline numbers changed since the last complete report, and show an artifact with them."""
    try:
        before = dict(flatten(store.read_json(LAST_HEADLINE)))
    except InputError:  # missing or damaged
        before = {}
    rows = []
    for name, value in flatten(store.read_json(store.REPORT / "metrics.json")):
        if isinstance(value, int | float) and isinstance(before.get(name), int | float):
            rows.append({"number": name, "before": before[name], "now": value, "change": value - before[name]})
    changed = [row for row in rows if row["change"]]
    create_table_artifact(rows, key="refresh-headline", description="Headline numbers, compared with the last result.")
    if rows:
        report_message(
            f"compared with the last result, {len(changed) or 'none'} of {len(rows)} headline numbers changed"
        )
    for row in changed:
        report_message(f"  {row['number']}: {row['before']:.6g} → {row['now']:.6g}")


def _show_report() -> None:
    """Print the main table, the headline and the path of the report, and link the report as an artifact."""
    table_content = format_table(main_table, store.read_csv(store.REPORT / "main.csv"))
    headers = [name.replace("nll_correct", "nll").replace("_", " ") for name in table_content.columns]
    columns = [Column(header, no_wrap=index < 2) for index, header in enumerate(headers)]
    table = Table(*columns, title="The same fixed decisions, ranked by confidence and by MRP (± is in the CSV)")
    for row in table_content.texts:
        table.add_row(*(text.split(" ± ")[0] for text in row))
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    console.print(store.read_text(store.REPORT / "headline.txt").strip(), highlight=False)
    page = (store.REPORT / "index.html").resolve()
    create_link_artifact(page.as_uri(), link_text=str(page), key="refresh-report", description=f"report: {page}")
    report_message(f"report: {page}")


def _refresh(dvc_processes: list[Process], output: StageOutput, targets: list[str], force: bool) -> None:
    """Run the flow `refresh` with the processes of DVC in `dvc_processes`; start them if there are none yet."""
    params = check_configuration(targets)
    with hold_run_lock(), hold_lock("refresh", report=report_message) as since:
        if not dvc_processes:
            clean_up(since)
        mark_crashed_runs()
        failures = _run_and_show(dvc_processes, output, targets, force, params, since)
        failures += find_outdated_maps(params.watched)
    if failures:
        raise RunFailed("\n  ".join(["the refresh failed:", *failures]))


@flow(flow_run_name="refresh", **HOOKS)
def refresh(targets: list[Target] | None = None, force: bool = False) -> None:
    """Bring all stages up to date, or only the chosen ones and the stages before them, then test the watched maps.

    If a data set fails, the others finish, and the report marks it as missing. The run then fails at the end, with all
    reasons.

    Args:
        targets: Stages of dvc.yaml; everything if empty.
        force: Whether stages that are up to date run too.
    """
    _refresh([], StageOutput(), targets or [], force)


def main(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Stages, such as reliability@wands (default: all stages).")
    ] = None,
    force: Annotated[bool, typer.Option(help="Also run stages that are up to date.")] = False,
) -> None:
    """Bring the data sets and the report up to date under one API server. Prints what ran, and why."""
    # SIGHUP means that the terminal was closed. DVC's processes are in other sessions, so they do not receive it.
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, lambda received, _frame: sys.exit(128 + received))
    targets = targets or []
    dvc_processes: list[Process] = []
    output = StageOutput()
    params = check_configuration(targets)  # before a server starts

    # Prefect stores the parameters of a flow in its database, so the processes cannot be parameters.
    @flow(name="refresh", flow_run_name="refresh", **HOOKS)
    def refresh_started(targets: list[str], force: bool) -> None:
        _refresh(dvc_processes, output, targets, force)

    with hold_lock("refresh") as since:
        try:
            clean_up(since)
            with ensure_server(meanwhile=lambda: start_dvc(dvc_processes, output, targets, force, params)):
                refresh_started(targets, force)
        finally:
            processes.end_groups(dvc_processes)


if __name__ == "__main__":
    run_command(main, "refresh")
