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

from tests.project_copy import start_module
from tests.system.browser import wait_until

SITECUSTOMIZE_FOLDER = Path(__file__).resolve().parent / "injected"
OUTPUT_FOLDERS = ("raw", "base", "runs", "metrics", "report")  # folders under data/ that stages write
COMMAND_TIMEOUT = 300  # seconds, on a busy machine

Fault = dict[str, Any]  # see injected/sitecustomize.py


def kill_fault(call: str, path: str, whom: str = "everything", nth: int = 1) -> Fault:
    """Return a fault that kills processes with SIGKILL.

    Args:
        call: `replace` (a whole file is moved into place) or `write` (a file is written in place).
        path: Pattern of the file, relative to the project.
        whom: Kind of the processes to kill, as in injected/sitecustomize.py.
        nth: Number of the call with such a file in which the kill happens, from 1.
    """
    return {"call": call, "path": path, "nth": nth, "do": "kill", "whom": whom}


@dataclass(frozen=True)
class RunningCommand:
    """A running command with its child processes.

    Attributes:
        process: Process of the command.
        log: File with the output of all its processes.
        counts_folder: Folder in which the processes count the calls of each fault. Its path is in their environment,
            by which they are found.
    """

    process: subprocess.Popen[bytes]
    log: Path
    counts_folder: Path

    def output(self) -> str:
        """Return the output of all its processes so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, status: int = 0) -> str:
        """Wait for the command, check its exit status, and return the output."""
        try:
            assert self.process.wait(COMMAND_TIMEOUT) == status, self.output()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {COMMAND_TIMEOUT} s:\n{self.output()}") from None
        return self.output()

    def n_faults_reached(self) -> int:
        """Count the faults that have happened."""
        n_reached = 0
        for fault in json.loads((self.counts_folder / "faults.json").read_text()):
            calls = self.counts_folder / fault["name"]  # one byte per call
            if calls.exists() and calls.stat().st_size >= fault.get("nth", 1):
                n_reached += 1
        return n_reached

    def find_processes(self) -> list[psutil.Process]:
        """Return the processes that inherited the environment of the command."""
        readable = [process for process in psutil.process_iter(["environ"]) if process.info["environ"]]
        marker = str(self.counts_folder)
        return [process for process in readable if process.info["environ"].get("FAULTS_COUNTED") == marker]

    def kill_command(self) -> None:
        """Kill the command, but not the processes that it started."""
        self.process.kill()
        self.process.wait()

    def kill(self) -> None:
        """Kill the command and its processes."""
        for process in self.find_processes():
            process.send_signal(signal.SIGKILL)
        self.process.wait()


class SmallProject:
    """A project in its own folder. Tests run its commands and read its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[RunningCommand] = []

    def start(
        self, *command: str, faults: tuple[Fault, ...] = (), server_of: RunningCommand | None = None, **options: Any
    ) -> RunningCommand:
        """Start a command.

        Args:
            command: Module and its arguments.
            faults: Faults to inject.
            server_of: Running Prefect server that faults of the command may kill.
            options: `wrapper` and environment variables of `start_module`.
        """
        counts_folder = server_of.counts_folder if server_of else self.folder / ".faults" / str(len(self.started))
        counts_folder.mkdir(parents=True, exist_ok=True)
        named_faults = [{**fault, "name": str(index)} for index, fault in enumerate(faults)]
        (counts_folder / "faults.json").write_text(json.dumps(named_faults))
        variables = {
            "PYTHONPATH": str(SITECUSTOMIZE_FOLDER),
            "FAULTS": json.dumps(named_faults),
            "FAULTS_COUNTED": str(counts_folder),
        }
        log = self.folder / ".faults" / f"printed.{len(self.started)}"
        process = start_module(self.folder, *command, log=log, **variables, **options)
        running = RunningCommand(process, log, counts_folder)
        self.started.append(running)
        return running

    def run(self, *command: str, faults: tuple[Fault, ...] = (), status: int = 0, **options: Any) -> str:
        """Run a command to its end, check its exit status and that every fault happened; return the output."""
        running = self.start(*command, faults=faults, **options)
        printed = running.wait(status)
        assert running.n_faults_reached() == len(faults), f"not every fault happened:\n{printed}"
        return printed

    def start_paused(self, *command: str, at: str, until: Path) -> RunningCommand:
        """Start a command that pauses before it moves the file `at` into place, until the file `until` exists."""
        running = self.start(*command, faults=({"call": "replace", "path": at, "do": "hold", "file": str(until)},))
        wait_until(running.n_faults_reached)
        return running

    def kill_all(self) -> None:
        """Kill all commands and their processes."""
        for running in self.started:
            running.kill()

    def result_digests(self) -> dict[str, str]:
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
            with suppress(ValueError):  # the file is incomplete
                json.loads(file.read_bytes())
                times[file.name] = file.stat().st_mtime_ns
        return times

    def flow_states(self) -> list[str]:
        """Return the recorded state of every flow run."""
        with closing(sqlite3.connect(self.folder / ".prefect/prefect.db")) as connection:
            return [state for (state,) in connection.execute("select state_type from flow_run")]
