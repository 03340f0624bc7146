"""The learned curves T_k(c) with the rows under them, and how well probabilities hold for each predicted label."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import scipy

from relmap.metrics.intervals import share_confidence_interval
from relmap.projection.variants import VARIANTS
from relmap.report.figure import (
    FEW_ROWS,
    MIN_FIT_ROWS,
    ROWS,
    Drawing,
    Results,
    colour,
    drawn,
    figure,
    hover,
    of_kind,
    tone,
)

BARS = 20
HIGHEST_BAR = 0.18  # of the panel's height
GROUPS = 8  # of equally many test rows
FEWEST_ROWS = 20  # that a dot stands for
COLUMNS = 3
FALLBACKS = {"shared": "shared curve", "identity": "confidence kept"}
HEIGHT = 190
Rows = list[dict[str, Any]]  # with the columns of SCHEMA, where they have them
SCHEMA = pl.Schema(
    {"label": pl.String, "panel": pl.String, "kind": pl.String, "seed": pl.Int64, "confidence": pl.Float64}
    | {"reliability": pl.Float64, "low": pl.Float64, "high": pl.Float64, "to": pl.Float64, "rows": pl.Int64}
)


@figure(
    "curves",
    "The learned curves",
    "A panel for each predicted label. The blue curves (one for each protocol seed) say how often a decision of that "
    "label is right at a calibrated confidence; on the dashed line it would be as often as the confidence says. Dots "
    "are test rows, which no fit has seen, in up to eight groups under the first seed, with 95% intervals as if rows "
    "were independent; bars show where test rows lie. Curves that differ between panels are what MRP uses. "
    f"{FEW_ROWS.capitalize()}: fewer than {MIN_FIT_ROWS} projection-fit rows.",
)
def label_curves(results: Results) -> Drawing:
    """Return each label's curves under every protocol seed, what test rows say, and how many of them there are."""
    rows = curve_rows(results)
    bars = of_kind("histogram").mark_bar(color=colour("bars"))
    curves = of_kind("curve").encode(x="confidence:Q", y="reliability:Q")
    layers = [
        bars.encode(x="confidence:Q", x2="to:Q", y="reliability:Q", y2=alt.datum(0), tooltip=hover(rows=",")),
        identity(),
        curves.mark_line(color=colour("mrp"), strokeWidth=2).encode(detail="seed:N"),
        curves.mark_point(size=80, opacity=0).encode(
            tooltip=[*hover(confidence=".1%", reliability=".1%", seed=""), alt.Tooltip("rows:Q", title="fit rows")]
        ),
        *_dots("test rows", colour("fifth")),
    ]
    return rows, _panels(rows, layers, results.lowest(), results), ""


def curve_rows(results: Results) -> pl.DataFrame:
    """Return the rows behind each label's curves, test rows, bars and identity, by `kind`."""
    first, lowest, frames = results.scored(results.seeds[0]), results.lowest(), []
    for place, label in enumerate(results.labels):
        mine = first.filter(pl.col("decision") == place)
        curves = [
            {"seed": lattice["seed"], "knots": lattice["knots"], **lattice["curves"][place]}
            for lattice in results.lattices
            if (lattice["calibrator"], lattice["variant"]) == (results.calibrator, "mrp")
        ]
        kinds = {"curve": [point for curve in curves for point in _drawn(curve, lowest)]}
        kinds["test rows"] = observed(mine["confidence"], mine["correct"])
        kinds["histogram"] = histogram(mine["confidence"], lowest)
        frames.append(_of_panel(label, _headed(label, curves, len(mine)), lowest, kinds))
    return pl.concat(frames)


