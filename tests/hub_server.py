"""As much of the Hugging Face hub as its library asks for, on this machine."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

FIRST, SECOND = "a" * 40, "b" * 40


class Hub:
    """Repositories by id; what is asked is noted."""

    def __init__(self) -> None:
        self.repositories: dict[str, tuple[str, Path]] = {}  # id -> commit, folder
        self.gated: set[str] = set()
        self.hashes: dict[str, str] = {}  # SHA-256 of files, as the hub states them
        self.requests: list[str] = []

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a path."""
        self.requests.append(path)
        for name, (commit, folder) in self.repositories.items():
            if path in (f"/api/datasets/{name}", *(f"/api/datasets/{name}/revision/{one}" for one in ("main", commit))):
                large = {"size": 1, "pointerSize": 1}
                siblings = [{"rfilename": one, "lfs": large | {"sha256": seen}} for one, seen in self.hashes.items()]
                return 200, {}, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode()
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            if path == f"/api/datasets/{name}/tree/{commit}":
                sizes = {str(file.relative_to(folder)): file.stat().st_size for file in files}
                entries = [{"type": "file", "path": path, "size": sizes[path], "oid": "0" * 40} for path in sizes]
                return 200, {}, json.dumps(entries).encode()
            for file in files:
                if path == f"/datasets/{name}/resolve/{commit}/{file.relative_to(folder)}":
                    if name in self.gated:
                        return 401, {"X-Error-Code": "GatedRepo"}, b"gated"
                    body = file.read_bytes()
                    tag = hashlib.sha1(body, usedforsecurity=False).hexdigest()
                    return 200, {"ETag": f'"{tag}"', "X-Repo-Commit": commit}, body
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"


@contextmanager
def hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Hub]:
    """A hub that the library asks in place of the real one, with a cache of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = served.answer(unquote(urlsplit(self.path).path))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 (what the server calls it)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served, url = Hub(), f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings = {
        **{"ENDPOINT": url, "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}"},
        **{"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True},
    }
    for name, value in settings.items():
        monkeypatch.setattr(constants, name, value)
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
