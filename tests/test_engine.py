"""The engine: threads unless params.yaml says otherwise, and Dask only where it would compute the same."""

from __future__ import annotations

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import ThreadPoolTaskRunner

from flows import engine
from tasks.protocol.errors import BadInput
from tasks.protocol.params import Params

ROOT = Path(__file__).resolve().parent.parent
SERVER = "http://127.0.0.1:9/api"  # never asked, but by a worker


def with_engine(**sections: object) -> Params:
    """params.yaml with other sections."""
    return Params.model_validate(yaml.safe_load((ROOT / "params.yaml").read_text()) | sections)


@pytest.fixture
def dask(monkeypatch):
    """Stand-ins for Dask, which `make test` does not need: a runner that keeps what it was made with."""
    prefect_dask = ModuleType("prefect_dask")
    prefect_dask.DaskTaskRunner = lambda **given: given
    monkeypatch.setitem(sys.modules, "prefect_dask", prefect_dask)


@pytest.fixture
def loaded_code(monkeypatch):
    """As a worker that was started in the project's folder, after the last change."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(engine.psutil, "Process", lambda: Started(time.time()))


class Started:
    """A process that was started at a time."""

    def __init__(self, at: float) -> None:
        self.at = at

    def create_time(self) -> float:
        return self.at


def test_threads_are_what_params_yaml_says():
    runner = engine.task_runner(with_engine())
    assert isinstance(runner, ThreadPoolTaskRunner)


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "ray"},
        {"dask": {"address": "127.0.0.1:8786", "workers": 2}},
        {"dask": {"address": "http://127.0.0.1:8786", "workers": 2}},
        {"dask": {"address": "tcp://127.0.0.1", "workers": 2}},
        {"dask": {"address": None, "workers": 0}},
        {"dask": {"address": None, "worker": 2}},
    ],
)
def test_an_engine_that_there_is_not_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        with_engine(**wrong)


def test_without_dask_it_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prefect_dask", None)
    with pytest.raises(BadInput, match=r"pip install -c constraints\.txt -e '\.\[dask\]'"):
        engine.task_runner(with_engine(engine="dask"))


def test_without_a_server_dask_is_refused(dask):
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(BadInput, match="no Prefect server"):
        engine.task_runner(with_engine(engine="dask"))


def test_workers_of_its_own_are_processes_of_one_thread_that_no_other_machine_can_reach(dask):
    with temporary_settings({PREFECT_API_URL: SERVER}):
        made = engine.task_runner(with_engine(engine="dask", dask={"address": None, "workers": 3}))
    cluster = made["cluster_kwargs"]
    assert (cluster["n_workers"], cluster["threads_per_worker"]) == (3, 1)
    assert cluster["host"] == "127.0.0.1"
    assert cluster["dashboard_address"].startswith("127.0.0.1:")


def answering(monkeypatch, yes: bool = True) -> None:
    monkeypatch.setattr(engine, "answers", lambda _url: yes)


def test_a_worker_with_the_same_code_and_versions_and_a_server_has_no_fault(loaded_code, monkeypatch):
    answering(monkeypatch)
    assert engine.unlike(engine.code(), engine.versions(), SERVER) == []


def test_the_code_that_a_worker_may_run_is_all_of_the_flow(loaded_code):
    assert {"flows/reliability.py", "flows/engine.py", "tasks/calibrate.py", "tasks/projection/lattice.py"} <= set(
        engine.code()
    )


@pytest.mark.parametrize("file", ["tasks/project.py", "tasks/that_it_lacks.py"])
def test_a_worker_with_other_code_says_which(loaded_code, monkeypatch, file):
    answering(monkeypatch)
    assert engine.unlike(engine.code() | {file: "0" * 64}, engine.versions(), SERVER) == [f"other code in {file}"]


def test_a_worker_with_other_versions_says_which(loaded_code, monkeypatch):
    answering(monkeypatch)
    (told,) = engine.unlike(engine.code(), engine.versions() | {"numpy": "1.0"}, SERVER)
    assert told == f"other versions: numpy {version('numpy')} for 1.0"


def test_a_worker_that_no_server_answers_says_so(loaded_code, monkeypatch):
    answering(monkeypatch, yes=False)
    assert engine.unlike(engine.code(), engine.versions(), SERVER) == [f"no Prefect server answers it at {SERVER}"]


def test_a_worker_that_holds_the_code_of_yesterday_says_so(tmp_path, monkeypatch):
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/reliability.py").write_text("import flows.engine\n")
    (tmp_path / "flows/engine.py").write_text("\n")
    monkeypatch.chdir(tmp_path)
    answering(monkeypatch)
    monkeypatch.setattr(engine.psutil, "Process", lambda: Started(time.time() - 60))
    os.utime("flows/engine.py", (0, 0))  # as a copy that keeps its date
    told = engine.unlike(engine.code(), engine.versions(), SERVER)
    assert told == ["it started before a change of flows/engine.py, flows/reliability.py"]


def test_a_worker_that_cannot_say_how_it_is_is_told_with_the_reason():
    (told,) = engine.in_words(ModuleNotFoundError("No module named 'flows'"))
    assert "project's folder" in told
    assert "No module named 'flows'" in told