@figure(
    "map_curves",
    "The curves of the map",
    "A panel for each predicted label. The blue curve is the reliability that the map gives at a calibrated "
    "confidence; on the dashed line it would equal the confidence. Dots are rows in up to eight groups of equal size: "
    "the share of correct decisions, with 95% intervals for independent rows. Bars show the distribution of the rows. "
    "If a map reads more than the confidence, the curve is the mean reliability of groups of rows.",
)
def map_curves(source: tuple[Results, Sequence[pl.DataFrame]]) -> Drawing:
    """Draw the curve of each label with labelled rows.

    Args:
        source: The rows, and for each label its curve with the columns `confidence` and `reliability`.

    Returns:
        The rows of the figure, its chart and its caption.
    """
    results, curves = source
    scored, lowest, frames = results.scored(results.seeds[0]), results.lowest(), []
    for place, (label, curve) in enumerate(zip(results.labels, curves, strict=True)):
        mine = scored.filter(pl.col("decision") == place)
        kinds = {
            "curve": curve.filter(pl.col("confidence") >= lowest).to_dicts(),
            "rows": observed(mine["confidence"], mine["correct"]),
            "histogram": histogram(mine["confidence"], lowest),
        }
        frames.append(_of_panel(label, f"{_named(label)}\n{len(mine):,} rows", lowest, kinds))
    rows = pl.concat(frames).drop("seed")
    bars = of_kind("histogram").mark_bar(color=colour("bars"))
    curve_line = of_kind("curve").mark_line(color=colour("mrp"), strokeWidth=2)
    layers = [
        bars.encode(x="confidence:Q", x2="to:Q", y="reliability:Q", y2=alt.datum(0), tooltip=hover(rows=",")),
        identity(),
        curve_line.encode(x="confidence:Q", y="reliability:Q"),
        *_dots("rows", colour("fifth")),
    ]
    return rows, _panels(rows, layers, lowest, results), ""


def _of_panel(label: str, heading: str, lowest: float, kinds: Mapping[str, Rows]) -> pl.DataFrame:
    """The rows of one panel, those of the dashed line first."""
    line: Rows = [{"confidence": at, "reliability": at} for at in (lowest, 1.0)]
    panel = {"label": label, "panel": heading}
    rows = [panel | {"kind": kind} | row for kind, members in {"identity": line, **kinds}.items() for row in members]
    return pl.DataFrame(rows, schema=SCHEMA)


def _drawn(curve: Mapping[str, Any], lowest: float) -> Rows:
    """Points of a curve, its knots among them; a label without fit rows keeps its confidence."""
    knots = [knot for knot in curve["knots"] if lowest < knot < 1]
    at = np.unique([*np.linspace(max(lowest, 1e-3), 1 - 1e-3, 60), *knots])
    own = curve["fallback"] != "identity"
    reliability = scipy.special.expit(np.interp(at, curve["knots"], curve["values"])) if own else at
    columns = {"confidence": at, "reliability": reliability, "seed": curve["seed"], "rows": curve["rows"]}
    return pl.DataFrame(columns).to_dicts()


@figure(
    "reliability_by_label",
    "Is the stated probability right, for each predicted label?",
    "Grey: the calibrated confidence. In colour: the reliability. Rows in up to eight groups of equal size; "
    "on the dashed line decisions are right as often as is said, below it less often. Confidence that leaves the line "
    "in different directions for different labels is what calibration on average cannot see. Intervals are as "
    "if rows were independent.",
)
def reliability_by_label(results: Results) -> Drawing:
    """Return confidence and reliability beside the share of right decisions, for each predicted label."""
    first = results.scored(results.seeds[0])
    lowest = float(min(results.lowest(), np.floor(10 * np.min(first["reliability"].to_numpy())) / 10))
    kinds = {"confidence": "confidence", results.variant: "reliability"}  # in a tone and a column of each
    frames, layers = [], [identity()]
    for place, label in enumerate(results.labels):
        mine = first.filter(pl.col("decision") == place)
        few = "\ntoo few to group" if len(mine) < FEWEST_ROWS else ""
        dots = {VARIANTS[name].title: observed(mine[column], mine["correct"]) for name, column in kinds.items()}
        mark = f" ({FEW_ROWS} at the fit)" if label in results.labels_with_few_rows else ""
        frames.append(_of_panel(label, f"{_named(label)}{mark}\n{len(mine):,} rows{few}", lowest, dots))
    for name in kinds:
        line = of_kind(VARIANTS[name].title).mark_line(color=tone(name))
        layers += [line.encode(x="confidence:Q", y="reliability:Q"), *_dots(VARIANTS[name].title, tone(name))]
    rows = pl.concat(frames).drop("seed", "to")
    first_seed = "First protocol seed." if len(results.seeds) > 1 else ""
    return rows, _panels(rows, layers, lowest, results, said="what is said"), first_seed


