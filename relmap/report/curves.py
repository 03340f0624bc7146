"""Figures by decided label: curves of a map, and reliability diagrams."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl

from relmap.metrics.intervals import share_confidence_interval
from relmap.projection.registry import VARIANTS
from relmap.report.figure import (
    FEW_ROWS,
    ROWS,
    Drawing,
    Results,
    css_color,
    figure,
    layer_of_kind,
    page_spec,
    tooltips,
    variant_color,
)

N_BARS = 20
MAX_BAR_HEIGHT = 0.18  # share of the height of the panel
N_BINS = 8  # bins of the accuracy, with equal numbers of rows
MIN_BIN_ROWS = 20
N_COLUMNS = 3
PANEL_WIDTH = 220
PANEL_HEIGHT = 190

PanelRows = list[dict[str, Any]]  # rows with some of the columns of SCHEMA
SCHEMA = pl.Schema(
    {
        "label": pl.String,
        "panel": pl.String,
        "kind": pl.String,
        "seed": pl.Int64,
        "confidence": pl.Float64,
        "reliability": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "to": pl.Float64,
        "rows": pl.Int64,
    }
)


class MapCurves(NamedTuple):
    """Data of the figure of a map.

    Attributes:
        results: Labelled rows and their scores.
        curves: Curve of each label, with columns `confidence` and `reliability`.
    """

    results: Results
    curves: Sequence[pl.DataFrame]


@figure(
    "map_curves",
    "The curves of the map",
    "One panel for each predicted label. Blue curve: the reliability that the map gives at a calibrated confidence. "
    "Dashed line: reliability equal to the confidence. Dots: accuracy of the rows in up to eight bins of equal size, "
    "with 95% intervals that assume independent rows. Bars: distribution of the rows. If the map uses more than the "
    "confidence, the curve is the mean reliability of groups of rows.",
)
def map_curves(source: MapCurves) -> Drawing:
    """Draw the curve of each label with labelled rows."""
    results = source.results
    scored = results.scored_rows(results.seeds[0])
    min_confidence = results.min_confidence()
    panels = []
    labels_and_curves = zip(results.labels, source.curves, strict=True)
    for index, (label, curve) in enumerate(labels_and_curves):
        label_rows = scored.filter(pl.col("decision") == index)
        rows_by_kind = {
            "curve": curve.filter(pl.col("confidence") >= min_confidence).to_dicts(),
            "rows": binned_accuracy(label_rows["confidence"], label_rows["correct"]),
            "histogram": histogram_bars(label_rows["confidence"], min_confidence),
        }
        heading = f"{panel_name(label)}\n{len(label_rows):,} rows"
        panels.append(panel_rows(label, heading, min_confidence, rows_by_kind))
    rows = pl.concat(panels).drop("seed")
    curve_line = layer_of_kind("curve").mark_line(color=css_color("mrp"), strokeWidth=2)
    layers = [
        bar_layer(),
        identity_line(),
        curve_line.encode(x="confidence:Q", y="reliability:Q"),
        *dot_layers("rows", css_color("fifth")),
    ]
    return Drawing(rows, panels_spec(rows, layers, min_confidence, results))


@figure(
    "reliability_by_label",
    "Are the probabilities right for each predicted label?",
    "Grey: the confidence. In color: the reliability. Dots: accuracy of the rows in up to eight bins of "
    "equal size, with 95% intervals that assume independent rows. On the dashed line the accuracy equals the "
    "probability; below it the probability is too high. If the confidence is too high for one label and too low for "
    "another, calibration on average does not show it.",
)
def reliability_by_label(results: Results) -> Drawing:
    """Draw reliability diagrams of the confidence and of the reliability, for each predicted label."""
    scored = results.scored_rows(results.seeds[0])
    lowest_reliability = np.min(scored["reliability"].to_numpy())
    rounded_down = np.floor(10 * lowest_reliability) / 10
    min_probability = float(min(results.min_confidence(), rounded_down))
    column_of_variant = {"confidence": "confidence", results.variant: "reliability"}
    panels = []
    for index, label in enumerate(results.labels):
        label_rows = scored.filter(pl.col("decision") == index)
        rows_by_kind = {}
        for variant, column in column_of_variant.items():
            rows_by_kind[VARIANTS[variant].title] = binned_accuracy(label_rows[column], label_rows["correct"])
        fit_note = f" ({FEW_ROWS} in the fit)" if label in results.labels_with_few_rows else ""
        dot_note = "\ntoo few for a dot" if len(label_rows) < MIN_BIN_ROWS else ""
        heading = f"{panel_name(label)}{fit_note}\n{len(label_rows):,} rows{dot_note}"
        panels.append(panel_rows(label, heading, min_probability, rows_by_kind))
    layers = [identity_line()]
    for variant in column_of_variant:
        title = VARIANTS[variant].title
        line = layer_of_kind(title).mark_line(color=variant_color(variant))
        layers.append(line.encode(x="confidence:Q", y="reliability:Q"))
        layers += dot_layers(title, variant_color(variant))
    rows = pl.concat(panels).drop("seed", "to")
    note = "First protocol seed." if len(results.seeds) > 1 else ""
    return Drawing(rows, panels_spec(rows, layers, min_probability, results, x_title="estimated probability"), note)


def binned_accuracy(probability: pl.Series, correct: pl.Series) -> PanelRows:
    """Compute the accuracy in bins with equal numbers of rows.

    Args:
        probability: Estimated probability of each row.
        correct: Whether each row is correct.

    Returns:
        For each bin the mean probability as `confidence`, the accuracy as `reliability`, its 95% interval and the
        number of rows. Empty with fewer than `MIN_BIN_ROWS` rows.
    """
    n_bins = min(N_BINS, len(probability) // MIN_BIN_ROWS)
    if n_bins == 0:
        return []
    values = probability.to_numpy()
    is_correct = correct.to_numpy()
    order = np.argsort(values, kind="stable")
    rows_of_bins = np.array_split(order, n_bins)
    n_rows = np.array([len(rows) for rows in rows_of_bins])
    n_correct = np.array([is_correct[rows].sum() for rows in rows_of_bins])
    low, high = share_confidence_interval(n_correct, n_rows)
    means = [float(values[rows].mean()) for rows in rows_of_bins]
    columns = {"confidence": means, "reliability": n_correct / n_rows, "low": low, "high": high, "rows": n_rows}
    return pl.DataFrame(columns).to_dicts()


def histogram_bars(confidence: pl.Series, min_confidence: float) -> PanelRows:
    """Count rows in bins of equal width.

    Args:
        confidence: Confidence of each row.
        min_confidence: Lower end of the first bin; lower confidences are counted in the first bin.

    Returns:
        For each bin that has rows: its ends `confidence` and `to`, the height of its bar as `reliability`, and the
        number of its rows as `rows`.
    """
    clipped = np.clip(confidence.to_numpy(), min_confidence, 1)
    counts, edges = np.histogram(clipped, bins=N_BARS, range=(min_confidence, 1))
    height_per_row = MAX_BAR_HEIGHT / max(counts.max(), 1)
    heights = counts * height_per_row
    bars = pl.DataFrame({"confidence": edges[:-1], "to": edges[1:], "reliability": heights, "rows": counts})
    return bars.filter(pl.col("rows") > 0).to_dicts()


def identity_line(stroke_width: float | None = None) -> alt.Chart:
    """Draw the dashed line on which the reliability equals the confidence.

    Args:
        stroke_width: Width of the line in pixels; None for the default of Vega.

    Returns:
        The layer.
    """
    width = alt.Undefined if stroke_width is None else stroke_width
    line = layer_of_kind("identity").mark_line(color=css_color("quiet"), strokeDash=[5, 4], strokeWidth=width)
    encoded: alt.Chart = line.encode(x="confidence:Q", y="reliability:Q")
    return encoded


def reliability_axes(min_confidence: float, x_title: str, y_title: str | None = None) -> tuple[alt.X, alt.Y]:
    """Create the axes of a reliability diagram.

    Args:
        min_confidence: Lower end of the horizontal axis, which ends at 1.
        x_title: Title of the horizontal axis.
        y_title: Title of the vertical axis, from 0 to 1; None if another layer gives it.

    Returns:
        The encodings of `x` and `y`, as positional arguments of `encode`.
    """
    percent = alt.Axis(format="%")
    x_scale = alt.Scale(domain=[min_confidence, 1], clamp=True)
    y_scale = alt.Scale(domain=[0, 1])
    return (
        alt.X("confidence:Q", title=x_title, axis=percent, scale=x_scale),
        alt.Y("reliability:Q", title=y_title or alt.Undefined, axis=percent, scale=y_scale),
    )


def panel_rows(label: str, heading: str, min_confidence: float, rows_by_kind: Mapping[str, PanelRows]) -> pl.DataFrame:
    """Combine the rows of one panel.

    Args:
        label: The label.
        heading: Heading of the panel.
        min_confidence: Left end of the axis.
        rows_by_kind: Rows of each layer.

    Returns:
        The rows; those of the identity line come first.
    """
    identity: PanelRows = [{"confidence": end, "reliability": end} for end in (min_confidence, 1.0)]
    panel = {"label": label, "panel": heading}
    rows = []
    for kind, kind_rows in [("identity", identity), *rows_by_kind.items()]:
        for row in kind_rows:
            rows.append(panel | {"kind": kind} | row)
    return pl.DataFrame(rows, schema=SCHEMA)


def panel_name(label: str) -> str:
    """Name a label in a heading.

    Args:
        label: The label.

    Returns:
        The label; a number alone gets the word `label`.
    """
    return f"label {label}" if label.isdigit() else label


def bar_layer() -> alt.Chart:
    """Draw the distribution of the confidences as bars.

    Returns:
        The layer.
    """
    bars = layer_of_kind("histogram").mark_bar(color=css_color("bars"))
    layer: alt.Chart = bars.encode(
        x="confidence:Q", x2="to:Q", y="reliability:Q", y2=alt.datum(0), tooltip=tooltips(rows=",")
    )
    return layer


def dot_layers(kind: str, color: str) -> list[alt.Chart]:
    """Draw binned rows as dots with intervals.

    Args:
        kind: Kind of the rows.
        color: Color of the dots.

    Returns:
        The layers.
    """
    dot_tooltips = tooltips(confidence=".1%", reliability=".1%", low=".1%", high=".1%", rows=",")
    base = layer_of_kind(kind).encode(x="confidence:Q")
    return [
        base.mark_rule(color=color, strokeWidth=1.2).encode(y="low:Q", y2="high:Q"),
        base.mark_point(color=color, filled=True, size=36, opacity=1).encode(y="reliability:Q", tooltip=dot_tooltips),
    ]


def panels_spec(
    rows: pl.DataFrame,
    layers: Sequence[alt.Chart],
    min_confidence: float,
    results: Results,
    x_title: str = "calibrated confidence",
) -> dict[str, Any]:
    """Convert the layers of one panel to a chart with a panel for each heading.

    Args:
        rows: Rows of all panels.
        layers: Layers of a panel.
        min_confidence: Left end of the axis.
        results: Results of one data set.
        x_title: Title of the axis.

    Returns:
        Specification of the chart.
    """
    first = layers[0].encode(*reliability_axes(min_confidence, x_title, "share correct"))
    panel = alt.layer(first, *layers[1:]).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT)
    order = rows["panel"].unique(maintain_order=True).to_list()
    header = alt.Header(labelExpr="split(datum.label, '\\n')")
    facet = alt.Facet("panel:N", sort=order, title=None, header=header)
    chart = panel.facet(facet=facet, data=ROWS, columns=min(N_COLUMNS, len(order)))
    return page_spec(chart.resolve_axis(x="independent"), subtitle=results.subtitle, height=None)
