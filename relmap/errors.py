"""Errors in user input: each message states where the error is, what is wrong, and how to correct it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


def escape_unprintable(text: str) -> str:
    """Replace each character that could control a terminal or hide text with its JSON escape.

    Args:
        text: Any text.

    Returns:
        The text with only printable characters.
    """
    escaped = []
    for character in text:
        if character.isprintable():
            escaped.append(character)
        else:
            escaped.append(json.dumps(character).strip('"'))
    return "".join(escaped)


class InputError(ValueError):
    """Error in user input, such as a file, a column or a name in `params.yaml`.

    Stages, flows and the command line print the message without a traceback and exit with 1. Any other exception is a
    bug and is raised with its traceback.

    Example:
        >>> from relmap import InputError, ReliabilityMap
        >>> try:
        ...     ReliabilityMap.load("missing.json")
        ... except InputError as error:
        ...     print("missing.json" in str(error))
        True
    """


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Raise an error that names the extra to install if an import inside the block fails.

    Args:
        extra: Name of an extra of this distribution, such as `report`.

    Yields:
        None. Import the optional package inside the `with` block.

    Raises:
        InputError: A package that is not part of this project could not be imported.
        ModuleNotFoundError: A module of this project could not be imported, which is a bug.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing_module = error.name or ""
        top_package = missing_module.partition(".")[0]
        if top_package in {"relmap", "tasks", "flows"}:
            raise
        raise InputError(f"the package {error.name} is not installed; run: pip install 'relmap[{extra}]'") from None


def describe_validation_errors(error: "ValidationError", whole: str) -> list[str]:
    """Describe each error that pydantic found.

    Args:
        error: The exception.
        whole: Name of the validated object, which replaces the location if an error concerns the whole object.

    Returns:
        Location, reason and invalid value of each error.
    """
    descriptions = []
    for detail in error.errors():
        location = ".".join(map(str, detail["loc"])) or whole
        is_unknown_name = detail["type"] == "extra_forbidden"
        reason = "unknown name; correct or remove it" if is_unknown_name else detail["msg"]
        found = repr(detail["input"])[:80]
        descriptions.append(f"{location}: {reason} (found {found})")
    return descriptions
