"""The door of a stage: alone at its outputs, sure of what it reads, and its end is on record, however it ends."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from relmap.errors import InputError
from relmap.io.atomic import write_atomically
from tasks.provenance.dvc_stages import read_dvc_stage
from tasks.provenance.lock import hold_lock, is_lock_held
from tasks.provenance.manifest import read_manifest
from tasks.provenance.stage import RECORDS, StageRecord, _time_limit, run_dataset_stage, run_stage
from tasks.records.errors import RunFailed
from tasks.records.store import STATE, read_json
from tests.tiny_project import ROOT, complete_stage, create_project, edit_params, write_outputs

NAME = "train@wands"


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create_project(tmp_path)


def record() -> dict:
    return read_json(RECORDS / f"{NAME}.json")


def ends(error: BaseException) -> None:
    raise error


def work_and(happens: Callable[[], object]) -> None:
    write_outputs(NAME)
    happens()


def test_a_stage_has_a_record_while_it_runs_and_a_manifest_once_it_has_finished():
    with run_stage(NAME):
        assert (record()["outcome"], record()["ended"]) == ("running", None)
        assert record()["why"] == "it had not finished on this machine before"
        write_outputs(NAME)
    assert read_manifest(read_dvc_stage(NAME).manifest).stage == NAME
    assert record().items() >= {"stage": NAME, "process": os.getpid(), "outcome": "finished", "reason": None}.items()
    assert record()["started"] < record()["ended"]


def append(path: str) -> None:
    with Path(path).open("a") as handle:
        handle.write("more\n")


READ = ("data/raw/wands/rows.csv", "data/raw/wands/more.csv", "tasks/train.py", "tasks/trained/model.py")
MEANWHILE = {
    **{path: partial(append, path) for path in READ},
    "data/raw/wands/rows.csv, gone": Path("data/raw/wands/rows.csv").unlink,
    "train.seed: 0 → 99": lambda: edit_params(lambda params: params["train"].update(seed=99)),
    "datasets.wands.rows: ": lambda: edit_params(lambda params: params["datasets"]["wands"].update(rows=999)),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_what_it_reads_must_not_change_while_it_runs(what):
    """DVC would lock the new one against results of the old."""
    with pytest.raises(InputError, match=what.partition(",")[0]) as raised, run_stage(NAME):
        work_and(MEANWHILE[what])
    assert not read_dvc_stage(NAME).manifest.exists()
    assert (record()["outcome"], record()["reason"]) == ("failed", str(raised.value))


def test_what_it_does_not_read_may_change():
    with run_stage(NAME):
        append("data/raw/scidocs/rows.csv")
        append("tasks/report.py")
        edit_params(lambda params: (params.update(lanes=7), params["datasets"]["scidocs"].update(rows=999)))
        Path("data/raw/wands/rows.csv").touch()  # a new date
        write_outputs(NAME)
    assert record()["outcome"] == "finished"


ENDS = [
    *((kind("no descent"), "no descent") for kind in (InputError, RunFailed)),
    (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    (KeyboardInterrupt(), "KeyboardInterrupt: "),
]


@pytest.mark.parametrize(("error", "reason"), ENDS)
def test_a_stage_that_fails_says_why_on_record_and_has_no_manifest_until_it_runs_again(error, reason):
    with pytest.raises(type(error)), run_stage(NAME):
        work_and(lambda: ends(error))
    assert (record()["outcome"], record()["reason"]) == ("failed", reason)
    assert not read_dvc_stage(NAME).manifest.exists()
    complete_stage(NAME)
    assert (record()["outcome"], record()["reason"]) == ("finished", None)


def elsewhere(then: str) -> subprocess.Popen[str]:
    """Another process that runs the stage and then does `then`; it has said so when this returns, or waits."""
    code = (
        "import sys, time\nfrom tasks.provenance.stage import run_stage\nfrom tests.tiny_project import write_outputs\n"
    )
    code += f"with run_stage({NAME!r}):\n    print('inside', flush=True)\n    {then}\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes)


def test_a_second_process_says_who_holds_the_stage_and_waits_for_it():
    with run_stage(NAME):
        second = elsewhere(f"write_outputs({NAME!r}, 'the second')")
        words = f"{NAME} is waiting: process {os.getpid()} has been running it since 20"
        assert words in second.stderr.readline()
        assert second.poll() is None
        write_outputs(NAME, "the first")
        own = record()["started"]
    assert (*second.communicate(timeout=60), second.returncode) == ("inside\n", "", 0)
    assert "the second" in Path("data/base/wands/table.csv").read_text()
    assert record()["started"] > own


def test_who_waits_for_a_lock_can_be_told_where_a_run_is_shown():
    first = elsewhere("sys.stdin.read()")
    assert first.stdout.readline() == "inside\n"
    messages: list[str] = []

    def report(message: str) -> None:
        messages.append(message)
        first.communicate(timeout=60)  # ends it

    with hold_lock(NAME, report=report):
        assert first.returncode is not None
    assert len(messages) == 1
    assert messages[0].startswith(f"{NAME} is waiting: process {first.pid} has been running it since 20")


def test_a_killed_process_is_on_record_as_running_and_its_lock_is_free():
    first = elsewhere("time.sleep(600)")
    assert first.stdout.readline() == "inside\n"
    lock = STATE / "locks" / f"{NAME}.lock"
    assert is_lock_held(lock)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    assert (record()["outcome"], record()["process"]) == ("running", first.pid)
    assert lock.exists()
    assert not is_lock_held(lock)
    with hold_lock(NAME):
        assert not read_dvc_stage(NAME).manifest.exists()
    complete_stage(NAME)
    assert (record()["outcome"], record()["process"]) == ("finished", os.getpid())


def test_while_it_waits_code_must_not_change_and_parameters_may(monkeypatch):
    """Its modules were imported before it had the lock, and its manifest would name the new ones."""
    meanwhile = [MEANWHILE["tasks/trained/model.py"], MEANWHILE["train.seed: 0 → 99"]]
    monkeypatch.setattr("tasks.provenance.stage.hold_lock", lambda name: (meanwhile.pop()(), hold_lock(name))[1])
    assert complete_stage(NAME).parameters["train"]["seed"] == 99
    with pytest.raises(InputError, match=r"tasks/trained/model\.py"), run_stage(NAME):
        write_outputs(NAME)
    assert not read_dvc_stage(NAME).manifest.exists()


def test_the_lock_is_held_again_by_its_holder_since_it_took_it_and_free_after_an_error():
    with hold_lock("refresh") as since, hold_lock("refresh") as again:
        assert since == again
    with pytest.raises(ZeroDivisionError), hold_lock("refresh"):
        ends(ZeroDivisionError())
    with hold_lock("refresh") as later:
        assert later > since


def test_a_stage_called_by_its_command_runs_and_without_a_data_set_is_told_how_it_is_called(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "wands"])
    with pytest.raises(SystemExit, match="0"):
        run_dataset_stage("train", lambda dataset: write_outputs(f"train@{dataset}"))
    assert record()["outcome"] == "finished"
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit, match="2"):
        run_dataset_stage("train", write_outputs)
    assert "dataset" in capsys.readouterr().err


ROWS = pl.DataFrame({"a": range(9)})
FULL = {
    "the system": lambda: ends(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/base/wands/table.csv")),
    "Python": lambda: Path("/dev/full").write_text("x"),
    "Polars, parquet": lambda: write_atomically(Path("table"), lambda _: ROWS.write_parquet("/dev/full")),
}


@pytest.mark.parametrize("fill", FULL.values(), ids=FULL)
def test_a_full_disk_is_named_in_words_whoever_meets_it(monkeypatch, fill):
    monkeypatch.setattr(sys, "argv", ["train.py", "wands"])
    with pytest.raises(SystemExit, match=r"^train: the disk is full .*free some space and run the same command again"):
        run_dataset_stage("train", lambda _: fill())
    assert record()["outcome"] == "failed"


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), ZeroDivisionError("ours")], ids=repr)
def test_what_is_our_fault_keeps_its_traceback(monkeypatch, error):
    monkeypatch.setattr(sys, "argv", ["train.py", "wands"])
    with pytest.raises(type(error)):
        run_dataset_stage("train", lambda _: ends(error))


TOO_LONG = """
import time
from tasks.provenance import stage
record = stage.StageRecord(stage="train@wands", process=1, started=stage.datetime.now(stage.UTC), why="a reason")
with stage._time_limit(record, 0.001):
    time.sleep(600)
"""


def test_a_stage_that_takes_longer_than_its_limit_is_ended_and_its_record_says_why(tmp_path):
    started = subprocess.run(
        [sys.executable, "-c", TOO_LONG],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    reason = "it ran longer than 0.001 minutes, the limit set by stage_minutes in params.yaml"
    assert started.returncode == 1
    assert f"train@wands: {reason}" in started.stderr
    assert (record()["outcome"], record()["reason"]) == ("failed", reason)


def test_a_stage_without_a_limit_or_within_it_is_left_alone():
    running = StageRecord(stage=NAME, process=1, started=datetime.now(UTC))
    for minutes in (0, 1):
        with _time_limit(running, minutes):
            pass
    assert running.outcome == "running"
