"""Sphinx extension: run the code of each page while it is read, and show its output and figures."""

import re
from pathlib import Path

from page_code import run_page
from sphinx.application import Sphinx


def run_code(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the text of a page by the text with outputs; figures go to a generated folder."""
    page = Path(app.srcdir) / f"{name}.md"
    if not page.exists() or name.startswith("reference/generated/"):
        return
    figures = f"_generated/{name.replace('/', '-')}"
    shown = run_page(page, Path(app.srcdir) / figures)
    text = shown.text
    for figure in shown.figures:
        text = re.sub(rf"\]\({re.escape(figure)}\)", f"](/{figures}/{figure})", text)
    source[0] = text


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("source-read", run_code)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
