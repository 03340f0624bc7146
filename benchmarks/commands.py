"""A copy of the project for benchmarks. Each of its commands runs in a new process."""

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tests.project_copy import copy_project, run_module


@dataclass(frozen=True)
class Duration:
    """Duration of commands with all their processes."""

    seconds: float
    cpu: float  # seconds of all cores together


class ProjectCopy:
    """A copy of the project, and the commands that benchmarks run in it.

    Attributes:
        folder: Folder of the copy.
    """

    def __init__(self, folder: Path, change: Callable[[dict[str, Any]], object], *, server: bool = True) -> None:
        """Copy the project.

        Args:
            folder: Folder of the copy; it is created if it does not exist.
            change: Function that edits the content of params.yaml in place.
            server: Whether to create the database of the Prefect server, which `refresh` needs.
        """
        folder.mkdir(parents=True, exist_ok=True)
        copy_project(folder, change)
        self.folder = folder
        (folder / ".prefect").mkdir()
        if server:
            run_module(folder, "prefect", "server", "database", "upgrade", "-y")  # as `make setup` does

    def refresh(self) -> None:
        """Run what `make repro` runs."""
        run_module(self.folder, "flows.refresh")

    def refresh_without_orchestration(self) -> None:
        """Compute the results of `refresh` with function calls in one process, without DVC and Prefect runs."""
        run_module(self.folder, "bare", PYTHONPATH=f"{self.folder}{os.pathsep}{Path(__file__).parent}")

    def measure(self, call: Callable[[], object]) -> Duration:
        """Measure the duration of a call that runs commands of the copy."""
        start = time.perf_counter()
        cpu = _cpu_seconds()
        call()
        return Duration(time.perf_counter() - start, _cpu_seconds() - cpu)

    def metrics(self, dataset: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "data/runs" / dataset / "metrics.parquet")


def _cpu_seconds() -> float:
    """Return the CPU seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
