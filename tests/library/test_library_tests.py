"""The tests of the library run without the pipeline."""

import re
from pathlib import Path


def test_no_test_of_the_library_imports_the_pipeline():
    for file in Path(__file__).parent.glob("*.py"):
        assert not re.search(r"^\s*(from|import) (tasks|flows)\b", file.read_text(encoding="utf-8"), re.MULTILINE), file
