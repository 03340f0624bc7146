"""The door of every stage: alone at its outputs, sure of its inputs, and with a record of how it went."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Timer
from typing import Annotated, Literal

import psutil
import typer
from pydantic import BaseModel, ValidationError

from relmap.errors import InputError, escape_unprintable
from relmap.io.atomic import remove, write_json
from tasks.provenance import manifest
from tasks.provenance.declared import Declared, declared
from tasks.provenance.lock import locked
from tasks.records.errors import RunFailed
from tasks.records.store import STATE, read_json
from tasks.settings.params import load_params

RECORDS = STATE / "stages"  # how the last run of each stage on this machine went
LAST_MANIFESTS = STATE / "manifests"  # of the last run of each that finished here: DVC removes the stage's own
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
MAY_NOT = {errno.EACCES, errno.EPERM, errno.EROFS}


NOT_YET_KNOWN = "it ended before that was known"


class Record(BaseModel):
    """How the last run of a stage on this machine went."""

    stage: str
    process: int
    started: datetime
    why: str = NOT_YET_KNOWN  # what had changed since the last run that finished
    outcome: Literal["running", "finished", "failed"] = "running"
    ended: datetime | None = None
    reason: str | None = None  # of a failure

    @property
    def reason_known(self) -> bool:
        """Whether it is known by now why the stage runs."""
        return self.why != NOT_YET_KNOWN

    def write(self) -> None:
        """Write it into its file."""
        write_json(RECORDS / f"{self.stage}.json", self.model_dump(mode="json"))


def read_record(stage: str) -> Record | None:
    """The record of a stage; None where it has none, or none that is whole."""
    try:
        return Record.model_validate(read_json(RECORDS / f"{stage}.json"))
    except (InputError, ValidationError):
        return None


@contextmanager
def stage_run(name: str) -> Iterator[Record]:
    """Run the stage `name` inside: hold its lock, and hash what it reads before and after; then write its manifest.

    `data/.state/stages/` keeps its record, which is given: why it ran, and how it went (running, finished or failed,
    and the reason).

    Raises:
        InputError: an input, a parameter or the code was changed meanwhile; DVC would take the results for the new
            one's.
    """
    code = manifest.hashed(declared(name).code, ".py")  # before it waits: it runs what Python has imported
    with locked(name) as since:
        stage = declared(name)
        record = Record(stage=name, process=os.getpid(), started=since)
        record.write()
        try:
            _remove_outputs(stage)
            before = manifest.manifest_of(stage, manifest.hashed(stage.inputs), code, {})
            last: manifest.Manifest | None = None
            with suppress(InputError):  # there was none, or it is spoilt
                last = manifest.read_manifest(LAST_MANIFESTS / f"{name}.json")
            record.why = manifest.why(last, before)
            record.write()
            with _time_limit(record, load_params().stage_minutes):
                yield record
            made = manifest.manifest_now(declared(name))
            if changed := "; ".join(manifest.changes(before, made)):
                what = f"{changed}: that, of its files and params.yaml, changed while {name} was running"
                raise InputError(f"{what}, so what it made is of neither version; run it again")
            manifest.write_manifest(made, stage.manifest, LAST_MANIFESTS / f"{name}.json")
            record.outcome = "finished"
        finally:
            error = sys.exception()
            if record.outcome == "running" and error is not None:
                ours = isinstance(error, InputError | RunFailed)
                record.outcome, record.reason = "failed", str(error) if ours else f"{type(error).__name__}: {error}"
            record.ended = datetime.now(UTC)
            record.write()


@contextmanager
def _time_limit(record: Record, minutes: float) -> Iterator[None]:
    """End the process if what is inside takes longer than some minutes; 0 is no limit."""
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


def _end_process(record: Record, minutes: float) -> None:
    """End this process and all that it has started, at once: a long computation does not heed a signal.

    What is left half made is removed by the next run of the stage, as after any kill.
    """
    record.outcome = "failed"
    record.ended = datetime.now(UTC)
    record.reason = f"it ran longer than {minutes:g} minutes, the limit that stage_minutes in params.yaml sets"
    record.write()
    print(f"{record.stage}: {record.reason}", file=sys.stderr, flush=True)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    os._exit(1)


def _remove_outputs(stage: Declared) -> None:
    """What a run that DVC no longer knew of, or that was killed, has left while this one waited for it."""
    torn = [*stage.manifest.parent.glob(f".{stage.manifest.name}.*.partial")]
    torn += [file for folder in stage.lasting for file in folder.rglob(".*.partial")]
    for path in (stage.manifest, *(path for path in stage.outputs if path not in stage.lasting), *torn):
        remove(path)


def as_stage(kind: str, work: Callable[[str], str | None]) -> None:
    """Run `work` on the data set that the command line names, as the stage `kind` of DVC, and say what it returns."""

    def stage(dataset: Annotated[str, typer.Argument(help="A key of `datasets` in params.yaml.")]) -> None:
        with stage_run(f"{kind}@{dataset}") as record:
            if said := work(dataset):
                record.why += f" ({said})"
                print(f"{dataset}: {said}")

    command(stage, kind)


def command(main: Callable[..., object], name: str) -> None:
    """Run `main` with what the command line says, and end the process.

    What goes wrong by no fault of ours ends it with a sentence, and the exit status 1.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    try:
        app()
    except (InputError, RunFailed) as error:
        sys.exit("\n".join(map(escape_unprintable, f"{name}: {error}".split("\n"))))
    except OSError as error:
        if error.errno in MAY_NOT and error.filename:
            refused = f"{error.filename} is refused ({error.strerror})"
            sys.exit(f"{name}: {refused}; take a checkout that belongs to you and may be written to")
        if error.errno not in NO_ROOM:
            raise
        sys.exit(f"{name}: no room is left on the disk ({error}); make room and run the same command again")
