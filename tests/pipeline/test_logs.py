"""Log files: every line arrives, in the terminal too, and the files stay small."""

import subprocess
import sys

from flows import logs
from flows.logs import RotatingLog, log_lines
from tests.project_copy import ROOT


def test_a_full_log_is_renamed_and_the_oldest_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "BYTES_PER_FILE", 1000)
    monkeypatch.setattr(logs, "MAX_OLD_FILES", 2)
    log = RotatingLog(tmp_path / "server.log")
    for number in range(1000):
        log.write(b"line %d\n" % number)
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["server.log", "server.log.1", "server.log.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    newest_last = "".join((tmp_path / name).read_text() for name in reversed(files)).split("\n")
    assert newest_last[-2] == "line 999"
    numbers = [int(line.split()[1]) for line in newest_last if line]
    assert numbers == list(range(numbers[0], 1000))  # no line is lost between the files


def test_a_log_is_appended_after_a_restart(tmp_path):
    for line in (b"first\n", b"second \xff\n"):
        log = RotatingLog(tmp_path / "server.log")
        log.write(line)
        log.close()
    assert (tmp_path / "server.log").read_text() == "first\nsecond \ufffd\n"


def test_lines_of_a_process_are_logged_until_it_ends(tmp_path):
    program = "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        log_lines(process.stdout, tmp_path / "server.log").join(60)
    assert (tmp_path / "server.log").read_text() == "out\nerr\n"


PRINTING_PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from flows.logs import log_output
with log_output(Path(sys.argv[1])):
    print("of this process", flush=True)
    os.write(2, b"of a library\\n")
    subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
print("after")
"""


def test_output_of_a_process_and_its_children_is_printed_and_logged(tmp_path):
    command = [sys.executable, "-c", PRINTING_PROGRAM, str(tmp_path / "serve.log")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = ["of this process", "of a library", "of a child"]
    assert (tmp_path / "serve.log").read_text().splitlines() == lines
    assert printed.splitlines() == [*lines, "after"]


def test_the_log_continues_after_the_reader_of_the_terminal_has_ended(tmp_path):
    program = f"""
from pathlib import Path
from flows.logs import log_output
with log_output(Path({str(tmp_path / "serve.log")!r})):
    for number in range(1000):
        print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
    assert (tmp_path / "serve.log").read_text().split() == [str(number) for number in range(1000)]
