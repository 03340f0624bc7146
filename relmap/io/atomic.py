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

from relmap.errors import InputError, assignment

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

DISK_FULL = os.strerror(errno.ENOSPC)
MAX_NAME_BYTES = 220  # file systems allow 255, and the temporary file has a longer name
MAX_SHOWN_CHARACTERS = 80


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder and move it to its path.

    Args:
        path: Where the file appears.
        write: Writes the file to the path that it receives.

    Raises:
        OSError: The disk is full, or the file cannot be written.
        ComputeError: polars cannot write the content.
    """
    try:
        with temporary_path(path) as partial:
            write(partial)
            partial.replace(path)
    except (pl.exceptions.ComputeError, OSError) as error:
        if DISK_FULL in str(error):  # polars reports it only in the text
            raise OSError(errno.ENOSPC, DISK_FULL, str(path)) from None
        raise


@contextmanager
def temporary_path(path: Path, create: Callable[[Path], object] = Path.touch, infix: str = "") -> Iterator[Path]:
    """Create a temporary file or folder next to a path, and remove it at the end.

    First, remove the temporary files and folders of this path that terminated processes did not remove. A process locks
    its temporary file, and the lock ends with the process, so a temporary file without a lock is unused.

    Args:
        path: Path that the temporary one is next to.
        create: Creates the temporary file or folder.
        infix: Text in the temporary name, for a process that creates several temporary paths for one path.

    Yields:
        The temporary path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for unused in path.parent.glob(escape(f".{path.name}.") + "[0-9]*.partial"):
        # files of other users may cause a PermissionError; they remain
        with suppress(PermissionError), _locked(unused, wait=False) as is_locked:
            if is_locked:
                remove_path(unused)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{infix}.partial")
    while True:  # another process may remove the path between its creation and its lock
        create(temporary)
        with _locked(temporary, wait=True) as is_locked:
            if is_locked:
                try:
                    yield temporary
                finally:
                    remove_path(temporary)
                return


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a file or folder within the block.

    Without `fcntl` (on Windows) there are no locks. Then a process uses its own temporary path without a lock, since
    the name contains the number of the process, and does not remove the paths of other processes.

    Yields:
        Whether the path is locked. False if it was removed meanwhile, or if another process has the lock and `wait` is
        false.
    """
    if fcntl is None:
        yield wait  # callers wait for the lock of their own path only
        return
    with ExitStack() as stack:
        try:
            handle = os.open(path, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = os.path.samestat(os.fstat(handle), path.stat())
        except (FileNotFoundError, BlockingIOError):
            is_locked = False
        yield is_locked


def remove_path(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists.

    Args:
        path: The file or folder.
    """
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check_output_path(out: Path | None, *inputs: Path) -> None:
    """Check that a file can be written.

    Args:
        out: Where to write, or None if nothing is written.
        *inputs: Files that are read, which `out` must not replace.

    Raises:
        InputError: `out` has an invalid name, is one of the inputs, is a folder or device, or its folder cannot be
            written.
    """
    if out is None:
        return
    check_output_name(out)
    check_file(out)
    for source in inputs:
        if out.exists() and source.exists() and out.samefile(source):
            raise InputError(f"{out} is an input file; write to another file")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{out} cannot be written: {folder} is not a folder that you may write to; write elsewhere")


def check_new_file(out: Path | None, *, force: bool) -> None:
    """Check that a file does not exist, so that no map and no results are lost.

    Args:
        out: Where to write, or None if nothing is written.
        force: Whether the file may be replaced.

    Raises:
        InputError: The file exists, and must not be replaced.
    """
    if out is not None and not force and out.exists():
        raise InputError(f"{out} exists; write to another file, or give {assignment('force', True)} to replace it")


def check_output_name(out: Path) -> None:
    """Check the name of a file that is to be written.

    Args:
        out: Where to write.

    Raises:
        InputError: The name begins with `~` (only a shell replaces it with the home folder), contains a NUL character,
            or has a part that is too long for file systems.
    """
    if out.parts and out.parts[0].startswith("~"):
        raise InputError(f"{out} begins with ~, which only a shell replaces with the home folder; give the whole path")
    if "\0" in str(out):
        raise InputError(f"{str(out)!r} contains a NUL character, which no file name can have; give another name")
    for part in out.parts:
        if len(os.fsencode(part)) > MAX_NAME_BYTES:
            raise InputError(f"{part[:40]}... has more than {MAX_NAME_BYTES} bytes; give a shorter name")


def check_suffix(path: Path, *suffixes: str) -> None:
    """Check the suffix of a file name.

    Args:
        path: Where to write.
        *suffixes: Suffixes that the name may have, such as `.json`.

    Raises:
        InputError: The name has another suffix, or is only a suffix.
    """
    if path.suffix in suffixes:
        return
    if path.name in suffixes:
        raise InputError(f"{path} has no name before its suffix; give a name, such as result{path.name}")
    raise InputError(f"{path} must end in {' or '.join(suffixes)}")


def check_file(path: Path) -> None:
    """Check that a path is a file or does not exist.

    Args:
        path: The path.

    Raises:
        InputError: The path is a folder, a pipe or a device, or its name is not UTF-8, which Arrow and HTML require.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{path} has a name that is not UTF-8; rename that file or folder") from None
    try:
        is_irregular = path.exists() and not path.is_file()
    except (OSError, ValueError) as error:  # a name that is too long, or that contains a NUL character
        raise InputError(f"{str(path)[:MAX_SHOWN_CHARACTERS]!r} cannot be the name of a file: {error}") from None
    if is_irregular:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file. Join part files, such as those of Spark, to one file")
        raise InputError(f"{path} is a pipe or a device; name a file")


def read_json_object(path: Path, *, kind: str, command: str, max_bytes: int) -> tuple[str, Any]:
    """Read a JSON file that a command wrote.

    Args:
        path: The file.
        kind: What the file holds, such as `reliability map`; its last word names it in advice.
        command: Command that writes such a file, such as `relmap fit`.
        max_bytes: Largest size of such a file.

    Returns:
        The text, and its content.

    Raises:
        InputError: The file is missing, too large, or not JSON.
    """
    check_file(path)
    noun = kind.rsplit(maxsplit=1)[-1]
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise InputError(
                f"{path} has {size:,} bytes; a {kind} is far smaller; give a {noun} that `{command}` wrote"
            )
        text = path.read_text(encoding="utf-8")
        return text, json.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; `{command}` writes a {noun}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise InputError(f"{path} is not a complete JSON file ({error}); fit the {noun} again") from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON atomically, in the given order; NaN becomes null.

    Args:
        path: Where to write.
        content: The content.
    """
    write_text(path, json.dumps(_nan_to_none(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 atomically.

    Args:
        path: Where to write.
        text: The text.
    """
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def _nan_to_none(content: object) -> object:
    if isinstance(content, Mapping):
        return {key: _nan_to_none(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_nan_to_none(value) for value in content]
    return None if isinstance(content, float) and np.isnan(content) else content
