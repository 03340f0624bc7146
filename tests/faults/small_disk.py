"""A disk with little room under data/: a tmpfs that only one command sees."""

import os
import shutil
import subprocess

import pytest

from tests.faults.small_project import SmallProject

FULL = "no room is left on the disk"  # what a full disk is called
ROOM_MADE = "--- room made ---"
OWN_MOUNTS = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
TWICE = f"""
set -e
mkdir -p data
mount -t tmpfs -o size=$SIZE none data
"$@" || echo "ended with $?"
echo '{ROOM_MADE}'
mount -o remount,size=100m data
"$@"
cp -a data data.kept
"""  # what is under data/ goes with the tmpfs, which goes with the command


def on_small_disk(project: SmallProject, *command: str, size: str) -> tuple[str, str]:
    """Run `python -m command` with `size` for data/, which must fail, then with room: what was printed each time."""
    trial = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", str(project.folder)]
    if not shutil.which("unshare") or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.fail(
            "a small disk needs `unshare`, and that this user may mount a tmpfs with it (Linux, user namespaces)"
        )
    printed = project.run(*command, within=(*OWN_MOUNTS, "sh", "-c", TWICE, "sh"), SIZE=size)
    (project.folder / "data").rmdir()
    (project.folder / "data.kept").rename(project.folder / "data")
    first, after = printed.split(f"{ROOM_MADE}\n")
    assert "ended with" in first, first
    return first, after
