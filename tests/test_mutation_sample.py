"""Which mutants `make mutants` draws, and which tests it runs on them."""

import pytest

from tests.mutation.reach import ReachedLines, choose_tests, statement_lines
from tests.mutation.sample import Mutant, find_mutants, shares

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


def reached(test: str, seconds: float, lines: set[int]) -> ReachedLines:
    return ReachedLines(test, seconds, "", {"relmap/clip.py": frozenset(lines)}, {})


def test_annotations_docstrings_assertions_and_messages_are_not_mutated():
    places = {mutant.start[0] for mutant in find_mutants("relmap/clip.py", SOURCE)}
    assert places == {3, 9, 10, 11, 13}
    assert {mutant.operator for mutant in find_mutants("relmap/clip.py", SOURCE) if mutant.start[0] == 10} == {
        "relmap/RemoveStatement"
    }


def test_a_mutant_changes_its_place_only():
    lines = SOURCE.splitlines()
    for mutant in find_mutants("relmap/clip.py", SOURCE):
        mutated = mutant.apply(SOURCE).splitlines()
        assert mutated[: mutant.start[0] - 1] == lines[: mutant.start[0] - 1]
        assert mutated != lines


@pytest.mark.parametrize("n", [7, 120, 300])
def test_every_package_has_a_share_and_larger_ones_a_larger_share(n):
    share = shares({"large": 900, "medium": 90, "small": 10}, n)
    assert sum(share.values()) == n
    assert share["large"] > share["medium"] >= share["small"] > 0


def test_a_change_is_tested_by_the_tests_that_reach_its_statement_the_fastest_first():
    tests = [reached("a.py::slow", 2.0, {9, 11}), reached("a.py::fast", 1.0, {11}), reached("b.py::other", 0.1, {9})]
    change = Mutant("relmap/clip.py", "core/NumberReplacer", 0, (13, 8), (13, 12))
    assert [test.test for test in choose_tests(change, SOURCE, tests)] == ["a.py::fast", "a.py::slow"]


def test_a_change_at_module_level_is_tested_by_all_tests_of_the_module():
    tests = [reached("a.py::slow", 2.0, {11}), reached("b.py::fast", 0.1, {9})]
    change = Mutant("relmap/clip.py", "core/NumberReplacer", 0, (3, 8), (3, 9))
    assert [test.test for test in choose_tests(change, SOURCE, tests)] == ["b.py::fast", "a.py::slow"]


def test_the_lines_of_a_compound_statement_are_those_of_its_header():
    assert statement_lines(SOURCE, 9, 10) == range(9, 10)
    assert statement_lines(SOURCE, 13, 13) == range(11, 15)
    assert statement_lines(SOURCE, 6, 6) is None
