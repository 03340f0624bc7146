"""A checkout that is read-only, or another user's: what must write says so in a sentence, the rest works."""

import os
import subprocess
import sys
from pathlib import Path

import maps
import pytest

from tasks.maps.document import save_map
from tests.project_copy import copy_project, environment

NOBODY = 65534
# root may do everything, unless its process has laid that down
BOUND = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"] if os.geteuid() == 0 else []


def copied(folder: Path) -> Path:
    """A copy of this project, and the folder that a run would write to."""
    copy_project(folder)
    (folder / "data").mkdir()
    return folder


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    folder = copied(tmp_path_factory.mktemp("read_only"))
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    yield folder
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.fixture(scope="module")
def another_users(tmp_path_factory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = copied(tmp_path_factory.mktemp("foreign"))
    folder.chmod(0o755)
    (folder / ".prefect").mkdir(mode=0o700)
    (folder / "data/.state/locks").mkdir(parents=True)
    (folder / "data/.state/server.json").write_text('{"api_url": "http://127.0.0.1:9/api"}')
    (folder / "data/.state/locks/serve.lock").touch(mode=0o600)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return folder


def ran(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`python -m` of a module of the copy, as a user who may no more than the modes say."""
    command = [*BOUND, sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("which", "module"), [("read_only", "flows.serve"), ("read_only", "flows.demo"), ("another_users", "flows.serve")]
)
def test_what_must_write_says_in_a_sentence_that_it_may_not(which, module, request):
    done = ran(request.getfixturevalue(which), module)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{module.partition('.')[2]}: ")
    assert "Permission denied" in done.stderr or "not permitted" in done.stderr
    assert "a checkout that belongs to you" in done.stderr


@pytest.mark.parametrize(("which", "module"), [("another_users", "flows.refresh"), ("read_only", "flows.demo")])
def test_help_needs_nothing_and_runs_nothing(which, module, request):
    done = ran(request.getfixturevalue(which), module, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().startswith("Usage: ")


def test_rerank_works_on_files_elsewhere(read_only, tmp_path):
    save_map(maps.document(), tmp_path / "map.json")
    maps.predictions(90).write_parquet(tmp_path / "new.parquet")
    files = "--map", tmp_path / "map.json", "--predictions", tmp_path / "new.parquet", "--out", tmp_path / "out.parquet"
    done = ran(read_only, "flows.rerank", "apply", *files)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.parquet").exists()
