"""Security headers of Prefect's pages, which no setting of Prefect adds.

Without them, a page on another port can show the logged-in page in a frame, and the page sends requests to an analytics
service. Prefect's page stores the secret in the local storage of its origin, where every script of a page can read it.
"""

from starlette.datastructures import MutableHeaders
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
