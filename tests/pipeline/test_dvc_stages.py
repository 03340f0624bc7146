"""What we read in dvc.yaml is what DVC reads there."""

import shutil
from pathlib import Path

import pytest
import yaml
from dvc.dependency.param import ParamsDependency
from dvc.repo import Repo

from relmap.errors import InputError
from tasks.provenance.dvc_stages import read_dvc_stage, stage_names

ROOT = Path(__file__).resolve().parents[2]
OWN = {"reader": "files", "source": "files", "split": {"by": "row", "validation": 0.3, "test": 0.3}}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Our dvc.yaml and params.yaml, with sets of one's own: beside the project, and elsewhere."""
    folder = tmp_path_factory.mktemp("declared").resolve()
    shutil.copy(ROOT / "dvc.yaml", folder)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    for name, path in {"mine": "./mine.csv", "beside": "../own/pairs", "2024": "/elsewhere/pairs.csv"}.items():
        params["datasets"][name] = OWN | {"path": path}
    params["sensitivity"] = {"calibrators": [], "alternatives": {}}
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def resolved(project):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        with Repo.init(no_scm=True) as repo:
            stages = {stage.name: stage for stage in repo.index.stages}
            yield stages


@pytest.fixture(autouse=True)
def _there(project, monkeypatch):
    monkeypatch.chdir(project)


def test_every_stage_is_declared_as_dvc_resolves_it(resolved):
    assert sorted(stage_names()) == sorted(resolved)
    for name, stage in resolved.items():
        ours = read_dvc_stage(name)
        parameters = [dependency for dependency in stage.deps if isinstance(dependency, ParamsDependency)]
        files = {dependency.fs_path for dependency in stage.deps if dependency not in parameters}
        assert {str(path.resolve()) for path in (*ours.inputs, *ours.code)} == files, name
        written = {str(path.resolve()) for path in (*ours.outputs, ours.manifest)}
        assert written == {out.fs_path for out in stage.outs}, name
        persistent = {str(path.resolve()) for path in ours.persistent_outputs}
        assert persistent == {out.fs_path for out in stage.outs if out.persist}, name
        assert ours.command == stage.cmd, name
        assert set(ours.parameters) == {key for dependency in parameters for key in dependency.params}, name
        if name in {"download@2024", "train@wands", "reliability@mine", "report"}:
            assert ours.parameters == parameters[0].read_params(), name


def test_code_and_inputs_are_told_apart():
    stage = read_dvc_stage("download@mine")
    assert Path("mine.csv") in stage.inputs
    assert {path.parts[0] for path in stage.code} == {"tasks", "relmap"}
    assert not {path.parts[0] for path in stage.inputs} & {"flows", "tasks", "relmap"}


ASKED = {
    **dict.fromkeys(("", "wands", "report@wands", "train", "train@"), r"stage .* in dvc\.yaml; it has download@"),
    **dict.fromkeys(("train@wand", "train@../wands", "train@a@b"), r"data set .* in params\.yaml; it has amazon_esci"),
}


@pytest.mark.parametrize(("name", "words"), ASKED.items())
def test_a_stage_or_a_data_set_that_is_not_there_is_told_with_those_that_are(name, words):
    with pytest.raises(InputError, match=f"no {words}"):
        read_dvc_stage(name)
