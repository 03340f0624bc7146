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

from flows import dvc_process
from tests.project_copy import ROOT, copy_project, edit_params, shrink_params, start_module
from tests.system.browser import wait_until
from tests.system.served import run_server

pytestmark = pytest.mark.system

NOBODY = 65534  # the number of the user without rights
REFUSED = {401, 403, 404}  # allowed statuses of a page without credentials
PUBLIC = {
    "/",
    "/status",
    "/health",
    "/api/health",
    "/api/ready",
}  # of Prefect's server: the page that asks for the secret, health
EMPTY = {"/sitemap.json"}  # of Dask's HTTP server without pages: the list of its pages
HEALTH = {"/api/health": 200, "/api/ready": 200}  # as the guide says
SLOW = {"wands": {"smart": {"epochs": 4000, "patience": 4000}}}  # so that a run is there while it is attacked


class Socket(NamedTuple):
    """A listening socket of a run."""

    address: str
    port: int
    process: str


def listening(process: psutil.Process) -> list[Socket]:
    """Return the listening TCP sockets of a process and its children."""
    found = []
    for each in [process, *process.children(recursive=True)]:
        try:
            name = " ".join(each.cmdline()[1:4])
            connections = each.net_connections("tcp")
        except psutil.Error:  # it has ended
            continue
        found += [Socket(c.laddr.ip, c.laddr.port, name) for c in connections if c.status == psutil.CONN_LISTEN]
    return sorted(set(found))


def attacked(sockets: list[Socket]) -> dict[Socket, dict[str, Any]]:
    """Attack each socket as another user without credentials; return the results."""
    assert os.geteuid() == 0, "only root can act as another user; run this file as root"
    ports = [str(each.port) for each in sockets]
    command = [sys.executable, "-m", "tests.system.attack", str(NOBODY), *ports]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    given = json.loads(completed.stdout.splitlines()[-1])
    return {each: given[str(each.port)] for each in sockets}


def assert_protected(sockets: list[Socket]) -> None:
    """Check that no socket is open to other machines, runs code, serves a page, or answers more than health checks."""
    for each, given in attacked(sockets).items():
        print(each, given)
        assert each.address in {"127.0.0.1", "::1"}, each
        assert given["code"] == {}, each
        assert given["websockets"] == [], each
        open_pages = {path for path, status in given["pages"].items() if status not in REFUSED}
        is_server = "flows.server" in each.process
        assert open_pages <= (PUBLIC if is_server else EMPTY), (each, given["pages"])
        assert not is_server or HEALTH.items() <= given["pages"].items()


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Project with one small data set and the engine Dask."""
    folder = tmp_path_factory.mktemp("ports")

    def change(params: dict[str, Any]) -> None:
        shrink_params(params)
        del params["datasets"]["mine"]
        params.update(engine="dask", calibrators=["ts", "smart"], calibrator_settings=SLOW)

    copy_project(folder, change)
    return folder


def workers(process: psutil.Process) -> list[psutil.Process]:
    """Return the Dask workers among the children of a process."""
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
    listening_workers = [each for each in workers(process) if listening(each)]
    return listening(process) if len(listening_workers) == 2 else []


@pytest.fixture
def run(request, project) -> Iterator[tuple[psutil.Process, Path]]:
    engine, *words = request.param.split()
    edit_params(project, lambda params: params.update(engine=engine))
    log = project / "run.log"
    command = start_module(project, *words, log=log)
    try:
        yield psutil.Process(command.pid), log
    finally:
        dvc_process.end_groups([command])


@pytest.mark.parametrize("run", ["dask flows.refresh reliability@wands"], indirect=True)
def test_no_port_of_a_run_on_dask_answers_another_user(run):
    process, log = run
    sockets = wait_until(lambda: sockets_with_workers(process, log))
    assert len(sockets) >= 6  # the server, the scheduler, two nannies and two workers
    assert_protected(sockets)
    assert process.status() != psutil.STATUS_ZOMBIE, log.read_text()  # it was attacked while it worked


@pytest.mark.parametrize("run", ["thread dvc repro reliability@wands --force"], indirect=True)
def test_no_port_of_a_single_stage_answers_another_user(run):  # on threads: Dask needs the server of a refresh
    process, log = run
    sockets = wait_until(lambda: listening(process))
    assert_protected(sockets)
    assert process.status() != psutil.STATUS_ZOMBIE, log.read_text()


def test_no_port_of_flows_serve_answers_another_user(project):
    with run_server(project) as served:
        process = psutil.Process(served.process.pid)
        # the server, and Prefect's runner, which its runs ask with a token of their own
        wait_until(lambda: len(listening(process)) >= 2)
        sockets = listening(process)
        assert_protected(sockets)
        assert served.is_running()
