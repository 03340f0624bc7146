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
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml
from dvc.cli import main as run_dvc
from dvc.repo import Repo
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from voluptuous import Invalid

from tasks.protocol.errors import BadInput, RunFailed
from tasks.protocol.params import Params
from tasks.protocol.store import STATE, read_json, write_json

DVC = (sys.executable, "-m", "flows.processes", "--wait-for-lock")
LOCK_FILE = Path("dvc.lock")
BUSY_FILE = Path(".dvc/tmp/rwlock")  # which process of DVC reads or writes what
WRITTEN_IN = 0.5  # seconds, and more than it takes
GROUPS = STATE / "groups"  # those that a refresh has started and not yet ended
CLOCK = 30.0  # seconds by which a clock may be set while a process runs
GRACE = 5.0  # seconds that a process group has to end by itself

LANE = "--lane"
RECORD = 256  # bytes of a target in the queue of the lanes, which read it whole

Process = subprocess.Popen[bytes]


def started(command: list[str], **how: Any) -> Process:
    """Start a command in a process group of its own, which `end_left_behind` knows."""
    process = subprocess.Popen(command, start_new_session=True, **how)  # noqa: S603 - our own
    write_json(
        GROUPS / f"{process.pid}.json",
        {"started": psutil.Process(process.pid).create_time(), "boot": psutil.boot_time()},
    )
    return process


def start_run(run: list[Process], targets: list[str], force: bool, params: Params, variables: dict[str, str]) -> None:
    """Start DVC for `targets`, or lanes of it for everything; each goes into `run` at once."""
    options = ["--force"] * force
    if targets:
        run.append(start_repro([*options, *targets], variables))
    else:
        start_lanes(run, params.lanes, [f"reliability@{name}" for name in params.datasets], options, variables)


def start_repro(options: list[str], variables: dict[str, str], **how: Any) -> Process:
    """Start `dvc repro --keep-going` in a process group of its own."""
    tools = Path(sys.executable).parent  # holds the `python` that the stages call
    path = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    return started([*DVC, "repro", "--keep-going", *options], env=os.environ | path | variables, **how)


def start_lanes(
    lanes: list[Process], number: int, targets: list[str], options: list[str], variables: dict[str, str]
) -> None:
    """Start a `number` of DVCs, each of which brings up to date one target after the other that none has taken yet.

    Each goes into `lanes` at once, so that whoever ends what is there forgets none.

    DVC runs one stage at a time, and waits for another's lock. On a dumb terminal the bars of two lanes do not draw
    over each other.
    """
    taken, given = os.pipe()
    how, quiet = [*options, LANE, str(taken)], {"TERM": "dumb"} | variables
    lanes.extend(start_repro(how, quiet, pass_fds=[taken]) for _ in range(min(number, len(targets))))
    os.close(taken)
    with os.fdopen(given, "wb") as queue:
        for target in targets:
            queue.write(target.encode().ljust(RECORD))


def finish(processes: list[Process]) -> int:
    """The first exit status of all that is not 0, once they have ended; if we end, those still running are ended."""
    try:
        return next((status for status in [process.wait() for process in processes] if status), 0)
    finally:
        end(processes)


def end(processes: list[Process]) -> None:
    """End their process groups: a DVC that was killed leaves its stage running."""
    end_groups([process.pid for process in processes], processes)


def end_left_behind() -> None:
    """End what a refresh had started that was killed itself."""
    known = sorted(GROUPS.glob("*.json"))
    end_groups([int(path.stem) for path in known if _is_ours(path)])
    for path in known:
        path.unlink(missing_ok=True)


def _is_ours(path: Path) -> bool:
    """Whether the process group is still the one that was started: its number is free once nobody is in it."""
    try:
        kept = read_json(path)
        if abs(psutil.boot_time() - kept["boot"]) > CLOCK:
            return False
        return bool(abs(psutil.Process(int(path.stem)).create_time() - kept["started"]) < CLOCK)
    except psutil.NoSuchProcess:
        return True  # its first process is gone; whoever is left in it is ours
    except (BadInput, KeyError):
        return False  # cut off by a kill, or of another version of this project


def end_groups(groups: list[int], children: Sequence[Process] = ()) -> None:
    """Ask process groups to end, and end those that do not; `children` are those that we have to wait for ourselves."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        living = [group for group in groups if _signalled(group, how)]
        until = time.monotonic() + GRACE
        while living and time.monotonic() < until:
            for child in children:
                child.poll()  # one that nobody has waited for is still there
            living = [group for group in living if _signalled(group, 0)]
            time.sleep(0.05)
    for group in groups:
        (GROUPS / f"{group}.json").unlink(missing_ok=True)


def _signalled(group: int, how: int) -> bool:
    """Send a signal to a process group; returns whether anybody is in it."""
    try:
        os.killpg(group, how)
    except (ProcessLookupError, PermissionError):
        return False  # nobody, or nobody of ours
    return True


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
    if empty:
        time.sleep(WRITTEN_IN)  # another DVC may be filling one
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
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "status", "--json"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own
    if answer.returncode:
        raise RunFailed(f"DVC cannot say what is up to date: {answer.stderr.strip()}")
    return set(json.loads(answer.stdout))


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
    sys.exit(main(sys.argv[1:]))
