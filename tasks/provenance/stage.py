"""Run a stage: lock it, verify that its inputs do not change meanwhile, and record what happened."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, Literal

import psutil
import typer
import yaml
from pydantic import BaseModel, ValidationError

from relmap.errors import InputError, escape_unprintable
from relmap.io.atomic import remove_path, write_json
from tasks.provenance.dvc_stages import DvcStage, read_dvc_stage
from tasks.provenance.lock import hold_lock
from tasks.provenance.manifest import (
    Manifest,
    build_current_manifest,
    build_manifest,
    explain_run,
    hash_files,
    list_changes,
    read_manifest,
    write_manifest,
)
from tasks.records.errors import RunFailed
from tasks.records.store import STATE, read_json
from tasks.settings.params import load_params

RECORDS = STATE / "stages"  # record of the last run of each stage on this machine
# Manifest of the last finished run of each stage. DVC removes the manifest that is an output before a stage runs.
LAST_MANIFESTS = STATE / "manifests"
DVC_LOCK = Path("dvc.lock")
DVC_CACHE = Path(".dvc/cache/files/md5")
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}
REASON_UNKNOWN = "the run ended before the reason was known"


class StageRecord(BaseModel):
    """Record of the last run of a stage on this machine.

    Attributes:
        stage: Name of the stage in DVC.
        process: Process number.
        started: Start of the run.
        why: What had changed since the last state of the stage.
        outcome: State of the run.
        ended: End of the run.
        reason: Reason of a failure.
    """

    stage: str
    process: int
    started: datetime
    why: str = REASON_UNKNOWN
    outcome: Literal["running", "finished", "failed"] = "running"
    ended: datetime | None = None
    reason: str | None = None

    @property
    def reason_known(self) -> bool:
        """Whether the reason for the run is known yet."""
        return self.why != REASON_UNKNOWN

    def write(self) -> None:
        """Write the record to its file."""
        write_json(RECORDS / f"{self.stage}.json", self.model_dump(mode="json"))


def read_record(stage: str) -> StageRecord | None:
    """Read the record of a stage; return None if it is missing or incomplete.

    Args:
        stage: Name of the stage in DVC.
    """
    try:
        return StageRecord.model_validate(read_json(RECORDS / f"{stage}.json"))
    except (InputError, ValidationError):
        return None


@contextmanager
def run_stage(name: str) -> Iterator[StageRecord]:
    """Run a stage inside a `with` block: hold its lock, hash what it reads before and after, write its manifest.

    Args:
        name: Name of the stage in DVC.

    Yields:
        Record of the run, which is also stored in `data/.state/stages/`.

    Raises:
        InputError: An input, a parameter or the code changed during the run. Without this error, DVC would treat the
            outputs as results of the new version.
    """
    # Code is hashed before the process waits for the lock, since Python has imported it already.
    code = hash_files(read_dvc_stage(name).code, ".py")
    with hold_lock(name) as since:
        stage = read_dvc_stage(name)
        record = StageRecord(stage=name, process=os.getpid(), started=since)
        record.write()
        try:
            _remove_outputs(stage)
            before = build_manifest(stage, inputs=hash_files(stage.inputs), code=code, outputs={})
            record.why = explain_run(_read_last_manifest(stage), before)
            record.write()
            with _time_limit(record, load_params().stage_minutes):
                yield record
            after = build_current_manifest(read_dvc_stage(name))
            changes = list_changes(before, after)
            if changes:
                raise InputError(
                    f"{'; '.join(changes)}: these files or parameters changed while {name} was running, so its outputs "
                    "belong to neither version; run it again"
                )
            write_manifest(after, stage.manifest, LAST_MANIFESTS / f"{name}.json")
            record.outcome = "finished"
        finally:
            error = sys.exception()
            if record.outcome == "running" and error is not None:
                is_explained = isinstance(error, InputError | RunFailed)
                record.outcome = "failed"
                record.reason = str(error) if is_explained else f"{type(error).__name__}: {error}"
            record.ended = datetime.now(UTC)
            record.write()


def run_dataset_stage(kind: str, work: Callable[[str], str | None]) -> None:
    """Run a stage on the data set that the command line names.

    Args:
        kind: Stage in dvc.yaml, such as `train`.
        work: Takes the key of a data set; returns a message to print, or None.
    """

    def main(dataset: Annotated[str, typer.Argument(help="A key of `datasets` in params.yaml.")]) -> None:
        with run_stage(f"{kind}@{dataset}") as record:
            message = work(dataset)
            if message:
                record.why += f" ({message})"
                print(f"{dataset}: {message}")

    run_command(main, kind)


def run_command(main: Callable[..., object], name: str) -> None:
    """Run a function with the arguments of the command line, and end the process.

    Errors that the user can fix end the process with a message and exit status 1.

    Args:
        main: Function whose parameters typer reads.
        name: Name of the command in messages.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    try:
        app()
    except (InputError, RunFailed) as error:
        lines = f"{name}: {error}".split("\n")
        sys.exit("\n".join(escape_unprintable(line) for line in lines))
    except OSError as error:
        if error.errno in NOT_PERMITTED and error.filename:
            sys.exit(
                f"{name}: no permission for {error.filename} ({error.strerror}); use a checkout that belongs to you "
                "and is writable"
            )
        if error.errno in DISK_FULL:
            sys.exit(f"{name}: the disk is full ({error}); free some space and run the same command again")
        raise


