"""What texts for the user name."""

import re
from collections.abc import Sequence


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a sentence in their order, as they are written."""
    return re.findall(r"\d+(?:[.,]\d+)*%?", text)


def assert_matches(lines: Sequence[str], patterns: Sequence[str]) -> None:
    """Check that there is one line for each pattern, in this order, in which the pattern is found."""
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.search(pattern, line), line
