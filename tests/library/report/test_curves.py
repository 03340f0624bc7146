"""Figures by decided label, of rows made by hand: bins, bars, headings, and the marks and scales of the charts."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest

from relmap.report.curves import (
    MapCurves,
    binned_accuracy,
    histogram_bars,
    identity_line,
    map_curves,
    panel_name,
    reliability_axes,
    reliability_by_label,
)
from relmap.report.figure import DrawnFigure, Results
from tests.scores import headings, make_lattice, make_scores
from tests.scores import make_results as make_scored_results

X = {"field": "confidence", "type": "quantitative"}
Y = {"field": "reliability", "type": "quantitative"}


def make_results(
    decision: list[int],
    confidence: list[float],
    reliability: list[float] | None = None,
    seeds: tuple[int, ...] = (7,),
    labels: tuple[str, ...] = ("bad", "good"),
) -> Results:
    """Make rows that are all correct under the first seed, and all wrong under the others."""
    n_rows = len(decision)
    frames = []
    for number, seed in enumerate(seeds):
        label = [(value + min(number, 1)) % len(labels) for value in decision]
        frames.append(
            pl.DataFrame(
                {
                    "row": range(n_rows),
                    "label": label,
                    "decision": decision,
                    "calibrator": "ts",
                    "seed": seed,
                    "confidence": confidence,
                    "reliability": reliability or confidence,
                }
            )
        )
    scores = pl.concat(frames)
    return Results(name="shop", display_name="the shop", labels=labels, scores=scores, test_rows=n_rows)


def make_curve(*points: tuple[float, float]) -> pl.DataFrame:
    return pl.DataFrame(points, schema=["confidence", "reliability"], orient="row")


def draw_map(results: Results, *curves: pl.DataFrame) -> DrawnFigure:
    drawn = map_curves(MapCurves(results, curves))
    assert drawn is not None
    return drawn


def layers_of(figure: DrawnFigure) -> list[dict[str, Any]]:
    return figure.spec["spec"]["layer"]


@pytest.mark.parametrize(
    ("n_rows", "n_bins"), [(0, 0), (19, 0), (20, 1), (39, 1), (40, 2), (159, 7), (160, 8), (1000, 8)]
)
def test_there_are_at_most_eight_bins_of_at_least_twenty_rows(n_rows, n_bins):
    bins = binned_accuracy(pl.Series(np.linspace(0.3, 0.9, n_rows)), pl.Series([True] * n_rows))
    assert len(bins) == n_bins
    if n_bins:
        assert sum(row["rows"] for row in bins) == n_rows
        assert min(row["rows"] for row in bins) >= 20


def test_a_bin_has_its_mean_probability_its_accuracy_and_an_exact_interval():
    """Forty rows in two bins: of the lower twenty 5 are correct, of the upper twenty all."""
    probability = np.r_[np.linspace(0.7, 0.9, 20), np.linspace(0.2, 0.4, 20)]
    correct = np.r_[np.full(20, True), np.arange(20) < 5]
    lower, upper = binned_accuracy(pl.Series(probability), pl.Series(correct))
    interval = binomtest(5, 20).proportion_ci(method="exact")
    expected = {"confidence": 0.3, "reliability": 0.25, "low": interval.low, "high": interval.high, "rows": 20}
    assert lower == pytest.approx(expected)
    assert (upper["confidence"], upper["reliability"], upper["high"]) == pytest.approx((0.8, 1.0, 1.0))
    assert upper["low"] == pytest.approx(binomtest(20, 20).proportion_ci(method="exact").low)


def test_bars_count_rows_in_twenty_ranges_from_the_lowest_confidence_to_1():
    """The ranges of 0.6 to 1 are 0.02 wide; lower confidences are in the first range, and the longest bar is 0.18."""
    bars = histogram_bars(pl.Series([0.1, 0.605, 0.61, 0.615, 0.73, 1.0, 1.0]), 0.6)
    assert [bar["rows"] for bar in bars] == [4, 1, 2]
    np.testing.assert_allclose([bar["confidence"] for bar in bars], [0.6, 0.72, 0.98])
    np.testing.assert_allclose([bar["to"] for bar in bars], [0.62, 0.74, 1.0])
    np.testing.assert_allclose([bar["reliability"] for bar in bars], [0.18, 0.045, 0.09])


def test_a_single_row_has_the_longest_bar_and_no_row_has_none():
    (bar,) = histogram_bars(pl.Series([0.7]), 0.5)
    assert (bar["reliability"], bar["rows"]) == (pytest.approx(0.18), 1)
    assert histogram_bars(pl.Series([], dtype=pl.Float64), 0.5) == []


@pytest.mark.parametrize(("label", "name"), [("7", "label 7"), ("7b", "7b"), ("good", "good")])
def test_a_label_that_is_a_number_is_called_a_label(label, name):
    assert panel_name(label) == name


def test_the_figure_of_a_map_has_curves_bars_dots_and_the_identity_line_in_each_panel():
    results = make_results([0] * 20 + [1] * 3, [0.8] * 20 + [0.95] * 3)
    curve = make_curve((0.49, 0.1), (0.5, 0.2), (0.9, 0.7))
    figure = draw_map(results, curve, make_curve((0.6, 0.5)))
    assert figure.rows.columns == ["label", "panel", "kind", "confidence", "reliability", "low", "high", "to", "rows"]
    assert figure.rows["panel"].unique(maintain_order=True).to_list() == ["bad\n20 rows", "good\n3 rows"]
    bad = figure.rows.filter(label="bad")
    assert bad["kind"].to_list() == ["identity"] * 2 + ["curve"] * 2 + ["rows", "histogram"]
    assert bad.select("confidence", "reliability").rows()[:4] == [(0.5, 0.5), (1.0, 1.0), (0.5, 0.2), (0.9, 0.7)]
    assert bad["rows"].to_list()[4:] == [20, 20]
    # too few rows for a dot
    assert figure.rows.filter(label="good")["kind"].to_list() == ["identity"] * 2 + ["curve", "histogram"]
    with pytest.raises(ValueError, match="zip"):
        draw_map(results, curve)


def test_the_figure_of_a_map_shows_the_first_seed():
    results = make_results([0] * 20, [0.8] * 20, seeds=(7, 8))
    dots = draw_map(results, make_curve((0.6, 0.5)), make_curve()).rows.filter(kind="rows")
    assert dots["reliability"].to_list() == [1.0]


def test_the_layers_of_a_map_are_bars_identity_curve_intervals_and_dots():
    figure = draw_map(make_results([0] * 20, [0.8] * 20), make_curve((0.6, 0.5)), make_curve())
    bars, identity, curve, intervals, dots = layers_of(figure)
    kinds = ["histogram", "identity", "curve", "rows", "rows"]
    assert [layer["transform"] for layer in layers_of(figure)] == [
        [{"filter": f"(datum.kind === '{kind}')"}] for kind in kinds
    ]
    percent = {"format": "%"}
    assert bars["mark"] == {"type": "bar", "color": "var(--bars)"}
    assert bars["encoding"]["x"] == X | {
        "axis": percent,
        "scale": {"clamp": True, "domain": [0.5, 1]},
        "title": "calibrated confidence",
    }
    assert bars["encoding"]["y"] == Y | {"axis": percent, "scale": {"domain": [0, 1]}, "title": "share correct"}
    assert (bars["encoding"]["x2"], bars["encoding"]["y2"]) == ({"field": "to"}, {"datum": 0})
    assert [tooltip["field"] for tooltip in bars["encoding"]["tooltip"]] == ["rows"]
    assert identity["mark"] == {"type": "line", "color": "var(--quiet)", "strokeDash": [5, 4]}
    assert curve["mark"] == {"type": "line", "color": "var(--mrp)", "strokeWidth": 2}
    for layer in (identity, curve):
        assert layer["encoding"] == {"x": X, "y": Y}
    assert intervals["mark"] == {"type": "rule", "color": "var(--fifth)", "strokeWidth": 1.2}
    ends = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    assert intervals["encoding"] == {"x": X, **ends}
    assert dots["mark"] == {"type": "point", "color": "var(--fifth)", "filled": True, "opacity": 1, "size": 36}
    assert (dots["encoding"]["x"], dots["encoding"]["y"]) == (X, Y)
    formats = {tooltip["field"]: tooltip["format"] for tooltip in dots["encoding"]["tooltip"]}
    assert formats == dict.fromkeys(("confidence", "reliability", "low", "high"), ".1%") | {"rows": ","}


def test_panels_are_in_the_order_of_the_labels_with_a_heading_of_two_lines():
    labels = ("z", "a", "m", "k")
    results = make_results([0] * 2, [0.8] * 2, labels=labels)
    figure = draw_map(results, *[make_curve()] * 4)
    facet = figure.spec["facet"]
    assert facet["sort"] == ["z\n2 rows", "a\n0 rows", "m\n0 rows", "k\n0 rows"]
    assert (facet["field"], facet["title"]) == ("panel", None)
    assert facet["header"] == {"labelExpr": "split(datum.label, '\\n')"}
    assert figure.spec["columns"] == 3
    assert (figure.spec["spec"]["width"], figure.spec["spec"]["height"]) == (220, 190)
    assert figure.spec["resolve"] == {"axis": {"x": "independent"}}
    assert "width" not in figure.spec
    assert figure.spec["title"] == "the shop, calibrator ts"


def test_reliability_diagrams_compare_confidence_and_reliability_of_the_first_seed():
    results = make_results([0] * 40, [0.8] * 40, [0.7] * 40, seeds=(7, 8))
    figure = reliability_by_label(results)
    assert figure is not None
    assert figure.rows.columns == ["label", "panel", "kind", "confidence", "reliability", "low", "high", "rows"]
    bad = figure.rows.filter(label="bad")
    assert bad["kind"].to_list() == ["identity", "identity", "confidence", "confidence", "MRP", "MRP"]
    np.testing.assert_allclose(bad["confidence"], [0.5, 1.0, 0.8, 0.8, 0.7, 0.7])
    assert bad["reliability"].to_list()[2:] == [1.0] * 4
    identity, *layers = layers_of(figure)
    assert identity["mark"]["type"] == "line"
    assert identity["encoding"]["y"]["title"] == "share correct"
    marks = [(layer["mark"]["type"], layer["mark"]["color"], layer["transform"][0]["filter"]) for layer in layers]
    expected = []
    for kind, color in (("confidence", "var(--confidence)"), ("MRP", "var(--mrp)")):
        expected += [(mark, color, f"(datum.kind === '{kind}')") for mark in ("line", "rule", "point")]
    assert marks == expected
    for line in (layers[0], layers[3]):
        assert line["encoding"] == {"x": X, "y": Y}


def test_a_line_has_the_width_that_is_asked_for_and_an_axis_the_titles():
    assert identity_line(3).to_dict(validate=False)["mark"]["strokeWidth"] == 3
    assert "strokeWidth" not in identity_line().to_dict(validate=False)["mark"]
    x, y = (axis.to_dict() for axis in reliability_axes(0.25, "confidence of the model"))
    assert x == X | {
        "axis": {"format": "%"},
        "scale": {"clamp": True, "domain": [0.25, 1]},
        "title": "confidence of the model",
    }
    assert y == Y | {"axis": {"format": "%"}, "scale": {"domain": [0, 1]}}


def test_headings_of_reliability_panels_mark_labels_with_few_fit_rows_or_too_few_rows_for_a_dot():
    lattices = [make_lattice(4, (300, 99, 100), ("none", "none", "none"))]
    results = make_scored_results(make_scores({0: 1020, 1: 19, 2: 20}), lattices=lattices)
    figure = reliability_by_label(results)
    many, few, enough_for_a_dot = headings(figure.rows)
    assert (many, enough_for_a_dot) == ("label 7\n1,020 rows", "no\n20 rows")
    assert re.fullmatch(r"yes \(few rows .*fit\)\n19 rows\ntoo few .*dot", few)
    dots = figure.rows.filter(pl.col("kind") != "identity").select("label", "kind", "confidence", "rows").unique()
    rounded = dots.filter(label="no").with_columns(pl.col("confidence").round(9))
    assert set(rounded.rows()) == {("no", "confidence", 0.8, 20), ("no", "MRP", 0.7, 20)}
    assert "yes" not in set(dots["label"])


@pytest.mark.parametrize(
    ("confidence", "reliability", "lowest"), [(0.8, 0.29, 0.2), (0.8, 0.31, 0.3), (0.8, 0.9, 1 / 3), (0.12, 0.9, 0.1)]
)
def test_reliability_axes_begin_at_the_lowest_probability_rounded_down(confidence, reliability, lowest):
    scores = make_scores({0: 3}, confidence=confidence, reliability=0.95)
    lowest_row = scores.head(1).with_columns(reliability=pl.lit(reliability))
    figure = reliability_by_label(make_scored_results(pl.concat([scores, lowest_row])))
    ends = figure.rows.filter(kind="identity", label="no")["confidence"].to_list()
    assert ends == pytest.approx([lowest, 1])
    x_axis = figure.spec["spec"]["layer"][0]["encoding"]["x"]
    assert x_axis["scale"] == {"clamp": True, "domain": [pytest.approx(lowest), 1]}
    assert x_axis["title"] == "estimated probability"


@pytest.mark.parametrize(("seeds", "note"), [((4,), ""), ((4, 5), " First protocol seed.")])
def test_the_caption_names_the_first_of_several_seeds(seeds, note):
    figure = reliability_by_label(make_scored_results(make_scores({0: 3}), seeds=seeds))
    assert figure.caption == reliability_by_label.caption + note


@pytest.mark.parametrize(("n_labels", "n_columns"), [(2, 2), (3, 3), (4, 3)])
def test_panels_have_at_most_three_columns(n_labels, n_columns):
    results = replace(make_scored_results(make_scores({0: 3})), labels=("a", "b", "c", "d")[:n_labels])
    assert reliability_by_label(results).spec["columns"] == n_columns
