"""Configuration of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(1, str(Path(__file__).parent.parent))

import relmap

project = "relmap"
author = "the authors of relmap"
version = release = relmap.__version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_copybutton",
    "evidence_tables",
    "executed_pages",
    "mathml",
    "reference_pages",
]
exclude_patterns = ["_ext", "_static", "_generated", "README.md"]
nitpicky = False
default_role = "code"  # single backticks of docstrings

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature has them; the text says what they mean
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"relmap {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"
