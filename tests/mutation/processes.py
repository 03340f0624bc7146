"""Run tests in processes that are forked from one that has imported the large libraries already.

The parent imports numpy, polars, torch and the like once, but nothing of the project. Each child imports the project
again, with the mutant, so that a run takes one second instead of ten.
"""

import atexit
import gc
import importlib
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

import psutil

Job = TypeVar("Job")
Announce = Callable[[str, float], None]  # a child calls it with its next step and the seconds that the step may take

PRELOADED = (
    "hypothesis",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.base",
    "sklearn.linear_model",
    "polars",
    "pyarrow.parquet",
    "pyarrow.csv",
    "pandas",
    "pydantic",
    "typer.testing",
    "rich.console",
    "torch",
    "altair",
    "sqlglot",
    "duckdb",
    "jinja2",
    "jsonschema",
    "great_expectations",
    "lightgbm",
    "yaml",
)
MAX_BYTES = 16 * 2**30  # limit of the private memory of a child, because a mutant can allocate any amount
START = "start"
STARTUP_SECONDS = 90.0
MAX_SLOWDOWN = 10  # on a busy machine, a step may take this many times its seconds


def preload() -> None:
    """Import the large libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOADED:
            importlib.import_module(name)
    gc.freeze()  # so that children do not search these objects for garbage
    atexit.register(gc.unfreeze)  # extension modules report frozen objects as leaks


def enter_copy(copy: Path, log: Path) -> None:
    """Make this process, a child, work in a copy of the project and write its output to a file.

    Args:
        copy: Folder of the copy.
        log: File for standard output and standard error.
    """
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    root = str(Path.cwd())
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins of other packages take seconds to import
    sys.dont_write_bytecode = True
    sys.path = [str(copy), *(entry for entry in sys.path if entry not in {"", root})]
    for name in list(sys.modules):
        if name.split(".")[0] in {"relmap", "tasks", "flows", "tests"}:
            del sys.modules[name]


@dataclass(frozen=True)
class ChildOutcome:
    """Result of a child that has ended, or the reason why there is none.

    Attributes:
        result: The object that the child sent last; None if it ended without one.
        timed_out: Whether it ran past its limit and was killed.
        last_step: The step that the child announced last.
    """

    result: object
    timed_out: bool
    last_step: str


class Child:
    """A forked process that announces its steps, each with a time limit, and sends a result."""

    def __init__(self, work: Callable[[Announce], object]) -> None:
        """Fork a process.

        Args:
            work: Function that the child calls. It receives a function to announce its steps, and returns the result.
        """
        context = get_context("fork")
        self.connection, other = context.Pipe(duplex=False)
        self._process = context.Process(target=_work_and_send, args=(work, other))
        self._process.start()
        other.close()
        self._begin(START, STARTUP_SECONDS)

    def advance(self) -> ChildOutcome | None:
        """Read the messages of the child. Return its outcome, or None while it runs."""
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if message[0] == "result":
                    return self._end(ChildOutcome(message[1], timed_out=False, last_step=self._step))
                _, step, seconds = message
                self._begin(step, seconds)
        except EOFError:
            return self._end(ChildOutcome(None, timed_out=False, last_step=self._step))
        if time.monotonic() <= self.deadline:
            return None
        seconds_used = self._processor_seconds() - self._processor_seconds_before
        seconds_left = self._seconds - seconds_used
        if seconds_left > 0 and self.deadline < self._last_deadline:
            self.deadline = min(time.monotonic() + max(seconds_left, 1.0), self._last_deadline)
            return None
        return self._end(ChildOutcome(None, timed_out=True, last_step=self._step))

    def _begin(self, step: str, seconds: float) -> None:
        """Start the time limit of a step.

        After `seconds`, the child is killed, unless it has used less processor time than that. Then it gets more time,
        up to MAX_SLOWDOWN times `seconds`.
        """
        self._step = step
        self._seconds = seconds
        self._processor_seconds_before = self._processor_seconds()
        self.deadline = time.monotonic() + seconds
        self._last_deadline = time.monotonic() + MAX_SLOWDOWN * seconds

    def _processor_seconds(self) -> float:
        """Return the processor time that the child has used."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return times.user + times.system

    def _end(self, outcome: ChildOutcome) -> ChildOutcome:
        self.kill()
        return outcome

    def kill(self) -> None:
        """Kill the child and all that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.kill()
        self._process.join()
        self.connection.close()


def _work_and_send(work: Callable[[Announce], object], connection: Connection) -> None:
    result = work(lambda step, seconds: connection.send(("step", step, seconds)))
    connection.send(("result", result))
    os._exit(0)  # without the clean-up of libraries, which is up to the parent


def run_parallel(
    jobs: Iterator[Job], start: Callable[[Job, int], Child], workers: int
) -> Iterator[tuple[Job, ChildOutcome]]:
    """Run jobs in children, several at a time.

    Args:
        jobs: The jobs.
        start: Function that starts a job in the worker of the given number.
        workers: Number of children at a time.

    Yields:
        Each job and the outcome of its child, in order of completion.
    """
    running: dict[int, tuple[Job, Child]] = {}
    waiting = iter(jobs)
    exhausted = False
    try:
        while True:
            while not exhausted and len(running) < workers:
                try:
                    job = next(waiting)
                except StopIteration:
                    exhausted = True
                    break
                worker = min(set(range(workers)) - running.keys())
                running[worker] = (job, start(job, worker))
            if not running:
                return
            seconds = min(child.deadline for _, child in running.values()) - time.monotonic()
            wait([child.connection for _, child in running.values()], timeout=max(seconds, 0.0))
            for worker, (job, child) in list(running.items()):
                outcome = child.advance()
                if outcome is not None:
                    del running[worker]
                    yield job, outcome
    finally:
        for _, child in running.values():
            child.kill()
