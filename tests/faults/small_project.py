"""A small copy of the project: run commands with injected faults, and read their results."""

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
OUTPUT_FOLDERS = ("raw", "base", "runs", "report", "manifests")  # folders under data/ that stages write
COMMAND_TIMEOUT = 300  # seconds, on a busy machine

Fault = dict[str, Any]  # see injected/sitecustomize.py


def killed(call: str, path: str, whom: str = "everything", nth: int = 1) -> Fault:
    """Return a fault: SIGKILL to `whom` in the `nth` call of `call` on `path`."""
    return {"call": call, "path": path, "nth": nth, "do": "kill", "whom": whom}


@dataclass(frozen=True)
class Running:
    """A running command with its child processes."""

    process: subprocess.Popen[bytes]
    log: Path
    counted: Path  # identifies the run in the environment of its processes; counts the calls of each fault

    def printed(self) -> str:
        """Return the output of all its processes so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def ended(self, status: int = 0) -> str:
        """Wait for the command, check its exit status, and return the output."""
        try:
            assert self.process.wait(COMMAND_TIMEOUT) == status, self.printed()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {COMMAND_TIMEOUT} s:\n{self.printed()}") from None
        return self.printed()

    def n_faults_reached(self) -> int:
        """Count the faults that have been reached."""
        faults = json.loads((self.counted / "faults.json").read_text())
        counts = [(self.counted / fault["name"], fault.get("nth", 1)) for fault in faults]
        return sum(count.exists() and count.stat().st_size >= nth for count, nth in counts)

    def processes(self) -> list[psutil.Process]:
        readable = [process for process in psutil.process_iter(["environ"]) if process.info["environ"]]
        return [process for process in readable if process.info["environ"].get("FAULTS_COUNTED") == str(self.counted)]

    def kill_command(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill(self) -> None:
        for process in self.processes():
            process.send_signal(signal.SIGKILL)
        self.process.wait()


class SmallProject:
    """The commands and files of a project in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Running] = []

    def start(
        self, *command: str, faults: tuple[Fault, ...] = (), server_of: Running | None = None, **options: Any
    ) -> Running:
        """Start a command with faults. A fault that kills a server uses the server of the run `server_of`."""
        counted = server_of.counted if server_of else self.folder / ".faults" / str(len(self.started))
        counted.mkdir(parents=True, exist_ok=True)
        named = [{**fault, "name": str(place)} for place, fault in enumerate(faults)]
        (counted / "faults.json").write_text(json.dumps(named))
        injected = {"PYTHONPATH": str(INJECTED), "FAULTS": json.dumps(named), "FAULTS_COUNTED": str(counted)}
        log = self.folder / ".faults" / f"printed.{len(self.started)}"
        process = start(self.folder, *command, log=log, **injected, **options)
        self.started.append(Running(process, log, counted))
        return self.started[-1]

    def run(self, *command: str, faults: tuple[Fault, ...] = (), status: int = 0, **options: Any) -> str:
        """Run a command to its end, check that it reached every fault and its exit status; return the output."""
        running = self.start(*command, faults=faults, **options)
        printed = running.ended(status)
        assert running.n_faults_reached() == len(faults), f"not every fault was reached:\n{printed}"
        return printed

    def paused(self, *command: str, at: str, until: Path) -> Running:
        """Start a command that pauses before it moves the file `at` into place, until the file `until` exists."""
        running = self.start(*command, faults=({"call": "replace", "path": at, "do": "hold", "to": str(until)},))
        eventually(running.n_faults_reached)
        return running

    def end(self) -> None:
        for running in self.started:
            running.kill()

    def results(self) -> dict[str, str]:
        """Return the SHA-256 of every output of the stages."""
        files = []
        for folder in OUTPUT_FOLDERS:
            files += [file for file in (self.folder / "data" / folder).rglob("*") if file.is_file()]
        digests = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}
        return {file.relative_to(self.folder).as_posix(): digest for file, digest in digests.items()}

    def stored_fits(self) -> dict[str, int]:
        """Return the modification time of each complete stored calibrator fit in nanoseconds."""
        times = {}
        for file in (self.folder / ".prefect/storage").glob("*"):
            with suppress(ValueError):
                json.loads(file.read_bytes())
                times[file.name] = file.stat().st_mtime_ns
        return times

    def flow_states(self) -> list[str]:
        """Return the recorded state of every flow run."""
        with closing(sqlite3.connect(self.folder / ".prefect/prefect.db")) as recorded:
            return [state for (state,) in recorded.execute("select state_type from flow_run")]
