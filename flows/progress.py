"""How far a flow is, on the page of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from prefect.artifacts import create_progress_artifact, update_progress_artifact


@contextmanager
def progress(name: str, steps: int, what: str) -> Iterator[Callable[[], None]]:
    """Something to call after each of `steps`; `what` they make, in words."""
    page: Any = create_progress_artifact(0.0, key=f"progress-{name}", description=f"{name}: {what}")
    numbers = count(1)

    def done() -> None:
        update_progress_artifact(page, 100 * next(numbers) / steps)

    yield done
