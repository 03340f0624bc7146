"""All data sets in one picture: does the reliability predict better, and does it find more errors?"""

from typing import Any

import altair as alt
import polars as pl

from relmap.report.figure import ROWS, Drawing, colour, drawn, figure, for_print, hover

ROW_HEIGHT = 30
PICTURE_TEXT = 11


@figure(
    "overview",
    "Does the reliability predict better than the confidence?",
    "Change of the correctness NLL, MRP minus confidence, with its 95% interval. Left of zero MRP is better; an "
    "interval that reaches zero says that the test rows do not tell. Means over calibrators and protocol seeds. The "
    "intervals are not corrected over data sets; the advice is.",
    "all data sets",
)
def overview(table: pl.DataFrame) -> Drawing:
    """Return the rows of the table `overview`, with `dataset` as people read it, that did not fail, as a chart."""
    rows = measured(table)
    return rows, drawn(changes(rows), subtitle="", height=ROW_HEIGHT * len(rows) + 10), ""


def measured(table: pl.DataFrame) -> pl.DataFrame:
    """Return change, interval and errors found of the data sets in the table `overview` whose change is known."""
    columns = {"change": "nll_correct_delta", "low": "low", "high": "high"}
    columns |= {"found_conf": "found_per_1000_conf", "found_mrp": "found_per_1000_mrp"}
    return table.select("dataset", **columns).filter(pl.col("change").is_not_null())


def picture(table: pl.DataFrame) -> dict[str, Any]:
    """Return the same for where no page surrounds it, with the errors that 1,000 reviews find, before and after."""
    rows = measured(table)
    base = alt.Chart(ROWS).encode(y=alt.Y("dataset:N", sort=rows["dataset"].to_list(), axis=None))
    ways = {"by confidence": ("found_conf:Q", "confidence"), "by reliability": ("found_mrp:Q", "mrp")}
    tones = alt.Scale(domain=[*ways], range=[colour(tone) for _, tone in ways.values()])
    errors = alt.layer(
        base.mark_rule(color=colour("bars"), strokeWidth=3).encode(
            x=alt.X("found_conf:Q", title="errors found per 1,000 reviews"), x2="found_mrp:Q"
        ),
        *(
            base.mark_point(filled=True, size=50, opacity=1).encode(x=column, color=alt.datum(name))
            for name, (column, _) in ways.items()
        ),
    ).encode(color=alt.Color(scale=tones, legend=alt.Legend(title=None, symbolType="circle", orient="bottom")))
    panels = [panel.properties(width=280, height=20 * len(rows)) for panel in (changes(rows), errors)]
    return for_print(alt.hconcat(*panels, spacing=20), rows, PICTURE_TEXT)


def changes(rows: pl.DataFrame) -> Any:
    """Return the change of the correctness NLL of each data set."""
    base = alt.Chart(ROWS).encode(
        y=alt.Y("dataset:N", sort=rows["dataset"].to_list(), title=None, axis=alt.Axis(labelLimit=180)),
        color=alt.value(colour("mrp")),
        tooltip=[
            *hover(dataset="", change="+.4f", low="+.4f", high="+.4f"),
            alt.Tooltip("found_conf:Q", title="errors found per 1,000 reviews, by confidence", format=".0f"),
            alt.Tooltip("found_mrp:Q", title="by reliability", format=".0f"),
        ],
    )
    change = alt.X("low:Q", title="change of the correctness NLL", axis=alt.Axis(titleAnchor="end"))
    return alt.layer(
        alt.Chart(ROWS).mark_rule(color=colour("quiet"), strokeDash=[5, 4]).encode(x=alt.datum(0)),
        base.mark_rule(strokeWidth=2.5).encode(x=change, x2="high:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(x="change:Q"),
    )
