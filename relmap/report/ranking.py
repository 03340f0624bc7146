"""Figures of rankings: errors among the decisions that are used, and errors that reviews find."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl

from relmap.metrics.intervals import errors_found_per_1000, percentile_interval
from relmap.metrics.reliability import expected_retained_errors, find_tie_groups
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS, draw_resamples
from relmap.projection.variants import VARIANTS
from relmap.report.figure import (
    ROWS,
    Drawing,
    Results,
    css_color,
    figure,
    page_spec,
    tooltips,
    variant_color,
)

COVERAGE = np.arange(1, 101) / 100
MIN_COVERAGE = 0.05  # below it a curve is estimated from few rows
MIN_REVIEWED = 0.0499  # 5% and 50%, with a margin for rounding
MAX_REVIEWED = 0.5001
N_RESAMPLES = 400


class RetainedErrors(NamedTuple):
    """Errors among the decisions used at each of the C coverages in `COVERAGE`, as shares of all rows.

    Attributes:
        estimate: Mean over protocol seeds for each variant, shape (C,).
        resampled: The same in R bootstrap resamples that all variants share, shape (R, C); R = 0 with too few groups.
    """

    estimate: dict[str, np.ndarray]
    resampled: dict[str, np.ndarray]


class CurveLayers(NamedTuple):
    """Layers of a chart of curves by coverage.

    Attributes:
        layers: The band if there is one, the lines, and the points of the tooltips.
        note: Sentence on the band.
    """

    layers: list[alt.Chart]
    note: str


@lru_cache(maxsize=1)  # three figures of one data set are drawn one after the other
def retained_errors(results: Results) -> RetainedErrors:
    """Compute the errors among the decisions that are used, for each variant in the figures.

    Args:
        results: Results of one data set.

    Returns:
        Estimates and resamples.
    """
    frames = [results.scored_rows(seed) for seed in results.seeds]
    resamples = draw_resamples(frames[0]["group"].to_numpy(), resamples=N_RESAMPLES, seed=0)
    estimate = {}
    resampled = {}
    for name, variant in VARIANTS.items():
        is_shown = variant.color or name == results.variant
        if not is_shown or f"logit_{name}" not in frames[0].columns:
            continue
        scores = [frame[f"logit_{name}"].to_numpy() for frame in frames]
        correct = [frame["correct"].to_numpy() for frame in frames]
        errors = []
        for seed_scores, seed_correct in zip(scores, correct, strict=True):
            tie_groups = find_tie_groups(seed_scores, seed_correct)
            errors.append(expected_retained_errors(tie_groups, COVERAGE)[0])
        estimate[name] = np.mean(errors, axis=0)
        resampled[name] = np.empty((0, len(COVERAGE)))
        if resamples.clusters >= MIN_BOOTSTRAP_GROUPS:
            replicates = []
            for seed_scores, seed_correct in zip(scores, correct, strict=True):
                replicates.append(resamples.errors_retained(seed_scores, seed_correct, COVERAGE))
            resampled[name] = np.mean(replicates, axis=0)
    return RetainedErrors(estimate, resampled)


def _percentile_band(replicates: np.ndarray) -> dict[str, np.ndarray]:
    """Compute `low` and `high` of the 95% percentile intervals of replicates (R, C); NaN without replicates."""
    intervals = [percentile_interval(column) for column in replicates.T]
    low = np.array([interval.low for interval in intervals])
    high = np.array([interval.high for interval in intervals])
    return {"low": low, "high": high}


@figure(
    "risk_coverage",
    "Error rate by coverage",
    "The decisions with the highest score are used first. Lower is better: at the same coverage, fewer of the used "
    "decisions are wrong. All curves meet at full coverage, where every decision is used.",
)
def risk_coverage(results: Results) -> Drawing:
    """Draw the error rate of the decisions used, by coverage, for each ranking."""
    errors = retained_errors(results)
    columns = {}
    for name, estimate in errors.estimate.items():
        band = _percentile_band(errors.resampled[name] / COVERAGE)
        columns[name] = {"coverage": COVERAGE, "risk": estimate / COVERAGE, **band}
    rows = _stack_variants(columns).filter(pl.col("coverage") >= MIN_COVERAGE)
    shown = tooltips(variant="", coverage="%", risk=".2%", low=".2%", high=".2%")
    axis = alt.Y("risk:Q", axis=alt.Axis(format="%"), title="error rate of these")
    color = _variant_colors([*errors.estimate])
    layers, note = _layers_by_coverage(rows, color, axis, shown, results.averaging_note)
    return Drawing(rows, page_spec(alt.layer(*layers), subtitle=results.subtitle, height=300), note)


@figure(
    "accuracy_gain",
    "Accuracy gained at equal coverage",
    "Accuracy of the decisions used, ranked by MRP, minus the accuracy ranked by the confidence; the other decisions "
    "are reviewed. Above zero MRP is better. Where the band includes zero, the difference is not significant.",
)
def accuracy_gain(results: Results) -> Drawing:
    """Draw the difference of accuracy between MRP and confidence, by coverage."""
    errors = retained_errors(results)
    gain = (errors.estimate["confidence"] - errors.estimate["mrp"]) / COVERAGE
    band = _percentile_band((errors.resampled["confidence"] - errors.resampled["mrp"]) / COVERAGE)
    rows = pl.DataFrame({"coverage": COVERAGE, "gain": gain, **band})
    rows = rows.filter(pl.col("coverage") >= MIN_COVERAGE).fill_nan(None)
    shown = tooltips(coverage="%", gain="+.2%", low=".2%", high=".2%")
    axis = alt.Y("gain:Q", axis=alt.Axis(format="+.1%"), title="accuracy gained")
    layers, note = _layers_by_coverage(rows, alt.value(css_color("mrp")), axis, shown, results.averaging_note)
    zero = alt.Chart(ROWS).mark_rule(color=css_color("quiet"), strokeDash=[5, 4]).encode(y=alt.datum(0))
    chart = alt.layer(*layers[:-2], zero, *layers[-2:])
    return Drawing(rows, page_spec(chart, subtitle=results.subtitle), note)


@figure(
    "errors_found",
    "Errors found per 1,000 reviews",
    "The least reliable decisions are reviewed first. The distance between the lines is the number of errors that the "
    "same reviews find more or less with the reliability.",
)
def errors_found(results: Results) -> Drawing:
    """Draw the errors found per 1,000 reviews, by the share of decisions that is reviewed."""
    errors = retained_errors(results)
    variant = results.variant
    reviewed = 1 - COVERAGE[:-1]
    found = {name: _found_by_reviews(errors.estimate[name], reviewed) for name in ("confidence", variant)}
    resampled = {name: _found_by_reviews(errors.resampled[name], reviewed) for name in ("confidence", variant)}
    band = _percentile_band(resampled[variant] - resampled["confidence"])
    change = {
        "change": found[variant] - found["confidence"],
        "change_low": band["low"],
        "change_high": band["high"],
    }
    all_rows = _stack_variants({name: {"reviewed": reviewed, "found": line} | change for name, line in found.items()})
    rows = all_rows.filter(pl.col("reviewed").is_between(MIN_REVIEWED, MAX_REVIEWED)).sort("variant", "reviewed")
    base = alt.Chart(ROWS).encode(
        x=alt.X("reviewed:Q", axis=alt.Axis(format="%"), title="share of decisions reviewed"),
        y=alt.Y("found:Q", title="errors found per 1,000 reviews", scale=alt.Scale(zero=False)),
        color=_variant_colors([*found]),
    )
    shown = tooltips(variant="", reviewed="%", found=".0f", change="+.0f", change_low="+.0f", change_high="+.0f")
    chart = alt.layer(_line_layer(base), base.mark_point(size=120, opacity=0).encode(tooltip=shown))
    hint = "Hover over a line for the change and its 95% interval."
    if rows["change_low"].is_null().all():
        hint = "There are too few groups for an interval."
    return Drawing(rows, page_spec(chart, subtitle=results.subtitle), f"{hint} {results.averaging_note}")


def _found_by_reviews(errors: np.ndarray, reviewed: np.ndarray) -> np.ndarray:
    """Compute errors found per 1,000 reviews from retained errors (..., C); the last coverage is 1."""
    return np.asarray(errors_found_per_1000(errors[..., -1:], errors[..., :-1], reviewed))


def _stack_variants(columns: Mapping[str, Mapping[str, np.ndarray]]) -> pl.DataFrame:
    """Stack the columns of each variant, with its title in `variant`; NaN becomes null."""
    frames = [pl.DataFrame({"variant": VARIANTS[name].title, **values}) for name, values in columns.items()]
    return pl.concat(frames).fill_nan(None)


def _variant_colors(names: Sequence[str]) -> alt.Color:
    titles = [VARIANTS[name].title for name in names]
    colors = [variant_color(name) for name in names]
    return alt.Color("variant:N", scale=alt.Scale(domain=titles, range=colors))


def _line_layer(base: alt.Chart) -> alt.Chart:
    """Draw a line for each variant; that of the confidence is dashed."""
    dash = alt.condition(alt.datum.variant == "confidence", alt.value([5, 4]), alt.value([1, 0]))
    line: alt.Chart = base.mark_line(strokeWidth=2).encode(strokeDash=dash)
    return line


def _layers_by_coverage(
    rows: pl.DataFrame,
    color: alt.Color | Mapping[str, Any],
    axis: alt.Y,
    shown: Sequence[alt.Tooltip],
    averaging_note: str,
) -> CurveLayers:
    """Build the layers of curves by coverage."""
    x = alt.X("coverage:Q", axis=alt.Axis(format="%"), title="share of decisions used (coverage)")
    base = alt.Chart(ROWS).encode(x=x, color=color)
    lines = _line_layer(base) if "variant" in rows.columns else base.mark_line(strokeWidth=2)
    points = base.mark_point(size=120, opacity=0).encode(y=axis.shorthand, tooltip=list(shown))
    layers = [lines.encode(y=axis), points]
    if rows["low"].is_null().all():
        note = f"No band: there are fewer than {MIN_BOOTSTRAP_GROUPS} groups."
        return CurveLayers(layers, f"{note} {averaging_note}")
    band = base.mark_area(opacity=0.18).encode(y="low:Q", y2="high:Q")
    note = f"Band: pointwise 95% interval from {N_RESAMPLES} bootstrap resamples of groups, for the given fits."
    return CurveLayers([band, *layers], f"{note} {averaging_note}")
