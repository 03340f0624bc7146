"""Projects to disturb: one as it is set up, one whose first run has finished, undisturbed."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.faults.small_project import SmallProject
from tests.project_copy import copy_project, small, write_own_pairs


def shared(name: str, source: str | None = None, *command: str) -> Callable[..., SmallProject]:
    """A project for all processes of the tests, only to look at: a copy of `source`, if any, in which a command ran."""

    @pytest.fixture(scope="session")
    def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> SmallProject:
        of = request.getfixturevalue(source) if source else None
        folder = tmp_path_factory.getbasetemp()
        folder = (folder.parent if folder.name.startswith("popen-") else folder) / name
        unfinished = folder.with_suffix(".unfinished")
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                shutil.rmtree(unfinished, ignore_errors=True)
                if of is None:
                    copy_project(unfinished, small)
                    write_own_pairs(unfinished / "mine.csv")
                else:
                    shutil.copytree(of.folder, unfinished)
                    SmallProject(unfinished).run(*command)
                unfinished.rename(folder)
        return SmallProject(folder)

    return made


laid_out = shared("laid_out")  # as it is cloned, but for Prefect's database: enough for stages that are no flows
set_up = shared("set_up", "laid_out", "prefect", "server", "database", "upgrade", "-y")  # as `make setup` leaves it
finished = shared("finished", "set_up", "flows.refresh")  # after an undisturbed run of everything
trained = shared("trained", "laid_out", "dvc", "repro", "train@mine")


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
