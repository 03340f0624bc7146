"""Figure of new rows without labels, compared with the fit rows."""

from collections.abc import Sequence
from itertools import pairwise

import altair as alt
import polars as pl

from relmap.evaluation.watch import WatchResult
from relmap.maps.seen import DECISION
from relmap.report.figure import ROWS, css_color, print_spec, svg

FONT_SIZE = 12
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
        places = list(names) if change.column == DECISION else _describe_ranges(change.edges)
        for sample, shares in ((FIT, change.shares_fit), (NEW, change.shares_new)):
            for place, share in zip(places, shares, strict=True):
                rows.append({"column": change.column, "place": place, "sample": sample, "share": share})
        title = f"{change.column}: {'changed' if change in result.changed else 'no significant change'}"
        panels.append(
            alt.Chart()
            .transform_filter(alt.datum.column == change.column)
            .mark_bar()
            .encode(
                x=alt.X("place:N", sort=places, title=None, axis=alt.Axis(labelAngle=-40)),
                xOffset=alt.XOffset("sample:N", sort=[FIT, NEW]),
                y=alt.Y("share:Q", title="share of rows", axis=alt.Axis(format="%")),
                color=alt.Color(
                    "sample:N",
                    sort=[FIT, NEW],
                    scale=alt.Scale(domain=[FIT, NEW], range=[css_color("confidence"), css_color("mrp")]),
                    legend=alt.Legend(title=None, symbolType="square"),
                ),
            )
            .properties(width=480, height=180, title=title)
        )
    chart = alt.vconcat(*panels, data=ROWS)
    return svg(print_spec(chart, pl.DataFrame(rows), size=FONT_SIZE))


def _describe_ranges(edges: Sequence[float]) -> list[str]:
    """Describe the ranges between limits."""
    if not edges:
        return ["all"]
    limits = [f"{edge:.3g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(limits)]
    return [f"below {limits[0]}", *between, f"{limits[-1]} or more"]
