"""An API server of the project's own, for `flows.serve` and for a run that finds none.

It listens on this machine alone, asks for its secret, and lets in only its own page and programs of this machine.
"""

import atexit
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from threading import Thread

import httpx
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from flows import HOME
from flows.doors import Doors
from tasks.protocol.errors import BadInput, RunFailed
from tasks.protocol.store import STATE, read_json, write_json
from tasks.provenance.lock import LOCKS, is_held, locked

HOST = "127.0.0.1"  # nobody else can reach it
FOUND = STATE / "server.json"  # where the runs of other terminals find the server
SECRET = STATE / "secret"  # what they need to be heard, and what its page asks for
LOG = STATE / "server.log"
# The page would ask Prefect's analytics, which no setting turns off: a browser now lets it ask this server alone.
ONLY_US = [("content-security-policy", "connect-src 'self'; frame-ancestors 'none'")]


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
    if FOUND.exists() and is_held(LOCKS / "serve.lock"):
        url = read_json(FOUND)["api_url"]
        heard = {"PREFECT_API_AUTH_STRING": SECRET.read_text()} if os.access(SECRET, os.R_OK) else {}
        if wanted in {None, url} and bool(heard) == SECRET.exists() and answers(url):
            os.environ.update({"PREFECT_API_URL": url, **heard})
    refresh_global_settings_context()  # Prefect was imported before


def own_home() -> None:
    """Make the folder of Prefect's state, for this user alone; BadInput where the checkout does not allow it."""
    try:
        HOME.mkdir(mode=0o700, exist_ok=True)
        HOME.chmod(0o700)
    except OSError as error:
        raise BadInput(
            f"{HOME} cannot be made this user's own ({error.strerror}): runs leave their state there; "
            "take a checkout that belongs to you and may be written to"
        ) from None


@contextmanager
def server_needed(meanwhile: Callable[[], object] = int) -> Iterator[None]:
    """Inside there is a Prefect server, if need be one of this process's own, which comes up after `meanwhile`.

    RunFailed, in words, where it no longer answers; BadInput where it can have no home.
    """
    own_home()
    find_server()
    if PREFECT_API_URL.value() is None:
        kept = ExitStack()
        atexit.register(kept.close)  # not with the block: Prefect's threads send their last words after it, before this
        kept.enter_context(own_server(new_secret(), 0, temporary=True, meanwhile=meanwhile))
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
    unless `open_to_all`. Raises BadInput where this project is served already or the port is taken, and RunFailed
    where the server does not come up.
    """
    with locked("serve", refusal="`flows.serve` is already running in this folder; end that one first"):
        for left in (FOUND, SECRET):  # of a server that was killed
            left.unlink(missing_ok=True)
        find_server()
        if "PREFECT_API_URL" in os.environ:
            yield os.environ["PREFECT_API_URL"]
            return
        secret = None if open_to_all else new_secret()
        with own_server(secret, port) as url:
            try:
                if secret:
                    keep(secret)
                write_json(FOUND, {"api_url": url})
                yield url
            finally:
                FOUND.unlink(missing_ok=True)
                SECRET.unlink(missing_ok=True)


@contextmanager
def own_server(
    secret: str | None, port: int, temporary: bool = False, meanwhile: Callable[[], object] = int
) -> Iterator[str]:
    """The address of a new server, which this process then asks; it ends with the block, or with this process.

    Port 0 is any that is free. A `temporary` one has no page, and says what is wrong with it in the terminal; while
    it comes up, `meanwhile` is called.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_SERVER_API_AUTH_STRING"}
    environment |= {"PREFECT_SERVER_API_AUTH_STRING": secret} if secret else {}  # other users can read command lines
    with listening(port) as door, nullcontext() if temporary else LOG.open("wb") as log:
        url = f"http://{HOST}:{door.getsockname()[1]}/api"
        process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", "flows.server", str(door.fileno()), *(["temporary"] if temporary else [])],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=[door.fileno()],
            start_new_session=True,  # so that a Ctrl-C reaches us first and the server last
        )
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
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def new_secret() -> str:
    """What a person has set, or else nothing that anybody could guess."""
    return os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or secrets.token_urlsafe(32)


def keep(secret: str) -> None:
    """Write `SECRET`, a new file that nobody but this user can read at any moment."""
    with os.fdopen(os.open(SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)


def listening(port: int) -> socket.socket:
    """A socket on `port` that from now on nobody else can have; BadInput where another program listens there."""
    try:
        return socket.create_server((HOST, port), backlog=1024)
    except OSError as error:
        raise BadInput(
            f"port {port} of {HOST} cannot be had ({os.strerror(error.errno or 0)}); give another one with --port, or, "
            f"if a Prefect server runs there, set PREFECT_API_URL=http://{HOST}:{port}/api to serve on it"
        ) from None


def wait_until_healthy(process: subprocess.Popen[bytes], url: str) -> None:
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


def main(door_number: int, temporary: bool) -> None:
    """Serve on a socket that our parent has opened; a temporary server has neither page nor schedules."""
    import uvicorn  # noqa: PLC0415 - the layer needs neither
    from prefect.server.api.server import create_app  # noqa: PLC0415

    Thread(target=end_with_parent, daemon=True).start()
    with socket.socket(fileno=door_number) as door:
        app = Doors(create_app(final=True, ephemeral=temporary), door.getsockname()[1])
        config = uvicorn.Config(app, headers=ONLY_US, log_level="warning", timeout_graceful_shutdown=5, lifespan="on")
        (server := uvicorn.Server(config)).run(sockets=[door])
    if not server.started:
        sys.exit("the server did not start")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["temporary"])
