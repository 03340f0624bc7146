"""The paper's three figures from our own data, for print: as wide as a column or a page, text of 8 points.

Method overview, label-wise curves, and MRC on the simplex (paper, figures 1 to 3). Like the paper's they are drawn
under the headline's calibrator, from the first protocol seed.
"""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl
import scipy

from relmap.report.curves import curve_rows, identity_line, reliability_axes
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

COLUMN_WIDTH = 240  # points
RERANKED = 14  # decisions that are followed from one order to the other
MOVED = 150  # rows whose way on the simplex is drawn; of the longest way of each label, the whole path
HEIGHT = np.sqrt(3) / 2  # of a triangle of width 1
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, HEIGHT]])


@figure(
    "method_overview",
    "Overview of MRP",
    "Left: at equal calibrated confidence, how often a decision is right depends on its label. Middle: the curve that "
    "MRP learns for each label. Right: decisions in the order of confidence and of reliability, highest on top; hollow "
    "ones are wrong. No decision changes its label.",
    "paper",
)
def method_overview(every: Sequence[Results]) -> Drawing:
    """Return what calibration leaves where labels differ most, the curves that MRP learns of it, and the new order."""
    results = max(every, key=_apart)
    rows = pl.concat([_of_first_seed(results), _reranked(results)], how="diagonal")
    size = {"width": 124, "height": 116}
    dots = layer_of_kind("test rows").encode(x="confidence:Q", color=_by_label(results))
    left = alt.layer(
        _identity(results),
        dots.mark_rule(strokeWidth=0.8).encode(y=alt.Y("low:Q", title="test rows that are right"), y2="high:Q"),
        dots.mark_point(filled=True, size=18, opacity=1).encode(y="reliability:Q"),
    ).properties(title="after calibration", **size)
    order = layer_of_kind("rank").encode(
        x=alt.X("by:N", title="ranked by", axis=alt.Axis(labelAngle=0, domain=False, ticks=False)),
        y=alt.Y("place:Q", axis=None, scale=alt.Scale(reverse=True)),
        color=_by_label(results),
    )
    right = alt.layer(
        order.mark_line(strokeWidth=1).encode(detail="row:N"),
        order.mark_point(filled=True, size=26, opacity=1),
        order.transform_filter(~alt.datum.correct).mark_point(fill=css_color("paper"), size=24, opacity=1),
    ).properties(title="the same decisions, reranked", **size)
    panels = left, _learned(results).properties(title="what MRP learns", **size), right
    chart = alt.hconcat(*panels, spacing=26).properties(title=results.subtitle)
    return Drawing(rows, print_spec(chart, rows))


@figure(
    "labelwise_curves",
    "Label-wise curves",
    "Learned label-wise reliability curves; on the dashed line the reliability is the confidence.",
    "paper",
)
def labelwise_curves(every: Sequence[Results]) -> Drawing:
    """Return the curves T_k of each data set in a panel of its own; the dashed line is the confidence itself."""
    rows = pl.concat(_of_first_seed(results).with_columns(panel=place) for place, results in enumerate(every))
    panels = [
        _learned(results)
        .transform_filter(alt.datum.panel == place)
        .properties(title=results.display_name, width=104, height=92)
        for place, results in enumerate(every)
    ]
    chart = alt.concat(*panels, columns=3, spacing=14).resolve_scale(color="independent")
    return Drawing(rows, print_spec(chart, rows), f"Under {every[0].calibrator}, first protocol seed.")


@figure(
    "simplex_paths",
    "MRC on the simplex",
    "Each line leads from a calibrated probability vector to that of MRC. For one row of each decision: the vector "
    "(1), the contour on which the decision has MRP's reliability (dashed), and MRC (2), where the power path meets "
    "it. Rows whose reliability is below 1/K, which become uniform, are left out.",
    "paper",
)
def simplex_paths(every: Sequence[Results]) -> Drawing | None:
    """Return the ways from calibrated vectors (1) to MRC's (2), of the set of three labels that differ most."""
    of_three = [results for results in every if len(results.labels) == len(CORNERS) and len(_moved(results))]
    if not of_three:
        return None
    results = max(of_three, key=_apart)
    moved = _moved(results)
    start, end = (np.array(moved[name].to_list()) @ CORNERS for name in ("base", "mrc"))
    to_where = np.where(moved["alpha"].to_numpy() > 1, "surer", "less sure")
    moves = _points("move", start, to_x=end[:, 0], to_y=end[:, 1], moved=to_where)
    longest = moved.with_columns(way=np.linalg.norm(end - start, axis=1)).sort("way", descending=True)
    followed = longest.unique("decision", keep="first", maintain_order=True)
    below = np.array([[0, -0.05], [0, -0.05], [0, 0.04]])
    named = _points("corner", CORNERS + below, text=pl.Series(results.labels))
    paths = [path for row in followed.iter_rows(named=True) for path in _path(row)]
    rows = pl.concat([_points("outline", CORNERS[[0, 1, 2, 0]]), named, moves, *paths], how="diagonal")

    def line(kind: str, tone: str, **style: Any) -> alt.Chart:
        return _placed(kind).mark_line(color=css_color(tone), **style).encode(order="place:Q", detail="decision:N")

    tones = alt.Scale(domain=["surer", "less sure"], range=[css_color("mrp"), css_color("fifth")])
    texts: dict[str, Any] = {"fontSize": PRINT_FONT_SIZE, "color": css_color("ink")}
    ways = _placed("move").mark_rule(opacity=0.45, strokeWidth=0.8)
    chart = alt.layer(
        line("outline", "quiet", strokeWidth=0.8),
        _placed("corner").mark_text(**texts).encode(text="text:N"),
        ways.encode(x2="to_x:Q", y2="to_y:Q", color=alt.Color("moved:N", scale=tones)),
        line("contour", "ink", strokeWidth=0.7, strokeDash=[2, 2]),
        line("path", "ink", strokeWidth=1.6),
        _placed("end").mark_point(filled=True, color=css_color("ink"), size=14, opacity=1),
        _placed("end").mark_text(dx=6, dy=-4, **texts).encode(text="text:N"),
    ).properties(width=COLUMN_WIDTH - 30, height=(COLUMN_WIDTH - 30) * HEIGHT, title=results.subtitle)
    return Drawing(rows, print_spec(chart, rows))


