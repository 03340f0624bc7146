"""The report page as a file: it asks for nothing, hides nothing, and nothing in the data can become part of it.

So do the plots of `dvc plots`: dvc.yaml names files of the report, and its templates draw them offline.
"""

import configparser
import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert
import yaml
from dvc_render.vega import VegaRenderer

from relmap.report.concepts import CONCEPTS
from tasks.page.page import CONCEPTS_OF_PAGE, gates_of
from tasks.records.store import REPORT
from tasks.tables import TABLES
from tests.report_data import BETTER, gate, made, reported, write_plotted

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / ".dvc" / "plots"
DECLARED = yaml.safe_load((ROOT / "dvc.yaml").read_text())
PLOTS = {Path(path).stem: plot | {"path": path} for plots in DECLARED["plots"] for path, plot in plots.items()}
OKABE_ITO = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"}
every_plot = pytest.mark.parametrize("name", PLOTS)
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

    def all(self, what: str) -> list[dict[str, str | None]]:
        """The attributes of every tag of that name, or of that class."""
        return [values for name, values in self.tags if what in (name, *(values.get("class") or "").split())]


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


def test_the_page_links_to_the_concepts_that_it_uses_and_defines_them(page):
    links = {attributes["href"] for attributes in page.all("a") if attributes["href"].startswith("#concept-")}
    defined = {attributes["id"] for attributes in page.all("dt") if "id" in attributes}
    assert links == {f"#{name}" for name in defined} == {f"#concept-{name}" for name in CONCEPTS_OF_PAGE}
    for name in CONCEPTS_OF_PAGE:
        assert f"{CONCEPTS[name].title} {CONCEPTS[name].definition}" in page.text
        assert f"docs/concepts/{name}" in page.text


def test_every_table_is_there_with_every_row_of_its_csv(page, place):
    tables = dict(re.findall(r'<table data-csv="(\w+)">.*?</thead>(.*?)</table>', page.source, re.DOTALL))
    assert set(tables) == {key for key, entry in TABLES.items() if entry.place != "beside"}
    for name, body in tables.items():
        assert body.count("<tr>") == len(pl.read_csv(place.parent / f"{name}.csv", infer_schema=False)), name
    assert tables["overview"].count("<tr>") == 5
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
    (banner,) = page.all("banner")
    assert banner["role"] == "note"
    assert "Simulated data. wands (simulated), few (simulated) are twins" in page.text
    names = rf"(wands \(simulated\)|few \(simulated\)|{re.escape(HOSTILE_NAME)})(,|$)"
    assert all(re.match(names, json.loads(script)["spec"]["title"]) for script in page.raw["script"][1:-2])


def test_a_failed_set_is_named_with_its_reason_and_the_gate_that_failed(page):
    for name, reason in (("scidocs", REASON), ("mine", "it was stopped")):
        assert f"set-{name}" in [section.get("id") for section in page.all("data-set")]
        assert f"{name} (failed) This data set did not finish. {reason}" in page.text
        assert not [figure for figure in page.all("figure") if figure["id"].startswith(f"set-{name}")]
    assert re.search(r"no decision changes mine, 1: 7 rows.{0,20} FAILED, 0 of 1", page.text)
    assert "1 of 2 checks failed" in page.text
    assert "without scidocs (failed) and mine (failed)" in page.text
    assert ["open" in details for details in page.all("details")[:5]] == [False, False, True, True, True]


