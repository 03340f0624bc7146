"""DVC's processes: started in groups of their own, waited for, and ended with all that they have started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from voluptuous import Invalid

from tasks.protocol.errors import RunFailed

DVC = (sys.executable, "-m", "dvc")
LOCK_FILE = Path("dvc.lock")
BUSY_FILE = Path(".dvc/tmp/rwlock")  # which process of DVC reads or writes what
WRITTEN_IN = 0.5  # seconds, and more than it takes
GRACE = 5.0  # seconds that a process group has to end by itself

Process = subprocess.Popen[bytes]


def start_repro(targets: list[str], **environment: str) -> Process:
    """Start `dvc repro --keep-going` in a process group of its own."""
    tools = Path(sys.executable).parent  # holds the `python` that the stages call
    environment["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    command = [*DVC, "--wait-for-lock", "repro", "--keep-going", *targets]
    return subprocess.Popen(command, env=os.environ | environment, start_new_session=True)  # noqa: S603 - our own


def start_lanes(stage: str, datasets: list[str], lanes: int, *options: str, **environment: str) -> list[Process]:
    """Deal the data sets to `lanes`, each with a DVC of its own that brings them up to `stage`; they share no stage.

    DVC runs one stage at a time, and waits for another's lock. On a dumb terminal the bars of two lanes do not draw
    over each other.
    """
    dealt = [[f"{stage}@{name}" for name in datasets[lane::lanes]] for lane in range(lanes)]
    return [start_repro([*options, *targets], TERM="dumb", **environment) for targets in dealt if targets]


def finish(processes: list[Process]) -> int:
    """Wait for all; returns the first exit status that is not 0, and ends those still running if we end."""
    try:
        return next((status for status in [process.wait() for process in processes] if status), 0)
    finally:
        end(processes)


def end(processes: list[Process]) -> None:
    """End their process groups: a DVC that was killed leaves its stage running."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        living = [process for process in processes if _signal_group(process, how)]
        until = time.monotonic() + GRACE
        while any(map(_group_lives, living)) and time.monotonic() < until:
            time.sleep(0.05)


def _signal_group(process: Process, how: int) -> bool:
    """Send a signal to a process group; is there anybody in it?"""
    process.poll()  # a child that nobody has waited for is still there
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return False
    return True


def _group_lives(process: Process) -> bool:
    return _signal_group(process, 0)


def put_aside_what_is_cut_off() -> None:
    """Rename what a killed DVC left half written: it writes two files in place, and refuses every command after that.

    Without dvc.lock it finds its runs in its cache again, all but the downloads; the other only says who is busy.
    """
    for path, is_whole in ((LOCK_FILE, is_lock_file), (BUSY_FILE, _is_json)):
        if path.exists() and not is_whole(path):
            time.sleep(WRITTEN_IN)  # another DVC may be writing it
            if path.exists() and not is_whole(path):
                aside = path.replace(path.with_name(f"{path.name}.cut"))
                print(f"{path} was cut off, as by a run that was killed while writing it; it is {aside} now")


def is_lock_file(path: Path) -> bool:
    """Is it whole, as DVC reads it?"""
    try:
        COMPILED_LOCKFILE_SCHEMA(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, Invalid):
        return False
    return True


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def stale_stages() -> set[str]:
    """The stages that are not up to date, as DVC sees it; RunFailed where it cannot say."""
    told = subprocess.run([*DVC, "status", "--json"], check=False, capture_output=True, text=True)  # noqa: S603 - our own
    if told.returncode:
        raise RunFailed(f"DVC cannot say what is up to date: {told.stderr.strip()}")
    return set(json.loads(told.stdout))
