"""A project of two stages, laid out in a folder in no time, for what the door of a stage does."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tasks.provenance.dvc_stages import read_dvc_stage, stage_names
from tasks.provenance.manifest import Manifest, read_manifest
from tasks.provenance.stage import run_stage
from tests import project_copy
from tests.project_copy import ROOT

STAGES = """
stages:
  train:
    foreach: ${datasets}
    do:
      cmd: python -m tasks.train ${key}
      deps: ["data/raw/${key}", tasks/trained, tasks/train.py]
      params: [train, "datasets.${key}"]
      outs: ["data/base/${key}", "data/manifests/${key}/train.json"]
  report:
    cmd: python -m flows.report
    deps: [data/base, tasks/report.py]
    params: [calibrators]
    outs: [data/report, data/manifests/report.json]
"""


def lay_out(folder: Path, datasets: tuple[str, ...] = ("wands", "scidocs")) -> None:
    """Write dvc.yaml, params.yaml, the code and the raw files into `folder`."""
    (folder / "dvc.yaml").write_text(STAGES)
    shutil.copy(ROOT / "params.yaml", folder)
    project_copy.edit_params(
        folder,
        lambda params: params.update(
            datasets={name: params["datasets"][name] for name in datasets},
            sensitivity={"calibrators": [], "alternatives": {}},
        ),
    )
    files = ["tasks/trained/model.py", "tasks/train.py", "tasks/report.py"]
    for name in [*files, *(f"data/raw/{dataset}/rows.csv" for dataset in datasets)]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")


def finished_in(folder: Path, *stages: str) -> Path:
    """Lay out a project in `folder` and run `stages`, all of them if none is named; returns the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lay_out(folder)
        for name in stages or stage_names():
            run(name)
    return folder


def copy_here(finished: Path) -> None:
    shutil.copytree(finished, Path.cwd(), dirs_exist_ok=True)


edit_params = partial(project_copy.edit_params, Path())  # of the current folder


def work(name: str, text: str = "made\n") -> None:
    """What the stage does: its outputs are two small files, one of them in a folder of its own."""
    (folder,) = read_dvc_stage(name).outputs
    shutil.rmtree(folder, ignore_errors=True)
    for file in ("table.csv", "deep/model.json"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"{name}: {text}")


def run(name: str, text: str = "made\n") -> Manifest:
    with run_stage(name):
        work(name, text)
    return read_manifest(read_dvc_stage(name).manifest)
