"""Task runners, and errors of tasks."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
import yaml
from prefect import Task
from prefect.settings import PREFECT_API_URL, temporary_settings
from pydantic import ValidationError

from flows import engine
from flows.engine import task_result
from relmap.errors import InputError
from tasks.calibrate import calibrate
from tasks.expectations.check import GateFailed
from tasks.records.errors import RunFailed
from tasks.settings.params import Params

ROOT = Path(__file__).resolve().parents[2]
SERVER = "http://127.0.0.1:9/api"  # only workers use it


def with_engine(**sections: object) -> Params:
    return Params.model_validate(yaml.safe_load((ROOT / "params.yaml").read_text()) | sections)


@pytest.fixture
def dask(monkeypatch):
    """Replace Dask, which `make test` does not install, by a runner that returns its arguments; return its settings."""
    settings: dict[str, object] = {}
    security = SimpleNamespace(temporary=lambda: "a certificate")
    monkeypatch.setitem(sys.modules, "dask", SimpleNamespace(config=SimpleNamespace(set=settings.update)))
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Security=security))
    monkeypatch.setitem(sys.modules, "prefect_dask", SimpleNamespace(DaskTaskRunner=lambda **given: given))
    return settings


def test_missing_dask_or_server_is_reported_with_a_remedy(monkeypatch, dask):
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(InputError, match="no Prefect server"):
        engine.create_task_runner(with_engine(engine="dask"))
    monkeypatch.setitem(sys.modules, "prefect_dask", None)
    with pytest.raises(InputError, match=r"pip install -c constraints\.txt -e '\.\[dask\]'"):
        engine.create_task_runner(with_engine(engine="dask"))


def test_a_run_without_a_scheduler_address_uses_a_private_cluster(dask):
    with temporary_settings({PREFECT_API_URL: SERVER}):
        arguments = engine.create_task_runner(with_engine(engine="dask", dask={"address": None, "workers": 3}))
    cluster = arguments["cluster_kwargs"]
    assert (cluster["n_workers"], cluster["protocol"], cluster["security"]) == (3, "tls", "a certificate")
    assert cluster["dashboard_address"] is None
    assert dask.pop("temporary-directory") == cluster["local_directory"] == str((engine.STATE / "dask").absolute())
    assert dask == {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


CERTIFICATES = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}


@pytest.mark.parametrize(
    ("dask", "reason"),
    [
        (
            {"address": "tcp://10.0.0.5:8786"},
            r"tcp://10\.0\.0\.5:8786 .*tls://.*dask\.tls.*dask\.allow_unencrypted: true",
        ),
        (
            {"address": "tcp://10.0.0.5:8786", "tls": CERTIFICATES, "allow_unencrypted": True},
            r"tls://.*dask\.tls.*\bboth",
        ),
        ({"address": "tls://10.0.0.5:8786"}, r"tls://.*dask\.tls.*\bboth"),
        ({"address": None, "tls": CERTIFICATES}, r"tls://.*dask\.tls.*\bboth"),
    ],
)
def test_a_scheduler_without_authentication_is_rejected(dask, reason):
    with pytest.raises(ValidationError, match=reason):
        with_engine(engine="dask", dask={"workers": 2} | dask)


def test_an_unencrypted_scheduler_is_accepted_if_allowed():
    dask = {"address": "tcp://10.0.0.5:8786", "workers": 2, "allow_unencrypted": True}
    assert with_engine(engine="dask", dask=dask).dask.allow_unencrypted


def test_a_missing_certificate_file_is_named():
    pytest.importorskip("distributed")
    dask = {"address": "tls://10.0.0.5:8786", "workers": 2, "tls": CERTIFICATES}
    with pytest.raises(InputError, match=r"dask\.tls\.ca_file .*params\.yaml .*ca\.pem"):
        engine.scheduler_security(with_engine(engine="dask", dask=dask).dask)


def finished_future(result: Any) -> Any:
    """Return a future with a result."""
    return SimpleNamespace(task_run_id="1234", result=lambda *, raise_on_failure: raise_on_failure or result)


def tasks_of_the_pipeline() -> Iterator[Task]:
    for file in (ROOT / "tasks").glob("*.py"):
        module = import_module(f"tasks.{file.stem}" if file.stem != "__init__" else "tasks")
        for value in vars(module).values():
            if isinstance(value, Task) and value.fn.__module__ == module.__name__:
                yield value


def test_every_task_can_be_sent_to_another_process():
    names = set()
    for task in tasks_of_the_pipeline():
        received = cloudpickle.loads(cloudpickle.dumps(task))  # as Dask does
        assert received.fn.__qualname__ == task.fn.__qualname__
        names.add(task.name)
    assert {"check_inputs", "calibrate", "project", "measure", "write_runs"} <= names


def test_a_failed_task_is_reported_with_its_description_and_run():
    task = "wands, fits, ts, seed 2"
    assert task_result(finished_future([1, 2]), task) == [1, 2]
    with pytest.raises(RunFailed, match=rf"^{task}, .*ZeroDivisionError: zero .*1234\)$"):
        task_result(finished_future(ZeroDivisionError("zero")), task)
    for own in (GateFailed("gate `x` is closed for dataset wands, seed 2"), InputError("row 3 is bad")):
        with pytest.raises(type(own)) as raised:
            task_result(finished_future(own), "wands, projected, seed 2")
        assert raised.value is own


def test_a_corrupt_stored_fit_is_never_loaded():
    fit = {"beta": 1.5, "knots": list(range(50))}
    serializer = calibrate.result_serializer
    stored = serializer.dumps(fit)
    assert serializer.loads(stored) == fit
    for position in range(len(stored)):
        flipped = bytes([stored[position] ^ 1])
        loaded = fit
        with suppress(Exception):  # after any error Prefect fits again
            loaded = serializer.loads(stored[:position] + flipped + stored[position + 1 :])
        assert loaded == fit
