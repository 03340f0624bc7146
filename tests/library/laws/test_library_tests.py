"""The tests of the library run without the pipeline, and have the names of its modules."""

import re
from pathlib import Path

import pytest

import relmap

FOLDER = Path(__file__).parents[1]
FILES = sorted(file.relative_to(FOLDER) for file in FOLDER.rglob("*.py"))
TESTS = [file for file in FILES if file.name != "conftest.py" and file.parts[0] != "laws"]
SOURCES = Path(relmap.__file__).parent
MODULES = sorted(path.relative_to(SOURCES) for path in SOURCES.rglob("[!_]*.py"))


def test_no_test_of_the_library_imports_the_pipeline():
    for file in FILES:
        text = (FOLDER / file).read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) (tasks|flows)\b", text, re.MULTILINE), file


def is_tested(module: Path, tests: list[Path]) -> bool:
    """Return whether a file of tests in the same folder is named after a module."""
    name = rf"test_{module.stem}(_|$)"
    return any(test.parent == module.parent and re.match(name, test.stem) for test in tests)


@pytest.mark.parametrize("file", TESTS, ids=str)
def test_a_file_of_tests_is_named_after_a_module_in_the_same_folder(file):
    assert any(is_tested(module, [file]) for module in MODULES)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_has_tests_named_after_it(module):
    assert is_tested(module, TESTS)


def test_a_module_without_tests_is_found():
    tests = [Path("io/test_label_order_by_definition.py"), Path("maps/test_text.py")]
    assert is_tested(Path("io/label_order.py"), tests)
    assert not is_tested(Path("io/text.py"), tests)
    assert not is_tested(Path("io/order.py"), tests)
