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

from tests.project_copy import start_module
from tests.system.browser import wait_until

SITECUSTOMIZE_FOLDER = Path(__file__).resolve().parent / "injected"
OUTPUT_FOLDERS = ("raw", "base", "runs", "report", "manifests")  # the folders under data/ that stages write
MAX_SECONDS = 300  # of one command on a busy machine

Fault = dict[str, Any]  # see injected/sitecustomize.py


def kill_fault(call: str, path: str, whom: str = "everything", nth: int = 1) -> Fault:
    """Make a fault that sends SIGKILL to `whom` inside the `nth` call of `call` on `path`."""
    return {"call": call, "path": path, "nth": nth, "do": "kill", "whom": whom}


@dataclass(frozen=True)
class RunningCommand:
    """A started command and all processes that it started.

    Attributes:
        process: Process of the command.
        log: File of the output of all processes.
        counts_folder: Holds the number of calls of each fault; its path in their environment identifies the processes.
    """

    process: subprocess.Popen[bytes]
    log: Path
    counts_folder: Path

    def output(self) -> str:
        """Return what the processes have printed until now."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, status: int = 0) -> str:
        """Wait until the command ends, which must be with `status`, and return its output."""
        try:
            assert self.process.wait(MAX_SECONDS) == status, self.output()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {MAX_SECONDS} s:\n{self.output()}") from None
        return self.output()

    def count_reached_faults(self) -> int:
        """Return the number of faults that have happened."""
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
        """Kill all processes."""
        for process in self.find_processes():
            process.send_signal(signal.SIGKILL)
        self.process.wait()


class SmallProject:
    """A project in its own folder, used by its commands and files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[RunningCommand] = []

    def start(
        self, *command: str, faults: tuple[Fault, ...] = (), server: RunningCommand | None = None, **options: Any
    ) -> RunningCommand:
        """Start `python -m command` under faults.

        Args:
            command: Module and its arguments.
            faults: Faults in the processes of the command.
            server: A running server that faults may kill, too.
            options: Further arguments of `start_module`.
        """
        number = str(len(self.started))
        counts_folder = server.counts_folder if server else self.folder / ".faults" / number
        counts_folder.mkdir(parents=True, exist_ok=True)
        named_faults = [{**fault, "name": str(index)} for index, fault in enumerate(faults)]
        (counts_folder / "faults.json").write_text(json.dumps(named_faults))
        variables = {
            "PYTHONPATH": str(SITECUSTOMIZE_FOLDER),
            "FAULTS": json.dumps(named_faults),
            "FAULTS_COUNTED": str(counts_folder),
        }
        log = self.folder / ".faults" / f"printed.{number}"
        process = start_module(self.folder, *command, log=log, **variables, **options)
        running = RunningCommand(process, log, counts_folder)
        self.started.append(running)
        return running

    def run(self, *command: str, faults: tuple[Fault, ...] = (), status: int = 0, **options: Any) -> str:
        """Run a command, which must reach every fault and end with `status`, and return its output."""
        running = self.start(*command, faults=faults, **options)
        output = running.wait(status)
        assert running.count_reached_faults() == len(faults), f"not every fault was reached:\n{output}"
        return output

    def start_paused(self, *command: str, at: str, until: Path) -> RunningCommand:
        """Start a command and pause it before it moves the file `at` into place, until the file `until` exists."""
        running = self.start(*command, faults=({"call": "replace", "path": at, "do": "hold", "to": str(until)},))
        wait_until(running.count_reached_faults)
        return running

    def kill_all(self) -> None:
        """Kill all processes of all commands."""
        for running in self.started:
            running.kill()

    def result_digests(self) -> dict[str, str]:
        """Return the SHA-256 of every file that stages wrote, by its path."""
        digests = {}
        for name in OUTPUT_FOLDERS:
            for file in (self.folder / "data" / name).rglob("*"):
                if file.is_file():
                    path = file.relative_to(self.folder).as_posix()
                    digests[path] = hashlib.sha256(file.read_bytes()).hexdigest()
        return digests

    def cached_fits(self) -> dict[str, int]:
        """Return when each complete calibrator fit in the cache was written, in nanoseconds."""
        times = {}
        for file in (self.folder / ".prefect/storage").glob("*"):
            with suppress(ValueError):
                json.loads(file.read_bytes())
                times[file.name] = file.stat().st_mtime_ns
        return times

    def flow_states(self) -> list[str]:
        """Return the recorded state of every flow run in Prefect's database."""
        with closing(sqlite3.connect(self.folder / ".prefect/prefect.db")) as database:
            return [state for (state,) in database.execute("select state_type from flow_run")]
