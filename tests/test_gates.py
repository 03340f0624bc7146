"""What becomes of the records of the gates: kept where one fails, shown with its place, gone once all pass."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import TimeoutExpired
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from flows import docs, engine, refresh, reliability
from tasks import show
from tasks.expectations.check import Check, GateFailed, expect, pass_gate, violated
from tasks.expectations.docs import build_docs
from tasks.protocol.results import Projected
from tasks.protocol.store import base_folder, failed_gates_file, read_json, runs_folder, write_json

pytestmark = pytest.mark.filterwarnings("ignore:module 'sre_:DeprecationWarning")

BASE: Any = SimpleNamespace(name="amazon_esci", source="simulated")


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def gate(values: list[float], seed: int = 2) -> dict[str, Any]:
    """A gate of two checks, the second of which asks for numbers between 0 and 1."""
    place = {"dataset": "amazon_esci", "seed": seed}
    frame = pl.DataFrame({"share": values, "calibrator": ["ts"] * len(values)})
    expected = [
        [expect("not null", "share", description="share is known")],
        [expect("between", "share", min_value=0, max_value=1, description="share is a share")],
    ]
    return pass_gate("shares", place, [Check(f"shares {at}", frame, one) for at, one in enumerate(expected)])


def closed(seed: int = 2) -> GateFailed:
    with pytest.raises(GateFailed) as failed:
        gate([0.5, 7.0], seed)
    return failed.value


@dataclass(frozen=True)
class Ended:
    """A future that has ended, or one that waits for ever for another that has failed."""

    made: Any
    final: bool = True

    @property
    def state(self) -> Any:
        return SimpleNamespace(is_final=lambda: self.final)

    def result(self, *, raise_on_failure: bool) -> Any:
        assert self.final
        assert not raise_on_failure
        return self.made


@pytest.fixture
def artifacts(monkeypatch) -> dict[str, dict[str, Any]]:
    """The artifacts that are made, by key; there is no server."""
    made: dict[str, dict[str, Any]] = {}

    def table(rows: list[dict[str, Any]], *, key: str, description: str) -> None:
        made[key] = {"rows": rows, "description": description}

    def link(address: str, *, key: str, link_text: str, description: str) -> None:
        made[key] = {"address": address, "text": link_text, "description": description}

    def progress(percent: float, *, key: str, description: str) -> str:
        made[key] = {"percent": [percent], "description": description}
        return key

    for module in (show, refresh):
        monkeypatch.setattr(module, "create_table_artifact", table)
        monkeypatch.setattr(module, "create_link_artifact", link)
    monkeypatch.setattr(engine, "create_progress_artifact", progress)
    monkeypatch.setattr(engine, "update_progress_artifact", lambda key, percent: made[key]["percent"].append(percent))
    return made


def test_a_gate_that_fails_tells_also_the_checks_that_it_has_passed():
    record = closed().record
    assert [(one["gate"], one["success"]) for one in record["checks"]] == [("shares 0", True), ("shares 1", False)]
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert gate([0.5])["success"]


def test_what_is_violated_is_told_with_its_coordinates_and_with_what_is_allowed():
    (row,) = violated([gate([0.5]), closed().record])
    assert row == {
        "gate": "shares 1",
        "dataset": "amazon_esci",
        "seed": 2,
        "calibrator": "ts",
        "expectation": "share is a share",
        "found": "1 of 2 rows, such as row 1: share = 7.0",
        "allowed": "0 to 1",
        "severity": "critical",
    }


def test_all_gates_that_a_run_has_reached_are_told_passed_or_failed():
    passed = gate([0.5], seed=1)
    projected = Projected(seed=1, rows=[], label_rows=(), fallback=(), gates=[passed])
    of_seeds = {"seed 1": Ended(projected), "seed 2": Ended(closed()), "seed 3": Ended(None, final=False)}
    lost = {"seed 4": Ended(ZeroDivisionError("no gate"))}
    made = {"gates": {"incoming": Ended(passed)}, "projected": of_seeds | lost}
    found = [(record["success"], record["coordinates"]["seed"]) for record in reliability.gates_reached(made)]
    assert found == [(True, 1), (True, 1), (False, 2)]


def test_failed_gates_are_kept_until_the_next_run_passes_them():
    kept = failed_gates_file("amazon_esci")
    reliability.keep_failed(BASE, [closed().record])
    assert read_json(kept) == {"dataset": "amazon_esci", "source": "simulated", "gates": [closed().record]}
    reliability.keep_failed(BASE, [])
    assert not kept.exists()


def test_a_failed_gate_is_a_table_of_its_run_that_names_the_place(artifacts):
    show.show_gates.fn(BASE, [closed().record])
    ((key, made),) = artifacts.items()
    assert key == "gates-amazon-esci"
    assert "amazon_esci (simulated)" in made["description"]
    (row,) = made["rows"]
    assert [row[name] for name in ("dataset", "seed", "calibrator")] == ["amazon_esci (simulated)", 2, "ts"]


def test_a_refresh_shows_the_failed_gates_of_every_data_set_and_nothing_where_none_failed(artifacts):
    refresh.show_failed_gates(["wands", "amazon_esci"])
    assert artifacts == {}
    reliability.keep_failed(BASE, [closed().record])
    refresh.show_failed_gates(["wands", "amazon_esci"])
    assert [row["dataset"] for row in artifacts["refresh-gates"]["rows"]] == ["amazon_esci (simulated)"]


def test_a_refresh_begins_without_the_failed_gates_of_an_earlier_one(monkeypatch):
    for name in ("end_left_behind", "put_aside_what_is_cut_off", "remove_empty_runs"):
        monkeypatch.setattr(refresh, name, lambda: None)
    reliability.keep_failed(BASE, [closed().record])
    refresh.clear_away(datetime.now(UTC) - timedelta(minutes=1))  # it is of this very refresh, whose stages began early
    assert failed_gates_file("amazon_esci").exists()
    refresh.clear_away(datetime.now(UTC) + timedelta(minutes=1))
    assert not failed_gates_file("amazon_esci").exists()


def test_a_refresh_links_the_page_of_the_report_and_says_where_it_is(artifacts, capsys):
    refresh.link_report()
    page = Path("data/report/index.html").resolve()
    assert artifacts["refresh-report"]["address"] == page.as_uri()
    assert capsys.readouterr().out == f"report: {page}\n"


class Lane:
    """A process that ends after so many looks; at each, something happens."""

    def __init__(self, looks: int, happens: Callable[[int], object]) -> None:
        self.looks, self.happens = looks, happens

    def poll(self) -> int | None:
        return None if self.looks else 0

    def wait(self, timeout: float) -> None:
        self.looks -= 1
        self.happens(self.looks)
        raise TimeoutExpired("dvc", timeout)


def test_a_refresh_tells_how_many_data_sets_have_ended_while_they_do(artifacts, monkeypatch):
    over: set[str] = set()
    monkeypatch.setattr(refresh, "ended", lambda names, _since: over & set(names))
    lanes: Any = [Lane(2, lambda left: over.add("wands") if left else None), Lane(1, lambda _: over.add("mine"))]
    since: Any = None
    refresh.follow_lanes(lanes, ["wands", "mine", "up_to_date", "not_reached"], since)
    assert artifacts["progress-refresh"]["percent"] == [0, 25, 50, 100]


def test_data_docs_show_what_was_recorded_and_nothing_older(tmp_path):
    folder = tmp_path / "docs"
    build_docs({"gone": [gate([0.5])]}, folder)
    index = build_docs({"amazon_esci (simulated)": [gate([0.5], seed=1), closed().record]}, folder)
    assert "amazon_esci (simulated), shares 1" in index.read_text()
    pages = {
        (page.relative_to(folder).parts[1:3], page.stem): page.read_text()
        for page in folder.glob("validations/**/*.html")
    }
    assert {page for _, page in pages} == {"seed 1", "seed 2"}
    assert {run for (_, run), _ in pages} == {"amazon_esci (simulated)"}
    (failed,) = (page for ((suite, _), seed), page in pages.items() if (suite[-1], seed) == ("1", "seed 2"))
    assert "share is a share" in failed
    assert "Failed" in failed


def test_data_docs_are_made_of_the_contract_and_of_the_gates_of_the_last_run(monkeypatch):
    assert docs.recorded("wands") == []
    write_json(base_folder("wands") / "contract.json", {"gate": "contract"})
    write_json(runs_folder("wands") / "gates.json", {"gates": [{"gate": "pairs"}]})
    assert docs.recorded("wands") == [{"gate": "contract"}, {"gate": "pairs"}]
    write_json(failed_gates_file("wands"), {"gates": [{"gate": "unchanged"}]})
    assert docs.recorded("wands") == [{"gate": "contract"}, {"gate": "unchanged"}]
