"""The tests of the library run without the pipeline, and have the names of its modules."""

import re
from pathlib import Path

import pytest

import relmap

FOLDER = Path(__file__).parents[1]
FILES = sorted(file.relative_to(FOLDER) for file in FOLDER.rglob("*.py"))
SOURCES = Path(relmap.__file__).parent


def test_no_test_of_the_library_imports_the_pipeline():
    for file in FILES:
        text = (FOLDER / file).read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) (tasks|flows)\b", text, re.MULTILINE), file


@pytest.mark.parametrize("file", [file for file in FILES if file.parts[0] not in ("laws", "conftest.py")], ids=str)
def test_a_file_of_tests_is_named_after_a_module_in_the_same_folder(file):
    modules = [module.stem for module in (SOURCES / file.parent).glob("*.py")]
    assert any(re.match(rf"test_{module}(_|$)", file.stem) for module in modules)
