"""A project of two stages with tiny outputs, for tests of `run_stage`."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.stage import run_stage
from tests import project_copy
from tests.project_copy import ROOT

DVC_YAML = """
stages:
  train:
    foreach: ${datasets}
    do:
      cmd: python -m tasks.train ${key}
      deps: ["data/raw/${key}", tasks/trained, tasks/train.py]
      params: [train, "datasets.${key}"]
      outs: ["data/base/${key}"]
  report:
    cmd: python -m flows.report
    deps: [data/base, tasks/report.py]
    params: [calibrators]
    outs: [data/report]
"""


def create_project(folder: Path, datasets: tuple[str, ...] = ("wands", "scidocs")) -> None:
    """Write dvc.yaml, params.yaml, the code and the raw files into `folder`."""
    (folder / "dvc.yaml").write_text(DVC_YAML)
    shutil.copy(ROOT / "params.yaml", folder)

    def shorten(params: dict[str, Any]) -> None:
        params["datasets"] = {name: params["datasets"][name] for name in datasets}
        params["sensitivity"] = {"calibrators": [], "alternatives": {}}

    project_copy.edit_params(folder, shorten)
    code_files = ["tasks/trained/model.py", "tasks/train.py", "tasks/report.py"]
    raw_files = [f"data/raw/{dataset}/rows.csv" for dataset in datasets]
    for name in [*code_files, *raw_files]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")


def create_finished_project(folder: Path, *stages: str) -> Path:
    """Create a project in `folder` and run `stages` (all stages if none is given); return the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        create_project(folder)
        for name in stages or stage_names():
            complete_stage(name)
    return folder


def copy_to_current_folder(project: Path) -> None:
    """Copy a project into the current folder."""
    shutil.copytree(project, Path.cwd(), dirs_exist_ok=True)


edit_params = partial(project_copy.edit_params, Path())  # edits params.yaml of the current folder


def write_outputs(name: str, text: str = "made\n") -> None:
    """Write the outputs of a stage: two small files, one of them in a subfolder."""
    (folder,) = read_dvc_stage(name).outputs
    shutil.rmtree(folder, ignore_errors=True)
    for file in ("table.csv", "deep/model.json"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"{name}: {text}")


def complete_stage(name: str, text: str = "made\n") -> None:
    """Run a stage."""
    with run_stage(name):
        write_outputs(name, text)
