"""Figure of thresholds on a score: precision-recall curve with the thresholds."""

import altair as alt
import polars as pl

from relmap.report.figure import ROWS, css_color, layer_of_kind, print_spec, svg
from relmap.routing.score_thresholds import METRIC_NAMES, ScoreThresholds

FONT_SIZE = 12


def precision_recall_svg(found: ScoreThresholds) -> str:
    """Draw precision by recall on all labelled rows, with a point at each threshold.

    Args:
        found: Thresholds and the curve.

    Returns:
        The figure as SVG.
    """
    curve = found.curve.with_columns(kind=pl.lit("curve"), name=pl.lit(""))
    points = []
    for result in found.thresholds:
        if result.threshold is None:
            continue
        # the curve has decreasing scores: its last point at or above the threshold selects the same rows
        point = curve.filter(pl.col("threshold") >= result.threshold).tail(1)
        name = f"{METRIC_NAMES[result.metric]} at least {100 * result.target:g}%: {result.threshold:g}"
        points.append(point.with_columns(kind=pl.lit("threshold"), name=pl.lit(name)))
    rows = pl.concat([curve, *points])
    x = alt.X("recall:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("precision:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    line = layer_of_kind("curve").mark_line(color=css_color("mrp"), strokeWidth=2).encode(x=x, y=y, order="threshold:Q")
    colors = [css_color(name) for name in ("isotonic", "platt", "other")]
    marks = (
        layer_of_kind("threshold")
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color("name:N", scale=alt.Scale(range=colors), legend=alt.Legend(title="Threshold for")),
            shape=alt.Shape("name:N", legend=alt.Legend(title="Threshold for")),
        )
    )
    chart = alt.layer(line, marks, data=ROWS).properties(width=480, height=300, title="Precision and recall by score")
    return svg(print_spec(chart, rows, size=FONT_SIZE))
