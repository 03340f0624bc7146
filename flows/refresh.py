"""Prefect flow: `dvc repro` under one API server for all its stages; what ran, why, and what it changed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from typing import Annotated

import typer
from prefect import flow
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL
from pydantic import Field

from flows.alive import alive, mark_crashed, server_needed
from flows.report import report
from flows.repro import (
    Process,
    end,
    end_left_behind,
    finish,
    put_aside_what_is_cut_off,
    remove_empty_runs,
    stale_stages,
    start_lanes,
    start_repro,
)
from flows.shown import follow_lanes, link_report, print_main_table, show_failed_gates, show_headline, show_stages
from tasks.audit.history import Moment, failed_since, happened, keep_finished, moment
from tasks.protocol.errors import BadInput, RunFailed
from tasks.protocol.params import Params, WatchedMap, load_params
from tasks.protocol.store import REPORT, failed_gates_file, read_json
from tasks.provenance.declared import declared, stage_names
from tasks.provenance.lock import held
from tasks.provenance.stage import in_a_sentence
from tasks.watch import MapBroken, watch

Target = Annotated[str, Field(pattern="^(report|(download|train|reliability)@[a-z0-9_]+)$")]

# What is under way before the flow starts: while its API server comes up, stages that need none already run.
EARLY: list[Process] = []
BEGAN: list[Moment] = []


def this_server() -> dict[str, str]:
    """The environment in which stages report to this run's API server."""
    told = {"PREFECT_API_URL": PREFECT_API_URL.value(), "PREFECT_API_AUTH_STRING": PREFECT_API_AUTH_STRING.value()}
    return {name: str(value) for name, value in told.items() if value is not None}


def begin() -> Moment:
    """What stands there, and nothing of an earlier refresh runs any more."""
    end_left_behind()
    put_aside_what_is_cut_off()
    remove_empty_runs()
    for told in failed_gates_file("").parent.glob("*.json"):
        told.unlink(missing_ok=True)
    return moment()


def repro(targets: list[str], force: bool, params: Params, since: Moment) -> int:
    """Bring `targets` (everything, if none) up to date; returns DVC's exit status.

    The data sets go side by side in lanes, but for those that have failed already; once all have finished, a last DVC
    makes the report.
    """
    server, options = this_server(), ["--force"] if force else []
    finish(EARLY)
    EARLY.clear()  # when we end, their numbers may be those of others
    if targets:
        return finish([start_repro([*options, *targets], **server)])
    failed = failed_since(since)
    lanes: list[Process] = []
    try:
        going_on = [name for name in params.datasets if name not in failed]
        start_lanes(lanes, "reliability", going_on, params.lanes, *options, **server)
        follow_lanes(lanes, going_on, since)
        status = finish(lanes)
    finally:
        end(lanes)
    if status or failed:
        return status or 1
    return finish([start_repro([*options, "--single-item", "report"], **server)])  # the lanes have just made the rest


def check_targets(targets: list[str]) -> None:
    """BadInput where one is no stage of dvc.yaml."""
    unknown = [name for name in targets if name not in stage_names()]
    if unknown:
        raise BadInput(f"no stage {', '.join(unknown)}; there are {', '.join(stage_names())}")


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


def report_with_holes(missing: dict[str, str]) -> None:
    """The report without those data sets, each with its reason; it is not that of a finished stage, nor DVC's."""
    with held("report"):
        declared("report").manifest.unlink(missing_ok=True)
        report(missing=missing)


def bring_up_to_date(targets: list[str], force: bool, params: Params) -> list[str]:
    """Run DVC, show what became of the stages and what it changed; returns what went wrong, a sentence each."""
    since = BEGAN.pop() if BEGAN else begin()
    failed = repro(targets, force, params, since)
    stale = stale_stages() if failed else set()
    stages = happened(since, stale)
    show_stages([one for one in stages if not targets or one.how != "skipped" or one.stage in targets])
    show_failed_gates(list(params.datasets))
    if failed:
        wrong = [f"{one.stage}: {one.why}" for one in stages if one.how == "failed"]
        wrong = wrong or ["DVC could not run a stage; its own words stand above"]
        if targets:
            return wrong
        reasons = {one.stage.partition("@")[2]: f"{one.stage}: {one.why}" for one in stages if one.how == "failed"}
        unfinished = {stage.partition("@")[2] for stage in stale}
        holes = {name: reasons.get(name, "its stages did not run") for name in params.datasets if name in unfinished}
        if not holes:
            return wrong  # it is the report itself that failed
        try:
            report_with_holes(holes)
        except BadInput as error:
            return [*wrong, str(error)]
        return [*wrong, "the report marks what is missing"]
    if not targets or "report" in targets:
        show_headline()
    if not targets:
        keep_finished(read_json(REPORT / "metrics.json"))
    return []


@flow(flow_run_name="refresh")
def refresh(targets: list[Target] | None = None, force: bool = False) -> None:
    """Bring everything up to date, or only `targets` and what they need, then look at the maps in use.

    Where a data set failed, the others finish and the report marks the hole. Raises RunFailed with all that went
    wrong, once all else is done.
    """
    params = load_params()
    check_targets(targets or [])
    with alive(), held("refresh"):
        mark_crashed()
        wrong = bring_up_to_date(targets or [], force, params)
        if not targets or "report" in targets:
            try:
                print_main_table()
                link_report()
            except BadInput as error:
                wrong.append(str(error))
        wrong += watched(params.watched)
    if wrong:
        raise RunFailed("\n  ".join(["not all went well:", *wrong]))


def main(
    targets: Annotated[list[str] | None, typer.Argument(help="Stages, such as reliability@wands; else all.")] = None,
    force: Annotated[bool, typer.Option(help="Run also what is up to date.")] = False,
) -> None:
    """Bring the data sets and the report up to date under one API server; says what ran, and why."""
    for ending in (signal.SIGTERM, signal.SIGHUP):  # also of a terminal that is closed: what we started has its own
        signal.signal(ending, lambda number, _frame: sys.exit(128 + number))
    try:
        with in_a_sentence("refresh"):
            params = load_params()  # a mistake is told before a server starts
            check_targets(targets or [])
            with held("refresh"):
                BEGAN.append(begin())
                if not targets and not force:
                    start_lanes(EARLY, "train", list(params.datasets), params.lanes)
                with server_needed():
                    refresh(targets or [], force)
    finally:
        end(EARLY)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
