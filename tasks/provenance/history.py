"""What became of the stages since a moment, by the records and manifests that they leave."""

from collections.abc import Collection
from datetime import datetime
from typing import Literal, NamedTuple

from tasks.provenance.declared import declared, stage_names
from tasks.provenance.stage import Record, read_record


class Happened(NamedTuple):
    """What became of one stage."""

    stage: str
    how: Literal["ran", "restored", "skipped", "failed", "not started"]
    why: str
    seconds: int | None = None  # of its process, where it ended by itself


def happened(since: datetime, stale: Collection[str] = ()) -> list[Happened]:
    """What became of every stage of dvc.yaml since then; those in `stale` are not up to date, as DVC sees it."""
    runs = _runs_since(since)
    return [_happened(name, runs.get(name), since, name in stale) for name in stage_names()]


def _happened(name: str, run: Record | None, since: datetime, stale: bool) -> Happened:
    if run is None:
        manifest = declared(name).manifest
        if stale or not manifest.exists():
            return Happened(name, "not started", "a stage before it failed, or DVC could not start it")
        if manifest.lstat().st_ctime < since.timestamp():  # however DVC brings it, by a copy or a link
            return Happened(name, "skipped", "nothing that it reads has changed")
        return Happened(name, "restored", "DVC had this very run in its cache")
    seconds = None if run.ended is None else int((run.ended - run.started).total_seconds())
    if run.outcome == "finished" and not stale:
        return Happened(name, "ran", run.why, seconds)
    if run.outcome == "finished":
        return Happened(name, "failed", "it finished, but DVC could not keep what it made", seconds)
    reason = run.reason or "its process ended without a word: it was killed, or the disk was full"
    first, *more = reason.split("\n")
    return Happened(name, "failed", "\n".join([f"{first} (why it ran: {run.why})", *more]), seconds)


def _runs_since(since: datetime) -> dict[str, Record]:
    last = {name: read_record(name) for name in stage_names()}
    return {name: run for name, run in last.items() if run and run.started >= since}


def ended(datasets: list[str], since: datetime) -> set[str]:
    """Those of `datasets` that have finished all their stages since then, or of which a stage has failed."""
    outcomes = {name: run.outcome for name, run in _runs_since(since).items()}
    failed = {name.partition("@")[2] for name, outcome in outcomes.items() if outcome == "failed"}
    return {name for name in datasets if name in failed or outcomes.get(f"reliability@{name}") == "finished"}
