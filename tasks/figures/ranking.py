"""Figure of what a ranking gains at equal coverage."""

import altair as alt
import polars as pl

from relmap.report.figure import ROWS, Drawing, Results, css_color, figure, page_spec, tooltips
from relmap.report.ranking import COVERAGE, MIN_COVERAGE, layers_by_coverage, percentile_band, retained_errors


@figure(
    "accuracy_gain",
    "Accuracy gained at equal coverage",
    "Accuracy of the decisions used if MRP ranks the decisions, minus this accuracy if the confidence ranks them. "
    "Above zero MRP is better. Where the band includes zero, the difference is not significant.",
)
def accuracy_gain(results: Results) -> Drawing:
    """Draw the difference of accuracy between MRP and confidence, by coverage."""
    errors = retained_errors(results)
    gain = (errors.estimate["confidence"] - errors.estimate["mrp"]) / COVERAGE
    band = percentile_band((errors.resampled["confidence"] - errors.resampled["mrp"]) / COVERAGE)
    all_rows = pl.DataFrame({"coverage": COVERAGE, "gain": gain, **band})
    rows = all_rows.filter(pl.col("coverage") >= MIN_COVERAGE).fill_nan(None)
    curve_tooltips = tooltips(coverage="%", gain="+.2%", low=".2%", high=".2%")
    axis = alt.Y("gain:Q", axis=alt.Axis(format="+.1%"), title="accuracy gained")
    color = alt.value(css_color("mrp"))
    layers = layers_by_coverage(rows, color, axis, curve_tooltips, results)
    zero = alt.Chart(ROWS).mark_rule(color=css_color("quiet"), strokeDash=[5, 4]).encode(y=alt.datum(0))
    chart = alt.layer(*layers.band, zero, *layers.curves)
    return Drawing(rows, page_spec(chart, subtitle=results.subtitle), layers.note)
