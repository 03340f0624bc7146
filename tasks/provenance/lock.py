"""Locks between the processes of this machine. A lock ends with the process that holds it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from relmap import errors
from relmap.io import atomic
from tasks.records import store

LOCKS = store.STATE / "locks"


def _print_to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def hold_lock(
    name: str, refusal: str | None = None, report: Callable[[str], None] = _print_to_stderr
) -> Iterator[datetime]:
    """Hold a lock of this project. The process that holds it can acquire it again.

    If another process holds the lock, report which one and wait for it, or raise an error.

    Args:
        name: Name of the lock.
        refusal: Message of the error. Without it, wait.
        report: Receives the message about the process that holds the lock. By default it is printed to standard error.

    Yields:
        Time since when this process holds the lock.

    Raises:
        InputError: Another process holds the lock, and there is a `refusal`.
    """
    LOCKS.mkdir(parents=True, exist_ok=True)
    store.make_private()
    lock = FileLock(LOCKS / f"{name}.lock", is_singleton=True, thread_local=False)
    holder_file = LOCKS / f"{name}.json"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if refusal is not None:
            raise errors.InputError(refusal) from None
        report(f"{name} is waiting: {_describe_holder(holder_file)}")
        lock.acquire()
    try:
        if lock.lock_counter == 1:
            atomic.write_json(holder_file, {"process": os.getpid(), "since": datetime.now(UTC).isoformat()})
        yield datetime.fromisoformat(store.read_json(holder_file)["since"])
    finally:
        lock.release()


def is_lock_held(lock: Path) -> bool:
    """Check whether a living process of this user holds a lock.

    A killed process leaves the lock file behind, but no longer holds the lock. A file that cannot be opened belongs to
    another user.

    Args:
        lock: Lock file.
    """
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def _describe_holder(holder_file: Path) -> str:
    try:
        holder = store.read_json(holder_file)
    except errors.InputError:  # the process may have ended, or not written its file yet
        return "another process holds this lock"
    return f"process {holder['process']} has been running it since {holder['since'].partition('.')[0]} UTC"
