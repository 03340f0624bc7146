"""Timestamps of files that the library writes."""

import os
import re
from datetime import UTC, datetime

from relmap.errors import InputError


def current_timestamp() -> str:
    """Return the current time, or the time in the environment variable SOURCE_DATE_EPOCH if it is set.

    Returns:
        Date and time in UTC in ISO format, to the second.

    Raises:
        InputError: SOURCE_DATE_EPOCH is not a number of seconds.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch and not re.fullmatch(r"[0-9]{1,11}", epoch):
        raise InputError(f"SOURCE_DATE_EPOCH is {epoch!r}; it must be a number of seconds, or not be set")
    if epoch:
        moment = datetime.fromtimestamp(int(epoch), UTC)
    else:
        moment = datetime.now(UTC)
    return moment.isoformat(timespec="seconds")
