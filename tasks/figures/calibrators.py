"""Calibrators side by side: how far labels are apart under each, and where a probability vector can follow MRP."""

from __future__ import annotations

import altair as alt
import polars as pl

from tasks.figures.figure import ROWS, Figure, drawn, numbers
from tasks.figures.results import Results
from tasks.figures.style import colour
from tasks.protocol.keys import SIMPLEX

ROW_HEIGHT = 34


def label_spread(results: Results) -> Figure | None:
    """The spread between labels at equal confidence, beside that of shuffled labels, in percentage points."""
    spread, null = (results.measured(metric, "confidence") for metric in ("label_spread", "label_spread_null_p95"))
    both = spread.join(null, on="calibrator", suffix="_null", maintain_order="left")
    rows = both.select("calibrator", spread=100 * pl.col("value"), shuffled=100 * pl.col("value_null"))
    if rows.is_empty():
        return None  # one label alone is decided: nothing to compare
    base = alt.Chart(ROWS).encode(y=alt.Y("calibrator:N", sort=rows["calibrator"].to_list(), title=None))
    told = [alt.Tooltip("calibrator:N"), *numbers(".1f", "spread", "shuffled")]
    chart = alt.layer(
        base.mark_rule(color=colour("grid"), strokeWidth=3).encode(
            x=alt.X("shuffled:Q", title="percentage points"), x2="spread:Q"
        ),
        base.mark_tick(color=colour("quiet"), thickness=3, size=20).encode(x="shuffled:Q", tooltip=told),
        base.mark_point(color=colour("mrp"), filled=True, size=110, opacity=1).encode(x="spread:Q", tooltip=told),
    )
    return Figure(
        "label_spread",
        "How far labels are apart at equal confidence",
        "Among decisions of about the same confidence, how far are the labels apart in how often they are right "
        "(dot)? The bar is what shuffled labels reach by chance in one of twenty cases: a dot to its left does "
        "not stand out from chance. Means over protocol seeds.",
        rows,
        drawn(chart, subtitle=results.shown, height=ROW_HEIGHT * len(rows)),
    )


def simplex_feasibility(results: Results) -> Figure | None:
    """Rows whose whole probability vector can take MRP's reliability as that of its decision, and rows that cannot."""
    solved, infeasible = (results.measured(metric, SIMPLEX) for metric in ("solved_share", "infeasible_share"))
    rows = solved.join(infeasible, on="calibrator", suffix="_infeasible", maintain_order="left").select(
        "calibrator", solved="value", infeasible="value_infeasible"
    )
    if rows.is_empty():
        return None
    base = alt.Chart(ROWS).encode(y=alt.Y("calibrator:N", sort=rows["calibrator"].to_list(), title=None))
    told = [alt.Tooltip("calibrator:N"), *numbers(".2%", "solved", "infeasible")]
    dots = {"mrp": "solved", "fifth": "infeasible"}
    share = alt.X(title="share of test rows", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    chart = alt.layer(
        *(
            base.mark_point(color=colour(tone), filled=True, size=110, opacity=1).encode(x=f"{name}:Q", tooltip=told)
            for tone, name in dots.items()
        )
    ).encode(x=share)
    return Figure(
        "simplex_feasibility",
        "Can the probability vector follow? (MRC)",
        "Blue: rows that are solved, as a vector with the same decision on top states MRP's reliability, or comes as "
        "near as it can. Orange: rows whose reliability is below 1/K, where no decision on top can say so little: they "
        "become uniform. Rows whose decision is not on top after calibration keep their vector. Means over protocol "
        "seeds.",
        rows,
        drawn(chart, subtitle=results.shown, height=ROW_HEIGHT * len(rows)),
    )
