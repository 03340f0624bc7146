"""Settings are made before Prefect is imported and tell nobody anything; which server a command asks."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import httpx
import pytest
from dvc.exceptions import DvcException
from dvc.repo import Repo
from filelock import FileLock
from prefect.cache_policies import NO_CACHE
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, Settings, temporary_settings

from flows import PREFECT_SETTINGS, SETTINGS, server
from relmap.settings import DEFAULTS
from tasks.measure import measure
from tasks.provenance.lock import hold_lock
from tasks.records.errors import RunFailed
from tasks.records.store import make_private
from tasks.settings.params import load_params

ROOT = Path(__file__).resolve().parents[2]
QUIET = {
    **dict.fromkeys(("DO_NOT_TRACK", "DVC_NO_ANALYTICS", "HF_HUB_DISABLE_TELEMETRY"), "1"),
    **{"PREFECT_SERVER_ANALYTICS_ENABLED": "False", "GX_ANALYTICS_ENABLED": "false"},
    **{"PREFECT_SERVER_API_HOST": "127.0.0.1", "PREFECT_HOME": str(ROOT / ".prefect")},
}


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SETTINGS and "PREFECT" not in name}


@pytest.mark.parametrize("own", [{}, {"PREFECT_HOME": "elsewhere"}])
def test_nothing_is_told_to_anybody_and_all_state_is_the_projects_own_unless_a_person_has_set_it(own):
    with patch.dict(os.environ, clean_environment() | own, clear=True):
        runpy.run_path(str(ROOT / "flows/__init__.py"))
        assert os.environ.items() >= (QUIET | own).items()
    assert "analytics = false" in (ROOT / ".dvc/config").read_text()


def test_prefect_reads_every_setting_of_pyproject_under_its_name():
    # Prefect 3.8.8 cuts the interval to an int; at 0 its server loops without a pause
    assert int(float(PREFECT_SETTINGS["PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL"])) >= 1
    with patch.dict(os.environ, PREFECT_SETTINGS):
        assert PREFECT_SETTINGS.keys() <= Settings().to_environment_variables(exclude_unset=True).keys()
    assert measure.cache_policy == NO_CACHE  # a task is run whenever it is called, unless it has a key of its own


def test_importing_sets_defaults_and_does_nothing_else(tmp_path):
    for folder in ("flows", "relmap"):
        (tmp_path / folder).mkdir()
    for name in ("flows/__init__.py", "relmap/__init__.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    environment = clean_environment() | {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PYTHONPATH": str(tmp_path)}
    code = "import sys, flows; print('prefect' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-B", "-c", code], cwd=tmp_path, env=environment) == b"False\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_flows_refuse_the_library_of_another_checkout(tmp_path):
    (tmp_path / "flows").mkdir()
    for name in ("flows/__init__.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    environment = clean_environment() | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-B", "-c", "import flows"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"relmap was found at {ROOT / 'relmap/__init__.py'}, not in {tmp_path}" in done.stderr


def test_the_librarys_defaults_are_the_pipelines_settings():
    assert load_params(ROOT / "params.yaml").library_settings == DEFAULTS


def test_the_state_of_runs_is_for_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "PREFECT_HOME", tmp_path / "home")
    for _ in range(2):
        server.create_prefect_home()
        assert server.PREFECT_HOME.stat().st_mode & 0o777 == 0o700
        server.PREFECT_HOME.chmod(0o755)


FOLDERS = ("data", ".dvc", ".dvc/cache", ".dvc/tmp", ".prefect")


def test_whatever_a_command_locks_first_closes_the_folders_of_a_clone_to_other_users(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in FOLDERS:
        Path(folder).mkdir()
        Path(folder).chmod(0o755)
    with hold_lock("train@wands"):
        assert {folder: Path(folder).stat().st_mode & 0o777 for folder in FOLDERS} == dict.fromkeys(FOLDERS, 0o700)


def test_a_stage_of_an_experiment_in_a_folder_of_its_own_closes_the_cache_of_the_checkout(tmp_path, monkeypatch):
    experiment = tmp_path / ".dvc/tmp/exps/standalone/tmp1"  # as of `dvc exp run --temp`
    experiment.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / ".dvc"):
        folder.chmod(0o755)
    monkeypatch.chdir(experiment)
    make_private()
    assert (tmp_path / ".dvc").stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_folders_of_another_user_are_left_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data").chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: Path("data").stat().st_uid + 1)
    make_private()
    assert Path("data").stat().st_mode & 0o777 == 0o755


def test_setting_up_a_copy_without_git_lets_dvc_work_there(tmp_path, monkeypatch):
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "core.no_scm" in line]
    shutil.copytree(ROOT / ".dvc", tmp_path / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp", "config.local"))
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(DvcException, match="is not a git repository"), Repo(tmp_path):
        pass
    recipe = line.strip().lstrip("@").replace("$(BIN)", str(Path(sys.executable).parent))
    subprocess.run(["sh", "-c", recipe], cwd=tmp_path, check=True)
    with Repo(tmp_path) as repo:
        assert repo.status() == {}


def asked_server(name: str = "PREFECT_API_URL", **environment: str) -> str | None:
    """What is set under `name` once a command has looked for a server, in the environment and in Prefect's settings."""
    with patch.dict(os.environ, environment):  # what is found is taken back
        server.find_server()
        settings = {"PREFECT_API_URL": PREFECT_API_URL, "PREFECT_API_AUTH_STRING": PREFECT_API_AUTH_STRING}
        asked = os.environ.get(name)
        assert asked == settings[name].value()
    refresh_global_settings_context()
    return asked


def test_a_living_server_of_this_project_is_found_and_a_dead_one_left_aside(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lock = server.LOCKS / "serve.lock"
    lock.parent.mkdir(parents=True)
    url, key = "http://127.0.0.1:9/api", "PREFECT_API_AUTH_STRING"
    server.ADDRESS_FILE.write_text(json.dumps({"api_url": url}))
    with monkeypatch.context() as healthy:
        healthy.setattr("urllib.request.urlopen", lambda *_, **__: nullcontext(SimpleNamespace(status=200)))
        with FileLock(lock):
            assert asked_server() == url
            assert asked_server(PREFECT_API_URL=f"{url}?mine") == f"{url}?mine"
            assert asked_server(key) is None  # it was started with --open
            server.SECRET_FILE.write_text("ours")
            assert asked_server(key) == asked_server(key, PREFECT_API_URL=url) == "ours"
            assert asked_server(key, PREFECT_API_URL=f"{url}?mine") is None  # it is sent to no other
        assert asked_server() is None  # whoever answers there now is another project's
    with FileLock(lock):
        assert asked_server() is None
    capsys.readouterr()
    assert asked_server(PREFECT_API_URL=url) is None
    assert capsys.readouterr().out.startswith(f"no Prefect API answers at {url}")


@pytest.mark.parametrize("lost", [httpx.ConnectError("refused"), httpx.ReadTimeout("too late")])
def test_a_server_that_is_gone_is_told_in_words(monkeypatch, lost):
    monkeypatch.setattr(server, "find_server", lambda: None)
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(RunFailed, match=r"no longer answers \((refused|too late)\).*run the same command again"),
        server.ensure_server(),
    ):
        raise lost
