"""Whom a Prefect server lets in: only its own page and programs of this machine.

Prefect checks neither Host nor Origin, takes a WebSocket from any page, and reads a body without a Content-Type as
JSON: a page of another origin could start runs, and change what they run, with what a browser sends without asking.
"""

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose


class Doors:
    """An ASGI application in which only what asks for a served name, and comes from no other page, reaches `app`.

    A forwarded port (ssh -L) must have the same number on both sides, since names are compared with theirs.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        ends = {f":{port}", "" if port == 80 else f":{port}"}  # browsers leave 80 out
        self.app, self.hosts = app, {f"{name}{end}" for name in ("127.0.0.1", "localhost") for end in ends}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, or refuse in a sentence."""
        app, is_request = self.app, scope["type"] == "http"
        if scope["type"] in {"http", "websocket"} and (reason := self.refused(scope)):
            app = PlainTextResponse(f"{reason}\n", 403) if is_request else WebSocketClose(1008, reason)
        await app(scope, receive, send)

    def refused(self, scope: Scope) -> str | None:
        """Why this is not handed on, if it is not."""
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
