"""One file over HTTP: streamed to disk, resumed after a cut, tried again only where that may help, then verified.

Why not `huggingface_hub` for its own files too: version 2.4 starts a killed download anew, gives up at once where a
file is answered with 503, and keeps wrong bytes of the right size. It lists them (tasks/sources/hub.py); their bytes
come through here like all others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import stamina
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from tasks.protocol.errors import BadInput
from tasks.sources.contents import HEAD, no_data, verified
from tasks.sources.origin import RawFile
from tasks.sources.reach import reached, shown

# six times, after 1, 2, 4, 8 and 16 s and some chance, or after what a busy server asks for
TRIES: Mapping[str, Any] = {"attempts": 6, "timeout": None, "wait_initial": 1.0, "wait_max": 16.0}
LONGEST_WAIT = 60.0  # seconds
TIMEOUT = httpx.Timeout(60, connect=4)  # of one address
UNUSABLE = "the proxy or the certificates that the environment names cannot be used"


class NotThere(BadInput):
    """The server has no such file."""


def fetch(file: RawFile, folder: Path, headers: Mapping[str, str] | None = None) -> str:
    """Bring `file` to its path below `folder`; where it is there already, and verified, nothing is asked for.

    What was received before a cut, a crash or a full disk stays beside it as `<path>.partial`, and the next call asks
    for the rest only. The file takes its place when it is whole and verified, never before. Returns by what it was
    verified, as `verified` does.

    Raises BadInput: the host cannot be reached (at once), the server refuses (at once; NotThere where it has no such
    file), is busy or cuts the transfer (after some tries), or what it sends is not the file.
    """
    target = folder / file.path
    if target.is_file():
        try:
            return verified(target, file, str(target))
        except BadInput:
            target.unlink()  # of an earlier call that knew less of it
    place = shown(str(file.url))
    partial = target.with_name(f"{target.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    reached(str(file.url))
    try:
        with _client() as client, _progress(target.name, file.size) as advance:
            for attempt in stamina.retry_context(on=_worth_another_try, **TRIES):
                with attempt:
                    _append(client, file, partial, headers or {}, advance)
    except httpx.HTTPStatusError as error:
        missing = error.response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.GONE)
        raise (NotThere if missing else BadInput)(f"{place}: the server answers {_status(error.response)}") from None
    except httpx.HTTPError as error:
        raise BadInput(f"{place} cannot be downloaded: {type(error).__name__}, {error}") from None
    try:
        by = verified(partial, file, f"what {place} sends")
    except BadInput:
        partial.unlink()
        raise
    partial.replace(target)
    _tag_file(partial).unlink(missing_ok=True)
    return by


def worth_another_try(response: Any) -> bool | float:
    """Is an answer that of a busy or broken server, and after how many seconds is it worth asking again?"""
    if response.status_code != httpx.codes.TOO_MANY_REQUESTS and not httpx.codes.is_server_error(response.status_code):
        return False
    asked = response.headers.get("Retry-After", "")
    return min(float(asked), LONGEST_WAIT) if asked.isdecimal() and int(asked) else True


def _worth_another_try(error: Exception) -> bool | float:
    if isinstance(error, httpx.HTTPStatusError):
        return worth_another_try(error.response)
    return isinstance(error, httpx.ReadError | httpx.ReadTimeout | httpx.RemoteProtocolError)  # the transfer was cut


def _client() -> httpx.Client:
    try:
        return httpx.Client(follow_redirects=True, timeout=TIMEOUT)
    except (ImportError, ValueError, OSError) as error:
        raise BadInput(f"{UNUSABLE}: {error}") from None


class _Bar:
    """How far a file has come, for whoever watches."""

    def __init__(self, progress: Progress, name: str, size: int | None) -> None:
        self._progress, self._task = progress, progress.add_task(name, total=size)

    def at(self, received: int, total: int | None) -> None:
        """So many bytes are there, of `total` where that is known by now."""
        self._progress.update(self._task, completed=received, total=total)


@contextmanager
def _progress(name: str, size: int | None) -> Iterator[_Bar]:
    """A bar in a terminal; in a log one line."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    seen = sys.stdout.isatty()
    if not seen:
        print(f"{name}: {size:,} bytes" if size else name, flush=True)
    with Progress(TextColumn("{task.description}"), *columns, disable=not seen) as progress:
        yield _Bar(progress, name, size)


def _append(client: httpx.Client, file: RawFile, partial: Path, headers: Mapping[str, str], bar: _Bar) -> None:
    """Ask for what `partial` lacks and write it there; httpx errors say what went wrong, `partial` keeps the rest."""
    have, tag = _received(partial, file)
    if have and have == file.size:
        return
    wanted = {**headers, "Accept-Encoding": "identity"}  # else a part of packed bytes would be asked for
    wanted |= {"Range": f"bytes={have}-", **({"If-Range": tag} if tag else {})} if have else {}
    with client.stream("GET", str(file.url), headers=wanted) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            if response.headers.get("Content-Range") == f"bytes */{have}":
                return  # it was whole already
            _start_anew(partial, "the file is shorter than what was received of it")
        if response.is_error:
            told = f"{shown(str(file.url))}: {_status(response)}"
            raise httpx.HTTPStatusError(told, request=response.request, response=response)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise BadInput(f"{shown(str(file.url))} is sent packed, though it was asked for as it is")
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            have = 0  # the whole file again: it is another one by now, or the server knows no ranges
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            _start_anew(partial, "the server sends another part of the file than it was asked for")
        elif tag and response.headers.get("ETag", tag) != tag:
            _start_anew(partial, "the server sends a part of another file than before")
        _write(response, file, partial, have, bar)


def _write(response: httpx.Response, file: RawFile, partial: Path, have: int, bar: _Bar) -> None:
    """The body of an answer to `partial`, after the `have` bytes that it keeps."""
    length = response.headers.get("Content-Length")
    of_all = response.headers.get("Content-Range", "").rpartition("/")[2]
    total = int(of_all) if of_all.isdecimal() else have + int(length) if length else file.size
    with partial.open("r+b" if have else "wb") as handle:
        _tag_file(partial).write_text(response.headers.get("ETag", ""))
        received = handle.seek(have)
        for piece in response.iter_raw():  # as it comes: a cut must lose nothing
            received += handle.write(piece)
            bar.at(received, total)
            if file.size is not None and received > file.size:
                break  # the size that it has by now will be refused
    with partial.open("rb") as handle:
        is_data = no_data(handle.read(HEAD)) is None
    if is_data and total is not None and received < total:  # HTTP tells of no other cut
        raise httpx.ReadError(f"the transfer ended after {received} of {total} bytes")


def _start_anew(partial: Path, why: str) -> None:
    partial.unlink()
    raise httpx.RemoteProtocolError(why)


def _received(partial: Path, file: RawFile) -> tuple[int, str]:
    """How many bytes of `file` are there to go on from, and the tag that the server gave them.

    Without a tag, and a hash that would tell in the end, it is not gone on from.
    """
    if not partial.exists():
        return 0, ""
    tag = _tag_file(partial).read_text() if _tag_file(partial).exists() else ""
    if not tag.startswith('"'):  # a weak tag (W/) holds for no range
        tag = ""
    return (partial.stat().st_size, tag) if tag or file.sha256 or file.git_blob or file.md5 else (0, "")


def _tag_file(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.etag")


def _status(response: httpx.Response) -> str:
    return f"{response.status_code} {response.reason_phrase}".strip()