def _read_last_manifest(stage: DvcStage) -> Manifest | None:
    """Read the manifest of the last state of a stage; return None if it is missing or damaged.

    DVC may have restored that state from its cache after a later run of the stage. Without an entry in dvc.lock or in
    the cache, this is the manifest of the last finished run on this machine.
    """
    paths = [LAST_MANIFESTS / f"{stage.name}.json"]
    for output in _locked_outputs(stage.name):
        if output.get("path") == stage.manifest.as_posix() and output.get("md5"):
            digest = output["md5"]
            paths.insert(0, DVC_CACHE / digest[:2] / digest[2:])
    for path in paths:
        with suppress(InputError):
            return read_manifest(path)
    return None


def _locked_outputs(name: str) -> list[dict[str, Any]]:
    """Return the outputs of a stage in dvc.lock; empty if it has none or the file is incomplete."""
    try:
        content = yaml.safe_load(DVC_LOCK.read_text(encoding="utf-8"))
        return list(content["stages"][name]["outs"])
    except (FileNotFoundError, yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        return []


@contextmanager
def _time_limit(record: StageRecord, minutes: float) -> Iterator[None]:
    """End the process if the block takes longer than some minutes; 0 means no limit."""
    if not minutes:
        yield
        return
    timer = Timer(60 * minutes, _end_process, args=[record, minutes])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end_process(record: StageRecord, minutes: float) -> None:
    """End this process and its children immediately, since a long computation does not react to a signal.

    The next run of the stage removes incomplete outputs, as after any kill.
    """
    record.outcome = "failed"
    record.ended = datetime.now(UTC)
    record.reason = f"it ran longer than {minutes:g} minutes, the limit set by stage_minutes in params.yaml"
    record.write()
    print(f"{record.stage}: {record.reason}", file=sys.stderr, flush=True)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    os._exit(1)


def _remove_outputs(stage: DvcStage) -> None:
    """Remove the outputs that another run left while this process waited for the lock, and incomplete files.

    DVC removes outputs earlier, before it starts this process. Persistent outputs are kept.
    """
    partial_files = [*stage.manifest.parent.glob(f".{stage.manifest.name}.*.partial")]
    for folder in stage.persistent_outputs:
        partial_files += folder.rglob(".*.partial")
    outputs = [path for path in stage.outputs if path not in stage.persistent_outputs]
    for path in (stage.manifest, *outputs, *partial_files):
        remove_path(path)
