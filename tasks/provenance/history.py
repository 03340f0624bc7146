"""Outcomes of stages since a given time, from the records and manifests that stages write."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.stage import StageRecord, read_record

LAST_DATASET_STAGE = "reliability"  # the other stages of a data set run before it


@dataclass(frozen=True)
class StageOutcome:
    """Outcome of one stage.

    Attributes:
        stage: Name of the stage in DVC.
        status: Whether the stage ran, and how it ended.
        reason: Why the stage ran, failed or did not run.
        seconds: Duration of the run, if its process ended normally.
    """

    stage: str
    status: Literal["ran", "restored", "skipped", "failed", "not started"]
    reason: str
    seconds: int | None = None


def stage_outcomes(since: datetime, outdated: Collection[str] = ()) -> list[StageOutcome]:
    """Determine the outcome of every stage of dvc.yaml.

    Args:
        since: Start of the run of `flows.refresh`.
        outdated: Stages that are not up to date according to DVC.
    """
    records = _records_since(since)
    return [_stage_outcome(name, records.get(name), since, name in outdated) for name in stage_names()]


def ended_datasets(datasets: list[str], since: datetime) -> set[str]:
    """Select the data sets that have finished all stages, or of which a stage has failed.

    Args:
        datasets: Keys of data sets.
        since: Start of the run of `flows.refresh`.
    """
    outcomes = {name: record.outcome for name, record in _records_since(since).items()}
    failed = {name.partition("@")[2] for name, outcome in outcomes.items() if outcome == "failed"}
    return {name for name in datasets if name in failed or outcomes.get(f"{LAST_DATASET_STAGE}@{name}") == "finished"}


def _stage_outcome(name: str, record: StageRecord | None, since: datetime, is_outdated: bool) -> StageOutcome:
    if record is None:
        return _outcome_without_run(name, since, is_outdated)
    seconds = None if record.ended is None else int((record.ended - record.started).total_seconds())
    if record.outcome == "finished" and not is_outdated:
        return StageOutcome(name, "ran", record.why, seconds)
    if record.outcome == "finished":
        return StageOutcome(name, "failed", "it finished, but DVC could not store its outputs", seconds)
    reason = record.reason or "its process ended without a message: it was killed, or the disk was full"
    first_line, *other_lines = reason.split("\n")
    lines = [f"{first_line} (why it ran: {record.why})", *other_lines]
    return StageOutcome(name, "failed", "\n".join(lines), seconds)


def _outcome_without_run(name: str, since: datetime, is_outdated: bool) -> StageOutcome:
    manifest = read_dvc_stage(name).manifest
    if is_outdated or not manifest.exists():
        return StageOutcome(name, "not started", "an earlier stage failed, or DVC could not start it")
    # every copy or link that DVC makes changes the ctime of the manifest
    if manifest.lstat().st_ctime < since.timestamp():
        return StageOutcome(name, "skipped", "nothing that it reads has changed")
    return StageOutcome(name, "restored", "DVC had the outputs for these inputs in its cache")


def _records_since(since: datetime) -> dict[str, StageRecord]:
    """Read the records of stages that started after a given time."""
    records = {}
    for name in stage_names():
        record = read_record(name)
        if record is not None and record.started >= since:
            records[name] = record
    return records