def observed(said: pl.Series, correct: pl.Series) -> Rows:
    """Return rows in groups of equal size by what is said: its mean, the share that is right, and its 95% interval."""
    groups = min(GROUPS, len(said) // FEWEST_ROWS)
    if not groups:
        return []
    parts = np.array_split(np.argsort(said.to_numpy(), kind="stable"), groups)
    rows = np.array([len(part) for part in parts])
    counts = np.array([correct.to_numpy()[part].sum() for part in parts])
    low, high = share_confidence_interval(counts, rows)
    means = [float(said.to_numpy()[part].mean()) for part in parts]
    dots = {"confidence": means, "reliability": counts / rows, "low": low, "high": high, "rows": rows}
    return pl.DataFrame(dots).to_dicts()


def histogram(confidence: pl.Series, lowest: float) -> Rows:
    """Return counts of rows in bins of equal width, as bars from 0 to `reliability`."""
    counts, edges = np.histogram(np.clip(confidence.to_numpy(), lowest, 1), bins=BARS, range=(lowest, 1))
    heights = counts * (HIGHEST_BAR / max(counts.max(), 1))
    bars = pl.DataFrame({"confidence": edges[:-1], "to": edges[1:], "reliability": heights, "rows": counts})
    return bars.filter(pl.col("rows") > 0).to_dicts()


def _headed(label: str, curves: Rows, test_rows: int) -> str:
    fit = sorted({curve["rows"] for curve in curves})
    span = f"{fit[0]:,}" if len(fit) == 1 else f"{fit[0]:,} to {fit[-1]:,}"
    kept, fallbacks = "", [curve["fallback"] for curve in curves]
    for kind, words in FALLBACKS.items():
        if seeds := fallbacks.count(kind):
            kept += f", {words}" + ("" if seeds == len(curves) else f" under {seeds} of {len(curves)} seeds")
    few = f" ({FEW_ROWS})" if fit[0] < MIN_FIT_ROWS else ""
    return f"{_named(label)}\n{span} fit rows{few}{kept}\n{test_rows:,} test rows"


def _named(label: str) -> str:
    """A label for a heading: of a grade, not its number alone."""
    return f"label {label}" if label.isdigit() else label


def identity(**style: Any) -> alt.Chart:
    """Return the dashed line on which the reliability is what is said."""
    line = of_kind("identity").mark_line(color=colour("quiet"), strokeDash=[5, 4], **style)
    return line.encode(x="confidence:Q", y="reliability:Q")


def _dots(kind: str, tone: str) -> list[alt.Chart]:
    shown = hover(confidence=".1%", reliability=".1%", low=".1%", high=".1%", rows=",")
    base = of_kind(kind).encode(x="confidence:Q")
    return [
        base.mark_rule(color=tone, strokeWidth=1.2).encode(y="low:Q", y2="high:Q"),
        base.mark_point(color=tone, filled=True, size=36, opacity=1).encode(y="reliability:Q", tooltip=shown),
    ]


def axes(lowest: float, said: str, title: Any = alt.Undefined) -> dict[str, Any]:
    """Return axes: what is said, from `lowest` to 1, and the reliability, which a layer names if no title is given."""
    share = alt.Axis(format="%")
    return {
        "x": alt.X("confidence:Q", title=said, axis=share, scale=alt.Scale(domain=[lowest, 1], clamp=True)),
        "y": alt.Y("reliability:Q", title=title, axis=share, scale=alt.Scale(domain=[0, 1])),
    }


def _panels(
    rows: pl.DataFrame, layers: list[alt.Chart], lowest: float, results: Results, said: str = "calibrated confidence"
) -> dict[str, Any]:
    layers[0] = layers[0].encode(**axes(lowest, said, "share that is right"))
    panel = alt.layer(*layers).properties(width=220, height=HEIGHT)
    order = rows["panel"].unique(maintain_order=True).to_list()
    lines = alt.Header(labelExpr="split(datum.label, '\\n')")
    facet = alt.Facet("panel:N", sort=order, title=None, header=lines)
    chart = panel.facet(facet=facet, data=ROWS, columns=min(COLUMNS, len(order))).resolve_axis(x="independent")
    return drawn(chart, subtitle=results.subtitle, height=None)
