"""What can go wrong around one stage, under DVC alone; the first of these is in `make test`, too."""

import re
import signal

import pytest
import yaml

from tests.faults.small_project import kill_fault
from tests.system.browser import wait_until

TRAIN = ("dvc", "repro", "train@mine")


def test_a_stage_that_dies_and_one_whose_raw_file_is_edited_end_with_the_same_bytes(created_project, trained):
    fault = kill_fault("write", "data/base/mine/.base.json.*")
    created_project.run(*TRAIN, faults=(fault,), status=-signal.SIGKILL)
    raw = created_project.folder / "data/raw/mine/mine.csv"
    line = "query 1,lamp of another day,good"
    edit = {"call": "replace", "path": "data/base/mine/pairs.parquet", "do": "edit", "to": str(raw), "line": line}
    printed = created_project.run(*TRAIN, faults=(edit,), status=255)
    assert re.search(
        r"data/raw/mine/mine\.csv: \w{8} → \w{8}: these files .* changed while train@mine was running", printed
    )
    assert "Traceback" not in printed
    assert yaml.safe_load((created_project.folder / "dvc.lock").read_text())["stages"].keys() == {"download@mine"}
    created_project.run(*TRAIN)

    assert created_project.result_digests() == trained.result_digests()


@pytest.mark.faults
def test_a_second_dvc_names_the_first_and_waits_for_a_stage_that_outlives_it(created_project, trained, tmp_path):
    go_on = tmp_path / "go on"
    first = created_project.start_paused(*TRAIN, at="data/base/mine/logits.parquet", until=go_on)
    printed = created_project.run(*TRAIN, status=255)
    assert f"(PID {first.process.pid})" in printed
    assert "Traceback" not in printed
    (stage,) = [process for process in first.find_processes() if "tasks.train" in process.cmdline()]
    first.kill_command()
    third = created_project.start(*TRAIN)
    wait_until(lambda: f"process {stage.pid} has been running it" in third.output())
    go_on.touch()
    third.wait()

    assert created_project.result_digests() == trained.result_digests()
