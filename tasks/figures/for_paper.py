"""The paper's three figures from our own data, for print: as wide as a column or a page, text of 8 points.

Method overview, label-wise curves, and MRC on the simplex (paper, figures 1 to 3). Like the paper's they are drawn
under the headline's calibrator, from the first protocol seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from scipy.special import softmax

from tasks.figures.curves import axes, fitted, observed, read
from tasks.figures.figure import Figure, for_print
from tasks.figures.results import Results
from tasks.figures.style import LABELS, POINTS, colour
from tasks.protocol.keys import HEADLINE_CALIBRATOR

COLUMN_WIDTH = 240  # points
RERANKED = 14  # decisions that are followed from one order to the other
MOVED = 150  # rows whose way on the simplex is drawn; of the longest way of each label, the whole path
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


def paper_figures(every: Sequence[Results]) -> list[Figure]:
    """Overview of the set whose labels differ most, curves of all sets, the simplex of a set with three labels."""
    every = [replace(one, drawn_under=HEADLINE_CALIBRATOR) for one in every]
    figures = [overview_of_method(max(every, key=_apart)), labelwise_curves(every)]
    of_three = [one for one in every if len(one.labels) == len(CORNERS) and len(_moved(one))]
    return figures + ([simplex_paths(max(of_three, key=_apart))] if of_three else [])


def overview_of_method(results: Results) -> Figure:
    """What calibration leaves, the curves that MRP learns from it, and the order that comes of them."""
    first = results.scored(results.seeds[0])
    panels = [_left_by_calibration(results, first), _learned(results), _reranked(results, first)]
    chart = alt.hconcat(*panels, spacing=26).properties(title=results.subtitle)
    caption = (
        "Left: at equal calibrated confidence, how often a decision is right depends on its label. Middle: the curve "
        "that MRP learns for each label. Right: decisions in the order of confidence and of reliability, highest on "
        "top; hollow ones are wrong. No decision changes its label."
    )
    return Figure("method_overview", "Overview of MRP", caption, pl.DataFrame(), for_print(chart))


def labelwise_curves(every: Sequence[Results]) -> Figure:
    """The curves T_k of each data set in a panel of its own; the dashed line is the confidence itself."""
    panels = [_learned(one, title=one.shown, width=104, height=92) for one in every]
    chart = alt.concat(*panels, columns=3, spacing=14).resolve_scale(color="independent")
    caption = (
        f"Learned label-wise reliability curves under {every[0].calibrator}, first protocol seed; on the dashed line "
        "the reliability is the confidence."
    )
    return Figure("labelwise_curves", "Label-wise curves", caption, pl.DataFrame(), for_print(chart))


def simplex_paths(results: Results) -> Figure:
    """From calibrated vectors (1) along their power paths to MRC's (2), where the decision has MRP's reliability."""
    rows = _moved(results)
    base, mrc = (np.array(rows[name].to_list()) for name in ("base", "mrc"))
    start, end = base @ CORNERS, mrc @ CORNERS
    lines = pl.DataFrame({"x": start[:, 0], "y": start[:, 1], "to_x": end[:, 0], "to_y": end[:, 1]}).with_columns(
        moved=pl.Series(np.where(rows["alpha"].to_numpy() > 1, "surer", "less sure"))
    )
    surface = _corners(results.labels)
    way = alt.Color(
        "moved:N",
        scale=alt.Scale(domain=["surer", "less sure"], range=[colour("mrp"), colour("fifth")]),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke"),
    )
    moves = alt.Chart(alt.Data(values=lines.to_dicts()))
    longest = rows.with_row_index("place").with_columns(way=np.linalg.norm(end - start, axis=1))
    followed = longest.sort("way", descending=True).unique("decision", keep="first", maintain_order=True)
    marked = [_path(base[row["place"]], row["alpha"], row["decision"]) for row in followed.iter_rows(named=True)]
    chart = alt.layer(
        *surface,
        moves.mark_rule(opacity=0.45, strokeWidth=0.8).encode(x="x:Q", y="y:Q", x2="to_x:Q", y2="to_y:Q", color=way),
        *(layer for layers in marked for layer in layers),
    ).properties(width=COLUMN_WIDTH - 30, height=(COLUMN_WIDTH - 30) * np.sqrt(3) / 2, title=results.subtitle)
    caption = (
        "Each line leads from a calibrated probability vector to that of MRC. For one row of each decision: the "
        "vector (1), the contour on which the decision has MRP's reliability (dashed), and MRC (2), where the power "
        "path meets it. Rows whose reliability is below 1/K, which become uniform, are left out."
    )
    return Figure("simplex_paths", "MRC on the simplex", caption, pl.DataFrame(), for_print(chart))


def _moved(results: Results) -> pl.DataFrame:
    """The first rows whose vector states MRP's reliability."""
    return results.simplex.filter(pl.col("feasible") & pl.col("solved"))[:MOVED]


