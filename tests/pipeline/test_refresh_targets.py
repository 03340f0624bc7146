"""A refresh of chosen targets reports the stages that they need."""

from datetime import UTC, datetime

import pytest

from flows import refresh
from flows.stage_output import StageOutput
from tasks.provenance.dvc_stages import stage_names
from tasks.provenance.history import StageOutcome
from tasks.settings.params import load_params


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
