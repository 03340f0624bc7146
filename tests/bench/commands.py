"""A copy of the project whose commands the benchmarks run, each a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from tasks.protocol.store import read_json
from tests.project_copy import copy_project


@dataclass(frozen=True)
class Took:
    """What commands took, with all the processes that they started and waited for."""

    seconds: float
    cpu: float  # seconds of all cores together


class Copy:
    """A copy of the project, and how its commands run."""

    def __init__(self, folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        copy_project(folder, change)
        self.folder = folder
        self.run("-m", "dvc", "init", "-q", "--no-scm")
        (folder / ".prefect").mkdir()
        self.run("-m", "prefect", "server", "database", "upgrade", "-y")  # as `make setup` does

    def run(self, *command: str) -> str:
        paths = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
        }
        known = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=known | paths,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refresh(self) -> None:
        """What `make repro` runs."""
        self.run("-m", "flows.refresh")

    def bare(self) -> None:
        """The same as plain function calls in one process."""
        self.run(str(Path(__file__).with_name("bare.py")))

    def took(self, call: Callable[[], object]) -> Took:
        """Time what runs commands."""
        start, cpu = time.perf_counter(), _cpu()
        call()
        return Took(time.perf_counter() - start, _cpu() - cpu)

    def edit(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change params.yaml."""
        path = self.folder / "params.yaml"
        params = yaml.safe_load(path.read_text())
        change(params)
        path.write_text(yaml.safe_dump(params, sort_keys=False))

    def stage_seconds(self) -> dict[str, float]:
        """What each stage took when it ran last, without the start of its process."""
        records = (read_json(path) for path in sorted((self.folder / "data/.state/stages").glob("*.json")))
        ran = {one["stage"]: [datetime.fromisoformat(one[end]) for end in ("started", "ended")] for one in records}
        return {name: (ended - started).total_seconds() for name, (started, ended) in ran.items()}

    def metrics(self, dataset: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "data/runs" / dataset / "metrics.parquet")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
