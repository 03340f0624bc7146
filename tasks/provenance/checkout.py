"""Git commit of the checkout, for pages and results."""

import shutil
import subprocess

NO_CHECKOUT = "none: this folder is not a git checkout"
CHANGED_SUFFIX = ", with uncommitted changes"


def describe_commit() -> str:
    """Return the commit of the checkout in the current folder, and whether tracked files differ from it."""
    git = shutil.which("git") or "false"  # the program `false` fails, as git does outside of a checkout
    arguments = ["describe", "--always", "--abbrev=40", "--exclude=*", f"--dirty={CHANGED_SUFFIX}"]
    result = subprocess.run([git, *arguments], check=False, capture_output=True, text=True)  # noqa: S603 - fixed command
    if result.returncode != 0:
        return NO_CHECKOUT
    return result.stdout.strip()
