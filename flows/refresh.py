"""Prefect flow `refresh`: run `dvc repro` for each data set and for the report, and show what ran, why, and results."""

import signal
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from threading import Lock
from typing import Annotated, Any

import typer
from prefect import flow, task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.futures import PrefectFuture, as_completed
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Completed, Failed, State
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field
from rich.console import Console
from rich.table import Column, Table

from flows import dvc_process
from flows.engine import hold_run_lock, mark_crashed_runs, report_message, server_environment, start_progress
from flows.server import ensure_server
from relmap.errors import InputError
from relmap.io import atomic
from tasks.datasets import find_declared_dataset
from tasks.expectations.check import list_failed_expectations
from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.lock import hold_lock
from tasks.provenance.stage import run_command
from tasks.records import store
from tasks.records.durations import KINDS, Duration, add_durations, read_duration
from tasks.records.errors import RunFailed
from tasks.results.values import display_name
from tasks.settings.dataset_params import DatasetParams
from tasks.settings.params import Params, load_params
from tasks.tables.display import format_table
from tasks.tables.paper import main_table
from tasks.watch import find_outdated_maps

Target = Annotated[str, Field(pattern="^(report|(download|train|reliability)@[a-z0-9_]+)$")]
LAST_HEADLINE = store.STATE / "last_result.json"  # headline numbers of the last complete report
# On two cores, 1,000 rows take about one second, and boosted trees three seconds.
SECONDS_PER_ROW = {"linear": 0.001, "boosted": 0.003}
DISK_FULL = ("the disk is full", "No space left on device", "Disk quota exceeded")


class Refresh:
    """Processes of DVC of one refresh, and what became of the stages.

    Attributes:
        reasons: Stage that was not up to date at the start -> reason.
        outcomes: Stage -> outcome, such as "ran" or "failed".
        stopped: Whether the refresh ends its processes itself, such as after a cancellation.
    """

    def __init__(self, lock: int, reasons: Mapping[str, str]) -> None:
        """Start without processes.

        Args:
            lock: Descriptor of the lock of the refresh.
            reasons: Stage that is not up to date -> reason.
        """
        self.reasons = reasons
        self.outcomes: dict[str, str] = {}
        self.stopped = False
        self._lock = lock
        self._processes: list[dvc_process.Process] = []
        self._starting = Lock()

    def start(self, arguments: Sequence[str]) -> dvc_process.Process:
        """Start `dvc repro`.

        Args:
            arguments: Its arguments.

        Returns:
            The process.

        Raises:
            RunFailed: The refresh has been stopped.
        """
        with self._starting:
            if self.stopped:
                raise RunFailed("the refresh was stopped")
            process = dvc_process.start_repro(arguments, server_environment(), self._lock)
            self._processes.append(process)
            return process

    def end(self, process: dvc_process.Process) -> None:
        """End a process with its children."""
        dvc_process.end_groups([process])
        assert process.stdout is not None
        process.stdout.close()
        self._processes.remove(process)  # its number may be used again

    def stop(self) -> None:
        """End all processes, and start no other ones."""
        with self._starting:
            self.stopped = True
        dvc_process.end_groups([*self._processes])


@task(name="dvc repro", task_run_name="{name}")
def reproduce(name: str, arguments: list[str], run: Refresh) -> State[None]:
    """Run `dvc repro`, with its output in the terminal and in the log of this task.

    Args:
        name: Name of the task.
        arguments: Arguments of the command.
        run: Refresh that this task belongs to.

    Returns:
        Final state of the task, with the reason of a failure. An exception would add a traceback of this function.
    """
    logger = get_run_logger()
    process = run.start(arguments)
    lines: list[str] = []
    try:
        for line in _output_lines(process):
            lines.append(line)
            logger.info("%s", line)
            for stage in dvc_process.find_outcomes([line]):
                if stage in run.reasons:
                    logger.info("%s is not up to date: %s", stage, run.reasons[stage])
        status = process.wait()
    finally:
        run.end(process)
    run.outcomes |= dvc_process.find_outcomes(lines)
    if status == 0:
        return Completed(message=f"{name} is up to date")
    if run.stopped:
        return Cancelled(message=f"{name} was stopped together with the refresh")
    failed_stage, reason = dvc_process.find_failure(lines)
    if failed_stage is not None:
        run.outcomes[failed_stage] = "failed"
    return Failed(message=f"{failed_stage or name}: {reason}")


