"""Records of `docs/evidence/results.json`, with the commit and the date of a measurement."""

import datetime
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs/_ext"))

from evidence_records import RESULTS, Record, read_records, with_tables, write_records  # noqa: E402 - needs the path above

__all__ = ["RESULTS", "ROOT", "Record", "git", "last_commit", "read_records", "today", "with_tables", "write_records"]


def git(*arguments: str) -> str:
    """Run git in the project's folder, and return what it prints."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def last_commit(*paths: str) -> str:
    """Return the last commit that changed one of these files or folders of the project."""
    return git("log", "-1", "--format=%H", "--", *paths)


def today() -> str:
    """Return the date as a record has it."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()
