"""A small copy of the project to disturb: its commands under faults, and what they leave behind."""

import hashlib
import json
import signal
import sqlite3
import subprocess
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.project_copy import start
from tests.system.browser import eventually

INJECTED = Path(__file__).resolve().parent / "injected"
MADE = ("raw", "base", "runs", "report", "manifests")  # the folders under data/ that stages write
LONGEST = 300  # seconds that one command may take on a busy machine

Fault = dict[str, Any]  # see injected/sitecustomize.py


def killed(call: str, path: str, whom: str = "everything", nth: int = 1) -> Fault:
    """SIGKILL to `whom` inside the `nth` call of `call` on `path`."""
    return {"call": call, "path": path, "nth": nth, "do": "kill", "whom": whom}


@dataclass(frozen=True)
class Running:
    """A command that was started, and all that it started."""

    process: subprocess.Popen[bytes]
    log: Path
    counted: Path  # names the run in the environment of its processes; holds how often each fault's call was made

    def printed(self) -> str:
        """What all of them printed until now."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def ended(self, status: int = 0) -> str:
        """Wait for the command itself, which must end with `status`; returns what was printed."""
        try:
            assert self.process.wait(LONGEST) == status, self.printed()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {LONGEST} s:\n{self.printed()}") from None
        return self.printed()

    def struck(self) -> int:
        """How many of the faults have been reached."""
        faults = json.loads((self.counted / "faults.json").read_text())
        counts = [(self.counted / fault["name"], fault.get("nth", 1)) for fault in faults]
        return sum(count.exists() and count.stat().st_size >= nth for count, nth in counts)

    def processes(self) -> list[psutil.Process]:
        ours = [process for process in psutil.process_iter(["environ"]) if process.info["environ"]]
        return [process for process in ours if process.info["environ"].get("FAULTS_COUNTED") == str(self.counted)]

    def kill_command(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill(self) -> None:
        for process in self.processes():
            process.send_signal(signal.SIGKILL)
        self.process.wait()


class SmallProject:
    """The project in a folder of its own, as a person sees it: commands and files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Running] = []

    def start(
        self, *command: str, faults: tuple[Fault, ...] = (), beside: Running | None = None, **how: Any
    ) -> Running:
        """As `start` of a copy, under `faults`; one that kills a server finds that of the run `beside` it."""
        counted = beside.counted if beside else self.folder / ".faults" / str(len(self.started))
        counted.mkdir(parents=True, exist_ok=True)
        named = [{**fault, "name": str(place)} for place, fault in enumerate(faults)]
        (counted / "faults.json").write_text(json.dumps(named))
        injected = {"PYTHONPATH": str(INJECTED), "FAULTS": json.dumps(named), "FAULTS_COUNTED": str(counted)}
        log = self.folder / ".faults" / f"printed.{len(self.started)}"
        process = start(self.folder, *command, log=log, **injected, **how)
        self.started.append(Running(process, log, counted))
        return self.started[-1]

    def run(self, *command: str, faults: tuple[Fault, ...] = (), status: int = 0, **how: Any) -> str:
        """As `start`, to its end: it must reach every fault and end with `status`; returns what it printed."""
        running = self.start(*command, faults=faults, **how)
        printed = running.ended(status)
        assert running.struck() == len(faults), f"not every fault was reached:\n{printed}"
        return printed

    def paused(self, *command: str, at: str, until: Path) -> Running:
        """As `start`, once it is about to put the file `at` in its place; it waits for the file `until` there."""
        running = self.start(*command, faults=({"call": "replace", "path": at, "do": "hold", "to": str(until)},))
        eventually(running.struck)
        return running

    def end(self) -> None:
        for running in self.started:
            running.kill()

    def results(self) -> dict[str, str]:
        """SHA-256 of every file that stages made, but for what tells how it was made."""
        files = [file for made in MADE for file in (self.folder / "data" / made).rglob("*") if file.is_file()]
        digests = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}
        return {file.relative_to(self.folder).as_posix(): digest for file, digest in digests.items()}

    def kept_fits(self) -> dict[str, int]:
        """When each calibrator fit that is kept whole was written, in nanoseconds."""
        times = {}
        for file in (self.folder / ".prefect/storage").glob("*"):
            with suppress(ValueError):
                json.loads(file.read_bytes())
                times[file.name] = file.stat().st_mtime_ns
        return times

    def flow_states(self) -> list[str]:
        """The state of every flow run that Prefect knows, as it was recorded."""
        with closing(sqlite3.connect(self.folder / ".prefect/prefect.db")) as recorded:
            return [state for (state,) in recorded.execute("select state_type from flow_run")]
