"""Selection of mutants and of their tests by `make mutants`."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.mutation.reach import ReachedLines, choose_tests, find_importing_files, statement_lines
from tests.mutation.report import read_equivalent
from tests.mutation.sample import Mutant, find_mutants, shares

ROOT = Path(__file__).resolve().parents[1]

PATH = "relmap/clip.py"
SOURCE = '''"""Text."""

LIMIT = 3


def clip(value: int | None, high: int = LIMIT) -> int:
    """Return 3 - 1."""
    assert value != 7
    if value is None:
        raise ValueError(f"{1 + 1}")
    return min(
        value,
        high,
    )
'''


def reached_lines(test: str, seconds: float, lines: set[int]) -> ReachedLines:
    return ReachedLines(test, seconds, failure="", lines={PATH: frozenset(lines)}, import_lines={})


def change_number(line: int, start: int, end: int) -> Mutant:
    """Return a mutant that changes a number between two columns of a line."""
    return Mutant(PATH, "core/NumberReplacer", occurrence=0, start=(line, start), end=(line, end))


def line_of(text: str) -> int:
    """Return the number of the line of SOURCE that starts with a text, without indentation."""
    (number,) = [number for number, line in enumerate(SOURCE.splitlines(), 1) if line.strip().startswith(text)]
    return number


def test_annotations_docstrings_assertions_and_messages_are_not_mutated():
    operators = defaultdict(set)
    for mutant in find_mutants(PATH, SOURCE):
        first_line = mutant.start[0]
        operators[first_line].add(mutant.operator)
    mutated = ["LIMIT", "if", "raise", "return", "high,"]
    assert operators.keys() == {line_of(text) for text in mutated}
    assert operators[line_of("raise")] == {"relmap/RemoveStatement"}


def test_marks_of_parameters_and_checks_of_equal_length_are_not_mutated():
    source = "def pair(a, /, *, b):\n    return zip(a, b, strict=True)\n"
    assert find_mutants(PATH, source) == []
    assert any("BinaryOperator" in mutant.operator for mutant in find_mutants(PATH, "area = width * height\n"))


def test_imports_for_type_checkers_are_not_mutated():
    assert find_mutants(PATH, "if TYPE_CHECKING:\n    from a import b\n\nc()\n") == find_mutants(PATH, "\n\n\nc()\n")


def test_a_mutant_changes_its_place_only():
    lines = SOURCE.splitlines()
    for mutant in find_mutants(PATH, SOURCE):
        mutated = mutant.apply(SOURCE).splitlines()
        n_before = mutant.start[0] - 1
        assert mutated[:n_before] == lines[:n_before]
        assert mutated != lines


@pytest.mark.parametrize(
    "parameters", ["a, *, b", "*, b", "a, /, b", "a, /, *, b", "*values, b", "a, /, *values, **others"]
)
@pytest.mark.parametrize("function", ["def f({}):\n    return a * b\n", "f = lambda {}: a * b\n"])
def test_marks_of_keyword_only_and_positional_only_parameters_are_not_mutated(parameters, function):
    source = function.format(parameters)
    product = source.index("a * b") - source.rfind("\n", 0, source.index("a * b")) - 1
    assert {mutant.start[1] for mutant in find_mutants(PATH, source)} <= {product, product + 2}
    assert any(mutant.operator == "core/ReplaceBinaryOperator_Mul_Div" for mutant in find_mutants(PATH, source))


@pytest.mark.parametrize("n", [7, 120, 300])
def test_every_package_has_a_share_and_larger_packages_a_larger_one(n):
    share = shares({"large": 900, "medium": 90, "small": 10}, n)
    assert sum(share.values()) == n
    assert share["large"] > share["medium"] >= share["small"] > 0


def test_a_change_is_tested_by_the_tests_that_reach_its_statement_the_fastest_first():
    tests = [
        reached_lines("a.py::slow", 2.0, {9, 11}),
        reached_lines("a.py::fast", 1.0, {11}),
        reached_lines("b.py::other", 0.1, {9}),
    ]
    change = change_number(line_of("high,"), 8, 12)
    assert [test.test for test in choose_tests(change, SOURCE, tests, frozenset())] == ["a.py::fast", "a.py::slow"]


def test_a_change_at_module_level_is_tested_by_all_tests_of_the_module_and_files_that_import_it():
    tests = [reached_lines("a.py::slow", 2.0, {11}), reached_lines("b.py::fast", 0.1, {9})]
    tests += [ReachedLines(f"{file}::constant", 1.0, "", {}, {}) for file in ("c.py", "d.py")]
    change = change_number(line_of("LIMIT"), 8, 9)
    chosen = choose_tests(change, SOURCE, tests, frozenset({"c.py", "relmap/top.py"}))
    assert [test.test for test in chosen] == ["b.py::fast", "c.py::constant", "a.py::slow"]


def test_a_change_of_constants_is_tested_by_the_tests_of_modules_that_import_them():
    tests = [
        ReachedLines("a.py::caller", 1.0, "", {"relmap/top.py": frozenset({3})}, {}),
        ReachedLines("b.py::other", 1.0, "", {"relmap/other.py": frozenset({3})}, {}),
    ]
    change = change_number(line_of("LIMIT"), 8, 9)
    chosen = choose_tests(change, SOURCE, tests, frozenset({"relmap/top.py"}))
    assert [test.test for test in chosen] == ["a.py::caller"]


def test_files_that_import_a_module_or_a_name_of_it_are_found(tmp_path):
    sources = {
        "relmap/clip.py": "LIMIT = 3\n",
        "relmap/top.py": "def top():\n    from relmap.clip import LIMIT\n",
        "tasks/step.py": "from relmap import clip, other\n",
        "tests/library/test_clip.py": "import relmap.clip as module\n",
        "tests/library/test_other.py": "from relmap.clip_other import LIMIT\n",
    }
    for file, text in sources.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    expected = {"relmap/top.py", "tasks/step.py", "tests/library/test_clip.py"}
    assert find_importing_files(tmp_path, "relmap/clip.py") == expected


def test_the_lines_of_a_compound_statement_are_those_of_its_header():
    assert statement_lines(SOURCE, 9, 10) == range(9, 10)
    assert statement_lines(SOURCE, 13, 13) == range(11, 15)
    assert statement_lines(SOURCE, 6, 6) is None


def test_every_equivalent_mutant_changes_lines_of_its_file():
    for (file, before, after), reason in read_equivalent().items():
        lines = [line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
        assert set(before.splitlines()) <= set(lines), (file, before)
        assert before != after
        assert reason
