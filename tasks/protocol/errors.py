"""What goes wrong by no fault of ours: the message names the place, what was found and what to do."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def printable(text: str) -> str:
    """`text` with what may steer a terminal, or hide what stands there, escaped as in JSON."""
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


class BadInput(ValueError):
    """Something handed in by a person is wrong: a file, a column, a name in `params.yaml`.

    The message is written for that person. The doors of the project (stages, flows, command line) print it
    without a traceback and exit with 1; anything else that is raised is our fault and keeps its traceback.
    """


class RunFailed(Exception):
    """A run cannot go on; the message names its coordinates (data set, calibrator, seed) and the reason."""


def mistakes(error: "ValidationError", whole: str) -> list[str]:
    """Each mistake that pydantic found: its place (`whole`, if it has none), why, and what stood there."""
    why = {"extra_forbidden": "there is no such name here; correct it, or take it out"}
    return [
        f"{'.'.join(map(str, wrong['loc'])) or whole}: {why.get(wrong['type'], wrong['msg'])} "
        f"(found {wrong['input']!r:.80})"
        for wrong in error.errors()
    ]
