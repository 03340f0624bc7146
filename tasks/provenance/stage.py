"""Run a stage: lock it, remove what an earlier run left, and verify that its inputs do not change meanwhile."""

import atexit
import errno
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Annotated

import psutil
import typer

from relmap.errors import InputError, escape_unprintable
from relmap.io.atomic import remove_path
from tasks.provenance.dvc_stages import DvcStage, read_dvc_stage
from tasks.provenance.lock import hold_lock
from tasks.records.durations import record_duration
from tasks.records.errors import RunFailed
from tasks.settings.params import load_params

DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}
IGNORED_NAMES = {"__pycache__", ".pyc", ".partial"}  # folders and suffixes of files that are no inputs
State = dict[str, object]  # file or parameter -> what tells that it changed


@contextmanager
def run_stage(name: str) -> Iterator[None]:
    """Run a stage inside a `with` block: hold its lock, check that its inputs did not change, record its duration.

    The lock is needed because DVC ignores the lock of a process that was killed, whose stage may still be running.

    Args:
        name: Name of the stage in DVC.

    Yields:
        Nothing.

    Raises:
        InputError: An input, a parameter or the code changed during the run. Without this error, DVC would treat the
            outputs as results of the new version.
    """
    # Code is looked at before the process waits for the lock, since Python has imported it already.
    code = _file_states(read_dvc_stage(name).code)
    with record_duration(name), hold_lock(name):
        stage = read_dvc_stage(name)
        _remove_outputs(stage)
        before = code | _input_states(stage)
        with _time_limit(name, load_params().stage_minutes):
            yield
        stage = read_dvc_stage(name)
        after = _file_states(stage.code) | _input_states(stage)
        changed = sorted(key for key in before | after if before.get(key) != after.get(key))
        if changed:
            raise InputError(
                f"{', '.join(changed)}: these files or parameters changed while {name} was running, so its outputs "
                "belong to neither version; run it again"
            )


def _file_states(paths: Iterable[Path]) -> State:
    """Return the size and the modification time of files, and of the files in folders."""
    states: State = {}
    for path in paths:
        for file in [path] if path.is_file() else path.rglob("*"):
            if file.is_file() and IGNORED_NAMES.isdisjoint({*file.parts, file.suffix}):
                facts = file.stat()
                states[file.as_posix()] = (facts.st_size, facts.st_mtime_ns)
    return states


def _input_states(stage: DvcStage) -> State:
    """Return the state of each input file, and the value of each parameter."""
    return _file_states(stage.inputs) | dict(stage.parameters)


def run_dataset_stage(kind: str, work: Callable[[str], str | None]) -> None:
    """Run a stage on the data set that the command line names.

    Args:
        kind: Stage in dvc.yaml, such as `train`.
        work: Takes the key of a data set; returns a message to print, or None.
    """

    def main(dataset: Annotated[str, typer.Argument(help="A key of `datasets` in params.yaml.")]) -> None:
        with run_stage(f"{kind}@{dataset}"):
            message = work(dataset)
            if message:
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
    atexit.register(gc.freeze)  # without it, the search for garbage at exit takes up to two seconds
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


@contextmanager
def _time_limit(name: str, minutes: float) -> Iterator[None]:
    """End the process if the block takes longer than some minutes; 0 means no limit."""
    if not minutes:
        yield
        return
    timer = Timer(60 * minutes, _end_process, args=[name, minutes])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end_process(name: str, minutes: float) -> None:
    """End this process and its children immediately, since a long computation does not react to a signal.

    The next run of the stage removes incomplete outputs, as after any kill.
    """
    kind = name.partition("@")[0]
    print(
        f"{kind}: it ran longer than {minutes:g} minutes, the limit set by stage_minutes in params.yaml",
        file=sys.stderr,
        flush=True,
    )
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    os._exit(1)


def _remove_outputs(stage: DvcStage) -> None:
    """Remove the outputs that another run left while this process waited for the lock, and incomplete files.

    DVC removes outputs earlier, before it starts this process. Persistent outputs are kept.
    """
    partial_files: list[Path] = []
    for folder in stage.persistent_outputs:
        partial_files += folder.rglob(".*.partial")
    outputs = [path for path in stage.outputs if path not in stage.persistent_outputs]
    for path in (*outputs, *partial_files):
        remove_path(path)
