"""What the server adds to Prefect's pages: a policy that lets them ask this server alone, and a hint for the login.

Prefect's pages keep the secret in the local storage of their origin, where every script of a page can read it.
"""

import html
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# What Prefect's two pages need, as measured in Chromium (tests/system/test_pages.py), and nothing more.
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
# Descriptions of the API for people: their pages load scripts of a content delivery network.
API_PAGES = {"docs", "redoc", "openapi.json"}
SCRIPT_PATH = "/relmap-page.js"
SCRIPT = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
# Without these the application answers with the whole page, as plain text.
HEADERS_OF_PARTS = ("accept-encoding", "if-modified-since", "if-none-match", "range")
HEADERS_OF_FILES = ("accept-ranges", "etag", "last-modified")


class SecurityHeaders:
    """An ASGI application whose responses all have the security headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and add the headers to the response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class Pages:
    """An ASGI application that serves the pages of `app` with the script of this project.

    The script keeps a page from asking other servers, and says on the login page where the secret is.
    """

    def __init__(self, app: ASGIApp, hint: str) -> None:
        """Take Prefect's application, and the text of the login page."""
        self.app = app
        self.tag = f'<script src="{SCRIPT_PATH}" data-hint="{html.escape(hint)}"></script>'.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the script, 404, a page with the script, or whatever the application answers."""
        app = self.app
        if scope["type"] == "http":
            parts = [part for part in scope["path"].split("/") if part]
            if parts[:1] == ["api"]:
                del parts[0]
            elif scope["path"] == SCRIPT_PATH:
                app = Response(SCRIPT, media_type="text/javascript", headers={"cache-control": "no-cache"})
            elif "text/html" in Headers(scope=scope).get("accept", "") and scope["method"] == "GET":
                app = self._with_script
            if parts and parts[0] in API_PAGES:
                app = PlainTextResponse("Not Found", 404)
        await app(scope, receive, send)

    async def _with_script(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the page of the application, in which our script is the first."""
        plain = [(name, value) for name, value in scope["headers"] if name.decode() not in HEADERS_OF_PARTS]
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
                    for name in HEADERS_OF_FILES:
                        del headers[name]
                    headers["content-length"] = str(len(page))
                    headers["cache-control"] = "no-store"
                    await send(start)
                    await send({"type": "http.response.body", "body": page})
            else:
                await send(message)

        await self.app({**scope, "headers": plain}, receive, add_script)


def _is_page(start: Message) -> bool:
    """Return whether the start of a response announces HTML."""
    return Headers(raw=start["headers"]).get("content-type", "").startswith("text/html")
