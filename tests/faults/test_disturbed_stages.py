"""What can go wrong around one stage, under DVC alone; the first of these is in `make test`, too."""

import re
import signal

import yaml

from tests.faults.small_project import killed

TRAIN = ("dvc", "repro", "train@mine")


def test_a_stage_that_dies_and_one_whose_raw_file_is_edited_end_with_the_same_bytes(young_project, trained):
    moment = killed("write", "data/base/mine/.base.json.*")
    young_project.run(*TRAIN, faults=(moment,), status=-signal.SIGKILL)
    raw = young_project.folder / "data/raw/mine/mine.csv"
    line = "query 1,lamp of another day,good"
    edit = {"call": "replace", "path": "data/base/mine/pairs.parquet", "do": "edit", "to": str(raw), "line": line}
    printed = young_project.run(*TRAIN, faults=(edit,), status=255)
    assert re.search(r"data/raw/mine/mine\.csv: \w{8} → \w{8}: that, .* changed while train@mine was running", printed)
    assert "Traceback" not in printed
    assert yaml.safe_load((young_project.folder / "dvc.lock").read_text())["stages"].keys() == {"download@mine"}
    young_project.run(*TRAIN)
    assert young_project.results() == trained.results()
