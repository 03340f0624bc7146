"""What dvc.yaml says of metrics and plots: its files are those of the report, and its templates draw them offline."""

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vl_convert
import yaml
from dvc_render.vega import VegaRenderer

from tasks.figures import figures_of
from tasks.page.page import dvc_plots_page
from tasks.protocol.store import REPORT
from tests.report_data import made

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / ".dvc" / "plots"
DECLARED = yaml.safe_load((ROOT / "dvc.yaml").read_text())
PLOTS: dict[str, dict[str, Any]] = {
    Path(path).stem: plot | {"path": path} for one in DECLARED["plots"] for path, plot in one.items()
}
OKABE_ITO = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"}


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, str]]]:
    """The rows of each plotted CSV as DVC reads them, which is as text, of two data sets."""
    sets = [made("wands").results(), made("mine", source="files").results()]
    figures = [(results.shown, figure) for results in sets for figure in figures_of(results) if figure.name in PLOTS]
    found: dict[str, list[dict[str, str]]] = {name: [] for name in PLOTS}
    for shown, figure in figures:
        for row in figure.rows.iter_rows(named=True):
            found[figure.name].append(
                {"dataset": shown} | {key: "" if at is None else str(at) for key, at in row.items()}
            )
    return found


def filled(name: str, rows: list[dict[str, str]], revisions: tuple[str, ...]) -> dict[str, Any]:
    """The Vega-Lite that `dvc plots` would write."""
    points = [row | {"rev": revision} for revision in revisions for row in rows]
    return VegaRenderer(points, name, template_dir=str(TEMPLATES), **PLOTS[name]).get_filled_template()


def parts(spec: Any) -> Iterator[dict[str, Any]]:
    """Every object within a specification but for its data."""
    if isinstance(spec, dict):
        yield spec
        for name, inner in spec.items():
            if name != "data":
                yield from parts(inner)
    elif isinstance(spec, list):
        for inner in spec:
            yield from parts(inner)


def test_metrics_and_plots_are_files_of_the_report():
    assert DECLARED["metrics"] == [(REPORT / "metrics.json").as_posix()]
    for name, plot in PLOTS.items():
        assert plot["path"] == (REPORT / "figures" / f"{name}.csv").as_posix()


def test_every_plot_has_its_template_and_every_template_its_plot():
    assert {plot["template"] for plot in PLOTS.values()} == {path.stem for path in TEMPLATES.glob("*")}
    assert all((TEMPLATES / f"{plot['template']}.json").is_file() for plot in PLOTS.values())


@pytest.mark.parametrize("name", PLOTS)
def test_a_template_reads_columns_of_its_file_or_what_it_computes(name, rows):
    spec = filled(name, rows[name], ("workspace",))
    computed = {part["as"] for part in parts(spec) if isinstance(part.get("as"), str)}
    fields = {part["field"] for part in parts(spec) if isinstance(part.get("field"), str)}
    read = set(
        re.findall(r"datum\.(\w+)", json.dumps([part.get("calculate") or part.get("filter") for part in parts(spec)]))
    )
    assert fields | read <= set(rows[name][0]) | computed | {"rev"}
    assert {PLOTS[name]["x"], PLOTS[name]["y"]} <= fields


@pytest.mark.parametrize("revisions", [("workspace",), ("HEAD", "workspace")], ids=["show", "diff"])
@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_drawn_with_a_panel_for_each_data_set_and_its_revisions(name, revisions, rows):
    svg = vl_convert.vegalite_to_svg(filled(name, rows[name], revisions))
    words = set(re.findall(r">([^<>]+)</text>", svg))
    assert {"wands (simulated)", "mine", *revisions, PLOTS[name]["title"]} <= words
    assert not {"NaN", "undefined", "null"} & words
    assert not re.search(r'd="[^"]*NaN', svg)


@pytest.mark.parametrize("name", PLOTS)
def test_colours_tell_revisions_apart_in_a_palette_that_colour_blind_people_can_read(name, rows):
    assert {
        colour
        for part in parts(filled(name, rows[name], ("a",)))
        if "color" in part and isinstance(part["color"], dict)
        for colour in part["color"]["scale"]["range"]
    } == OKABE_ITO
    svg = vl_convert.vegalite_to_svg(filled(name, rows[name], ("a", "b")))
    assert {"#0072B2", "#D55E00"} <= {colour.upper() for colour in re.findall("#[0-9a-fA-F]{6}", svg)}


def test_the_page_holds_vega_itself_and_a_place_for_the_plots():
    page = dvc_plots_page()
    assert page.count("{plot_divs}") == 1
    assert "{scripts}" not in page  # DVC's own, from a CDN
    assert not re.search(r"(src|href)=", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL))
    assert "window.vegaEmbed" in page
    assert len(page) < 1_000_000


def test_dvc_finds_the_page_in_the_report():
    settings = configparser.ConfigParser()
    settings.read(ROOT / ".dvc" / "config")
    place = (ROOT / ".dvc" / settings["plots"]["html_template"]).resolve()  # DVC reads it from its own folder
    assert place == ROOT / REPORT / "figures" / "dvc_plots.html"
