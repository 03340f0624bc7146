"""Fixtures of the tests of the pipeline."""

from pathlib import Path

import pytest

from tasks.settings.params import Params, load_params


@pytest.fixture(scope="session")
def quick_params() -> Params:
    """Parameters of the project with three calibrators and less to compute."""
    read = load_params(Path(__file__).resolve().parents[2] / "params.yaml")
    reduced = {"projection": {"epochs": 5}, "metrics": {"spread_permutations": 20, "resamples": 300}}
    sections = {name: getattr(read, name).model_copy(update=values) for name, values in reduced.items()}
    return read.model_copy(update={"calibrators": ("uncal", "ts", "diag"), **sections})


@pytest.fixture(scope="session")
def trained_project(tmp_path_factory) -> Path:
    """Folder of a tiny project in which the stage train@wands has finished."""
    from tests.tiny_project import create_finished_project

    return create_finished_project(tmp_path_factory.mktemp("trained"), "train@wands")


@pytest.fixture
def manifest(trained_project, tmp_path, monkeypatch):
    """Manifest of the stage train@wands, in a copy of the project."""
    from tests.tiny_project import copy_to_current_folder, read_dvc_stage, read_manifest

    monkeypatch.chdir(tmp_path)
    copy_to_current_folder(trained_project)
    return read_manifest(read_dvc_stage("train@wands").manifest)
