"""Names of a command's options in messages.

The commands of `relmap.cli` are also offered as forms, where an option is a field without dashes. A message that names
an option calls `option` or `assignment`, so that it names what its reader sees.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

FLAGS = {"map_file": "--map"}  # parameters whose option has another name
_in_form: ContextVar[bool] = ContextVar("relmap_options_in_form", default=False)


@contextmanager
def as_form_fields() -> Iterator[None]:
    """Name options as fields of a form within the block.

    Threads that the block starts name them as on the command line.
    """
    token = _in_form.set(True)
    try:
        yield
    finally:
        _in_form.reset(token)


def option(name: str) -> str:
    """Name the option of a parameter.

    Args:
        name: Parameter of a command, such as `hold_out`.

    Returns:
        `--hold-out` for the command line, `hold_out` in a form.

    Example:
        >>> option("hold_out")
        '--hold-out'
        >>> with as_form_fields():
        ...     option("hold_out")
        'hold_out'
    """
    if _in_form.get():
        return name
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def assignment(name: str, value: object) -> str:
    """Give an option a value, as text that the user can copy.

    Args:
        name: Parameter of a command.
        value: Its value; True for an option that takes none.

    Returns:
        `--label truth` for the command line, quoted for a shell, and `label = truth` in a form.

    Example:
        >>> assignment("label", "true label")
        "--label 'true label'"
        >>> with as_form_fields():
        ...     assignment("label", "true label")
        'label = true label'
    """
    if _in_form.get():
        return f"{name} = {'true' if value is True else value}"
    return option(name) if value is True else f"{option(name)} {shlex.quote(str(value))}"


def assignments(values: dict[str, object]) -> str:
    """Give several options a value, in the order of `values`; see `assignment`."""
    separator = ", " if _in_form.get() else " "
    return separator.join(assignment(name, value) for name, value in values.items())
