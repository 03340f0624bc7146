"""The output of stages: on the terminal, and by stage."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from flows.stage_output import StageOutput, show_stage
from prefect.client.schemas.objects import StateType
from prefect.logging import disable_run_logger
from prefect.states import State

from tasks.provenance.stage import StageRecord

PRINTED = """before any stage
Running stage 'download@wands':
> python -m tasks.download wands
3 files

Running stage 'train@wands':
> python -m tasks.train wands
"""


def test_lines_belong_to_the_stage_that_was_begun_last_and_all_reach_the_terminal(capfd):
    output = StageOutput()
    program = f"import sys; sys.stdout.write({PRINTED!r})"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        output.follow(process)
        output.wait()
    assert output.started.get() == "download@wands"
    assert output.started.get() == "train@wands"
    assert list(output.lines("download@wands")) == ["> python -m tasks.download wands", "3 files"]
    assert list(output.lines("train@wands")) == ["> python -m tasks.train wands"]
    assert capfd.readouterr().out.splitlines() == PRINTED.splitlines()


def test_bytes_that_are_not_utf_8_do_not_stop_the_reader():
    output = StageOutput()
    program = r"import os; os.write(1, b'Running stage \'a\':\n\xff\n')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        output.follow(process)
        output.wait()
    assert list(output.lines("a")) == ["\ufffd"]


def test_the_first_line_on_a_full_disk_is_remembered():
    output = StageOutput()
    lines = ["reading", "OSError: [Errno 28] No space left on device: 'a'", *["traceback"] * 99, "the disk is full (b)"]
    with subprocess.Popen([sys.executable, "-c", f"print(*{lines}, sep=chr(10))"], stdout=subprocess.PIPE) as process:
        output.follow(process)
        output.wait()
    assert output.disk_full == lines[1]


def test_after_the_reader_of_the_output_has_ended_all_lines_are_still_read(monkeypatch):
    output = StageOutput()
    program = "print('Running stage \\'a\\':'); print('line\\n' * 100_000)"  # more than the pipe holds
    with (
        monkeypatch.context() as patch,
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process,
    ):
        patch.setattr(sys.stdout, "flush", Mock(side_effect=BrokenPipeError))
        output.follow(process)
        output.wait()
    assert isinstance(output.error, BrokenPipeError)
    assert list(output.lines("a")) == ["line"] * 100_000


def test_lines_yield_none_while_a_stage_prints_nothing(monkeypatch):
    monkeypatch.setattr("flows.stage_output.SECONDS_OF_SILENCE", 0.01)
    output = StageOutput()
    program = "import sys, time; print('Running stage \\'a\\':', flush=True); sys.stdin.read(); print('end')"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        output.follow(process)
        assert output.started.get(timeout=60) == "a"
        lines = output.lines("a")
        assert next(lines) is None
        process.stdin.close()
        assert [line for line in lines if line is not None] == ["end"]


@pytest.fixture
def ended_stage() -> StageOutput:
    """The output of the stage `a`, which has started and ended."""
    output = StageOutput()
    program = r"print('Running stage \'a\':')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        output.follow(process)
        output.wait()
    return output


def last_state(output: StageOutput) -> State[None]:
    with disable_run_logger():
        return show_stage.fn("a", output, datetime.now(UTC) - timedelta(minutes=1))


def write_record(folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: str) -> None:
    monkeypatch.chdir(folder)
    StageRecord(stage="a", process=1, started=datetime.now(UTC), **fields).write()


def test_a_failed_stage_is_shown_with_its_reason(ended_stage, tmp_path, monkeypatch):
    write_record(tmp_path, monkeypatch, outcome="failed", reason="row 7 has no label")
    state = last_state(ended_stage)
    assert (state.type, state.message) == (StateType.FAILED, "a: row 7 has no label")


def test_a_stage_without_a_record_could_not_start(ended_stage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = last_state(ended_stage)
    assert (state.type, state.message) == (StateType.FAILED, "a could not start; see its output")


@pytest.mark.parametrize("has_record", [True, False])
def test_a_stage_that_a_cancelled_refresh_ends_is_shown_as_cancelled(ended_stage, tmp_path, monkeypatch, has_record):
    monkeypatch.chdir(tmp_path)
    if has_record:
        write_record(tmp_path, monkeypatch)
    ended_stage.stopped = True  # the refresh was cancelled
    state = last_state(ended_stage)
    assert (state.type, state.message) == (StateType.CANCELLED, "a was stopped together with the refresh")


def test_a_stage_that_finished_before_a_cancellation_is_shown_as_completed(ended_stage, tmp_path, monkeypatch):
    write_record(tmp_path, monkeypatch, outcome="finished", why="it had not finished on this machine before")
    ended_stage.stopped = True
    assert last_state(ended_stage).type == StateType.COMPLETED
