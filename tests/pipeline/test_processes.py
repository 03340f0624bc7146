"""Processes of DVC end with their children, and incomplete files of killed ones are renamed."""

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
import yaml
from dvc.repo import Repo
from flows.processes import BUSY_FILE, LOCK_FILE, end_groups, quarantine_corrupt_dvc_files, wait_for_all

from flows import processes

refresh = import_module("flows.refresh")  # the module, not the flow of the same name

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = {"path": "data/raw/wands", "hash": "md5", "md5": f"{'0123456789abcdef' * 2}.dir", "size": 12, "nfiles": 2}
STAGE = {"cmd": "python -m tasks.train wands", "deps": [OUTPUT], "outs": [OUTPUT | {"path": "data/base/wands"}]}
ENTRY = SimpleNamespace(rows=1000, predictor="linear")
LOCK = yaml.safe_dump({"schema": "2.0", "stages": {"train@wands": STAGE}}, sort_keys=False)


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "MAX_WRITE_SECONDS", 0.01)
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.4)
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
    if script == GROUPS["a dead leader"]:
        process.wait()
    assert members(process)
    end_groups([process])
    assert members(process) == []
    process.communicate()


@linux_only
def test_a_process_can_clean_up_after_sigterm():
    process = start_group("trap 'echo tidied; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
    end_groups([process])
    assert process.communicate()[0] == b"tidied\n"


@linux_only
def test_all_groups_are_ended_if_waiting_is_interrupted(monkeypatch):
    def raise_interrupt() -> None:
        raise KeyboardInterrupt  # a signal would be ignored if a shell has started the tests in the background

    started = [start_group(GROUPS["a child"]), start_group(GROUPS["a grandchild"])]
    running = [*started]
    with monkeypatch.context() as patch:
        patch.setattr(started[0], "wait", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            wait_for_all(running)
    assert [members(process) for process in started] == [[], []]
    assert running == []  # the numbers of ended processes may be used again
    for process in started:
        process.communicate()


@pytest.mark.parametrize(("statuses", "first"), [((), 0), ((0, 0), 0), ((0, 3, 4), 3)])
def test_the_status_is_the_first_nonzero_one_after_all_have_ended(statuses, first):
    started = [subprocess.Popen(["/bin/sh", "-c", f"exit {status}"], start_new_session=True) for status in statuses]
    assert wait_for_all([*started]) == first
    assert [process.returncode for process in started] == list(statuses)


@linux_only
def test_only_processes_of_a_killed_refresh_are_ended(monkeypatch):
    monkeypatch.setenv(processes.OWNER_VARIABLE, str(Path.cwd()))
    with_leader = start_group(GROUPS["a child"])
    without_leader = start_group(GROUPS["a dead leader"])
    without_leader.wait()
    monkeypatch.setenv(processes.OWNER_VARIABLE, "/elsewhere")
    other = start_group(GROUPS["a child"])
    processes.end_orphans()
    assert members(with_leader) == members(without_leader) == []
    assert len(members(other)) == 2
    end_groups([other])
    for process in (with_leader, without_leader, other):
        process.communicate()


ORPHAN = """
import subprocess, sys, time
from threading import Thread
from flows import processes
subprocess.Popen(['sleep', '600'])
Thread(target=processes.end_with_parent, daemon=True).start()
print('started', flush=True)
time.sleep(600)
"""


@linux_only
def test_dvc_and_its_stages_end_when_the_refresh_is_killed(monkeypatch):
    monkeypatch.setattr(processes, "DVC_COMMAND", (sys.executable, "-c", ORPHAN))
    with monkeypatch.context() as patched:
        patched.chdir(ROOT)  # the folder of `flows`
        process = processes.start_repro([], {}, captured=True)
    assert process.stdout.readline() == b"started\n"
    assert len(members(process)) == 2
    process.stdin.close()  # as when this process ends
    process.wait(30)
    assert members(process) == []
    process.stdout.close()


@linux_only
def test_ended_processes_of_an_earlier_refresh_are_reported(monkeypatch, capsys):
    monkeypatch.setenv(processes.OWNER_VARIABLE, str(Path.cwd()))
    left = start_group("echo ready; sleep 600")
    processes.end_orphans()
    left.communicate()
    message = f"ending processes that an earlier, killed refresh left running: {left.pid}"
    assert message in capsys.readouterr().out
    processes.end_orphans()
    assert capsys.readouterr().out == ""


@linux_only
def test_group_of_an_orphan_ends_while_a_member_has_no_environment_yet(monkeypatch):
    monkeypatch.setenv(processes.OWNER_VARIABLE, str(Path.cwd()))
    left = start_group("sleep 600 & echo ready; wait")
    environment_of = psutil.Process.environ
    monkeypatch.setattr(
        psutil.Process, "environ", lambda process: environment_of(process) if process.pid == left.pid else {}
    )
    processes.end_orphans()
    assert members(left) == []
    left.communicate()


APPEND_TARGETS = """
import os, sys
output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    target = os.read(int(sys.argv[-2]), 256)
    if not target:
        break
    os.write(output, target + b"\\n")
"""


@pytest.mark.parametrize("lanes", [1, 2, 9])
def test_each_target_is_read_by_exactly_one_lane(monkeypatch, lanes):
    monkeypatch.setattr(processes, "DVC_COMMAND", (sys.executable, "-c", APPEND_TARGETS))
    names = [f"set_{number}" for number in range(300)]
    params = SimpleNamespace(lanes=lanes, datasets=dict.fromkeys(names, ENTRY))
    run = []

    processes.start_run(run, [], True, params, {})
    n_started = len(run)
    status = wait_for_all(run)

    assert n_started == lanes
    assert status == 0
    assert sorted(Path("output").read_text().split()) == sorted(f"reliability@{name}" for name in names)


def test_a_lane_runs_dvc_for_each_target_and_returns_the_failure(monkeypatch):
    ran = []

    def run_dvc(arguments: list[str]) -> int:
        ran.append(arguments)
        return 255 if "b" in arguments else 0

    monkeypatch.setattr(processes, "run_dvc", run_dvc)
    read_end, write_end = os.pipe()
    for target in (b"a", b"b", b"c"):
        os.write(write_end, target.ljust(processes.TARGET_BYTES))
    os.close(write_end)
    assert processes.main(["repro", "--force", processes.LANE_OPTION, str(read_end)]) == 255
    assert ran == [["repro", "--force", target] for target in "abc"]
    os.close(read_end)


def test_complete_and_missing_files_are_left_unchanged(capsys):
    quarantine_corrupt_dvc_files()
    complete = {LOCK_FILE: LOCK, BUSY_FILE: '{"data/raw/wands": {"read": []}}'}
    for path, content in complete.items():
        path.write_text(content)
    quarantine_corrupt_dvc_files()
    assert {path: path.read_text() for path in complete} == complete
    assert capsys.readouterr().out == ""


INCOMPLETE_LOCK = LOCK[: LOCK.index("cmd") + 3].encode()
INCOMPLETE = {
    LOCK_FILE: (
        b"",
        LOCK[:-80].encode() + b"\n   -",
        INCOMPLETE_LOCK,
        b"\0" * 300,
        LOCK.encode().replace(b"train", b"tr\xe1in"),
    ),
    BUSY_FILE: (b"", b'{"data/raw/wands": {"re', b'{"d\xe1ta": {}}'),
}

INCOMPLETE_FILES = [(LOCK_FILE, content) for content in INCOMPLETE[LOCK_FILE]]
INCOMPLETE_FILES += [(BUSY_FILE, content) for content in INCOMPLETE[BUSY_FILE]]


@pytest.mark.parametrize(("path", "content"), INCOMPLETE_FILES)
def test_an_incomplete_file_is_renamed_and_reported(capsys, path, content):
    path.write_bytes(content)
    quarantine_corrupt_dvc_files()
    assert not path.exists()
    assert path.with_name(f"{path.name}.cut").read_bytes() == content
    assert f"{path} was incomplete" in capsys.readouterr().out


@pytest.mark.parametrize("meanwhile", [lambda: LOCK_FILE.write_text(LOCK), LOCK_FILE.unlink], ids=["ends", "vanishes"])
def test_a_file_that_is_being_written_is_not_renamed(monkeypatch, meanwhile):
    LOCK_FILE.write_bytes(INCOMPLETE_LOCK)
    monkeypatch.setattr(time, "sleep", lambda _seconds: meanwhile())
    quarantine_corrupt_dvc_files()
    assert not list(Path().glob("*.cut"))


def test_outdated_stages_are_those_of_dvc_status(monkeypatch):
    BUSY_FILE.write_bytes(b"{")  # left by a killed process of DVC; other commands would fail
    dvc_status = Mock(return_value=Mock(returncode=0, stdout='{"report": [{}], "train@wands": []}'))
    monkeypatch.setattr(subprocess, "run", dvc_status)
    assert processes.outdated_stages() == {"report", "train@wands"}
    assert not BUSY_FILE.exists()
    assert "--wait-for-lock" in dvc_status.call_args.args[0]


def test_dvc_prints_running_and_failed_stages_without_hints():
    BUSY_FILE.parent.parent.rename("before")
    Repo.init(no_scm=True).close()
    stages = {
        "good": {"cmd": "echo printed; echo > output", "outs": ["output"]},
        "bad": {"cmd": "false", "deps": ["output"]},
    }
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    command = [sys.executable, "-m", "flows.processes", "repro", "--keep-going"]
    captured = {"env": os.environ | {"PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    first = subprocess.run(command, **captured, check=False)
    second = subprocess.run(command, **captured, check=False)
    assert first.returncode == second.returncode == 255
    lines_of_good_stage = ["Running stage 'good':", "> echo printed; echo > output", "printed"]
    assert re.findall(r"\S.*", first.stdout) == [*lines_of_good_stage, "Running stage 'bad':", "> false"]
    assert "failed to reproduce 'bad'" in first.stderr
    assert re.findall(r"\S.*", second.stdout) == ["Running stage 'bad':", "> false"]
