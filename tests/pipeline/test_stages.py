"""Running a stage: lock, verified inputs, removed outputs and time limit."""

import errno
import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import psutil
import pytest

from relmap.errors import InputError
from relmap.io.atomic import write_atomically
from tasks.provenance import stage
from tasks.provenance.dvc_stages import read_dvc_stage
from tasks.provenance.lock import hold_lock, is_lock_held
from tasks.provenance.stage import _time_limit, run_command, run_dataset_stage, run_stage
from tasks.records.durations import KINDS, measure_block, measured, read_duration
from tasks.records.errors import RunFailed
from tasks.records.store import STATE
from tests.tiny_project import ROOT, complete_stage, create_project, edit_params, write_outputs

NAME = "train@wands"


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create_project(tmp_path)


def raise_error(error: BaseException) -> None:
    raise error


def test_the_duration_of_a_stage_that_ended_well_is_recorded_by_kind():
    with pytest.raises(RunFailed), run_stage(NAME):
        raise_error(RunFailed("no"))
    assert read_duration(NAME) is None

    @measured("train")
    def train() -> None:
        time.sleep(0.05)

    with run_stage(NAME):
        train()
        with measure_block("write"):
            write_outputs(NAME)
    duration = read_duration(NAME)
    assert duration is not None
    assert [*duration.kinds] == list(KINDS)
    assert duration.kinds["train"] >= 0.05
    assert duration.kinds["fit"] == 0
    assert duration.kinds["start"] + duration.kinds["train"] + duration.kinds["write"] <= duration.seconds


def write_outputs_and_call(action: Callable[[], object]) -> None:
    write_outputs(NAME)
    action()


def append(path: str) -> None:
    with Path(path).open("a") as handle:
        handle.write("more\n")


DEPENDENCIES = ("data/raw/wands/rows.csv", "data/raw/wands/more.csv", "tasks/train.py", "tasks/trained/model.py")
CHANGES = {
    **{path: partial(append, path) for path in DEPENDENCIES},
    "data/raw/wands/rows.csv, gone": Path("data/raw/wands/rows.csv").unlink,
    "train, a parameter": lambda: edit_params(lambda params: params["train"].update(seed=99)),
    "datasets.wands, a parameter": lambda: edit_params(lambda params: params["datasets"]["wands"].update(rows=999)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_dependency_fails_the_running_stage(change):
    """DVC would record the changed file with results of the old one."""
    with pytest.raises(InputError, match=f"^{change.partition(',')[0]}: .* changed while"), run_stage(NAME):
        write_outputs_and_call(CHANGES[change])


def test_unrelated_changes_do_not_fail_the_running_stage():
    with run_stage(NAME):
        append("data/raw/scidocs/rows.csv")
        append("tasks/report.py")
        edit_params(lambda params: params.update(lanes=7))
        edit_params(lambda params: params["datasets"]["scidocs"].update(rows=999))
        Path("tasks/trained/__pycache__").mkdir()
        Path("tasks/trained/__pycache__/model.pyc").touch()
        write_outputs(NAME)


def start_in_other_process(statement: str) -> subprocess.Popen[str]:
    """Start another process that runs the stage and then executes `statement`."""
    code = f"""
import sys, time
from tasks.provenance.stage import run_stage
from tests.tiny_project import write_outputs
with run_stage({NAME!r}):
    print('inside', flush=True)
    {statement}
"""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_second_process_names_the_lock_holder_and_waits():
    with run_stage(NAME):
        second = start_in_other_process(f"write_outputs({NAME!r}, 'the second')")
        assert re.search(rf"{NAME} is waiting: .* {os.getpid()} .* 20\d\d", second.stderr.readline())
        assert second.poll() is None
        write_outputs(NAME, "the first")
    output, further_errors = second.communicate(timeout=60)
    assert output == "inside\n"
    assert further_errors == ""
    assert second.returncode == 0
    assert "the second" in Path("data/base/wands/table.csv").read_text()


def test_a_killed_process_releases_its_lock_and_its_outputs_are_removed():
    first = start_in_other_process("time.sleep(600)")
    assert first.stdout.readline() == "inside\n"

    lock = STATE / "locks" / f"{NAME}.lock"
    assert is_lock_held(lock)

    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    assert lock.exists()
    assert not is_lock_held(lock)
    write_outputs(NAME, "by the killed process")
    with run_stage(NAME):
        assert not read_dvc_stage(NAME).outputs[0].exists()


def test_code_must_not_change_while_a_stage_waits_but_parameters_may(monkeypatch):
    """The modules were imported before the lock was held."""
    changes = [CHANGES["train, a parameter"], CHANGES["tasks/trained/model.py"]]

    def change_and_lock(name: str) -> AbstractContextManager[int]:
        change = changes.pop(0)
        change()
        return hold_lock(name)

    monkeypatch.setattr("tasks.provenance.stage.hold_lock", change_and_lock)
    complete_stage(NAME)
    with pytest.raises(InputError, match=r"tasks/trained/model\.py"), run_stage(NAME):
        write_outputs(NAME)


def test_a_lock_is_released_after_an_error():
    with pytest.raises(ZeroDivisionError), hold_lock("refresh"):
        raise_error(ZeroDivisionError())
    assert not is_lock_held(STATE / "locks/refresh.lock")


def test_stage_command_requires_a_data_set(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "wands"])
    with pytest.raises(SystemExit, match="0"):
        run_dataset_stage("train", lambda dataset: write_outputs(f"train@{dataset}"))
    assert read_dvc_stage(NAME).outputs[0].exists()
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit, match="2"):
        run_dataset_stage("train", write_outputs)
    assert "dataset" in capsys.readouterr().err


