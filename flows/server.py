"""Prefect's API server for `flows.serve`, and for runs that find no other server.

It is `prefect server start` on this machine, which requires a random secret. Run as a command, this module is Prefect's
command line with three additions (`main`).
"""

import atexit
import os
import secrets
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from flows import PREFECT_HOME
from flows.headers import SecurityHeaders
from relmap.errors import InputError
from relmap.io.atomic import write_json
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tasks.records.errors import RunFailed
from tasks.records.store import STATE, make_private, read_json

HOST = "127.0.0.1"  # other machines cannot reach it
ADDRESS_FILE = STATE / "server.json"  # address of the server of `flows.serve`, for runs in other terminals
SECRET_FILE = STATE / "secret"  # its secret

HEALTH_TIMEOUT = 5.0  # seconds
CONFIGURED_SERVER_TIMEOUT = 60.0  # seconds; the server in PREFECT_API_URL may be starting
MAX_START_SECONDS = 120.0  # of a new server; in a new PREFECT_HOME, it migrates its database first
HEALTH_POLL_SECONDS = 0.2
SECONDS_BEFORE_KILL = 10.0  # from SIGTERM to SIGKILL
SECRET_BYTES = 32
TEMPORARY_SERVER = {
    "PREFECT__SERVER_EPHEMERAL": "1",  # as Prefect starts its own temporary servers
    # It has no page on which someone could create a block, and registering their types takes a sixth of its start.
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
}


def is_api_available(api_url: str, timeout: float = HEALTH_TIMEOUT) -> bool:
    """Check whether a Prefect API answers. A closed port of this machine is detected immediately.

    Args:
        api_url: Address of the API.
        timeout: Seconds to wait for the answer.

    Returns:
        Whether it answers.
    """
    url = f"{api_url.rstrip('/')}/health"
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:  # noqa: S310 - http(s) as the user set it
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def is_own_port(port: int) -> bool:
    """Check whether a process of this user listens on a port of this machine.

    Another user may take the port of a server that has ended, and would receive the secret.

    Args:
        port: Port of `HOST`.

    Returns:
        Whether all processes that listen there belong to this user.
    """
    listeners = []
    for connection in psutil.net_connections("tcp4"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr == (HOST, port):
            listeners.append(connection.pid)  # None: a process of another user, which this user cannot inspect
    return bool(listeners) and all(_is_own_process(pid) for pid in listeners)


def _is_own_process(pid: int | None) -> bool:
    if pid is None:
        return False
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).uids().effective == os.geteuid())
    return False


def find_server() -> None:
    """Make this process use the server in PREFECT_API_URL, or else the running server of `flows.serve`, if any.

    An unreachable `PREFECT_API_URL` is reported and ignored, since a run can start its own server. The server of
    `flows.serve` is ignored if this user cannot read its secret, or if another user listens on its port.
    """
    configured_url = os.environ.get("PREFECT_API_URL")
    if configured_url is not None and not is_api_available(configured_url, timeout=CONFIGURED_SERVER_TIMEOUT):
        print(f"no Prefect API answers at {configured_url}: this run starts a server of its own")
        del os.environ["PREFECT_API_URL"]
    if is_lock_held(LOCKS / "serve.lock") and ADDRESS_FILE.exists() and os.access(SECRET_FILE, os.R_OK):
        served_url = read_json(ADDRESS_FILE)["api_url"]
        port = urlsplit(served_url).port
        if configured_url in {None, served_url} and is_api_available(served_url) and port and is_own_port(port):
            os.environ["PREFECT_API_URL"] = served_url
            os.environ["PREFECT_API_AUTH_STRING"] = SECRET_FILE.read_text()
    refresh_global_settings_context()  # Prefect read the environment when it was imported


def create_prefect_home() -> None:
    """Create the folder of Prefect's state, which other users cannot read.

    Raises:
        InputError: This user cannot create it or change its permissions.
    """
    try:
        PREFECT_HOME.mkdir(mode=0o700, exist_ok=True)
        PREFECT_HOME.chmod(0o700)
        make_private()
    except OSError as error:
        raise InputError(
            f"{PREFECT_HOME} cannot be created or made private ({error.strerror}): runs write their state there; "
            "use a checkout that belongs to you and is writable"
        ) from None


def _do_nothing() -> None:
    pass


@contextmanager
def ensure_server(meanwhile: Callable[[], object] = _do_nothing) -> Iterator[None]:
    """Ensure that there is a Prefect server inside the `with` block; start a temporary one if none is running.

    Args:
        meanwhile: Function that is called while the server starts.

    Yields:
        Nothing.

    Raises:
        RunFailed: The server no longer answers.
        InputError: Its folder cannot be created.
    """
    create_prefect_home()
    find_server()
    if PREFECT_API_URL.value() is None:
        # Ended at exit, not with the block: the threads of Prefect send their last messages after the block.
        stack = ExitStack()
        atexit.register(stack.close)
        stack.enter_context(run_server(create_secret(), find_free_port(), temporary=True, meanwhile=meanwhile))
    else:
        meanwhile()
    try:
        yield
    except httpx.TransportError as error:
        raise RunFailed(
            f"the Prefect server at {PREFECT_API_URL.value()} no longer answers ({error}); finished results are kept: "
            "run the same command again"
        ) from error


