"""One at a time: locks between the processes of this machine, which end with the process that holds them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from tasks.protocol.errors import BadInput
from tasks.protocol.store import STATE, read_json, write_json


@contextmanager
def held(name: str) -> Iterator[None]:
    """Hold the lock `name` of this project; while another process has it, say which, and wait for it.

    Within one process it can be held again by who holds it.
    """
    folder = STATE / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(folder / f"{name}.lock", is_singleton=True, thread_local=False), folder / f"{name}.json"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"{name} is waiting: {_who(name)}", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        if lock.lock_counter == 1:
            write_json(holder, {"process": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")})
        yield
    finally:
        lock.release()


def is_held(lock: Path) -> bool:
    """Does a living process hold the file `lock`? A killed one leaves it there, but does not hold it."""
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True


def _who(name: str) -> str:
    """Who holds a lock, in words; it may have ended, or not have said so yet."""
    try:
        told = read_json(STATE / "locks" / f"{name}.json")
    except BadInput:
        return "another process runs it"
    return f"process {told['process']} has been running it since {told['since']}"
