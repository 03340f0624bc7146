"""All data sets in one picture: does the reliability predict better, and does it find more errors?"""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from tasks.figures.figure import ROWS, Figure, drawn, for_print, numbers
from tasks.figures.style import colour

ROW_HEIGHT = 30
PICTURE_TEXT = 11
TITLE = "Does the reliability predict better than the confidence?"
CAPTION = (
    "Change of the correctness NLL, MRP minus confidence, with its 95% interval. Left of zero MRP is better; an "
    "interval that reaches zero says that the test rows do not tell. Means over calibrators and protocol seeds. The "
    "intervals are not corrected over data sets; the advice is."
)
COLUMNS = ("dataset", "change", "low", "high", "found_conf", "found_mrp")


def overview(table: pl.DataFrame) -> Figure:
    """From the rows of the table `overview`, with `dataset` as people read it; failed data sets are left out."""
    rows = table.select(
        "dataset",
        pl.col("low", "high"),
        change="nll_correct_delta",
        found_conf="found_per_1000_conf",
        found_mrp="found_per_1000_mrp",
    ).select(COLUMNS)
    rows = rows.filter(pl.col("change").is_not_null())
    return Figure(
        "overview", TITLE, CAPTION, rows, drawn(changes(rows), subtitle="", height=ROW_HEIGHT * len(rows) + 10)
    )


def picture(rows: pl.DataFrame) -> dict[str, Any]:
    """The same for where no page surrounds it, with the errors that 1,000 reviews find, before and after."""
    order = alt.Y("dataset:N", sort=rows["dataset"].to_list(), axis=None)
    base = alt.Chart(alt.Data(values=rows.to_dicts()))
    found = alt.layer(
        base.mark_rule(color=colour("bars"), strokeWidth=3).encode(
            x=alt.X("found_conf:Q", title="errors found per 1,000 reviews"), x2="found_mrp:Q", y=order.copy()
        ),
        *(
            base.mark_point(filled=True, size=50, opacity=1).encode(
                x=f"found_{way}:Q", y=order.copy(), color=alt.datum(name)
            )
            for way, name in (("conf", "by confidence"), ("mrp", "by reliability"))
        ),
    )
    tones = alt.Scale(domain=["by confidence", "by reliability"], range=[colour("confidence"), colour("mrp")])
    found = found.encode(
        color=alt.Color(scale=tones, legend=alt.Legend(title=None, symbolType="circle", orient="bottom"))
    )
    size = {"width": 280, "height": 20 * len(rows)}
    left = changes(rows).properties(data=alt.Data(values=rows.to_dicts()), **size)
    chart = alt.hconcat(left, found.properties(**size), spacing=20)
    return for_print(chart, PICTURE_TEXT)


def changes(rows: pl.DataFrame) -> Any:
    """The change of the correctness NLL of each data set."""
    base = alt.Chart(ROWS).encode(
        y=alt.Y("dataset:N", sort=rows["dataset"].to_list(), title=None, axis=alt.Axis(labelLimit=180)),
        color=alt.value(colour("mrp")),
    )
    told = [
        alt.Tooltip("dataset:N"),
        *numbers("+.4f", "change", "low", "high"),
        alt.Tooltip("found_conf:Q", title="errors found per 1,000 reviews, by confidence", format=".0f"),
        alt.Tooltip("found_mrp:Q", title="by reliability", format=".0f"),
    ]
    return alt.layer(
        alt.Chart(ROWS).mark_rule(color=colour("quiet"), strokeDash=[5, 4]).encode(x=alt.datum(0)),
        base.mark_rule(strokeWidth=2.5).encode(
            x=alt.X("low:Q", title="change of the correctness NLL", axis=alt.Axis(titleAnchor="end")),
            x2="high:Q",
            tooltip=told,
        ),
        base.mark_point(filled=True, size=90, opacity=1).encode(x="change:Q", tooltip=told),
    )
