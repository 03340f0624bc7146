"""Calibrators side by side: how far labels are apart under each, and where a probability vector can follow MRP."""

import altair as alt
import polars as pl

from tasks.figures.figure import ROWS, Drawing, Results, colour, drawn, figure, hover
from tasks.protocol.results import SIMPLEX

ROW_HEIGHT = 34


@figure(
    "label_spread",
    "How far labels are apart at equal confidence",
    "Among decisions of about the same confidence, how far are the labels apart in how often they are right (dot)? The "
    "bar is what shuffled labels reach by chance in one of twenty cases: a dot to its left does not stand out from "
    "chance. Means over protocol seeds.",
)
def label_spread(results: Results) -> Drawing:
    """Return the spread between labels at equal confidence, beside that of shuffled labels, in percentage points."""
    rows = results.measured("confidence", spread="label_spread", shuffled="label_spread_null_p95")
    rows = rows.with_columns(pl.col("spread", "shuffled") * 100)
    base = _by_calibrator(rows).encode(tooltip=hover(calibrator="", spread=".1f", shuffled=".1f"))
    chart = alt.layer(
        base.mark_rule(color=colour("grid"), strokeWidth=3).encode(
            x=alt.X("shuffled:Q", title="percentage points"), x2="spread:Q"
        ),
        base.mark_tick(color=colour("quiet"), thickness=3, size=20).encode(x="shuffled:Q"),
        _dot(base, "mrp", "spread"),
    )
    return rows, drawn(chart, subtitle=results.shown, height=ROW_HEIGHT * len(rows)), ""


@figure(
    "simplex_feasibility",
    "Can the probability vector follow? (MRC)",
    "Blue: rows that are solved, as a vector with the same decision on top states MRP's reliability, or comes as near "
    "as it can. Orange: rows whose reliability is below 1/K, where no decision on top can say so little: they become "
    "uniform. Rows whose decision is not on top after calibration keep their vector. Means over protocol seeds.",
)
def simplex_feasibility(results: Results) -> Drawing:
    """Return how many probability vectors can take MRP's reliability as that of their decision, and how many cannot."""
    rows = results.measured(SIMPLEX, solved="solved_share", infeasible="infeasible_share")
    share = alt.X(title="share of test rows", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    base = _by_calibrator(rows).encode(tooltip=hover(calibrator="", solved=".2%", infeasible=".2%"))
    chart = alt.layer(_dot(base, "mrp", "solved"), _dot(base, "fifth", "infeasible")).encode(x=share)
    return rows, drawn(chart, subtitle=results.shown, height=ROW_HEIGHT * len(rows)), ""


def _by_calibrator(rows: pl.DataFrame) -> alt.Chart:
    return alt.Chart(ROWS).encode(y=alt.Y("calibrator:N", sort=rows["calibrator"].to_list(), title=None))


def _dot(base: alt.Chart, tone: str, column: str) -> alt.Chart:
    return base.mark_point(color=colour(tone), filled=True, size=110, opacity=1).encode(x=f"{column}:Q")
