"""The report page as a file: it asks for nothing, hides nothing, and nothing in the data can become part of it."""

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from tasks.figures.style import DARK, LIGHT
from tasks.page.words import gates_of
from tasks.tables import TABLES
from tasks.tables.runs import Runs, table
from tests.report_data import BETTER, gate, made, reported

HOSTILE = "</script><b>\"'&{{ 1 }}</style>"
HOSTILE_NAME = "<b>&\"'"  # a folder, too
REASON = "the gate 'unchanged rows' failed </script><b>"


class Read(HTMLParser):
    """What a browser would find: tags with their attributes, tables, and what stands in scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.told: list[str] = []
        self.tables: dict[str, int] = {}
        self._open: list[str] = []
        self._table = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag in self.raw:
            self._open.append(tag)
            self.raw[tag].append("")
        if tag == "table":
            self._table = found.get("data-csv") or ""
            self.tables.setdefault(self._table, 0)
        self._body = tag == "tbody" or (getattr(self, "_body", False) and tag != "thead")
        if tag == "tr" and self._body and found.get("class") != "heading":
            self.tables[self._table] += 1

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.raw[self._open[-1]][-1] += data
        else:
            self.told.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.told))

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [found for _, found in self.tags if name in (found.get("class") or "").split()]


def opened(place: Path) -> Read:
    return Read(place.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A page with everything: two and three labels, hostile names, one's own sets, and failed ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("report"))
        sets = [
            made("wands", rows=300, groups=30),
            made(HOSTILE_NAME, labels=(HOSTILE, "yes"), rows=300, source="hub"),
            made("few", rows=300, groups=4, changes=dict.fromkeys(BETTER), failing=True),
        ]
        return reported(sets, {"scidocs": REASON, "mine": "it was stopped"})


@pytest.fixture(scope="module")
def page(place) -> Read:
    return opened(place)


def test_a_browser_has_nothing_to_ask_for(page, place):
    fetching = {"src", "srcset", "data", "poster", "action", "formaction", "background", "manifest", "ping"}
    assert not [(tag, found) for tag, found in page.tags if fetching & set(found)]
    assert not {tag for tag, _ in page.tags} & {"link", "base", "iframe", "object", "embed", "img", "form"}
    for style in page.raw["style"]:
        assert not re.search(r"url\(|@import", style)
    assert not [found for _, found in page.tags if re.search(r"url\(", found.get("style") or "")]
    links = [found["href"] for tag, found in page.tags if tag == "a"]
    ids = {found["id"] for _, found in page.tags if "id" in found}
    for link in links:
        assert link[1:] in ids if link.startswith("#") else (place.parent / link).is_file(), link
    *charts, vega, script = page.raw["script"]
    assert "vegaEmbed" in vega
    assert "http" not in script
    assert len(charts) > 20
    for chart in charts:
        assert "http" not in re.sub(r'"\$schema":"[^"]*"', "", chart)


def test_every_table_is_there_with_every_row_of_its_csv(page, place):
    assert set(page.tables) == {key for key, entry in TABLES.items() if entry.place != "beside"} | {
        ""
    }  # the gates have no CSV
    for name in page.tables:
        if name:
            assert page.tables[name] == len(pl.read_csv(place.parent / f"{name}.csv", infer_schema=False)), name
    assert page.tables["overview"] == 5


def test_every_figure_holds_the_rows_that_its_csv_has(page, place):
    shown = iter(page.raw["script"])
    figures = [found["id"] for tag, found in page.tags if tag == "figure"]
    sizes: dict[str, int] = {}
    for figure in figures:
        content = json.loads(next(shown))
        rows = pl.read_csv(content["csv"].encode(), infer_schema=False)
        assert rows.columns == list(content["types"])
        name = figure.rsplit("-", 1)[-1]
        sizes[name] = sizes.get(name, 0) + len(rows)
    assert len(figures) == 3 * 9 + 1
    for name, size in sizes.items():
        assert size == len(pl.read_csv(place.parent / f"figures/{name}.csv", infer_schema=False)), name


def test_nothing_that_data_say_becomes_part_of_the_page(page, place):
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.text.count("</script><b>") >= 2  # the label and the reason, as they are
    assert HOSTILE in page.text
    assert f"{HOSTILE_NAME}" in page.text
    text = place.read_text(encoding="utf-8")
    # scripts end only where the page ends them
    assert text.count("</script>") == len(page.raw["script"])
    assert text.count("</style>") == len(page.raw["style"]) == 1
    found = [json.loads(script) for script in page.raw["script"][:-2]]
    assert any(HOSTILE.replace('"', '""') in one["csv"] for one in found)


def test_numbers_of_twins_are_named_as_such(page):
    (banner,) = page.with_class("banner")
    assert banner["role"] == "note"
    assert "Simulated data. wands (simulated), few (simulated) are twins" in page.text
    for chart in (json.loads(script) for script in page.raw["script"][1:-2]):
        assert re.match(
            rf"(wands \(simulated\)|few \(simulated\)|{re.escape(HOSTILE_NAME)})(,|$)", chart["spec"]["title"]
        )


def test_a_failed_set_is_named_with_its_reason_and_the_gate_that_failed(page):
    for name, reason in (("scidocs", REASON), ("mine", "it was stopped")):
        (section,) = [found for tag, found in page.tags if tag == "section" and found.get("id") == f"set-{name}"]
        assert section["class"] == "data-set"
        assert f"{name} (failed) This data set did not finish. {reason}" in page.text
    assert re.search(r"no decision changes mine, 1: 7 rows.{0,20} FAILED, 0 of 1", page.text)
    assert "1 of 2 checks failed" in page.text
    assert "without scidocs (failed) and mine (failed)" in page.text
    assert not [
        found for tag, found in page.tags if tag == "figure" and found["id"].startswith(("set-scidocs", "set-mine"))
    ]
    gates = [found for tag, found in page.tags if tag == "details"][:5]
    assert ["open" in found for found in gates] == [False, False, True, True, True]


def test_the_page_is_one_of_its_language_for_every_reader(page):
    assert ("html", {"lang": "en"}) in page.tags
    assert [tag for tag, _ in page.tags if tag in ("h1", "main", "title")] == ["title", "h1", "main"]
    assert all(found["role"] == "img" and len(found["aria-label"]) > 50 for found in page.with_class("plot"))
    regions = page.with_class("scrolled")
    assert all(found["tabindex"] == "0" and found["aria-label"] for found in regions)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(found["scope"] for tag, found in page.tags if tag == "th")
    ids = [found["id"] for _, found in page.tags if "id" in found]
    names = {*ids}
    assert len(names) == len(ids)
    assert {found["aria-labelledby"] for _, found in page.tags if "aria-labelledby" in found} <= names


def test_every_colour_that_the_page_names_is_set_in_both_themes(page):
    (style,) = page.raw["style"]
    assert set(re.findall(r"var\(--([\w-]+)\)", style)) <= {*LIGHT, "font"}
    for theme in (LIGHT, DARK):
        assert all(f"--{name}: {value};" in style for name, value in theme.items())


def test_the_same_runs_give_the_same_page_but_for_the_commit(tmp_path, monkeypatch):
    texts = []
    for commit in ("0123abc", "4567def"):
        (tmp_path / commit).mkdir()
        monkeypatch.chdir(tmp_path / commit)
        monkeypatch.setattr("tasks.report.commit", lambda told=commit: told)
        texts.append(reported([made(source="hub", rows=200, groups=20)]).read_text(encoding="utf-8"))
    first, later = texts
    assert first.replace("0123abc", "4567def") == later
    assert not Read(first).with_class("banner")  # nothing is simulated


def test_a_page_without_any_interval_still_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = opened(reported([made(rows=200, groups=4, changes={})]))
    assert "No interval was computed" in found.text
    assert "None" not in found.text


# Parts


def test_gates_count_what_was_asked_over_all_places():
    records = [gate("shop", "rows", seed=seed) for seed in (1, 2)] + [gate("shop", "rows", seed=3, held=False)]
    first, second = gates_of(records)
    assert (first.asked, first.failures, second.asked) == (3, [], 3)
    (failure,) = second.failures
    assert failure.startswith("shop, 3: 7 rows")
    checks = [check for name in ("rows", "classes") for check in gate("shop", name)["checks"]]
    several = gates_of([{"gate": "pairs", "coordinates": {}, "success": True, "checks": checks}])
    assert [expectation.gate for expectation in several] == ["rows", "rows", "classes", "classes"]


def test_a_table_that_is_registered_appears_in_every_list(tmp_path, monkeypatch):
    @table("newest", "The newest table.", "A note on it.", digits=2)
    def newest_table(runs: Runs) -> pl.DataFrame:
        return pl.DataFrame({"dataset": ["shop"], "aurc_delta": [-0.125], "source": ["hub"]})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(TABLES, "newest", newest_table)
    place = reported([made(rows=200, groups=20)])
    page = opened(place)
    assert page.tables["newest"] == 1
    assert "The newest table. (1 row)" in page.text
    assert "-0.12" in page.text
    assert {path.suffix for path in place.parent.glob("newest.*")} == {".csv", ".md", ".tex"}
    assert r"AURC$\downarrow$" in (place.parent / "newest.tex").read_text()
