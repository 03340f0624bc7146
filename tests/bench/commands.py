"""A copy of the project whose commands the benchmarks run, each a process of its own."""

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
class Took:
    """What commands took, with all the processes that they started and waited for."""

    seconds: float
    cpu: float  # seconds of all cores together


class Copy:
    """A copy of the project, and how its commands run."""

    def __init__(self, folder: Path, change: Callable[[dict[str, Any]], object], *, server: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        copy_project(folder, change)
        self.folder = folder
        (folder / ".prefect").mkdir()
        if server:
            run_module(folder, "prefect", "server", "database", "upgrade", "-y")  # as `make setup` does

    def refresh(self) -> None:
        """What `make repro` runs."""
        run_module(self.folder, "flows.refresh")

    def bare(self) -> None:
        """The same as plain function calls in one process."""
        run_module(self.folder, "bare", PYTHONPATH=f"{self.folder}{os.pathsep}{Path(__file__).parent}")

    def took(self, call: Callable[[], object]) -> Took:
        """Time what runs commands."""
        start, cpu = time.perf_counter(), _cpu()
        call()
        return Took(time.perf_counter() - start, _cpu() - cpu)

    def stage_seconds(self) -> dict[str, float]:
        """What each stage took when it ran last, without the start of its process."""
        records = (read_json(path) for path in sorted((self.folder / "data/.state/stages").glob("*.json")))
        ran = {each["stage"]: [datetime.fromisoformat(each[end]) for end in ("started", "ended")] for each in records}
        return {name: (ended - started).total_seconds() for name, (started, ended) in ran.items()}

    def metrics(self, dataset: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "data/runs" / dataset / "metrics.parquet")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
