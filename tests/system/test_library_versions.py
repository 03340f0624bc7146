"""Run the tests of the library without the pipeline: with each Python, and with the lowest versions of dependencies."""

from pathlib import Path

import pytest

from tests.environments import PYTHONS, create_environment, find_python, install, run_command, write_constraints

pytestmark = pytest.mark.system

TOOLS = ("pytest", "hypothesis", "jsonschema", "pandas", "pyyaml")


def run_library_tests(folder: Path, python: Path, versions: str) -> None:
    """Install the dependencies of the library for a Python, and run the tests of the library with them.

    `versions` are "tested" or "lowest", as in `write_constraints`.
    """
    constraints = write_constraints(folder, python, versions, extra="all")
    installed = create_environment(folder, python)
    install(installed, constraints, "--requirements", "pyproject.toml", "--extra", "all", *TOOLS)
    options = ["-p", "no:cacheprovider", "--basetemp", folder / "tests", "--quiet"]
    run_command(installed, "-m", "pytest", "tests/library", *options)


@pytest.mark.parametrize("version", PYTHONS)
def test_the_tests_of_the_library_pass_with_each_python(version, tmp_path):
    python = find_python(version)
    if python is None:
        pytest.fail(f"Python {version} is missing; install it")
    run_library_tests(tmp_path, python, "tested")


def test_the_tests_of_the_library_pass_with_the_lowest_versions(tmp_path):
    python = find_python(PYTHONS[0])
    if python is None:
        pytest.fail(f"Python {PYTHONS[0]} is missing; install it")
    run_library_tests(tmp_path, python, "lowest")
