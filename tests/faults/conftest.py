"""Small projects in which the tests inject faults."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.faults.small_project import SmallProject
from tests.project_copy import copy_project, small, write_own_pairs


def shared(name: str, source: str | None = None, *command: str) -> Callable[..., SmallProject]:
    """Return a fixture: a read-only project of all test processes, a copy of `source` in which a command has run."""

    @pytest.fixture(scope="session")
    def shared_project(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> SmallProject:
        source_project = request.getfixturevalue(source) if source else None
        folder = tmp_path_factory.getbasetemp()
        folder = (folder.parent if folder.name.startswith("popen-") else folder) / name
        unfinished = folder.with_suffix(".unfinished")
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                shutil.rmtree(unfinished, ignore_errors=True)
                if source_project is None:
                    copy_project(unfinished, small)
                    write_own_pairs(unfinished / "mine.csv")
                else:
                    shutil.copytree(source_project.folder, unfinished)
                    SmallProject(unfinished).run(*command)
                unfinished.rename(folder)
        return SmallProject(folder)

    return shared_project


laid_out = shared("laid_out")  # a clone without Prefect's database: enough for stages that are not flows
set_up = shared("set_up", "laid_out", "prefect", "server", "database", "upgrade", "-y")  # after `make setup`
finished = shared("finished", "set_up", "flows.refresh")  # after an undisturbed run of everything
trained = shared("trained", "laid_out", "dvc", "repro", "train@mine")


def own_copy(name: str) -> Callable[..., Iterator[SmallProject]]:
    """Return a fixture: a copy of a shared project. Processes that still run after the test are ended."""

    @pytest.fixture
    def copied(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallProject]:
        source = request.getfixturevalue(name).folder
        shutil.copytree(source, tmp_path / "project", ignore=shutil.ignore_patterns(".faults"), symlinks=True)
        project = SmallProject(tmp_path / "project")
        yield project
        project.end()

    return copied


new_project = own_copy("laid_out")  # no stage has run, and flows cannot run
project = own_copy("set_up")
finished_project = own_copy("finished")
