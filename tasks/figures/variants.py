"""Figures that compare calibrators, variants and numbers of labelled rows of one data set."""

from typing import NamedTuple

import altair as alt
import polars as pl

from relmap.metrics.registry import METRICS
from relmap.projection.registry import VARIANTS, variants_with_role
from relmap.report.figure import ROWS, Drawing, Results, css_color, figure, page_spec, tooltips
from tasks.results.values import SIMPLEX

METRIC_TITLES = {key: METRICS[key].title for key in ("nll_correct", "aurc")}
PANEL_WIDTH = 260
ROW_HEIGHT = 34


class Method(NamedTuple):
    """A line of the figure `labelled_rows`: a variant on a calibrator.

    Attributes:
        title: Title in the legend; {} is replaced by the calibrator that the figure is drawn for.
        calibrator: Key of the calibrator; None for the calibrator that the figure is drawn for.
        variant: Key of the variant.
        on_both_parts: Whether the calibrator was fitted on both the calibrator-fit and the projection-fit rows.
        color: Name of the color.
    """

    title: str
    calibrator: str | None
    variant: str
    on_both_parts: bool
    color: str


METHODS = (
    Method("{}, confidence", calibrator=None, variant="confidence", on_both_parts=False, color="confidence"),
    Method("MRP on {}", calibrator=None, variant="mrp", on_both_parts=False, color="mrp"),
    Method("matrix scaling", calibrator="matrix", variant="confidence", on_both_parts=False, color="platt"),
    Method(
        "matrix scaling, rows of both parts",
        calibrator="matrix",
        variant="confidence",
        on_both_parts=True,
        color="fifth",
    ),
)


