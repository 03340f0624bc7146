"""Faults during a refresh: kills, a full disk, incomplete files of DVC, concurrent runs, no server, corrupt files.

The same command then finishes with the same bytes and repeats no finished fit. `flows.verify` reports corrupt files,
and its commands restore them.
"""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from flows.server import is_api_available
from tasks.provenance.lock import is_lock_held
from tests.faults.small_project import COMMAND_TIMEOUT, kill_fault
from tests.project_copy import clean_environment, flip_bit
from tests.system.browser import wait_until
from tests.system.served import free_port

pytestmark = pytest.mark.faults

SPACE_ADDED = "--- space added ---"
OWN_MOUNTS = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
RUN_BEFORE_AND_AFTER = f"""
set -e
mkdir -p data
mount -t tmpfs -o size=1900k none data
"$@" || echo "ended with $?"
echo '{SPACE_ADDED}'
mount -o remount,size=100m data
"$@"
cp -a data data.kept
"""  # data/ has enough space until results are written; the tmpfs ends with the command


def test_a_full_disk_is_reported_and_the_command_continues_with_space(project, finished):
    mount_command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", str(project.folder)]
    if not shutil.which("unshare") or subprocess.run(mount_command, capture_output=True, check=False).returncode:
        pytest.fail("a small disk needs `unshare`, and that this user may mount a tmpfs with it (user namespaces)")
    printed = project.run("flows.refresh", wrapper=(*OWN_MOUNTS, "sh", "-c", RUN_BEFORE_AND_AFTER, "sh"))
    (project.folder / "data").rmdir()
    (project.folder / "data.kept").rename(project.folder / "data")
    full, _ = printed.split(f"{SPACE_ADDED}\n")
    assert "ended with" in full, full
    assert "disk is full" in full
    assert "Traceback" not in full
    assert project.result_digests() == finished.result_digests()


@pytest.mark.parametrize("lines", [0, 40])
def test_incomplete_files_of_dvc_cause_no_refit(finished_project, finished, lines):
    fits = finished_project.stored_fits()
    lock_file = finished_project.folder / "dvc.lock"
    lock_file.write_text("\n".join(lock_file.read_text().split("\n")[:lines]))
    (finished_project.folder / ".dvc/tmp/rwlock").write_text('{"data/raw')
    for remembered in (finished_project.folder / ".dvc/cache/runs").glob("*/*/*"):
        remembered.unlink()  # its folder stays, as after a kill before the file is moved into it
    printed = finished_project.run("flows.refresh")
    assert "Traceback" not in printed
    assert finished_project.result_digests() == finished.result_digests()
    assert finished_project.stored_fits() == fits


def test_a_second_run_reports_the_first_and_waits(project, finished, tmp_path):
    release = tmp_path / "go on"
    first = project.start_paused("flows.refresh", at="data/base/wands/logits.parquet", until=release)
    second = project.start("flows.refresh")
    wait_until(lambda: f"waiting: process {first.process.pid} " in second.output())
    release.touch()
    first.wait()
    assert "Running stage" not in second.wait()
    assert project.result_digests() == finished.result_digests()


def test_after_a_killed_run_the_next_one_waits_for_its_stage(project, finished, tmp_path):
    release = tmp_path / "go on"
    first = project.start_paused("flows.refresh", at="data/base/wands/logits.parquet", until=release)
    first.kill_command()
    second = project.start("flows.refresh")
    wait_until(lambda: f"waiting: process {first.process.pid} " in second.output())
    assert "Running stage" not in second.output()
    release.touch()
    assert "Traceback" not in second.wait()
    wait_until(lambda: not first.find_processes(), timeout=15)
    assert project.result_digests() == finished.result_digests()
    assert "RUNNING" not in project.flow_states()


@pytest.mark.parametrize("n_lines", [1, 8])
def test_a_run_ends_if_the_reader_of_its_output_has_ended(project, finished, n_lines):
    """As in `python -m flows.refresh | head -1`."""
    command = [sys.executable, "-u", "-m", "flows.refresh"]
    options = {"cwd": project.folder, "env": clean_environment()}
    with subprocess.Popen(command, **options, stdout=subprocess.PIPE, start_new_session=True) as process:
        for _ in range(n_lines):
            assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(COMMAND_TIMEOUT) == 1
    assert not is_lock_held(project.folder / "data/.state/locks/refresh.lock")
    assert "RUNNING" not in project.flow_states()
    assert "Traceback" not in project.run("flows.refresh")
    assert project.result_digests() == finished.result_digests()


