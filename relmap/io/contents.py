"""Recognize files that are missing, truncated, or contain something other than data.

The first bytes of a file identify what it contains. Messages quote the first line of a library's error.
"""

import difflib
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
WRITE_AGAIN = "write the file again"  # remedy for a damaged file
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BOOLEAN_VALUE = re.compile(rb":\s*(true|false)\b")
HEAD_BYTES = 1024
SIMILAR_NAMES = 0.8  # similarity of the name of a missing file and of a file that may be meant
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
        InputError: The file is missing, not a regular file, unreadable, empty, a Git LFS pointer or a web page.
    """
    check_file(path)
    if path.parts and URL_SCHEME.match(path.parts[0]):
        url = str(path).replace(":/", "://", 1)  # a path has one slash instead of two
        raise InputError(f"{url} is a URL, not a file; download it, and give the path of the file")
    try:
        with path.open("rb") as handle:
            head = handle.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path} is missing; {_find_similar_file(path) or advice}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; {advice}") from None
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text:
        raise InputError(f"{path} is empty; {advice}")
    if head.startswith(LFS_POINTER):
        raise InputError(
            f"{path} is a Git LFS pointer, not the file that it refers to (`git lfs pull` downloads it); {advice}"
        )
    if text.lower().startswith((b"<!doctype html", b"<html")):
        raise InputError(f"{path} is a web page (it begins with {text[:15]!r}), not data; {advice}")
    return head


def _find_similar_file(path: Path) -> str:
    """Ask for a file of a similar name in the same folder; empty if there is none."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return f"is there a folder {path.parent}?"
    similar = [name for name in names if Path(name).stem == path.stem]
    similar += difflib.get_close_matches(path.name, names, n=1, cutoff=SIMILAR_NAMES)
    return f"is it {path.with_name(similar[0])}?" if similar else ""


@contextmanager
def report_parse_errors(
    path: Path, expected: str, advice: str, lines: bytes = b"", first_number: int = 1
) -> Iterator[None]:
    """Convert an error of polars or Arrow inside the block, which they raise for invalid data, to an `InputError`.

    Args:
        path: The file, for messages.
        expected: What the file should be, such as "a complete parquet file".
        advice: Remedy, with which messages end.
        lines: JSON lines; the message names the first invalid line.
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
    for number, line in enumerate(lines.removeprefix(BYTE_ORDER_MARK).split(b"\n"), start=first_number):
        if not is_json_object(line):
            reason = _explain_invalid_line(path, line)
            if reason:
                raise InputError(f"{path}, line {number} {reason}") from None
            raise InputError(f"{path}, line {number} is not {expected} ({first_line(cause)}); {advice}") from None
    reason = _explain_constants(lines) if expected != PARQUET else ""
    if reason:
        raise InputError(f"{path} {reason}") from None
    raise InputError(f"{path} is not {expected} ({first_line(cause)}); {advice}") from None


def _explain_invalid_line(path: Path, line: bytes) -> str:
    """Explain why a line is not a JSON object, with the remedy; empty for other reasons than common ones."""
    begin = line.strip()[:1]
    if begin == b"[" or line.strip() in (b"{", b"]", b"],"):
        return (
            "begins a JSON list, or an object of several lines, but each line must be one object; if the file is a "
            f"list of objects, rename it to {path.with_suffix('.json').name}"
        )
    reason = _explain_constants(line)
    if reason:
        return reason
    try:
        is_object = isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return ""
    return "has an object with a repeated key; keep one of the two" if is_object else ""


def _explain_constants(text: bytes) -> str:
    """Explain that NaN and infinite numbers are not JSON; empty if the text has none of them outside strings."""
    found: list[str] = []
    try:
        json.loads(text, parse_constant=found.append)
    except (ValueError, RecursionError):
        return ""
    if not found:
        return ""
    remedy = (
        "write null for a missing number" if found[0] == "NaN" else "write -9999 for the logit of a probability of 0"
    )
    return f"has {found[0]}, which is not JSON; {remedy}"


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


def infer_column_types(content: bytes) -> pl.Schema:
    """Find the type of each column of JSON lines.

    A column whose values have no common type, such as objects and numbers, or booleans and numbers, is text.

    Args:
        content: Complete lines.

    Returns:
        Names and types of the columns.

    Raises:
        PolarsError: A line is not a JSON object.
    """
    try:
        types = pl.scan_ndjson(content, infer_schema_length=None).collect_schema()
        has_objects = any(isinstance(dtype, pl.Struct | pl.List) for dtype in types.values())
        has_numbers = any(dtype.is_numeric() for dtype in types.values())
        if has_objects or (has_numbers and BOOLEAN_VALUE.search(content)):
            pl.read_ndjson(content, schema=types)
    except pl.exceptions.PolarsError:
        columns = _columns_of_lines(content)
        if not columns:
            raise
        return pl.Schema({name: _infer_column_type(values) for name, values in columns.items()})
    return types


def _columns_of_lines(content: bytes) -> dict[str, list[object]]:
    """Return the values of each column of JSON lines; empty if a line is not a JSON object."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    if not all(is_json_object(line) for line in lines):
        return {}
    objects = [json.loads(line) for line in lines]
    names = dict.fromkeys(name for members in objects for name in members)
    return {name: [members.get(name) for members in objects] for name in names}


def _infer_column_type(values: list[object]) -> pl.DataType:
    """Find a type for all values of a column, or text."""
    lines = b"\n".join(json.dumps({"": value}).encode() for value in values)
    try:
        return pl.read_ndjson(lines, infer_schema_length=None).dtypes[0]
    except pl.exceptions.PolarsError:
        return pl.String()


def combine_column_types(first: pl.Schema, second: pl.Schema) -> pl.Schema:
    """Find the type of each column of the lines of two pieces of a file.

    Args:
        first: Types of the columns of one piece.
        second: Types of the columns of the other.

    Returns:
        Types that fit both pieces; text for a column that has no common type.
    """
    types = dict(first)
    for name, dtype in second.items():
        if name in types and types[name] != dtype:
            types[name] = _common_type(types[name], dtype)
        else:
            types[name] = dtype
    return pl.Schema(types)


def _common_type(first: pl.DataType, second: pl.DataType) -> pl.DataType:
    is_boolean = [dtype == pl.Boolean for dtype in (first, second)]
    is_number = [dtype.is_numeric() for dtype in (first, second)]
    if any(is_boolean) and any(is_number):
        return pl.String()
    try:
        frames = [pl.DataFrame(schema={"": first}), pl.DataFrame(schema={"": second})]
        return pl.concat(frames, how="diagonal_relaxed").dtypes[0]
    except pl.exceptions.PolarsError:
        return pl.String()