@contextmanager
def serve_api(port: int) -> Iterator[str]:
    """Provide a Prefect API inside the `with` block, and prevent a second `flows.serve` in this folder.

    The API is the one in PREFECT_API_URL, or else a new server on this machine.

    Args:
        port: Port of a new server.

    Yields:
        Address of the API.

    Raises:
        InputError: `flows.serve` is already running in this folder.
        RunFailed: The server does not start, for example because its port is in use.
    """
    with hold_lock("serve", refusal="`flows.serve` is already running in this folder; stop it first"):
        _remove_server_files()  # left by a server that was killed
        find_server()
        if "PREFECT_API_URL" in os.environ:
            yield os.environ["PREFECT_API_URL"]
            return
        secret = create_secret()
        with run_server(secret, port) as url:
            try:
                write_secret(secret)
                write_json(ADDRESS_FILE, {"api_url": url})
                yield url
            finally:
                _remove_server_files()


def _remove_server_files() -> None:
    for path in (ADDRESS_FILE, SECRET_FILE):
        path.unlink(missing_ok=True)


@contextmanager
def run_server(
    secret: str, port: int, *, temporary: bool = False, meanwhile: Callable[[], object] = _do_nothing
) -> Iterator[str]:
    """Run a server for this process inside the `with` block.

    Args:
        secret: Secret that it requires.
        port: Its port.
        temporary: Whether it has neither a page nor schedules.
        meanwhile: Function that is called while it starts.

    Yields:
        Address of its API.

    Raises:
        RunFailed: It does not start.
    """
    url = f"http://{HOST}:{port}/api"
    variables = {"PREFECT_SERVER_API_AUTH_STRING": secret}  # not an option: other users can read command lines
    if temporary:
        variables |= TEMPORARY_SERVER
    process = Popen(  # noqa: S603 - fixed command
        [sys.executable, "-m", "flows.server", "server", "start", "--host", HOST, "--port", str(port)],
        stdin=PIPE,  # stays open until this process ends
        stdout=DEVNULL,  # a welcome; errors are printed to standard error
        env=os.environ | variables,
        start_new_session=True,  # Ctrl-C does not end it; this process ends it after all others
    )
    with process:
        try:
            with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: secret}):
                meanwhile()
                wait_until_healthy(process, port)
                yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(SECONDS_BEFORE_KILL)
            except TimeoutExpired:
                process.kill()


def create_secret() -> str:
    """Return the secret that the user has set, or else a random one.

    Returns:
        The secret.
    """
    return os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or secrets.token_urlsafe(SECRET_BYTES)


def write_secret(secret: str) -> None:
    """Write the secret to a new file that other users cannot read at any time.

    Args:
        secret: The secret.
    """
    SECRET_FILE.touch(mode=0o600, exist_ok=False)
    SECRET_FILE.write_text(secret)


def find_free_port() -> int:
    """Find a port that no program uses at the moment.

    Returns:
        The port.
    """
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until_healthy(process: Popen[bytes], port: int) -> None:
    """Wait until a server answers on its port, and check that the port does not belong to another user.

    Args:
        process: Process of the server.
        port: Its port.

    Raises:
        RunFailed: The process ended, another user has the port, or the server does not answer for too long.
    """
    url = f"http://{HOST}:{port}/api"
    deadline = time.monotonic() + MAX_START_SECONDS
    while not (is_api_available(url) and is_own_port(port)):
        if process.poll() is not None:
            raise RunFailed(
                f"the Prefect server ended with status {process.returncode}; if another program uses port {port}, "
                f"choose another one with --port, or, if it is a Prefect server, set PREFECT_API_URL={url}"
            )
        if time.monotonic() > deadline:
            raise RunFailed(f"the Prefect server at {url} did not answer for {MAX_START_SECONDS:.0f} seconds")
        time.sleep(HEALTH_POLL_SECONDS)


def end_with_parent() -> None:
    """Wait until the standard input is closed, which means that the parent process has ended; then end this process.

    Prefect's own servers, also temporary ones, outlive a parent that was killed.
    """
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SECONDS_BEFORE_KILL)  # the server waits for open connections
    os.kill(os.getpid(), signal.SIGKILL)


def serialize_transactions() -> None:
    """Make each transaction of Prefect's SQLite database take the write lock when it begins.

    By default most transactions begin as readers. If one writes after another transaction has written, it fails at
    once with "database is locked", regardless of the timeout. With the lock from the start it waits for up to 60
    seconds. Of 100 simultaneous requests for a new run, 74 to 95 were answered with 503 without the lock, none with it.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration  # noqa: PLC0415 - takes a second

    begin = AioSqliteConfiguration.begin_transaction

    def begin_with_write_lock(self: AioSqliteConfiguration, session: Any, **_options: bool) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_with_write_lock  # type: ignore[assignment, method-assign]


def main() -> None:
    """Run Prefect's command line, with a server that waits for the database, sends headers and ends with its parent."""
    from prefect.cli import app  # noqa: PLC0415 - only the process of the server needs it
    from prefect.server.api import server  # noqa: PLC0415

    Thread(target=end_with_parent, daemon=True).start()
    serialize_transactions()
    create_app = server.create_app
    server.create_app = lambda **options: SecurityHeaders(create_app(**options))  # type: ignore[assignment]
    app()


if __name__ == "__main__":
    main()
