"""Write files atomically: a file appears complete or not at all."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from relmap.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

DISK_FULL = os.strerror(errno.ENOSPC)


LONGEST_NAME = 220  # bytes; file systems allow 255, and a file that is being written has a longer name


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it into place: it appears whole or not at all."""
    try:
        with temporary_beside(path) as partial:
            write(partial)
            partial.replace(path)
    except (pl.exceptions.ComputeError, OSError) as error:
        if DISK_FULL in str(error):  # Polars says it in words only
            raise OSError(errno.ENOSPC, DISK_FULL, str(path)) from None
        raise


@contextmanager
def temporary_beside(path: Path, made: Callable[[Path], object] = Path.touch, part: str = "") -> Iterator[Path]:
    """A file, or what else `made` makes, beside `path` while inside; what killed processes left there goes first.

    Its lock ends with this process, however that ends, so what nobody holds was left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(escape(f".{path.name}.") + "[0-9]*.partial"):
        with suppress(PermissionError), _locked(left, wait=False) as ours:
            if ours:  # another user's is theirs to remove
                remove(left)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{part}.partial")
    while True:
        made(temporary)
        with _locked(temporary, wait=True) as ours:
            if ours:
                try:
                    yield temporary
                finally:
                    remove(temporary)
                return


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Is the lock of the file or folder at `path` ours while inside? Not of one that was removed meanwhile.

    Without `fcntl` (on Windows) nothing is locked: what this process has made is its own, by the number in the name,
    and what other processes have left stays.
    """
    if fcntl is None:
        yield wait
        return
    with ExitStack() as opened:
        try:
            handle = os.open(path, os.O_RDONLY)
            opened.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(handle), path.stat())
        except (FileNotFoundError, BlockingIOError):
            ours = False
        yield ours


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check_place(out: Path | None, *inputs: Path) -> None:
    """Check that a file can be written.

    Args:
        out: Where to write, or None if nothing is written.
        *inputs: Files that are read, which `out` must not replace.

    Raises:
        InputError: `out` has a name that no file can have, is one of the inputs or no file, or its folder cannot be
            written.
    """
    if out is None:
        return
    check_name(out)
    check_file(out)
    if any(out.exists() and read.exists() and out.samefile(read) for read in inputs):
        raise InputError(f"{out} is a file that is read here; write to another one")
    above = next(folder for folder in (*out.absolute().parents,) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"{out} cannot be written: {above} is no folder that you may write to; write elsewhere")


def check_name(out: Path) -> None:
    """Check the name of a file that is to be written.

    Args:
        out: Where to write.

    Raises:
        InputError: The name begins with `~`, which only a shell replaces by the home folder, holds a NUL character, or
            has a part that is too long for file systems.
    """
    if out.parts and out.parts[0].startswith("~"):
        raise InputError(f"{out} begins with ~, which only a shell replaces by the home folder; give the whole path")
    if "\0" in str(out):
        raise InputError(f"{str(out)!r} holds a NUL character, which no file name can have; give another name")
    too_long = next((part for part in out.parts if len(os.fsencode(part)) > LONGEST_NAME), None)
    if too_long is not None:
        raise InputError(f"{too_long[:40]}... has more than {LONGEST_NAME} bytes; give a shorter name")


def check_ending(path: Path, *endings: str) -> None:
    """Check the ending of a file name.

    Args:
        path: Where to write.
        *endings: Endings that the name may have, such as `.json`.

    Raises:
        InputError: The name has another ending, or is an ending alone.
    """
    if path.suffix in endings:
        return
    if path.name in endings:
        raise InputError(f"{path} is an ending without a name; give a name, such as result{path.name}")
    raise InputError(f"{path} must end in {' or '.join(endings)}")


def check_file(path: Path) -> None:
    """Check that a path names a file, or nothing yet.

    Args:
        path: The path.

    Raises:
        InputError: It is a folder, a pipe or a device, or has a name that Arrow and a page cannot hold.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{path} has a name that is not UTF-8; rename that file or folder") from None
    try:
        is_other = path.exists() and not path.is_file()
    except (OSError, ValueError) as error:  # a name that is too long, or that holds a NUL character
        raise InputError(f"{str(path)[:80]!r} cannot be the name of a file: {error}") from None
    if is_other:
        raise InputError(f"{path} is {'a folder' if path.is_dir() else 'a pipe or a device'}; name a file")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Readable JSON, in the order given; NaN becomes null, since JSON has none."""
    write_text(path, json.dumps(_without_nan(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """The text in UTF-8, whole or not at all."""
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _without_nan(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and np.isnan(content) else content
