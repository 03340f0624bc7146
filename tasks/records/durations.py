"""Where the time of a stage goes, by kind of work. Kept beside the results, which are the same in every run."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import NamedTuple, ParamSpec, TypeVar

import psutil

from relmap.errors import InputError
from relmap.io import atomic
from tasks.records import store

P = ParamSpec("P")
R = TypeVar("R")

KINDS = ("start", "read", "train", "fit", "check", "measure", "write")
FOLDER = store.STATE / "durations"


class Duration(NamedTuple):
    """Duration of a stage.

    Attributes:
        seconds: Seconds from the start of the process to its end.
        kinds: Kind of work -> seconds, in the order of KINDS.
    """

    seconds: float
    kinds: dict[str, float]


def add_durations(durations: Collection[Duration]) -> Duration:
    """Add the durations of several stages.

    Args:
        durations: The durations.

    Returns:
        Their sum, of all seconds and of each kind of work.
    """
    kinds = {kind: sum(duration.kinds[kind] for duration in durations) for kind in KINDS}
    return Duration(sum(duration.seconds for duration in durations), kinds)


_seconds: dict[str, float] = defaultdict(float)  # of this process
_lock = Lock()


def measured(kind: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that the duration of each call is added to a kind of work, as by `measure_block`.

    The decorated function can be pickled, as a task for Dask must be.

    Args:
        kind: One of KINDS.

    Returns:
        The decorator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            with measure_block(kind):
                return function(*args, **options)

        return call

    return decorate


@contextmanager
def measure_block(kind: str) -> Iterator[None]:
    """Add the duration of a block to a kind of work.

    Tasks that run at the same time are added, so the sum over kinds can exceed the duration of the stage. Work in other
    processes, such as the workers of Dask, is not counted.

    Args:
        kind: One of KINDS.

    Yields:
        Nothing.
    """
    start = time.perf_counter()
    try:
        yield
    finally:
        duration = time.perf_counter() - start
        with _lock:
            _seconds[kind] += duration


@contextmanager
def record_duration(stage: str) -> Iterator[None]:
    """Write how long a stage took, from the start of this process to the end of the block, if it succeeds.

    Args:
        stage: Name of the stage in DVC.

    Yields:
        Nothing.
    """
    created = psutil.Process().create_time()
    _seconds.clear()
    _seconds["start"] = time.time() - created  # Python, imports and the look at the code
    yield
    duration = Duration(time.time() - created, {kind: _seconds[kind] for kind in KINDS})
    atomic.write_json(FOLDER / f"{stage}.json", duration._asdict())


def read_duration(stage: str) -> Duration | None:
    """Read how long the last successful run of a stage took.

    Args:
        stage: Name of the stage in DVC.

    Returns:
        The duration; None if there is no record.
    """
    try:
        record = store.read_json(FOLDER / f"{stage}.json")
    except InputError:  # missing or damaged
        return None
    return Duration(**record)
