"""Processes of DVC: start them in process groups, wait for them, and end them with their children.

Also repair the files and folders that a killed process of DVC left incomplete, and on which later processes would fail.
"""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from threading import Thread

import psutil
import yaml
from dvc.cli import main as run_dvc
from dvc.repo import Repo
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from voluptuous import Invalid

from flows.scheduling import longest_first
from tasks.records.errors import RunFailed
from tasks.settings.params import Params

DVC_COMMAND = (sys.executable, "-m", "flows.processes", "--wait-for-lock")
LOCK_FILE = Path("dvc.lock")
BUSY_FILE = Path(".dvc/tmp/rwlock")  # which process of DVC reads or writes which file
MAX_WRITE_SECONDS = 0.5  # more than DVC needs to write one of these files
GRACE_SECONDS = 5.0  # from SIGTERM to SIGKILL
OWNER_VARIABLE = "MRP_REFRESH_OF"  # environment variable of all processes of a refresh: folder of the project

LANE_OPTION = "--lane"
PARENT_OPTION = "--ends-with-parent"
TARGET_BYTES = 256  # size of an entry in the queue of targets that the lanes share; each entry is read as a whole
QUIET_LOGGERS = ("dvc.dvcfile", "dvc.repo.scm_context", "dvc.stage")
INFO_LOGGERS = ("dvc.stage.run", "dvc.stage.cache")

Process = subprocess.Popen[bytes]


def start_run(
    processes: list[Process],
    targets: Sequence[str],
    force: bool,
    params: Params,
    variables: Mapping[str, str],
    captured: bool = False,
) -> None:
    """Start DVC for some targets, or several processes ("lanes") for all data sets.

    Each lane updates one data set at a time, and then takes the next one from a queue that all lanes share. DVC runs
    one stage at a time and waits for the locks of other processes. Lanes use a dumb terminal, so that their progress
    bars do not overlap.

    Args:
        processes: Receives each process as soon as it is started, so that the caller can end all of them at any time.
        targets: Stages to run; all data sets if empty.
        force: Whether stages that are up to date run too.
        params: Parameters of params.yaml.
        variables: Environment variables of the processes.
        captured: Whether the output is read from `stdout` of the processes instead of printed.
    """
    options = ["--force"] if force else []
    if targets:
        processes.append(start_repro([*options, *targets], variables, captured=captured))
        return
    read_end, write_end = os.pipe()
    lane_options = [*options, LANE_OPTION, str(read_end)]
    lane_variables = {"TERM": "dumb", **variables}
    for _ in range(min(params.lanes, len(params.datasets))):
        processes.append(start_repro(lane_options, lane_variables, captured=captured, pass_fds=[read_end]))
    os.close(read_end)
    with os.fdopen(write_end, "wb") as queue:
        for name in longest_first(params):
            queue.write(f"reliability@{name}".encode().ljust(TARGET_BYTES))


