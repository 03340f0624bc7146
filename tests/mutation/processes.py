"""Run tests in processes that are forked from one that has imported the large libraries already.

The parent imports numpy, polars, torch and the like once, so that a run takes one second instead of ten. Each child
imports the project itself, with the mutant.
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
Announce = Callable[[str, float], None]  # a child calls it with the name of its next step and its time limit in seconds

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
START = "start"  # step of a child before it announces one
STARTUP_SECONDS = 90.0  # time limit of this step
MAX_SLOWDOWN = 10  # on a busy machine, a step may take its time limit multiplied by this number


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

    The process limits its memory, and forgets modules of the project that are imported already.

    Args:
        copy: Folder of the copy.
        log: File for standard output and standard error.
    """
    os.setsid()  # starts a process group, which `Child.kill` ends with all processes that tests started
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
        result: The object that the child sent; None if it ended without sending one.
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
        self.connection, end_of_child = context.Pipe(duplex=False)
        self._process = context.Process(target=_work_and_send, args=(work, end_of_child))
        self._process.start()
        end_of_child.close()
        self._begin(START, STARTUP_SECONDS)

    def poll(self) -> ChildOutcome | None:
        """Read the messages of the child, and kill it if its step is past the time limit.

        Returns:
            The outcome of the child; None while it runs.
        """
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
        if self.deadline >= self._last_deadline:
            return self._end(ChildOutcome(None, timed_out=True, last_step=self._step))
        processor_seconds_left = self._seconds - (self._processor_seconds() - self._processor_seconds_before)
        if processor_seconds_left <= 0:
            return self._end(ChildOutcome(None, timed_out=True, last_step=self._step))
        self.deadline = min(time.monotonic() + max(processor_seconds_left, 1.0), self._last_deadline)
        return None

    def _begin(self, step: str, seconds: float) -> None:
        """Start the time limit of a step.

        The limit is `seconds` of processor time, because other processes can delay the child. Processor time is first
        checked after `seconds` of elapsed time. After MAX_SLOWDOWN * `seconds` of elapsed time, the child is killed in
        any case, because it may be waiting forever.
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
        except ProcessLookupError:  # it has ended, or has not called `enter_copy`, which starts the group
            self._process.kill()
        self._process.join()
        self.connection.close()


def _work_and_send(work: Callable[[Announce], object], connection: Connection) -> None:
    result = work(lambda step, seconds: connection.send(("step", step, seconds)))
    connection.send(("result", result))
    os._exit(0)  # skips exit handlers of libraries, which only the parent must run


def run_parallel(
    jobs: Iterator[Job], start: Callable[[Job, int], Child], workers: int
) -> Iterator[tuple[Job, ChildOutcome]]:
    """Run jobs in children, several at a time.

    Args:
        jobs: The jobs.
        start: Function that starts a child for a job. Its second argument is a number from 0 to `workers` - 1 that no
            other running child has; the child may use the copy of the project with this number.
        workers: Maximum number of children at a time.

    Yields:
        Each job and the outcome of its child, in order of completion.
    """
    running: dict[int, tuple[Job, Child]] = {}
    exhausted = False
    try:
        while True:
            while not exhausted and len(running) < workers:
                try:
                    job = next(jobs)
                except StopIteration:
                    exhausted = True
                    break
                worker = min(set(range(workers)) - running.keys())
                running[worker] = (job, start(job, worker))
            if not running:
                return
            seconds_to_deadline = min(child.deadline for _, child in running.values()) - time.monotonic()
            wait([child.connection for _, child in running.values()], timeout=max(seconds_to_deadline, 0.0))
            for worker, (job, child) in list(running.items()):
                outcome = child.poll()
                if outcome is not None:
                    del running[worker]
                    yield job, outcome
    finally:
        for _, child in running.values():
            child.kill()
