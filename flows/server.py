"""Prefect API server of this project, for `flows.serve` and for runs that find no other server.

It listens on this machine only, requires a secret, and accepts only requests of its own page and of programs on this
machine.
"""

import atexit
import logging
import os
import secrets
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired
from threading import Thread
from typing import Any

import httpx
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from flows import PREFECT_HOME
from flows.logs import SECONDS_FOR_LAST_LINES, log_lines
from flows.pages import PageScript, SecurityHeaders
from relmap.errors import InputError, escape_unprintable
from relmap.io.atomic import write_json
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tasks.records.errors import RunFailed
from tasks.records.store import STATE, make_private, read_json

logger = logging.getLogger("flows.server")
HOST = "127.0.0.1"  # other machines cannot reach it
HTTP_PORT = 80
ADDRESS_FILE = STATE / "server.json"  # address of the server of `flows.serve`, for runs in other terminals
SECRET_FILE = STATE / "secret"  # secret that requests and the login page need
LOG_FILE = STATE / "server.log"
LOGIN_HINT = f"Enter the secret: the content of the file {SECRET_FILE} in this project's folder."

HEALTH_TIMEOUT = 5.0  # seconds
CONFIGURED_SERVER_TIMEOUT = 60.0  # seconds; the server in PREFECT_API_URL may be starting
MAX_START_SECONDS = 120.0  # of a new server; in a new PREFECT_HOME, it migrates its database first
HEALTH_POLL_SECONDS = 0.2
SECONDS_BEFORE_KILL = 10.0  # from SIGTERM to SIGKILL
SECRET_BYTES = 32
CONNECTION_BACKLOG = 1024
GRACEFUL_SHUTDOWN_SECONDS = 5
READING_METHODS = {"GET", "HEAD", "OPTIONS"}
POLICY_VIOLATION = 1008  # status of a closed WebSocket


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


def find_server() -> None:
    """Make this process use the server in PREFECT_API_URL, or else the running server of `flows.serve`, if any.

    An unreachable `PREFECT_API_URL` is reported and ignored, since a run can start its own server. The server of
    `flows.serve` is ignored if this user cannot read its secret.
    """
    configured_url = os.environ.get("PREFECT_API_URL")
    if configured_url is not None and not is_api_available(configured_url, timeout=CONFIGURED_SERVER_TIMEOUT):
        print(f"no Prefect API answers at {configured_url}: this run starts a server of its own")
        del os.environ["PREFECT_API_URL"]
    if ADDRESS_FILE.exists() and is_lock_held(LOCKS / "serve.lock"):
        served_url = read_json(ADDRESS_FILE)["api_url"]
        can_authenticate = not SECRET_FILE.exists() or os.access(SECRET_FILE, os.R_OK)
        if configured_url in {None, served_url} and can_authenticate and is_api_available(served_url):
            os.environ["PREFECT_API_URL"] = served_url
            if SECRET_FILE.exists():
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
        stack.enter_context(_run_server(create_secret(), 0, temporary=True, meanwhile=meanwhile))
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
def serve_api(port: int, open_to_all: bool = False) -> Iterator[str]:
    """Provide a Prefect API inside the `with` block, and prevent a second `flows.serve` in this folder.

    The API is the one in PREFECT_API_URL, or else a new server on this machine.

    Args:
        port: Port of a new server.
        open_to_all: Whether a new server requires no secret.

    Yields:
        Address of the API.

    Raises:
        InputError: `flows.serve` is already running in this folder, or the port is in use.
        RunFailed: The server does not start.
    """
    with hold_lock("serve", refusal="`flows.serve` is already running in this folder; stop it first"):
        _remove_server_files()  # left by a server that was killed
        find_server()
        if "PREFECT_API_URL" in os.environ:
            yield os.environ["PREFECT_API_URL"]
            return
        secret = None if open_to_all else create_secret()
        with _run_server(secret, port) as url:
            try:
                if secret:
                    write_secret(secret)
                write_json(ADDRESS_FILE, {"api_url": url})
                yield url
            finally:
                _remove_server_files()


