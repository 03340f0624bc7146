"""The precision-recall curve of a score, with the thresholds that were found."""

import altair as alt
import polars as pl

from relmap.report.figure import ROWS, colour, for_print, of_kind, svg
from relmap.routing.score_thresholds import NAMES, ScoreThresholds

FONT_SIZE = 12


def precision_recall_svg(found: ScoreThresholds) -> str:
    """Draw precision by recall on all labelled rows, with a point at each threshold.

    Args:
        found: Thresholds and the curve.

    Returns:
        The figure as SVG, which needs no other file.
    """
    curve = found.curve.with_columns(kind=pl.lit("curve"), name=pl.lit(""))
    points = []
    for each in found.thresholds:
        if each.threshold is None:
            continue
        # the last point of the curve at or above the threshold
        above = curve.filter(pl.col("threshold") >= each.threshold).tail(1)
        name = f"{NAMES[each.metric]} at least {100 * each.target:g}%: {each.threshold:g}"
        points.append(above.with_columns(kind=pl.lit("threshold"), name=pl.lit(name)))
    rows = pl.concat([curve, *points])
    x = alt.X("recall:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("precision:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    line = of_kind("curve").mark_line(color=colour("mrp"), strokeWidth=2).encode(x=x, y=y, order="threshold:Q")
    colours = [colour(name) for name in ("isotonic", "platt", "other")]
    marks = (
        of_kind("threshold")
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color("name:N", scale=alt.Scale(range=colours), legend=alt.Legend(title="Threshold for")),
            shape=alt.Shape("name:N", legend=alt.Legend(title="Threshold for")),
        )
    )
    chart = alt.layer(line, marks, data=ROWS).properties(width=480, height=300, title="Precision and recall by score")
    return svg(for_print(chart, rows, size=FONT_SIZE))
