"""Record which lines of the project each test reaches, and choose the tests of a mutant.

Each test is recorded alone, so that a fixture or a cached value that several tests use is computed, and its lines are
recorded, for each of them. The record of a test file is valid until the source or the file changes.
"""

import ast
import functools
import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.copies import Copy
from tests.mutation.processes import Child, enter_copy, run_parallel
from tests.mutation.sample import Mutant, source_hash

# Tests of servers, processes and whole runs: they start interpreters, which see no coverage, and take minutes
EXCLUDED_TESTS = frozenset(
    {
        "test_end_to_end.py",
        "test_engine.py",
        "test_forms.py",
        "test_logs.py",
        "test_notifications.py",
        "test_processes.py",
        "test_prune.py",
        "test_serve.py",
        "test_server_origins.py",
        "test_server_pages.py",
        "test_score_thresholds_study.py",
        # These test what is not mutated, the page and the simulated data, with fixtures that take long for each test
        "test_page.py",
        "test_twins.py",
    }
)
# The rewriting of assertions takes longer than most tests, and its messages are not needed here
PYTEST_OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "--assert=plain")
RECORDING_SECONDS = 900.0


@dataclass(frozen=True)
class ReachedLines:
    """The lines that one test executes.

    Attributes:
        test: Node id of the test.
        seconds: Time that it took under coverage, with its fixtures.
        failure: Why the test fails without any mutant; empty if it passes or is skipped.
        lines: Lines of each file of the project that ran during the test.
        import_lines: Lines that ran while its test file was imported.
    """

    test: str
    seconds: float
    failure: str
    lines: dict[str, frozenset[int]]
    import_lines: dict[str, frozenset[int]]

    def reaches(self, path: str, lines: Iterable[int]) -> bool:
        """Return whether the test executes one of the lines of a file."""
        reached = self.lines.get(path, frozenset()) | self.import_lines.get(path, frozenset())
        return not reached.isdisjoint(lines)

    @property
    def file(self) -> str:
        """Test file."""
        return self.test.split("::")[0]


class _Recorder:
    """Pytest plugin that runs each test alone and writes the lines that it reaches to a file.

    A test runs alone in the sense that all fixtures are set up for it, and all cached values of the project are
    forgotten before it. A fork for each test would be simpler, but polars cannot be used after a fork of a process that
    has used it.
    """

    def __init__(self, output: Path, announce: Callable[[str, float], None]) -> None:
        self._output = output
        self._announce = announce
        self._measured = coverage.Coverage(data_file=None, source=["relmap", "tasks"], config_file=False)
        self._measured.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])

    def pytest_collection(self) -> None:
        self._measured.start()

    def pytest_collection_finish(self) -> None:
        self._write("", 0.0, "")

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        self._announce(item.nodeid, RECORDING_SECONDS)
        _forget_cached_values(Path.cwd())
        self._measured.start()
        started = time.perf_counter()
        reports = runtestprotocol(item, log=False, nextitem=None)  # without a next test all fixtures are torn down
        seconds = time.perf_counter() - started
        if any(report.skipped for report in reports):
            self._measured.stop()
            return True
        self._write(item.nodeid, seconds, "\n".join(report.longreprtext for report in reports if report.failed))
        return True

    def _write(self, test: str, seconds: float, failure: str) -> None:
        self._measured.stop()
        lines = _lines_by_file(self._measured)
        self._measured.erase()
        record = {"test": test, "seconds": seconds, "failure": failure, "lines": lines}
        with self._output.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record) + "\n")


def _forget_cached_values(folder: Path) -> None:
    """Clear the caches of all functions that are defined in files of `folder`."""
    for function in gc.get_objects():
        if isinstance(function, functools._lru_cache_wrapper):
            module = sys.modules.get(function.__module__)
            if str(getattr(module, "__file__", None)).startswith(str(folder)):
                function.cache_clear()


def _lines_by_file(measured: coverage.Coverage) -> dict[str, list[int]]:
    data = measured.get_data()
    found = {}
    for file in data.measured_files():
        lines = data.lines(file)
        if lines:
            found[str(Path(file).relative_to(Path.cwd()))] = sorted(lines)
    return found


def test_files(root: Path) -> list[str]:
    """Return the test files that mutants are run with, relative to `root`."""
    files = [file for folder in ("library", "pipeline") for file in sorted((root / "tests" / folder).glob("test_*.py"))]
    return [str(file.relative_to(root)) for file in files if file.name not in EXCLUDED_TESTS]


