"""DVC's processes end with their children, their output is understood, and their incomplete files are repaired."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from flows import dvc_process
from flows.dvc_process import BUSY_FILE, LOCK_COPY, LOCK_FILE, end_groups, find_failure, find_outcomes
from tasks.provenance.lock import LOCKS, hold_lock, is_lock_held
from tests.project_copy import clean_environment

OUTPUT = {"path": "data/raw/wands", "hash": "md5", "md5": f"{'0123456789abcdef' * 2}.dir", "size": 12, "nfiles": 2}
STAGE = {"cmd": "python -m tasks.train wands", "deps": [OUTPUT], "outs": [OUTPUT | {"path": "data/base/wands"}]}
LOCK = yaml.safe_dump({"schema": "2.0", "stages": {"train@wands": STAGE}}, sort_keys=False)


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dvc_process, "MAX_WRITE_SECONDS", 0.01)
    monkeypatch.setattr(dvc_process, "SECONDS_BEFORE_KILL", 0.4)
    BUSY_FILE.parent.mkdir(parents=True)


def start_group(script: str) -> subprocess.Popen[bytes]:
    """Start a shell in a process group of its own, and wait until it prints `ready`."""
    process = subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def members(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the living processes of a group, without zombies."""
    living = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            living += [int(stat.parent.name)] if int(its_group) == process.pid and state != "Z" else []
    return living