@figure(
    "ablation",
    "Comparison of the variants",
    "Circles: one calibrator each; bar: their mean. Further left is better. If label Platt, which has two parameters "
    "for each label, is as far left as MRP, it is as good. If all variants are equal, keep your confidence.",
)
def ablation(results: Results) -> Drawing:
    """Draw each variant with each calibrator, and the mean over calibrators.

    Args:
        results: Results of one data set.

    Returns:
        Rows and chart; there is no note.
    """
    omitted_variants = [*variants_with_role("sensitivity"), SIMPLEX]
    metrics = results.metrics.filter(
        pl.col("metric").is_in([*METRIC_TITLES]) & pl.col("calibrator").is_in(results.calibrators),
        ~pl.col("variant").is_in(omitted_variants),
    )
    cells = metrics.group_by("metric", "variant", "calibrator", maintain_order=True).agg(pl.col("value").mean())
    cells = cells.filter(pl.col("value").is_not_nan())
    variants_with_results = cells["variant"].unique().to_list()
    variant_titles = {key: variant.title for key, variant in VARIANTS.items() if key in variants_with_results}
    rows = cells.select(
        pl.col("metric").replace_strict(METRIC_TITLES),
        pl.col("variant").replace(variant_titles),
        "calibrator",
        "value",
        mean=pl.col("value").mean().over("metric", "variant"),
    )
    base = alt.Chart(ROWS).encode(
        y=alt.Y("variant:N", sort=[*variant_titles.values()], title=None),
        x=alt.X("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4)),
    )
    tooltip = tooltips(variant="", calibrator="", value=".4f")
    mean_tooltip = [*tooltips(variant=""), alt.Tooltip("mean:Q", format=".4f", title="mean over calibrators")]
    panel = alt.layer(
        base.mark_point(color=css_color("quiet"), size=40, opacity=0.8, filled=False).encode(tooltip=tooltip),
        base.mark_tick(color=css_color("mrp"), thickness=3, size=18).encode(x="mean:Q", tooltip=mean_tooltip),
    ).properties(width=PANEL_WIDTH, height=190)
    chart = _facet_by_metric(panel).resolve_scale(x="independent")
    return Drawing(rows, page_spec(chart, subtitle=results.display_name, height=None))


@figure(
    "labelled_rows",
    "Effect of the number of labelled rows",
    "Lower is better. Both parts have the same number of labelled rows: one fits the calibrator, the other the curves "
    "of MRP. Matrix scaling is fitted on the first part or on both; it needs all logits, and changes probabilities. "
    "If it is as low as MRP and your probabilities may change, recalibration is as good.",
)
def labelled_rows(results: Results) -> Drawing:
    """Draw MRP and matrix scaling by the number of labelled rows.

    Args:
        results: Results of one data set.

    Returns:
        Rows and chart; there is no note.
    """
    colors: dict[str, str] = {}
    frames = []
    metrics = results.rivals.filter(pl.col("metric").is_in([*METRIC_TITLES]))
    metrics = metrics.with_columns(on_both_parts=pl.col("projection_fit_rows") == 0)
    for method in METHODS:
        metrics_of_method = metrics.filter(
            calibrator=method.calibrator or results.calibrator,
            variant=method.variant,
            on_both_parts=method.on_both_parts,
        )
        cells = metrics_of_method.group_by("rows", "metric", maintain_order=True).agg(pl.col("value").mean())
        title = method.title.format(results.calibrator)
        metric_title = pl.col("metric").replace_strict(METRIC_TITLES)
        frames.append(cells.select(pl.lit(title).alias("method"), metric_title, "rows", "value"))
        if len(cells):
            colors[title] = css_color(method.color)
    rows = pl.concat(frames).filter(pl.col("value").is_not_nan())
    base = alt.Chart(ROWS).encode(
        x=alt.X(
            "rows:Q",
            title="labelled rows of each part",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(values=sorted(rows["rows"].unique().to_list()), format="~s", grid=False),
        ),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
        color=alt.Color("method:N", scale=alt.Scale(domain=[*colors], range=[*colors.values()]), sort=[*colors]),
    )
    points = base.mark_point(filled=True, size=50, opacity=1)
    panel = alt.layer(
        base.mark_line(strokeWidth=2), points.encode(tooltip=tooltips(method="", rows=",", value=".4f"))
    ).properties(width=PANEL_WIDTH, height=200)
    chart = _facet_by_metric(panel).resolve_scale(y="independent")
    return Drawing(rows, page_spec(chart, subtitle=results.display_name, height=None))


def _facet_by_metric(panel: alt.LayerChart | alt.FacetChart) -> alt.FacetChart:
    facet = alt.Facet("metric:N", title=None, sort=[*METRIC_TITLES.values()])
    return panel.facet(facet=facet, data=ROWS, columns=2)


@figure(
    "label_spread",
    "Differences between labels at equal confidence",
    "Dot: how much the accuracy differs between labels, among decisions of about the same confidence. Bar: the 95th "
    "percentile for shuffled labels; a dot to the left of its bar is consistent with chance. Means over protocol "
    "seeds.",
)
def label_spread(results: Results) -> Drawing:
    """Draw the label spread, and the label spread of shuffled labels, in percentage points.

    Args:
        results: Results of one data set.

    Returns:
        Rows and chart; there is no note.
    """
    rows = results.metric_means("confidence", spread="label_spread", shuffled="label_spread_null_p95")
    rows = rows.with_columns(pl.col("spread", "shuffled") * 100)
    base = _rows_by_calibrator(rows).encode(tooltip=tooltips(calibrator="", spread=".1f", shuffled=".1f"))
    chart = alt.layer(
        base.mark_rule(color=css_color("grid"), strokeWidth=3).encode(
            x=alt.X("shuffled:Q", title="percentage points"), x2="spread:Q"
        ),
        base.mark_tick(color=css_color("quiet"), thickness=3, size=20).encode(x="shuffled:Q"),
        _dots(base, "mrp", "spread"),
    )
    return Drawing(rows, page_spec(chart, subtitle=results.display_name, height=ROW_HEIGHT * len(rows)))


@figure(
    "simplex_feasibility",
    "Rows that MRC solves, and rows with an infeasible reliability",
    "Blue: rows for which MRC found a probability vector. The decision keeps the highest probability, which is MRP's "
    "reliability or as close to it as possible. Orange: rows whose reliability is below 1/K. The highest probability "
    "cannot be that low, so these rows become uniform. Rows whose decision is not the top label after calibration keep "
    "their vector. Means over protocol seeds.",
)
def simplex_feasibility(results: Results) -> Drawing:
    """Draw the shares of test rows that MRC solves, and of rows with an infeasible reliability.

    Args:
        results: Results of one data set.

    Returns:
        Rows and chart; there is no note.
    """
    rows = results.metric_means(SIMPLEX, solved="solved_share", infeasible="infeasible_share")
    share = alt.X(title="share of test rows", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    base = _rows_by_calibrator(rows).encode(tooltip=tooltips(calibrator="", solved=".2%", infeasible=".2%"))
    chart = alt.layer(_dots(base, "mrp", "solved"), _dots(base, "fifth", "infeasible")).encode(x=share)
    return Drawing(rows, page_spec(chart, subtitle=results.display_name, height=ROW_HEIGHT * len(rows)))


def _rows_by_calibrator(rows: pl.DataFrame) -> alt.Chart:
    return alt.Chart(ROWS).encode(y=alt.Y("calibrator:N", sort=rows["calibrator"].to_list(), title=None))


def _dots(base: alt.Chart, color: str, column: str) -> alt.Chart:
    return base.mark_point(color=css_color(color), filled=True, size=110, opacity=1).encode(x=f"{column}:Q")
