"""What dvc.yaml says of metrics and plots: its files are those of the report, and its templates draw them offline."""

import configparser
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert
import yaml
from dvc_render.vega import VegaRenderer

from tasks.protocol.store import REPORT
from tests.report_data import made, write_plotted

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / ".dvc" / "plots"
DECLARED = yaml.safe_load((ROOT / "dvc.yaml").read_text())
PLOTS: dict[str, dict[str, Any]] = {
    Path(path).stem: plot | {"path": path} for plots in DECLARED["plots"] for path, plot in plots.items()
}
OKABE_ITO = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"}
every_plot = pytest.mark.parametrize("name", PLOTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the report has the figures of two data sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("plots"))
        write_plotted(made("wands", rows=300))
        return Path.cwd()


@pytest.fixture(scope="module")
def rows(folder) -> dict[str, list[dict[str, str]]]:
    """The rows of each plotted CSV as DVC reads them, which is as text."""
    frames = {name: pl.read_csv(folder / plot["path"], infer_schema=False) for name, plot in PLOTS.items()}
    return {name: frame.fill_null("").to_dicts() for name, frame in frames.items()}


def filled(name: str, rows: list[dict[str, str]], revisions: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """The Vega-Lite that `dvc plots` would write, and its text without data."""
    points = [row | {"rev": revision} for revision in revisions for row in rows]
    spec = VegaRenderer(points, name, template_dir=str(TEMPLATES), **PLOTS[name]).get_filled_template()
    return spec, json.dumps({key: value for key, value in spec.items() if key != "data"})


def test_metrics_are_of_the_report_and_every_plot_has_its_template_and_every_template_its_plot():
    assert DECLARED["metrics"] == [(REPORT / "metrics.json").as_posix()]
    assert {plot["template"] for plot in PLOTS.values()} == {path.stem for path in TEMPLATES.glob("*.json")}


@every_plot
def test_a_template_reads_columns_of_its_file_or_what_it_computes(name, rows):
    _, text = filled(name, rows[name], ("workspace",))
    computed, fields = (set(re.findall(rf'"{key}": "(\w+)"', text)) for key in ("as", "field"))
    assert fields | set(re.findall(r"datum\.(\w+)", text)) <= set(rows[name][0]) | computed | {"rev"}
    assert {PLOTS[name]["x"], PLOTS[name]["y"]} <= fields


@pytest.mark.parametrize("revisions", [("workspace",), ("HEAD", "workspace")], ids=["show", "diff"])
@every_plot
def test_a_plot_is_drawn_with_a_panel_for_each_data_set_and_its_revisions_in_colours_that_all_can_tell(
    name, revisions, rows
):
    spec, text = filled(name, rows[name], revisions)
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
