"""The longest data set starts first."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from flows.scheduling import STAGES, longest_first

from tasks.provenance.stage import StageRecord

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make_entry(rows: int | None, predictor: str = "linear") -> SimpleNamespace:
    return SimpleNamespace(rows=rows, predictor=predictor)


def record_run(dataset: str, seconds: float, outcome: str = "finished") -> None:
    """Record a run of all stages of a data set with this total duration."""
    for stage in STAGES:
        ended = START + timedelta(seconds=seconds / len(STAGES))
        record = StageRecord(stage=f"{stage}@{dataset}", process=1, started=START, outcome=outcome, ended=ended)
        record.write()


def sort_by_duration(**datasets: SimpleNamespace) -> list[str]:
    return longest_first(SimpleNamespace(datasets=datasets))


def test_without_an_earlier_run_rows_and_predictor_decide():
    assert sort_by_duration(small=make_entry(1000), large=make_entry(9000), trees=make_entry(4000, "boosted")) == [
        "trees",
        "large",
        "small",
    ]


def test_a_data_set_of_unknown_size_comes_first():
    assert sort_by_duration(large=make_entry(10**9), unknown=make_entry(None)) == ["unknown", "large"]


def test_the_last_duration_replaces_the_estimate():
    record_run("small", seconds=60)
    assert sort_by_duration(large=make_entry(9000), small=make_entry(1000)) == ["small", "large"]


@pytest.mark.parametrize("outcome", ["failed", "running"])
def test_runs_that_have_not_finished_do_not_count(outcome):
    record_run("small", seconds=60, outcome=outcome)
    assert sort_by_duration(large=make_entry(9000), small=make_entry(1000)) == ["large", "small"]


def test_equal_durations_keep_the_order_of_params():
    assert sort_by_duration(b=make_entry(10), a=make_entry(10), c=make_entry(10)) == ["b", "a", "c"]
