"""Settings before the import of Prefect, private folders, telemetry, and the choice of a server."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from configparser import ConfigParser
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import httpx
import pytest
from dvc.exceptions import DvcException
from dvc.repo import Repo
from prefect.cache_policies import NO_CACHE
from prefect.context import refresh_global_settings_context
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, Settings, temporary_settings

from flows import PREFECT_SETTINGS, SETTINGS, server
from relmap.settings import DEFAULTS
from tasks.measure import measure
from tasks.provenance.lock import hold_lock
from tasks.records.errors import RunFailed
from tasks.records.store import DVC_STATE, make_private
from tasks.settings.params import RivalParams, load_params
from tests.maps import settings_of_library
from tests.project_copy import copy_project

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_VARIABLES = {
    **dict.fromkeys(("DO_NOT_TRACK", "DVC_NO_ANALYTICS", "HF_HUB_DISABLE_TELEMETRY"), "1"),
    "PREFECT_SERVER_ANALYTICS_ENABLED": "False",
    "GX_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_API_HOST": "127.0.0.1",
    "PREFECT_HOME": str(ROOT / ".prefect"),
}


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SETTINGS and "PREFECT" not in name}


@pytest.mark.parametrize("variables", [{}, {"PREFECT_HOME": "elsewhere"}])
def test_telemetry_is_off_and_state_is_local_by_default(variables):
    with patch.dict(os.environ, clean_environment() | variables, clear=True):
        runpy.run_path(str(ROOT / "flows/__init__.py"))
        assert os.environ.items() >= (DEFAULT_VARIABLES | variables).items()
    assert "analytics = false" in (ROOT / ".dvc/config").read_text()


def test_prefect_reads_every_setting_under_its_name():
    # Prefect 3.8.8 truncates the interval to an integer; with 0 its server loops without a pause
    assert int(float(PREFECT_SETTINGS["PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL"])) >= 1
    settings = PREFECT_SETTINGS | server.TEMPORARY_SERVER
    del settings["PREFECT__SERVER_EPHEMERAL"]  # no setting, but read by the server itself
    with patch.dict(os.environ, settings):
        assert settings.keys() <= Settings().to_environment_variables(exclude_unset=True).keys()
    assert measure.cache_policy == NO_CACHE  # a task is run whenever it is called, unless it has a key of its own


def test_import_sets_defaults_and_does_nothing_else(tmp_path):
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
    completed = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)

    assert completed.returncode == 1
    found = re.escape(str(ROOT / "relmap/__init__.py"))
    assert re.search(rf"relmap .* {found}, not in {re.escape(str(tmp_path))};", completed.stderr)


def test_library_defaults_equal_the_pipeline_settings():
    metrics = DEFAULTS.metrics.model_copy(update={"smallest_probability": 1e-6})  # of the paper's authors
    expected = DEFAULTS.model_copy(update={"metrics": metrics})
    assert settings_of_library(load_params(ROOT / "params.yaml")) == expected


def test_run_state_is_private(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "PREFECT_HOME", tmp_path / "home")
    for _ in range(2):
        server.create_prefect_home()
        assert server.PREFECT_HOME.stat().st_mode & 0o777 == 0o700
        server.PREFECT_HOME.chmod(0o755)


FOLDERS = ("data", ".dvc", ".dvc/cache", ".dvc/tmp", ".prefect")


def test_locking_makes_the_folders_private(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in FOLDERS:
        Path(folder).mkdir()
        Path(folder).chmod(0o755)
    with hold_lock("train@wands"):
        assert {folder: Path(folder).stat().st_mode & 0o777 for folder in FOLDERS} == dict.fromkeys(FOLDERS, 0o700)


def test_dvc_experiment_makes_the_cache_of_the_checkout_private(tmp_path, monkeypatch):
    experiment = tmp_path / ".dvc/tmp/exps/standalone/tmp1"  # as of `dvc exp run --temp`
    experiment.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / ".dvc"):
        folder.chmod(0o755)
    monkeypatch.chdir(experiment)
    make_private()

    assert (tmp_path / ".dvc").stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_the_state_of_dvc_is_in_a_private_folder_from_every_folder_of_the_project(tmp_path, monkeypatch):
    project, moved = tmp_path / "project, #1", tmp_path / "moved"
    copy_project(project)
    with (project / ".dvc/config.local").open("a") as config:
        config.write("['remote \"shared\"']\n    url = /mnt/a\n")
    (project / "docs").mkdir()
    for folder in (project, moved):
        if folder == moved:
            project.rename(moved)
        monkeypatch.chdir(folder)
        make_private()
        for current in (folder, folder / "docs"):
            monkeypatch.chdir(current)
            with Repo() as repo:
                assert Path(repo.site_cache_dir).parent == folder / ".dvc/tmp/site/repo"
                assert repo.config["remote"]["shared"]["url"] == "/mnt/a"
                assert repo.config["core"]["no_scm"]
    assert (moved / ".dvc").stat().st_mode & 0o777 == 0o700


def test_a_clone_has_a_folder_for_the_state_of_dvc_that_others_cannot_change():
    settings = ConfigParser()
    settings.read(ROOT / ".dvc/config")
    assert Path(settings["core"]["site_cache_dir"]) == DVC_STATE
    # DVC creates the folder with permissions for everyone, unless git has created it
    assert (ROOT / DVC_STATE / "repo/.gitignore").exists()


def test_folders_of_another_user_are_unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data").chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: Path("data").stat().st_uid + 1)
    make_private()
    assert Path("data").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("mode", "expected"), [(0o701, 0o700), (0o770, 0o700), (0o540, 0o700), (0o700, 0o700), (0o500, 0o500)]
)
def test_only_folders_that_others_may_use_are_closed(mode, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data").chmod(mode)
    make_private()
    assert Path("data").stat().st_mode & 0o777 == expected


def test_setup_without_git_enables_dvc(tmp_path, monkeypatch):
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "core.no_scm" in line]
    shutil.copytree(ROOT / ".dvc", tmp_path / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp", "config.local"))
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    with pytest.raises(DvcException, match="git repository"), Repo(tmp_path):
        pass

    recipe = line.strip().lstrip("@").replace("$(BIN)", str(Path(sys.executable).parent))
    subprocess.run(["sh", "-c", recipe], cwd=tmp_path, check=True)
    with Repo(tmp_path) as repo:
        assert repo.status() == {}


def find_server_variable(name: str = "PREFECT_API_URL", **environment: str) -> str | None:
    """Find a server, and return the value of a variable, which Prefect's settings must share."""
    with patch.dict(os.environ, environment):  # at the end, all variables get their earlier values back
        server.find_server()
        settings = {"PREFECT_API_URL": PREFECT_API_URL, "PREFECT_API_AUTH_STRING": PREFECT_API_AUTH_STRING}
        value = os.environ.get(name)
        assert value == settings[name].value()
    refresh_global_settings_context()
    return value


