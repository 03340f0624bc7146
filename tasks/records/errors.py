"""Errors of pipeline runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class RunFailed(Exception):
    """A run cannot go on; the message names its coordinates (data set, calibrator, seed) and the reason."""
