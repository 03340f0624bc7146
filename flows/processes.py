"""DVC's processes: started in groups of their own, waited for, and ended with all that they have started.

And what a killed one has left, which the next would stumble over.
"""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import yaml
from dvc.cli import main as run_dvc
from dvc.repo import Repo
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from voluptuous import Invalid

from flows.scheduling import longest_first
from tasks.records.errors import RunFailed
from tasks.settings.params import Params

DVC = (sys.executable, "-m", "flows.processes", "--wait-for-lock")
LOCK_FILE = Path("dvc.lock")
BUSY_FILE = Path(".dvc/tmp/rwlock")  # which process of DVC reads or writes what
WRITTEN_IN = 0.5  # seconds, and more than it takes
GRACE = 5.0  # seconds that processes have to end by themselves
OWNER = "MRP_REFRESH_OF"  # tells all that a refresh starts, by the project's folder in their environment

CAPTURED: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
LANE = "--lane"
ENDS_WITH_PARENT = "--ends-with-parent"
RECORD = 256  # bytes of a target in the queue of the lanes, which read it whole

Process = subprocess.Popen[bytes]


def start_run(
    run: list[Process],
    targets: list[str],
    force: bool,
    params: Params,
    variables: dict[str, str],
    captured: bool = False,
) -> None:
    """Start DVC for `targets`, or lanes of it for everything: one target after the other that none has taken yet.

    Each goes into `run` at once, so that whoever ends what is there forgets none. DVC runs one stage at a time, and
    waits for another's lock. On a dumb terminal the bars of two lanes do not draw over each other. What captured
    processes print is read from their `stdout`.
    """
    how = CAPTURED if captured else {}
    options = ["--force"] * force
    if targets:
        run.append(start_repro([*options, *targets], variables, **how))
        return
    taken, given = os.pipe()
    options, quiet = [*options, LANE, str(taken)], {"TERM": "dumb"} | variables
    lanes = range(min(params.lanes, len(params.datasets)))
    run.extend(start_repro(options, quiet, pass_fds=[taken], **how) for _ in lanes)
    os.close(taken)
    with os.fdopen(given, "wb") as queue:
        for name in longest_first(params):
            queue.write(f"reliability@{name}".encode().ljust(RECORD))


def start_repro(asked: list[str], variables: dict[str, str], **how: Any) -> Process:
    """Start `dvc repro --keep-going` in a process group of its own, which ends when this process does.

    Its standard input is a pipe that only this process holds, so that it is told of our end, however that comes.
    """
    tools = Path(sys.executable).parent  # holds the `python` that the stages call
    own = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", OWNER: str(Path.cwd())}
    command = [*DVC, "repro", "--keep-going", *asked, ENDS_WITH_PARENT]
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "start_new_session": True, **how}
    process: Process = subprocess.Popen(command, env=os.environ | own | variables, **options)  # noqa: S603 - our own
    return process


def finish(processes: list[Process]) -> int:
    """The first exit status of all that is not 0, once they have ended; if we end, those still running are ended."""
    try:
        return next((status for status in [process.wait() for process in processes] if status), 0)
    finally:
        end(processes)


def end(processes: list[Process]) -> None:
    """End their process groups, since a DVC that was killed leaves its stage running, and forget their numbers."""
    groups = {process.pid for process in processes}
    _end(lambda process: os.getpgid(process.pid) in groups)
    for process in processes:
        process.poll()
        if process.stdin is not None:
            process.stdin.close()
    processes.clear()  # their numbers may be those of others from now on


def end_left_behind() -> None:
    """End what a refresh of this folder had started that was killed itself."""
    here, ours = str(Path.cwd()), os.getpgrp()

    def is_left(process: psutil.Process) -> bool:
        return process.environ().get(OWNER) == here and os.getpgid(process.pid) != ours

    left = list[int]()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has just ended, or is not ours to look at
            if is_left(process):
                left.append(process.pid)
    if left:
        numbers = ", ".join(map(str, left))
        print(f"ending what an earlier refresh left running that was killed: processes {numbers}", flush=True)
    _end(is_left)


def _end(is_meant: Callable[[psutil.Process], bool]) -> None:
    """Ask the processes that are meant to end, and end those that do not."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        living = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # it has just ended, or is not ours to look at
                if is_meant(process):
                    process.send_signal(how)
                    living.append(process)
        psutil.wait_procs(living, GRACE)


def quarantine_corrupt_dvc_files() -> None:
    """Rename what a killed DVC left half written: it writes two files in place, and refuses every command after that.

    Without dvc.lock it finds its runs in its cache again, all but the downloads; the other only says who is busy.
    """
    for path in (LOCK_FILE, BUSY_FILE):
        if path.exists() and not is_whole(path):
            time.sleep(WRITTEN_IN)  # another DVC may be writing it
            if path.exists() and not is_whole(path):
                aside = path.replace(path.with_name(f"{path.name}.cut"))
                print(f"{path} was cut off, as by a run that was killed while writing it; it is {aside} now")


def cache_folder() -> Path:
    """Where DVC keeps its cache, as it is configured."""
    with Repo() as repo:
        return Path(repo.cache.local_cache_dir)


def remove_empty_runs() -> None:
    """Remove what a killed DVC left of a run that it was keeping: with an empty folder it fails from then on."""
    kept = cache_folder() / "runs"
    empty = [folder for folder in kept.glob("*/*") if not any(folder.iterdir())]
    time.sleep(WRITTEN_IN if empty else 0)  # another DVC may be filling one
    for folder in empty:
        with suppress(OSError):  # it has
            folder.rmdir()


def is_whole(path: Path) -> bool:
    """Whether dvc.lock, or else a file of JSON, is not cut off, as DVC reads it."""
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text) if path == LOCK_FILE else json.loads(text)
        return path != LOCK_FILE or "stages" in COMPILED_LOCKFILE_SCHEMA(content)
    except (ValueError, yaml.YAMLError, Invalid):
        return False


def stale_stages() -> set[str]:
    """The stages that are not up to date, as DVC sees it; RunFailed where it cannot say."""
    quarantine_corrupt_dvc_files()  # one that was killed just now may have cut them
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "status", "--json"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own
    if answer.returncode:
        raise RunFailed(f"DVC cannot say what is up to date: {answer.stderr.strip()}")
    return set(json.loads(answer.stdout))


def end_with_parent() -> None:
    """Wait until the process that started us is gone, then end this process and all that it has started.

    DVC's stages get time to end by themselves. Whatever still runs after that, and DVC itself, is killed.
    """
    os.read(sys.stdin.fileno(), 1)  # nobody writes: it returns at the end of the pipe
    started = psutil.Process().children(recursive=True)
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(started, GRACE)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Run DVC's own command in this process, without its hints, and without a line for each stage that it skips.

    With a queue in place of targets it runs once for each that it takes from there; returns the last status but 0.
    """
    for name in ("dvc.dvcfile", "dvc.repo.scm_context", "dvc.stage"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("dvc.stage.run", "dvc.stage.cache"):
        logging.getLogger(name).setLevel(logging.INFO)
    with redirect_stdout(io.StringIO()):  # of DVC itself: what it logs, and stages, go to where they did
        if LANE not in arguments:
            return int(run_dvc(arguments))
        *options, _, queue = arguments
        targets = iter(lambda: os.read(int(queue), RECORD).decode().strip(), "")
        return max((int(run_dvc([*options, target])) for target in targets), default=0)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if ENDS_WITH_PARENT in arguments:
        arguments.remove(ENDS_WITH_PARENT)
        Thread(target=end_with_parent, daemon=True).start()
    sys.exit(main(arguments))
