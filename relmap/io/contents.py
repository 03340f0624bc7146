"""Recognize files that are missing, truncated, or contain something other than data.

The first bytes of a file identify what it contains. Messages quote the first line of a library's error.
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

PARQUET = "a complete parquet file"
JSON_LINES = "one JSON object per line"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD_BYTES = 1024
MAX_ERROR_CHARACTERS = 200
URL_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:$")  # `https:`, the first part of a path from a URL; `C:` is a drive


def check_content(path: Path, advice: str) -> bytes:
    """Check that a file exists and contains data.

    Args:
        path: The file.
        advice: Remedy, with which messages end.

    Returns:
        The first bytes of the file.

    Raises:
        InputError: The file is missing, not a regular file, unreadable, or contains no data (see `reject_non_data`).
    """
    check_file(path)
    if path.parts and URL_SCHEME.match(path.parts[0]):
        url = str(path).replace(":/", "://", 1)  # a path has one slash instead of two
        raise InputError(f"{url} is a URL, not a file; download it, and give the path of the file")
    try:
        with path.open("rb") as handle:
            head = handle.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path} is missing; {advice}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; {advice}") from None
    reject_non_data(path, head, advice)
    return head


def reject_non_data(path: Path, head: bytes, advice: str) -> None:
    """Reject a file that is empty, a Git LFS pointer or a web page.

    Args:
        path: The file, for messages.
        head: First bytes of the file.
        advice: Remedy, with which messages end.

    Raises:
        InputError: The file contains no data.
    """
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text:
        raise InputError(f"{path} is empty; {advice}")
    if head.startswith(LFS_POINTER):
        raise InputError(
            f"{path} is a Git LFS pointer, not the file that it refers to (`git lfs pull` downloads it); {advice}"
        )
    if text.lower().startswith((b"<!doctype html", b"<html")):
        raise InputError(f"{path} is a web page (it begins with {text[:15]!r}), not data; {advice}")


@contextmanager
def report_parse_errors(
    path: Path, expected: str, advice: str, lines: Path | bytes = b"", first_number: int = 1
) -> Iterator[None]:
    """Convert an error of polars or Arrow inside the block, which they raise for invalid data, to an `InputError`.

    Args:
        path: The file, for messages.
        expected: What the file should be, such as "a complete parquet file".
        advice: Remedy, with which messages end.
        lines: JSON lines, or their file; the message names the first invalid line.
        first_number: Number in the file of the first of these lines, from 1.

    Yields:
        None.

    Raises:
        InputError: polars or Arrow cannot read the data.
        OSError: The operating system cannot read the file.
    """
    cause: Exception
    try:
        yield
        return
    except OSError as error:
        if error.errno is not None:  # an error of the operating system; Arrow raises OSError for invalid data too
            raise
        cause = error
    except (pl.exceptions.PolarsError, pa.ArrowException, UnicodeDecodeError) as error:
        cause = error
    location = _locate_invalid_line(lines, first_number)
    raise InputError(f"{path}{location} is not {expected} ({first_line(cause)}); {advice}") from None


def _locate_invalid_line(lines: Path | bytes, first_number: int) -> str:
    """Return `, line 7` for the first line that is not a JSON object; empty if there is none."""
    text = lines.read_bytes() if isinstance(lines, Path) else lines
    for number, line in enumerate(text.removeprefix(BYTE_ORDER_MARK).split(b"\n"), start=first_number):
        if not is_json_object(line):
            return f", line {number}"
    return ""


def first_line(error: Exception) -> str:
    """Return the first line of an error message, truncated.

    Args:
        error: The error.

    Returns:
        At most 200 characters.
    """
    line, _, _ = str(error).strip().partition("\n")
    return line[:MAX_ERROR_CHARACTERS]


def is_json_object(line: bytes) -> bool:
    """Return whether a line is blank or a JSON object.

    NaN and Infinity are not JSON. An object with a repeated key is ambiguous.

    Args:
        line: The line.

    Returns:
        Whether it is valid.
    """
    try:
        content = json.loads(line.strip() or b"{}", parse_constant=_reject_constant, object_pairs_hook=_unique_keys)
        return isinstance(content, dict)
    except (ValueError, RecursionError):
        return False


def _reject_constant(constant: str) -> None:
    raise ValueError(constant)


def _unique_keys(members: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(members)
    if len(content) < len(members):
        raise ValueError("repeated key")
    return content
