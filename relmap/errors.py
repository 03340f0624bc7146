"""What goes wrong by no fault of ours: the message names the place, what was found and what to do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def escape_unprintable(text: str) -> str:
    """`text` with what may steer a terminal, or hide what stands there, escaped as in JSON."""
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


class InputError(ValueError):
    """Something handed in by a person is wrong: a file, a column, a name in `params.yaml`.

    The message is written for that person. The doors of the project (stages, flows, command line) print it
    without a traceback and exit with 1; anything else that is raised is our fault and keeps its traceback.
    """


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Report a missing optional dependency with the extra that installs it.

    Args:
        extra: Name of an extra of this distribution, such as `report`.

    Raises:
        InputError: A package that is not part of this project could not be imported.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"relmap", "tasks", "flows"}:
            raise
        raise InputError(
            f"this needs the package {error.name}, which is not installed; run: pip install 'relmap[{extra}]'"
        ) from None


def describe_validation_errors(error: "ValidationError", whole: str) -> list[str]:
    """Each mistake that pydantic found: its place (`whole`, if it has none), why, and what stood there."""
    why = {"extra_forbidden": "there is no such name here; correct it, or take it out"}
    return [
        f"{'.'.join(map(str, wrong['loc'])) or whole}: {why.get(wrong['type'], wrong['msg'])} "
        f"(found {wrong['input']!r:.80})"
        for wrong in error.errors()
    ]
