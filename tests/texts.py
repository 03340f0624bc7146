"""What texts for the user name."""

import re
from collections.abc import Callable, Sequence

import pytest

from relmap.errors import InputError


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a sentence in their order, as they are written."""
    return re.findall(r"\d+(?:[.,]\d+)*%?", text)


def assert_matches(lines: Sequence[str], patterns: Sequence[str]) -> None:
    """Check that there is one line for each pattern, in this order, in which the pattern is found."""
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.search(pattern, line), line


def message_of(call: Callable[..., object], *arguments: object, **options: object) -> str:
    """Return the message with which a call rejects its input."""
    with pytest.raises(InputError) as error:
        call(*arguments, **options)
    return str(error.value)
