"""Names of options in messages, as the reader of a message writes them.

The same check runs behind the command line, a Prefect form and `ReliabilityMap`. Each entry point sets its style, so
that a message names what its reader can change.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Style = Literal["command line", "form", "python"]
STYLE: ContextVar[Style] = ContextVar("style", default="command line")


def option(name: str) -> str:
    """Return the name of an option as the reader of a message writes it.

    Args:
        name: Name of the parameter, such as `hold_out`.

    Returns:
        `--hold-out` on the command line, else `hold_out`.
    """
    return f"--{name.replace('_', '-')}" if STYLE.get() == "command line" else name


def assignment(name: str, value: str) -> str:
    """Return an option with its value, ready to paste.

    Args:
        name: Name of the parameter, such as `label`.
        value: Its value, unquoted.

    Returns:
        `--label truth` on the command line, `label='truth'` in Python, `label = truth` in a form.
    """
    style = STYLE.get()
    if style == "command line":
        return f"{option(name)} {shlex.quote(value)}"
    return f"{name}={value!r}" if style == "python" else f"{name} = {value}"


@contextmanager
def naming(style: Style) -> Iterator[None]:
    """Name options in this style inside the context.

    Args:
        style: Where the messages are read.
    """
    token = STYLE.set(style)
    try:
        yield
    finally:
        STYLE.reset(token)
