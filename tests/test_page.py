"""The report page as a file: it asks for nothing, hides nothing, and nothing in the data can become part of it."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from tasks.figures.style import DARK, LIGHT
from tasks.page.words import gates_of
from tasks.tables import TABLES
from tests.report_data import BETTER, gate, made, reported

HOSTILE = "</script><b>\"'&{{ 1 }}</style>"
HOSTILE_NAME = "<b>&\"'"  # a folder, too
REASON = "the gate 'unchanged rows' failed </script><b>"


class Read(HTMLParser):
    """What a browser would find in a page: tags with their attributes, text, and what stands in scripts and styles."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.source, self.text = place.read_text(encoding="utf-8"), ""
        self.feed(self.source)
        self.text = re.sub(r"\s+", " ", self.text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:  # within a script or a style
            self.raw[self.cdata_elem][-1] += data
        else:
            self.text += f" {data}"

    def rows(self) -> dict[str, int]:
        """How many rows each table has that has a CSV."""
        tables = re.findall(r'<table data-csv="(\w+)">.*?</thead>(.*?)</table>', self.source, re.DOTALL)
        return {name: body.count("<tr>") for name, body in tables}

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every tag of that name."""
        return [attributes for name, attributes in self.tags if name == tag]

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in (attributes.get("class") or "").split()]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A page with everything: two and three labels, hostile names, one's own sets, and failed ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("report"))
        sets = [
            made("wands", rows=300, groups=30),
            made(HOSTILE_NAME, labels=(HOSTILE, "yes"), rows=300, source="hub", calibrators=("uncal", "ts", "spline")),
            made("few", rows=300, groups=4, changes=dict.fromkeys(BETTER), failing=True),
        ]
        return reported(sets, {"scidocs": REASON, "mine": "it was stopped"})


@pytest.fixture(scope="module")
def page(place) -> Read:
    return Read(place)


def test_a_browser_has_nothing_to_ask_for(page, place):
    fetching = {"src", "srcset", "data", "poster", "action", "formaction", "background", "manifest", "ping"}
    assert not [tag for tag, attributes in page.tags if fetching & set(attributes)]
    assert not {tag for tag, _ in page.tags} & {"link", "base", "iframe", "object", "embed", "img", "form"}
    styles = [*page.raw["style"], *(attributes.get("style") or "" for _, attributes in page.tags)]
    assert not re.search(r"url\(|@import", "".join(styles))
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    for link in (attributes["href"] for attributes in page.all("a")):
        assert link[1:] in ids if link.startswith("#") else (place.parent / link).is_file(), link
    *charts, vega, script = page.raw["script"]
    assert "vegaEmbed" in vega
    assert "http" not in script
    assert len(charts) > 20
    assert not [chart for chart in charts if "http" in re.sub(r'"\$schema":"[^"]*"', "", chart)]


def test_every_table_is_there_with_every_row_of_its_csv(page, place):
    assert set(page.rows()) == {key for key, entry in TABLES.items() if entry.place != "beside"}
    for name, rows in page.rows().items():
        assert rows == len(pl.read_csv(place.parent / f"{name}.csv", infer_schema=False)), name
    assert page.rows()["overview"] == 5
    calibrators = pl.read_csv(place.parent / "main.csv").group_by("dataset").agg("calibrator").rows_by_key("dataset")
    assert {HOSTILE_NAME: [(["uncal", "ts", "spline"],)], "few": [(["uncal", "ts"],)]}.items() <= calibrators.items()


def test_every_figure_holds_the_rows_that_its_csv_has(page, place):
    figures = [attributes["id"] for attributes in page.all("figure")]
    sizes: Counter[str] = Counter()
    for figure, chart in zip(figures, page.raw["script"], strict=False):  # two more scripts draw them
        content = json.loads(chart)
        rows = pl.read_csv(content["csv"].encode(), infer_schema=False)
        assert rows.columns == list(content["types"])
        sizes[figure.rsplit("-", 1)[-1]] += len(rows)
    assert len(figures) == 3 * 9 + 1
    for name, size in sizes.items():
        assert size == len(pl.read_csv(place.parent / f"figures/{name}.csv", infer_schema=False)), name


def test_nothing_that_data_say_becomes_part_of_the_page(page):
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.text.count("</script><b>") >= 2  # the label and the reason, as they are
    assert HOSTILE in page.text
    assert HOSTILE_NAME in page.text
    assert page.source.count("</script>") == len(page.raw["script"])  # they end only where the page ends them
    assert page.source.count("</style>") == len(page.raw["style"]) == 1
    assert any(HOSTILE.replace('"', '""') in json.loads(script)["csv"] for script in page.raw["script"][:-2])


def test_numbers_of_twins_are_named_as_such(page):
    (banner,) = page.with_class("banner")
    assert banner["role"] == "note"
    assert "Simulated data. wands (simulated), few (simulated) are twins" in page.text
    names = rf"(wands \(simulated\)|few \(simulated\)|{re.escape(HOSTILE_NAME)})(,|$)"
    assert all(re.match(names, json.loads(script)["spec"]["title"]) for script in page.raw["script"][1:-2])


def test_a_failed_set_is_named_with_its_reason_and_the_gate_that_failed(page):
    for name, reason in (("scidocs", REASON), ("mine", "it was stopped")):
        assert f"set-{name}" in [section.get("id") for section in page.with_class("data-set")]
        assert f"{name} (failed) This data set did not finish. {reason}" in page.text
        assert not [figure for figure in page.all("figure") if figure["id"].startswith(f"set-{name}")]
    assert re.search(r"no decision changes mine, 1: 7 rows.{0,20} FAILED, 0 of 1", page.text)
    assert "1 of 2 checks failed" in page.text
    assert "without scidocs (failed) and mine (failed)" in page.text
    assert ["open" in details for details in page.all("details")[:5]] == [False, False, True, True, True]


def test_the_page_is_one_of_its_language_for_every_reader(page):
    assert page.all("html") == [{"lang": "en"}]
    assert [tag for tag, _ in page.tags if tag in ("h1", "main", "title")] == ["title", "h1", "main"]
    assert all(plot["role"] == "img" and len(plot["aria-label"]) > 50 for plot in page.with_class("plot"))
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in page.with_class("scrolled"))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(heading["scope"] for heading in page.all("th"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len({*ids}) == len(ids)
    assert {label["aria-labelledby"] for _, label in page.tags if "aria-labelledby" in label} <= {*ids}


def test_every_colour_that_the_page_names_is_set_in_both_themes(page):
    (style,) = page.raw["style"]
    assert set(re.findall(r"var\(--([\w-]+)\)", style)) <= {*LIGHT, "font"}
    for theme in (LIGHT, DARK):
        assert all(f"--{name}: {value};" in style for name, value in theme.items())


def test_the_same_runs_give_the_same_page_but_for_the_commit_and_it_reads_without_any_interval(tmp_path, monkeypatch):
    pages = []
    for commit in ("0123abc", "4567def"):
        (tmp_path / commit).mkdir()
        monkeypatch.chdir(tmp_path / commit)
        monkeypatch.setattr("tasks.report.commit", lambda commit=commit: commit)
        pages.append(Read(reported([made(source="hub", rows=200, groups=4, changes={})])))
    first, later = pages
    assert first.source.replace("0123abc", "4567def") == later.source != first.source
    assert not first.with_class("banner")  # nothing is simulated
    assert "No interval was computed" in first.text
    assert "None" not in first.text


def test_gates_count_what_was_asked_over_all_places():
    records = [gate("shop", "rows", seed=seed) for seed in (1, 2)] + [gate("shop", "rows", seed=3, passed=False)]
    first, second = gates_of(records)
    assert (first["asked"], first["failures"], second["asked"]) == (3, [], 3)
    (failure,) = second["failures"]
    assert failure.startswith("shop, 3: 7 rows")
    several = [check for name in ("rows", "classes") for check in gate("shop", name)["checks"]]
    assert [row["gate"] for row in gates_of([{"checks": several}])] == ["rows", "rows", "classes", "classes"]