def _output_lines(process: dvc_process.Process) -> Iterator[str]:
    """Yield the lines of a process, and print those that concern the user."""
    assert process.stdout is not None
    for raw in process.stdout:
        line = raw.decode(errors="replace").rstrip()
        if line and not dvc_process.HINTS.match(line):
            print(line, flush=True)
        yield line


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


def longest_first(datasets: Mapping[str, DatasetParams]) -> list[str]:
    """Sort data sets by their estimated duration, the longest first; otherwise it would run alone at the end.

    Args:
        datasets: Entries of params.yaml.

    Returns:
        Keys of data sets. Those with an unknown number of rows come first.
    """

    def duration(name: str) -> float:
        entry = datasets[name]
        return float("inf") if entry.rows is None else entry.rows * SECONDS_PER_ROW[entry.predictor]

    return sorted(datasets, key=duration, reverse=True)


def list_commands(targets: list[str], force: bool, params: Params, outdated: Collection[str]) -> dict[str, list[str]]:
    """List the commands of a refresh.

    Args:
        targets: Stages to run; everything if empty.
        force: Whether stages that are up to date run too.
        params: Parameters of params.yaml.
        outdated: Stages that are not up to date.

    Returns:
        Data set, or "report" at the end -> arguments of `dvc repro`.
    """
    options = ["--force"] if force else []
    commands: dict[str, list[str]] = {}
    if targets:
        for target in sorted(targets, key="report".__eq__):
            commands.setdefault(target.partition("@")[2] or "report", [*options]).append(target)
        return commands
    outdated_datasets = {stage.partition("@")[2] for stage in outdated}
    for name in longest_first(params.datasets):
        if force or name in outdated_datasets:
            commands[name] = [*options, f"reliability@{name}"]
    if commands or "report" in outdated:
        commands["report"] = ["--single-item", *options, "report"]  # the data sets are up to date then
    return commands


def run_stages(run: Refresh, commands: dict[str, list[str]], n_lanes: int) -> dict[str, str]:
    """Run DVC for some data sets at a time, then for the report if none has failed.

    Args:
        run: Receives what became of the stages.
        commands: Data set, or "report" -> arguments of `dvc repro`.
        n_lanes: Number of data sets that are updated at the same time.

    Returns:
        Data set, or "report", that failed -> stage and reason.
    """
    datasets = [name for name in commands if name != "report"]
    advance = start_progress("refresh", max(len(datasets), 1), "data sets that have ended")
    task_runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=n_lanes)
    with task_runner as lanes:

        def submit(name: str) -> PrefectFuture[None]:
            return lanes.submit(reproduce, {"name": name, "arguments": commands[name], "run": run})

        try:
            tasks = {name: submit(name) for name in datasets}
            for ended in as_completed([*tasks.values()]):
                ended.wait()  # sets its state
                advance()
            if "report" in commands and all(ended.state.is_completed() for ended in tasks.values()):
                tasks["report"] = submit("report")
                tasks["report"].wait()
        finally:
            run.stop()
    return {name: str(ended.state.message) for name, ended in tasks.items() if not ended.state.is_completed()}


def write_incomplete_report(failures: Mapping[str, str], params: Params) -> list[str]:
    """Write and show the report outside of DVC, and mark the data sets that failed as missing.

    Args:
        failures: Data set or other task that failed -> reason.
        params: Parameters of params.yaml.

    Returns:
        Messages about the report.
    """
    missing = {name: failures[name] for name in params.datasets if name in failures}
    if not missing:  # the report itself failed
        return []
    from flows.report import report  # noqa: PLC0415 - takes half a second, and most runs do not need it

    try:
        with hold_lock("report"):
            report(missing=missing)
        show_report()
    except InputError as error:
        return [str(error)]
    return ["the report marks the missing data sets"]


