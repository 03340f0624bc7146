"""Figures of rankings: errors among the decisions that are used, and errors that reviews find."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl

from relmap.metrics.intervals import errors_found_per_1000, percentile_interval
from relmap.metrics.reliability import expected_retained_errors, find_tie_groups
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS, Resamples, draw_resamples
from relmap.projection.registry import VARIANTS
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
MIN_COVERAGE = 0.05  # at lower coverages, a curve is estimated from few rows
MIN_REVIEWED = 0.0499  # 5%, with a margin for rounding errors
MAX_REVIEWED = 0.5001  # 50%, with a margin for rounding errors
N_RESAMPLES = 400


class RetainedErrors(NamedTuple):
    """Number of errors among the decisions that are used, divided by the number of all rows.

    There is one value for each of the C coverages in `COVERAGE`.

    Attributes:
        estimate: Mean over protocol seeds for each variant, shape (C,).
        resampled: Mean over protocol seeds in R bootstrap resamples for each variant, shape (R, C). All variants share
            the resamples. R = 0 if there are too few groups.
    """

    estimate: dict[str, np.ndarray]
    resampled: dict[str, np.ndarray]


class CurveLayers(NamedTuple):
    """Layers of a chart of curves by coverage.

    Attributes:
        band: Layer of the interval; empty if there is none.
        curves: Lines, and invisible points that have the tooltips.
        note: Sentence on the band.
    """

    band: list[alt.Chart]
    curves: list[alt.Chart]
    note: str


@lru_cache(maxsize=1)  # three figures of a data set use the result, and are drawn one after the other
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
        is_shown = bool(variant.color) or name == results.variant
        if is_shown and f"logit_{name}" in frames[0].columns:
            estimate[name] = _estimate_errors(frames, name)
            resampled[name] = _resample_errors(frames, name, resamples)
    return RetainedErrors(estimate, resampled)


def _estimate_errors(frames: Sequence[pl.DataFrame], variant: str) -> np.ndarray:
    """Average the retained errors over the frames of the protocol seeds, shape (C,)."""
    errors = []
    for frame in frames:
        tie_groups = find_tie_groups(frame[f"logit_{variant}"].to_numpy(), frame["correct"].to_numpy())
        errors.append(expected_retained_errors(tie_groups, COVERAGE)[0])
    return np.asarray(np.mean(errors, axis=0))


def _resample_errors(frames: Sequence[pl.DataFrame], variant: str, resamples: Resamples) -> np.ndarray:
    """Average the retained errors of each resample over the frames of the protocol seeds, shape (R, C)."""
    if resamples.clusters < MIN_BOOTSTRAP_GROUPS:
        return np.empty((0, len(COVERAGE)))
    errors = []
    for frame in frames:
        logit = frame[f"logit_{variant}"].to_numpy()
        errors.append(resamples.errors_retained(logit, frame["correct"].to_numpy(), COVERAGE))
    return np.asarray(np.mean(errors, axis=0))


def percentile_band(replicates: np.ndarray) -> dict[str, np.ndarray]:
    """Compute pointwise 95% percentile intervals.

    Args:
        replicates: Bootstrap replicates of C values, shape (R, C).

    Returns:
        `low` and `high`, shape (C,) each; NaN without replicates.
    """
    intervals = [percentile_interval(column) for column in replicates.T]
    low = np.array([interval.low for interval in intervals])
    high = np.array([interval.high for interval in intervals])
    return {"low": low, "high": high}


@figure(
    "risk_coverage",
    "Error rate by coverage",
    "The decisions with the highest score are used first; for the dashed line, this is the confidence. Lower is "
    "better: at the same coverage, fewer of the used decisions are wrong. All curves meet at full coverage, where all "
    "decisions are used.",
)
def risk_coverage(results: Results) -> Drawing:
    """Draw the error rate of the decisions used, by coverage, for each ranking."""
    errors = retained_errors(results)
    columns = {}
    for name, estimate in errors.estimate.items():
        band = percentile_band(errors.resampled[name] / COVERAGE)
        columns[name] = {"coverage": COVERAGE, "risk": estimate / COVERAGE, **band}
    rows = _stack_variants(columns).filter(pl.col("coverage") >= MIN_COVERAGE)
    curve_tooltips = tooltips(variant="", coverage="%", risk=".2%", low=".2%", high=".2%")
    axis = alt.Y("risk:Q", axis=alt.Axis(format="%"), title="error rate of the decisions used")
    color = _variant_colors(list(errors.estimate))
    layers = layers_by_coverage(rows, color, axis, curve_tooltips, results)
    note = layers.note
    threshold = []
    if results.automatic_share is not None:
        rule = alt.Chart(ROWS).mark_rule(color=css_color("quiet"), strokeDash=[2, 3])
        threshold = [rule.encode(x=alt.datum(results.automatic_share))]
        note = f"Dotted line: the share of decisions at or above the threshold of the map. {note}"
    chart = alt.layer(*layers.band, *threshold, *layers.curves)
    return Drawing(rows, page_spec(chart, subtitle=results.subtitle, height=300), note)


@figure(
    "errors_found",
    "Errors found per 1,000 reviews",
    "The least reliable decisions are reviewed first. The distance between the lines shows how many more or fewer "
    "errors are found if the reliability, and not the confidence, determines the reviews.",
)
def errors_found(results: Results) -> Drawing:
    """Draw the errors found per 1,000 reviews, by the share of decisions that is reviewed."""
    errors = retained_errors(results)
    variant = results.variant
    reviewed = 1 - COVERAGE[:-1]
    found = {name: _found_by_reviews(errors.estimate[name], reviewed) for name in ("confidence", variant)}
    resampled = {name: _found_by_reviews(errors.resampled[name], reviewed) for name in ("confidence", variant)}
    band = percentile_band(resampled[variant] - resampled["confidence"])
    change = {
        "change": found[variant] - found["confidence"],
        "change_low": band["low"],
        "change_high": band["high"],
    }
    columns = {}
    for name, errors_of_variant in found.items():
        columns[name] = {"reviewed": reviewed, "found": errors_of_variant, **change}
    is_drawn = pl.col("reviewed").is_between(MIN_REVIEWED, MAX_REVIEWED)
    rows = _stack_variants(columns).filter(is_drawn).sort("variant", "reviewed")
    base = alt.Chart(ROWS).encode(
        x=alt.X("reviewed:Q", axis=alt.Axis(format="%"), title="share of decisions reviewed"),
        y=alt.Y("found:Q", title="errors found per 1,000 reviews", scale=alt.Scale(zero=True)),
        color=_variant_colors(list(found)),
    )
    point_tooltips = tooltips(
        variant="", reviewed="%", found=".0f", change="+.0f", change_low="+.0f", change_high="+.0f"
    )
    points = base.mark_point(size=120, opacity=0).encode(tooltip=point_tooltips)
    chart = alt.layer(_line_layer(base), points)
    hint = "Hover over a line for the change and its 95% interval."
    if rows["change_low"].is_null().all():
        hint = f"There are too few {results.units} for an interval."
    return Drawing(rows, page_spec(chart, subtitle=results.subtitle), f"{hint} {results.averaging_note}")


def _found_by_reviews(errors: np.ndarray, reviewed: np.ndarray) -> np.ndarray:
    """Compute errors found per 1,000 reviews from retained errors (..., C); the last coverage is 1."""
    return np.asarray(errors_found_per_1000(errors[..., -1:], errors[..., :-1], reviewed))


def _stack_variants(columns: Mapping[str, Mapping[str, np.ndarray]]) -> pl.DataFrame:
    """Stack the columns of all variants; the column `variant` has the title of each. NaN becomes null."""
    frames = [pl.DataFrame({"variant": VARIANTS[name].title, **values}) for name, values in columns.items()]
    return pl.concat(frames).fill_nan(None)


def _variant_colors(names: Sequence[str]) -> alt.Color:
    titles = [VARIANTS[name].title for name in names]
    colors = [variant_color(name) for name in names]
    return alt.Color("variant:N", scale=alt.Scale(domain=titles, range=colors))


def _line_layer(base: alt.Chart) -> alt.Chart:
    """Draw a line for each variant; the line of the confidence is dashed."""
    dash = alt.condition(alt.datum.variant == "confidence", alt.value([5, 4]), alt.value([1, 0]))
    line: alt.Chart = base.mark_line(strokeWidth=2).encode(strokeDash=dash)
    return line


def layers_by_coverage(
    rows: pl.DataFrame,
    color: alt.Color | Mapping[str, Any],
    axis: alt.Y,
    curve_tooltips: Sequence[alt.Tooltip],
    results: Results,
) -> CurveLayers:
    """Build the layers of curves by coverage.

    Args:
        rows: Rows with the columns `coverage`, `low` and `high`, the column of the axis, and maybe `variant`.
        color: Color of the curves.
        axis: Vertical axis.
        curve_tooltips: What is shown when the mouse is on a curve.
        results: Results that the figure shows, for the note.

    Returns:
        The layers. There is no band if there are no intervals.
    """
    x = alt.X("coverage:Q", axis=alt.Axis(format="%"), title="share of decisions used (coverage)")
    base = alt.Chart(ROWS).encode(x=x, color=color)
    lines = _line_layer(base) if "variant" in rows.columns else base.mark_line(strokeWidth=2)
    points = base.mark_point(size=120, opacity=0).encode(y=axis.shorthand, tooltip=list(curve_tooltips))
    curves = [lines.encode(y=axis), points]
    if rows["low"].is_null().all():
        note = f"No band: there are fewer than {MIN_BOOTSTRAP_GROUPS} {results.units}."
        return CurveLayers(band=[], curves=curves, note=f"{note} {results.averaging_note}")
    band = base.mark_area(opacity=0.18).encode(y="low:Q", y2="high:Q")
    note = (
        f"Band: pointwise 95% interval from {N_RESAMPLES} bootstrap resamples of {results.units}, for the given fits."
    )
    return CurveLayers(band=[band], curves=curves, note=f"{note} {results.averaging_note}")
