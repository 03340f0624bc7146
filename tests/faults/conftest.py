"""Projects to disturb: one as it is set up, one whose first run has finished, undisturbed."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.faults.small_project import SmallProject, make_project


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, made by the first process of the tests that asks for it."""
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all processes of the tests."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if folder.name.startswith("popen-") else folder


@pytest.fixture(scope="session")
def laid_out(shared: Path) -> Path:
    """The project as it is cloned, but for Prefect's database: enough for stages that are no flows."""
    return made_once(shared / "laid_out", make_project)


def copied_and_run(shared: Path, name: str, source: Path, *command: str) -> Path:
    """A copy of `source` in which `python -m command` was run once, for all processes of the tests."""

    def make(folder: Path) -> None:
        shutil.copytree(source, folder)
        SmallProject(folder).run(*command)

    return made_once(shared / name, make)


@pytest.fixture(scope="session")
def set_up(shared: Path, laid_out: Path) -> Path:
    """The project as `make setup` leaves it, not run yet."""
    return copied_and_run(shared, "set_up", laid_out, "prefect", "server", "database", "upgrade", "-y")


@pytest.fixture(scope="session")
def finished(shared: Path, set_up: Path) -> SmallProject:
    """The project after an undisturbed run of everything. Only to look at."""
    return SmallProject(copied_and_run(shared, "finished", set_up, "flows.refresh"))


@pytest.fixture(scope="session")
def trained(shared: Path, laid_out: Path) -> SmallProject:
    """The project after an undisturbed `dvc repro train@mine`. Only to look at."""
    return SmallProject(copied_and_run(shared, "trained", laid_out, "dvc", "repro", "train@mine"))


def own_copy(source: Path, folder: Path) -> Iterator[SmallProject]:
    """A project of a test's own; what still runs in it afterwards is ended."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".faults"), symlinks=True)
    project = SmallProject(folder)
    yield project
    project.end()


@pytest.fixture
def young_project(tmp_path: Path, laid_out: Path) -> Iterator[SmallProject]:
    """A project of one's own in which no stage has run, and no flow can."""
    yield from own_copy(laid_out, tmp_path / "project")


@pytest.fixture
def project(tmp_path: Path, set_up: Path) -> Iterator[SmallProject]:
    """A project of one's own that has not run yet."""
    yield from own_copy(set_up, tmp_path / "project")


@pytest.fixture
def finished_project(tmp_path: Path, finished: SmallProject) -> Iterator[SmallProject]:
    """A project of one's own whose first run has finished."""
    yield from own_copy(finished.folder, tmp_path / "project")
