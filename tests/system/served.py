"""A running `python -m flows.serve`, queried as the flows of the same user query it."""

import base64
import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.server import is_api_available
from tests.project_copy import recorded_libraries, start_module
from tests.system.browser import WAIT_SECONDS, wait_until


def free_port() -> int:
    """Return a port that no process uses."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def is_answering(port: int) -> bool:
    """Check whether a Prefect API answers at a port."""
    return is_api_available(f"http://127.0.0.1:{port}/api")


class RunningServer:
    """A `flows.serve` process and its API."""

    def __init__(self, project: Path, *options: str, **variables: str) -> None:
        self.project = project
        self.port = free_port()
        self.log = project / "serve.log"
        self.address = f"http://127.0.0.1:{self.port}"
        self.libraries = project / "libraries.txt"
        variables = recorded_libraries(self.libraries) | variables
        arguments = ["--port", str(self.port), *options]
        self.process = start_module(project, "flows.serve", *arguments, log=self.log, **variables)

    def is_running(self) -> bool:
        """Check whether the server has written its state file; fail if the process has ended."""
        assert self.process.poll() is None, self.log.read_text()
        return (self.project / "data/.state/server.json").exists()

    @property
    def secret(self) -> str:
        """Secret that the page asks for."""
        return (self.project / "data/.state/secret").read_text()

    def request(self, method: str, path: str, content: object) -> Any:
        """Send JSON to a path of the API, and return the answer."""
        secret = base64.b64encode(self.secret.encode()).decode()
        headers = {"content-type": "application/json", "authorization": f"Basic {secret}"}
        body = json.dumps(content).encode()
        request = urllib.request.Request(f"{self.address}/api/{path}", data=body, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def query(self, resource: str, **content: object) -> list[dict]:
        """Return the records of an API resource such as `flow_runs`, filtered by `content`."""
        return self.request("POST", f"{resource}/filter", content)

    def find_deployments(self, name: str) -> list[dict]:
        """Return the deployment of that name, if there is one."""
        return self.query("deployments", deployments={"name": {"any_": [name]}})

    def find_deployment_id(self, name: str) -> str | None:
        """Return the id of a deployment, None if there is none of that name."""
        deployments = self.find_deployments(name)
        return deployments[0]["id"] if deployments else None

    def list_runs(self, name: str, *, scheduled: bool = False) -> list[dict]:
        """Return the runs of a deployment that somebody started, or the scheduled ones, the oldest first."""
        runs = self.query("flow_runs", deployments={"name": {"any_": [name]}}, sort="EXPECTED_START_TIME_ASC")
        return [run for run in runs if run["auto_scheduled"] == scheduled]


@contextmanager
def run_server(project: Path, *options: str, **variables: str) -> Iterator[RunningServer]:
    """Run `flows.serve` on a free port until the block ends, and check that nothing of it remains."""
    server = RunningServer(project, *options, **variables)
    try:
        wait_until(lambda: server.is_running() and server.find_deployment_id("reliability"))  # registered last
        yield server
    finally:
        server.process.send_signal(signal.SIGINT)
        status = server.process.wait(WAIT_SECONDS)
    assert status in {0, 130}, server.log.read_text()  # 130: interrupted before its runner had started
    assert not [name for name in ("server.json", "secret") if (project / "data/.state" / name).exists()]
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", server.port)) != 0  # the server has ended too
