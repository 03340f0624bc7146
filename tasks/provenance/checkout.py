"""When, and from which commit, something was written: what a page or a map says of itself."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime

from tasks.protocol.errors import BadInput

NO_CHECKOUT = "none: this is no git checkout"
CHANGED = ", with changes that are not committed"


def now() -> str:
    """Date and time, or that of SOURCE_DATE_EPOCH.

    Raises:
        BadInput: SOURCE_DATE_EPOCH is no number of seconds.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch and not re.fullmatch(r"[0-9]{1,11}", epoch):
        raise BadInput(f"SOURCE_DATE_EPOCH is {epoch!r}; it must be a number of seconds, or not be set")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


def commit() -> str:
    """The commit of the checkout in the current folder, and whether tracked files differ from it."""
    described = "describe", "--always", "--abbrev=40", "--exclude=*", f"--dirty={CHANGED}"
    command = [shutil.which("git") or "false", *described]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own
    return NO_CHECKOUT if done.returncode else done.stdout.strip()
