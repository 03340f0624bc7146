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


@pytest.fixture(scope="session")
def set_up(shared: Path, laid_out: Path) -> Path:
    """The project as `make setup` leaves it, not run yet."""

    def make(folder: Path) -> None:
        shutil.copytree(laid_out, folder)
        SmallProject(folder).run("prefect", "server", "database", "upgrade", "-y")

    return made_once(shared / "set_up", make)


@pytest.fixture(scope="session")
def finished(shared: Path, set_up: Path) -> SmallProject:
    """The project after an undisturbed run of everything. Only to look at."""

    def make(folder: Path) -> None:
        shutil.copytree(set_up, folder)
        SmallProject(folder).run("flows.refresh")

    return SmallProject(made_once(shared / "finished", make))


@pytest.fixture(scope="session")
def trained(shared: Path, laid_out: Path) -> SmallProject:
    """The project after an undisturbed `dvc repro train@mine`. Only to look at."""

    def make(folder: Path) -> None:
        shutil.copytree(laid_out, folder)
        SmallProject(folder).run("dvc", "repro", "train@mine")

    return SmallProject(made_once(shared / "trained", make))


@pytest.fixture
def young_project(tmp_path: Path, laid_out: Path) -> Iterator[SmallProject]:
    """A project of one's own in which no stage has run, and no flow can; what still runs in it afterwards is ended."""
    yield from copied(laid_out, tmp_path / "project")


@pytest.fixture
def project(tmp_path: Path, set_up: Path) -> Iterator[SmallProject]:
    """A project of one's own that has not run yet; what still runs in it afterwards is ended."""
    yield from copied(set_up, tmp_path / "project")


@pytest.fixture
def finished_project(tmp_path: Path, finished: SmallProject) -> Iterator[SmallProject]:
    """A project of one's own whose first run has finished; what still runs in it afterwards is ended."""
    yield from copied(finished.folder, tmp_path / "project")


def copied(source: Path, folder: Path) -> Iterator[SmallProject]:
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".faults"), symlinks=True)
    project = SmallProject(folder)
    yield project
    project.end()
