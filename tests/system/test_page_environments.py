"""The code of README, tutorials and how-to guides runs in an environment with exactly what the page asks for.

Each page names its packages in `pip install` commands. The test builds the wheel of the project, and
installs it with the named extras and packages into a new environment.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT, create_environment, run_command, uv_pip

sys.path.insert(0, str(ROOT / "docs/_ext"))

from page_code import blocks_to_run

PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    *sorted(ROOT.glob("docs/tutorials/*.md")),
    *sorted(ROOT.glob("docs/how-to/*.md")),
]
PAGES_WITH_CODE = [page for page in PAGES if blocks_to_run(page.read_text(encoding="utf-8"))]
OWN_ENVIRONMENT = re.compile(r"environment\s+(?:of the pipeline, which|that)\s+`make setup`\s+creates")
RUN_PAGE = """
import sys
from pathlib import Path
import relmap
assert Path(relmap.__file__).is_relative_to(sys.prefix), relmap.__file__
sys.path.insert(0, sys.argv[1])
from page_code import run_page
run_page(Path(sys.argv[2]))
"""

pytestmark = pytest.mark.system


def requirements_of(page: Path) -> frozenset[str]:
    """Return what a page asks to install: `relmap` with its extras, and further packages."""
    text = page.read_text(encoding="utf-8")
    sentences = re.findall(
        r"needs? `(pip install [^`]+)`", text.replace("need\n", "need ").replace("needs\n", "needs ")
    )
    blocks = [line for line in text.splitlines() if line.startswith("pip install ")]
    requirements = set()
    for command in [*sentences, *blocks]:
        for word in shlex.split(command, comments=True)[2:]:
            requirements.add(re.sub(r"^\.", "relmap", word))
    return frozenset(requirements)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def uses_pipeline(page: Path) -> bool:
    """Return whether a page needs `make setup`, whose environment `make test` uses."""
    return OWN_ENVIRONMENT.search(page.read_text(encoding="utf-8")) is not None


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel in a copy of the library's files, since a build writes next to them."""
    folder = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "relmap", folder / "relmap", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, folder / file)
    run_command(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", folder=folder)
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="session")
def python_of(wheel, tmp_path_factory):
    """Return a function that creates the environment of some requirements once, and returns its interpreter."""
    interpreters: dict[frozenset[str], Path] = {}

    def create(requirements: frozenset[str]) -> Path:
        if requirements not in interpreters:
            python = create_environment(tmp_path_factory.mktemp("installed"))
            packages = [re.sub(r"^relmap", str(wheel), requirement) for requirement in sorted(requirements)]
            uv_pip("install", "--quiet", "--python", python, *packages)
            interpreters[requirements] = python
        return interpreters[requirements]

    return create


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name)
def test_a_page_with_code_states_what_it_needs(page):
    own = [each for each in requirements_of(page) if each.startswith("relmap")]
    assert own or uses_pipeline(page), "the page names no `pip install '.[extra]'` and no `make setup`"


@pytest.mark.parametrize("page", [page for page in PAGES_WITH_CODE if not uses_pipeline(page)], ids=name)
def test_the_code_of_a_page_runs_with_what_the_page_asks_for(page, python_of, tmp_path):
    python = python_of(requirements_of(page))
    run_command(python, "-c", RUN_PAGE, ROOT / "docs/_ext", page, folder=tmp_path)
