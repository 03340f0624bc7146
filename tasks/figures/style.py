"""How figures look: colours by what they stand for, told apart by colour-blind readers too (Okabe and Ito, 2008).

A chart names its colours as CSS variables. The page sets these for light, dark and paper; a file that stands alone
has them written out.
"""

import json
from collections.abc import Mapping
from typing import Any

COLOURS = {  # on a light ground, on a dark one
    "ink": ("#1a1a1a", "#ececec"),
    "quiet": ("#595959", "#b4b4b4"),
    "grid": ("#e3e3e3", "#3a3d40"),
    "paper": ("#ffffff", "#17191b"),
    "bars": ("#bfc7ce", "#4d555c"),
    "confidence": ("#595959", "#b4b4b4"),
    "mrp": ("#0072b2", "#56b4e9"),
    "isotonic": ("#b87f00", "#e69f00"),
    "platt": ("#007a5a", "#1dbf91"),
    "other": ("#a8517f", "#dd93b8"),
    "fifth": ("#c24e00", "#f08a4b"),
    "sixth": ("#2a8fc7", "#f0e442"),
    "failed": ("#c02626", "#ff8a80"),
}
LIGHT, DARK = ({name: pair[theme] for name, pair in COLOURS.items()} for theme in (0, 1))
# Of the curves of labels in one panel, in turn.
LABELS = ("mrp", "isotonic", "platt", "other", "fifth", "sixth", "ink", "quiet", "failed", "bars")
FONT = "system-ui, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"

PRINT_FONT = "Liberation Sans, Arial, sans-serif"  # the first comes with vl-convert
PRINT_SYMBOLS = {"symbolSize": 40, "symbolStrokeWidth": 2, "columnPadding": 6, "rowPadding": 1}  # of a legend
POINTS = 8  # of text in a paper


def colour(name: str) -> str:
    """Return a colour of LIGHT and DARK, for either."""
    return f"var(--{name})"


def written_out(spec: Mapping[str, Any], colours: Mapping[str, str] = LIGHT) -> dict[str, Any]:
    """Return the same chart with colours in place of their names, for a file that no page surrounds."""
    text = json.dumps(spec)
    for name, value in colours.items():
        text = text.replace(colour(name), value)
    return dict(json.loads(text))


def theme(size: int = 12, *, for_print: bool = False) -> dict[str, Any]:
    """Return the part of a chart that says how it looks; `size` of text in pixels on the page, in points for print."""
    ink, quiet, grid = colour("ink"), colour("quiet"), colour("grid")
    lines = {"gridColor": grid, "domainColor": quiet, "tickColor": quiet, "tickCount": 5}
    labels = {"labelColor": quiet, "labelFontSize": size - 1, "labelOverlap": "greedy", "labelSeparation": 6}
    names = {"labelColor": ink, "titleColor": ink, "labelFontSize": size, "labelLimit": 260}
    symbols = {"symbolType": "stroke", "symbolOpacity": 1} | (PRINT_SYMBOLS if for_print else {"symbolStrokeWidth": 3})
    title = {"titleColor": ink, "titleFontSize": size, "titleFontWeight": "normal"}
    return {
        "background": "white" if for_print else "transparent",
        "font": PRINT_FONT if for_print else FONT,
        "aria": False,  # the page says what a figure shows; a name for each of a thousand dots helps nobody
        "axis": lines | labels | title | {"labelLimit": 220},
        "header": names,
        "legend": names | symbols | {"orient": "top", "title": None, "columns": 2},
        "title": {"color": quiet, "fontSize": size, "fontWeight": "normal", "anchor": "start", "offset": 6},
        "view": {"stroke": None},
    }
