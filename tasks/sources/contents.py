"""What a file holds in place of data is known by its first bytes, and what a library says of it by its first line."""

from __future__ import annotations

import json

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD = 1024  # bytes that tell


def no_data(head: bytes) -> str | None:
    """What a file is that begins with `head` and holds no data: empty, a Git LFS pointer, a web page; else None."""
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text:
        return "is empty"
    if head.startswith(LFS_POINTER):
        return "is a Git LFS pointer, not the file that it points to (`git lfs pull` fetches that)"
    if text.lower().startswith((b"<!doctype html", b"<html")):
        return f"is a web page (it begins with {text[:15]!r}), not data"
    return None


def first_line(error: Exception) -> str:
    """The first line of what a library says, as long as a message can bear."""
    return str(error).strip().partition("\n")[0][:200]


def bad_line(text: bytes, first: int = 1) -> str:
    """', line 17': the first line of JSON lines that holds anything but an object; empty where every line is one.

    `first` is the number of the first line of `text`.
    """
    lines = enumerate(text.removeprefix(BYTE_ORDER_MARK).split(b"\n"), start=first)
    return next((f", line {number}" for number, line in lines if not is_object(line)), "")


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
