"""Small projects in which the tests inject faults."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.faults.small_project import SmallProject
from tests.project_copy import copy_project, shrink_params, write_own_pairs


def shared_project_fixture(name: str, source: str | None = None, *command: str) -> Callable[..., SmallProject]:
    """Return a fixture for a project that all test processes share and only read.

    It is a copy of the project of the fixture `source`, in which the command has run. Without a source, it is a small
    copy of this repository.
    """

    @pytest.fixture(scope="session")
    def shared_project(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> SmallProject:
        source_project = request.getfixturevalue(source) if source else None
        base = tmp_path_factory.getbasetemp()
        if base.name.startswith("popen-"):  # of one pytest-xdist worker; its parent is common to all
            base = base.parent
        folder = base / name
        unfinished = folder.with_suffix(".unfinished")
        with FileLock(folder.with_suffix(".lock")):
            if not folder.exists():
                shutil.rmtree(unfinished, ignore_errors=True)
                if source_project is None:
                    copy_project(unfinished, shrink_params)
                    write_own_pairs(unfinished / "mine.csv")
                else:
                    shutil.copytree(source_project.folder, unfinished)
                    SmallProject(unfinished).run(*command)
                unfinished.rename(folder)
        return SmallProject(folder)

    return shared_project


# Shared projects, which tests only read

# a clone without Prefect's database: enough for stages that are not flows
bare_project = shared_project_fixture("bare_project")
# after `make setup`
prepared_project = shared_project_fixture(
    "prepared_project", "bare_project", "prefect", "server", "database", "upgrade", "-y"
)
# after an undisturbed refresh
finished = shared_project_fixture("finished", "prepared_project", "flows.refresh")
# after the base predictor of the data set `mine` was trained
trained = shared_project_fixture("trained", "bare_project", "dvc", "repro", "train@mine")


def copied_project_fixture(name: str) -> Callable[..., Iterator[SmallProject]]:
    """Return a fixture for a copy of a shared project that one test may change. Its processes are killed at the end."""

    @pytest.fixture
    def copied(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallProject]:
        source_folder = request.getfixturevalue(name).folder
        shutil.copytree(source_folder, tmp_path / "project", ignore=shutil.ignore_patterns(".faults"), symlinks=True)
        project = SmallProject(tmp_path / "project")
        yield project
        project.kill_all()

    return copied


# Copies of shared projects, one for each test

new_project = copied_project_fixture("bare_project")  # no stage has run, and flows cannot run
project = copied_project_fixture("prepared_project")
finished_project = copied_project_fixture("finished")
