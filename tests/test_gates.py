"""What becomes of the records of the gates: kept where one fails, shown with its place, gone once all pass."""

import json
from datetime import UTC, datetime, timedelta
from subprocess import TimeoutExpired
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest

from flows import docs, engine, processes, refresh, reliability
from tasks import show
from tasks.expectations.check import Check, GateFailed, expect_numbers, pass_gate, violated
from tasks.expectations.docs import build_docs
from tasks.protocol.results import Projected
from tasks.protocol.store import base_folder, failed_gates_file, read_json, runs_folder, write_json

BASE: Any = SimpleNamespace(name="amazon_esci", source="simulated")


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def gate(values: list[float], seed: int = 2) -> dict[str, Any]:
    """A gate of two checks, the second of which asks for numbers between 0 and 1."""
    frame = pl.DataFrame({"share": values, "calibrator": ["ts"] * len(values)})
    expected = expect_numbers("share", 0, 1, "share is a share")
    checks = [Check(f"shares {number}", frame, [expectation]) for number, expectation in enumerate(expected)]
    return pass_gate("shares", {"dataset": "amazon_esci", "seed": seed}, checks)


@pytest.fixture(scope="module")
def closed() -> GateFailed:
    with pytest.raises(GateFailed) as failed:
        gate([0.5, 7.0])
    return failed.value


@pytest.fixture
def artifacts(monkeypatch) -> dict[str, dict[str, Any]]:
    """The artifacts that are made, by key; there is no server."""
    made: dict[str, dict[str, Any]] = {}

    def artifact(content: object, *, key: str, **words: str) -> str:
        made[key] = {"content": content, "then": [], **words}
        return key

    for module, kind in ((show, "table"), (refresh, "table"), (engine, "progress")):
        monkeypatch.setattr(module, f"create_{kind}_artifact", artifact)
    monkeypatch.setattr(engine, "update_progress_artifact", lambda key, percent: made[key]["then"].append(percent))
    return made


def test_a_gate_that_fails_records_the_checks_that_passed_and_what_is_violated_with_place_and_limits(closed):
    made = [(check["gate"], check["success"]) for check in closed.record["checks"]]
    assert made == [("shares 0", True), ("shares 1", False)]
    assert json.loads(json.dumps(closed.record, allow_nan=False)) == closed.record
    (row,) = violated([gate([0.5]), closed.record])
    assert row == {
        **{"gate": "shares 1", "dataset": "amazon_esci", "seed": 2, "calibrator": "ts", "severity": "critical"},
        **{"expectation": "share is a share", "found": "1 of 2 rows, such as row 1: share = 7.0", "allowed": "0 to 1"},
    }


def test_all_gates_that_a_run_has_reached_are_in_its_record_passed_or_failed(closed):
    def future(result: object) -> Mock:
        """A future with this result; one that waits for another that failed has none."""
        return Mock(**{"state.is_final.return_value": result is not None, "result.return_value": result})

    passed = gate([0.5], seed=1)
    projected = Projected(seed=1, rows=[], label_rows=(), fallback=(), gates=[passed])
    results = (projected, closed, None, ZeroDivisionError("no gate"))
    of_seeds = {f"seed {seed}": future(result) for seed, result in enumerate(results, 1)}
    reached = reliability.gates_reached({"gates": {"incoming": future(passed)}, "projected": of_seeds})
    assert [(record["success"], record["coordinates"]["seed"]) for record in reached] == [(True, 1)] * 2 + [(False, 2)]


def test_a_failed_gate_is_a_table_of_its_run_and_of_refreshes_until_the_next_run_passes_it(artifacts, closed):
    show.show_gates.fn(BASE, [closed.record])
    reliability.keep_failed(BASE, [closed.record])
    kept = read_json(failed_gates_file("amazon_esci"))
    assert kept == {"dataset": "amazon_esci", "source": "simulated", "gates": [closed.record]}
    refresh.show_failed_gates(["wands", "amazon_esci"])
    assert list(artifacts) == ["gates-amazon-esci", "refresh-gates"]
    assert "amazon_esci (simulated)" in artifacts["gates-amazon-esci"]["description"]
    for artifact in artifacts.values():
        (row,) = artifact["content"]
        assert [row[name] for name in ("dataset", "seed", "calibrator")] == ["amazon_esci (simulated)", 2, "ts"]
    artifacts.clear()
    reliability.keep_failed(BASE, [])
    refresh.show_failed_gates(["wands", "amazon_esci"])
    assert artifacts == {}


def test_a_refresh_begins_without_the_failed_gates_of_an_earlier_one(monkeypatch, closed):
    for name in ("end_left_behind", "quarantine_corrupt_dvc_files", "remove_empty_runs"):
        monkeypatch.setattr(processes, name, lambda: None)
    reliability.keep_failed(BASE, [closed.record])
    refresh.clear_away(datetime.now(UTC) - timedelta(minutes=1))  # it is of this very refresh, whose stages began early
    assert failed_gates_file("amazon_esci").exists()
    refresh.clear_away(datetime.now(UTC) + timedelta(minutes=1))
    assert not failed_gates_file("amazon_esci").exists()


def test_a_refresh_tells_how_many_data_sets_have_ended_while_they_do(artifacts, monkeypatch):
    over: set[str] = set()
    monkeypatch.setattr(refresh, "ended", lambda names, _since: over & set(names))

    def lane(*ends: str | None) -> Mock:
        """A process at each look at which, but the last, the data set ends that stands there."""
        left = list(ends)

        def wait(timeout: float) -> None:
            over.update({left.pop(0)} - {None})
            raise TimeoutExpired("dvc", timeout)

        return Mock(poll=lambda: None if left else 0, wait=wait)

    names = ["wands", "mine", "up_to_date", "not_reached"]
    refresh.follow_lanes([lane("wands", None), lane("mine")], names, None)
    assert artifacts["progress-refresh"]["content"] == 0
    assert artifacts["progress-refresh"]["then"] == [25, 50, 100]


def test_data_docs_show_what_was_recorded_and_nothing_older(tmp_path, closed):
    folder = tmp_path / "docs"
    (folder / "validations/gone").mkdir(parents=True)
    (folder / "validations/gone/seed 3.html").write_text("older")
    index = build_docs({"amazon_esci (simulated)": [gate([0.5], seed=1), closed.record]}, folder)
    assert "amazon_esci (simulated), shares 1" in index.read_text()
    pages = {(*page.relative_to(folder).parts[1:3], page.stem): page for page in folder.glob("validations/**/*.html")}
    assert {(run, seed) for _, run, seed in pages} == {("amazon_esci (simulated)", f"seed {seed}") for seed in (1, 2)}
    (failed,) = (page.read_text() for (suite, _, seed), page in pages.items() if (suite[-1], seed) == ("1", "seed 2"))
    assert "share is a share" in failed
    assert "Failed" in failed


def test_data_docs_are_made_of_the_contract_and_of_the_gates_of_the_last_run():
    assert docs.recorded("wands") == []
    write_json(base_folder("wands") / "contract.json", {"gate": "contract"})
    write_json(runs_folder("wands") / "gates.json", {"gates": [{"gate": "pairs"}]})
    assert docs.recorded("wands") == [{"gate": "contract"}, {"gate": "pairs"}]
    write_json(failed_gates_file("wands"), {"gates": [{"gate": "unchanged"}]})
    assert docs.recorded("wands") == [{"gate": "contract"}, {"gate": "unchanged"}]
