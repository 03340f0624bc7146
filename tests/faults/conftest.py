"""Projects to disturb: a new one, one that is set up, and one whose first run has finished without a fault."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.faults.small_project import SmallProject
from tests.project_copy import copy_project, shrink_params, write_own_pairs


def shared_project(name: str, source: str | None = None, *command: str) -> Callable[..., SmallProject]:
    """Make a fixture of a read-only project for all test processes: a copy of `source` in which a command ran."""

    @pytest.fixture(scope="session", name=name)
    def project(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> SmallProject:
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

    return project


# As cloned, without Prefect's database: enough for stages that are not flows
shared_created = shared_project("shared_created")
# As `make setup` leaves it
shared_ready = shared_project("shared_ready", "shared_created", "prefect", "server", "database", "upgrade", "-y")
# After a run of everything without a fault
finished = shared_project("finished", "shared_ready", "flows.refresh")
# After the training stage of one data set without a fault
trained = shared_project("trained", "shared_created", "dvc", "repro", "train@mine")


def private_project(name: str, source: str) -> Callable[..., Iterator[SmallProject]]:
    """Make a fixture of a copy of `source` for one test; its remaining processes are killed after the test."""

    @pytest.fixture(name=name)
    def project(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallProject]:
        source_folder = request.getfixturevalue(source).folder
        shutil.copytree(source_folder, tmp_path / "project", ignore=shutil.ignore_patterns(".faults"), symlinks=True)
        copy = SmallProject(tmp_path / "project")
        yield copy
        copy.kill_all()

    return project


created_project = private_project("created_project", "shared_created")  # it can run stages, but no flow
ready_project = private_project("ready_project", "shared_ready")
finished_project = private_project("finished_project", "finished")
