"""A running `python -m flows.serve` and its API."""

import base64
import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.server import is_api_available
from tests.project_copy import recorded_libraries, start
from tests.system.browser import PATIENCE, eventually


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def is_answering(port: int) -> bool:
    return is_api_available(f"http://127.0.0.1:{port}/api")


class Served:
    """A running `flows.serve` and its API."""

    def __init__(self, project: Path, *options: str) -> None:
        self.project = project
        self.port = free_port()
        self.log = project / "serve.log"
        self.address = f"http://127.0.0.1:{self.port}"
        self.libraries = project / "libraries.txt"
        variables = recorded_libraries(self.libraries)
        self.process = start(project, "flows.serve", "--port", str(self.port), *options, log=self.log, **variables)

    def is_running(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return (self.project / "data/.state/server.json").exists()

    @property
    def secret(self) -> str:
        """Secret of the server; empty with --open."""
        file = self.project / "data/.state/secret"
        return file.read_text() if file.exists() else ""

    def ask(self, place: str, **content: object) -> list[dict]:
        secret = base64.b64encode(self.secret.encode()).decode()
        headers = {"content-type": "application/json", "authorization": f"Basic {secret}"}
        address = f"{self.address}/api/{place}/filter"
        request = urllib.request.Request(address, data=json.dumps(content).encode(), headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def deployment(self, name: str) -> str | None:
        return next((each["id"] for each in self.ask("deployments", deployments={"name": {"any_": [name]}})), None)

    def runs(self, name: str) -> list[dict]:
        """Return the runs of a deployment, the oldest first."""
        runs = self.ask("flow_runs", deployments={"name": {"any_": [name]}}, sort="EXPECTED_START_TIME_ASC")
        return [run for run in runs if not run["auto_scheduled"]]


@contextmanager
def serving(project: Path, *options: str) -> Iterator[Served]:
    """Run `flows.serve` on a free port inside the `with` block; check that nothing of it remains."""
    running = Served(project, *options)
    try:
        eventually(lambda: running.is_running() and running.deployment("rerank-sql"))  # the last one
        yield running
    finally:
        running.process.send_signal(signal.SIGINT)
        ended = running.process.wait(PATIENCE)
    assert ended in {0, 130}, running.log.read_text()  # 130: it was ended before its runner had begun
    assert not [name for name in ("server.json", "secret") if (project / "data/.state" / name).exists()]
    with socket.socket() as closed:
        assert closed.connect_ex(("127.0.0.1", running.port)) != 0  # the server has ended too
