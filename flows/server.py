"""An API server of the project's own, for `flows.serve` and for a run that finds none.

It listens on this machine alone, asks for its secret, and lets in only its own page and programs of this machine.
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

from flows import HOME
from flows.logs import SECONDS_FOR_LAST_LINES, log_lines
from flows.pages import Pages, SecurityHeaders
from relmap.errors import InputError, escape_unprintable
from relmap.io.atomic import write_json
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tasks.records.errors import RunFailed
from tasks.records.store import STATE, make_private, read_json

logger = logging.getLogger("flows.server")
HOST = "127.0.0.1"  # nobody else can reach it
FOUND = STATE / "server.json"  # where the runs of other terminals find the server
SECRET = STATE / "secret"  # what they need to be heard, and what its page asks for
LOG = STATE / "server.log"
HINT = f"Enter the secret: the content of the file {SECRET} in this project's folder."  # on the page of the login


def answers(api_url: str, within: float = 5) -> bool:
    """Whether a Prefect API answers there, in so many seconds; a dead one of this machine says so at once."""
    try:
        with urllib.request.urlopen(f"{api_url.rstrip('/')}/health", timeout=within) as answer:  # noqa: S310 - http(s) as the user set it
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def find_server() -> None:
    """Let this process ask the living server that PREFECT_API_URL names, or that `flows.serve` runs here; else none.

    With a dead one Prefect would fail, where a server of the run's own does as well. That of `flows.serve` has a
    secret, and is left aside by a user who may not read it.
    """
    wanted = os.environ.get("PREFECT_API_URL")
    if wanted is not None and not answers(wanted, within=60):  # that of a refresh may be coming up
        print(f"no Prefect API answers at {os.environ.pop('PREFECT_API_URL')}: this run starts a server of its own")
    if FOUND.exists() and is_lock_held(LOCKS / "serve.lock"):
        url = read_json(FOUND)["api_url"]
        heard = {"PREFECT_API_AUTH_STRING": SECRET.read_text()} if os.access(SECRET, os.R_OK) else {}
        if wanted in {None, url} and bool(heard) == SECRET.exists() and answers(url):
            os.environ.update({"PREFECT_API_URL": url, **heard})
    refresh_global_settings_context()  # Prefect was imported before


def own_home() -> None:
    """Make the folder of Prefect's state, for this user alone; InputError where the checkout does not allow it."""
    try:
        HOME.mkdir(mode=0o700, exist_ok=True)
        HOME.chmod(0o700)
        make_private()
    except OSError as error:
        raise InputError(
            f"{HOME} cannot be made this user's own ({error.strerror}): runs leave their state there; "
            "take a checkout that belongs to you and may be written to"
        ) from None


@contextmanager
def server_needed(meanwhile: Callable[[], object] = int) -> Iterator[None]:
    """Inside there is a Prefect server, if need be one of this process's own, which comes up after `meanwhile`.

    RunFailed, in words, where it no longer answers; InputError where it can have no home.
    """
    own_home()
    find_server()
    if PREFECT_API_URL.value() is None:
        kept = ExitStack()
        atexit.register(kept.close)  # not with the block: Prefect's threads send their last words after it, before this
        kept.enter_context(_own_server(new_secret(), 0, temporary=True, meanwhile=meanwhile))
    else:
        meanwhile()
    try:
        yield
    except httpx.TransportError as error:
        raise RunFailed(
            f"the Prefect server at {PREFECT_API_URL.value()} no longer answers ({error}); what has finished is kept: "
            "run the same command again"
        ) from error


@contextmanager
def api_server(port: int, open_to_all: bool = False) -> Iterator[str]:
    """The address of a live Prefect API, and the right to serve this project's deployments there.

    It is what PREFECT_API_URL names or else a server on `port` of this machine, which asks for the secret in `SECRET`
    unless `open_to_all`. Raises InputError where this project is served already or the port is taken, and RunFailed
    where the server does not come up.
    """
    with hold_lock("serve", refusal="`flows.serve` is already running in this folder; end that one first"):
        for left in (FOUND, SECRET):  # of a server that was killed
            left.unlink(missing_ok=True)
        find_server()
        if "PREFECT_API_URL" in os.environ:
            yield os.environ["PREFECT_API_URL"]
            return
        secret = None if open_to_all else new_secret()
        with _own_server(secret, port) as url:
            try:
                if secret:
                    keep(secret)
                write_json(FOUND, {"api_url": url})
                yield url
            finally:
                for left in (FOUND, SECRET):
                    left.unlink(missing_ok=True)


@contextmanager
def _own_server(
    secret: str | None, port: int, temporary: bool = False, meanwhile: Callable[[], object] = int
) -> Iterator[str]:
    """The address of a new server that this process asks; a `temporary` one has no page, and speaks in the terminal."""
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_SERVER_API_AUTH_STRING"}
    environment |= {"PREFECT_SERVER_API_AUTH_STRING": secret} if secret else {}  # other users can read command lines
    printed = None if temporary else PIPE
    with listening(port) as door:
        url, number = f"http://{HOST}:{door.getsockname()[1]}/api", door.fileno()
        command = [sys.executable, "-m", "flows.server", str(number), *(["temporary"] if temporary else [])]
        # in a session of its own, so that a Ctrl-C reaches us first and the server last
        process = Popen(  # noqa: S603 - our own
            command,
            stdin=PIPE,
            stdout=printed,
            stderr=None if temporary else STDOUT,
            env=environment,
            pass_fds=[number],
            start_new_session=True,
        )
    copying = None if process.stdout is None else log_lines(process.stdout, LOG)
    with process:  # its input stays open until it has ended
        try:
            with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: secret}):
                meanwhile()
                wait_until_healthy(process, url)
                yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)  # seconds from SIGTERM to SIGKILL
            except TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            if copying is not None:
                copying.join(SECONDS_FOR_LAST_LINES)


