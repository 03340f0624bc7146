"""Sphinx extension: formulas as MathML, which browsers show without a script or a font from elsewhere."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def inline_formula(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula inside a sentence."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed_formula(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
