"""Figures about all data sets: changes of the log loss, and errors found in reviews."""

from typing import Any

import altair as alt
import numpy as np
import polars as pl

from relmap.report.figure import ROWS, Drawing, css_color, figure, page_spec, print_spec, tooltips

ROW_HEIGHT = 30
FONT_SIZE = 11
MAX_TIMES_MEDIAN = 3  # a data set whose interval reaches farther than this multiple of the median is cut off
AXIS_MARGIN = 1.25  # if something is cut off, the axis ends at this multiple of the largest distance that is not
CUT_OFF_NOTE = "An arrow at the edge marks an interval that is cut off; its numbers are next to the arrow."


@figure(
    "overview",
    "Does the reliability predict better than the confidence?",
    "Change of the correctness log loss, MRP minus confidence, with its 95% interval. Left of zero, MRP is better. If "
    "the interval includes zero, there is no measurable difference. Means over calibrators and protocol seeds.",
    "all data sets",
)
def overview(table: pl.DataFrame) -> Drawing:
    """Draw the changes of all data sets that did not fail.

    Args:
        table: The table `overview`, with display names in `dataset`.

    Returns:
        Rows, chart and an addition to the caption.
    """
    rows = select_changes(table)
    note = CUT_OFF_NOTE if rows["arrow_at"].is_not_null().any() else ""
    return Drawing(rows, page_spec(changes_chart(rows), subtitle="", height=ROW_HEIGHT * len(rows) + 10), note)


def select_changes(table: pl.DataFrame) -> pl.DataFrame:
    """Select change, interval and errors found of the data sets whose change is known.

    Args:
        table: The table `overview`.

    Returns:
        A row for each data set, with the columns that `with_ends_cut_off` adds.
    """
    columns = {
        "change": "nll_correct_delta",
        "low": "low",
        "high": "high",
        "found_conf": "found_per_1000_conf",
        "found_mrp": "found_per_1000_mrp",
    }
    numbers = {name: pl.col(column).cast(pl.Float64) for name, column in columns.items()}
    return with_ends_cut_off(table.select("dataset", **numbers).filter(pl.col("change").is_not_null()))


def with_ends_cut_off(rows: pl.DataFrame) -> pl.DataFrame:
    """Add columns for drawing, with outliers cut off, so that one outlier does not compress the other intervals.

    The reach of a data set is the largest distance of its change and interval from zero. The axis covers every data
    set whose reach is at most `MAX_TIMES_MEDIAN` times the median reach; others are cut off at an end of the axis.

    Args:
        rows: Columns `change`, `low` and `high`; the last two may be null.

    Returns:
        The rows with five more columns: `drawn_change`, `drawn_low` and `drawn_high`, which are null or moved to the
        end of the axis where they are outside; `arrow_at`, the end of the axis at which something is cut off, null if
        nothing is; and `numbers`, the numbers to write there.
    """
    lowest = pl.min_horizontal("change", "low", 0.0)
    highest = pl.max_horizontal("change", "high", 0.0)
    left, right = _ends_of_axis(rows.select(lowest).to_series(), rows.select(highest).to_series())
    interval = pl.format(" ({} to {})", _rounded("low"), _rounded("high")).fill_null("")
    numbers = pl.concat_str(_rounded("change"), interval)
    return rows.with_columns(
        drawn_change=pl.when(pl.col("change").is_between(left, right)).then("change"),
        drawn_low=pl.col("low").clip(left, right),
        drawn_high=pl.col("high").clip(left, right),
        arrow_at=pl.when(lowest < left).then(left).when(highest > right).then(right),
    ).with_columns(numbers=pl.when(pl.col("arrow_at").is_not_null()).then(numbers))


def _ends_of_axis(lowest: pl.Series, highest: pl.Series) -> tuple[float, float]:
    """Return where the axis begins and ends, given how far each data set reaches to the left and right of zero."""
    if lowest.is_empty():
        return 0.0, 0.0
    left = lowest.to_numpy()
    right = highest.to_numpy()
    reach = np.maximum(-left, right)
    covered = reach[reach <= MAX_TIMES_MEDIAN * np.median(reach)]
    margin = AXIS_MARGIN * float(covered.max())
    return max(float(left.min()), -margin), min(float(right.max()), margin)


