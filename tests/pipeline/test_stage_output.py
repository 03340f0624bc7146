"""The output of stages: on the terminal, and by stage."""

import subprocess
import sys

from flows.stage_output import StageOutput

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


def test_bytes_that_are_no_text_do_not_stop_the_reader():
    output = StageOutput()
    program = r"import os; os.write(1, b'Running stage \'a\':\n\xff\n')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        output.follow(process)
        output.wait()
    assert list(output.lines("a")) == ["\ufffd"]


def test_silence_is_told_so_that_the_reason_of_a_stage_can_be_looked_up(monkeypatch):
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