def _record_key(root: Path, test_file: str, source: str) -> str:
    """Return a hash of the source, of a test file, and of the modules that it may share with other test files."""
    digest = hashlib.sha256(source.encode())
    folder = (root / test_file).parent
    shared = [file for file in sorted((root / "tests").glob("*.py")) if not file.name.startswith("test_")]
    for file in (*shared, folder / "conftest.py", root / test_file):
        if file.exists():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def record(root: Path, copies: list[Copy], folder: Path) -> list[ReachedLines]:
    """Record the lines that each test reaches, where there is no valid record yet.

    Args:
        root: Folder of the checkout.
        copies: Copies of the project, one for each worker.
        folder: Folder of the records.

    Returns:
        The reached lines of all tests that pass.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = source_hash(root)
    outputs = {file: folder / f"{Path(file).stem}-{_record_key(root, file, source)}.jsonl" for file in test_files(root)}
    for old in set(folder.glob("*.jsonl")) - set(outputs.values()):
        old.unlink()
    missing = [file for file, output in outputs.items() if not output.exists()]

    def start(file: str, worker: int) -> Child:
        output = outputs[file].with_suffix(".partial")
        output.unlink(missing_ok=True)
        return Child(lambda announce: _record_file(copies[worker].folder, file, output, announce))

    for file, outcome in run_parallel(iter(missing), start, len(copies)):
        partial = outputs[file].with_suffix(".partial")
        if outcome.result not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            log = partial.with_suffix(".log")
            raise RuntimeError(
                f"{file}: pytest ended with {outcome.result} in {outcome.last_step}; its output is in {log}"
            )
        partial.touch()
        partial.rename(outputs[file])
        tests = _read(outputs[file])
        seconds = sum(test.seconds for test in tests)
        print(f"recorded {file}: {len(tests)} tests, {seconds:.0f} s", flush=True)
    reached = [test for output in outputs.values() for test in _read(output)]
    failed = [test for test in reached if test.failure]
    for test in failed:
        print(f"{test.test} fails without a mutant and is not used:\n{test.failure[-2000:]}")
    return [test for test in reached if not test.failure]


def _record_file(copy: Path, file: str, output: Path, announce: Callable[[str, float], None]) -> int:
    enter_copy(copy, output.with_suffix(".log"))
    return int(pytest.main([*PYTEST_OPTIONS, file], plugins=[_Recorder(output, announce)]))


def _read(output: Path) -> list[ReachedLines]:
    tests = []
    import_lines: dict[str, frozenset[int]] = {}
    for text in output.read_text(encoding="utf-8").splitlines():
        entry = json.loads(text)
        lines = {file: frozenset(numbers) for file, numbers in entry["lines"].items()}
        if entry["test"]:
            tests.append(ReachedLines(entry["test"], entry["seconds"], entry["failure"], lines, import_lines))
        else:
            import_lines = lines
    return tests


def choose_tests(
    mutant: Mutant, source: str, reached: list[ReachedLines], importing_files: frozenset[str]
) -> list[ReachedLines]:
    """Choose the tests that can see a mutant, and their order.

    Args:
        mutant: The mutant.
        source: Source of its file.
        reached: Reached lines of all tests.
        importing_files: Files of the source and of the tests that import the mutated module.

    Returns:
        The tests that execute the changed statement, file by file, the fastest first. A statement outside of functions
        runs when its module is imported. For such a statement they are all tests that execute a line of the module,
        and the tests of files that import it. If there are none, as for a module of constants, they are the tests that
        execute a module that imports it.
    """
    lines = statement_lines(source, mutant.start[0], mutant.end[0])
    if lines is None:
        chosen = [test for test in reached if mutant.path in test.lines or test.file in importing_files]
        if not chosen:
            chosen = [test for test in reached if not importing_files.isdisjoint(test.lines)]
    else:
        chosen = [test for test in reached if test.reaches(mutant.path, lines)]
    seconds: dict[str, float] = {}
    for test in chosen:
        seconds[test.file] = seconds.get(test.file, 0.0) + test.seconds
    return sorted(chosen, key=lambda test: (seconds[test.file], test.file, test.seconds))


def find_importing_files(root: Path, path: str) -> frozenset[str]:
    """Find the files that import a module.

    Args:
        root: Folder of the checkout.
        path: File of the module, relative to `root`.

    Returns:
        Files of relmap, tasks and the tests with an `import` of the module or of a name in it, relative to `root`.
    """
    module = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    files = [file for top in ("relmap", "tasks", "tests") for file in (root / top).rglob("*.py")]
    return frozenset(str(file.relative_to(root)) for file in files if module in _imported_names(file))


@functools.cache
def _imported_names(file: Path) -> frozenset[str]:
    """Return the modules that a file imports, and each name of `from module import name` as `module.name`."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def statement_lines(source: str, first: int, last: int) -> range | None:
    """Return the lines of the innermost statement that contains the lines `first` to `last`.

    Args:
        source: Source of a module.
        first: First line of a change, counted from 1.
        last: Last line of the change.

    Returns:
        The lines of the statement; of a compound statement, such as a loop, only its header. None for a statement that
        runs when the module is imported.
    """
    innermost: ast.stmt | None = None
    in_function = False
    nodes: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while nodes:
        node, inside = nodes.pop()
        for child in ast.iter_child_nodes(node):
            is_body = isinstance(child, ast.stmt)
            child_inside = inside or (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_body)
            if is_body and child.lineno <= first and last <= child.end_lineno:
                innermost = child
                in_function = child_inside
            nodes.append((child, child_inside))
    if innermost is None or not in_function:
        return None
    body = getattr(innermost, "body", None)
    header_end = body[0].lineno - 1 if body else innermost.end_lineno
    return range(innermost.lineno, max(header_end, innermost.lineno) + 1)
