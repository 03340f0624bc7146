"""What official places answer, and how that goes wrong. No connection is known here: `official_server` has those."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

LFS_SUFFIXES = {".parquet", ".gz", ".zip"}  # what the hub keeps in Git LFS; all else is in git
CDN = "https://us.aws.cdn.hf.co/xet-bridge-us"  # where the hub sends for the bytes of a file in LFS


@dataclass(frozen=True)
class Cut:
    """The connection ends after so many bytes of the body; with `reset`, as when a router drops it."""

    after: int
    reset: bool = False


@dataclass(frozen=True)
class Stall:
    """After so many bytes nothing more comes, and the connection stays."""

    after: int


@dataclass(frozen=True)
class Slow:
    """The whole body, slowly."""

    bytes_per_second: int


@dataclass(frozen=True)
class Status:
    """An error in place of the page, `times` requests long."""

    code: int
    times: int = 1
    retry_after: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wrong:
    """Other bytes under the same headers; with an `etag`, the file has changed and says so."""

    content: bytes
    etag: str | None = None


@dataclass(frozen=True)
class Html:
    """A page to read, as of a host that wants a login."""


@dataclass(frozen=True)
class LfsPointer:
    """What Git LFS keeps in git in place of the file."""


Fault = Cut | Stall | Slow | Status | Wrong | Html | LfsPointer


@dataclass(frozen=True)
class Page:
    """What one address answers."""

    content: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    ranges: bool = False  # parts of it can be asked for
    chunked: bool = False  # its length is not said beforehand

    def under(self, fault: Fault | None) -> Page:
        """What is answered in its place; what befalls the connection leaves the page as it is."""
        match fault:
            case Status():
                wait = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
                return Page(b"error", fault.code, {**fault.headers, **wait})
            case Wrong():
                etag = {} if fault.etag is None else {"ETag": fault.etag}
                return replace(self, content=fault.content, headers={**self.headers, **etag})
            case Html():
                html = b"<!DOCTYPE html>\n<html><body>Please log in.</body></html>\n"
                return Page(html, headers={"Content-Type": "text/html; charset=utf-8"})
            case LfsPointer():
                return Page(pointer_to(self.content), headers={"Content-Type": "text/plain"})
        return self


def file_page(content: bytes, etag: str | None = None) -> Page:
    """A file that can be asked for in parts."""
    return Page(content, headers={"ETag": f'"{etag or sha256_of(content)}"'}, ranges=True)


def hub_pages(
    address: str, name: str, revision: str, folder: Path, xet: bool
) -> tuple[dict[str, Page], dict[tuple[str, str], str]]:
    """The pages of a data set on a hub at `address`, by url, and the urls by method and `<repository>/<path>`.

    The repository itself, as a place, is its tree.
    """
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    held = {path: file.read_bytes() for path, file in files.items()}
    api = f"{address}/api/datasets/{name}"
    about = {"id": name, "sha": revision, "private": False, "gated": False, "disabled": False}
    brief = _json(about | {"siblings": [{"rfilename": path} for path in held]})
    full = _json(about | {"siblings": [_sibling(path, content) for path, content in held.items()]})
    tree = _json([_entry(path, content, xet) for path, content in held.items()])
    pages = {api: brief, f"{api}?blobs=true": full}
    for at in (revision, "main"):
        pages |= {f"{api}/revision/{at}": brief, f"{api}/revision/{at}?blobs=true": full, f"{api}/tree/{at}": tree}
    places = {("GET", name): f"{api}/tree/{revision}"}
    for path, content in held.items():
        kept, page, sent = _kept(address, f"{name}/{revision}/{path}", content)
        offer = _xet(f"{api}/xet-read-token/{revision}", content) if xet and _in_lfs(path) else {}
        sent = replace(sent, headers={"X-Repo-Commit": revision, **sent.headers, **offer})
        page = replace(page, headers={"X-Repo-Commit": revision, **page.headers})
        resolve = f"{address}/datasets/{name}/resolve"
        pages |= {kept: page, f"{resolve}/{revision}/{path}": sent, f"{resolve}/main/{path}": sent}
        places |= {("GET", f"{name}/{path}"): kept, ("HEAD", f"{name}/{path}"): f"{resolve}/{revision}/{path}"}
    return pages, places


def hub_error(status: int, code: str, message: str) -> Page:
    """An error as the hub words it."""
    said = {"X-Error-Code": code, "X-Error-Message": message}
    return Page(json.dumps({"error": message}).encode(), status, said)


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pointer_to(content: bytes) -> bytes:
    """What is in git in place of a file in LFS."""
    lines = ("version https://git-lfs.github.com/spec/v1", f"oid sha256:{sha256_of(content)}", f"size {len(content)}")
    return "".join(f"{line}\n" for line in lines).encode()


def _kept(address: str, place: str, content: bytes) -> tuple[str, Page, Page]:
    """Where a file's bytes come from, their page, and what sends there."""
    if not _in_lfs(place):
        at = f"/api/resolve-cache/datasets/{place}"
        page = file_page(content, _blob(place, content))
        return f"{address}{at}", page, Page(status=307, headers={"Location": at})
    linked = {"X-Linked-ETag": f'"{sha256_of(content)}"', "X-Linked-Size": str(len(content))}
    return f"{CDN}/{place}", file_page(content), Page(status=302, headers={"Location": f"{CDN}/{place}", **linked})


def _xet(token: str, content: bytes) -> dict[str, str]:
    return {"X-Xet-Hash": sha256_of(content), "Link": f'<{token}>; rel="xet-auth"'}


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    said = {"rfilename": path, "size": len(content), "blobId": _blob(path, content)}
    return said | ({"lfs": {"sha256": sha256_of(content), **_sizes(content)}} if _in_lfs(path) else {})


def _entry(path: str, content: bytes, xet: bool) -> dict[str, Any]:
    said = {"type": "file", "path": path, "size": len(content), "oid": _blob(path, content)}
    lfs = {"lfs": {"oid": sha256_of(content), **_sizes(content)}} if _in_lfs(path) else {}
    return said | lfs | ({"xetHash": sha256_of(content)} if lfs and xet else {})


def _in_lfs(path: str) -> bool:
    return Path(path).suffix in LFS_SUFFIXES


def _sizes(content: bytes) -> dict[str, int]:
    return {"size": len(content), "pointerSize": len(pointer_to(content))}


def _blob(path: str, content: bytes) -> str:
    """The name of a file's blob in git: where the file is in LFS, its pointer's."""
    in_git = pointer_to(content) if _in_lfs(path) else content
    return hashlib.sha1(b"blob %d\0%s" % (len(in_git), in_git), usedforsecurity=False).hexdigest()


def _json(value: object) -> Page:
    return Page(json.dumps(value).encode(), headers={"Content-Type": "application/json"})
