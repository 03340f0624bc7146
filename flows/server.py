"""What `flows.serve` stands on: an API server, and the runner that starts what is asked for.

The server is the one that PREFECT_API_URL names, or one of the project's own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Self

from filelock import FileLock, Timeout
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner

from flows import answers
from tasks.protocol.errors import BadInput, RunFailed
from tasks.protocol.store import STATE, write_json

HOST = "127.0.0.1"  # nobody else can reach it
FOUND = STATE / "server.json"  # where the runs of other terminals find the server
LOG = STATE / "server.log"
PATIENCE = 120.0  # seconds; a fresh home migrates its database first
# The page would ask Prefect's analytics, which no setting turns off: a browser now lets it ask this server alone.
ONLY_US = [("content-security-policy", "connect-src 'self'")]
GRACE = 10.0  # seconds from SIGTERM to SIGKILL


@contextmanager
def api_server(port: int) -> Iterator[str]:
    """The address of a live Prefect API, and the right to serve this project's deployments there.

    It is what PREFECT_API_URL names (`flows` has dropped a dead one), or else a server on `port` of this machine, which
    ends with the block, or with this process however that ends. Raises BadInput where this project is served already
    or the port is taken, and RunFailed where the server does not come up.
    """
    with alone():
        if "PREFECT_API_URL" in os.environ:
            yield os.environ["PREFECT_API_URL"]
            return
        check_free(port)
        url = f"http://{HOST}:{port}/api"
        process = start(port)
        try:
            wait_until_healthy(process, url)
            write_json(FOUND, {"api_url": url})
            yield url
        finally:
            FOUND.unlink(missing_ok=True)
            end(process)


@contextmanager
def alone() -> Iterator[None]:
    """Two would take each other's runs, and the first to end would pause the schedule of both: BadInput."""
    path = STATE / "locks" / "serve.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise BadInput("`flows.serve` is already running in this folder; end that one first") from None


def check_free(port: int) -> None:
    """BadInput where another program listens on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise BadInput(
                f"port {port} of {HOST} cannot be had ({error.strerror}); give another one with --port, or, if a "
                f"Prefect server runs there, set PREFECT_API_URL=http://{HOST}:{port}/api to serve on it"
            ) from None


def start(port: int) -> subprocess.Popen[bytes]:
    """Start this file; in a session of its own, so that a Ctrl-C reaches us first and the server last."""
    with LOG.open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", "flows.server", str(port)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_until_healthy(process: subprocess.Popen[bytes], url: str) -> None:
    """Return once the server answers; RunFailed where it ended, or is silent for too long."""
    silent_from = time.monotonic() + PATIENCE
    while not answers(url):
        if process.poll() is not None:
            raise RunFailed(f"the Prefect server ended with status {process.returncode}; {LOG} says why")
        if time.monotonic() > silent_from:
            raise RunFailed(f"the Prefect server did not answer at {url} for {PATIENCE:.0f} seconds; see {LOG}")
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, and end it where it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_with_parent() -> None:
    """Wait until nobody holds the other end of our input: then the process that started us is gone."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


class Serving(Runner):
    """Prefect's runner, which Ctrl-C and SIGTERM end alike: runs are cancelled with all they started, schedules paused.

    Left alone, it ends at a Ctrl-C without a word to the server, on whose page the runs go on for ever, and at a
    SIGTERM it forgets to await its own end.
    """

    async def __aenter__(self) -> Self:
        """Start, and take both signals from there on."""
        await super().__aenter__()
        for received in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(received, self.execute_in_background, self.astop)
        return self


async def run_until_ended(made: list[RunnerDeployment]) -> None:
    """Register the deployments, and start their runs as they are asked for or due."""
    runner = Serving(query_seconds=2)  # until a run that was asked for starts
    for one in made:
        await runner.aadd_deployment(one)
    await runner.start()


if __name__ == "__main__":
    import uvicorn
    from prefect.server.api.server import create_app

    Thread(target=end_with_parent, daemon=True).start()
    uvicorn.run(
        create_app(final=True),
        host=HOST,
        port=int(sys.argv[1]),
        headers=ONLY_US,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )
