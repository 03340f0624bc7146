"""Figure of new rows without labels, compared with the fit rows."""

from collections.abc import Sequence
from itertools import pairwise

import altair as alt
import polars as pl

from relmap.evaluation.watch import WatchResult
from relmap.maps.seen import DECISION
from relmap.report.figure import ROWS, css_color, print_spec, svg

FONT_SIZE = 12
MIN_WIDTH = 480
MIN_STEP = 18  # pixels between labels of the axis, so that they do not overlap
FIT = "fit rows"
NEW = "new rows"


def shares_svg(result: WatchResult, names: Sequence[str]) -> str:
    """Draw the shares of the fit rows and of the new rows, a panel for each column.

    Args:
        result: The comparison.
        names: Names of the labels 0..K-1.

    Returns:
        The figure as SVG.
    """
    panels = []
    rows = []
    for change in result.columns:
        if change.label is not None and change not in result.changed:
            continue  # one panel for each label would be too many
        column = change.title(names)
        places = list(names) if change.column == DECISION else describe_ranges(change.edges)
        for sample, shares in ((FIT, change.shares_fit), (NEW, change.shares_new)):
            for place, share in zip(places, shares, strict=True):
                rows.append({"column": column, "place": place, "sample": sample, "share": share})
        title = f"{column}: {'changed' if change in result.changed else 'no significant change'}"
        panels.append(
            alt.Chart()
            .transform_filter(alt.datum.column == column)
            .mark_bar()
            .encode(
                x=alt.X("place:N", sort=places, title=None, axis=alt.Axis(labelAngle=-40, labelOverlap=False)),
                xOffset=alt.XOffset("sample:N", sort=[FIT, NEW]),
                y=alt.Y("share:Q", title="share of rows", axis=alt.Axis(format="%")),
                color=alt.Color(
                    "sample:N",
                    sort=[FIT, NEW],
                    scale=alt.Scale(domain=[FIT, NEW], range=[css_color("confidence"), css_color("mrp")]),
                    legend=alt.Legend(title=None, symbolType="square"),
                ),
            )
            .properties(width=max(MIN_WIDTH, MIN_STEP * len(places)), height=180, title=title)
        )
    # by default, all panels have bars as wide as those of the first panel
    chart = alt.vconcat(*panels, data=ROWS).resolve_scale(xOffset="independent")
    return svg(print_spec(chart, pl.DataFrame(rows), size=FONT_SIZE))


def describe_ranges(edges: Sequence[float]) -> list[str]:
    """Describe the ranges between limits, with at least three digits.

    Args:
        edges: Limits between the ranges, increasing.

    Returns:
        A description of each range; different ranges have different descriptions.
    """
    if not edges:
        return ["all"]
    digits = 3
    while len({f"{edge:.{digits}g}" for edge in edges}) < len(edges):
        digits += 1
    limits = [f"{edge:.{digits}g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(limits)]
    return [f"below {limits[0]}", *between, f"{limits[-1]} or more"]
