"""A refresh of chosen targets reports the stages that they need, and only the results of this run."""

import shutil
from datetime import UTC, datetime
from importlib import import_module

import pytest
from flows.stage_output import StageOutput
from tasks.provenance.history import StageOutcome

from flows import refresh
from tasks.provenance.dvc_stages import stage_names
from tasks.settings.params import load_params
from tests.project_copy import ROOT


@pytest.mark.parametrize(
    ("target", "needed"),
    [
        ("download@wands", ["download@wands"]),
        ("train@wands", ["download@wands", "train@wands"]),
        ("reliability@wands", ["download@wands", "train@wands", "reliability@wands"]),
    ],
)
def test_a_target_needs_the_earlier_stages_of_its_data_set(target, needed):
    assert refresh.stages_up_to(target) == needed


def test_the_report_needs_every_stage():
    assert sorted(refresh.stages_up_to("report")) == sorted(stage_names())


def test_stages_of_a_target_are_counted_even_if_up_to_date(monkeypatch):
    ran = {"reliability@wands", "reliability@scidocs"}  # another process may have run a stage of another data set

    def list_outcomes(_since: datetime, _outdated: set[str]) -> list[StageOutcome]:
        return [StageOutcome(name, "ran" if name in ran else "skipped", "", 0) for name in stage_names()]

    shown: list[str] = []
    monkeypatch.setattr(refresh, "run_dvc", lambda *_: 0)
    monkeypatch.setattr(refresh, "stage_outcomes", list_outcomes)
    monkeypatch.setattr(refresh, "_show_stages", lambda rows: shown.extend(row.stage for row in rows))
    monkeypatch.setattr(refresh, "show_failed_gates", lambda _datasets: None)
    targets = ["reliability@wands"]
    failures = refresh._run_and_show([], StageOutput(), targets, False, load_params(), datetime.now(UTC))
    assert failures == []
    assert set(shown) == {"download@wands", "train@wands", *ran}


@pytest.mark.parametrize(("n_failed", "n_shown"), [(0, 1), (1, 1), (None, 0)], ids=["none", "one", "all"])
def test_a_report_is_shown_unless_all_data_sets_failed(n_failed, n_shown, tmp_path, monkeypatch):
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    params = load_params()
    failed = [f"download@{name}" for name in list(params.datasets)[:n_failed]]
    outcomes = [StageOutcome(name, "failed", "no source", 0) for name in failed]
    shown: list[str] = []
    report_module = import_module("flows.report")
    write_report = report_module.report.fn  # raises an error before it uses Prefect, if no data set has finished

    def report(missing: dict[str, str]) -> None:
        if len(missing) == len(params.datasets):
            write_report(missing)

    monkeypatch.setattr(report_module, "report", report)
    monkeypatch.setattr(refresh, "run_dvc", lambda *_: 255 if failed else 0)
    monkeypatch.setattr(refresh.processes, "outdated_stages", lambda: {*failed, "report"})
    monkeypatch.setattr(refresh, "stage_outcomes", lambda *_: outcomes)
    for name in ("_show_stages", "show_failed_gates", "_show_headline"):
        monkeypatch.setattr(refresh, name, lambda *_: None)
    monkeypatch.setattr(refresh, "_show_report", lambda: shown.append("report"))
    failures = refresh._run_and_show([], StageOutput(), [], False, params, datetime.now(UTC))
    assert len(shown) == n_shown
    assert len(failures) == (len(failed) + 1 if failed else 0)
