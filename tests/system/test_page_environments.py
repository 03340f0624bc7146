"""The code of README, start page, tutorials and how-to guides runs with the packages that the page names.

A page names its packages in `pip install` commands. The test builds the wheel of the project, installs it with the
named extras and packages into a new environment, and runs the code of the page there. Pages that ask for `make setup`
are omitted: `make docs` runs them in the environment that `make setup` creates.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT, build_wheel, create_environment, run_code_of_page, uv_pip

sys.path.insert(0, str(ROOT / "docs/_ext"))

from page_code import blocks_to_run

PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    *sorted(ROOT.glob("docs/tutorials/*.md")),
    *sorted(ROOT.glob("docs/how-to/*.md")),
]
PAGES_WITH_CODE = [page for page in PAGES if blocks_to_run(page.read_text(encoding="utf-8"))]
# Sentences of pages: "You need the environment that `make setup` creates", "You need `pip install '.[report]'`"
NEEDS_MAKE_SETUP = re.compile(r"environment\s+(?:of the pipeline, which|that)\s+`make setup`\s+creates")
NEEDS_PACKAGES = re.compile(r"needs?\s`(pip install [^`]+)`")

pytestmark = pytest.mark.system


def requirements_of(page: Path) -> frozenset[str]:
    """Return the packages that a page asks to install: `relmap` with its extras, and further packages."""
    text = page.read_text(encoding="utf-8")
    commands = NEEDS_PACKAGES.findall(text)
    commands += [line for line in text.splitlines() if line.startswith("pip install ")]
    requirements = set()
    for command in commands:
        for word in shlex.split(command, comments=True)[2:]:
            requirements.add(re.sub(r"^\.", "relmap", word))  # pages install the checkout: `.` or `.[report]`
    return frozenset(requirements)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def uses_pipeline(page: Path) -> bool:
    """Check whether a page asks for the environment of `make setup` instead of packages."""
    return NEEDS_MAKE_SETUP.search(page.read_text(encoding="utf-8")) is not None


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def python_of(wheel, tmp_path_factory):
    """Return a function that creates the environment of some requirements once, and returns its interpreter."""
    interpreters: dict[frozenset[str], Path] = {}

    def create(requirements: frozenset[str]) -> Path:
        if requirements not in interpreters:
            python = create_environment(tmp_path_factory.mktemp("installed"))
            # The wheel replaces `relmap`: "relmap[report]" becomes "<path of the wheel>[report]"
            packages = [re.sub(r"^relmap", str(wheel), requirement) for requirement in sorted(requirements)]
            uv_pip("install", "--quiet", "--python", python, *packages)
            interpreters[requirements] = python
        return interpreters[requirements]

    return create


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name)
def test_a_page_with_code_states_what_it_needs(page):
    installs_relmap = any(requirement.startswith("relmap") for requirement in requirements_of(page))
    assert installs_relmap or uses_pipeline(page), "the page names no `pip install '.[extra]'` and no `make setup`"


@pytest.mark.parametrize("page", [page for page in PAGES_WITH_CODE if not uses_pipeline(page)], ids=name)
def test_the_code_of_a_page_runs_with_what_the_page_asks_for(page, python_of, tmp_path):
    python = python_of(requirements_of(page))
    run_code_of_page(python, page, tmp_path)
