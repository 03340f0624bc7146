"""Faults inside the processes of a test. Python runs this file first wherever its folder is on PYTHONPATH.

Nothing happens unless FAULTS is set: a JSON list of faults. Each has

- `call` and `path`: at which call, `replace` (a whole file is moved into place) or `write` (a file is written where
  it stands), and on which file, as a pattern relative to the current folder, the project's root;
- `nth`: at which of these calls, counted over all processes of the run (a file for each fault in FAULTS_COUNTED);
- `do`: `kill` (SIGKILL; of the one that writes, with its file cut in half), `edit` (append a line to the file `to`) or
  `hold` (wait until the file `to` exists, in the middle of the call);
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

COMMANDS = {  # how a process of each kind is known, by its command line
    "stage": ("tasks.download", "tasks.train", "flows.reliability", "flows.report"),
    "dvc": ("flows.processes",),
    "server": ("uvicorn", "server"),
    "everything": (),
}
FAULTS = json.loads(os.environ.get("FAULTS", "[]"))
HALF = 2


def reached(fault: dict, call: str, path: object) -> bool:
    """Is this the call that the fault waits for? A call that fits is counted, in whichever process it is made."""
    if fault["call"] != call or not isinstance(path, str | os.PathLike):
        return False
    if not fnmatch.fnmatch(os.path.relpath(os.fspath(path)), fault["path"]):
        return False
    with real_open(Path(os.environ["FAULTS_COUNTED"]) / fault["name"], "ab", buffering=0) as counted:
        counted.write(b".")  # appended in one piece, so that where it ends is the number of this call
        return counted.tell() == fault.get("nth", 1)


def of_this_run(whom: str) -> list[int]:
    """The processes that inherited this run's environment, and are of the kind `whom`; this one last."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("FAULTS_COUNTED") == os.environ["FAULTS_COUNTED"]
            words = {Path(word).name for word in process.cmdline()}
        except psutil.Error:
            continue
        if ours and (whom == "everything" or words & set(COMMANDS[whom])):
            found.append(process.pid)
    return sorted(found, key=lambda pid: pid == os.getpid())


def kill(whom: str) -> None:
    """SIGKILL to all at once: none sees another end."""
    killed = of_this_run(whom)
    if not killed:  # a fault that strikes nobody would look like one that was survived
        raise RuntimeError(f"no process of this run is a {whom}")
    for pid in killed:
        if pid != os.getpid():
            os.kill(pid, signal.SIGSTOP)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)


def strike(fault: dict) -> None:
    """What happens at the call; a kill of this process does not return."""
    if fault["do"] == "kill":
        kill(fault["whom"])
    elif fault["do"] == "edit":
        with real_open(fault["to"], "a") as edited:
            edited.write(fault["line"] + "\n")
    else:
        while not Path(fault["to"]).exists():
            time.sleep(0.05)


def replace(source: object, target: object, **options: object) -> None:
    """`os.replace` and `os.rename`, where a fault strikes before the file is moved."""
    for fault in FAULTS:
        if reached(fault, "replace", target):
            if fault["do"] == "kill" and os.getpid() in of_this_run(fault["whom"]) and Path(source).is_file():
                os.truncate(source, Path(source).stat().st_size // HALF)
            strike(fault)
    real_replace(source, target, **options)


def open_(file: object, mode: str = "r", *arguments: object, **options: object) -> object:
    """`open`, where a fault strikes once half of the first piece is written."""
    handle = real_open(file, mode, *arguments, **options)
    for fault in FAULTS:
        if mode[0] in "wx" and reached(fault, "write", file):
            handle.write = torn(handle, handle.write, fault)
    return handle


def torn(handle: object, write: object, fault: dict) -> object:
    """The `write` of `handle`, whose first call is cut in half by the fault."""

    def write_half(content: object) -> object:
        handle.write = write
        done = write(content[: len(content) // HALF])
        handle.flush()
        strike(fault)
        return done + write(content[len(content) // HALF :])

    return write_half


real_open, real_replace = builtins.open, os.replace
if FAULTS:
    builtins.open = io.open = open_
    os.replace = os.rename = replace
