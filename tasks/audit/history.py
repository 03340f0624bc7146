"""What became of each stage between two moments, from manifests and records; and what the last finished run left."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tasks.audit.changes import why
from tasks.protocol.errors import BadInput
from tasks.protocol.store import STATE, read_json, write_json
from tasks.provenance.declared import declared, stage_names
from tasks.provenance.manifest import Manifest, manifest_now, read_manifest, sealed, unsealed
from tasks.provenance.stage import read_record

FINISHED = STATE / "finished.json"


@dataclass(frozen=True)
class Moment:
    """What stood there at one time: the manifest of each stage that has finished, and the date."""

    at: datetime
    manifests: Mapping[str, Manifest]


@dataclass(frozen=True)
class Happened:
    """What became of one stage."""

    stage: str
    how: Literal["ran", "restored", "skipped", "failed", "not started"]
    seconds: int | None  # of its process, where it ended by itself
    why: str


def manifests() -> dict[str, Manifest]:
    """The manifests that are there and whole, by stage; one that is not counts as not finished."""
    found = {}
    for name in stage_names():
        try:
            found[name] = read_manifest(declared(name).manifest)
        except BadInput:
            continue
    return found


def moment() -> Moment:
    """What stands there now; for a stage that has not finished since, what the last finished run had."""
    return Moment(datetime.now(UTC), {**last_finished().manifests, **manifests()})


def happened(since: Moment, stale: Collection[str] = ()) -> list[Happened]:
    """What became of every stage of dvc.yaml since then; those in `stale` are not up to date, as DVC sees it."""
    there = manifests()
    return [_happened(name, since, there.get(name), name in stale) for name in stage_names()]


def _happened(name: str, since: Moment, there: Manifest | None, stale: bool) -> Happened:
    before, record = since.manifests.get(name), read_record(name)
    if record is None or record.started < since.at:
        if stale or there is None:
            return Happened(name, "not started", None, "a stage before it failed, or DVC could not start it")
        if there == before:
            return Happened(name, "skipped", None, "nothing that it reads has changed")
        return Happened(name, "restored", None, "DVC had this very run in its cache")
    seconds = None if record.ended is None else int((record.ended - record.started).total_seconds())
    if record.outcome == "finished" and there is not None:
        if stale:
            return Happened(name, "failed", seconds, "it finished, but DVC could not keep what it made")
        return Happened(name, "ran", seconds, why(before, there))
    reason = record.reason or "its process ended without a word: it was killed, or the disk was full"
    first, *more = reason.split("\n")
    ran = f"{first} (why it ran: {why(before, manifest_now(declared(name)))})"
    return Happened(name, "failed", seconds, "\n".join([ran, *more]))


def failed_since(since: Moment) -> set[str]:
    """The data sets with a stage that has failed since then."""
    records = {name: read_record(name) for name in stage_names()}
    failed = {name for name, one in records.items() if one and one.started >= since.at and one.outcome == "failed"}
    return {name.partition("@")[2] for name in failed}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except BadInput:
        return None


@dataclass(frozen=True)
class LastFinished:
    """What the last run left in which every stage finished; nothing, if there was none."""

    metrics: Mapping[str, Any]  # headline numbers, as in metrics.json
    manifests: Mapping[str, Manifest]


def last_finished() -> LastFinished:
    """What `keep_finished` kept."""
    kept, found = _read(FINISHED) or {}, {}
    for name, one in kept.get("stages", {}).items():
        with suppress(BadInput):  # spoilt, or of another version of this project
            found[name] = unsealed(one, FINISHED)
    return LastFinished(kept.get("metrics", {}), found)


def keep_finished(metrics: Mapping[str, Any]) -> None:
    """Keep the headline and the manifests of a run in which every stage has finished, for the next to compare with."""
    stages = {name: sealed(manifest) for name, manifest in manifests().items()}
    write_json(FINISHED, {"metrics": metrics, "stages": stages})
