"""Figure of thresholds on a score: precision-recall curves with the thresholds."""

import altair as alt
import polars as pl

from relmap.report.figure import LABEL_COLORS, ROWS, css_color, layer_of_kind, print_spec, svg
from relmap.routing.score_thresholds import METRIC_NAMES, GradeThresholds, ScoreThresholds, format_threshold

FONT_SIZE = 12
TITLE = "Precision and recall by score"


def precision_recall_svg(found: ScoreThresholds | GradeThresholds) -> str:
    """Draw precision by recall on all labelled rows, with a point at each threshold.

    Args:
        found: Thresholds and the curve; or those of each border between grades.

    Returns:
        The figure as SVG.
    """
    x = alt.X("recall:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("precision:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    line = layer_of_kind("curve").mark_line(color=css_color("mrp"), strokeWidth=2).encode(x=x, y=y, order="threshold:Q")
    marks = layer_of_kind("threshold").mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y)
    colors = alt.Scale(range=[css_color(name) for name in LABEL_COLORS[1:]])
    legend = alt.Legend(title="Threshold for")
    if isinstance(found, ScoreThresholds):
        rows = _curve_rows(found, "")
        marks = marks.encode(
            color=alt.Color("name:N", scale=colors, legend=legend), shape=alt.Shape("name:N", legend=legend)
        )
    else:
        parts = []
        for grade, border in zip(found.grades[1:], found.borders, strict=True):
            parts.append(_curve_rows(border, f"at least {grade}"))
        rows = pl.concat(parts)
        color = alt.Color("border:N", scale=colors, sort=None, legend=alt.Legend(title="Grade"))
        line = line.encode(color=color)
        marks = marks.encode(color=color, shape=alt.Shape("metric:N", legend=legend))
    chart = alt.layer(line, marks, data=ROWS).properties(width=480, height=300, title=TITLE)
    return svg(print_spec(chart, rows, size=FONT_SIZE))


def _curve_rows(found: ScoreThresholds, border: str) -> pl.DataFrame:
    """Return the points of the curve, and a row for each threshold."""
    curve = found.curve.with_columns(kind=pl.lit("curve"), name=pl.lit(""), metric=pl.lit(""), border=pl.lit(border))
    points = []
    for result in found.thresholds:
        if result.threshold is None:
            continue
        # the curve has decreasing scores: its last point at or above the threshold selects the same rows
        point = curve.filter(pl.col("threshold") >= result.threshold).tail(1)
        metric = f"{METRIC_NAMES[result.metric]} at least {100 * result.target:g}%"
        points.append(
            point.with_columns(
                kind=pl.lit("threshold"),
                name=pl.lit(f"{metric}: {format_threshold(result.threshold)}"),
                metric=pl.lit(metric),
            )
        )
    return pl.concat([curve, *points])
