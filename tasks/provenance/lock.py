"""Locks between the processes of this machine. A lock ends with the processes that hold it."""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from relmap import errors
from tasks.records import store

LOCKS = store.STATE / "locks"


def _print_to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextmanager
def hold_lock(
    name: str, refusal: str | None = None, report: Callable[[str], object] = _print_to_stderr
) -> Iterator[int]:
    """Hold a lock of this project inside the `with` block.

    If another process holds the lock, report which one and wait for it, or raise an error.

    Args:
        name: Name of the lock.
        refusal: Message of the error. Without it, wait.
        report: Receives the message about the process that holds the lock. By default it is printed to standard error.

    Yields:
        Descriptor of the lock. A process that inherits it also holds the lock, until it ends.

    Raises:
        InputError: Another process holds the lock, and there is a `refusal`.
    """
    LOCKS.mkdir(parents=True, exist_ok=True)
    store.make_private()
    with (LOCKS / f"{name}.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if refusal is not None:
                raise errors.InputError(refusal) from None
            file.seek(0)
            report(f"{name} is waiting: {file.read() or 'another process holds this lock'}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} has been running it since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
        file.flush()
        yield file.fileno()


def is_lock_held(lock: Path) -> bool:
    """Check whether a living process of this user holds a lock.

    A killed process leaves the lock file behind, but no longer holds the lock. A file that cannot be opened belongs to
    another user.

    Args:
        lock: Lock file.
    """
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
