"""All tests of the library, with the lowest versions of its dependencies that pyproject.toml allows."""

import pytest

from tests.environments import create_environment, install, run_command, write_constraints

pytestmark = pytest.mark.system

TOOLS = ("pytest", "hypothesis", "jsonschema", "pandas", "pyyaml")


def test_the_tests_of_the_library_pass_with_the_lowest_versions(tmp_path):
    constraints = write_constraints(tmp_path, "lowest", extra="all")
    python = create_environment(tmp_path)
    install(python, constraints, "--requirements", "pyproject.toml", "--extra", "all", *TOOLS)
    options = ["-p", "no:cacheprovider", "--basetemp", tmp_path / "tests", "--quiet"]
    run_command(python, "-m", "pytest", "tests/library", *options)