ROWS = pl.DataFrame({"a": range(9)})
DISK_FULL_ERRORS = {
    "the system": lambda: raise_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/base/wands/table.csv")),
    "Python": lambda: Path("/dev/full").write_text("x"),
    "Polars, parquet": lambda: write_atomically(Path("table"), lambda _: ROWS.write_parquet("/dev/full")),
}


@pytest.mark.parametrize("fill", DISK_FULL_ERRORS.values(), ids=DISK_FULL_ERRORS)
def test_full_disk_is_reported(monkeypatch, fill):
    monkeypatch.setattr(sys, "argv", ["train.py", "wands"])
    with pytest.raises(SystemExit, match=r"^train: .*disk .*full"):
        run_dataset_stage("train", lambda _: fill())


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), ZeroDivisionError("ours")], ids=repr)
def test_unexpected_error_keeps_its_traceback(monkeypatch, error):
    monkeypatch.setattr(sys, "argv", ["train.py", "wands"])
    with pytest.raises(type(error)):
        run_dataset_stage("train", lambda _: raise_error(error))


RUN_TOO_LONG = """
import time
from tasks.provenance import stage
with stage._time_limit("train@wands", 0.001):
    time.sleep(600)
"""


def test_a_stage_is_ended_at_its_time_limit(tmp_path):
    completed = subprocess.run(
        [sys.executable, "-c", RUN_TOO_LONG],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 1
    assert re.fullmatch(r"train: .* 0\.001 minutes, .*stage_minutes .*params\.yaml\n", completed.stderr)


def test_stage_without_or_within_its_time_limit_is_not_ended():
    for minutes in (0, 1):
        with _time_limit(NAME, minutes):
            pass


class RecordedTimer:
    """Stands for a timer that never runs, and records what is done with it."""

    def __init__(self, seconds: float, function: object, args: list[object]) -> None:
        self.arguments = (seconds, function, args)
        self.daemon = False
        self.actions: list[str] = []
        timers.append(self)

    def start(self) -> None:
        self.actions.append("started as a daemon" if self.daemon else "started")

    def cancel(self) -> None:
        self.actions.append("cancelled")


timers: list[RecordedTimer] = []


@pytest.mark.parametrize("error", [None, ZeroDivisionError()], ids=repr)
def test_the_time_limit_is_cancelled_at_the_end_of_the_block(error, monkeypatch):
    monkeypatch.setattr(stage, "Timer", RecordedTimer)
    timers.clear()
    with suppress(ZeroDivisionError), _time_limit(NAME, 1.5):
        (timer,) = timers
        assert timer.actions == ["started as a daemon"]
        if error is not None:
            raise error
    assert timer.actions == ["started as a daemon", "cancelled"]
    assert timer.arguments == (90, stage._end_process, [NAME, 1.5])


def test_the_end_of_a_process_ends_its_children_and_is_reported(monkeypatch, capsys):
    ended = []

    class Child:
        def __init__(self, number: int) -> None:
            self.number = number

        def terminate(self) -> None:
            ended.append(self.number)
            if self.number == 1:
                raise psutil.NoSuchProcess(self.number)

    def children(*, recursive: bool) -> list[Child]:
        return [Child(1), Child(2)] if recursive else []

    monkeypatch.setattr(stage.psutil, "Process", lambda: SimpleNamespace(children=children))
    monkeypatch.setattr(stage.os, "_exit", lambda status: ended.append(f"exit {status}"))

    stage._end_process(NAME, 2.5)

    assert ended == [1, 2, "exit 1"]
    printed = capsys.readouterr().err
    assert re.fullmatch(r"train: .* 2\.5 minutes, .*stage_minutes .*params\.yaml\n", printed)


NO_FREEZE = SimpleNamespace(freeze=gc.isenabled)  # does nothing, and refers to no object of the tests


def exit_message(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command that raises an error, and return the message with which it ends."""
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(stage, "gc", NO_FREEZE)
    with pytest.raises(SystemExit) as exit_error:
        run_command(lambda: raise_error(error), "train")
    return str(exit_error.value.code)


def test_an_unexpected_error_has_a_plain_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer replaces it
    monkeypatch.setattr(stage, "gc", NO_FREEZE)
    with pytest.raises(ZeroDivisionError) as raised:
        run_command(lambda: raise_error(ZeroDivisionError("a bug")), "train")
    sys.excepthook(raised.type, raised.value, raised.tb)
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback ")
    assert printed.endswith("ZeroDivisionError: a bug\n")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_file_without_permission_is_named(code, monkeypatch):
    message = exit_message(OSError(code, "not allowed", "data/x.csv"), monkeypatch)
    assert re.fullmatch(r"train: .*permission .*data/x\.csv \(not allowed\); .*writable", message)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_or_quota_is_reported(code, monkeypatch):
    message = exit_message(OSError(code, "no space"), monkeypatch)
    assert re.fullmatch(rf"train: .*disk .*full \(\[Errno {code}\] no space\); .*again", message)


@pytest.mark.parametrize("error_type", [InputError, RunFailed])
def test_the_lines_of_a_message_are_kept_and_unprintable_characters_escaped(error_type, monkeypatch):
    message = exit_message(error_type("first\nsecond \x1b[31m"), monkeypatch)
    first, second = message.split("\n")
    assert first == "train: first"
    assert second.startswith("second ")
    assert "\x1b" not in second


@pytest.mark.parametrize("message", [None, "", "2 rows dropped"])
def test_the_message_of_a_stage_is_printed(message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "wands"])

    def work(dataset: str) -> str | None:
        write_outputs(f"train@{dataset}")
        return message

    with pytest.raises(SystemExit, match="0"):
        run_dataset_stage("train", work)
    assert capsys.readouterr().out == (f"wands: {message}\n" if message else "")


def test_a_held_lock_is_refused_or_waited_for():
    first = start_in_other_process("sys.stdin.read()")
    assert first.stdout.readline() == "inside\n"
    with pytest.raises(InputError, match=r"^it is running$"), hold_lock(NAME, "it is running"):
        raise AssertionError
    reports: list[str] = []

    def report(line: str) -> None:
        reports.append(line)
        first.stdin.close()

    with hold_lock(NAME, report=report):
        assert first.wait(60) == 0
    assert re.fullmatch(rf"{NAME} is waiting: .* {first.pid} .* UTC", reports[0])
    for stream in (first.stdout, first.stderr):
        stream.close()


def test_a_process_that_inherits_a_lock_holds_it_too():
    with hold_lock(NAME) as descriptor:
        child = subprocess.Popen(["sleep", "600"], pass_fds=[descriptor])
    assert is_lock_held(STATE / f"locks/{NAME}.lock")
    child.kill()
    child.wait()
    assert not is_lock_held(STATE / f"locks/{NAME}.lock")


def test_a_lock_is_held_only_if_its_file_exists_and_can_be_opened(tmp_path, monkeypatch):
    path = tmp_path / "x.lock"
    assert not is_lock_held(path)
    path.touch()
    assert not is_lock_held(path)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", refuse)
    assert not is_lock_held(path)


def test_before_a_run_its_outputs_are_removed_but_not_those_that_persist():
    declared = read_dvc_stage(NAME)
    kept = Path("data/kept")
    files = {
        "output": declared.outputs[0] / "deep/table.csv",
        "persistent output": kept / "fits/fit.bin",
        "incomplete persistent output": kept / "fits/.fit.bin.77.partial",
        "file of another stage": Path("data/base/scidocs/table.csv"),
    }
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    stage._remove_outputs(replace(declared, outputs=(*declared.outputs, kept), persistent_outputs=(kept,)))

    remaining = [name for name, path in files.items() if path.exists()]
    assert remaining == ["persistent output", "file of another stage"]
    assert not declared.outputs[0].exists()


def test_the_help_of_a_stage_lists_its_data_set_and_no_other_option(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        run_dataset_stage("train", write_outputs)
    shown = capsys.readouterr().out
    assert re.search(r"`datasets` .*params\.yaml", shown)
    assert re.findall("--[a-z-]+", shown) == ["--help"]


@pytest.mark.parametrize("minutes", [0, 1.5])
def test_the_time_limit_of_a_stage_is_that_of_the_params(minutes, monkeypatch):
    edit_params(lambda params: params.update(stage_minutes=minutes))
    monkeypatch.setattr(stage, "Timer", RecordedTimer)
    timers.clear()
    with run_stage(NAME):
        write_outputs(NAME)
    assert [timer.arguments for timer in timers] == ([(90, stage._end_process, [NAME, 1.5])] if minutes else [])
