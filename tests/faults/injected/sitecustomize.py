"""Inject faults into the processes of a test. Python runs this file first if its folder is on PYTHONPATH.

Nothing happens unless FAULTS is set: a JSON list of faults. Each has

- `call` and `path`: the call, `replace` (a whole file is moved into place) or `write` (a file is written in place), and
  its file, as a pattern relative to the current folder, the project's root;
- `nth`: the number of the call, counted over all processes of the run (a file for each fault in FAULTS_COUNTED);
- `do`: `kill` (SIGKILL; the file of the writing process is truncated to half), `edit` (append a line to the file `to`)
  or `hold` (wait until the file `to` exists, in the middle of the call);
- `whom`, of a kill: `everything`, `stage`, `dvc` or `server`.
"""

import builtins
import fnmatch
import io
import json
import os
import signal
import time
from pathlib import Path

COMMANDS = {  # kind of process -> words in its command line
    "stage": ("tasks.download", "tasks.train", "flows.reliability", "flows.report"),
    "dvc": ("flows.processes",),
    "server": ("uvicorn", "server"),
    "everything": (),
}
FAULTS = json.loads(os.environ.get("FAULTS", "[]"))
HALF = 2


def is_due(fault: dict, call: str, path: object) -> bool:
    """Count a call that matches the fault, over all processes, and check whether it is the one to disturb."""
    if fault["call"] != call or not isinstance(path, str | os.PathLike):
        return False
    if not fnmatch.fnmatch(os.path.relpath(os.fspath(path)), fault["path"]):
        return False
    with real_open(Path(os.environ["FAULTS_COUNTED"]) / fault["name"], "ab", buffering=0) as calls:
        calls.write(b".")  # appended atomically, so the position is the number of this call
        return calls.tell() == fault.get("nth", 1)


def find_processes(whom: str) -> list[int]:
    """Return the processes of this run of the kind `whom`; the current process is the last."""
    import psutil

    pids = []
    for process in psutil.process_iter():
        try:
            is_of_this_run = process.environ().get("FAULTS_COUNTED") == os.environ["FAULTS_COUNTED"]
            words = {Path(word).name for word in process.cmdline()}
        except psutil.Error:
            continue
        if is_of_this_run and (whom == "everything" or words & set(COMMANDS[whom])):
            pids.append(process.pid)
    return sorted(pids, key=lambda pid: pid == os.getpid())


def kill(whom: str) -> None:
    """Send SIGKILL to all processes at once, so that none sees another one end."""
    pids = find_processes(whom)
    if not pids:  # a fault without a process would look like one that the run survived
        raise RuntimeError(f"no process of this run is a {whom}")
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
        with real_open(fault["to"], "a") as edited:
            edited.write(fault["line"] + "\n")
    else:
        while not Path(fault["to"]).exists():
            time.sleep(0.05)


def replace(source: object, target: object, **options: object) -> None:
    """Replace `os.replace` and `os.rename`; a fault happens before the file is moved."""
    for fault in FAULTS:
        if is_due(fault, "replace", target):
            if fault["do"] == "kill" and os.getpid() in find_processes(fault["whom"]) and Path(source).is_file():
                os.truncate(source, Path(source).stat().st_size // HALF)
            cause_fault(fault)
    real_replace(source, target, **options)


def open_(file: object, mode: str = "r", *arguments: object, **options: object) -> object:
    """Replace `open`; a fault happens when half of the first piece is written."""
    handle = real_open(file, mode, *arguments, **options)
    for fault in FAULTS:
        if mode[0] in "wx" and is_due(fault, "write", file):
            handle.write = interrupted_write(handle, handle.write, fault)
    return handle


def interrupted_write(handle: object, write: object, fault: dict) -> object:
    """Return a `write` of `handle` in whose first call the fault happens after half of the content."""

    def write_half(content: object) -> object:
        handle.write = write
        n_written = write(content[: len(content) // HALF])
        handle.flush()
        cause_fault(fault)
        return n_written + write(content[len(content) // HALF :])

    return write_half


real_open = builtins.open
real_replace = os.replace
if FAULTS:
    builtins.open = io.open = open_
    os.replace = os.rename = replace