def _remove_server_files() -> None:
    for path in (ADDRESS_FILE, SECRET_FILE):
        path.unlink(missing_ok=True)


@contextmanager
def _run_server(
    secret: str | None, port: int, temporary: bool = False, meanwhile: Callable[[], object] = _do_nothing
) -> Iterator[str]:
    """Run a server for this process inside the `with` block, and yield the address of its API.

    A temporary server has no page, and prints to the terminal instead of a log file.
    """
    with open_socket(port) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}/api"
        process = _start_server(listener.fileno(), secret, temporary)
    log_thread = None if process.stdout is None else log_lines(process.stdout, LOG_FILE)
    with process:  # keeps the standard input of the server open; the server ends when this input is closed
        try:
            with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: secret}):
                meanwhile()
                wait_until_healthy(process, url)
                yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(SECONDS_BEFORE_KILL)
            except TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            if log_thread is not None:
                log_thread.join(SECONDS_FOR_LAST_LINES)


def _start_server(socket_number: int, secret: str | None, temporary: bool) -> Popen[bytes]:
    """Start a server in its own session, so that Ctrl-C does not end it. This process ends it after all others."""
    command = [sys.executable, "-m", "flows.server", str(socket_number)]
    if temporary:
        command.append("temporary")
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_SERVER_API_AUTH_STRING"}
    if secret:
        environment["PREFECT_SERVER_API_AUTH_STRING"] = secret  # other users can read command lines
    return Popen(  # noqa: S603 - fixed command
        command,
        stdin=PIPE,
        stdout=None if temporary else PIPE,
        stderr=None if temporary else STDOUT,
        env=environment,
        pass_fds=[socket_number],
        start_new_session=True,
    )


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


def open_socket(port: int) -> socket.socket:
    """Open a listening socket, so that no other program can take the port.

    Args:
        port: Port; 0 for any free one.

    Returns:
        The socket.

    Raises:
        InputError: Another program uses the port.
    """
    try:
        return socket.create_server((HOST, port), backlog=CONNECTION_BACKLOG)
    except OSError as error:
        raise InputError(
            f"port {port} of {HOST} cannot be used ({os.strerror(error.errno or 0)}); choose another one with --port, "
            f"or, if a Prefect server runs there, set PREFECT_API_URL=http://{HOST}:{port}/api to serve on it"
        ) from None


def wait_until_healthy(process: Popen[bytes], url: str) -> None:
    """Wait until a server answers.

    Args:
        process: Process of the server.
        url: Address of its API.

    Raises:
        RunFailed: The process ended, or the server does not answer for too long.
    """
    deadline = time.monotonic() + MAX_START_SECONDS
    while not is_api_available(url):
        if process.poll() is not None:
            raise RunFailed(
                f"the Prefect server ended with status {process.returncode}; see the output above or {LOG_FILE}"
            )
        if time.monotonic() > deadline:
            raise RunFailed(
                f"the Prefect server at {url} did not answer for {MAX_START_SECONDS:.0f} seconds; see the output above "
                f"or {LOG_FILE}"
            )
        time.sleep(HEALTH_POLL_SECONDS)