def wait_until_gone(process: subprocess.Popen[bytes]) -> None:
    """Wait until a killed group has no member; the system needs a moment."""
    deadline = time.monotonic() + 10
    while members(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert members(process) == []


GROUPS = {
    "a child": "sleep 600 & echo ready; wait",
    "a grandchild": "(sleep 600 & sleep 600) & echo ready; wait",
    "a dead leader": "sleep 600 & echo ready",
    "a child that ignores SIGTERM": "(trap '' TERM; echo ready; while :; do sleep 600; done) & wait",
}
linux_only = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@linux_only
@pytest.mark.parametrize("script", GROUPS.values(), ids=GROUPS)
def test_all_processes_of_an_ended_group_are_gone(script):
    process = start_group(script)
    assert members(process)
    end_groups([process])
    wait_until_gone(process)
    process.communicate()


@linux_only
def test_a_process_can_clean_up_after_sigterm():
    process = start_group("trap 'echo tidied; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
    end_groups([process])
    assert process.communicate()[0] == b"tidied\n"


START_AND_HANG = """
import subprocess, sys, time
from flows import dvc_process
from tasks.provenance.lock import hold_lock
dvc_process.sys.executable = sys.argv[1]
with hold_lock("refresh") as lock:
    print(dvc_process.start_repro([], {}, lock).pid, flush=True)
    time.sleep(600)
"""


def test_the_lock_of_a_killed_refresh_is_held_until_its_dvc_has_ended(tmp_path):
    dvc = tmp_path / "dvc"
    dvc.write_text("#!/bin/sh\nexec sleep 600\n")
    dvc.chmod(0o755)
    command = [sys.executable, "-c", START_AND_HANG, str(dvc)]
    environment = clean_environment() | {"PYTHONPATH": str(Path(dvc_process.__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as refresh:
        pid = int(refresh.stdout.readline())
        refresh.kill()
        refresh.wait()
        assert is_lock_held(LOCKS / "refresh.lock")
        os.kill(pid, signal.SIGKILL)
    reports = []
    with hold_lock("refresh", report=reports.append):
        assert all(f"waiting: process {refresh.pid} " in line for line in reports)


PRINTED = """Stage 'download@wands' didn't change, skipping
Stage 'train@wands' is cached - skipping run, checking out outputs
Running stage 'reliability@wands':
> python -m flows.reliability wands
reliability: gate `x` is closed
  row 1
ERROR: failed to reproduce 'reliability@wands': failed to run: python -m flows.reliability wands, exited with 1
"""


def test_outcomes_and_the_reason_of_a_failure_are_read_from_the_output():
    lines = PRINTED.splitlines()
    assert find_outcomes(lines) == {
        "download@wands": "up to date",
        "train@wands": "restored",
        "reliability@wands": "ran",
    }
    assert find_failure(lines) == ("reliability@wands", "gate `x` is closed\n  row 1")


DVC_FAILED = "failed to reproduce 'report': exited with -9"


@pytest.mark.parametrize(
    ("lines", "stage", "reason"),
    [
        (["ERROR: '/data' is busy"], None, "'/data' is busy"),
        (["Running stage 'report':", "ERROR: No space left on device"], "report", "No space left on device"),
        (["Running stage 'report':", "report: a", "again", "report: b"], "report", "b"),
        (["Running stage 'report':", "> report"], "report", "its process ended"),
        (
            ["Running stage 'report':", f"ERROR: {DVC_FAILED}"],
            "report",
            rf"its process ended .*\({DVC_FAILED}\)",
        ),
    ],
)
def test_a_failure_without_a_message_of_the_stage_has_the_error_of_dvc(lines, stage, reason):
    found, text = find_failure(lines)
    assert found == stage
    assert re.match(reason, text)


@pytest.fixture
def project():
    """A project of DVC with two stages, of which one fails."""
    stages = {
        "good": {"cmd": "echo printed; cat in > out", "deps": ["in"], "outs": ["out"], "params": ["size"]},
        "bad": {"cmd": "echo 'bad: no luck'; exit 3", "deps": ["out"]},
    }
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    Path("params.yaml").write_text("size: 1\n")
    Path("in").write_text("1")
    dvc_process.query("init", "-q", "--no-scm", "-f")
    dvc_process.query("config", "core.site_cache_dir", str(Path(".dvc/tmp/site").absolute()))


@pytest.mark.usefixtures("project")
def test_the_installed_dvc_prints_what_is_understood():
    reasons = dvc_process.read_status()
    assert reasons.keys() == {"good", "bad"}
    assert reasons["good"].endswith(" dvc.lock")
    assert reasons["bad"] == "out deleted"
    for outcome in ("ran", "up to date"):
        with hold_lock("refresh") as lock:
            process = dvc_process.start_repro([], {}, lock)
            lines = process.communicate()[0].decode().splitlines()
        assert process.returncode == 255
        assert find_outcomes(lines) == {"good": outcome, "bad": "ran"}
        assert find_failure(lines) == ("bad", "no luck")
    shown = [line for line in lines if line and not dvc_process.HINTS.match(line)]
    assert shown[:3] == ["Running stage 'bad':", "> echo 'bad: no luck'; exit 3", "bad: no luck"]
    Path("in").write_text("2")
    Path("params.yaml").write_text("size: 2\n")
    assert dvc_process.read_status()["good"].split(", ") == ["in modified", "size modified"]
    Path("out").unlink()
    Path("in").write_text("1")
    Path("params.yaml").write_text("size: 1\n")
    with hold_lock("refresh") as lock:
        output, _ = dvc_process.start_repro(["good"], {}, lock).communicate()
    assert find_outcomes(output.decode().splitlines()) == {"good": "restored"}


def test_many_changes_are_counted():
    changes = [{"changed deps": dict.fromkeys("abcdefgh", "modified")}, "changed command"]
    assert dvc_process.describe_changes(changes).split(", ")[-2:] == ["e modified", "and 4 more"]


def test_complete_and_missing_files_are_left_unchanged(capsys):
    dvc_process.repair_files()
    complete = {LOCK_FILE: LOCK, BUSY_FILE: '{"data/raw/wands": {"read": []}}'}
    for path, content in complete.items():
        path.write_text(content)
    dvc_process.repair_files()
    assert {path: path.read_text() for path in complete} == complete
    assert capsys.readouterr().out == ""


INCOMPLETE_LOCK = LOCK[: LOCK.index("cmd") + 3].encode()
INCOMPLETE_FILES = [
    (LOCK_FILE, b""),
    (LOCK_FILE, LOCK[:-80].encode() + b"\n   -"),
    (LOCK_FILE, INCOMPLETE_LOCK),
    (LOCK_FILE, b"\0" * 300),
    (LOCK_FILE, LOCK.encode().replace(b"train", b"tr\xe1in")),
    (BUSY_FILE, b""),
    (BUSY_FILE, b'{"data/raw/wands": {"re'),
    (BUSY_FILE, b'{"d\xe1ta": {}}'),
]


@pytest.mark.parametrize("has_copy", [True, False])
@pytest.mark.parametrize(("path", "content"), INCOMPLETE_FILES)
def test_an_incomplete_file_is_removed_or_restored_from_the_copy(capsys, path, content, has_copy):
    if has_copy:
        LOCK_FILE.write_text(LOCK)
        dvc_process.keep_lock_copy()
        assert LOCK_COPY.read_text() == LOCK
    path.write_bytes(content)
    dvc_process.keep_lock_copy()  # an incomplete file does not replace the copy
    dvc_process.repair_files()
    assert LOCK_FILE.exists() == has_copy
    assert not has_copy or LOCK_FILE.read_text() == LOCK
    assert not BUSY_FILE.exists()
    assert f"{path} was incomplete" in capsys.readouterr().out


@pytest.mark.parametrize("meanwhile", [lambda: LOCK_FILE.write_text(LOCK), LOCK_FILE.unlink], ids=["ends", "vanishes"])
def test_a_file_that_is_being_written_is_not_removed(monkeypatch, meanwhile, capsys):
    LOCK_FILE.write_bytes(INCOMPLETE_LOCK)
    monkeypatch.setattr(time, "sleep", lambda _seconds: meanwhile())
    dvc_process.repair_files()
    assert capsys.readouterr().out == ""


def test_an_empty_folder_of_the_cache_of_runs_is_removed():
    for name in ("empty", "full"):
        (Path(".dvc/cache/runs/ab") / name).mkdir(parents=True)
    Path(".dvc/cache/runs/ab/full/run").touch()
    dvc_process.repair_files()
    assert [path.name for path in Path(".dvc/cache/runs/ab").iterdir()] == ["full"]
