"""A stage that finds the warm parent runs in its child as it would in its own process, and without one it does that."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows import processes
from tasks.provenance import warm

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="where there is no pidfd, no parent is asked")

STAGE = """
from tasks.provenance.warm import hand_over

if __name__ == "__main__":
    hand_over()

import atexit, os, signal, sys, time

exec(sys.argv[1])
"""
WHERE = "print('forked' if 'tasks.provenance.warm' in sys.orig_argv else 'alone', flush=True)"
Start = Callable[..., subprocess.Popen[bytes]]


def eventually(holds: Callable[[], Any]) -> Any:
    """What `holds` returns once that is something."""
    until = time.monotonic() + 30
    while not (answer := holds()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return answer


@pytest.fixture
def start(tmp_path, monkeypatch) -> Iterator[Start]:
    """Starts a Python module in a folder with a stage; all of them are ended afterwards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stage.py").write_text(STAGE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    began = []

    def started(*command: str, **how: Any) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        how = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | how
        how["env"] = environment | how.get("env", {})
        began.append(subprocess.Popen([sys.executable, *how.pop("flags", ()), "-m", *command], **how))
        return began[-1]

    yield started
    for process in began:
        process.kill()
        with process:
            pass


def warmed(start: Start, library: str) -> subprocess.Popen[bytes]:
    """A parent that has imported `library`, for a first stage that ran alone."""
    process = start("tasks.provenance.warm", library)
    eventually(lambda: warm.FOLDER.exists() and list(warm.FOLDER.iterdir()))
    assert ran(start, WHERE)[1] == "alone\n"
    return process


@pytest.fixture
def parent(start) -> subprocess.Popen[bytes]:
    """A parent that waits."""
    return warmed(start, "json")


def ran(start: Start, code: str, **how: Any) -> tuple[int, str, str]:
    """The exit status of a stage that runs `code`, what it printed, and the last line of what it complained of."""
    process = start("stage", code, "more", **how)
    out, err = process.communicate(b"given")
    return process.returncode, out.decode(), err.decode().strip().rpartition("\n")[2]


SEEN = "print(sys.argv[2:], os.getcwd(), os.environ, sys.stdin.read(), oct(os.umask(0)), sys.path, __name__)"
CODES = [SEEN, "sys.exit(3)", "sys.exit('said')", "1 / 0", "atexit.register(print, 'at the end')"]
CODES += ["os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGTERM)", "import no_such_module"]


def test_a_child_sees_prints_and_ends_as_a_process_of_its_own(start, parent, monkeypatch):
    monkeypatch.setenv("DVC_STAGE", "train@wands")
    monkeypatch.delenv("TERM", raising=False)
    (forked,), here = warm.FOLDER.iterdir(), warm.FOLDER / "elsewhere"
    for code in CODES:
        status, printed, complaint = ran(start, f"{WHERE}; {code}")
        forked.rename(here)
        expected = ran(start, f"{WHERE}; {code}")
        here.rename(forked)
        assert (status, printed, complaint) == (expected[0], expected[1].replace("alone", "forked"), expected[2])
        assert printed.startswith("forked\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_stage_reaches_the_child_that_can_tidy_up(start, parent, number):
    process = start("stage", f"signal.signal({number.value}, lambda *_: sys.exit(7)); {WHERE}; time.sleep(60)")
    assert process.stdout.readline() == b"forked\n"
    process.send_signal(number)
    assert process.wait(20) == 7


@pytest.mark.parametrize("whom", ["stage", "child"])
def test_of_a_stage_and_its_child_neither_outlives_the_other(start, parent, whom):
    process = start("stage", f"{WHERE}; print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout.readline() == b"forked\n"
    child = psutil.Process(int(process.stdout.readline()))
    (process if whom == "stage" else child).kill()
    assert process.wait(20) == -signal.SIGKILL
    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_the_parent_ends_with_its_creator_and_without_it_a_stage_runs_alone(start, parent, how):
    parent.stdin.close() if how == "closed" else parent.kill()  # as the system does with what a killed creator held
    parent.wait(20)
    assert bool(list(warm.FOLDER.iterdir())) == (how == "killed")
    assert ran(start, WHERE)[1] == "alone\n"


OTHERS: dict[str, dict[str, Any]] = {
    "another environment": {"env": {"OMP_NUM_THREADS": "7"}},
    "another Python": {"flags": ["-O"]},
    "another folder": {"cwd": "elsewhere"},
    "another umask": {"umask": 0o117},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_in_other_surroundings_a_stage_runs_alone(start, tmp_path, monkeypatch, other):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/data").symlink_to("../data")
    warmed(start, "json")
    assert ran(start, WHERE)[1] == "forked\n"
    assert ran(start, WHERE, **other)[1] == "alone\n"


def test_changed_code_and_changed_libraries_are_other_surroundings(tmp_path, monkeypatch):
    before = warm.door()
    monkeypatch.setattr(warm, "__file__", str(tmp_path / "warm.py"))
    (tmp_path / "warm.py").write_bytes((ROOT / "tasks/provenance/warm.py").read_bytes())
    assert warm.door() == before
    (tmp_path / "warm.py").write_text("changed")
    assert warm.door() != before
    monkeypatch.undo()
    libraries = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(libraries)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    libraries.mkdir()
    before = warm.door()
    (libraries / "new-1.0.dist-info").mkdir()
    assert warm.door() != before


def test_a_parent_with_another_thread_forks_nobody(start, tmp_path):
    (tmp_path / "threads.py").write_text(
        "import threading, time; threading.Thread(target=time.sleep, args=[60]).start()"
    )
    warmed(start, "threads")
    assert ran(start, WHERE)[1] == "alone\n"


def test_nobody_else_may_open_the_socket_and_whoever_is_at_its_other_end_is_asked(start, parent, monkeypatch):
    (place,) = warm.FOLDER.iterdir()
    assert (warm.FOLDER.stat().st_mode & 0o777, place.stat().st_mode & 0o777) == (0o700, 0o600)
    for end in (both := socket.socketpair(socket.AF_UNIX)):
        assert warm.is_ours(end)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    for end in both:
        assert not warm.is_ours(end)
        end.close()


def test_what_is_no_request_harms_nobody(start, parent):
    (place,) = warm.FOLDER.iterdir()
    for sent in (b"", b"{", b"[1, 2]"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(place.relative_to(Path.cwd()) if place.is_absolute() else place))
            connection.send(sent)
    assert ran(start, WHERE)[1] == "forked\n"


def test_the_libraries_of_stages_start_no_thread_and_bring_nothing_of_the_project(start, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    parent = processes.start_warm()
    try:
        eventually(lambda: warm.FOLDER.exists() and list(warm.FOLDER.iterdir()))
        assert ran(start, "pass")[0] == 0
        code = "print(sorted(name for name in sys.modules if name.split('.')[0] in {'flows', 'tasks', 'polars'}))"
        own = ["tasks", "tasks.provenance", "tasks.provenance.warm"]
        assert ran(start, f"{WHERE}; {code}")[1] == f"forked\n{own}\n"
    finally:
        processes.end([parent])
        parent.stdin.close()
