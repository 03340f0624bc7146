"""What is left of errors among the decisions that are kept, by coverage, and who finds more of them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from relmap.metrics.intervals import errors_found_per_1000, percentile_interval
from relmap.metrics.reliability import expected_retained_errors, find_tie_groups
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS, draw_resamples
from relmap.projection.variants import VARIANTS
from relmap.report.figure import ROWS, Drawing, Results, colour, drawn, figure, hover, tone

COVERAGE = np.arange(1, 101) / 100
LEAST_DRAWN = 0.05  # below it a curve rests on few rows, and its band says nothing
RESAMPLES = 400
ByVariant = dict[str, np.ndarray]


@lru_cache(maxsize=1)  # three figures of one data set are drawn from it, one after the other
def retained(results: Results) -> tuple[ByVariant, ByVariant]:
    """Return the errors among the decisions kept at each coverage, as shares of all rows: means over protocol seeds.

    For each variant that is drawn: `(100,)`, and the same in each of R resamples that all share, `(R, 100)`; R = 0 with
    too few groups.
    """
    frames = [results.scored(seed) for seed in results.seeds]
    draws = draw_resamples(frames[0]["group"].to_numpy(), resamples=RESAMPLES, seed=0)
    errors, resampled = {}, {}
    shown = [name for name, variant in VARIANTS.items() if variant.color or name == results.variant]
    for name in [name for name in shown if f"logit_{name}" in frames[0].columns]:
        seeds = [(frame[f"logit_{name}"].to_numpy(), frame["correct"].to_numpy()) for frame in frames]
        errors[name] = np.mean(
            [expected_retained_errors(find_tie_groups(*seed), COVERAGE)[0] for seed in seeds], axis=0
        )
        resampled[name] = np.empty((0, len(COVERAGE)))
        if draws.clusters >= MIN_BOOTSTRAP_GROUPS:
            resampled[name] = np.mean([draws.errors_retained(*seed, COVERAGE) for seed in seeds], axis=0)
    return errors, resampled


def _band(replicates: np.ndarray) -> dict[str, np.ndarray]:
    """The middle 95% of replicates `(R, c)`: columns `low` and `high`, NaN where there are none."""
    places = [percentile_interval(drawn) for drawn in replicates.T]
    return {"low": np.array([at.low for at in places]), "high": np.array([at.high for at in places])}


@figure(
    "risk_coverage",
    "Errors among the decisions that are kept",
    "Decisions are kept in the order of each score. Lower is better: at the same coverage, fewer of the kept decisions "
    "are wrong. All curves meet at full coverage, where nothing is chosen.",
)
def risk_coverage(results: Results) -> Drawing:
    """Return error rate of the decisions kept, by coverage, for each way of ranking them."""
    errors, resampled = retained(results)
    risks = {
        name: {"coverage": COVERAGE, "risk": kept / COVERAGE, **_band(resampled[name] / COVERAGE)}
        for name, kept in errors.items()
    }
    rows = _of_variants(risks).filter(pl.col("coverage") >= LEAST_DRAWN)
    shown = hover(variant="", coverage="%", risk=".2%", low=".2%", high=".2%")
    axis = alt.Y("risk:Q", axis=alt.Axis(format="%"), title="errors among them")
    layers, what_it_is = _by_coverage(rows, _variants([*errors]), axis, shown, results.averaged)
    return rows, drawn(alt.layer(*layers), subtitle=results.subtitle, height=300), what_it_is


@figure(
    "accuracy_gain",
    "Accuracy gained among the decisions that are kept",
    "MRP's ranking beside that of the confidence, the rest going to review. Above zero MRP keeps better decisions; "
    "where the band crosses zero, the test rows do not tell.",
)
def accuracy_gain(results: Results) -> Drawing:
    """Return what MRP adds to the accuracy of the decisions kept, by coverage."""
    gain, resampled = ((kept["confidence"] - kept["mrp"]) / COVERAGE for kept in retained(results))
    rows = pl.DataFrame({"coverage": COVERAGE, "gain": gain} | _band(resampled))
    rows = rows.filter(pl.col("coverage") >= LEAST_DRAWN).fill_nan(None)
    shown = hover(coverage="%", gain="+.2%", low=".2%", high=".2%")
    axis = alt.Y("gain:Q", axis=alt.Axis(format="+.1%"), title="accuracy gained")
    layers, what_it_is = _by_coverage(rows, alt.value(colour("mrp")), axis, shown, results.averaged)
    zero = alt.Chart(ROWS).mark_rule(color=colour("quiet"), strokeDash=[5, 4]).encode(y=alt.datum(0))
    return rows, drawn(alt.layer(*layers[:-2], zero, *layers[-2:]), subtitle=results.subtitle), what_it_is


@figure(
    "errors_found",
    "Errors found per 1,000 reviews",
    "Reviewers see the least reliable decisions first. The distance between the lines is what the reliability saves or "
    "costs: errors that the same number of reviews finds besides.",
)
def errors_found(results: Results) -> Drawing:
    """Return errors found for each 1,000 reviews, by the share of decisions that is reviewed."""
    errors, resampled = retained(results)
    reviewed, mine = 1 - COVERAGE[:-1], results.variant

    def errors_of_reviews(kept: np.ndarray) -> np.ndarray:
        return np.asarray(errors_found_per_1000(kept[..., -1:], kept[..., :-1], reviewed))

    change = _band(errors_of_reviews(resampled[mine]) - errors_of_reviews(resampled["confidence"]))
    lines = {name: errors_of_reviews(errors[name]) for name in ("confidence", mine)}
    changes = {"change": lines[mine] - lines["confidence"], "change_low": change["low"], "change_high": change["high"]}
    every = _of_variants({name: {"reviewed": reviewed, "found": line} | changes for name, line in lines.items()})
    rows = every.filter(pl.col("reviewed").is_between(0.0499, 0.5001)).sort("variant", "reviewed")
    base = alt.Chart(ROWS).encode(
        x=alt.X("reviewed:Q", axis=alt.Axis(format="%"), title="share of decisions reviewed"),
        y=alt.Y("found:Q", title="errors found per 1,000 reviews", scale=alt.Scale(zero=False)),
        color=_variants([*lines]),
    )
    shown = hover(variant="", reviewed="%", found=".0f", change="+.0f", change_low="+.0f", change_high="+.0f")
    chart = alt.layer(_line(base), base.mark_point(size=120, opacity=0).encode(tooltip=shown))
    none, some = "There are too few groups for an interval.", "Hover for the change and its 95% interval."
    hint = none if rows["change_low"].is_null().all() else some
    return rows, drawn(chart, subtitle=results.subtitle), f"{hint} {results.averaged}"


def _of_variants(columns: Mapping[str, Mapping[str, np.ndarray]]) -> pl.DataFrame:
    """The columns of each variant below one another, with the name that people read; NaN becomes null."""
    frames = [pl.DataFrame({"variant": VARIANTS[name].title, **members}) for name, members in columns.items()]
    return pl.concat(frames).fill_nan(None)


def _variants(names: list[str]) -> alt.Color:
    shown = {VARIANTS[name].title: tone(name) for name in names}
    return alt.Color("variant:N", scale=alt.Scale(domain=[*shown], range=[*shown.values()]))


def _line(base: alt.Chart) -> alt.Chart:
    dashed = alt.condition(alt.datum.variant == "confidence", alt.value([5, 4]), alt.value([1, 0]))
    return base.mark_line(strokeWidth=2).encode(strokeDash=dashed)


def _by_coverage(
    rows: pl.DataFrame, tone: Any, axis: alt.Y, shown: list[alt.Tooltip], averaged: str
) -> tuple[list[alt.Chart], str]:
    """The band, where there is one, the lines and what the pointer meets on them; and what the band is."""
    share = alt.X("coverage:Q", axis=alt.Axis(format="%"), title="share of decisions kept")
    base = alt.Chart(ROWS).encode(x=share, color=tone)
    lines = _line(base) if "variant" in rows.columns else base.mark_line(strokeWidth=2)
    layers = [lines.encode(y=axis), base.mark_point(size=120, opacity=0).encode(y=axis.shorthand, tooltip=shown)]
    if rows["low"].is_null().all():
        none = f"There are fewer than {MIN_BOOTSTRAP_GROUPS} groups, too few for a band."
        return layers, f"{none} {averaged}"
    what = f"The band is where 95% of {RESAMPLES} draws of groups fall, given the fits. {averaged}"
    return [base.mark_area(opacity=0.18).encode(y="low:Q", y2="high:Q"), *layers], what
