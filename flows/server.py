"""An API server of the project's own, for `flows.serve` and for a run that finds none.

It listens on this machine alone, and answers whom `flows.doors` lets in and who knows its secret.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from flows import answers
from tasks.protocol.errors import BadInput, RunFailed
from tasks.protocol.store import STATE, write_json

HOST = "127.0.0.1"  # nobody else can reach it
FOUND = STATE / "server.json"  # where the runs of other terminals find the server
SECRET = STATE / "secret"  # what they need to be heard, and what its page asks for
LOG = STATE / "server.log"
PATIENCE = 120.0  # seconds; a fresh home migrates its database first
GRACE = 10.0  # seconds from SIGTERM to SIGKILL


@contextmanager
def api_server(port: int, open_to_all: bool = False) -> Iterator[str]:
    """The address of a live Prefect API, and the right to serve this project's deployments there.

    It is what PREFECT_API_URL names (`flows` has dropped a dead one), or else a server on `port` of this machine, which
    asks for the secret in `SECRET` unless `open_to_all`. Raises BadInput where this project is served already or the
    port is taken, and RunFailed where the server does not come up.
    """
    with alone():
        for left in (FOUND, SECRET):  # of a server that was killed
            left.unlink(missing_ok=True)
        if "PREFECT_API_URL" in os.environ:
            yield os.environ["PREFECT_API_URL"]
            return
        secret = None if open_to_all else new_secret()
        with own_server(secret, port) as url:
            try:
                if secret is not None:
                    keep(secret)
                write_json(FOUND, {"api_url": url})
                yield url
            finally:
                FOUND.unlink(missing_ok=True)
                SECRET.unlink(missing_ok=True)


@contextmanager
def own_server(secret: str | None, port: int = 0, temporary: bool = False) -> Iterator[str]:
    """The address of a new server, which this process then asks; it ends with the block, or with this process.

    Port 0 is any that is free. A `temporary` one has no page, and says what is wrong with it in the terminal.
    """
    with listening(port) as door:
        url = f"http://{HOST}:{door.getsockname()[1]}/api"
        process = start(door, secret, temporary)
    with process:  # its input stays open until it has ended
        try:
            wait_until_healthy(process, url)
            with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: secret}):
                yield url
        finally:
            end(process)


def new_secret() -> str:
    """What a person has set, or else nothing that anybody could guess."""
    return os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or secrets.token_urlsafe(32)


def keep(secret: str) -> None:
    """Write `SECRET`, a new file that nobody but this user can read at any moment."""
    with os.fdopen(os.open(SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)


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


def listening(port: int) -> socket.socket:
    """A socket on `port` that from now on nobody else can have; BadInput where another program listens there."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left is free
    try:
        door.bind((HOST, port))
        door.listen(1024)
    except OSError as error:
        door.close()
        raise BadInput(
            f"port {port} of {HOST} cannot be had ({error.strerror}); give another one with --port, or, if a "
            f"Prefect server runs there, set PREFECT_API_URL=http://{HOST}:{port}/api to serve on it"
        ) from None
    return door


def start(door: socket.socket, secret: str | None, temporary: bool) -> subprocess.Popen[bytes]:
    """Start `flows.doors`; in a session of its own, so that a Ctrl-C reaches us first and the server last."""
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_SERVER_API_AUTH_STRING"}
    if secret is not None:
        environment["PREFECT_SERVER_API_AUTH_STRING"] = secret  # other users can read command lines, but not this
    log = None if temporary else LOG.open("wb")
    try:
        return subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", "flows.doors", str(door.fileno()), *(["temporary"] if temporary else [])],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=[door.fileno()],
            start_new_session=True,
        )
    finally:
        if log is not None:
            log.close()


def wait_until_healthy(process: subprocess.Popen[bytes], url: str) -> None:
    """Return once the server answers; RunFailed where it ended, or is silent for too long."""
    silent_from = time.monotonic() + PATIENCE
    while not answers(url):
        if process.poll() is not None:
            raise RunFailed(f"the Prefect server ended with status {process.returncode}; above or in {LOG} stands why")
        if time.monotonic() > silent_from:
            raise RunFailed(f"the Prefect server was silent at {url} for {PATIENCE:.0f} seconds; see above or {LOG}")
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, and end it where it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