def _apart(results: Results) -> float:
    """The label spread under the calibrator that is drawn; 0 where there is none."""
    spread = results.measured("label_spread", "confidence").filter(calibrator=results.calibrator)["value"].to_list()
    return float(spread[0]) if spread else 0.0


def _by_label(results: Results) -> alt.Color:
    tones = [colour(LABELS[place % len(LABELS)]) for place in range(len(results.labels))]
    legend = alt.Legend(title=None, orient="bottom", columns=min(3, len(results.labels)), symbolType="stroke")
    return alt.Color("label:N", scale=alt.Scale(domain=list(results.labels), range=tones), legend=legend)


def _identity(results: Results) -> alt.Chart:
    """The line on which the reliability is the confidence, with the axes."""
    ends = [{"confidence": at, "reliability": at} for at in (results.lowest(), 1.0)]
    line = alt.Chart(alt.Data(values=ends)).mark_line(color=colour("quiet"), strokeDash=[3, 3], strokeWidth=0.8)
    return line.encode(**axes(results.lowest(), "calibrated confidence"))


def _left_by_calibration(results: Results, first: pl.DataFrame) -> Any:
    dots = []
    for place, label in enumerate(results.labels):
        mine = first.filter(pl.col("decision") == place)
        dots += [{"label": label} | dot for dot in observed(mine["confidence"], mine["correct"])]
    base = alt.Chart(alt.Data(values=dots)).encode(color=_by_label(results))
    return alt.layer(
        _identity(results),
        base.mark_rule(strokeWidth=0.8).encode(
            x="confidence:Q", y=alt.Y("low:Q", title="test rows that are right"), y2="high:Q"
        ),
        base.mark_point(filled=True, size=18, opacity=1).encode(x="confidence:Q", y="reliability:Q"),
    ).properties(width=124, height=116, title="after calibration")


def _learned(results: Results, title: str = "what MRP learns", width: int = 124, height: int = 116) -> Any:
    at = np.linspace(max(results.lowest(), 1e-3), 1 - 1e-3, 60)
    values = []
    for place, label in enumerate(results.labels):
        curve = fitted(results, place)[0]
        pairs = zip(at.tolist(), read(curve, at).tolist(), strict=True)
        values += [{"label": label, "confidence": c, "reliability": q} for c, q in pairs if curve["rows"]]
    lines = (
        alt.Chart(alt.Data(values=values))
        .mark_line(strokeWidth=1.4)
        .encode(x="confidence:Q", y=alt.Y("reliability:Q", title="reliability"), color=_by_label(results))
    )
    return alt.layer(_identity(results), lines).properties(width=width, height=height, title=title)