def test_the_page_is_one_of_its_language_for_every_reader(page):
    assert page.all("html") == [{"lang": "en"}]
    assert [tag for tag, _ in page.tags if tag in ("h1", "main", "title")] == ["title", "h1", "main"]
    assert all(plot["role"] == "img" and len(plot["aria-label"]) > 50 for plot in page.all("plot"))
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in page.all("scrolled"))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(heading["scope"] for heading in page.all("th"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len({*ids}) == len(ids)
    assert {label["aria-labelledby"] for _, label in page.tags if "aria-labelledby" in label} <= {*ids}


def test_the_same_runs_give_the_same_page_but_for_the_commit_and_it_reads_without_any_interval(tmp_path, monkeypatch):
    pages = []
    for commit in ("0123abc", "4567def"):
        (tmp_path / commit).mkdir()
        monkeypatch.chdir(tmp_path / commit)
        monkeypatch.setattr("tasks.provenance.checkout.describe_commit", lambda commit=commit: commit)
        pages.append(Read(reported([made(source="hub", rows=200, groups=4, changes={})])))
    first, later = pages
    assert first.source.replace("0123abc", "4567def") == later.source != first.source
    assert not first.all("banner")  # nothing is simulated
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the report has the figures of two data sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("plots"))
        write_plotted(made("wands", rows=300))
        return Path.cwd()


def filled(name: str, folder: Path, *revisions: str) -> tuple[dict[str, Any], str]:
    """The Vega-Lite that `dvc plots` would write, which reads all as text, and its own text without data."""
    rows = pl.read_csv(folder / PLOTS[name]["path"], infer_schema=False).fill_null("").to_dicts()
    points = [row | {"rev": revision} for revision in revisions for row in rows]
    spec = VegaRenderer(points, name, template_dir=str(TEMPLATES), **PLOTS[name]).get_filled_template()
    return spec, json.dumps({key: value for key, value in spec.items() if key != "data"})


def test_metrics_are_of_the_report_and_every_plot_has_its_template_and_every_template_its_plot():
    assert DECLARED["metrics"] == [(REPORT / "metrics.json").as_posix()]
    assert {plot["template"] for plot in PLOTS.values()} == {path.stem for path in TEMPLATES.glob("*.json")}


@every_plot
def test_a_template_reads_columns_of_its_file_or_what_it_computes(name, folder):
    spec, text = filled(name, folder, "workspace")
    computed, fields = (set(re.findall(rf'"{key}": "(\w+)"', text)) for key in ("as", "field"))
    assert fields | set(re.findall(r"datum\.(\w+)", text)) <= set(spec["data"]["values"][0]) | computed
    assert {PLOTS[name]["x"], PLOTS[name]["y"]} <= fields


@pytest.mark.parametrize("revisions", [("workspace",), ("HEAD", "workspace")], ids=["show", "diff"])
@every_plot
def test_a_plot_is_drawn_with_a_panel_for_each_data_set_and_its_revisions_in_colours_that_all_can_tell(
    name, revisions, folder
):
    spec, text = filled(name, folder, *revisions)
    assert set(re.findall(r'"(#\w+)"', text)) == OKABE_ITO
    svg = vl_convert.vegalite_to_svg(spec)
    words = set(re.findall(r">([^<>]+)</text>", svg))
    assert {"wands (simulated)", "mine", *revisions, PLOTS[name]["title"]} <= words
    assert not {"NaN", "undefined", "null"} & words
    assert not re.search(r'd="[^"]*NaN', svg)
    seen = {colour.upper() for colour in re.findall("#[0-9a-fA-F]{6}", svg)}
    assert len(revisions) == 1 or {"#0072B2", "#D55E00"} <= seen


def test_the_page_holds_vega_itself_and_a_place_for_the_plots_where_dvc_finds_it(folder):
    settings = configparser.ConfigParser()
    settings.read(ROOT / ".dvc" / "config")
    place = (ROOT / ".dvc" / settings["plots"]["html_template"]).resolve()  # DVC reads it from its own folder
    page = (folder / place.relative_to(ROOT)).read_text(encoding="utf-8")
    assert page.count("{plot_divs}") == 1
    assert "{scripts}" not in page  # DVC's own, from a CDN
    assert not re.search(r"(src|href)=", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    assert "window.vegaEmbed" in page
    assert len(page) < 1_000_000
