"""Figure of the learned curves of each label."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import scipy

from relmap.report.curves import (
    PanelRows,
    bar_layer,
    binned_accuracy,
    dot_layers,
    histogram_bars,
    identity_line,
    panel_name,
    panel_rows,
    panels_spec,
)
from relmap.report.figure import FEW_ROWS, MIN_FIT_ROWS, Drawing, Results, css_color, figure, layer_of_kind, tooltips

N_CURVE_POINTS = 60
CURVE_MARGIN = 1e-3  # the grid of a curve ends at this distance from the confidences 0 and 1
FALLBACKS = {"shared": "shared curve", "identity": "confidence kept"}  # what replaces the curve of a label


@figure(
    "curves",
    "The learned curves",
    "One panel for each predicted label. Blue curves, one for each protocol seed: the estimated probability that a "
    "decision for this label is correct, by calibrated confidence. Dashed line: reliability equal to the confidence. "
    "Dots: accuracy on test rows, which no fit used, in up to eight bins under the first seed, with 95% intervals that "
    "assume independent rows. Bars: distribution of the test rows. MRP gains where the curves differ between panels. "
    f"{FEW_ROWS.capitalize()}: fewer than {MIN_FIT_ROWS} projection-fit rows.",
)
def label_curves(results: Results) -> Drawing:
    """Draw the curves of each label under every protocol seed, with test rows."""
    rows = curve_rows(results)
    curves = layer_of_kind("curve").encode(x="confidence:Q", y="reliability:Q")
    curve_tooltips = tooltips(confidence=".1%", reliability=".1%", seed="")
    curve_tooltips.append(alt.Tooltip("rows:Q", title="fit rows"))
    layers = [
        bar_layer(),
        identity_line(),
        curves.mark_line(color=css_color("mrp"), strokeWidth=2).encode(detail="seed:N"),
        curves.mark_point(size=80, opacity=0).encode(tooltip=curve_tooltips),
        *dot_layers("test rows", css_color("fifth")),
    ]
    return Drawing(rows, panels_spec(rows, layers, results.min_confidence(), results))


def curve_rows(results: Results) -> pl.DataFrame:
    """Collect the data of the curves.

    Args:
        results: Results of one data set.

    Returns:
        Curves, binned test rows, bars and identity line of each label, distinguished by the column `kind`.
    """
    test_rows = results.scored_rows(results.seeds[0])
    min_confidence = results.min_confidence()
    panels = []
    for index, label in enumerate(results.labels):
        label_rows = test_rows.filter(pl.col("decision") == index)
        curves = _mrp_curves(results, index)
        points: PanelRows = []
        for curve in curves:
            points += _curve_points(curve, min_confidence)
        rows_by_kind = {
            "curve": points,
            "test rows": binned_accuracy(label_rows["confidence"], label_rows["correct"]),
            "histogram": histogram_bars(label_rows["confidence"], min_confidence),
        }
        heading = _curve_heading(label, curves, len(label_rows))
        panels.append(panel_rows(label, heading, min_confidence, rows_by_kind))
    return pl.concat(panels)


def _mrp_curves(results: Results, label: int) -> list[dict[str, Any]]:
    """Select the MRP curves of a label under the calibrator of the figures, one for each seed."""
    curves = []
    for lattice in results.lattices:
        if lattice["calibrator"] == results.calibrator and lattice["variant"] == "mrp":
            seed_and_knots = {"seed": lattice["seed"], "knots": lattice["knots"]}
            curves.append(seed_and_knots | lattice["curves"][label])
    return curves


def _curve_points(curve: Mapping[str, Any], min_confidence: float) -> PanelRows:
    """Evaluate a curve on a grid and at its knots; with the fallback `identity`, the reliability is the confidence."""
    grid = np.linspace(max(min_confidence, CURVE_MARGIN), 1 - CURVE_MARGIN, N_CURVE_POINTS)
    knots = [knot for knot in curve["knots"] if min_confidence < knot < 1]
    confidence = np.unique([*grid, *knots])
    reliability = confidence
    if curve["fallback"] != "identity":
        reliability = scipy.special.expit(np.interp(confidence, curve["knots"], curve["values"]))
    columns = {"confidence": confidence, "reliability": reliability, "seed": curve["seed"], "rows": curve["rows"]}
    return pl.DataFrame(columns).to_dicts()


def _curve_heading(label: str, curves: Sequence[Mapping[str, Any]], n_test_rows: int) -> str:
    """Write the heading of a panel: label, number of fit rows and fallbacks over all seeds, number of test rows."""
    fit_rows = [curve["rows"] for curve in curves]
    min_rows = min(fit_rows)
    max_rows = max(fit_rows)
    fit_note = f"{min_rows:,} fit rows" if min_rows == max_rows else f"{min_rows:,} to {max_rows:,} fit rows"
    if min_rows < MIN_FIT_ROWS:
        fit_note += f" ({FEW_ROWS})"
    return f"{panel_name(label)}\n{fit_note}{_fallback_note(curves)}\n{n_test_rows:,} test rows"


def _fallback_note(curves: Sequence[Mapping[str, Any]]) -> str:
    """Name the fallbacks of a label; a fallback that not all seeds use gets its number of seeds."""
    fallbacks = [curve["fallback"] for curve in curves]
    note = ""
    for fallback, description in FALLBACKS.items():
        n_seeds = fallbacks.count(fallback)
        if n_seeds == 0:
            continue
        note += f", {description}"
        if n_seeds < len(curves):
            note += f" under {n_seeds} of {len(curves)} seeds"
    return note
