"""Inject faults into the processes of a test. Python runs this file first if its folder is on PYTHONPATH.

FAULTS is a JSON list of faults; without it, nothing happens. A fault has these keys:

- `name`: unique name. The folder FAULTS_COUNTED has a file of this name, in which all processes count the calls.
- `call`: `replace` (a whole file is moved into place) or `write` (a file is written in place).
- `path`: pattern of the file of the call, relative to the current folder, which is the root of the project.
- `nth`: number of the call that is disturbed; by default the first.
- `do`: `kill`, `edit` or `hold`.
  - `kill` sends SIGKILL. If it kills the process that makes the call, its file contains only the first half.
  - `edit` appends `line` to the file `file`.
  - `hold` waits in the middle of the call until the file `file` exists.
- `whom`: processes to kill: `everything`, `stage`, `dvc` or `server`.
"""

import builtins
import fnmatch
import io
import json
import os
import signal
import time
from pathlib import Path

COMMAND_WORDS = {  # kind of process -> words, one of which is in its command line
    "stage": ("tasks.download", "tasks.train", "flows.reliability", "flows.report"),
    "dvc": ("dvc",),
    "server": ("uvicorn", "server"),
    "everything": (),
}
FAULTS = json.loads(os.environ.get("FAULTS", "[]"))


def count_call(fault: dict, call: str, path: object) -> bool:
    """Count a call if it matches the fault, and return whether it is the one to disturb."""
    if fault["call"] != call or not isinstance(path, str | os.PathLike):
        return False
    if not fnmatch.fnmatch(os.path.relpath(os.fspath(path)), fault["path"]):
        return False
    with real_open(Path(os.environ["FAULTS_COUNTED"]) / fault["name"], "ab", buffering=0) as calls:
        calls.write(b".")  # an atomic append of one byte: the position after it is the number of this call
        return calls.tell() == fault.get("nth", 1)


def find_processes(whom: str) -> list[int]:
    """Return the processes of the kind `whom` in this run; the current process is the last."""
    import psutil

    pids = []
    for process in psutil.process_iter():
        try:
            is_of_this_run = process.environ().get("FAULTS_COUNTED") == os.environ["FAULTS_COUNTED"]
            words = {Path(word).name for word in process.cmdline()}
        except psutil.Error:
            continue
        if is_of_this_run and (whom == "everything" or words & set(COMMAND_WORDS[whom])):
            pids.append(process.pid)
    return sorted(pids, key=lambda pid: pid == os.getpid())


def kill(whom: str) -> None:
    """Stop all processes, then kill them, so that none can react to the end of another."""
    pids = find_processes(whom)
    if not pids:  # otherwise the test would pass although nothing was killed
        raise RuntimeError(f"no process of this run is of the kind {whom!r}")
    for pid in pids:
        if pid != os.getpid():
            os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def cause_fault(fault: dict) -> None:
    """Cause the fault; does not return if this process is killed."""
    if fault["do"] == "kill":
        kill(fault["whom"])
    elif fault["do"] == "edit":
        with real_open(fault["file"], "a") as edited:
            edited.write(fault["line"] + "\n")
    else:
        while not Path(fault["file"]).exists():
            time.sleep(0.05)


def replace(source: object, target: object, **options: object) -> None:
    """Replace `os.replace` and `os.rename`; a fault happens before the file is moved."""
    for fault in FAULTS:
        if count_call(fault, "replace", target):
            kills_this_process = fault["do"] == "kill" and os.getpid() in find_processes(fault["whom"])
            if kills_this_process and Path(source).is_file():
                os.truncate(source, Path(source).stat().st_size // 2)
            cause_fault(fault)
    real_replace(source, target, **options)


def open_(file: object, mode: str = "r", *arguments: object, **options: object) -> object:
    """Replace `open`; a fault happens in the middle of the first `write`."""
    handle = real_open(file, mode, *arguments, **options)
    for fault in FAULTS:
        if mode[0] in "wx" and count_call(fault, "write", file):
            interrupt_first_write(handle, fault)
    return handle


def interrupt_first_write(handle: object, fault: dict) -> None:
    """Let the fault happen when the first `write` of `handle` has written half of its content."""
    real_write = handle.write

    def write_with_fault(content: object) -> object:
        handle.write = real_write
        half = len(content) // 2
        n_written = real_write(content[:half])
        handle.flush()
        cause_fault(fault)
        return n_written + real_write(content[half:])

    handle.write = write_with_fault


real_open = builtins.open
real_replace = os.replace
if FAULTS:
    builtins.open = io.open = open_
    os.replace = os.rename = replace
