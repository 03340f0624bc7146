"""What often stands in the place of data is known by its first bytes."""

from __future__ import annotations

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
