"""A Prefect server that only its own page and programs of this machine can ask: `flows.server` starts it.

Prefect checks neither Host nor Origin, takes a WebSocket from any page, and reads a body without a Content-Type as
JSON: a page of another origin could start runs, and change what they run, with what a browser sends without asking.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from threading import Thread

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

READS = {"GET", "HEAD", "OPTIONS"}
OF_NO_OTHER_PAGE = {"same-origin", "none"}  # none: typed into the browser, or from its bookmarks
# The page would ask Prefect's analytics, which no setting turns off: a browser now lets it ask this server alone.
ONLY_US = [("content-security-policy", "connect-src 'self'; frame-ancestors 'none'")]


class Doors:
    """An ASGI application in which only what asks for a served name, and comes from no other page, reaches `app`.

    A forwarded port (ssh -L) must have the same number on both sides, since names are compared with theirs.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app, self.hosts = app, {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        if port == 80:  # which browsers leave out
            self.hosts |= {"127.0.0.1", "localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, or refuse in a sentence."""
        refused = self.refused(scope) if scope["type"] in {"http", "websocket"} else None
        if refused is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(f"{refused}\n", 403)(scope, receive, send)
        else:
            await WebSocketClose(1008, refused)(scope, receive, send)

    def refused(self, scope: Scope) -> str | None:
        """Why this is not handed on, if it is not."""
        headers = Headers(scope=scope)
        (host, *others) = headers.getlist("host") or [""]
        if others or host not in self.hosts:
            return f"this server is asked as {' or '.join(sorted(self.hosts))} only"
        if any(origin != f"http://{host}" for origin in headers.getlist("origin")):
            return "a page of another origin may not ask this server"
        if not OF_NO_OTHER_PAGE.issuperset(headers.getlist("sec-fetch-site")):
            return "a page of another origin may neither ask nor link to this server; type its address"
        if scope["type"] == "http" and scope["method"] not in READS and has_body(headers):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return "what is sent to this server must be application/json"
        return None


def has_body(headers: Headers) -> bool:
    """Prefect's client and page send a DELETE, and a POST that says all in its address, without one."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def end_with_parent() -> None:
    """Wait until nobody holds the other end of our input: then the process that started us is gone."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(listening: int, temporary: bool) -> None:
    """Serve on a socket that our parent has opened; a temporary server has neither page nor schedules."""
    import uvicorn  # noqa: PLC0415 - the layer needs neither
    from prefect.server.api.server import create_app  # noqa: PLC0415

    Thread(target=end_with_parent, daemon=True).start()
    with socket.socket(fileno=listening) as door:
        app = Doors(create_app(final=True, ephemeral=temporary), door.getsockname()[1])
        config = uvicorn.Config(app, headers=ONLY_US, log_level="warning", timeout_graceful_shutdown=5, lifespan="on")
        server = uvicorn.Server(config)
        server.run(sockets=[door])
    if not server.started:
        sys.exit("the server did not start")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["temporary"])