def test_running_server_is_found_and_dead_server_ignored(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    server.STATE.mkdir(parents=True)
    url = "http://127.0.0.1:9/api"
    key = "PREFECT_API_AUTH_STRING"
    server.ADDRESS_FILE.write_text(json.dumps({"api_url": url}))

    with monkeypatch.context() as answering_server:
        answering_server.setattr("urllib.request.urlopen", lambda *_, **__: nullcontext(SimpleNamespace(status=200)))
        server.SECRET_FILE.write_text("ours")
        answering_server.setattr(server, "is_own_port", lambda _port: False)
        with hold_lock("serve"):
            assert find_server_variable() is None  # another user has the port
            answering_server.setattr(server, "is_own_port", lambda port: port == 9)
            assert find_server_variable() == url
            assert find_server_variable(PREFECT_API_URL=f"{url}?mine") == f"{url}?mine"
            assert find_server_variable(key) == find_server_variable(key, PREFECT_API_URL=url) == "ours"
            assert find_server_variable(key, PREFECT_API_URL=f"{url}?mine") is None  # no other server gets it
        assert find_server_variable() is None  # a server of another project answers there now
    with hold_lock("serve"):
        assert find_server_variable() is None

    capsys.readouterr()
    assert find_server_variable(PREFECT_API_URL=url) is None
    assert re.match(rf"no Prefect API .* {re.escape(url)}:", capsys.readouterr().out)


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadTimeout("too late")])
def test_lost_server_is_reported(monkeypatch, error):
    monkeypatch.setattr(server, "find_server", lambda: None)
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(RunFailed, match=rf":9/api .*\({error}\).*again"),
        server.ensure_server(),
    ):
        raise error


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (1, (100,)),
        (100, (100,)),
        (101, (100, 300)),
        (300, (100, 300)),
        (301, (100, 300, 1000)),
        (5000, (100, 300, 1000)),
    ],
)
def test_steps_of_a_learning_curve_end_with_the_first_that_has_all_rows(available, expected):
    assert RivalParams(calibrators=("sms",), rows=(1000, 100, 300)).row_counts(available) == expected
