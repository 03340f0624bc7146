"""What became of each stage since a moment, from the manifests and records that the stages have left."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tasks.provenance.declared import declared, stage_names
from tasks.provenance.stage import read_record


@dataclass(frozen=True)
class Happened:
    """What became of one stage."""

    stage: str
    how: Literal["ran", "restored", "skipped", "failed", "not started"]
    why: str
    seconds: int | None = None  # of its process, where it ended by itself


def happened(since: datetime, stale: Collection[str] = ()) -> list[Happened]:
    """What became of every stage of dvc.yaml since then; those in `stale` are not up to date, as DVC sees it."""
    return [_happened(name, since, name in stale) for name in stage_names()]


def _happened(name: str, since: datetime, stale: bool) -> Happened:
    record, manifest = read_record(name), declared(name).manifest
    if record is None or record.started < since:
        if stale or not manifest.exists():
            return Happened(name, "not started", "a stage before it failed, or DVC could not start it")
        if manifest.lstat().st_ctime < since.timestamp():  # however DVC brings it, by a copy or a link
            return Happened(name, "skipped", "nothing that it reads has changed")
        return Happened(name, "restored", "DVC had this very run in its cache")
    seconds = None if record.ended is None else int((record.ended - record.started).total_seconds())
    if record.outcome == "finished" and not stale:
        return Happened(name, "ran", record.why, seconds)
    if record.outcome == "finished":
        return Happened(name, "failed", "it finished, but DVC could not keep what it made", seconds)
    reason = record.reason or "its process ended without a word: it was killed, or the disk was full"
    first, *more = reason.split("\n")
    return Happened(name, "failed", "\n".join([f"{first} (why it ran: {record.why})", *more]), seconds)


def failed_since(since: datetime) -> set[str]:
    """The data sets with a stage that has failed since then."""
    records = {name: read_record(name) for name in stage_names()}
    failed = {name for name, run in records.items() if run and run.started >= since and run.outcome == "failed"}
    return {name.partition("@")[2] for name in failed}
