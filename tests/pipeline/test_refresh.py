"""A refresh runs DVC for what is outdated, the longest data set first, and reports only the results of this run."""

import re
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest
from prefect.client.schemas.objects import StateType
from prefect.logging import disable_run_logger

from flows import dvc_process
from relmap.io import atomic
from tasks.provenance.dvc_stages import stage_names
from tasks.records.durations import FOLDER, KINDS
from tasks.records.errors import RunFailed
from tasks.settings.params import load_params
from tests.project_copy import ROOT

refresh = import_module("flows.refresh")  # the module, not the flow of the same name


def make_entry(rows: int | None, predictor: str = "linear") -> SimpleNamespace:
    return SimpleNamespace(rows=rows, predictor=predictor)


def test_the_longest_data_set_is_first():
    entries = {"small": make_entry(1000), "large": make_entry(9000), "trees": make_entry(4000, "boosted")}
    assert refresh.longest_first(entries) == ["trees", "large", "small"]
    assert refresh.longest_first(entries | {"unknown": make_entry(None)})[0] == "unknown"
    assert refresh.longest_first({"b": make_entry(10), "a": make_entry(10)}) == ["b", "a"]


PARAMS = SimpleNamespace(datasets={"wands": make_entry(9), "mine": make_entry(10)}, lanes=2)
REPORT = ["--single-item", "report"]


@pytest.mark.parametrize(
    ("targets", "force", "outdated", "commands"),
    [
        ([], False, [], {}),
        ([], False, ["report"], {"report": REPORT}),
        ([], False, ["train@mine", "report"], {"mine": ["reliability@mine"], "report": REPORT}),
        (
            [],
            True,
            [],
            {
                "mine": ["--force", "reliability@mine"],
                "wands": ["--force", "reliability@wands"],
                "report": ["--single-item", "--force", "report"],
            },
        ),
        (
            ["report", "train@wands", "reliability@wands"],
            False,
            [],
            {"wands": ["train@wands", "reliability@wands"], "report": ["report"]},
        ),
    ],
)
def test_only_what_is_outdated_or_chosen_runs_and_the_report_is_last(targets, force, outdated, commands):
    listed = refresh.list_commands(targets, force, PARAMS, outdated)
    assert listed == commands
    assert "report" not in listed or [*listed][-1] == "report"


