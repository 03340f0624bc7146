"""The three figures of the paper from the results of this run, in the sizes of a column or a page.

Method overview, label-wise curves, and MRC on the simplex (paper, figures 1 to 3). As in the paper, they show the
calibrator of the headline and the first protocol seed.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import scipy

from relmap.report.curves import identity_line, reliability_axes
from relmap.report.figure import (
    LABEL_COLORS,
    PRINT_FONT_SIZE,
    Drawing,
    Results,
    css_color,
    figure,
    layer_of_kind,
    print_spec,
)
from tasks.figures.curves import curve_rows

COLUMN_WIDTH = 240  # points
N_RANKED_DECISIONS = 14  # in the panel with both rankings
MAX_MOVED_ROWS = 150  # rows in the figure of the simplex
N_PATH_POINTS = 40
TRIANGLE_HEIGHT = np.sqrt(3) / 2  # of a triangle of width 1
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, TRIANGLE_HEIGHT]])
CORNER_TEXT_OFFSETS = np.array([[0, -0.05], [0, -0.05], [0, 0.04]])


@figure(
    "method_overview",
    "Overview of MRP",
    "Left: at equal calibrated confidence, the accuracy of a decision depends on its label. Middle: the curve that MRP "
    "fits for each label. Right: decisions ranked by confidence and by reliability, highest first; hollow circles are "
    "wrong. No decision changes its label.",
    "paper",
)
def method_overview(all_results: Sequence[Results]) -> Drawing:
    """Draw accuracy after calibration, fitted curves and both rankings, for the data set with the largest label spread.

    Args:
        all_results: Results of each data set.

    Returns:
        Rows, chart and an empty addition to the caption.
    """
    results = max(all_results, key=_label_spread)
    rows = pl.concat([_curve_rows_of_first_seed(results), _ranked_rows(results)], how="diagonal")
    size = {"width": 124, "height": 116}
    dots = layer_of_kind("test rows").encode(x="confidence:Q", color=_label_color(results))
    accuracy_panel = alt.layer(
        _identity_layer(results),
        dots.mark_rule(strokeWidth=0.8).encode(y=alt.Y("low:Q", title="accuracy on test rows"), y2="high:Q"),
        dots.mark_point(filled=True, size=18, opacity=1).encode(y="reliability:Q"),
    ).properties(title="after calibration", **size)
    curve_panel = _curve_layers(results).properties(title="curves of MRP", **size)
    ranks = layer_of_kind("rank").encode(
        x=alt.X("by:N", title="ranked by", axis=alt.Axis(labelAngle=0, domain=False, ticks=False)),
        y=alt.Y("place:Q", axis=None, scale=alt.Scale(reverse=True)),
        color=_label_color(results),
    )
    wrong_decisions = ranks.transform_filter(~alt.datum.correct)
    ranking_panel = alt.layer(
        ranks.mark_line(strokeWidth=1).encode(detail="row:N"),
        ranks.mark_point(filled=True, size=26, opacity=1),
        wrong_decisions.mark_point(fill=css_color("paper"), size=24, opacity=1),
    ).properties(title="the same decisions, reranked", **size)
    chart = alt.hconcat(accuracy_panel, curve_panel, ranking_panel, spacing=26).properties(title=results.subtitle)
    return Drawing(rows, print_spec(chart, rows))


@figure(
    "labelwise_curves",
    "Label-wise curves",
    "Fitted label-wise reliability curves; on the dashed line the reliability is equal to the confidence.",
    "paper",
)
def labelwise_curves(all_results: Sequence[Results]) -> Drawing:
    """Draw the curves of each data set in its own panel.

    Args:
        all_results: Results of each data set.

    Returns:
        Rows, chart and an addition to the caption.
    """
    frames = []
    panels = []
    for index, results in enumerate(all_results):
        frames.append(_curve_rows_of_first_seed(results).with_columns(panel=index))
        panel = _curve_layers(results).transform_filter(alt.datum.panel == index)
        panels.append(panel.properties(title=results.display_name, width=104, height=92))
    rows = pl.concat(frames)
    chart = alt.concat(*panels, columns=3, spacing=14).resolve_scale(color="independent")
    return Drawing(rows, print_spec(chart, rows), f"Calibrator {all_results[0].calibrator}, first protocol seed.")


@figure(
    "simplex_paths",
    "MRC on the simplex",
    "Each line connects a calibrated probability vector with the vector of MRC. For one row of each decision: the "
    "uncalibrated vector (1), the calibrated vector (2), the contour on which the decision has MRP's reliability "
    "(dashed), and MRC (3), where the power path meets it. Rows with a reliability below 1/K, which become uniform, "
    "are omitted.",
    "paper",
)
def simplex_paths(all_results: Sequence[Results]) -> Drawing | None:
    """Draw the change of probability vectors by MRC, for the data set of three labels with the largest label spread.

    Args:
        all_results: Results of each data set.

    Returns:
        Rows, chart and an empty addition to the caption; None without a data set of three labels.
    """
    candidates = []
    for results in all_results:
        if len(results.labels) == len(CORNERS) and len(_solved_rows(results)):
            candidates.append(results)
    if not candidates:
        return None
    results = max(candidates, key=_label_spread)
    rows = _simplex_rows(results)
    color_scale = alt.Scale(domain=["surer", "less sure"], range=[css_color("mrp"), css_color("fifth")])
    text_style: dict[str, Any] = {"fontSize": PRINT_FONT_SIZE, "color": css_color("ink")}
    moves = _simplex_layer("move").mark_rule(opacity=0.45, strokeWidth=0.8)
    size = COLUMN_WIDTH - 30
    chart = alt.layer(
        _simplex_line("outline", color=css_color("quiet"), strokeWidth=0.8),
        _simplex_layer("corner").mark_text(**text_style).encode(text="text:N"),
        moves.encode(x2="to_x:Q", y2="to_y:Q", color=alt.Color("moved:N", scale=color_scale)),
        _simplex_line("contour", color=css_color("ink"), strokeWidth=0.7, strokeDash=[2, 2]),
        _simplex_line("calibration", color=css_color("ink"), strokeWidth=0.8),
        _simplex_line("path", color=css_color("ink"), strokeWidth=1.6),
        _simplex_layer("end").mark_point(filled=True, color=css_color("ink"), size=14, opacity=1),
        _simplex_layer("end").mark_text(dx=6, dy=-4, **text_style).encode(text="text:N"),
    ).properties(width=size, height=size * TRIANGLE_HEIGHT, title=results.subtitle)
    return Drawing(rows, print_spec(chart, rows))


def _simplex_rows(results: Results) -> pl.DataFrame:
    """Return the rows of the figure of the simplex: outline, corners, changes of all rows, and one path per label."""
    solved = _solved_rows(results)
    start = np.array(solved["base"].to_list()) @ CORNERS
    end = np.array(solved["mrc"].to_list()) @ CORNERS
    direction = np.where(solved["alpha"].to_numpy() > 1, "surer", "less sure")
    with_distance = solved.with_columns(distance=np.linalg.norm(end - start, axis=1))
    longest = with_distance.sort("distance", descending=True).unique("decision", keep="first", maintain_order=True)
    frames = [
        _points("outline", CORNERS[[0, 1, 2, 0]]),
        _points("corner", CORNERS + CORNER_TEXT_OFFSETS, text=pl.Series(results.labels)),
        _points("move", start, to_x=end[:, 0], to_y=end[:, 1], moved=direction),
    ]
    for row in longest.iter_rows(named=True):
        frames += _path_rows(row["uncalibrated"], row["base"], row["decision"], row["alpha"])
    return pl.concat(frames, how="diagonal")


def _solved_rows(results: Results) -> pl.DataFrame:
    """Return the first rows whose vector has MRP's reliability."""
    return results.simplex.filter(pl.col("feasible") & pl.col("solved"))[:MAX_MOVED_ROWS]