def _reranked(results: Results, first: pl.DataFrame) -> Any:
    """Decisions at even places of the order by confidence, and where they are in that by reliability."""
    rank = {name: pl.col(f"logit_{name}").rank("ordinal", descending=True) for name in ("confidence", "mrp")}
    ranked = first.with_columns(**rank)
    places = np.linspace(1, len(ranked), min(RERANKED, len(ranked))).round().astype(int)
    chosen = ranked.filter(pl.col("confidence").is_in(places.tolist())).with_columns(
        pl.col("confidence", "mrp").rank("ordinal"),
        label=pl.col("decision").replace_strict(dict(enumerate(results.labels)), return_dtype=pl.String),
    )
    ends = chosen.unpivot(
        ["confidence", "mrp"], index=["row", "label", "correct"], variable_name="by", value_name="place"
    )
    ends = ends.with_columns(pl.col("by").replace_strict({"confidence": "confidence", "mrp": "reliability"}))
    base = alt.Chart(alt.Data(values=ends.to_dicts())).encode(
        x=alt.X(
            "by:N",
            title="ranked by",
            axis=alt.Axis(labelAngle=0, domain=False, ticks=False),
            scale=alt.Scale(padding=0.3),
        ),
        y=alt.Y("place:Q", axis=None, scale=alt.Scale(reverse=True)),
        color=_by_label(results),
    )
    right, wrong = (base.transform_filter(alt.datum.correct == one) for one in (True, False))
    return alt.layer(
        base.mark_line(strokeWidth=1).encode(detail="row:N"),
        right.mark_point(filled=True, size=26, opacity=1),
        wrong.mark_point(fill=colour("paper"), size=24, opacity=1, strokeWidth=1.2),
    ).properties(width=114, height=116, title="the same decisions, reranked")


def _corners(labels: Sequence[str]) -> list[alt.Chart]:
    closed = [{"x": x, "y": y, "place": place} for place, (x, y) in enumerate(CORNERS[[0, 1, 2, 0]].tolist())]
    named = [{"x": x, "y": y, "label": label} for (x, y), label in zip(CORNERS.tolist(), labels, strict=True)]
    axes = {
        "x": alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.05, 1.05])),
        "y": alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.08, 0.95])),
    }
    texts = alt.Chart(alt.Data(values=named))
    return [
        alt.Chart(alt.Data(values=closed))
        .mark_line(color=colour("quiet"), strokeWidth=0.8)
        .encode(**axes, order="place:Q"),
        texts.transform_filter("datum.y < 0.5")
        .mark_text(fontSize=POINTS, dy=10, color=colour("ink"))
        .encode(x="x:Q", y="y:Q", text="label:N"),
        texts.transform_filter("datum.y > 0.5")
        .mark_text(fontSize=POINTS, dy=-6, color=colour("ink"))
        .encode(x="x:Q", y="y:Q", text="label:N"),
    ]


def _path(base: np.ndarray, alpha: float, decision: int) -> list[alt.Chart]:
    """The power path of one row from its vector to MRC's, the contour of its target, and the two ends by number."""
    with np.errstate(divide="ignore"):
        logs = np.log(base)
    along = np.stack([softmax(power * logs) for power in np.linspace(1.0, alpha, 40)]) @ CORNERS
    target = softmax(alpha * logs)[decision]
    others = [label for label in range(len(base)) if label != decision]
    contour = np.zeros((2, len(base)))
    contour[:, decision] = target
    contour[[0, 1], others] = 1 - target
    ink, path, dashed = colour("ink"), _line(along), _line(contour @ CORNERS)
    ends = [{"x": x, "y": y, "number": number} for number, (x, y) in zip("12", along[[0, -1]].tolist(), strict=True)]
    numbers = alt.Chart(alt.Data(values=ends))
    return [
        dashed.mark_line(color=ink, strokeWidth=0.7, strokeDash=[2, 2]).encode(x="x:Q", y="y:Q", order="place:Q"),
        path.mark_line(color=ink, strokeWidth=1.6).encode(x="x:Q", y="y:Q", order="place:Q"),
        numbers.mark_point(filled=True, color=ink, size=14, opacity=1).encode(x="x:Q", y="y:Q"),
        numbers.mark_text(fontSize=POINTS, dx=6, dy=-4, color=ink).encode(x="x:Q", y="y:Q", text="number:N"),
    ]


def _line(points: np.ndarray) -> alt.Chart:
    return alt.Chart(
        alt.Data(values=[{"x": x, "y": y, "place": place} for place, (x, y) in enumerate(points.tolist())])
    )
