"""Run tests in processes that are forked from one that has imported the large libraries already.

The parent imports numpy, polars, torch and the like once, but nothing of the project. Each child imports the project
afresh, with the mutant in it, so that a run costs a second and not ten.
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

Job = TypeVar("Job")

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
MAX_BYTES = 8 * 2**30  # private memory of a child; a mutant may ask for any amount
STARTUP_SECONDS = 90.0


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
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those of other packages take seconds to import
    sys.dont_write_bytecode = True
    sys.path = [str(copy), *(entry for entry in sys.path if entry not in {"", root})]
    for name in list(sys.modules):
        if name.split(".")[0] in {"relmap", "tasks", "flows", "tests"}:
            del sys.modules[name]


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        result: The object that the child sent last, None if it ended without one.
        timed_out: Whether it ran past its limit and was killed.
        at: What the child was doing at its end, as far as it said.
    """

    result: object
    timed_out: bool
    at: str


class Child:
    """A forked process that announces its steps, each with a time limit, and sends a result."""

    def __init__(self, work: Callable[[Callable[[str, float], None]], object]) -> None:
        """Fork.

        Args:
            work: Function that the child calls. Its argument announces a step and the seconds that it may take. Its
                value is the result.
        """
        context = get_context("fork")
        self.connection, other = context.Pipe(duplex=False)
        self._process = context.Process(target=_work_and_send, args=(work, other))
        self._process.start()
        other.close()
        self._step = "start"
        self.deadline = time.monotonic() + STARTUP_SECONDS

    def advance(self) -> Ended | None:
        """Read what the child sent; returns how it ended, or None while it runs."""
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if message[0] == "result":
                    return self._end(Ended(message[1], timed_out=False, at=self._step))
                _, self._step, seconds = message
                self.deadline = time.monotonic() + seconds
        except EOFError:
            return self._end(Ended(None, timed_out=False, at=self._step))
        if time.monotonic() > self.deadline:
            return self._end(Ended(None, timed_out=True, at=self._step))
        return None

    def _end(self, ended: Ended) -> Ended:
        self.kill()
        return ended

    def kill(self) -> None:
        """Kill the child and all that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.kill()
        self._process.join()
        self.connection.close()


def _work_and_send(work: Callable[[Callable[[str, float], None]], object], connection: Connection) -> None:
    result = work(lambda step, seconds: connection.send(("step", step, seconds)))
    connection.send(("result", result))
    os._exit(0)  # no clean-up of the parent's libraries


def run_parallel(jobs: Iterator[Job], start: Callable[[Job, int], Child], workers: int) -> Iterator[tuple[Job, Ended]]:
    """Run jobs in children, several at a time.

    Args:
        jobs: The jobs.
        start: Function that starts a job in the worker of the given number.
        workers: Number of children at a time.

    Yields:
        Each job and how its child ended, in order of completion.
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
                ended = child.advance()
                if ended is not None:
                    del running[worker]
                    yield job, ended
    finally:
        for _, child in running.values():
            child.kill()
