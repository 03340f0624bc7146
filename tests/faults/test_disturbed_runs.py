"""Faults around a whole run: kills, a full disk, cut files of DVC, two runs at once, no server, bytes that rot.

The same command finishes, with the same bytes, and repeats no finished fit; `flows.verify` names corrupt files, and its
commands bring it back.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from flows.server import answers
from tests.faults.small_project import SmallProject, kill_fault
from tests.project_copy import clean_environment, flip_bit
from tests.system.browser import wait_until
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


def test_a_full_disk_is_named_and_the_same_command_goes_on_with_room(ready_project, finished):
    trial = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", str(ready_project.folder)]
    if not shutil.which("unshare") or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.fail("a small disk needs `unshare`, and that this user may mount a tmpfs with it (user namespaces)")
    printed = ready_project.run("flows.refresh", wrapper=(*OWN_MOUNTS, "sh", "-c", TWICE, "sh"))
    (ready_project.folder / "data").rmdir()
    (ready_project.folder / "data.kept").rename(ready_project.folder / "data")
    full, _ = printed.split(f"{ROOM_MADE}\n")

    assert "ended with" in full, full
    assert "the disk is full" in full
    assert "Traceback" not in full
    assert ready_project.result_digests() == finished.result_digests()


@pytest.mark.parametrize("lines", [0, 40])
def test_what_a_kill_leaves_of_dvc_s_own_files_costs_no_fit(finished_project, finished, lines):
    kept = finished_project.cached_fits()
    lock_file = finished_project.folder / "dvc.lock"
    lock_file.write_text("\n".join(lock_file.read_text().split("\n")[:lines]))
    (finished_project.folder / ".dvc/tmp/rwlock").write_text('{"data/raw')
    for remembered in (finished_project.folder / ".dvc/cache/runs").glob("*/*/*"):
        remembered.unlink()  # its folder stays, as after a kill before the file is moved into it
    printed = finished_project.run("flows.refresh")

    assert "Traceback" not in printed
    assert finished_project.result_digests() == finished.result_digests()
    assert finished_project.cached_fits() == kept


def test_of_two_runs_at_once_the_second_says_who_runs_and_waits(ready_project, finished, tmp_path):
    go_on = tmp_path / "go on"
    first = ready_project.start_paused("flows.refresh", at="data/base/wands/logits.parquet", until=go_on)
    second = ready_project.start("flows.refresh")
    wait_until(lambda: f"process {first.process.pid} has been running it" in second.output())
    go_on.touch()
    first.wait()

    assert "Running stage" not in second.wait()
    assert ready_project.result_digests() == finished.result_digests()


def test_all_that_a_killed_run_has_started_ends_within_seconds(ready_project, finished, tmp_path):
    first = ready_project.start_paused("flows.refresh", at="data/base/wands/logits.parquet", until=tmp_path / "never")
    (stage,) = [process for process in first.find_processes() if {"tasks.train", "wands"} <= set(process.cmdline())]
    first.kill_command()
    wait_until(lambda: not first.find_processes(), timeout=15)

    assert not stage.is_running()
    assert "Traceback" not in ready_project.run("flows.refresh")
    assert ready_project.result_digests() == finished.result_digests()


def test_a_server_that_dies_is_named_and_the_same_command_goes_on_without_it(finished_project, finished):
    for made in ("data/runs/wands", ".prefect/storage"):
        shutil.rmtree(finished_project.folder / made)
    url = f"http://127.0.0.1:{(port := free_port())}/api"
    server = finished_project.start("prefect", "server", "start", "--port", str(port))
    wait_until(lambda: answers(url))
    reaching = {"PREFECT_API_URL": url, "PREFECT_CLIENT_MAX_RETRIES": "1"}
    command = ("flows.reliability", "wands")
    fault = kill_fault("write", ".prefect/storage/vector-*", "server")
    printed = finished_project.run(*command, faults=(fault,), status=1, server=server, **reaching)
    assert f"the Prefect server at {url} " in printed
    assert "Traceback" not in printed
    kept = finished_project.cached_fits()
    assert kept
    printed = finished_project.run(*command, **reaching)

    assert f"no Prefect API answers at {url}" in printed
    assert finished_project.result_digests() == finished.result_digests()
    assert finished_project.cached_fits().items() >= kept.items()


# Each run of a chain is cut at a later fault of its data set than the one before. `replace` cuts a file that is whole
# but not in its place yet, `write` one that is half written.
MACHINE = {
    "wands": (
        kill_fault("write", "data/raw/.wands.*.partial/.source.json.*"),
        kill_fault("write", "dvc.lock"),
        kill_fault("write", ".dvc/tmp/rwlock", nth=5),
        kill_fault("replace", "data/base/wands/logits.parquet"),
        kill_fault("replace", ".dvc/cache/files/*", nth=3),
        kill_fault("write", ".prefect/storage/ts-*", nth=2),
        kill_fault("replace", "data/runs/wands/metrics.parquet"),
        kill_fault("replace", "data/report/main.csv"),
    ),
    "mine": (
        kill_fault("replace", "data/raw/mine"),  # what was there is gone, and what takes its place not yet there
        kill_fault("write", "data/base/mine/.predictor.npz.*"),
        kill_fault("replace", "data/manifests/mine/train.json"),
        kill_fault("write", ".prefect/storage/vector-*"),
        kill_fault("write", ".dvc/cache/runs/*"),
        kill_fault("write", "data/runs/mine/.run.json.*"),
    ),
}
MOMENTS = {  # of a data set, in one run after the other
    "raw/{}": "replace",
    "base/{}/pairs.parquet": "replace",
    "runs/{}/.curves.json.*": "write",
    "report/main.csv": "replace",
}


def kill_and_finish(project, finished, faults, status):
    """A run for each fault, then one to the end: it makes no fit again that was kept, and the undisturbed results."""
    kept = {}
    for fault in faults:
        printed = project.run("flows.refresh", faults=(fault,), status=status)
        assert "Traceback" not in printed or status < 0
        assert "refresh: the refresh failed" in printed or status < 0
        assert project.cached_fits().items() >= kept.items()
        kept = project.cached_fits()
    project.run("flows.refresh")
    assert project.result_digests() == finished.result_digests()
    assert project.cached_fits().items() >= kept.items()
    assert "RUNNING" not in project.flow_states()


@pytest.mark.parametrize("dataset", MACHINE)
def test_a_machine_that_dies_again_and_again_loses_nothing(ready_project, finished, dataset):
    kill_and_finish(ready_project, finished, MACHINE[dataset], -signal.SIGKILL)
    assert "CRASHED" in ready_project.flow_states()


@pytest.mark.parametrize(("whom", "dataset"), [("stage", "wands"), ("dvc", "mine")])
def test_a_killed_stage_or_dvc_is_told_and_the_same_command_finishes(ready_project, finished, whom, dataset):
    faults = [kill_fault(call, f"data/{path.format(dataset)}", whom) for path, call in MOMENTS.items()]
    kill_and_finish(ready_project, finished, faults, 1)


TWIN = "wands"
KINDS = {  # folder under data/ -> files in it
    "raw": f"{TWIN}/data/test-00000-of-00001.parquet {TWIN}/source.json mine/mine.csv",
    f"base/{TWIN}": "logits.parquet pairs.parquet base.json predictor.npz predictor.json",
    f"runs/{TWIN}": "metrics.parquet scores.parquet simplex.parquet curves.json gates.json run.json",
    "report": "main.csv verdict.md ablation.tex metrics.json",
    "manifests": f"{TWIN}/train.json report.json",
}


def everything(project: SmallProject) -> dict[Path, bytes]:
    made = {kind.partition("/")[0] for kind in KINDS}
    folders = [*(project.folder / "data" / name for name in made), project.folder / ".dvc/cache/files"]
    return {file: file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file()}


def check_named_and_brought_back(project: SmallProject, flipped: list[Path], word: str) -> None:
    """Flip a bit in each of some files: verify names them and nothing else, and tells how to get their bytes back."""
    before = everything(project)
    for file in flipped:
        flip_bit(file, keep_times=word == "corrupt")
    printed = project.run("flows.verify", status=1)
    assert "Traceback" not in printed
    problems, advice = printed.split("to restore it, run in this order:\n")
    for file in before:
        name = file.relative_to(project.folder).as_posix()
        assert (name in problems) == (file in flipped), f"{name}\n{printed}"
    assert word in problems
    for command in (line for line in advice.splitlines() if line.startswith("  ")):
        here = {"cwd": project.folder, "env": clean_environment(project.folder)}
        done = subprocess.run(["sh", "-c", f"{command} 2>&1"], **here, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
    project.run("flows.verify")
    assert everything(project) == before


BOTH = [(kind, word) for kind in KINDS if kind != "manifests" for word in ("corrupt", "edited")]


@pytest.mark.parametrize(("kind", "word"), [*BOTH, ("manifests", "damaged")])
def test_a_flipped_bit_is_named_and_its_byte_comes_back(finished_project, kind, word):
    files = [finished_project.folder / "data" / kind / name for name in KINDS[kind].split()]
    check_named_and_brought_back(finished_project, files, word)


def test_a_flipped_bit_in_the_cache_is_named_and_its_byte_comes_back(finished_project):
    objects = sorted((finished_project.folder / ".dvc/cache/files/md5").glob("??/*"))
    lists = [file for file in objects if file.suffix == ".dir"]
    files = [file for file in objects if file.suffix != ".dir"]
    check_named_and_brought_back(finished_project, [lists[0], files[0], files[-1]], "corrupt")
