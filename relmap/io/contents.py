"""The door for files that people bring: what is missing, cut off or no data at all is refused here, by name.

What a file holds in place of data is known by its first bytes, and what a library says of it by its first line.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa

from relmap.errors import InputError
from relmap.io.atomic import check_file

PARQUET = "a whole parquet file"
JSON_LINES = "one JSON object per line"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD = 1024  # bytes that tell
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:$")  # how the path of https://host/file begins; C: is a drive


def check_content(path: Path, advice: str) -> bytes:
    """The first bytes of the file at `path`.

    Raises:
        InputError: it is missing, no file, cannot be read, or holds no data (see `refuse_no_data`).
    """
    check_file(path)
    if ADDRESS.match(path.parts[0] if path.parts else ""):
        address = str(path).replace(":/", "://", 1)  # a path holds one slash of the two
        raise InputError(f"{address} is an address, not a file; download it, and give the path of the file")
    try:
        with path.open("rb") as handle:
            head = handle.read(HEAD)
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise InputError(f"{path} {what}; {advice}") from None
    refuse_no_data(path, head, advice)
    return head


def refuse_no_data(path: Path, head: bytes, advice: str) -> None:
    """Raise InputError, which ends in `advice`, for a file that is empty, a Git LFS pointer or a web page."""
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text:
        raise InputError(f"{path} is empty; {advice}")
    if head.startswith(LFS_POINTER):
        pointer = "is a Git LFS pointer, not the file that it points to (`git lfs pull` fetches that)"
        raise InputError(f"{path} {pointer}; {advice}")
    if text.lower().startswith((b"<!doctype html", b"<html")):
        raise InputError(f"{path} is a web page (it begins with {text[:15]!r}), not data; {advice}")


@contextmanager
def parsing(path: Path, what: str, advice: str, lines: Path | bytes = b"", first: int = 1) -> Iterator[None]:
    """What polars and Arrow cannot read inside is InputError: the file at `path` is not `what`.

    Of JSON `lines`, the first of which is line `first` of the file, it names the first that is bad.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the machine failed, not the data
            raise
        text = lines.read_bytes() if isinstance(lines, Path) else lines
        numbered = enumerate(text.removeprefix(BYTE_ORDER_MARK).split(b"\n"), start=first)
        place = next((f", line {number}" for number, line in numbered if not is_object(line)), "")
        raise InputError(f"{path}{place} is not {what} ({first_line(error)}); {advice}") from None


def first_line(error: Exception) -> str:
    """The first line of what a library says, as long as a message can bear."""
    return str(error).strip().partition("\n")[0][:200]


def is_object(line: bytes) -> bool:
    """Whether a line is blank or a JSON object; NaN and Infinity are not JSON, and a key twice has no one meaning."""
    try:
        read = json.loads(line.strip() or b"{}", parse_constant=_refused, object_pairs_hook=_keys_once)
        return isinstance(read, dict)
    except (ValueError, RecursionError):
        return False


def _refused(constant: str) -> None:
    raise ValueError(constant)


def _keys_once(members: list[tuple[str, object]]) -> dict[str, object]:
    if len(read := dict(members)) < len(members):
        raise ValueError("a key twice")
    return read
