"""A copy of the project whose commands the benchmarks run, each in a process of its own."""

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from tasks.records.store import read_json
from tests.project_copy import copy_project, run_module


@dataclass(frozen=True)
class Duration:
    """Duration of commands with all their processes."""

    seconds: float
    cpu: float  # seconds of all cores together


class Copy:
    """A copy of the project with its commands."""

    def __init__(self, folder: Path, change: Callable[[dict[str, Any]], object], *, server: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        copy_project(folder, change)
        self.folder = folder
        (folder / ".prefect").mkdir()
        if server:
            run_module(folder, "prefect", "server", "database", "upgrade", "-y")  # as `make setup` does

    def refresh(self) -> None:
        """Run what `make repro` runs."""
        run_module(self.folder, "flows.refresh")

    def bare(self) -> None:
        """Compute the same with plain function calls in one process."""
        run_module(self.folder, "bare", PYTHONPATH=f"{self.folder}{os.pathsep}{Path(__file__).parent}")

    def measure(self, call: Callable[[], object]) -> Duration:
        """Measure a function that runs commands."""
        start = time.perf_counter()
        cpu = _cpu()
        call()
        return Duration(time.perf_counter() - start, _cpu() - cpu)

    def stage_seconds(self) -> dict[str, float]:
        """Return the seconds of the last run of each stage, without the start of its process."""
        records = (read_json(path) for path in sorted((self.folder / "data/.state/stages").glob("*.json")))
        seconds = {}
        for record in records:
            started = datetime.fromisoformat(record["started"])
            ended = datetime.fromisoformat(record["ended"])
            seconds[record["stage"]] = (ended - started).total_seconds()
        return seconds

    def metrics(self, dataset: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "data/runs" / dataset / "metrics.parquet")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