def _label_spread(results: Results) -> float:
    """Return the label spread of the calibrator of the figures; 0 if there is none."""
    spreads = results.metric_means("confidence", spread="label_spread").filter(calibrator=results.calibrator)["spread"]
    return float(spreads[0]) if len(spreads) else 0.0


def _curve_rows_of_first_seed(results: Results) -> pl.DataFrame:
    rows = curve_rows(results).drop("panel").filter(pl.col("kind") != "histogram", pl.col("rows").fill_null(1) > 0)
    return rows.filter(pl.col("seed").is_null() | (pl.col("seed") == results.seeds[0]))


def _label_color(results: Results) -> alt.Color:
    colors = [css_color(LABEL_COLORS[index % len(LABEL_COLORS)]) for index in range(len(results.labels))]
    legend = alt.Legend(title=None, orient="bottom", columns=min(3, len(results.labels)), symbolType="stroke")
    return alt.Color("label:N", scale=alt.Scale(domain=list(results.labels), range=colors), legend=legend)


def _identity_layer(results: Results) -> alt.Chart:
    return identity_line(stroke_width=0.8).encode(*reliability_axes(results.min_confidence(), "calibrated confidence"))


def _curve_layers(results: Results) -> alt.LayerChart | alt.FacetChart:
    curves = layer_of_kind("curve").mark_line(strokeWidth=1.4)
    reliability = alt.Y("reliability:Q", title="reliability")
    return alt.layer(
        _identity_layer(results), curves.encode(x="confidence:Q", y=reliability, color=_label_color(results))
    )


