"""The report page as a file: it loads nothing, shows everything, and data cannot inject HTML.

The same holds for the plots of `dvc plots`: dvc.yaml names files of the report, and its templates work offline.
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
from tasks.page.page import CONCEPTS_OF_PAGE, summarize_gates
from tasks.records.store import REPORT
from tasks.tables import TABLES
from tests.report_data import IMPROVEMENTS, make_gate, make_results, write_dvc_plots, write_report

ROOT = Path(__file__).resolve().parents[2]
PLOT_TEMPLATES = ROOT / ".dvc" / "plots"
DVC_YAML = yaml.safe_load((ROOT / "dvc.yaml").read_text())
PLOTS = {Path(path).stem: plot | {"path": path} for plots in DVC_YAML["plots"] for path, plot in plots.items()}
OKABE_ITO = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"}
HOSTILE_LABEL = "</script><b>\"'&{{ 1 }}</style>"
HOSTILE_NAME = "<b>&\"'"  # also the name of a folder
HOSTILE_REASON = "the gate 'unchanged rows' failed </script><b>"
N_SHARED_SCRIPTS = 2  # at the end of the page: Vega, and the script that draws the charts
every_plot = pytest.mark.parametrize("name", PLOTS)


class ParsedPage(HTMLParser):
    """Tags, text, scripts and styles of an HTML file.

    Attributes:
        source: Content of the file.
        tags: Name and attributes of each tag.
        raw: Content of each script and style.
        text: Text outside of scripts and styles, with single spaces.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.text = ""
        self.feed(self.source)
        self.text = re.sub(r"\s+", " ", self.text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:  # inside a script or a style
            self.raw[self.cdata_elem][-1] += data
        else:
            self.text += f" {data}"

    def select(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of every tag with this name or class."""
        return [
            attributes
            for tag, attributes in self.tags
            if tag == name or name in (attributes.get("class") or "").split()
        ]

    @property
    def ids(self) -> list[str | None]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    @property
    def charts(self) -> list[Any]:
        """Content of the chart scripts."""
        return [json.loads(script) for script in self.raw["script"][:-N_SHARED_SCRIPTS]]


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """A page with two and three labels, hostile names, own data sets and failed data sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("report"))
        datasets = [
            make_results("wands", rows=300, groups=30),
            make_results(
                HOSTILE_NAME,
                labels=(HOSTILE_LABEL, "yes"),
                rows=300,
                source="hub",
                calibrators=("uncal", "ts", "spline"),
            ),
            make_results("few", rows=300, groups=4, changes=dict.fromkeys(IMPROVEMENTS), failing=True),
        ]
        return write_report(datasets, {"scidocs": HOSTILE_REASON, "mine": "it was stopped"})


@pytest.fixture(scope="module")
def page(path) -> ParsedPage:
    return ParsedPage(path)


def test_the_page_loads_nothing(page):
    loading = {"src", "srcset", "data", "poster", "action", "formaction", "background", "manifest", "ping"}
    assert not [tag for tag, attributes in page.tags if loading & set(attributes)]
    assert not {tag for tag, _ in page.tags} & {"link", "base", "iframe", "object", "embed", "img", "form"}
    styles = [*page.raw["style"], *(attributes.get("style") or "" for _, attributes in page.tags)]
    assert not re.search(r"url\(|@import", "".join(styles))
    *charts, vega, script = page.raw["script"]
    assert "vegaEmbed" in vega
    assert "http" not in script
    assert len(charts) > 20
    assert not [chart for chart in charts if "http" in re.sub(r'"\$schema":"[^"]*"', "", chart)]


def test_links_lead_to_the_page_itself_or_to_files_of_the_report(page, path):
    for attributes in page.select("a"):
        link = attributes["href"]
        if link.startswith("#"):
            assert link[1:] in page.ids, link
        else:
            assert (path.parent / link).is_file(), link


def test_the_page_links_to_the_concepts_that_it_uses_and_defines_them(page):
    links = {attributes["href"] for attributes in page.select("a") if attributes["href"].startswith("#concept-")}
    defined = {attributes["id"] for attributes in page.select("dt") if "id" in attributes}
    assert links == {f"#{name}" for name in defined} == {f"#concept-{name}" for name in CONCEPTS_OF_PAGE}
    for name in CONCEPTS_OF_PAGE:
        assert f"{CONCEPTS[name].title} {CONCEPTS[name].definition}" in page.text
        assert f"docs/concepts/{name}" in page.text


def test_every_table_has_every_row_of_its_csv(page, path):
    tables = dict(re.findall(r'<table data-csv="(\w+)">.*?</thead>(.*?)</table>', page.source, re.DOTALL))
    assert set(tables) == {key for key, table in TABLES.items() if table.placement != "link"}
    for name, body in tables.items():
        assert body.count("<tr>") == len(pl.read_csv(path.parent / f"{name}.csv", infer_schema=False)), name
    assert tables["overview"].count("<tr>") == 5


def test_every_data_set_has_its_own_calibrators_in_the_main_table(path):
    rows = pl.read_csv(path.parent / "main.csv").group_by("dataset").agg("calibrator")
    calibrators = dict(rows.iter_rows())
    assert calibrators[HOSTILE_NAME] == ["uncal", "ts", "spline"]
    assert calibrators["few"] == ["uncal", "ts"]


def test_every_figure_has_the_rows_of_its_csv(page, path):
    ids = [attributes["id"] for attributes in page.select("figure")]
    n_rows: Counter[str] = Counter()
    for figure_id, chart in zip(ids, page.charts, strict=True):
        rows = pl.read_csv(chart["csv"].encode(), infer_schema=False)
        assert rows.columns == list(chart["types"])
        n_rows[figure_id.rsplit("-", 1)[-1]] += len(rows)
    assert len(ids) == 3 * 9 + 1
    for name, count in n_rows.items():
        assert count == len(pl.read_csv(path.parent / f"figures/{name}.csv", infer_schema=False)), name


def test_data_cannot_inject_html(page):
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.text.count("</script><b>") >= 2  # the label and the reason, as text
    assert HOSTILE_LABEL in page.text
    assert HOSTILE_NAME in page.text
    assert page.source.count("</script>") == len(page.raw["script"])
    assert page.source.count("</style>") == len(page.raw["style"]) == 1
    assert any(HOSTILE_LABEL.replace('"', '""') in chart["csv"] for chart in page.charts)


def test_results_of_simulated_data_are_marked(page):
    (banner,) = page.select("banner")
    assert banner["role"] == "note"
    assert re.search(r"Simulated data\. wands \(simulated\), few \(simulated\) are ", page.text)
    names = rf"(wands \(simulated\)|few \(simulated\)|{re.escape(HOSTILE_NAME)})(,|$)"
    _, *others = page.charts  # the first one shows all data sets
    assert all(re.match(names, chart["spec"]["title"]) for chart in others)


@pytest.mark.parametrize(("name", "reason"), [("scidocs", HOSTILE_REASON), ("mine", "it was stopped")])
def test_a_failed_data_set_is_shown_with_its_reason_and_without_figures(page, name, reason):
    assert f"set-{name}" in [section.get("id") for section in page.select("data-set")]
    assert re.search(rf"{name} \(failed\) [^.]*did not finish\. {re.escape(reason)}", page.text)
    assert not [figure for figure in page.select("figure") if figure["id"].startswith(f"set-{name}")]


def test_failed_gates_are_shown_open(page):
    assert re.search(r"no decision changes mine, 1: 7 rows.{0,20} FAILED: 1 of 1", page.text)
    assert "1 of 2 checks failed" in page.text
    assert re.search(r"Not in .*: scidocs \(failed\) and mine \(failed\)\.", page.text)
    is_open = ["open" in details for details in page.select("details")[:5]]
    assert is_open == [False, False, True, True, True]


def test_the_page_is_accessible(page):
    tags = [tag for tag, _ in page.tags]
    assert page.select("html") == [{"lang": "en"}]
    assert [tag for tag in tags if tag in ("h1", "main", "title")] == ["title", "h1", "main"]
    for plot in page.select("plot"):
        assert plot["role"] == "img"
        assert len(plot["aria-label"]) > 50
    for region in page.select("scrolled"):
        assert region["tabindex"] == "0"
        assert region["aria-label"]
    for heading in page.select("th"):
        assert heading["scope"]
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    for before, after in pairwise(levels):
        assert after <= before + 1  # no level is skipped
    assert len(set(page.ids)) == len(page.ids)
    referenced_ids = {attributes["aria-labelledby"] for _, attributes in page.tags if "aria-labelledby" in attributes}
    assert referenced_ids <= set(page.ids)


@pytest.fixture
def pages_of_two_commits(tmp_path, monkeypatch) -> list[ParsedPage]:
    """Pages of the same real data without intervals."""
    pages = []
    for commit in ("0123abc", "4567def"):
        (tmp_path / commit).mkdir()
        monkeypatch.chdir(tmp_path / commit)
        monkeypatch.setattr("tasks.provenance.checkout.describe_commit", lambda commit=commit: commit)
        pages.append(ParsedPage(write_report([make_results(source="hub", rows=200, groups=4, changes={})])))
    return pages


def test_pages_of_the_same_results_differ_in_the_commit_only(pages_of_two_commits):
    first, second = pages_of_two_commits
    assert first.source != second.source
    assert first.source.replace("0123abc", "4567def") == second.source


def test_a_page_without_intervals_and_simulated_data_has_no_comparison_and_no_banner(pages_of_two_commits):
    first, _ = pages_of_two_commits
    assert not first.select("banner")
    assert "No interval" in first.text
    assert "None" not in first.text


def test_gates_are_counted_over_all_places():
    records = [make_gate("shop", "rows", seed=1), make_gate("shop", "rows", seed=2)]
    records.append(make_gate("shop", "rows", seed=3, passed=False))
    first, second = summarize_gates(records)
    assert first.n_checks == 3
    assert first.failures == ()
    assert second.n_checks == 3
    (failure,) = second.failures
    assert failure.startswith("shop, 3: 7 rows")


def test_gates_are_in_the_order_of_their_first_check():
    checks = [*make_gate("shop", "rows")["checks"], *make_gate("shop", "classes")["checks"]]
    assert [gate.gate for gate in summarize_gates([{"checks": checks}])] == ["rows", "rows", "classes", "classes"]


@pytest.fixture(scope="module")
def plots_folder(tmp_path_factory) -> Path:
    """A folder with the figures of two data sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("plots"))
        write_dvc_plots(make_results("wands", rows=300))
        return Path.cwd()


def fill_template(name: str, folder: Path, *revisions: str) -> dict[str, Any]:
    """Return the Vega-Lite that `dvc plots` makes of a plot; it reads all values as text."""
    rows = pl.read_csv(folder / PLOTS[name]["path"], infer_schema=False).fill_null("").to_dicts()
    points = [row | {"rev": revision} for revision in revisions for row in rows]
    return VegaRenderer(points, name, template_dir=str(PLOT_TEMPLATES), **PLOTS[name]).get_filled_template()


def text_without_data(spec: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in spec.items() if key != "data"})


def test_dvc_yaml_names_the_metrics_of_the_report_and_a_template_for_each_plot():
    assert DVC_YAML["metrics"] == [(REPORT / "metrics.json").as_posix()]
    assert {plot["template"] for plot in PLOTS.values()} == {path.stem for path in PLOT_TEMPLATES.glob("*.json")}


@every_plot
def test_a_template_uses_only_columns_of_its_file_and_computed_ones(name, plots_folder):
    spec = fill_template(name, plots_folder, "workspace")
    text = text_without_data(spec)
    computed = set(re.findall(r'"as": "(\w+)"', text))
    fields = set(re.findall(r'"field": "(\w+)"', text))
    columns = set(spec["data"]["values"][0])
    assert fields | set(re.findall(r"datum\.(\w+)", text)) <= columns | computed
    assert {PLOTS[name]["x"], PLOTS[name]["y"]} <= fields


@pytest.mark.parametrize("revisions", [("workspace",), ("HEAD", "workspace")], ids=["show", "diff"])
@every_plot
def test_a_plot_has_a_panel_for_each_data_set_and_distinguishable_colors(name, revisions, plots_folder):
    spec = fill_template(name, plots_folder, *revisions)
    assert set(re.findall(r'"(#\w+)"', text_without_data(spec))) == OKABE_ITO
    svg = vl_convert.vegalite_to_svg(spec)
    texts = set(re.findall(r">([^<>]+)</text>", svg))
    assert {"wands (simulated)", "mine", *revisions, PLOTS[name]["title"]} <= texts
    assert not {"NaN", "undefined", "null"} & texts
    assert not re.search(r'd="[^"]*NaN', svg)
    colors = {color.upper() for color in re.findall("#[0-9a-fA-F]{6}", svg)}
    assert len(revisions) == 1 or {"#0072B2", "#D55E00"} <= colors


def test_the_page_of_dvc_plots_contains_vega_and_the_placeholder_of_the_plots(plots_folder):
    settings = configparser.ConfigParser()
    settings.read(ROOT / ".dvc" / "config")
    path = (ROOT / ".dvc" / settings["plots"]["html_template"]).resolve()  # relative to the folder of DVC
    page = (plots_folder / path.relative_to(ROOT)).read_text(encoding="utf-8")
    assert page.count("{plot_divs}") == 1
    assert "{scripts}" not in page  # DVC replaces it with scripts from a CDN
    assert not re.search(r"(src|href)=", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    assert page.endswith("<plaintext>{plot_divs}\n")  # after it, a browser runs nothing
    assert "window.vegaEmbed" in page
    assert len(page) < 1_000_000
