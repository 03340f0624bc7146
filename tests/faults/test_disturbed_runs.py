"""Faults around a whole run: a full disk, cut files of DVC, two runs at once, what outlives a run, no server."""

import os
import shutil
import subprocess

import pytest

from flows.server import answers
from tests.faults.small_project import killed
from tests.system.browser import eventually
from tests.system.served import free_port

pytestmark = pytest.mark.faults


ROOM_MADE = "--- room made ---"
OWN_MOUNTS = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
TWICE = f"""
set -e
mkdir -p data
mount -t tmpfs -o size=1900k none data
"$@" || echo "ended with $?"
echo '{ROOM_MADE}'
mount -o remount,size=100m data
"$@"
cp -a data data.kept
"""  # data/ has enough room for all before results; what is in it goes with the tmpfs, which goes with the command


def test_a_full_disk_is_named_and_the_same_command_goes_on_with_room(project, finished):
    trial = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", str(project.folder)]
    if not shutil.which("unshare") or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.fail("a small disk needs `unshare`, and that this user may mount a tmpfs with it (user namespaces)")
    printed = project.run("flows.refresh", within=(*OWN_MOUNTS, "sh", "-c", TWICE, "sh"))
    (project.folder / "data").rmdir()
    (project.folder / "data.kept").rename(project.folder / "data")
    full, _ = printed.split(f"{ROOM_MADE}\n")
    assert "ended with" in full, full
    assert "no room is left on the disk" in full
    assert "Traceback" not in full
    assert project.results() == finished.results()


@pytest.mark.parametrize("lines", [0, 40])
def test_what_a_kill_leaves_of_dvc_s_own_files_costs_no_fit(finished_project, finished, lines):
    kept = finished_project.kept_fits()
    lock_file = finished_project.folder / "dvc.lock"
    lock_file.write_text("\n".join(lock_file.read_text().split("\n")[:lines]))
    (finished_project.folder / ".dvc/tmp/rwlock").write_text('{"data/raw')
    for remembered in (finished_project.folder / ".dvc/cache/runs").glob("*/*/*"):
        remembered.unlink()  # its folder stays, as after a kill before the file is moved into it
    printed = finished_project.run("flows.refresh")
    assert "Traceback" not in printed
    assert finished_project.results() == finished.results()
    assert finished_project.kept_fits() == kept


def test_of_two_runs_at_once_the_second_says_who_runs_and_waits(project, finished, tmp_path):
    go_on = tmp_path / "go on"
    first = project.paused("flows.refresh", at="data/base/wands/logits.parquet", until=go_on)
    second = project.start("flows.refresh")
    eventually(lambda: f"process {first.process.pid} has been running it" in second.printed())
    go_on.touch()
    first.ended()
    assert "Running stage" not in second.ended()
    assert project.results() == finished.results()


def test_what_outlives_a_killed_run_is_ended_by_the_next(project, finished, tmp_path):
    first = project.paused("flows.refresh", at="data/base/wands/logits.parquet", until=tmp_path / "never")
    (stage,) = [process for process in first.processes() if {"tasks.train", "wands"} <= set(process.cmdline())]
    first.kill_command()
    assert "Traceback" not in project.run("flows.refresh")
    assert not stage.is_running()
    assert project.results() == finished.results()


def test_a_server_that_dies_is_named_and_the_same_command_goes_on_without_it(finished_project, finished):
    for made in ("data/runs/wands", ".prefect/storage"):
        shutil.rmtree(finished_project.folder / made)
    url = f"http://127.0.0.1:{(port := free_port())}/api"
    server = finished_project.start("prefect", "server", "start", "--port", str(port))
    eventually(lambda: answers(url))
    reaching = {"PREFECT_API_URL": url, "PREFECT_CLIENT_MAX_RETRIES": "1"}
    command = ("flows.reliability", "wands")
    moment = killed("write", ".prefect/storage/vector-*", "server")
    printed = finished_project.run(*command, faults=(moment,), status=1, beside=server, **reaching)
    assert f"the Prefect server at {url} " in printed
    assert "Traceback" not in printed
    kept = finished_project.kept_fits()
    assert kept
    printed = finished_project.run(*command, **reaching)
    assert f"no Prefect API answers at {url}" in printed
    assert finished_project.results() == finished.results()
    assert finished_project.kept_fits().items() >= kept.items()
