"""Run the mutants of a session and record the results in its database, so that a later call continues."""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.mutation.copies import Copy
from tests.mutation.processes import START, Child, ChildOutcome, enter_copy, run_parallel
from tests.mutation.reach import PYTEST_OPTIONS, ReachedLines, choose_tests, find_importing_files
from tests.mutation.sample import Mutant, mutant_of

# A test may take a multiple of its recorded time, because the recording may have been lucky
SECONDS_PER_TEST = 20.0
TIMES_RECORDED = 5.0
SURVIVED = "all tests pass"
LOG = "pytest.log"
HARNESS_ERROR = "harness error"
NO_TEST = "no test reaches the changed statement"


@dataclass(eq=False)
class _FirstFailure:
    """Pytest plugin that announces each test and remembers the one that fails."""

    announce: Callable[[str, float], None]
    seconds: dict[str, float]
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.announce(nodeid, SECONDS_PER_TEST + TIMES_RECORDED * self.seconds.get(nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(f"import in {report.nodeid}")


def run_session(root: Path, database: WorkDB, copies: list[Copy], reached: list[ReachedLines]) -> Iterator[None]:
    """Run all mutants that have no result yet.

    Args:
        root: Folder of the checkout.
        database: Database of the session.
        copies: Copies of the project, one for each worker.
        reached: Reached lines of all tests.

    Yields:
        None after each mutant, when its result is in the database.

    Raises:
        RuntimeError: Tests fail without a mutant, or pytest ends with an error of its own.
    """
    pending = sorted(database.pending_work_items, key=lambda item: item.job_id)
    _check_original(copies[0], reached)

    def start(item: WorkItem, worker: int) -> Child:
        mutant = mutant_of(item)
        source = (root / mutant.path).read_text(encoding="utf-8")
        tests = choose_tests(mutant, source, reached, find_importing_files(root, mutant.path))
        copies[worker].mutate(mutant.path, mutant.apply(source))
        return Child(lambda announce: _run_tests(copies[worker].folder, tests, announce))

    for item, outcome in run_parallel(iter(pending), start, len(copies)):
        crashed_at_start = outcome.result is None and not outcome.timed_out and outcome.last_step == START
        if crashed_at_start or str(outcome.result).startswith(HARNESS_ERROR):
            raise RuntimeError(f"{mutant_of(item)}: {outcome.result or 'the process of the tests ended before a test'}")
        database.set_result(item.job_id, _result(root, mutant_of(item), outcome))
        yield
    for copy in copies:
        copy.restore()


def _check_original(copy: Copy, reached: list[ReachedLines]) -> None:
    """Find all tests and run the fastest of each file on the unchanged source; RuntimeError unless all of them pass."""
    fastest: dict[str, ReachedLines] = {}
    for test in sorted(reached, key=lambda test: test.seconds):
        fastest.setdefault(test.file, test)

    def start(options: tuple[str, ...], _: int) -> Child:
        tests = reached if options else list(fastest.values())
        return Child(lambda announce: _run_tests(copy.folder, tests, announce, options))

    for _, outcome in run_parallel(iter([("--collect-only",), ()]), start, 1):
        if outcome.result != SURVIVED:
            raise RuntimeError(
                f"the tests must pass without a mutant: {outcome.result or 'crash'} in {outcome.last_step}"
            )


def _run_tests(
    copy: Path, tests: list[ReachedLines], announce: Callable[[str, float], None], options: tuple[str, ...] = ()
) -> str:
    """Return the first test that fails, `SURVIVED` or `NO_TEST`; `HARNESS_ERROR` if pytest itself fails."""
    if not tests:
        return NO_TEST
    enter_copy(copy, copy / LOG)
    plugin = _FirstFailure(announce, {test.test: test.seconds for test in tests})
    exit_code = pytest.main([*PYTEST_OPTIONS, *options, *(test.test for test in tests)], plugins=[plugin])
    if exit_code == pytest.ExitCode.OK:
        return SURVIVED
    if plugin.failed:
        return plugin.failed[0]
    if exit_code == pytest.ExitCode.USAGE_ERROR:
        return "a test that the mutant removes"  # it changes the parameters of a test
    return f"{HARNESS_ERROR}: pytest ended with {exit_code}; its output is in {copy / LOG}"


def _result(root: Path, mutant: Mutant, outcome: ChildOutcome) -> WorkResult:
    survived = outcome.result in {SURVIVED, NO_TEST}
    if outcome.timed_out:
        output = f"time limit in {outcome.last_step}"
    elif outcome.result is None:
        output = f"crash in {outcome.last_step}"
    else:
        output = str(outcome.result)
    return WorkResult(
        worker_outcome=WorkerOutcome.NORMAL,
        output=output,
        test_outcome=TestOutcome.SURVIVED if survived else TestOutcome.KILLED,
        diff=diff_of(mutant, (root / mutant.path).read_text(encoding="utf-8")),
    )


def diff_of(mutant: Mutant, source: str) -> str:
    """Return the change of a mutant as a unified diff with two lines of context."""
    lines = difflib.unified_diff(
        source.splitlines(), mutant.apply(source).splitlines(), mutant.path, mutant.path, n=2, lineterm=""
    )
    return "\n".join(lines)


def forget_survivors(database: WorkDB) -> None:
    """Give each survivor a new work item without result, so that it is run again."""
    results = dict(database.results)
    entries = [(item, results.get(item.job_id)) for item in database.work_items]
    database.clear()
    database.add_work_items(item for item, _ in entries)
    for item, result in entries:
        if result is not None and result.is_killed:
            database.set_result(item.job_id, result)
