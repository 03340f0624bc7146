"""Tasks of the report, called as plain functions with made-up results, without drawing."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from relmap.io.atomic import write_json
from relmap.report.figure import DrawnFigure
from tasks import report
from tasks.page import page
from tasks.records.store import base_folder, failed_gates_file
from tasks.tables.overview import compute_headline, describe_headline
from tests.report_data import DatasetResults, combine_runs, make_gate, make_results, write_files


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def shops() -> list[DatasetResults]:
    """Results of two data sets, the first of which is simulated."""
    shop = make_results("shop", rows=300, groups=30, calibrators=("ts",), seeds=(1,))
    market = make_results("market", rows=240, groups=40, calibrators=("ts",), seeds=(1,), source="files")
    return [shop, market]


@pytest.fixture
def drawn_kinds(monkeypatch) -> list[tuple[str, object]]:
    """Record the kinds of drawn figures and their results; each kind gives one figure."""
    calls: list[tuple[str, object]] = []

    def draw(kind: str, results: object) -> list[DrawnFigure]:
        calls.append((kind, results))
        key = kind.replace(" ", "_")
        return [DrawnFigure(key, kind, f"About {kind}.", pl.DataFrame({"x": [1]}), {"key": key})]

    monkeypatch.setattr(report, "draw_all", draw)
    return calls


@pytest.mark.parametrize("index", [0, 1])
def test_figures_of_a_data_set_are_drawn_from_its_own_files(shops, drawn_kinds, index):
    for shop in shops:
        write_files(shop)
    expected = shops[index]
    results, figures = report.draw_figures.fn(expected.name, combine_runs(shops))
    assert drawn_kinds == [("data set", results)]
    assert [figure.key for figure in figures] == ["data_set"]
    assert figures[0].caption == ("About data set. Simulated: shop.", "About data set.")[index]
    assert (results.name, results.display_name) == (expected.name, ("shop (simulated)", "market")[index])
    assert (results.labels, results.test_rows) == (("no", "maybe", "yes"), (300, 240)[index])
    for name in ("scores", "metrics", "rivals", "simplex"):
        assert getattr(results, name).equals(getattr(expected, name))
    assert results.lattices == expected.lattices


def figure(key: str, *values: int) -> SimpleNamespace:
    return SimpleNamespace(key=key, rows=pl.DataFrame({"x": values}))


def test_figures_of_all_data_sets_are_written_to_one_file_for_each_key(shops, monkeypatch):
    monkeypatch.setattr(page, "render_dvc_plots_page", lambda: "plots")
    drawn = [(shops[0], [figure("bars", 1, 2), figure("lines", 3)]), (shops[1], [figure("bars", 4)])]
    report.write_figures.fn(drawn, Path("out"))
    files = {path.name: path.read_text() for path in Path("out/figures").iterdir()}
    assert files == {
        "bars.csv": "dataset,x\nshop (simulated),1\nshop (simulated),2\nmarket,4\n",
        "lines.csv": "dataset,x\nshop (simulated),3\n",
        "dvc_plots.html": "plots",
    }


def test_figures_of_the_paper_are_written_in_two_formats_with_their_captions(shops, drawn_kinds, monkeypatch):
    monkeypatch.setattr(report, "svg", lambda spec: f"svg of {spec}")
    monkeypatch.setattr(report, "pdf", lambda spec: f"pdf of {spec}".encode())
    report.write_paper_figures.fn([(shop, []) for shop in shops], Path("out"))
    ((kind, results),) = drawn_kinds
    assert kind == "paper"
    assert [(each.name, each.preferred_calibrator) for each in results] == [("shop", "smart"), ("market", "smart")]
    assert {path.name: path.read_text() for path in Path("out/figures").iterdir()} == {
        "captions.md": "**paper** About paper. Simulated: shop.\n\n",
        "paper.svg": "svg of {'key': 'paper'}",
        "paper.pdf": "pdf of {'key': 'paper'}",
    }


@pytest.fixture
def overview() -> pl.DataFrame:
    rows = [
        ("shop (simulated)", -0.03, -0.05, -0.01, "Beware.", "simulated"),
        ("market", None, None, None, "", "files"),
    ]
    columns = ["dataset", "nll_correct_delta", "low", "high", "remarks", "source"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def test_each_data_set_has_a_section_with_gates_and_comparison_and_failed_ones_come_last(shops, overview, drawn_kinds):
    for shop in shops:
        write_files(shop)
    contract = make_gate("market", "contract")
    write_json(base_folder("market") / "contract.json", contract)
    failed = make_gate("mine", "unchanged rows", passed=False)
    write_json(failed_gates_file("mine"), {"gates": [failed]})
    runs = combine_runs(shops, ("mine", "yours"))
    drawn = [(shop, ["figure", shop.name]) for shop in shops]

    sections = report._dataset_sections(runs, overview, drawn, {"mine": "no descent"})

    assert [(section.name, section.title) for section in sections] == [
        ("shop", "shop (simulated)"),
        ("market", "market"),
        ("mine", "mine (failed)"),
        ("yours", "yours (failed)"),
    ]
    expected_gates = [shops[0].gates, [contract, *shops[1].gates], [failed], []]
    assert [section.gates for section in sections] == [page.summarize_gates(gates) for gates in expected_gates]
    assert [section.failure for section in sections[2:]] == ["no descent", ""]
    shop, market = sections[:2]
    assert re.match(r"Better .*: MRP .*log loss .*-0\.0300\b", shop.comparison)
    assert (shop.remarks, market.comparison, market.remarks) == ("Beware.", "", "")
    assert [section.figures for section in (shop, market)] == [["figure", "shop"], ["figure", "market"]]
    for section, results in zip((shop, market), shops, strict=True):
        assert section.facts == page.describe_facts(results.facts, results.labels_with_few_rows)
        assert section.command == page.map_command(results.name, results.labels)


def test_a_data_set_without_a_row_in_the_overview_has_a_section_without_comparison(shops, overview):
    for shop in shops:
        write_files(shop)
    without_market = overview.filter(pl.col("dataset") != "market")
    shop, market = report._dataset_sections(combine_runs(shops), without_market, [(shop, []) for shop in shops], {})
    assert shop.comparison
    assert (market.comparison, market.remarks) == ("", "")


def test_the_page_and_its_headline_are_written_with_all_parts(shops, overview, drawn_kinds, monkeypatch):
    for shop in shops:
        write_files(shop)
    runs = combine_runs(shops)
    tables = {"overview": overview.with_columns(dataset=pl.Series(["shop", "market"]))}
    rendered: dict[str, Any] = {}
    linked = []

    def render(*parts: object, **options: object) -> str:
        rendered.update(options, parts=parts)
        return "the page"

    monkeypatch.setattr(page, "render_report", render)
    monkeypatch.setattr(page, "summarize_overview", lambda *parts: parts)
    monkeypatch.setattr(page, "describe_provenance", lambda facts, **options: (facts, options))
    monkeypatch.setattr(report, "svg", lambda spec: spec)
    monkeypatch.setattr(report, "overview_picture", lambda frame: f"picture of {len(frame)} rows")
    monkeypatch.setattr(report.checkout, "describe_commit", lambda: "abc")
    monkeypatch.setattr(report.versions, "library_versions", lambda: {"numpy": "9"})
    monkeypatch.setattr(report.dvc_stages, "read_recorded_digests", lambda: {"data/runs/wands": "1a.dir"})
    monkeypatch.setattr(report, "create_link_artifact", lambda link, **words: linked.append((link, words)))

    report.write_page.fn(runs, tables, [(shop, []) for shop in shops], {}, Path("out"))

    ((kind, drawn_from),) = drawn_kinds
    assert kind == "all data sets"
    assert drawn_from.equals(overview)
    folder = Path("out")
    assert json.loads((folder / "metrics.json").read_text()) == compute_headline(runs)
    assert (folder / "headline.txt").read_text() == f"{describe_headline(runs)}\n"
    assert (folder / "index.html").read_text() == "the page"
    assert (folder / "figures/all_data_sets.csv").read_text() == "x\n1\n"
    assert (folder / "figures/overview.svg").read_text() == "picture of 2 rows"
    given_tables, sections = rendered.pop("parts")
    summarized, headline = rendered.pop("summary")
    assert given_tables is tables
    assert [(section.title, section.remarks) for section in sections] == [
        ("shop (simulated)", "Beware."),
        ("market", ""),
    ]
    assert summarized.equals(overview)
    assert headline == describe_headline(runs)
    (overview_figure,) = rendered.pop("overview_figures")
    assert (overview_figure.key, overview_figure.caption) == ("all_data_sets", "About all data sets. Simulated: shop.")
    assert rendered == {
        "simulated": ["shop (simulated)"],
        "provenance": (
            runs.facts,
            {"commit": "abc", "digests": {"data/runs/wands": "1a.dir"}, "versions": {"numpy": "9"}},
        ),
    }
    index = (folder / "index.html").resolve()
    words = {"link_text": "out/index.html", "key": "report", "description": "the report"}
    assert linked == [(index.as_uri(), words)]
