"""One file over HTTP: streamed to disk, resumed after a cut, tried again only where that may help, then verified.

Why not `huggingface_hub` for its own files too: version 2.4 throws away what it has when its process ends, so a killed
download would start anew. It lists them (tasks/sources/hub.py); their bytes come through here like all others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import stamina
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tasks.protocol.errors import BadInput
from tasks.sources.contents import HEAD, no_data, verified
from tasks.sources.origin import RawFile

# six times, after 1, 2, 4, 8 and 16 s and some chance, or after what a busy server asks for
TRIES: Mapping[str, Any] = {"attempts": 6, "timeout": None, "wait_initial": 1.0, "wait_max": 16.0}
LONGEST_WAIT = 60.0  # seconds
TIMEOUT = httpx.Timeout(60, connect=4)  # of one address; a host that answers nowhere has four at most, as a rule
RESOLVER = "timeout:2 attempts:2"  # for the C library: a name server that is silent is asked for 20 s otherwise


class NotThere(BadInput):
    """The server has no such file."""


def fetch(file: RawFile, folder: Path, headers: Mapping[str, str] | None = None) -> Path:
    """Bring `file` to its path below `folder` and return that; where it is there already, nothing is asked for.

    What was received before a cut, a crash or a full disk stays beside it as `<path>.partial`, and the next call asks
    for the rest only. The file takes its place when it is whole and verified, never before.

    Raises BadInput: the host cannot be reached (at once), the server refuses (at once; NotThere where it has no such
    file), is busy or cuts the transfer (after some tries), or what it sends is not the file.
    """
    target = folder / file.path
    if target.is_file():
        return target
    assert file.url is not None
    partial = target.with_name(f"{target.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RES_OPTIONS", RESOLVER)
    try:
        with httpx.Client(follow_redirects=True, timeout=TIMEOUT) as client, _progress() as progress:
            bar = progress.add_task(target.name, total=file.size)
            for attempt in stamina.retry_context(on=_worth_another_try, **TRIES):
                with attempt:
                    _append(client, file, partial, headers or {}, progress, bar)
    except httpx.HTTPStatusError as error:
        missing = error.response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.GONE)
        raise (NotThere if missing else BadInput)(f"{file.url}: the server answers {_status(error.response)}") from None
    except httpx.HTTPError as error:
        raise BadInput(f"{file.url} cannot be downloaded: {type(error).__name__}, {error}") from None
    try:
        verified(partial, file, f"what {file.url} sends")
    except BadInput:
        partial.unlink()
        raise
    partial.replace(target)
    _etag_file(partial).unlink(missing_ok=True)
    return target


def _progress() -> Progress:
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True))


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


def _append(
    client: httpx.Client, file: RawFile, partial: Path, headers: Mapping[str, str], progress: Progress, bar: TaskID
) -> None:
    """Ask for what `partial` lacks and write it there; httpx errors say what went wrong, `partial` keeps the rest."""
    have, condition = _received(partial, file)
    if have and have == file.size:
        return
    wanted = {**headers, "Accept-Encoding": "identity", **({"Range": f"bytes={have}-", **condition} if have else {})}
    with client.stream("GET", str(file.url), headers=wanted) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            if response.headers.get("Content-Range") == f"bytes */{have}":
                return  # it was whole already
            partial.unlink()
            raise httpx.RemoteProtocolError("the file is shorter than what was received of it")
        response.raise_for_status()
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            have = 0  # the whole file again: it is another one by now, or the server knows no ranges
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            partial.unlink()
            raise httpx.RemoteProtocolError("the server sends another part of the file than it was asked for")
        _etag_file(partial).write_text(response.headers.get("ETag", ""))
        length = response.headers.get("Content-Length")
        progress.update(bar, completed=have, total=have + int(length) if length else file.size)
        with partial.open("r+b" if have else "wb") as handle:
            handle.seek(have)
            for piece in response.iter_raw():  # as it comes: a cut must lose nothing
                handle.write(piece)
                progress.advance(bar, len(piece))
                if file.size is not None and handle.tell() > file.size:
                    break  # the size that it has by now will be refused
    _refuse_short(partial, file)


def _refuse_short(partial: Path, file: RawFile) -> None:
    """A cut that HTTP does not tell of: the transfer ended well, and is too short for data of the known size."""
    size = partial.stat().st_size
    with partial.open("rb") as handle:
        if no_data(handle.read(HEAD)) is None and file.size is not None and size < file.size:
            raise httpx.ReadError(f"the transfer ended after {size} of {file.size} bytes")


def _received(partial: Path, file: RawFile) -> tuple[int, dict[str, str]]:
    """How many bytes of `file` are there to go on from, and the header that asks whether it is still the same file.

    Without a tag of what was received, and no hash that would tell in the end, it is not gone on from.
    """
    if not partial.exists():
        return 0, {}
    tag = _etag_file(partial).read_text() if _etag_file(partial).exists() else ""
    if tag.startswith('"'):  # a weak tag (W/) holds for no range
        return partial.stat().st_size, {"If-Range": tag}
    return (partial.stat().st_size, {}) if file.sha256 or file.git_blob or file.md5 else (0, {})


def _etag_file(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.etag")


def _status(response: httpx.Response) -> str:
    return f"{response.status_code} {response.reason_phrase}".strip()
