"""The report as one HTML file that asks for nothing: styles, script, charts and their rows stand inside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import polars as pl
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.figures.figure import Figure
from tasks.figures.style import DARK, FONT, LIGHT
from tasks.page.gates import Gates
from tasks.tables.display import Section, columns_shown, note, sections
from tasks.tables.layouts import LAYOUTS

FIRST_TABLE = "overview"
TABLES = (  # below the data sets; `sensitivity` has thousands of rows, and stands beside the page
    *("main", "intervals", "ablation", "ablation_by_dataset", "budgeted_fallback", "label_spread"),
    *("label_spread_by_calibrator", "simplex_projection", "rivals", "robustness", "datasets"),
)
COMPARISON = "verdict"
BESIDE = ("sensitivity",)


@dataclass(frozen=True)
class DataSet:
    """One data set of the page; one that failed has no figures, and says why there are none."""

    name: str
    shown: str  # `wands (simulated)`
    advice: str
    facts: Mapping[str, str]  # what to know before reading on, by what it is
    figures: Sequence[Figure] = ()
    gates: Gates = field(default_factory=Gates)
    failed: str = ""


@dataclass(frozen=True)
class Page:
    """What a person finds in the report."""

    verdict: Sequence[str]  # in words; the first sentence is the answer
    simulated: Sequence[str]  # data sets of our own making
    headline: Figure
    tables: Mapping[str, pl.DataFrame]
    data_sets: Sequence[DataSet]
    provenance: Mapping[str, str]


def html(page: Page) -> str:
    """The page as text."""
    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"embedded": embedded}
    return environment.get_template("page.html.jinja").render(
        page=page,
        first=shown_table(FIRST_TABLE, page.tables[FIRST_TABLE]),
        tables=[shown_table(name, page.tables[name]) for name in TABLES],
        comparison=shown_table(COMPARISON, page.tables[COMPARISON]),
        beside=[(name, LAYOUTS[name].caption, len(page.tables[name])) for name in BESIDE],
        colours={"light": LIGHT, "dark": DARK},
        font=FONT,
        style=(here / "page.css").read_text(encoding="utf-8"),
        script=Markup((here / "page.js").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        library=Markup(library()),  # noqa: S704 - Vega's own, as vl-convert brings it
    )


@cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, without an end that the page would take for its own."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


@dataclass(frozen=True)
class ShownTable:
    """A table as people read it."""

    name: str
    caption: str
    note: str
    header: list[str]
    sections: list[Section]
    rows: int


def shown_table(name: str, table: pl.DataFrame) -> ShownTable:
    """The table `name`, rounded; every row of its CSV is there."""
    header = [column.replace("_", " ") for column in columns_shown(table)]
    return ShownTable(name, LAYOUTS[name].caption, note(name, table), header, sections(name, table), len(table))


def embedded(figure: Figure) -> Markup:
    """The figure as JSON for the script: its chart, its rows as the CSV that is beside the page, and their types."""
    types = {name: "number" if kind.is_numeric() else "string" for name, kind in figure.rows.schema.items()}
    content = {"spec": figure.spec, "csv": figure.rows.write_csv(), "types": types}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 - nothing in it can end the script
