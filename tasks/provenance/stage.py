"""The door of every stage: alone at its outputs, sure of its inputs, and with a record of how it went."""

from __future__ import annotations

import errno
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.protocol.errors import BadInput, RunFailed
from tasks.protocol.store import STATE, write_json
from tasks.provenance.declared import Declared, declared
from tasks.provenance.lock import held
from tasks.provenance.manifest import Files, hashed, manifest_of, sealed

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def record_file(stage: str) -> Path:
    """Where the record of the last run of a stage on this machine is."""
    return STATE / "stages" / f"{stage}.json"


def now() -> str:
    """Date and time of day, with microseconds, so that a record tells what came first."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@contextmanager
def stage_run(name: str) -> Iterator[None]:
    """Run the stage `name` inside: hold its lock, and hash what it reads before and after; then write its manifest.

    Raises BadInput where an input or the code was changed meanwhile: DVC would take the results for those of the new
    one. `data/.state/stages/` keeps how it went: running, finished or failed, and the reason.
    """
    stage = declared(name)
    with held(name):
        record: dict[str, Any] = {"stage": name, "process": os.getpid(), "started": now(), "outcome": "running"}
        write_json(record_file(name), record)
        outcome = "failed"
        try:
            inputs, code = hashed(stage.inputs), hashed(stage.code)
            yield
            _check_same(stage, inputs, code)
            write_json(stage.manifest, sealed(manifest_of(stage, inputs, code)))
            outcome = "finished"
        finally:
            reason = sys.exception()
            record |= {"outcome": outcome, "ended": now(), "reason": reason and in_words(reason)}
            write_json(record_file(name), record)


def _check_same(stage: Declared, inputs: Files, code: Files) -> None:
    for before, now_there in ((inputs, hashed(stage.inputs)), (code, hashed(stage.code))):
        changed = sorted(path for path in before | now_there if before.get(path) != now_there.get(path))
        if changed:
            raise BadInput(
                f"{', '.join(changed)} changed while {stage.stage} was running, so what it made is of neither version; "
                "run it again"
            )


def in_words(error: BaseException) -> str:
    """An error in a line or more: our own as they are, others with their kind."""
    return str(error) if isinstance(error, BadInput | RunFailed) else f"{type(error).__name__}: {error}"


def as_stage(kind: str, work: Callable[[str], object]) -> None:
    """Run `work` on the data set that the command line names, as the stage `kind` of DVC.

    What goes wrong by no fault of ours ends the process with a sentence and the exit status 1.
    """
    parser = ArgumentParser(prog=kind, description=f"The stage {kind} of one data set; `dvc repro {kind}@…` calls it.")
    parser.add_argument("dataset", help="a key of `datasets` in params.yaml")
    dataset = parser.parse_args().dataset
    ended_in_words(kind, f"{kind}@{dataset}", lambda: work(dataset))


def ended_in_words(kind: str, name: str | None, work: Callable[[], object]) -> None:
    """Run `work`, as the stage `name` if it is one; where it fails by no fault of ours, exit with a sentence."""
    try:
        with stage_run(name) if name else nullcontext():
            work()
    except (BadInput, RunFailed) as error:
        sys.exit(f"{kind}: {error}")
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        sys.exit(
            f"{kind}: {name or kind} found no room left on the disk ({error}); make room and run the same command again"
        )
