"""Figure of a cascade: accuracy by cost, compared with the models alone and with other routing."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from relmap.report.figure import ROWS, css_color, layer_of_kind, print_spec, svg

FONT_SIZE = 12
CURVE_COLORS = ("mrp", "isotonic", "other")


def cost_accuracy_svg(numbers: Mapping[str, Any]) -> str:
    """Draw the accuracy of the final decisions by the mean cost of a row.

    Args:
        numbers: Numbers of the summary of a cascade.

    Returns:
        The figure as SVG.
    """
    rows = []
    for name, curve in numbers["curves"].items():
        rows += [{"kind": "curve", "name": name, **point} for point in curve]
    for name, point in numbers["alone"].items():
        rows.append({"kind": "alone", "name": name, **point})
    if numbers["chosen"] is not None:
        chosen = {key: numbers["chosen"][key] for key in ("cost", "accuracy")}
        rows.append({"kind": "chosen", "name": "the cascade", **chosen})
    x = alt.X("cost:Q", title="mean cost of a row")
    y = alt.Y("accuracy:Q", title="correct final decisions", axis=alt.Axis(format="%"), scale=alt.Scale(zero=False))
    names = list(numbers["curves"])
    colors = [css_color(color) for color in CURVE_COLORS][: len(names)]
    color = alt.Color("name:N", scale=alt.Scale(domain=names, range=colors), legend=alt.Legend(title=None))
    lines = layer_of_kind("curve").mark_line(strokeWidth=2).encode(x=x, y=y, color=color, order="cost:Q")
    marks = layer_of_kind("alone").mark_point(filled=True, size=60, opacity=1, color=css_color("ink")).encode(x=x, y=y)
    texts = layer_of_kind("alone").mark_text(align="left", dx=8, color=css_color("ink")).encode(x=x, y=y, text="name:N")
    star = (
        layer_of_kind("chosen")
        .mark_point(filled=True, shape="diamond", size=160, opacity=1, color=css_color("mrp"))
        .encode(x=x, y=y)
    )
    title = "Accuracy by cost on the rows that only tested the thresholds; the diamond is the chosen cascade"
    chart = alt.layer(lines, marks, texts, star, data=ROWS).properties(width=480, height=300, title=title)
    return svg(print_spec(chart, pl.DataFrame(rows), size=FONT_SIZE))
