"""Stages are read from dvc.yaml as DVC resolves them."""

import shutil
from pathlib import Path

import pytest
import yaml
from dvc.dependency.param import ParamsDependency
from dvc.repo import Repo

from relmap.errors import InputError
from tasks.provenance import dvc_stages
from tasks.provenance.dvc_stages import read_dvc_stage, read_recorded_digests, stage_names

ROOT = Path(__file__).resolve().parents[2]
OWN_DATA_SET = {"reader": "files", "source": "files", "split": {"by": "row", "validation": 0.3, "test": 0.3}}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Copy dvc.yaml and params.yaml, and add data sets inside and outside of the project."""
    folder = tmp_path_factory.mktemp("declared").resolve()
    shutil.copy(ROOT / "dvc.yaml", folder)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    for name, path in {"mine": "./mine.csv", "outside": "../own/pairs", "2024": "/elsewhere/pairs.csv"}.items():
        params["datasets"][name] = OWN_DATA_SET | {"path": path}
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
def _working_directory(project, monkeypatch):
    monkeypatch.chdir(project)


def test_every_stage_is_read_as_dvc_resolves_it(resolved):
    assert sorted(stage_names()) == sorted(resolved)
    for name, stage in resolved.items():
        declared = read_dvc_stage(name)
        (parameters,) = [dependency for dependency in stage.deps if isinstance(dependency, ParamsDependency)]
        files = {dependency.fs_path for dependency in stage.deps if dependency is not parameters}
        assert {str(path.resolve()) for path in (*declared.inputs, *declared.code)} == files, name
        written = {str(path.resolve()) for path in declared.outputs}
        assert written == {out.fs_path for out in stage.outs}, name
        persistent = {str(path.resolve()) for path in declared.persistent_outputs}
        assert persistent == {out.fs_path for out in stage.outs if out.persist}, name
        assert set(declared.parameters) == set(parameters.params), name
        assert declared.parameters == parameters.read_params(), name


def test_code_and_inputs_are_distinguished():
    stage = read_dvc_stage("download@mine")
    assert Path("mine.csv") in stage.inputs
    assert {path.parts[0] for path in stage.code} == {"tasks", "relmap"}
    assert {path.parts[0] for path in stage.inputs}.isdisjoint({"flows", "tasks", "relmap"})


@pytest.mark.parametrize("name", ["", "wands", "report@wands", "train", "train@"])
def test_an_unknown_stage_is_reported_with_the_known_ones(name):
    with pytest.raises(InputError, match=rf"stage {name!r} .*dvc\.yaml.*download@"):
        read_dvc_stage(name)


@pytest.mark.parametrize("name", ["train@wand", "train@../wands", "train@a@b"])
def test_an_unknown_data_set_is_reported_with_the_known_ones(name):
    with pytest.raises(InputError, match=rf"set {name.partition('@')[2]!r} .*params\.yaml.*amazon_esci"):
        read_dvc_stage(name)


def test_the_files_are_parsed_once_for_all_stages():
    dvc_stages._parse.cache_clear()
    first, second, *_ = stage_names()  # parses the files
    for name in (first, second):
        read_dvc_stage(name)
    cache = dvc_stages._parse.cache_info()
    assert cache.misses == 1
    assert cache.hits == 2
    assert cache.maxsize == 2


def test_the_digests_of_outputs_are_read_from_the_lock_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_recorded_digests() == {}
    outputs = [{"path": "data/base/wands", "md5": "1a.dir"}, {"path": "data/metrics/wands.json", "md5": "2b"}]
    lock = {"schema": "2.0", "stages": {"train@wands": {"cmd": "a", "outs": outputs}, "other": {"cmd": "b"}}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    assert read_recorded_digests() == {"data/base/wands": "1a.dir", "data/metrics/wands.json": "2b"}
