"""Work on two cores at once: NumPy, polars and Arrow let other threads run while they compute."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def in_order(function: Callable[[Item], Made], items: Iterable[Item], *, threads: int) -> Iterator[Made]:
    """`function` of each item, in the order of the items, on `threads` threads beside the one that takes the items.

    Only as many items as there are threads, and one more, are in memory at a time. What is raised comes through.
    """
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[Made]] = deque()
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
