"""Environments that hold the library alone, made with uv: what a user installs.

They need a package index, or a cache of uv that has the packages. `UV_OFFLINE=1` skips the tests that use them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relmap import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGE_CODE = """
import sys
from pathlib import Path
import relmap
assert Path(relmap.__file__).is_relative_to(sys.prefix), relmap.__file__
sys.path.append(sys.argv[1])
from page_code import run_page
run_page(Path(sys.argv[2]))
"""
PYTHONS = ("3.11", "3.12", "3.13")  # the lowest versions have wheels for the first alone


def run_command(*command: object, folder: Path = ROOT, status: int = 0, **variables: str) -> str:
    """Run a command as a user without settings for Python, and return what it printed; fail on another status."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    completed = subprocess.run(words, cwd=folder, env=own | variables, capture_output=True, text=True, check=False)
    assert completed.returncode == status, completed.stdout + completed.stderr
    return completed.stdout + completed.stderr


def uv_pip(subcommand: str, *options: object) -> str:
    """Run `uv pip`; return what it printed."""
    if os.environ.get("UV_OFFLINE"):
        pytest.skip("UV_OFFLINE is set, and new environments need packages")
    return run_command(sys.executable, "-m", "uv", "pip", subcommand, *options)


def write_constraints(folder: Path, python: Path, versions: str, extra: str) -> Path:
    """Write the versions of the library's dependencies, with those of an extra, into a file of constraints.

    `versions` are "tested", those of constraints.txt, or "lowest", the lowest ones that pyproject.toml allows.
    """
    if versions == "tested":
        return ROOT / "constraints.txt"
    file = folder / "lowest.txt"
    options = ["--quiet", "--no-header", "--no-annotate", "--python", python, "--output-file", file]
    uv_pip("compile", ROOT / "pyproject.toml", "--extra", extra, "--resolution", "lowest-direct", *options)
    return file


def find_python(version: str) -> Path | None:
    """Find the interpreter of a version, such as 3.13, on the path or among those of pyenv; None if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    found = shutil.which(f"python{version}")
    candidates = [] if found is None else [Path(found)]
    candidates += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in candidates:
        completed = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
        if completed.stdout.startswith(f"Python {version}."):  # a shim of pyenv may refuse to start
            return python
    return None


def create_environment(folder: Path, python: Path = Path(sys.executable)) -> Path:
    """Create an empty environment with an interpreter, and return its Python."""
    run_command(sys.executable, "-m", "uv", "venv", "--quiet", "--python", python, folder / "environment")
    return folder / "environment/bin/python"


def install(python: Path, constraints: Path, *packages: object) -> None:
    """Install packages into an environment, within constraints."""
    uv_pip("install", "--quiet", "--python", python, "--constraints", constraints, *packages)


def build_wheel(folder: Path) -> Path:
    """Build the wheel in a copy of the library's files, since a build writes next to them; return its path."""
    shutil.copytree(ROOT / "relmap", folder / "relmap", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    run_command(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", folder=folder)
    return folder / f"dist/relmap-{__version__}-py3-none-any.whl"


def run_code_of_page(python: Path, page: Path, folder: Path, **variables: str) -> None:
    """Run the code of a page in a folder, with the library that is installed for this interpreter."""
    run_command(python, "-c", PAGE_CODE, ROOT / "docs/_ext", page, folder=folder, **variables)