def new_secret() -> str:
    """What a person has set, or else nothing that anybody could guess."""
    return os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or secrets.token_urlsafe(32)


def keep(secret: str) -> None:
    """Write `SECRET`, a new file that nobody but this user can read at any moment."""
    SECRET.touch(mode=0o600, exist_ok=False)
    SECRET.write_text(secret)


def listening(port: int) -> socket.socket:
    """A socket on `port` that from now on nobody else can have; InputError where another program listens there."""
    try:
        return socket.create_server((HOST, port), backlog=1024)
    except OSError as error:
        raise InputError(
            f"port {port} of {HOST} cannot be had ({os.strerror(error.errno or 0)}); give another one with --port, or, "
            f"if a Prefect server runs there, set PREFECT_API_URL=http://{HOST}:{port}/api to serve on it"
        ) from None


def wait_until_healthy(process: Popen[bytes], url: str) -> None:
    """Return once the server answers; RunFailed where it ended, or is silent for too long."""
    silent_from = time.monotonic() + 120  # seconds; a fresh home migrates its database first
    while not answers(url):
        if process.poll() is not None:
            raise RunFailed(f"the Prefect server ended with status {process.returncode}; above or in {LOG} stands why")
        if time.monotonic() > silent_from:
            raise RunFailed(f"the Prefect server was silent at {url} for 120 seconds; see above or {LOG}")
        time.sleep(0.2)


def end_with_parent() -> None:
    """Wait until nobody holds the other end of our input: then the process that started us is gone."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


class Doors:
    """An ASGI application in which only what asks for a served name, and comes from no other page, reaches `app`.

    Prefect checks neither Host nor Origin, takes a WebSocket from any page, and reads a body without a Content-Type as
    JSON: a page of another origin could start runs, and change what they run, with what a browser sends unasked. A
    forwarded port (ssh -L) must have the same number on both sides, since names are compared with theirs.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        ends = {f":{port}", "" if port == 80 else f":{port}"}  # browsers leave 80 out
        self.app, self.hosts = app, {f"{name}{end}" for name in ("127.0.0.1", "localhost") for end in ends}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, or refuse in a sentence."""
        app, is_request = self.app, scope["type"] == "http"
        if scope["type"] in {"http", "websocket"} and (reason := self._refusal(scope)):
            app = PlainTextResponse(f"{reason}\n", 403) if is_request else WebSocketClose(1008, reason)
        await app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        (host, *others) = headers.getlist("host") or [""]
        if others or host not in self.hosts:
            return f"this server is asked as {' or '.join(sorted(self.hosts))} only"
        if any(origin != f"http://{host}" for origin in headers.getlist("origin")):
            return "a page of another origin may not ask this server"
        if not {"same-origin", "none"}.issuperset(headers.getlist("sec-fetch-site")):  # none: typed, or a bookmark
            return "a page of another origin may neither ask nor link to this server; type its address"
        # Prefect's client and page send a DELETE, and a POST that says all in its address, without a body
        has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        writes = scope["type"] == "http" and scope["method"] not in {"GET", "HEAD", "OPTIONS"}
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if writes and has_body and kind != "application/json":
            return "what is sent to this server must be application/json"
        return None


def queue_writers() -> None:
    """Make each transaction of Prefect's SQLite database take the write lock when it begins.

    Prefect begins most of them as readers. One that writes after another has written fails at once with "database is
    locked", whatever the timeout. With the lock from the start it waits its turn, for up to 60 seconds.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration  # noqa: PLC0415 - takes a second

    begin = AioSqliteConfiguration.begin_transaction

    def begin_as_writer(self: AioSqliteConfiguration, session: Any, **_as_reader: bool) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_as_writer  # type: ignore[assignment, method-assign]


class LogRejections:
    """An ASGI application that logs each request that `app` does not accept.

    Reading what does not exist is no rejection: Prefect's client looks things up that way.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, and log its status if it is rejected."""

        async def send_and_log(message: Message) -> None:
            if message["type"] == "http.response.start" and is_rejection(scope["method"], message["status"]):
                path = escape_unprintable(scope["path"])
                logger.warning("%s %s was rejected with status %d", scope["method"], path, message["status"])
            await send(message)

        await self.app(scope, receive, send_and_log if scope["type"] == "http" else send)


def is_rejection(method: str, status: int) -> bool:
    """Return whether a status says that a request was refused, not just that it found nothing."""
    reads = method in {"GET", "HEAD", "OPTIONS"}
    return status >= 500 or status in {401, 403, 429} or (status >= 400 and not reads)


def protected(app: ASGIApp, port: int) -> ASGIApp:
    """Put the layers of this project around Prefect's application, which listens on `port`."""
    return SecurityHeaders(LogRejections(Doors(Pages(app, HINT), port)))


def main(door_number: int, temporary: bool) -> None:
    """Serve on a socket that our parent has opened; a temporary server has neither page nor schedules."""
    import uvicorn  # noqa: PLC0415 - the layer needs neither
    from prefect.server.api.server import create_app  # noqa: PLC0415

    Thread(target=end_with_parent, daemon=True).start()
    with socket.socket(fileno=door_number) as door:
        queue_writers()
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        app = protected(create_app(final=True, ephemeral=temporary), door.getsockname()[1])
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5, lifespan="on")
        (server := uvicorn.Server(config)).run(sockets=[door])
    sys.exit(None if server.started else "the server did not start")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["temporary"])
