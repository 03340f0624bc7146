"""When, and from which commit, something was written: what a page or a map says of itself."""

import shutil
import subprocess

NO_CHECKOUT = "none: this is no git checkout"
CHANGED = ", with changes that are not committed"


def commit() -> str:
    """The commit of the checkout in the current folder, and whether tracked files differ from it."""
    described = "describe", "--always", "--abbrev=40", "--exclude=*", f"--dirty={CHANGED}"
    command = [shutil.which("git") or "false", *described]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own
    return NO_CHECKOUT if done.returncode else done.stdout.strip()
