"""The page of `relmap report` as a file: its control, its commands and its concepts."""

import html
import json
import re
import shlex
from pathlib import Path

import polars as pl
import pytest
from maps import predictions, run, write

from relmap import ReliabilityMap
from relmap.report.concepts import CONCEPTS
from relmap.report.page import CONCEPTS_OF_PAGE

ROWS = predictions(600)
HOSTILE = ("</script><b>\"'&", "fair", "{{ 7 * 7 }}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A page of labels with hostile names and a column of logits with another name."""
    folder = tmp_path_factory.mktemp("my rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        named = pl.col("label").replace_strict(dict(enumerate(HOSTILE)))
        write(ROWS.with_columns(truth=named).rename({"logits": "raw"}).drop("label"), Path("rows.parquet"))
        columns = "--logits", "raw", "--label", "truth", "--group", "group"
        names = ",".join('"' + name.replace('"', '""') + '"' for name in HOSTILE)
        run("report", "--predictions", "rows.parquet", *columns, "--labels", names, "--out", "a page.html")
    return folder


@pytest.fixture(scope="module")
def page(folder) -> str:
    return (folder / "a page.html").read_text(encoding="utf-8")


def explorer(page: str) -> dict:
    """The aggregates in the page."""
    section = page[page.index('id="threshold-explorer"') :]
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', section, re.DOTALL)[1])


def test_the_control_holds_aggregates_and_no_row(page):
    content = explorer(page)
    assert len(content["thresholds"]) <= 1000
    assert [line["name"] for line in content["lines"]] == ["All decisions", *HOSTILE]
    assert content["lines"][0]["rows"] == 600
    assert set(content["lines"][0]) == {"name", "rows", "total", "automatic", "correct", "low", "high"}
    assert not re.search(r"\bq\d+\b", json.dumps(content))  # a group


def test_names_of_labels_are_text_and_scripts_end_where_the_page_ends_them(page):
    parts = re.split(r"<script[^>]*>", page)
    assert page.count("</script>") == len(parts) - 1
    assert "</script><b>" not in page
    assert "<b>" not in re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    for name in HOSTILE:
        assert name in html.unescape(page)


def test_the_page_starts_at_the_threshold_of_the_map(page, folder):
    threshold = ReliabilityMap.load(folder / "a page.map.json").document_.default_threshold
    content = explorer(page)
    first = content["initial"]
    assert content["thresholds"][first] <= threshold < content["thresholds"][first + 1]
    assert content["lines"][0]["automatic"][first] == 0.7 * 600  # as the fit has it


def test_the_command_validates_the_chosen_threshold_on_other_rows(page, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command = re.search('id="explorer-command" data-before="(.*?)" data-after="(.*?)"', page)
    before, after = html.unescape(command[1]), html.unescape(command[2])
    program, *arguments = shlex.split(f"{before}0.7{after}")
    assert (program, arguments[0]) == ("relmap", "thresholds")
    named = pl.col("label").replace_strict(dict(enumerate(HOSTILE)))
    others = predictions(400, seed=9).with_columns(truth=named).rename({"logits": "raw"}).drop("label")
    write(others, Path("other_labelled.parquet"))
    capsys.readouterr()
    run(*arguments)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["guaranteed"]
    assert json.loads(printed.out)["asked_cut"] == 0.7
    assert "without looking at these rows" in printed.err


def test_the_page_says_what_the_numbers_are_not(page):
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", "", page))
    assert "The intervals are pointwise" in text
    assert "Choosing a threshold by eye makes the numbers on these rows too good and voids the guarantee" in text


def test_the_page_links_to_the_concepts_that_it_uses_and_defines_each_once(page):
    links = set(re.findall('href="#concept-([a-z-]+)"', page))
    assert links == set(re.findall('<dt id="concept-([a-z-]+)"', page)) == set(CONCEPTS_OF_PAGE)
    for name in CONCEPTS_OF_PAGE:
        assert CONCEPTS[name].definition in html.unescape(page)
        assert page.count(f'id="concept-{name}"') == 1


def test_the_command_that_applies_the_map_names_no_option_that_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(ROWS.with_row_index("key"), Path("rows.parquet"))
    run("report", "--predictions", "rows.parquet", "--id", "key", "--drop-unlabelled", "--out", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    apply = re.search("<code>(relmap apply .*?)</code>", page)[1]
    write(predictions(50, seed=3).drop("label").with_row_index("key"), Path("new.parquet"))
    run(*shlex.split(html.unescape(apply))[1:])
    assert len(pl.read_parquet("scored.parquet")) == 50
    assert 'data-after=" --id key --drop-unlabelled"' in page


def test_no_missing_value_is_written_as_a_word(page):
    texts = re.sub("<(script|style)[^>]*>.*?</(script|style)>", "", page, flags=re.DOTALL)
    assert not re.search(r"\b(None|nan|undefined|null)\b", texts)
    assert "The map is in a page.map.json, next to this page." in texts
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert all(name in style for name in ("body", ".note", "--ink"))


def test_sentences_that_lead_to_a_table_are_left_to_the_tables_of_the_page(page):
    paragraphs = re.findall(r"<p(?: class=\"(?:note|answer)\")?>(.*?)</p>", page, re.DOTALL)
    before_a_command = "The map is in a page.map.json, next to this page. To apply it to new predictions:", "and run:"
    leading = [text.rstrip() for text in paragraphs if text.rstrip().endswith(":")]
    assert len(leading) == len(before_a_command)
    assert all(text.endswith(end) for text, end in zip(leading, before_a_command, strict=True))


def test_definitions_are_one_or_two_short_sentences():
    for concept in CONCEPTS.values():
        assert 1 <= len(re.findall(r"\.(\s|$)", concept.definition)) <= 2
        assert len(concept.definition.split()) <= 60
        assert concept.page == f"docs/concepts/{concept.name}"