def test_a_killed_server_is_reported_and_the_command_continues_without_it(finished_project, finished):
    for folder in ("data/runs/wands", ".prefect/storage"):
        shutil.rmtree(finished_project.folder / folder)
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    server = finished_project.start("prefect", "server", "start", "--port", str(port))
    wait_until(lambda: is_api_available(url))
    variables = {"PREFECT_API_URL": url, "PREFECT_CLIENT_MAX_RETRIES": "1"}
    command = ("flows.reliability", "wands")
    fault = kill_fault("write", ".prefect/storage/vector-*", "server")
    printed = finished_project.run(*command, faults=(fault,), status=1, server_of=server, **variables)
    assert f"server at {url} " in printed
    assert "Traceback" not in printed

    fits = finished_project.stored_fits()
    assert fits

    printed = finished_project.run(*command, **variables)
    assert f"answers at {url}:" in printed
    assert finished_project.result_digests() == finished.result_digests()
    assert finished_project.stored_fits().items() >= fits.items()


# Each run is killed at a later point of the data set than the run before: `replace` when a file is complete but not yet
# in place, `write` when a file is partly written.
KILLS_OF_ALL_PROCESSES = {
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
        kill_fault("replace", "data/raw/mine"),  # the old folder is gone, the new one not yet in place
        kill_fault("write", "data/base/mine/.predictor.npz.*"),
        kill_fault("write", ".prefect/storage/vector-*"),  # before the metrics, with which all fits may be stored
        kill_fault("replace", "data/metrics/mine.json"),
        kill_fault("write", ".dvc/cache/runs/*"),
        kill_fault("write", "data/runs/mine/.run.json.*"),
    ),
}
KILL_POINTS = {  # path of a data set -> call; one run each
    "raw/{}": "replace",
    "base/{}/pairs.parquet": "replace",
    "runs/{}/.curves.json.*": "write",
    "report/main.csv": "replace",
}


def kill_and_finish(project, finished, faults, status):
    """Run once with each fault, then to the end; check that no stored fit is repeated, and the results."""
    fits = {}
    for fault in faults:
        printed = project.run("flows.refresh", faults=(fault,), status=status)
        assert "Traceback" not in printed or status < 0
        assert "refresh failed" in printed or status < 0
        assert project.stored_fits().items() >= fits.items()
        fits = project.stored_fits()
    project.run("flows.refresh")
    assert project.result_digests() == finished.result_digests()
    assert project.stored_fits().items() >= fits.items()
    assert "RUNNING" not in project.flow_states()


@pytest.mark.parametrize("dataset", KILLS_OF_ALL_PROCESSES)
def test_repeated_kills_lose_no_results(project, finished, dataset):
    kill_and_finish(project, finished, KILLS_OF_ALL_PROCESSES[dataset], -signal.SIGKILL)
    assert "CRASHED" in project.flow_states()


@pytest.mark.parametrize(("whom", "dataset"), [("stage", "wands"), ("dvc", "mine")])
def test_a_killed_stage_or_dvc_is_reported_and_the_command_finishes(project, finished, whom, dataset):
    faults = [kill_fault(call, f"data/{path.format(dataset)}", whom) for path, call in KILL_POINTS.items()]
    kill_and_finish(project, finished, faults, 1)


FLIPPED = {  # output of a stage -> a file in it
    "data/raw/mine": "data/raw/mine/mine.csv",
    "data/base/wands": "data/base/wands/predictor.npz",
    "data/runs/wands": "data/runs/wands/metrics.parquet",
    "data/metrics/mine.json": "data/metrics/mine.json",
    "data/report": "data/report/main.csv",
}


def test_flipped_bits_are_reported_and_removed_files_restored(finished_project, finished):
    # an output whose own object is corrupt is "not in cache", so objects of other outputs are taken
    lock = (finished_project.folder / "dvc.lock").read_text()
    flipped = {re.search(rf"path: {output}\n.*\n *md5: ..(\S+)", lock)[1] for output in FLIPPED}
    cache = sorted((finished_project.folder / ".dvc/cache/files/md5").glob("??/*"))
    others = [path for path in cache if path.name not in flipped]
    object_file = next(path for path in others if path.suffix == "")
    listing = next(path for path in others if path.suffix == ".dir")
    in_cache = [object_file, listing]
    for file in [*(finished_project.folder / name for name in FLIPPED.values()), *in_cache]:
        flip_bit(file, keep_times=True)
    printed = finished_project.run("flows.verify", status=1)
    for output in FLIPPED:
        assert f"{output} is modified\n" in printed
    assert printed.count("is modified") == len(FLIPPED)
    for path in in_cache:
        assert re.search(rf"^{re.escape(str(path))} \(DVC's cache\) .*corrupt$", printed, re.MULTILINE)
    assert printed.count("is corrupt") == len(in_cache)

    for path in [*(finished_project.folder / name for name in FLIPPED), *in_cache]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    finished_project.run("flows.refresh")
    finished_project.run("flows.verify")
    assert finished_project.result_digests() == finished.result_digests()