def _rounded(column: str) -> pl.Expr:
    """Return the column as text with three decimals at most, and zero without a sign."""
    unsigned_zero = pl.col(column).round(3) + 0.0
    return unsigned_zero.cast(pl.String)


def overview_picture(table: pl.DataFrame) -> dict[str, Any]:
    """Draw the overview for a separate file, with the errors found per 1,000 reviews in a second panel.

    Args:
        table: The table `overview`, with display names in `dataset`.

    Returns:
        Vega-Lite with the data.
    """
    rows = select_changes(table)
    base = alt.Chart(ROWS).encode(y=alt.Y("dataset:N", sort=rows["dataset"].to_list(), axis=None))
    scores = {"by confidence": ("found_conf:Q", "confidence"), "by reliability": ("found_mrp:Q", "mrp")}
    color_scale = alt.Scale(domain=[*scores], range=[css_color(name) for _, name in scores.values()])
    errors = alt.layer(
        base.mark_rule(color=css_color("bars"), strokeWidth=3).encode(
            x=alt.X("found_conf:Q", title="errors found per 1,000 reviews"), x2="found_mrp:Q"
        ),
        *(
            base.mark_point(filled=True, size=50, opacity=1).encode(x=column, color=alt.datum(name))
            for name, (column, _) in scores.items()
        ),
    ).encode(color=alt.Color(scale=color_scale, legend=alt.Legend(title=None, symbolType="circle", orient="bottom")))
    panels = [panel.properties(width=280, height=20 * len(rows)) for panel in (changes_chart(rows), errors)]
    return print_spec(alt.hconcat(*panels, spacing=20), rows, FONT_SIZE)


def changes_chart(rows: pl.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """Draw the change of the correctness log loss of each data set.

    Args:
        rows: Result of `select_changes`.

    Returns:
        A chart without data.
    """
    base = alt.Chart(ROWS).encode(
        y=alt.Y("dataset:N", sort=rows["dataset"].to_list(), title=None, axis=alt.Axis(labelLimit=180)),
        color=alt.value(css_color("mrp")),
        tooltip=[
            *tooltips(dataset="", change="+.4f", low="+.4f", high="+.4f"),
            alt.Tooltip("found_conf:Q", title="errors found per 1,000 reviews, by confidence", format=".0f"),
            alt.Tooltip("found_mrp:Q", title="by reliability", format=".0f"),
        ],
    )
    axis = alt.Axis(titleAnchor="end")
    nothing_cut_off = rows["arrow_at"].is_null().all()
    scale = alt.Scale(nice=nothing_cut_off)  # with rounded ends of the axis, an arrow would not be at the end
    change = alt.X("drawn_low:Q", title="change of the correctness log loss", axis=axis, scale=scale)
    layers = [
        alt.Chart(ROWS).mark_rule(color=css_color("quiet"), strokeDash=[5, 4]).encode(x=alt.datum(0)),
        base.mark_rule(strokeWidth=2.5).encode(x=change, x2="drawn_high:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(x="drawn_change:Q"),
    ]
    # a layer without rows makes Vega warn of an infinite extent
    if (rows["arrow_at"] < 0).any():
        arrows = base.transform_filter(alt.datum.arrow_at < 0).encode(x="arrow_at:Q")
        layers += [
            arrows.mark_point(shape="triangle-left", filled=True, size=110, opacity=1),
            arrows.mark_text(align="left", dx=12, dy=-11, fontSize=FONT_SIZE).encode(text="numbers:N"),
        ]
    if (rows["arrow_at"] > 0).any():
        arrows = base.transform_filter(alt.datum.arrow_at > 0).encode(x="arrow_at:Q")
        layers += [
            arrows.mark_point(shape="triangle-right", filled=True, size=110, opacity=1),
            arrows.mark_text(align="right", dx=-12, dy=-11, fontSize=FONT_SIZE).encode(text="numbers:N"),
        ]
    return alt.layer(*layers)
