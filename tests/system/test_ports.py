"""Other users of the machine cannot use any listening port of a run. `make test-system` runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from flows import processes
from tests.project_copy import ROOT, copy_project, edit_params, small, start
from tests.system.browser import eventually
from tests.system.served import serving

pytestmark = pytest.mark.system

NOBODY = 65534  # user id of `nobody`, a user without permissions
REFUSED = {401, 403, 404}  # allowed statuses of a page without credentials
# Pages of Prefect's server without the secret: the login page and the health checks.
PUBLIC_PAGES = {"/", "/health", "/api/health", "/api/ready"}
HEALTH_CHECKS = {"/api/health": 200, "/api/ready": 200}  # path -> status, as the guide to a shared server documents
SLOW_FIT = {"wands": {"smart": {"epochs": 4000, "patience": 4000}}}  # the run lasts longer than the attack
N_WORKERS = 2  # Dask workers of a run


class Socket(NamedTuple):
    """A listening socket of a run."""

    address: str
    port: int
    process: str


def find_listening_sockets(process: psutil.Process) -> list[Socket]:
    """Return the listening TCP sockets of a process and its children."""
    sockets = set()
    for member in [process, *process.children(recursive=True)]:
        try:
            name = " ".join(member.cmdline()[1:4])
            connections = member.net_connections("tcp")
        except psutil.Error:  # it has ended
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                sockets.add(Socket(connection.laddr.ip, connection.laddr.port, name))
    return sorted(sockets)


def attack_sockets(sockets: list[Socket]) -> dict[Socket, dict[str, Any]]:
    """Attack each socket as another user without credentials; return the results by socket."""
    assert os.geteuid() == 0, "only root can act as another user; run this file as root"
    ports = [str(attacked.port) for attacked in sockets]
    command = [sys.executable, "-m", "tests.system.attack", str(NOBODY), *ports]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    return {attacked: results[str(attacked.port)] for attacked in sockets}


def assert_protected(sockets: list[Socket]) -> None:
    """Check that no socket is open to other machines, runs code, serves a page, or answers more than health checks."""
    for attacked, result in attack_sockets(sockets).items():
        print(attacked, result)
        assert attacked.address in {"127.0.0.1", "::1"}, attacked
        assert result["code"] == {}, attacked
        assert result["websockets"] == [], attacked
        pages = result["pages"]
        open_pages = {path for path, status in pages.items() if status not in REFUSED}
        if "flows.server" in attacked.process:
            assert open_pages <= PUBLIC_PAGES, (attacked, pages)
            assert HEALTH_CHECKS.items() <= pages.items()
        else:
            assert not open_pages, (attacked, pages)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Project with one small data set and the engine Dask."""
    folder = tmp_path_factory.mktemp("ports")

    def edit(params: dict[str, Any]) -> None:
        small(params)
        del params["datasets"]["mine"]
        params.update(engine="dask", calibrators=["ts", "smart"], calibrator_settings=SLOW_FIT)

    copy_project(folder, edit)
    return folder


def find_workers(process: psutil.Process) -> list[psutil.Process]:
    """Return the Dask workers among the children of a process, which Python's `multiprocessing` has spawned."""
    children = process.children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(command_line(child))]


def command_line(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def sockets_with_workers(process: psutil.Process, log: Path) -> list[Socket]:
    """Return the listening sockets of a run once its Dask workers have started; empty before."""
    assert process.status() != psutil.STATUS_ZOMBIE, log.read_text()
    listening_workers = [worker for worker in find_workers(process) if find_listening_sockets(worker)]
    return find_listening_sockets(process) if len(listening_workers) == N_WORKERS else []


@pytest.fixture
def run(request, project) -> Iterator[tuple[psutil.Process, Path]]:
    """Start a command with an engine, `(engine, command)`; yield its process and the file of its output."""
    engine, command = request.param
    edit_params(project, lambda params: params.update(engine=engine))
    log = project / "run.log"
    started = start(project, *command.split(), log=log)
    try:
        yield psutil.Process(started.pid), log
    finally:
        processes.end_groups([started])


@pytest.mark.parametrize("run", [("dask", "flows.refresh reliability@wands")], indirect=True, ids=["refresh"])
def test_no_port_of_a_run_on_dask_answers_another_user(run):
    process, log = run
    sockets = eventually(lambda: sockets_with_workers(process, log))
    assert len(sockets) >= 6  # the server, the scheduler, two nannies and two workers
    assert_protected(sockets)
    assert process.status() != psutil.STATUS_ZOMBIE, log.read_text()  # it did not end before the attack


# With threads, because Dask needs the server of a refresh.
@pytest.mark.parametrize("run", [("thread", "dvc repro reliability@wands --force")], indirect=True, ids=["stage"])
def test_no_port_of_a_single_stage_answers_another_user(run):
    process, log = run
    sockets = eventually(lambda: find_listening_sockets(process))
    assert_protected(sockets)
    assert process.status() != psutil.STATUS_ZOMBIE, log.read_text()


def test_no_port_of_flows_serve_answers_another_user(project):
    with serving(project) as served:
        process = psutil.Process(served.process.pid)
        # The server, and Prefect's runner, to which its runs connect with their own token.
        eventually(lambda: len(find_listening_sockets(process)) >= 2)
        sockets = find_listening_sockets(process)
        assert_protected(sockets)
        assert served.is_running()
