"""Work on all cores at once: NumPy, SciPy's products and polars let other threads run while they compute."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

MOST = 8  # what they compute is in memory at the same time

Item = TypeVar("Item")
Made = TypeVar("Made")


def in_threads(function: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """`function` of each item, in the order of the items, whichever thread is done first."""
    if len(items) == 1:
        return [function(items[0])]
    with ThreadPoolExecutor(min(MOST, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))
