"""Calibrators and curves side by side: how far labels are apart, where a probability vector follows, what does as well.

And what labelled rows buy.
"""

from typing import Any

import altair as alt
import polars as pl

from relmap.metrics.registry import METRICS
from relmap.projection.variants import VARIANTS, variants_with_role
from relmap.report.figure import ROWS, Drawing, Results, css_color, figure, page_spec, tooltips
from tasks.records.results import SIMPLEX

SHOWN = {key: METRICS[key].title for key in ("nll_correct", "aurc")}
PANEL = 260
WAYS = {  # of using labelled rows: calibrator ({}, of `Results.calibrator`, if None), variant, rows of both parts, tone
    "{}, confidence": (None, "confidence", False, "confidence"),
    "MRP on {}": (None, "mrp", False, "mrp"),
    "matrix scaling": ("matrix", "confidence", False, "platt"),
    "matrix scaling, the rows of both": ("matrix", "confidence", True, "fifth"),
}
ROW_HEIGHT = 34


@figure(
    "ablation",
    "Which curve?",
    "Rings: one calibrator each; bar: their mean. Further left is better. Where label Platt, two numbers a label, "
    "stands as far left as MRP, it does as well; where all stand together, keep your confidence.",
)
def ablation(results: Results) -> Drawing:
    """Return each variant under each calibrator, and the mean over them."""
    chosen = pl.col("metric").is_in([*SHOWN]) & pl.col("calibrator").is_in(results.calibrators)
    mine = results.metrics.filter(chosen, ~pl.col("variant").is_in([*variants_with_role("sensitivity"), SIMPLEX]))
    cells = mine.group_by("metric", "variant", "calibrator", maintain_order=True).agg(pl.col("value").mean())
    cells = cells.filter(pl.col("value").is_not_nan())
    ran = cells["variant"].unique().to_list()
    names = {key: variant.title for key, variant in VARIANTS.items() if key in ran}
    rows = cells.select(
        pl.col("metric").replace_strict(SHOWN),
        pl.col("variant").replace(names),
        "calibrator",
        "value",
        mean=pl.col("value").mean().over("metric", "variant"),
    )
    base = alt.Chart(ROWS).encode(
        y=alt.Y("variant:N", sort=[*names.values()], title=None),
        x=alt.X("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4)),
    )
    message = tooltips(variant="", calibrator="", value=".4f")
    mean = [*tooltips(variant=""), alt.Tooltip("mean:Q", format=".4f", title="mean over calibrators")]
    panel = alt.layer(
        base.mark_point(color=css_color("quiet"), size=40, opacity=0.8, filled=False).encode(tooltip=message),
        base.mark_tick(color=css_color("mrp"), thickness=3, size=18).encode(x="mean:Q", tooltip=mean),
    ).properties(width=PANEL, height=190)
    return Drawing(
        rows, page_spec(_by_metric(panel).resolve_scale(x="independent"), subtitle=results.display_name, height=None)
    )


@figure(
    "labelled_rows",
    "How many labelled rows does it take?",
    "Lower is better. Each part has as many labelled rows: one fits the calibrator, one the curves of MRP. Matrix "
    "scaling fits every label's probabilities on the first part, or on both; it needs all logits, and changes "
    "probabilities. Where it is as low as MRP, recalibrating does as well, if your probabilities may change.",
)
def labelled_rows(results: Results) -> Drawing:
    """Return what more labelled rows buy: MRP on a calibrator, beside a calibrator that sees each label."""
    tones: dict[str, str] = {}
    frames, both_parts = [], pl.col("projection_fit_rows") == 0
    measured = results.rivals.filter(pl.col("metric").is_in([*SHOWN])).with_columns(both=both_parts)
    for way, (calibrator, variant, both, tone) in WAYS.items():
        mine = measured.filter(calibrator=calibrator or results.calibrator, variant=variant, both=both)
        cells = mine.group_by("rows", "metric", maintain_order=True).agg(pl.col("value").mean())
        shown = way.format(results.calibrator)
        frames.append(cells.select(pl.lit(shown).alias("way"), pl.col("metric").replace_strict(SHOWN), "rows", "value"))
        tones |= {shown: css_color(tone)} if len(cells) else {}
    rows = pl.concat(frames).filter(pl.col("value").is_not_nan())
    base = alt.Chart(ROWS).encode(
        x=alt.X(
            "rows:Q",
            title="labelled rows of each part",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(values=sorted(rows["rows"].unique().to_list()), format="~s", grid=False),
        ),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
        color=alt.Color("way:N", scale=alt.Scale(domain=[*tones], range=[*tones.values()]), sort=[*tones]),
    )
    message = tooltips(way="", rows=",", value=".4f")
    panel = alt.layer(
        base.mark_line(strokeWidth=2), base.mark_point(filled=True, size=50, opacity=1).encode(tooltip=message)
    ).properties(width=PANEL, height=200)
    return Drawing(
        rows, page_spec(_by_metric(panel).resolve_scale(y="independent"), subtitle=results.display_name, height=None)
    )


def _by_metric(panel: Any) -> Any:
    return panel.facet(facet=alt.Facet("metric:N", title=None, sort=[*SHOWN.values()]), data=ROWS, columns=2)


@figure(
    "label_spread",
    "How far labels are apart at equal confidence",
    "Among decisions of about the same confidence, how far are the labels apart in how often they are right (dot)? The "
    "bar is what shuffled labels reach by chance in one of twenty cases: a dot to its left does not stand out from "
    "chance. Means over protocol seeds.",
)
def label_spread(results: Results) -> Drawing:
    """Return the spread between labels at equal confidence, beside that of shuffled labels, in percentage points."""
    rows = results.metric_means("confidence", spread="label_spread", shuffled="label_spread_null_p95")
    rows = rows.with_columns(pl.col("spread", "shuffled") * 100)
    base = _by_calibrator(rows).encode(tooltip=tooltips(calibrator="", spread=".1f", shuffled=".1f"))
    chart = alt.layer(
        base.mark_rule(color=css_color("grid"), strokeWidth=3).encode(
            x=alt.X("shuffled:Q", title="percentage points"), x2="spread:Q"
        ),
        base.mark_tick(color=css_color("quiet"), thickness=3, size=20).encode(x="shuffled:Q"),
        _dot(base, "mrp", "spread"),
    )
    return Drawing(rows, page_spec(chart, subtitle=results.display_name, height=ROW_HEIGHT * len(rows)))


@figure(
    "simplex_feasibility",
    "Can the probability vector follow? (MRC)",
    "Blue: rows that are solved, as a vector with the same decision on top states MRP's reliability, or comes as near "
    "as it can. Orange: rows whose reliability is below 1/K, where no decision on top can say so little: they become "
    "uniform. Rows whose decision is not on top after calibration keep their vector. Means over protocol seeds.",
)
def simplex_feasibility(results: Results) -> Drawing:
    """Return how many probability vectors can take MRP's reliability as that of their decision, and how many cannot."""
    rows = results.metric_means(SIMPLEX, solved="solved_share", infeasible="infeasible_share")
    share = alt.X(title="share of test rows", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    base = _by_calibrator(rows).encode(tooltip=tooltips(calibrator="", solved=".2%", infeasible=".2%"))
    chart = alt.layer(_dot(base, "mrp", "solved"), _dot(base, "fifth", "infeasible")).encode(x=share)
    return Drawing(rows, page_spec(chart, subtitle=results.display_name, height=ROW_HEIGHT * len(rows)))


def _by_calibrator(rows: pl.DataFrame) -> alt.Chart:
    return alt.Chart(ROWS).encode(y=alt.Y("calibrator:N", sort=rows["calibrator"].to_list(), title=None))


def _dot(base: alt.Chart, tone: str, column: str) -> alt.Chart:
    return base.mark_point(color=css_color(tone), filled=True, size=110, opacity=1).encode(x=f"{column}:Q")