def _ranked_rows(results: Results) -> pl.DataFrame:
    """Return decisions at equal distances in the ranking by confidence, with their ranks by confidence and reliability.

    The ranks are among these decisions.
    """
    logit_columns = {"confidence": "logit_confidence", "reliability": "logit_mrp"}
    ranks = [pl.col(logit).rank("ordinal", descending=True).alias(score) for score, logit in logit_columns.items()]
    ranked = results.scored_rows(results.seeds[0]).with_columns(ranks)  # `confidence` and `reliability` are now ranks
    chosen_ranks = np.linspace(1, len(ranked), min(N_RANKED_DECISIONS, len(ranked))).round().astype(int)
    label_names = dict(enumerate(results.labels))
    chosen = ranked.filter(pl.col("confidence").is_in(chosen_ranks.tolist())).with_columns(
        pl.col(*logit_columns).rank("ordinal"),
        label=pl.col("decision").replace_strict(label_names, return_dtype=pl.String),
    )
    rows = chosen.unpivot([*logit_columns], index=["row", "label", "correct"], variable_name="by", value_name="place")
    return rows.with_columns(kind=pl.lit("rank"))


def _simplex_layer(kind: str) -> alt.Chart:
    """Return a layer of the points of one kind in the plane of the simplex, without axes."""
    return layer_of_kind(kind).encode(
        x=alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.05, 1.05])),
        y=alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.08, 0.95])),
    )


def _simplex_line(kind: str, **style: Any) -> alt.Chart:
    return _simplex_layer(kind).mark_line(**style).encode(order="place:Q", detail="decision:N")


def _points(kind: str, points: np.ndarray, **columns: Any) -> pl.DataFrame:
    """Return points (n, 2) of the plane with their order and further columns."""
    coordinates = pl.DataFrame({"x": points[:, 0], "y": points[:, 1], "place": np.arange(len(points))})
    return coordinates.with_columns(kind=pl.lit(kind), **columns)


def _path_rows(
    uncalibrated: Sequence[float], probabilities: Sequence[float], decision: int, alpha: float
) -> list[pl.DataFrame]:
    """Return the way of a row on the simplex.

    It leads from the uncalibrated to the calibrated vector, and along the power path to the vector of MRC. The frames
    also have the contour of equal reliability, and the three vectors as ends.
    """
    with np.errstate(divide="ignore"):
        log_probabilities = np.log(probabilities)
    powers = np.linspace(1.0, alpha, N_PATH_POINTS)
    path = np.stack([scipy.special.softmax(power * log_probabilities) for power in powers])
    reliability = path[-1, decision]
    corners = np.eye(len(log_probabilities))
    other_corners = np.delete(corners, decision, axis=0)
    contour = reliability * corners[decision] + (1 - reliability) * other_corners
    ends = np.stack([np.asarray(uncalibrated), path[0], path[-1]])
    frames = [
        _points("calibration", ends[:2] @ CORNERS),
        _points("path", path @ CORNERS),
        _points("contour", contour @ CORNERS),
        _points("end", ends @ CORNERS, text=pl.Series(["1", "2", "3"])),
    ]
    return [frame.with_columns(decision=decision) for frame in frames]
