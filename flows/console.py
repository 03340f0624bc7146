"""How the commands of `flows.rerank` speak: words for people, JSON for programs, and how far a long one is."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TimeElapsedColumn

from tasks.protocol import errors, store


@contextmanager
def progress() -> Iterator[Callable[[str, int], None]]:
    """A line on a terminal for each stage: how many rows it has done."""
    columns = SpinnerColumn(), "{task.completed:,} rows {task.description}", TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        stages: dict[str, TaskID] = {}

        def advance(stage: str, rows: int) -> None:
            if stage not in stages:
                stages[stage] = bar.add_task(stage, total=None)
            bar.advance(stages[stage], rows)

        yield advance


def show(content: dict[str, Any], out: Path | None) -> None:
    """JSON into a file, or to the output."""
    if out is not None:
        store.write_json(out, content)
    else:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        print("\n".join(map(errors.printable, text.split("\n"))))


def say(lines: list[str]) -> list[str]:
    """Lines for a person, which are also returned, whatever was in the files that they speak of escaped."""
    shown = [errors.printable(line) for line in lines]
    for line in shown:
        print(line, file=sys.stderr, flush=True)
    return shown