def end_with_parent() -> None:
    """Wait until the standard input is closed, which means that the parent process has ended; then end this process."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


class OriginGuard:
    """ASGI application that forwards a request only if it names this server and comes from no other origin.

    Prefect checks neither Host nor Origin, accepts WebSockets from any page, and parses a body without a Content-Type
    as JSON. A page of another origin could therefore start runs, and change their code, with requests that browsers
    send without first asking the server. A forwarded port (ssh -L) must have the same number on both sides, since the
    accepted host names include the port.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        """Wrap an application.

        Args:
            app: Application that receives the accepted requests.
            port: Port of the server.
        """
        self.app = app
        names = ("127.0.0.1", "localhost")
        self.hosts = {f"{name}:{port}" for name in names}
        if port == HTTP_PORT:
            self.hosts.update(names)  # browsers omit this port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request.

        Args:
            scope: Connection.
            receive: Receives messages of the client.
            send: Sends messages to the client.
        """
        app = self.app
        reason = self._refusal(scope) if scope["type"] in {"http", "websocket"} else None
        if reason is not None and scope["type"] == "http":
            app = PlainTextResponse(f"{reason}\n", 403)
        elif reason is not None:
            app = WebSocketClose(POLICY_VIOLATION, reason)
        await app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        """Return the reason to refuse a request; None to accept it."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return f"this server accepts requests for {' or '.join(sorted(self.hosts))} only"
        if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
            return "this server accepts no requests from pages of other origins"
        # "none" is sent for a typed address or a bookmark
        if not {"same-origin", "none"}.issuperset(headers.getlist("sec-fetch-site")):
            return "this server accepts neither requests nor links from pages of other origins; type its address"
        if scope["type"] == "http" and scope["method"] not in READING_METHODS and _has_body(headers):
            content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if content_type != "application/json":
                return "this server accepts only content of type application/json"
        return None


def _has_body(headers: Headers) -> bool:
    """Check whether a request has a body. Some writing requests of Prefect's client and page have none."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def serialize_transactions() -> None:
    """Make each transaction of Prefect's SQLite database take the write lock when it begins.

    By default most transactions begin as readers. If one writes after another transaction has written, it fails at
    once with "database is locked", regardless of the timeout. With the lock from the start it waits for up to 60
    seconds.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration  # noqa: PLC0415 - takes a second

    begin = AioSqliteConfiguration.begin_transaction

    def begin_with_write_lock(self: AioSqliteConfiguration, session: Any, **_options: bool) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_with_write_lock  # type: ignore[assignment, method-assign]


class RejectionLog:
    """ASGI application that logs each rejected request.

    Reading something that does not exist is not a rejection: Prefect's client checks existence in this way.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application.

        Args:
            app: Application that answers the requests.
        """
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, and log its status if it is rejected.

        Args:
            scope: Connection.
            receive: Receives messages of the client.
            send: Sends messages to the client.
        """

        async def send_and_log(message: Message) -> None:
            if message["type"] == "http.response.start" and is_rejection(scope["method"], message["status"]):
                path = escape_unprintable(scope["path"])
                logger.warning("%s %s was rejected with status %d", scope["method"], path, message["status"])
            await send(message)

        await self.app(scope, receive, send_and_log if scope["type"] == "http" else send)


def is_rejection(method: str, status: int) -> bool:
    """Check whether a status means that a request was refused, and not only that nothing was found.

    Args:
        method: HTTP method.
        status: HTTP status.

    Returns:
        Whether the request was refused.
    """
    if status >= 500 or status in {401, 403, 429}:
        return True
    return status >= 400 and method not in READING_METHODS


def add_protection(app: ASGIApp, port: int) -> ASGIApp:
    """Wrap Prefect's application in the security layers of this project.

    Args:
        app: Prefect's application.
        port: Port of the server.

    Returns:
        The wrapped application.
    """
    return SecurityHeaders(RejectionLog(OriginGuard(PageScript(app, LOGIN_HINT), port)))


def main(socket_number: int, temporary: bool) -> None:
    """Serve on a socket that the parent process has opened.

    Args:
        socket_number: File descriptor of the socket.
        temporary: Whether the server has neither a page nor schedules.
    """
    import uvicorn  # noqa: PLC0415 - only the process of the server needs it
    from prefect.server.api.server import create_app  # noqa: PLC0415

    Thread(target=end_with_parent, daemon=True).start()
    with socket.socket(fileno=socket_number) as listener:
        serialize_transactions()
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        app = add_protection(create_app(final=True, ephemeral=temporary), listener.getsockname()[1])
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS, lifespan="on"
        )
        server = uvicorn.Server(config)
        server.run(sockets=[listener])
    sys.exit(None if server.started else "the server did not start")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["temporary"])
