"""Projects to disturb: one as it is set up, one whose first run has finished, undisturbed."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.faults.small_project import SmallProject
from tests.project_copy import copy_project, small, write_own_pairs


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SmallProject]:
    """Makes a project for all processes of the tests: a copy of `source`, if any, in which a command was run."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if folder.name.startswith("popen-") else folder

    def make(name: str, source: SmallProject | None = None, *command: str) -> SmallProject:
        unfinished = shared / f"{name}.unfinished"
        with FileLock(shared / f"{name}.lock"):
            if not (shared / name).exists():
                shutil.rmtree(unfinished, ignore_errors=True)
                if source is None:
                    copy_project(unfinished, small)
                    write_own_pairs(unfinished / "mine.csv")
                else:
                    shutil.copytree(source.folder, unfinished)
                    SmallProject(unfinished).run(*command)
                unfinished.rename(shared / name)
        return SmallProject(shared / name)

    return make


@pytest.fixture(scope="session")
def laid_out(once) -> SmallProject:
    """The project as it is cloned, but for Prefect's database: enough for stages that are no flows."""
    return once("laid_out")


@pytest.fixture(scope="session")
def set_up(once, laid_out) -> SmallProject:
    """The project as `make setup` leaves it, not run yet."""
    return once("set_up", laid_out, "prefect", "server", "database", "upgrade", "-y")


@pytest.fixture(scope="session")
def finished(once, set_up) -> SmallProject:
    """The project after an undisturbed run of everything. Only to look at."""
    return once("finished", set_up, "flows.refresh")


@pytest.fixture(scope="session")
def trained(once, laid_out) -> SmallProject:
    """The project after an undisturbed `dvc repro train@mine`. Only to look at."""
    return once("trained", laid_out, "dvc", "repro", "train@mine")


def own_copy(of: str) -> Callable[..., Iterator[SmallProject]]:
    """A project of a test's own, a copy of the one named; what still runs in it afterwards is ended."""

    @pytest.fixture
    def copied(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallProject]:
        source = request.getfixturevalue(of).folder
        shutil.copytree(source, tmp_path / "project", ignore=shutil.ignore_patterns(".faults"), symlinks=True)
        yield (project := SmallProject(tmp_path / "project"))
        project.end()

    return copied


young_project = own_copy("laid_out")  # in which no stage has run, and no flow can
project = own_copy("set_up")
finished_project = own_copy("finished")
