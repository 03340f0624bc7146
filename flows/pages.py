"""Additions to Prefect's pages: a policy that allows requests to this server only, and a hint on the login page.

Prefect's pages store the secret in the local storage of their origin, where every script of a page can read it.
"""

import html
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The minimum that Prefect's two interfaces need, as measured in Chromium (tests/system/test_pages.py).
POLICY = {
    "default-src": "'self'",
    "font-src": "'self' data:",
    "img-src": "'self' data:",
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "worker-src": "'self' blob:",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "object-src": "'none'",
}
SECURITY_HEADERS = {
    "content-security-policy": "; ".join(f"{directive} {sources}" for directive, sources in POLICY.items()),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
# Documentation pages of the API. They load scripts from a content delivery network, so they are answered with 404.
API_PAGES = {"docs", "redoc", "openapi.json"}
SCRIPT_PATH = "/relmap-page.js"
SCRIPT = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
# Without these request headers, the application sends the complete page, uncompressed.
PARTIAL_CONTENT_HEADERS = ("accept-encoding", "if-modified-since", "if-none-match", "range")
# These response headers describe the page without the script.
FILE_HEADERS = ("accept-ranges", "etag", "last-modified")


class SecurityHeaders:
    """ASGI application that adds the security headers to all responses."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application.

        Args:
            app: Application that answers the requests.
        """
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and add the headers to the response.

        Args:
            scope: Connection.
            receive: Receives messages of the client.
            send: Sends messages to the client.
        """

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class PageScript:
    """ASGI application that inserts the script of this project into the pages of another application.

    The script prevents requests to other servers, and shows on the login page where the secret is.
    """

    def __init__(self, app: ASGIApp, hint: str) -> None:
        """Wrap an application.

        Args:
            app: Prefect's application.
            hint: Text for the login page.
        """
        self.app = app
        self.tag = f'<script src="{SCRIPT_PATH}" data-hint="{html.escape(hint)}"></script>'.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the script, with 404 for a page of the API, or with the response of the application.

        Args:
            scope: Connection.
            receive: Receives messages of the client.
            send: Sends messages to the client.
        """
        app = self.app
        if scope["type"] == "http":
            parts = [part for part in scope["path"].split("/") if part]
            if parts[:1] == ["api"]:  # pages of the API are at /docs and at /api/docs
                del parts[0]
            elif scope["path"] == SCRIPT_PATH:
                app = Response(SCRIPT, media_type="text/javascript", headers={"cache-control": "no-cache"})
            elif "text/html" in Headers(scope=scope).get("accept", "") and scope["method"] == "GET":
                app = self._with_script
            if parts and parts[0] in API_PAGES:
                app = PlainTextResponse("Not Found", 404)
        await app(scope, receive, send)

    async def _with_script(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the page of the application, and insert the script of this project before all other scripts."""
        headers_for_complete_page = [
            (name, value) for name, value in scope["headers"] if name.decode() not in PARTIAL_CONTENT_HEADERS
        ]
        start: Message = {}
        body = bytearray()

        async def add_script(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_page(message):
                start = message
            elif message["type"] == "http.response.body" and start:
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    page = bytes(body).replace(b"<head>", b"<head>" + self.tag, 1)
                    headers = MutableHeaders(scope=start)
                    for name in FILE_HEADERS:
                        del headers[name]
                    headers["content-length"] = str(len(page))
                    headers["cache-control"] = "no-store"
                    await send(start)
                    await send({"type": "http.response.body", "body": page})
            else:
                await send(message)

        await self.app({**scope, "headers": headers_for_complete_page}, receive, add_script)


def _is_page(start: Message) -> bool:
    """Check whether the start of a response announces HTML."""
    return Headers(raw=start["headers"]).get("content-type", "").startswith("text/html")
