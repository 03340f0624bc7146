"""Render pages that need no network: styles, script, charts and their rows are inside the file."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from relmap.report.concepts import CONCEPTS
from relmap.report.figure import DARK, FONT, LIGHT, DrawnFigure

TEMPLATES = Path(__file__).parent / "templates"


def environment(*folders: Path) -> Environment:
    """Return an environment that finds templates in `folders`, then among those of the library."""
    made = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["embedded"] = embedded
    made.globals["CONCEPTS"] = CONCEPTS
    return made


def rendered(template: str, *parts: Mapping[str, Any], folders: tuple[Path, ...] = (), **more: Any) -> str:
    """Return the page of a template that extends the layout, as text."""
    return (
        environment(*folders)
        .get_template(template)
        .render(
            *parts,
            **more,
            colours={"light": LIGHT, "dark": DARK},
            font=FONT,
            style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
            script=script("page.js"),
            library=Markup(library()),  # noqa: S704 - Vega's own, as vl-convert brings it
        )
    )


def script(name: str) -> Markup:
    """Return a script of the templates, to place in a script element.

    Args:
        name: Name of its file.
    """
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))  # noqa: S704 - a file of this package


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