def _moved(results: Results) -> pl.DataFrame:
    """The first rows whose vector states MRP's reliability."""
    return results.simplex.filter(pl.col("feasible") & pl.col("solved"))[:MOVED]


def _apart(results: Results) -> float:
    """The label spread under the calibrator that is drawn; 0 where there is none."""
    spread = results.metric_means("confidence", spread="label_spread").filter(calibrator=results.calibrator)["spread"]
    return float(spread[0]) if len(spread) else 0.0


def _of_first_seed(results: Results) -> pl.DataFrame:
    rows = curve_rows(results).drop("panel").filter(pl.col("kind") != "histogram", pl.col("rows").fill_null(1) > 0)
    return rows.filter(pl.col("seed").is_null() | (pl.col("seed") == results.seeds[0]))


def _by_label(results: Results) -> alt.Color:
    tones = [css_color(LABEL_COLORS[place % len(LABEL_COLORS)]) for place in range(len(results.labels))]
    legend = alt.Legend(title=None, orient="bottom", columns=min(3, len(results.labels)), symbolType="stroke")
    return alt.Color("label:N", scale=alt.Scale(domain=list(results.labels), range=tones), legend=legend)


def _identity(results: Results) -> alt.Chart:
    return identity_line(strokeWidth=0.8).encode(**reliability_axes(results.min_confidence(), "calibrated confidence"))


def _learned(results: Results) -> Any:
    lines = layer_of_kind("curve").mark_line(strokeWidth=1.4)
    reliability = alt.Y("reliability:Q", title="reliability")
    return alt.layer(_identity(results), lines.encode(x="confidence:Q", y=reliability, color=_by_label(results)))


def _reranked(results: Results) -> pl.DataFrame:
    """Decisions at even places of the order by confidence, and where they are in that by reliability."""
    ranks = {"confidence": "logit_confidence", "reliability": "logit_mrp"}
    rank = [pl.col(logit).rank("ordinal", descending=True).alias(by) for by, logit in ranks.items()]
    ranked = results.scored_rows(results.seeds[0]).with_columns(rank)
    places = np.linspace(1, len(ranked), min(RERANKED, len(ranked))).round().astype(int)
    chosen = ranked.filter(pl.col("confidence").is_in(places.tolist())).with_columns(
        pl.col(*ranks).rank("ordinal"),
        label=pl.col("decision").replace_strict(dict(enumerate(results.labels)), return_dtype=pl.String),
    )
    ends = chosen.unpivot([*ranks], index=["row", "label", "correct"], variable_name="by", value_name="place")
    return ends.with_columns(kind=pl.lit("rank"))


def _placed(kind: str) -> alt.Chart:
    """Points of one kind on the plane of the simplex, which has no axes."""
    return layer_of_kind(kind).encode(
        x=alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.05, 1.05])),
        y=alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.08, 0.95])),
    )


def _points(kind: str, points: np.ndarray, **columns: Any) -> pl.DataFrame:
    """Points `(n, 2)` of the plane, in their order, and what more is known of them."""
    places = {"x": points[:, 0], "y": points[:, 1], "place": np.arange(len(points))}
    return pl.DataFrame(places).with_columns(kind=pl.lit(kind), **columns)


def _path(row: dict[str, Any]) -> list[pl.DataFrame]:
    """The power path of one row from its vector to MRC's, the contour of its target, and the two ends by number."""
    with np.errstate(divide="ignore"):
        logs = np.log(row["base"])
    path = np.stack([scipy.special.softmax(power * logs) for power in np.linspace(1.0, row["alpha"], 40)])
    target = path[-1, row["decision"]]
    others = np.delete(np.eye(len(logs)), row["decision"], axis=0)
    contour = target * np.eye(len(logs))[row["decision"]] + (1 - target) * others
    ends = _points("end", path[[0, -1]] @ CORNERS, text=pl.Series(["1", "2"]))
    lines = _points("path", path @ CORNERS), _points("contour", contour @ CORNERS), ends
    return [points.with_columns(decision=row["decision"]) for points in lines]
