"""Dask with a scheduler and two workers gives the same results as threads. `make test-system` runs it."""

import importlib.util
import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows import dvc_process
from tests.project_copy import (
    ROOT,
    copy_project,
    edit_params,
    processes_by_library,
    recorded_libraries,
    run_module,
    shrink_params,
    start_module,
)
from tests.system.browser import WAIT_SECONDS, wait_until
from tests.system.served import free_port, is_answering
from tests.system.test_ports import assert_protected, listening

pytestmark = pytest.mark.system

N_FITS = 2 * (2 + 2)  # for each of 2 seeds: 2 calibrators, and a rival fitted on one part and on both
COMPARED_FILES = (
    "metrics.parquet",
    "scores.parquet",
    "curves.json",
    "gates.json",
    "rivals.parquet",
    "intervals.parquet",
)


@pytest.fixture(scope="module", autouse=True)
def _require_dask() -> None:
    if importlib.util.find_spec("prefect_dask") is None:
        pytest.fail("Dask is missing; pip install -c constraints.txt -e '.[dask]'")


@contextmanager
def running(folder: Path, *command: str, **variables: str) -> Iterator[None]:
    """Run a command in the background inside the `with` block, with its output in a file."""
    process = start_module(folder, *command, log=folder / f"{'-'.join(command[:2])}.log", **variables)
    try:
        yield
    finally:
        dvc_process.end_groups([process])


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Project with a small twin of wands whose base predictor is trained."""
    folder = tmp_path_factory.mktemp("project")

    def change(params: dict[str, Any]) -> None:
        shrink_params(params)
        del params["datasets"]["mine"]
        params["calibrators"] = ["ts", "smart"]

    copy_project(folder, change)
    for stage in ("tasks.download", "tasks.train"):
        run_module(folder, stage, "wands")
    return folder


def choose_engine(project: Path, engine: str, address: str | None = None) -> None:
    """Write engine and address into params.yaml; for a tls:// address also the certificates of the guide."""
    dask: dict[str, Any] = {"address": address, "workers": 2, "allow_unencrypted": (address or "").startswith("tcp")}
    if (address or "").startswith("tls"):
        dask["tls"] = {"ca_file": "dask-ca.pem", "cert_file": "dask-cert.pem", "key_file": "dask-key.pem"}
    edit_params(project, lambda params: params.update(engine=engine, dask=dask))


GUIDE = (ROOT / "docs/how-to/run-on-dask.md").read_text(encoding="utf-8")


def documented_command(start: str) -> list[str]:
    """Return the command of the guide that begins with `start`, for this machine's address."""
    (line,) = [line.strip() for line in GUIDE.splitlines() if line.strip().startswith(start)]
    return shlex.split(line.replace("10.0.0.5", "127.0.0.1"))


@pytest.fixture(scope="module")
def server(project) -> Iterator[str]:
    port = free_port()
    with running(project, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)):
        wait_until(lambda: is_answering(port))
        yield f"http://127.0.0.1:{port}/api"


@pytest.fixture(scope="module")
def scheduler(project) -> Iterator[str]:
    """Address of a scheduler with two workers, started separately as on different machines."""
    from distributed import Client, Security

    for command in ("openssl req", "cp dask-cert.pem"):
        subprocess.run(documented_command(command), cwd=project, check=True, capture_output=True)
    port = str(free_port())
    address = f"tls://127.0.0.1:{port}"
    no_routes = {f"DASK_DISTRIBUTED__{component}__HTTP__ROUTES": "[]" for component in ("SCHEDULER", "WORKER")}
    for name in no_routes:
        assert f"export {name}='[]'" in GUIDE
    scheduler_words = [word.replace("8786", port) for word in documented_command("python -m dask scheduler")[2:]]
    worker_words = [word.replace("8786", port) for word in documented_command("python -m dask worker")[2:]]
    with ExitStack() as stack:
        stack.enter_context(running(project, *scheduler_words, **no_routes))
        for name in ("one", "two"):
            folder = str(project / f".dask-{name}")
            words = (*worker_words, "--name", name, "--local-directory", folder)
            libraries = recorded_libraries(project / f"libraries-{name}.txt")
            stack.enter_context(running(project, *words, **no_routes, **libraries))
        certificates = {
            "tls_ca_file": "dask-ca.pem",
            "tls_client_cert": "dask-cert.pem",
            "tls_client_key": "dask-key.pem",
        }
        files = {name: str(project / file) for name, file in certificates.items()}
        security = Security(require_encryption=True, **files)
        with Client(address, security=security, timeout=WAIT_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=WAIT_SECONDS)
        yield address


def test_no_port_of_the_documented_scheduler_and_workers_answers_another_user(scheduler):
    sockets = [each for each in listening(psutil.Process()) if "prefect" not in each.process]
    assert len(sockets) >= 5  # the scheduler, two nannies and two workers
    assert_protected(sockets)


def count_fits(project: Path) -> tuple[int, int]:
    """Return how many calibrators the last run fitted, and how many it reused."""
    fits = json.loads((project / "data/.state/fits/runs/wands.json").read_text())
    return fits["calibrators_fitted"], fits["calibrators_reused"]


def read_outputs(project: Path) -> dict[str, bytes]:
    """Read the outputs of the last run that contain no times."""
    return {name: (project / "data/runs/wands" / name).read_bytes() for name in COMPARED_FILES}


@pytest.fixture(scope="module")
def by_threads(project, server) -> dict[str, bytes]:
    choose_engine(project, "thread")
    run_module(project, "flows.reliability", "wands", PREFECT_API_URL=server)
    assert count_fits(project) == (N_FITS, 0)
    return read_outputs(project)


@pytest.mark.parametrize("workers", ["of a scheduler", "of the run"])
def test_workers_and_threads_write_the_same_bytes(request, project, server, by_threads, workers):
    choose_engine(project, "dask", request.getfixturevalue("scheduler") if workers == "of a scheduler" else None)
    report = project / "libraries-run.txt"
    report.unlink(missing_ok=True)
    variables = {"PREFECT_API_URL": server, "PREFECT_TASKS_REFRESH_CACHE": "true"} | recorded_libraries(report)
    printed = run_module(project, "flows.reliability", "wands", **variables)
    assert count_fits(project) == (N_FITS, 0)
    for file in project.glob("libraries-*.txt"):  # of workers and of the run
        assert [*processes_by_library(file)] == [project / "relmap/__init__.py"]
    processes_of_run = len(report.read_text().splitlines())
    assert processes_of_run > 1 or workers == "of a scheduler"
    assert read_outputs(project) == by_threads
    assert "distributed" not in printed  # no log lines of Dask
    run_module(project, "flows.reliability", "wands", PREFECT_API_URL=server)
    assert count_fits(project) == (0, N_FITS)
    assert read_outputs(project) == by_threads
