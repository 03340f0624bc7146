"""Errors in user input: each message states where the error is, what is wrong, and how to correct it.

The command line and `ReliabilityMap` share their checks. A message that names an option calls `option` or
`assignment`, which spell the name as the user has to type it.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, NamedTuple

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
    """Error in user input, such as a file, a column or an option.

    The command line prints the message without a traceback and exits with 1. Any other exception is a bug and is raised
    with its traceback.

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


Style = Literal["command line", "python"]
FLAGS = {"map_file": "--map"}  # parameter of a command -> its option, where the names differ
PARAMETERS = {"score": "score_column", "group": "groups"}  # parameter of a command -> parameter of `ReliabilityMap`
_STYLE: ContextVar[Style] = ContextVar("relmap_options_style", default="command line")


class _ModelOption(NamedTuple):
    """Model of a cascade whose columns are read, and the fields that its option `--model` has."""

    name: str
    fields: tuple[str, ...]


_MODEL: ContextVar[_ModelOption | None] = ContextVar("relmap_model_option", default=None)


@contextmanager
def naming(style: Style) -> Iterator[None]:
    """Name options in this style within the block.

    Threads that are started in the block use the style of the command line.

    Args:
        style: Interface that shows the messages.
    """
    token = _STYLE.set(style)
    try:
        yield
    finally:
        _STYLE.reset(token)


@contextmanager
def naming_model(name: str, fields: Sequence[str]) -> Iterator[None]:
    """Name these parameters as fields of `--model`, where the command line is the interface, within the block.

    Args:
        name: Name of the model of a cascade.
        fields: Parameters that are fields of the model.
    """
    token = _MODEL.set(_ModelOption(name, tuple(fields)))
    try:
        yield
    finally:
        _MODEL.reset(token)


def _field_of_model(name: str) -> bool:
    model = _MODEL.get()
    return model is not None and name in model.fields and _STYLE.get() == "command line"


def option(name: str) -> str:
    """Name the option of a parameter.

    Args:
        name: Parameter of a command, such as `hold_out`.

    Returns:
        `--hold-out` for the command line, `hold_out` in Python.

    Example:
        >>> option("hold_out")
        '--hold-out'
        >>> with naming("python"):
        ...     option("hold_out")
        'hold_out'
    """
    if _STYLE.get() == "python":
        return PARAMETERS.get(name, name)
    model = _MODEL.get()
    if model is not None and _field_of_model(name):
        return f"{name} of --model {model.name}"
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def assignment(name: str, value: object) -> str:
    """Format an option with a value, as text that the user can copy.

    Args:
        name: Parameter of a command.
        value: Its value; True for an option that takes none.

    Returns:
        `--label truth` for the command line, quoted for a shell; `label='truth'` in Python.

    Example:
        >>> assignment("label", "true label")
        "--label 'true label'"
        >>> with naming("python"):
        ...     assignment("label", "true label")
        "label='true label'"
    """
    if _STYLE.get() == "python":
        return f"{option(name)}={value!r}"
    if _field_of_model(name):
        return _assign_in_model({name: value})
    return option(name) if value is True else f"{option(name)} {shlex.quote(str(value))}"


def assignments(values: dict[str, object]) -> str:
    """Format several options with their values, as text that the user can copy.

    Args:
        values: Value of each option, by parameter; see `assignment`.

    Returns:
        The assignments in the order of `values`, separated as the style requires.

    Example:
        >>> assignments({"label": "truth", "seed": 3})
        '--label truth --seed 3'
    """
    if all(map(_field_of_model, values)):
        return _assign_in_model(values)
    separator = " " if _STYLE.get() == "command line" else ", "
    return separator.join(assignment(name, value) for name, value in values.items())


def _assign_in_model(values: dict[str, object]) -> str:
    """Format fields with their values as the option `--model` takes them."""
    model = _MODEL.get()
    assert model is not None
    fields = [f"{name}={shlex.quote('true' if value is True else str(value))}" for name, value in values.items()]
    return f"{' '.join(fields)} in --model {model.name}"


def labels_to_paste(names: Sequence[str]) -> str:
    """Format the option `labels` with these names, in this order.

    Args:
        names: Names of the labels.

    Returns:
        The assignment; see `assignment`.

    Example:
        >>> labels_to_paste(["bad", "good"])
        '--labels bad,good'
    """
    return assignment("labels", [*names] if _STYLE.get() == "python" else ",".join(names))
