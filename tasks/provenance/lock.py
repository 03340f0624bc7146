"""One at a time: locks between the processes of this machine, which end with the process that holds them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from relmap import errors
from relmap.io import atomic
from tasks.records import store

LOCKS = store.STATE / "locks"


@contextmanager
def locked(name: str, refusal: str | None = None) -> Iterator[datetime]:
    """Since when this process holds the lock `name` of this project, and it holds it inside.

    While another process has it, say which, and wait for it; or raise InputError with the words of a `refusal`. Within
    one process it can be held again by who holds it.
    """
    LOCKS.mkdir(parents=True, exist_ok=True)
    store.make_private()
    lock, holder = FileLock(LOCKS / f"{name}.lock", is_singleton=True, thread_local=False), LOCKS / f"{name}.json"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if refusal is not None:
            raise errors.InputError(refusal) from None
        try:
            process = store.read_json(holder)
            who = f"process {process['process']} has been running it since {process['since'].partition('.')[0]} UTC"
        except errors.InputError:  # it may have ended, or not have said so yet
            who = "another process runs it"
        print(f"{name} is waiting: {who}", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        if lock.lock_counter == 1:
            atomic.write_json(holder, {"process": os.getpid(), "since": datetime.now(UTC).isoformat()})
        yield datetime.fromisoformat(store.read_json(holder)["since"])
    finally:
        lock.release()


def is_held(lock: Path) -> bool:
    """Whether a living process holds the file `lock`: a killed one leaves it there, but does not hold it.

    One that may not be opened is another user's, and so is whoever holds it.
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