def start_program(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def reproduce(monkeypatch: pytest.MonkeyPatch, program: str, run: object) -> object:
    """Run the task with a program in place of DVC, and return its state."""
    monkeypatch.setattr(dvc_process, "start_repro", lambda *_: start_program(program))
    with disable_run_logger():
        return refresh.reproduce.fn("wands", ["reliability@wands"], run)


FAILED = r"""
import os, sys
os.write(1, b"Stage 'download@wands' didn't change, skipping\n")
os.write(1, b"Running stage 'train@wands':\n\xff\ntrain: row 7 has no label\n")
sys.exit(255)
"""


def test_a_failed_stage_is_red_with_its_reason_and_its_output_is_printed(monkeypatch, capsys):
    run = refresh.Refresh(0, {})
    state = reproduce(monkeypatch, FAILED, run)
    assert (state.type, state.message) == (StateType.FAILED, "train@wands: row 7 has no label")
    assert run.outcomes == {"download@wands": "up to date", "train@wands": "failed"}
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Running stage 'train@wands':", "\ufffd", "train: row 7 has no label"]


SLEEP = "import time; time.sleep(600)"


def test_a_stage_that_a_cancelled_refresh_ends_is_shown_as_cancelled(monkeypatch):
    run = refresh.Refresh(0, {})
    monkeypatch.setattr(refresh, "_output_lines", lambda _process: run.stop() or [])
    assert reproduce(monkeypatch, SLEEP, run).type == StateType.CANCELLED
    with pytest.raises(RunFailed, match="stopped"):
        run.start([])


def test_if_the_reader_of_the_output_has_ended_dvc_ends_too(monkeypatch):
    def fail_to_print(_process: object) -> list[str]:
        raise BrokenPipeError

    run = refresh.Refresh(0, {})
    started = []
    end = run.end
    monkeypatch.setattr(run, "end", lambda process: started.append(process) or end(process))
    monkeypatch.setattr(refresh, "_output_lines", fail_to_print)
    with pytest.raises(BrokenPipeError):
        reproduce(monkeypatch, SLEEP, run)
    assert started[0].wait(20) == -signal.SIGTERM


@pytest.mark.parametrize(("n_failed", "n_shown"), [(0, 1), (1, 1), (None, 0)], ids=["none", "one", "all"])
def test_a_report_is_shown_unless_all_data_sets_failed(n_failed, n_shown, tmp_path, monkeypatch):
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    params = load_params()
    failed = {name: f"download@{name}: no source" for name in list(params.datasets)[:n_failed]}
    shown: list[str] = []
    report_module = import_module("flows.report")
    write_report = report_module.report.fn  # raises an error before it uses Prefect, if no data set has finished

    def report(missing: dict[str, str]) -> None:
        if len(missing) == len(params.datasets):
            write_report(missing)

    monkeypatch.setattr(report_module, "report", report)
    monkeypatch.setattr(refresh, "run_stages", lambda *_: failed)
    for name in ("show_stages", "show_failed_gates", "show_headline"):
        monkeypatch.setattr(refresh, name, lambda *_: None)
    monkeypatch.setattr(refresh, "show_report", lambda: shown.append("report"))
    failures = refresh.run_and_show(refresh.Refresh(0, {}), [], False, params)
    assert len(shown) == n_shown
    assert len(failures) == (len(failed) + 1 if failed else 0)


def test_a_full_disk_is_the_first_of_several_reasons(monkeypatch):
    reasons = {"a": "train@a: 4,101 lines", "b": "train@b: the disk is full (x)", "c": "train@c: other"}
    monkeypatch.setattr(refresh, "run_stages", lambda *_: reasons)
    for name in ("show_stages", "show_failed_gates"):
        monkeypatch.setattr(refresh, name, lambda *_: None)
    failures = refresh.run_and_show(refresh.Refresh(0, {}), ["train@a"], False, PARAMS)
    assert failures == [reasons["b"], reasons["a"], reasons["c"]]


def test_the_outcome_and_the_reason_of_each_stage_are_shown(monkeypatch, capsys, tmp_path):
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    tables = []
    monkeypatch.setattr(refresh, "create_table_artifact", lambda rows, **_: tables.append(rows))
    run = refresh.Refresh(0, {"train@wands": "tasks/train.py modified", "train@scidocs": "tasks/train.py modified"})
    run.outcomes = {"download@wands": "up to date", "train@wands": "ran", "reliability@wands": "failed"}
    refresh.show_stages(run, [])
    (rows,) = tables
    assert [row["stage"] for row in rows] == stage_names()
    shown = {row["stage"]: (row["what"], row["why"]) for row in rows}
    assert shown["train@wands"] == ("ran", "tasks/train.py modified")
    assert shown["train@scidocs"] == ("did not run", "tasks/train.py modified")
    assert shown["reliability@wands"][0] == "failed"
    assert shown["download@wands"] == shown["download@scidocs"] == ("up to date", "")
    assert re.search(rf"^{len(rows) - 3} of {len(rows)} stages ", capsys.readouterr().out, re.MULTILINE)
    refresh.show_stages(run, ["reliability@wands"])  # without records of durations, no table of them
    assert {row["stage"] for row in tables[1]} == {"download@wands", "train@wands", "reliability@wands"}


def test_the_seconds_of_stages_that_ran_are_shown_with_their_sum(monkeypatch, capsys, tmp_path):
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    tables = {}
    monkeypatch.setattr(refresh, "create_table_artifact", lambda rows, key, **_: tables.update({key: rows}))
    for stage, seconds in {"download@wands": 99.0, "train@wands": 2.0, "reliability@wands": 3.5}.items():
        kinds = {kind: float(number) for number, kind in enumerate(KINDS)}
        atomic.write_json(FOLDER / f"{stage}.json", {"seconds": seconds, "kinds": kinds})
    run = refresh.Refresh(0, {})
    run.outcomes = {"download@wands": "up to date", "train@wands": "ran", "reliability@wands": "ran"}
    refresh.show_stages(run, [])
    rows = {row["stage"]: row for row in tables["refresh-durations"]}
    assert [*rows] == ["train@wands", "reliability@wands", "sum"]  # that of a stage that did not run is an old one
    assert (rows["sum"]["seconds"], rows["sum"]["write"]) == (5.5, 12)
    assert {row["stage"]: row["seconds"] for row in tables["refresh-stages"]}["train@wands"] == 2
    assert "reliability@wands" in capsys.readouterr().out
