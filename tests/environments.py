"""Environments that hold the library alone, made with uv: what a user installs.

They need a package index, or a cache of uv that has the packages. `UV_OFFLINE=1` skips the tests that use them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("tested", "lowest")  # those of constraints.txt, and the lowest ones that pyproject.toml allows


def run_command(*command: object, folder: Path = ROOT, status: int = 0, **variables: str) -> str:
    """Run a command as a user without settings for Python, and return what it printed; fail on another status."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=own | variables, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def uv_pip(subcommand: str, *options: object) -> str:
    """Run `uv pip` for an environment of this Python."""
    if os.environ.get("UV_OFFLINE"):
        pytest.skip("UV_OFFLINE is set, and new environments need packages")
    return run_command(sys.executable, "-m", "uv", "pip", subcommand, *options)


def write_constraints(folder: Path, versions: str, extra: str) -> Path:
    """Write the versions of the library's dependencies, with those of an extra, into a file of constraints."""
    if versions == "tested":
        return ROOT / "constraints.txt"
    file = folder / "lowest.txt"
    options = ["--quiet", "--no-header", "--no-annotate", "--python", sys.executable, "--output-file", file]
    uv_pip("compile", ROOT / "pyproject.toml", "--extra", extra, "--resolution", "lowest-direct", *options)
    return file


def create_environment(folder: Path) -> Path:
    """Create an empty environment, and return its Python."""
    run_command(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, folder / "environment")
    return folder / "environment/bin/python"


def install(python: Path, constraints: Path, *packages: object) -> None:
    """Install packages into an environment, within constraints."""
    uv_pip("install", "--quiet", "--python", python, "--constraints", constraints, *packages)
