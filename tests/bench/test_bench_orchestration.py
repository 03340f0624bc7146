"""What DVC and Prefect cost, beside the same functions called bare: commands in a copy of the project with two sets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from tests.project_copy import copy_project

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parent.parent.parent
TASKS = 300
FLOW = f"""
import sys, time
import flows
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

@task(cache_policy=NO_CACHE)
def nothing(x): return x

@flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def many(n): return [one.result() for one in [nothing.submit(x) for x in range(n)]]

many(1)
start = time.perf_counter(); many(1); empty = time.perf_counter() - start
start = time.perf_counter(); many({TASKS}); full = time.perf_counter() - start
print((full - empty) / {TASKS - 1})
"""


class Copy:
    """A copy of the project, and how its commands run: with a server of its own for each, or with one for all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: str | None = None

    def run(self, *command: str, **environment: str) -> str:
        paths = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
        }
        known = {name: value for name, value in os.environ.items() if "PREFECT" not in name}
        served = {"PREFECT_API_URL": self.server} if self.server else {}
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=known | paths | served | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def again(self, dataset: str) -> None:
        """Its stage by itself, with every fit made anew."""
        self.run("-m", "flows.reliability", dataset, PREFECT_TASKS_REFRESH_CACHE="true")

    def bare(self, dataset: str) -> None:
        self.run(str(Path(__file__).with_name("bare.py")), dataset)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Copy:
    """With twins of wands and scidocs at half the size, and without slow calibrators; brought up to date once."""
    folder = tmp_path_factory.mktemp("project")

    def change(params: dict[str, Any]) -> None:
        params["datasets"] = {name: params["datasets"][name] | {"rows": 5000} for name in ("wands", "scidocs")}
        params["calibrators"], params["sensitivity"]["calibrators"] = ["uncal", "ts", "diag", "spline"], []

    copy_project(folder, change)
    made = Copy(folder)
    made.run("-m", "dvc", "init", "-q", "--no-scm")
    made.run("-m", "flows.refresh")
    return made


@pytest.fixture
def served(copy) -> Iterator[Copy]:
    """The same with one server for all commands."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"PREFECT_HOME": str(copy.folder / ".prefect")}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    with (copy.folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=copy.folder, env=environment, stdout=log, stderr=log)
    copy.server = f"http://127.0.0.1:{port}/api"
    for _ in range(600):
        time.sleep(0.2)
        try:
            urllib.request.urlopen(f"{copy.server}/health", timeout=1).close()
            break
        except OSError:
            continue
    yield copy
    process.terminate()
    process.wait()
    copy.server = None


def same_metrics(copy: Copy) -> bool:
    return pl.read_parquet(copy.folder / "bare/wands/metrics.parquet").equals(
        pl.read_parquet(copy.folder / "data/runs/wands/metrics.parquet")
    )


def test_one_stage_with_a_server_of_its_own(race, copy):
    race.beside("the same functions, bare, in one process", lambda: copy.bare("wands"))
    race.run("flows.reliability wands", 5000, lambda: copy.again("wands"), rounds=1, warm_up=False)
    assert same_metrics(copy)


def test_one_stage_beside_a_running_server(race, served):
    race.beside("the same functions, bare, in one process", lambda: served.bare("wands"))
    race.run("flows.reliability wands, server running", 5000, lambda: served.again("wands"), rounds=1, warm_up=False)
    assert same_metrics(served)


def test_a_task(race, served):
    seconds = float(served.run("-c", FLOW))
    race.beside(f"one task of {TASKS}: {1000 * seconds:.1f} ms; a second", lambda: time.sleep(1))
    race.run("a flow of tasks that do nothing", TASKS, lambda: served.run("-c", FLOW), rounds=1, warm_up=False)


def test_nothing_to_do(race, copy):
    race.beside("starting DVC", lambda: copy.run("-m", "dvc", "--version"))
    race.run("dvc repro, nothing changed", 7, lambda: copy.run("-m", "dvc", "repro"), rounds=3)


def test_one_data_set_changed(race, copy):
    seeds = iter(range(1, 100))

    def change() -> None:
        params = yaml.safe_load((copy.folder / "params.yaml").read_text())
        params["datasets"]["wands"]["seed"] = next(seeds)
        (copy.folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
        copy.run("-m", "flows.refresh")

    def bare() -> None:
        copy.run("-c", "from tasks import download, train; download.main('wands'); train.main('wands')")
        copy.bare("wands")
        copy.run(
            "-c",
            "from flows.report import *; from tasks.report import *; "
            "runs = gather.fn(['wands', 'scidocs'], [], load_params().calibrators); "
            "[TABLES[name](runs) for name in TABLES]",
        )

    race.beside("the same functions, bare, in three processes", bare)
    race.run("flows.refresh, one of two sets changed", 5000, change, rounds=1, warm_up=False)
