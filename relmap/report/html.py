"""Rendering of HTML pages that need no network: styles, scripts, charts and their data are inside the file."""

import json
import re
from functools import cache
from pathlib import Path

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from relmap.report.concepts import CONCEPTS
from relmap.report.figure import DARK, FONT, LIGHT, DrawnFigure

TEMPLATES = Path(__file__).parent / "templates"


def template_environment(*folders: Path) -> Environment:
    """Create a Jinja environment.

    Args:
        *folders: Folders with templates; the templates of the library are searched after them.

    Returns:
        The environment, with automatic escaping.
    """
    environment = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure_json"] = figure_json
    environment.filters["code"] = mark_code
    environment.globals["CONCEPTS"] = CONCEPTS
    return environment


def mark_code(text: str) -> Markup:
    """Escape a sentence, and mark up what is between backticks as code.

    Args:
        text: The sentence.

    Returns:
        HTML.
    """
    escaped = str(escape(text))  # `re.sub` of a Markup would escape the tags
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))  # noqa: S704 - the text is escaped


def render_page(template: str, *, folders: tuple[Path, ...] = (), **variables: object) -> str:
    """Render a page.

    Args:
        template: Name of a template that extends the layout.
        folders: Folders with further templates.
        **variables: Variables of the template.

    Returns:
        The page as HTML.
    """
    page = template_environment(*folders).get_template(template)
    return page.render(
        variables,
        colors={"light": LIGHT, "dark": DARK},
        font=FONT,
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=read_script("page.js"),
        vega=Markup(vega_script()),  # noqa: S704 - Vega as bundled by vl-convert, not user input
    )


def read_script(name: str) -> Markup:
    """Read a script of the library, for a script element.

    Args:
        name: Name of the file.

    Returns:
        The script, which the template does not escape.
    """
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))  # noqa: S704 - a file of this package


@cache
def vega_script() -> str:
    """Bundle Vega, Vega-Lite and Vega-Embed in one script without `</script`, which would end the script element."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def figure_json(figure: DrawnFigure) -> Markup:
    """Write a figure as JSON for the script of the page.

    Args:
        figure: The figure.

    Returns:
        JSON with the chart, its rows as CSV and the types of the columns. `<` is escaped, so that no `</script` in it
        ends the script element.
    """
    types = {}
    for column, dtype in figure.rows.schema.items():
        types[column] = "number" if dtype.is_numeric() else "string"
    content = {"spec": figure.spec, "csv": figure.rows.write_csv(), "types": types}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 - `<` is escaped
