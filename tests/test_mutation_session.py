"""A mutant counts as killed only where a test fails."""

import textwrap
from pathlib import Path

import pytest

from tests.mutation.processes import Child, run_parallel
from tests.mutation.reach import ReachedLines
from tests.mutation.session import HARNESS_ERROR, SURVIVED, _run_tests

TESTS = """
    import sys
    import time

    def test_that_passes():
        assert True

    def test_that_fails():
        assert False

    def test_that_never_ends():
        while True:
            time.sleep(1)

    def test_that_ends_the_interpreter():
        sys.stdout.flush()
        import os
        os._exit(0)
"""


@pytest.fixture
def result_of(tmp_path):
    """Run tests of a project in a child, after one in a folder with a conftest, and return its outcome."""
    (tmp_path / "test_project.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "conftest.py").touch()
    (tmp_path / "fixtures" / "test_fixtures.py").write_text("def test_first():\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*names: str):
        nodes = ["fixtures/test_fixtures.py::test_first", *(f"test_project.py::{name}" for name in names)]
        tests = [ReachedLines(node, 0.0, "", {}, {}) for node in nodes]

        def start(folder: Path, _: int) -> Child:
            return Child(lambda announce: _run_tests(folder, tests, announce))

        return next(iter(run_parallel(iter([tmp_path]), start, 1)))[1]

    return run


def test_a_mutant_survives_where_all_tests_pass(result_of):
    assert result_of("test_that_passes").result == SURVIVED


def test_a_mutant_is_killed_by_the_first_test_that_fails(result_of):
    assert result_of("test_that_passes", "test_that_fails").result == "test_project.py::test_that_fails"


def test_a_mutant_is_killed_by_an_endless_loop(result_of, monkeypatch):
    monkeypatch.setattr("tests.mutation.session.SECONDS_PER_TEST", 1.0)
    monkeypatch.setattr("tests.mutation.processes.MAX_SLOWDOWN", 1)
    outcome = result_of("test_that_never_ends")
    assert outcome.timed_out
    assert outcome.last_step == "test_project.py::test_that_never_ends"


def test_a_crash_is_reported_with_the_test_in_which_it_happens(result_of):
    outcome = result_of("test_that_ends_the_interpreter")
    assert (outcome.result, outcome.timed_out) == (None, False)
    assert outcome.last_step == "test_project.py::test_that_ends_the_interpreter"


def test_an_error_of_pytest_itself_is_no_kill(result_of, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("tests.mutation.session._FirstFailure.pytest_runtest_logstart", fail)
    assert result_of("test_that_passes").result.startswith(HARNESS_ERROR)
