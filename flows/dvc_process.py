"""Run DVC's commands in processes, and repair the files that a killed process of DVC left incomplete."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from relmap.io.atomic import write_atomically
from tasks.provenance.dvc_stages import LOCK_FILE
from tasks.records.errors import RunFailed
from tasks.records.store import STATE

LOCK_COPY = STATE / "dvc.lock"
BUSY_FILE = Path(".dvc/tmp/rwlock")  # which process of DVC reads or writes which file
MAX_WRITE_SECONDS = 0.5  # more than DVC needs to write one of these files
SECONDS_BEFORE_KILL = 5.0  # from SIGTERM to SIGKILL
# What DVC prints about a stage, and the outcome that it means.
OUTCOMES = {
    "ran": re.compile(r"Running stage '(.+)':$"),
    "restored": re.compile(r"Stage '(.+)' is cached - skipping run, checking out outputs$"),
    "up to date": re.compile(r"Stage '(.+)' didn't change, skipping$"),
}
# Lines of DVC that a refresh does not print: about stages that are up to date, about dvc.lock, and hints.
HINTS = re.compile(
    r"Stage '.+' didn't change, skipping|(Generating|Updating) lock file|Data and pipelines are up to date|"
    r"To (track the changes|enable auto staging)|\t(git add|dvc config)|Use `dvc push`"
)
DVC_ERROR = "ERROR: "
MAX_NAMED_CHANGES = 5

Process = subprocess.Popen[bytes]


def start_repro(arguments: Sequence[str], variables: dict[str, str], lock: int) -> Process:
    """Start `dvc repro` in a process group of its own. It waits for the locks of other processes of DVC.

    Args:
        arguments: Arguments of the command.
        variables: Environment variables.
        lock: Descriptor of a lock that the process inherits. If this process is killed, the next one waits for it.

    Returns:
        The process. Its output is in `stdout`.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # stages call `python`
    return subprocess.Popen(  # noqa: S603 - fixed command
        [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *arguments],
        env=os.environ | {"PATH": path} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[lock],
        start_new_session=True,
    )


def end_groups(processes: Iterable[Process]) -> None:
    """End processes and their children, since a killed process of DVC leaves its stage running.

    Args:
        processes: Leaders of process groups.
    """
    running = list(processes)
    for process in running:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + SECONDS_BEFORE_KILL
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0))
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: Process, signal_number: int) -> None:
    with suppress(ProcessLookupError):  # all its processes have ended
        os.killpg(process.pid, signal_number)


def find_outcomes(lines: Iterable[str]) -> dict[str, str]:
    """Find what became of each stage that DVC prints.

    Args:
        lines: Output of `dvc repro`.

    Returns:
        Stage -> outcome, in the order of the output. A stage that failed has "ran".
    """
    outcomes = {}
    for line in lines:
        for outcome, pattern in OUTCOMES.items():
            match = pattern.match(line)
            if match is not None:
                outcomes[match[1]] = outcome
    return outcomes


def find_failure(lines: Sequence[str]) -> tuple[str | None, str]:
    """Find the stage that failed, and the reason.

    Args:
        lines: Output of a `dvc repro` that failed. The message of a stage starts with the kind of the stage, and is the
            last that it prints.

    Returns:
        The stage, or None if none had started, and the reason.
    """
    stage = None
    reason: list[str] = []
    for line in lines:
        started = OUTCOMES["ran"].match(line)
        if started is not None:
            stage = started[1]
            reason = []
        elif stage is not None and line.startswith(f"{stage.partition('@')[0]}: "):
            reason = [line.partition(": ")[2]]
        elif reason and not line.startswith(DVC_ERROR):
            reason.append(line)
    errors = [line.removeprefix(DVC_ERROR) for line in lines if line.startswith(DVC_ERROR)]
    if reason:
        return stage, "\n".join(reason).strip()
    if errors and not errors[-1].startswith("failed to reproduce"):
        return stage, errors[-1]
    if errors:
        return stage, f"its process ended without a message ({errors[-1]})"
    return stage, "its process ended without a message: it was killed, or the disk was full"


def query(*arguments: str, **variables: str) -> str:
    """Run a command of DVC that changes nothing.

    Args:
        arguments: Arguments of the command.
        variables: Environment variables.

    Returns:
        What it prints.

    Raises:
        RunFailed: It reports an error.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    result = subprocess.run(  # noqa: S603 - fixed command
        command, env=os.environ | variables, check=False, capture_output=True, text=True
    )
    if result.returncode != 0:
        raise RunFailed(f"`dvc {' '.join(arguments)}` failed: {result.stderr.strip()}")
    return result.stdout.strip()


def read_status() -> dict[str, str]:
    """Ask DVC which stages are not up to date, and why.

    Returns:
        Stage -> reason.
    """
    return {stage: describe_changes(changes) for stage, changes in json.loads(query("status", "--json")).items()}


def describe_changes(changes: Iterable[Any]) -> str:
    """Describe why a stage is not up to date.

    Args:
        changes: Changes of a stage as `dvc status --json` lists them.

    Returns:
        Text such as "train.seed modified, tasks/train.py modified".
    """
    parts = []
    for change in changes:
        if not isinstance(change, dict):  # such as "changed command"
            parts.append(str(change))
            continue
        for names in change.values():
            for name, state in names.items():
                parameters = state if isinstance(state, dict) else {name: state}
                parts += [f"{parameter} {word}" for parameter, word in parameters.items()]
    if "params.yaml new" in parts:
        return "it is not in dvc.lock"
    if len(parts) > MAX_NAMED_CHANGES:
        parts[MAX_NAMED_CHANGES:] = [f"and {len(parts) - MAX_NAMED_CHANGES} more"]
    return ", ".join(parts)


def keep_lock_copy() -> None:
    """Copy dvc.lock, if it is complete, for the next `repair_files`."""
    if LOCK_FILE.exists() and is_complete(LOCK_FILE):
        write_atomically(LOCK_COPY, lambda path: shutil.copyfile(LOCK_FILE, path))


def repair_files() -> None:
    """Repair what a killed process of DVC left incomplete, and on which all its commands would fail.

    DVC writes dvc.lock and the list of busy processes in place. The list is not needed after they were killed. An empty
    folder of DVC's cache of runs is removed.
    """
    for path in (LOCK_FILE, BUSY_FILE):
        if path.exists() and not is_complete(path):
            time.sleep(MAX_WRITE_SECONDS)  # another process of DVC may be writing it
            if path.exists() and not is_complete(path):
                path.unlink()
                print(f"{path} was incomplete: a run was killed while it wrote the file")
    if not LOCK_FILE.exists() and LOCK_COPY.exists():
        shutil.copyfile(LOCK_COPY, LOCK_FILE)
    for folder in Path(".dvc/cache/runs").glob("*/*"):
        with suppress(OSError):  # it is not empty
            folder.rmdir()


def is_complete(path: Path) -> bool:
    """Check whether dvc.lock, or a JSON file, can be parsed as DVC does it.

    Args:
        path: LOCK_FILE or a JSON file.

    Returns:
        Whether it is complete.
    """
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA  # noqa: PLC0415 - takes half a second
    from voluptuous import Invalid  # noqa: PLC0415

    try:
        text = path.read_text(encoding="utf-8")
        if path != LOCK_FILE:
            json.loads(text)
            return True
        return "stages" in COMPILED_LOCKFILE_SCHEMA(yaml.safe_load(text))
    except (ValueError, yaml.YAMLError, Invalid):
        return False