def show_stages(run: Refresh, targets: list[str]) -> None:
    """Show an artifact with the outcome of each stage, and print the stages that were not up to date.

    Args:
        run: What became of the stages.
        targets: Chosen stages; everything if empty.
    """
    rows = []
    stages_by_outcome = defaultdict(list)
    durations = {}
    for stage in stage_names():
        if targets and stage not in run.outcomes:
            continue
        outcome = run.outcomes.get(stage, "did not run" if stage in run.reasons else "up to date")
        reason = "" if outcome == "up to date" else run.reasons.get(stage, "an earlier stage of it ran or failed")
        duration = read_duration(stage) if outcome == "ran" else None
        rows.append({"stage": stage, "what": outcome, "why": reason, "seconds": duration and duration.seconds})
        if duration:
            durations[stage] = duration
        stages_by_outcome[outcome, reason].append(stage)
    create_table_artifact(rows, key="refresh-stages", description="Outcome of each stage, and why it ran.")
    for (outcome, reason), stages in stages_by_outcome.items():
        if reason:
            report_message(f"{', '.join(stages)} {outcome}: {reason}")
    up_to_date = stages_by_outcome["up to date", ""]
    report_message(f"{len(up_to_date) or 'none'} of {len(rows)} stages were up to date")
    if durations:
        show_durations(durations)


def show_durations(durations: Mapping[str, Duration]) -> None:
    """Print how long each stage took and what it did in that time, and show an artifact.

    Args:
        durations: Stage that ran -> its duration.
    """
    columns = ["stage", "seconds", *KINDS]
    rows = {}
    for stage, duration in {**durations, "sum": add_durations(durations.values())}.items():
        rows[stage] = [duration.seconds, *duration.kinds.values()]
    table = Table(*columns, title="Seconds of each stage, and of the work in it (work at the same time is added)")
    for stage, seconds in rows.items():
        table.add_row(stage, *(f"{value:.1f}" for value in seconds))
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    create_table_artifact(
        [dict(zip(columns, [stage, *seconds], strict=True)) for stage, seconds in rows.items()],
        key="refresh-durations",
        description="Seconds of each stage, and of the work in it.",
    )


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


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested mappings with its dotted name.

    Args:
        value: Mapping or value.
        name: Its name.

    Yields:
        Name and value.
    """
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner_value in value.items():
        yield from flatten(inner_value, f"{name}.{key}" if name else str(key))


def show_headline() -> None:
    """Print how the headline numbers changed since the last complete report, and show an artifact with them."""
    try:
        before = dict(flatten(store.read_json(LAST_HEADLINE)))
    except InputError:  # missing or damaged
        before = {}
    headline = store.read_json(store.REPORT / "metrics.json")
    rows = []
    for name, value in flatten(headline):
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
    atomic.write_json(LAST_HEADLINE, headline)


def show_report() -> None:
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


def run_and_show(run: Refresh, targets: list[str], force: bool, params: Params) -> list[str]:
    """Run DVC, and show the outcomes of the stages and the results.

    Args:
        run: Receives what became of the stages.
        targets: Stages to run; everything if empty.
        force: Whether stages that are up to date run too.
        params: Parameters of params.yaml.

    Returns:
        A message for each failure. If a disk is full, it is the first one, since it causes others.
    """
    failures = run_stages(run, list_commands(targets, force, params, run.reasons), params.lanes)
    show_stages(run, targets)
    show_failed_gates(list(params.datasets))
    if failures:
        messages = sorted(failures.values(), key=lambda message: not any(text in message for text in DISK_FULL))
        return messages + ([] if targets else write_incomplete_report(failures, params))
    if not targets or "report" in targets:
        show_headline()
        show_report()
    return []


@flow(flow_run_name="refresh")
def refresh(targets: list[Target] | None = None, force: bool = False) -> None:
    """Bring all stages up to date, or only the chosen ones and the stages before them, then test the watched maps.

    If a data set fails, the others finish, and the report marks it as missing. The run then fails at the end, with all
    reasons.

    Args:
        targets: Stages of dvc.yaml, such as reliability@wands; everything if empty.
        force: Whether stages that are up to date run too.

    Raises:
        RunFailed: A stage failed, or a watched map no longer holds.
    """
    params = check_configuration(targets or [])
    with hold_run_lock(), hold_lock("refresh", report=report_message) as lock:
        mark_crashed_runs()
        dvc_process.repair_files()
        dvc_process.keep_lock_copy()
        for record in store.failed_gates_file("").parent.glob("*.json"):  # of the last refresh
            record.unlink(missing_ok=True)
        failures = run_and_show(Refresh(lock, dvc_process.read_status()), targets or [], force, params)
        failures += find_outdated_maps(params.watched)
    if failures:
        raise RunFailed("\n  ".join(["the refresh failed:", *failures]))


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
    check_configuration(targets or [])  # before a server starts
    with ensure_server():
        refresh(targets or [], force)


if __name__ == "__main__":
    run_command(main, "refresh")
