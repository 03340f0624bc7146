"""Is a file what it should be? What often stands in the place of data is known by its first bytes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from tasks.protocol.errors import BadInput
from tasks.provenance.hashing import sha256_of_file
from tasks.sources.origin import RawFile

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


def verified(path: Path, file: RawFile, called: str) -> str:
    """By what the bytes at `path` are known to be `file`: `SHA-256`, `SHA-1 of git`, `MD5`, `size` or `nothing`.

    BadInput says what else `called` is: no data, of another size, of other content.
    """
    with path.open("rb") as handle:
        instead = no_data(handle.read(HEAD))
    if instead is not None:
        raise BadInput(f"{called} {instead}")
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        raise BadInput(f"{called} is not the official file: it has {size} bytes, not {file.size}")
    for known, expected, hashed in (
        ("SHA-256", file.sha256, sha256_of_file),
        ("SHA-1 of git", file.git_blob, git_blob_of_file),
        ("MD5", file.md5, md5_of_file),
    ):
        if expected is not None:
            if (found := hashed(path)) != expected:
                raise BadInput(f"{called} is not the official file: its {known} is {found}, not {expected}")
            return known
    return "nothing" if file.size is None else "size"


def copied(source: Path, target: Path, file: RawFile) -> str:
    """Copy `source` to `target`, which appears verified or not at all; by what it was verified."""
    return appears(target, lambda partial: shutil.copyfile(source, partial), file, str(source))


def appears(target: Path, write: Callable[[Path], object], file: RawFile, called: str) -> str:
    """Let `write` fill a file beside `target`, verify that as `file`, and only then put it in its place.

    Returns by what it was verified.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    write(partial)
    by = verified(partial, file, called)
    partial.replace(target)
    return by


def md5_of_file(path: Path) -> str:
    """Hex MD5 of the bytes of a file: it tells of a broken transfer, though not of a forger."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def git_blob_of_file(path: Path) -> str:
    """Hex SHA-1 by which git names the content of a file."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as handle:
        while piece := handle.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