def start_repro(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    captured: bool = False,
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start `dvc repro --keep-going` in a process group of its own, which ends when this process ends.

    The standard input of the new process is a pipe that only this process holds. When this process ends, even if
    killed, the pipe is closed, and the new process ends itself.

    Args:
        arguments: Arguments of the command.
        variables: Environment variables.
        captured: Whether the output is read from `stdout` of the process instead of printed.
        pass_fds: File descriptors that the process inherits.

    Returns:
        The process.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # stages call `python`
    environment = {**os.environ, "PATH": path, OWNER_VARIABLE: str(Path.cwd()), **variables}
    return subprocess.Popen(  # noqa: S603 - fixed command
        [*DVC_COMMAND, "repro", "--keep-going", *arguments, PARENT_OPTION],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if captured else None,
        stderr=subprocess.STDOUT if captured else None,
        pass_fds=pass_fds,
        start_new_session=True,
    )


def wait_for_all(processes: list[Process]) -> int:
    """Wait for all processes. If this process is interrupted, the running ones are ended.

    Args:
        processes: Processes. The list is empty afterwards.

    Returns:
        The first exit status other than 0, in the order of the processes; otherwise 0.
    """
    try:
        statuses = [process.wait() for process in processes]
    finally:
        end_groups(processes)
    return next((status for status in statuses if status), 0)


def end_groups(processes: list[Process]) -> None:
    """End the process groups of processes, since a killed process of DVC leaves its stage running.

    Args:
        processes: Leaders of the groups. The list is cleared, since their numbers may be used again.
    """
    groups = {process.pid for process in processes}
    _end_matching(lambda process: os.getpgid(process.pid) in groups)
    for process in processes:
        process.poll()
        if process.stdin is not None:
            process.stdin.close()
    processes.clear()


def end_orphans() -> None:
    """End the processes of an earlier refresh of this folder that was killed."""
    project = str(Path.cwd())
    own_group = os.getpgrp()

    def is_orphan(process: psutil.Process) -> bool:
        return process.environ().get(OWNER_VARIABLE) == project and os.getpgid(process.pid) != own_group

    orphan_pids = [process.pid for process in _matching_processes(is_orphan)]
    if orphan_pids:
        listed_pids = ", ".join(map(str, orphan_pids))
        print(f"ending processes that an earlier, killed refresh left running: {listed_pids}", flush=True)
    groups = set()
    for pid in orphan_pids:
        with suppress(ProcessLookupError):  # it has just ended
            groups.add(os.getpgid(pid))
    # by group too, since the environment of a process is empty for a moment while it starts a program
    _end_matching(lambda process: os.getpgid(process.pid) in groups or is_orphan(process))


def _matching_processes(matches: Callable[[psutil.Process], bool]) -> Iterator[psutil.Process]:
    """Yield the processes that satisfy a condition."""
    for process in psutil.process_iter():
        is_match = False
        with suppress(psutil.Error, OSError):  # it has just ended, or belongs to another user
            is_match = matches(process)
        if is_match:
            yield process


def _end_matching(matches: Callable[[psutil.Process], bool]) -> None:
    """Terminate the processes that satisfy a condition, and kill those that do not end in time."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        signalled = []
        for process in _matching_processes(matches):
            with suppress(psutil.Error, OSError):  # it has just ended
                process.send_signal(signal_number)
                signalled.append(process)
        psutil.wait_procs(signalled, GRACE_SECONDS)


def quarantine_corrupt_dvc_files() -> None:
    """Rename files that a killed process of DVC left incomplete.

    DVC writes dvc.lock and the list of busy processes in place, and all its commands fail if one of them is incomplete.
    Without dvc.lock, DVC still finds the results of earlier runs in its cache, except for downloads. The list of busy
    processes is not needed after they were killed.
    """
    for path in (LOCK_FILE, BUSY_FILE):
        if path.exists() and not is_complete(path):
            time.sleep(MAX_WRITE_SECONDS)  # another process of DVC may be writing it
            if path.exists() and not is_complete(path):
                renamed = path.replace(path.with_name(f"{path.name}.cut"))
                print(f"{path} was incomplete: a run was killed while it wrote the file; it was renamed to {renamed}")


def is_complete(path: Path) -> bool:
    """Check whether dvc.lock, or a JSON file, can be parsed as DVC does it.

    Args:
        path: LOCK_FILE or a JSON file.

    Returns:
        Whether it is complete.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path != LOCK_FILE:
            json.loads(text)
            return True
        return "stages" in COMPILED_LOCKFILE_SCHEMA(yaml.safe_load(text))
    except (ValueError, yaml.YAMLError, Invalid):
        return False


def cache_folder() -> Path:
    """Return the folder of DVC's cache, as configured.

    Returns:
        The folder.
    """
    with Repo() as repo:
        return Path(repo.cache.local_cache_dir)


def remove_empty_runs() -> None:
    """Remove empty folders of runs from DVC's cache. A killed process may leave one, on which all later ones fail."""
    empty_folders = [folder for folder in (cache_folder() / "runs").glob("*/*") if not any(folder.iterdir())]
    if empty_folders:
        time.sleep(MAX_WRITE_SECONDS)  # another process of DVC may be writing into one
    for folder in empty_folders:
        with suppress(OSError):  # it is no longer empty
            folder.rmdir()


def outdated_stages() -> set[str]:
    """Return the stages that are not up to date according to DVC.

    Returns:
        Names of stages.

    Raises:
        RunFailed: DVC reports an error.
    """
    quarantine_corrupt_dvc_files()  # a process that was killed just now may have left them
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "status", "--json"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - fixed command
    if result.returncode != 0:
        raise RunFailed(f"DVC cannot determine which stages are up to date: {result.stderr.strip()}")
    return set(json.loads(result.stdout))


def end_with_parent() -> None:
    """Wait until the parent process has ended, then end this process and its children.

    Stages get time to end by themselves. Processes that still run after that, and this process, are killed.
    """
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written: it returns when the pipe is closed
    children = psutil.Process().children(recursive=True)
    for process in children:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(children, GRACE_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Run a command of DVC in this process, without its hints and its lines about skipped stages.

    Args:
        arguments: Arguments of DVC. If they end with the option of a lane and the number of a pipe, the command runs
            for each target in that pipe.

    Returns:
        The largest exit status.
    """
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in INFO_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
    with redirect_stdout(io.StringIO()):  # drops hints, but neither log lines nor the output of stages
        if LANE_OPTION not in arguments:
            return int(run_dvc(arguments))
        *options, _, pipe = arguments
        statuses = [int(run_dvc([*options, target])) for target in _targets_from_pipe(int(pipe))]
        return max(statuses, default=0)


def _targets_from_pipe(descriptor: int) -> Iterator[str]:
    """Yield targets until the pipe is closed."""
    while True:
        target = os.read(descriptor, TARGET_BYTES).decode().strip()
        if not target:
            return
        yield target


if __name__ == "__main__":
    command_line = sys.argv[1:]
    if PARENT_OPTION in command_line:
        command_line.remove(PARENT_OPTION)
        Thread(target=end_with_parent, daemon=True).start()
    sys.exit(main(command_line))
