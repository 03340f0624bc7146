"""The report as one HTML file that asks for nothing: styles, script, charts and their rows stand inside it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.figures.figure import DrawnFigure
from tasks.figures.style import DARK, FONT, LIGHT
from tasks.tables import TABLES
from tasks.tables.display import shown

HERE = Path(__file__).parent
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


@dataclass(frozen=True)
class DataSet:
    """One data set of the page; one that failed has no figures, and says why there are none."""

    name: str
    shown: str  # `wands (simulated)`
    gates: Sequence[Mapping[str, Any]]  # of `gates_of`
    advice: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # what to know before reading on, by what it is
    figures: Sequence[DrawnFigure] = ()
    failed: str = ""


def html(tables: Mapping[str, pl.DataFrame], data_sets: Sequence[DataSet], **parts: Any) -> str:
    """Return the page as text: `tables` by key, `data_sets`, and what a person reads before and between them.

    That is the `verdict` in words, whose first sentence is the answer, the `headline` figures of all data sets, the
    names of those `simulated`, and the `provenance` by what it is.
    """
    TEMPLATES.filters |= {"embedded": embedded}
    return TEMPLATES.get_template("page.html.jinja").render(
        parts,
        data_sets=data_sets,
        tables=[(table.place, shown(table, tables[key])) for key, table in TABLES.items()],
        colours={"light": LIGHT, "dark": DARK},
        font=FONT,
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        library=Markup(library()),  # noqa: S704 - Vega's own, as vl-convert brings it
    )


def dvc_plots_page() -> str:
    """Return the page in which DVC fills in `{plot_divs}`, with Vega inside; DVC's own would load it from a CDN."""
    script = Markup(library())  # noqa: S704 - Vega's own
    return TEMPLATES.get_template("dvc_plots.html.jinja").render(library=script) + "\n"


@cache
def library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed in one script, without an end that the page would take for its own."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def embedded(figure: DrawnFigure) -> Markup:
    """Return the figure as JSON for the script: its chart, its rows as the CSV beside the page, and their types."""
    types = {name: "number" if kind.is_numeric() else "string" for name, kind in figure.rows.schema.items()}
    content = {"spec": figure.spec, "csv": figure.rows.write_csv(), "types": types}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 - nothing in it can end the script
