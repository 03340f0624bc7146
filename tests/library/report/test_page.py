"""The page of `relmap report`: threshold explorer, commands and concepts."""

import html
import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from relmap import ReliabilityMap
from relmap.evaluation.assessment import MapAssessment
from relmap.maps.score import FittedMap
from relmap.report import page as page_module
from relmap.report.concepts import CONCEPTS
from relmap.report.html import TEMPLATES, read_script, vega_script
from relmap.report.page import CONCEPTS_OF_PAGE
from relmap.routing.choose import CHOSEN_WITHOUT_ROWS
from tests.maps import make_map, make_predictions, rows_of_frame, run_command, write_frame

ROWS = make_predictions(600)
HOSTILE_NAMES = ("</script><b>\"'&", "fair", "{{ 7 * 7 }}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Write a report with label names that contain HTML and template code, and with renamed columns."""
    folder = tmp_path_factory.mktemp("my rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_frame(rename_columns(ROWS), Path("rows.parquet"))
        columns = ("--logits", "raw", "--label", "truth", "--group", "group")
        names = ",".join(quote_for_csv(name) for name in HOSTILE_NAMES)
        run_command("report", "--predictions", "rows.parquet", *columns, "--labels", names, "--out", "a page.html")
    return folder


def rename_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Rename `logits` to `raw`, and replace `label` by `truth` with the hostile names."""
    name_of_label = dict(enumerate(HOSTILE_NAMES))
    named = rows.with_columns(truth=pl.col("label").replace_strict(name_of_label))
    return named.rename({"logits": "raw"}).drop("label")


def quote_for_csv(text: str) -> str:
    doubled_quotes = text.replace('"', '""')
    return f'"{doubled_quotes}"'


@pytest.fixture(scope="module")
def page(folder) -> str:
    return (folder / "a page.html").read_text(encoding="utf-8")


def read_explorer(page: str) -> dict:
    """Return the aggregates of the threshold explorer in the page."""
    section = page[page.index('id="threshold-explorer"') :]
    script = re.search(r'<script type="application/json">(.*?)</script>', section, re.DOTALL)
    return json.loads(script[1])


def test_threshold_explorer_contains_aggregates_but_no_rows(page):
    content = read_explorer(page)
    assert len(content["thresholds"]) <= 1000
    assert [line["name"] for line in content["lines"]] == ["All decisions", *HOSTILE_NAMES]
    assert content["lines"][0]["rows"] == 600
    assert set(content["lines"][0]) == {"name", "rows", "total", "automatic", "correct", "low", "high"}
    assert not re.search(r"\bq\d+\b", json.dumps(content))  # no name of a group


def test_label_names_are_escaped(page):
    parts = re.split(r"<script[^>]*>", page)
    assert page.count("</script>") == len(parts) - 1
    assert "</script><b>" not in page
    assert "<b>" not in re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    for name in HOSTILE_NAMES:
        assert name in html.unescape(page)


def test_the_first_screen_has_the_answer_and_one_chart_and_no_backtick_is_visible(page):
    first_screen = page[page.index("<h1>") : page.index("</header>")]
    assert first_screen.count('class="answer"') == 1
    assert first_screen.count("<figure") == 1
    visible = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert "`" not in visible


def test_the_axis_of_the_errors_found_begins_at_zero(page):
    scripts = re.findall(r'id="figure-errors_found".*?<script type="application/json">(.*?)</script>', page, re.DOTALL)
    [chart] = [json.loads(script) for script in scripts]
    assert chart["spec"]["layer"][0]["encoding"]["y"]["scale"] == {"zero": True}


def test_explorer_starts_at_the_threshold_of_the_map(page, folder):
    threshold = ReliabilityMap.load(folder / "a page.map.json").document_.default_threshold
    content = read_explorer(page)
    initial = content["initial"]
    assert content["thresholds"][initial] <= threshold < content["thresholds"][initial + 1]
    assert content["lines"][0]["automatic"][initial] == 0.7 * 600  # 70% of the rows are automatic by default


def test_explorer_command_validates_the_threshold_on_new_rows(page, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    before = html.unescape(re.search('id="explorer-command" data-before="(.*?)"', page)[1])
    program, *arguments = shlex.split(f"{before}0.7")

    assert (program, arguments[0]) == ("relmap", "thresholds")

    new_rows = make_predictions(400, seed=9)
    write_frame(rename_columns(new_rows), Path("other_labelled.parquet"))
    capsys.readouterr()
    run_command(*arguments)
    printed = capsys.readouterr()

    assert json.loads(printed.out)["guaranteed"]
    assert json.loads(printed.out)["asked_cut"] == 0.7
    assert CHOSEN_WITHOUT_ROWS in printed.err


def test_page_states_the_limits_of_its_numbers(page):
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", "", page))
    assert "intervals are pointwise" in text
    assert re.search(r"threshold by eye [^.]* optimistic [^.]*guarantee", text)


def test_page_links_to_each_concept_and_defines_it_once(page):
    links = set(re.findall('href="#concept-([a-z-]+)"', page))
    definitions = set(re.findall('<dt id="concept-([a-z-]+)"', page))
    assert links == set(CONCEPTS_OF_PAGE)
    assert definitions == set(CONCEPTS_OF_PAGE)
    for name in CONCEPTS_OF_PAGE:
        assert CONCEPTS[name].definition in html.unescape(page)
        assert page.count(f'id="concept-{name}"') == 1


def test_apply_command_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_frame(ROWS.with_row_index("key"), Path("rows.parquet"))
    run_command("report", "--predictions", "rows.parquet", "--id", "key", "--drop-unlabelled", "--out", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    apply = re.search("<code>(relmap apply .*?)</code>", page)[1]
    write_frame(make_predictions(50, seed=3).drop("label").with_row_index("key"), Path("new.parquet"))
    run_command(*shlex.split(html.unescape(apply))[1:])

    assert len(pl.read_parquet("scored.parquet")) == 50


def test_page_shows_no_missing_value(page):
    texts = re.sub("<(script|style)[^>]*>.*?</(script|style)>", "", page, flags=re.DOTALL)
    assert not re.search(r"\b(None|nan|undefined|null)\b", texts)
    assert re.search(r"map is in a page\.map\.json,", texts)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for name in ("body", ".note", "--ink"):
        assert name in style


def test_page_omits_sentences_that_introduce_tables(page):
    paragraphs = re.findall(r"<p(?: class=\"(?:note|answer)\")?>(.*?)</p>", page, re.DOTALL)
    texts = [paragraph.rstrip() for paragraph in paragraphs]
    introductions = [text for text in texts if text.endswith(":")]
    for text, end in zip(introductions, (r"a page\.map\.json, .*apply .*:", ".*run:"), strict=True):
        assert re.search(f"{end}$", text)


def test_page_contains_its_scripts_and_styles(page):
    styles = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    parts = {"library": vega_script(), "script": read_script("page.js"), "styles": styles}
    missing = [name for name, part in parts.items() if part.strip() not in page]
    assert missing == []
    assert "window.vegaEmbed" in vega_script()


@pytest.mark.parametrize(("group", "expected"), [("group", "1,200 in 120 groups"), (None, "1,200")])
def test_facts_name_the_number_of_groups_if_there_are_groups(group, expected):
    rows = rows_of_frame(make_predictions(1200), group)
    document = make_map("mrp")
    scored = FittedMap.from_document(document)(rows)
    assessment = MapAssessment(document, rows, scored, "new", [], np.zeros(len(rows), dtype=bool))
    facts = page_module._provenance(assessment, assessment.evaluate().to_dict())
    assert facts["evaluated rows"] == expected
