"""Faults during one stage under DVC. The first test is part of `make test` too."""

import re
import signal

import pytest
import yaml

from tests.faults.small_project import kill_fault
from tests.system.browser import wait_until

TRAIN = ("dvc", "repro", "train@mine")


def test_a_killed_stage_and_one_with_an_edited_input_end_with_the_same_bytes(new_project, trained):
    fault = kill_fault("write", "data/base/mine/.base.json.*")
    new_project.run(*TRAIN, faults=(fault,), status=-signal.SIGKILL)
    raw = new_project.folder / "data/raw/mine/mine.csv"
    line = "query 1,lamp of another day,good"
    edit = {"call": "replace", "path": "data/base/mine/pairs.parquet", "do": "edit", "file": str(raw), "line": line}
    printed = new_project.run(*TRAIN, faults=(edit,), status=255)
    assert re.search(r"train: data/raw/mine/mine\.csv: .*changed while train@mine ", printed)
    assert "Traceback" not in printed
    assert yaml.safe_load((new_project.folder / "dvc.lock").read_text())["stages"].keys() == {"download@mine"}

    new_project.run(*TRAIN)
    assert new_project.result_digests() == trained.result_digests()


@pytest.mark.faults
def test_a_second_dvc_reports_the_first_and_waits_for_its_stage(new_project, trained, tmp_path):
    release = tmp_path / "go on"
    first = new_project.start_paused(*TRAIN, at="data/base/mine/logits.parquet", until=release)
    printed = new_project.run(*TRAIN, status=255)
    assert f"(PID {first.process.pid})" in printed
    assert "Traceback" not in printed

    (stage,) = [process for process in first.find_processes() if "tasks.train" in process.cmdline()]
    first.kill_command()
    third = new_project.start(*TRAIN)
    wait_until(lambda: f"waiting: process {stage.pid} " in third.output())
    release.touch()
    third.wait()
    assert new_project.result_digests() == trained.result_digests()
