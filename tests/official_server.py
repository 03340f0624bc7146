"""The official places of the data, on this machine: their addresses, their redirects, their faults.

An `OfficialServer` is a proxy that answers for every https host itself, with certificates of an authority of its own,
and at the same address a hub of Hugging Face. A client needs its `environment()` and nothing else: it asks for the
real addresses, and none of its requests leaves the machine.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from urllib.parse import unquote

import trustme
from official_pages import Cut, Fault, Page, Slow, Stall, Status, file_page, hub_error, hub_pages

BLOCK = 1 << 16
IN_REPOSITORY = re.compile(r"/datasets/(?P<id>[^/?]+/[^/?]+)(?:/(?:resolve|revision|tree)/(?P<revision>[^/?]+))?")
RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: close without a farewell


@dataclass
class Request:
    """One request that came, and what went back."""

    method: str
    url: str
    range: str | None
    status: int
    sent: int = 0  # bytes of the body handed to the connection; the client has at most these


class OfficialServer(ThreadingTCPServer):
    """Every official place at once. `with OfficialServer(folder) as server`: `folder` keeps what clients need.

    What is served nowhere is answered with 404, and stands in `requests` like the rest.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests: list[Request] = []
        self.stopping = threading.Event()
        self.connections: dict[threading.Thread, socket.socket] = {}
        self._folder = folder
        self._lock = threading.Lock()
        self._pages: dict[str, Page] = {}
        self._places: dict[tuple[str, str], str] = {}
        self._revisions: defaultdict[str, set[str]] = defaultdict(set)  # of each repository
        self._faults: defaultdict[tuple[str, str], deque[Fault]] = defaultdict(deque)
        self._certificates: dict[str, ssl.SSLContext] = {}
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(folder / "authority.pem"))

    def __enter__(self) -> OfficialServer:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopping.set()
        self.shutdown()
        for thread, connection in list(self.connections.items()):
            with contextlib.suppress(OSError):  # it may have ended by itself
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            thread.join()
        self.server_close()

    def environment(self) -> dict[str, str]:
        """Variables under which a process takes this server for the internet."""
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), self.address)
        return proxies | {
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "SSL_CERT_FILE": str(self._folder / "authority.pem"),
            "HF_ENDPOINT": self.address,
            "HF_HOME": str(self._folder / "hf_home"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
        }

    def serve(self, url: str, content: bytes | Path, *, ranges: bool = True, chunked: bool = False) -> None:
        """Serve a file at `url`; its ETag is of its content, so that serving another one there changes it."""
        held = content if isinstance(content, bytes) else content.read_bytes()
        self._pages[url] = replace(file_page(held), ranges=ranges, chunked=chunked)

    def redirect(self, url: str, to: str) -> None:
        """Send whoever asks for `url` to another address."""
        self._pages[url] = Page(status=302, headers={"Location": to})

    def repository(self, name: str, revision: str, folder: Path, *, xet: bool = False) -> None:
        """Serve the files of `folder` as a data set of the hub, at `revision` and as branch `main`.

        With `xet`, files in LFS are offered through Xet too, as the hub does now; the offer leads nowhere.
        """
        pages, places = hub_pages(self.address, name, revision, folder, xet)
        self._pages |= pages
        self._places |= places
        self._revisions[name] |= {revision, "main"}

    def fault(self, where: str, *faults: Fault, method: str = "GET") -> None:
        """Let the next requests of `where` meet these, one each.

        `where` is a url; or `<repository>/<path>`, which is where the bytes of the file come from, with `method="HEAD"`
        where its metadata do; or `<repository>`, which is its tree. Raises KeyError where nothing is served.
        """
        url = self._places.get((method, where), where)
        if url not in self._pages:
            raise KeyError(where)
        for fault in faults:
            self._faults[method, url].extend([fault] * (fault.times if isinstance(fault, Status) else 1))

    def answer(self, method: str, url: str) -> tuple[Page, Fault | None]:
        """The page of `url`, and the fault that this request meets."""
        url = unquote(url)
        if url not in self._pages:
            url = url.partition("?")[0]
        if url not in self._pages:
            return self._unknown(url), None
        with self._lock:
            script = self._faults[method, url]
            fault = script.popleft() if script else None
        return self._pages[url].under(fault), fault

    def certificate(self, host: str) -> ssl.SSLContext:
        """What shows that we are `host`."""
        with self._lock:
            if host not in self._certificates:
                self._certificates[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                self._authority.issue_cert(host).configure_cert(self._certificates[host])
            return self._certificates[host]

    def _unknown(self, url: str) -> Page:
        found = IN_REPOSITORY.search(url) if url.startswith(self.address) else None
        if found is None:
            return Page(b"404: Not Found", 404)
        known = self._revisions.get(found["id"])
        if known is None:  # the hub does not tell a stranger what is private from what is not there
            return hub_error(401, "RepoNotFound", "Invalid username or password.")
        if found["revision"] not in known:
            return hub_error(404, "RevisionNotFound", f"Invalid rev id: {found['revision']}")
        return hub_error(404, "EntryNotFound", "Entry not found")


class _Connection(BaseHTTPRequestHandler):
    """A client's connection: to the hub, or after CONNECT to whatever host it named."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each small answer waits for the client's acknowledgement
    server: OfficialServer
    origin = ""

    def setup(self) -> None:
        super().setup()
        self.server.connections[threading.current_thread()] = self.connection

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # the client went, or does not trust us
            super().handle()

    def finish(self) -> None:
        super().finish()
        self.server.connections.pop(threading.current_thread())
        self.connection.close()

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        self.send_response(200)
        self.end_headers()
        self.request = self.server.certificate(host).wrap_socket(self.connection, server_side=True)
        self.setup()
        self.origin = f"https://{host}" if port == "443" else f"https://{host}:{port}"

    def do_GET(self) -> None:
        absolute = self.path.startswith("http://")  # as a proxy is asked for what is not https
        url = self.path if absolute else (self.origin or self.server.address) + self.path
        page, fault = self.server.answer(self.command, url)
        status, start, stop = self._asked_for(page)
        request = Request(self.command, url, self.headers.get("Range"), status)
        self.server.requests.append(request)
        self.send_response(status)
        for name, value in _headers(page, status, start, stop).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self._send(page, start, stop, fault, request)

    do_HEAD = do_GET  # noqa: N815

    def _asked_for(self, page: Page) -> tuple[int, int, int]:
        """The status, and which bytes of the page, from `start` to before `stop`."""
        size, etag = len(page.content), page.headers.get("ETag")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked or not page.ranges or self.headers.get("If-Range", etag) != etag:
            return page.status, 0, size
        if int(asked[1]) >= size:
            return 416, 0, 0
        return 206, int(asked[1]), min(int(asked[2]) + 1, size) if asked[2] else size

    def _send(self, page: Page, start: int, stop: int, fault: Fault | None, request: Request) -> None:
        pace = fault.bytes_per_second if isinstance(fault, Slow) else None
        step = max(1, pace // 20) if pace else BLOCK
        end = min(stop, start + fault.after) if isinstance(fault, Cut | Stall) else stop
        for at in range(start, end, step):
            block = page.content[at : min(at + step, end)]
            request.sent += len(block)  # before the client can have it
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if page.chunked else block)
            if pace and self.server.stopping.wait(len(block) / pace):
                return
        if isinstance(fault, Stall):
            self.server.stopping.wait()
        elif isinstance(fault, Cut):
            self.close_connection = True
            if fault.reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif page.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: `requests` has it."""


def _headers(page: Page, status: int, start: int, stop: int) -> dict[str, str]:
    ranges = {"Accept-Ranges": "bytes"} if page.ranges else {}
    if status == 206:
        ranges["Content-Range"] = f"bytes {start}-{stop - 1}/{len(page.content)}"
    if status == 416:
        ranges["Content-Range"] = f"bytes */{len(page.content)}"
    length = {"Transfer-Encoding": "chunked"} if page.chunked else {"Content-Length": str(stop - start)}
    return {"Content-Type": "application/octet-stream", **page.headers, **ranges, **length}
