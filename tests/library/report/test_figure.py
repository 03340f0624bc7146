"""Report figures of made-up scores and maps: rows, headings, charts and captions."""

import json
import re
from dataclasses import replace

import altair as alt
import numpy as np
import polars as pl
import pytest
import vl_convert
from scipy.special import expit, logit

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.assessment import MapAssessment
from relmap.maps.score import ScoredDecisions
from relmap.projection.labelwise import Lines
from relmap.report import plot as plot_module
from relmap.report.figure import (
    ROWS,
    Drawing,
    Figure,
    page_spec,
    print_spec,
    theme,
    tooltips,
    with_light_colors,
)
from relmap.report.plot import Plot, fitted_curves, plot_map, results_of_map
from tests import maps
from tests.scores import headings, make_lattice, make_results, make_scores


def assess(
    decision: np.ndarray,
    confidence: np.ndarray,
    reliability: np.ndarray,
    variant: str = "mrp",
    fitted: object | None = None,
    **columns: np.ndarray | None,
) -> MapAssessment:
    """Make an assessment of rows that a made-up map has scored; every fourth row is wrong."""
    label = np.where(np.arange(len(decision)) % 4 == 3, (decision + 1) % 3, decision)
    rows = FixedDecisions(decision=decision, confidence=confidence, label=label, **columns)
    return MapAssessment(
        document=maps.make_map(variant, fitted),
        rows=rows,
        scored=ScoredDecisions(confidence=confidence, logit=logit(reliability)),
        origin="new",
        notes=[],
        fitted=np.zeros(len(decision), dtype=bool),
    )


def assess_random_rows(n_rows: int = 64, variant: str = "mrp", **columns: np.ndarray | None) -> MapAssessment:
    generator = np.random.default_rng(6)
    decision = generator.integers(0, 3, n_rows)
    confidence = generator.uniform(0.4, 0.95, n_rows)
    return assess(decision, confidence, confidence**2, variant, **columns)


def test_results_of_a_map_describe_its_rows():
    group = np.array(["b", "a", "b", "c"])
    decision = np.array([0, 2, 1, 1])
    confidence = np.array([0.5, 0.75, 0.8, 0.9])
    reliability = np.array([0.25, 0.5, 0.6, 0.7])
    results = results_of_map(assess(decision, confidence, reliability, group=group))
    assert (results.name, results.display_name) == ("made-up.parquet", "made-up.parquet")
    assert (results.labels, results.test_rows, results.variant) == (maps.LABEL_NAMES, 4, "mrp")
    assert re.fullmatch(r"made-up\.parquet, confidence: .* calibrator ts", results.subtitle)
    assert results.scores.drop("logit_confidence", "logit_mrp").to_dict(as_series=False) == {
        "row": [0, 1, 2, 3],
        "group": ["b", "a", "b", "c"],
        "label": [0, 2, 1, 2],
        "decision": [0, 2, 1, 1],
        "calibrator": ["ts"] * 4,
        "seed": [1] * 4,
        "confidence": confidence.tolist(),
        "reliability": reliability.tolist(),
    }
    np.testing.assert_allclose(results.scores["logit_confidence"], logit(confidence))
    np.testing.assert_allclose(results.scores["logit_mrp"], logit(reliability))


def test_rows_without_groups_are_their_own_groups():
    results = results_of_map(assess_random_rows(11))
    assert results.scores["group"].to_list() == [str(row) for row in range(11)]


def test_the_curve_of_a_map_is_its_reliability_by_confidence():
    lines = Lines(np.array([1.0, 0.5, 2.0]), np.array([0.0, -1.0, 0.25]))
    variant = replace(maps.make_variants()["label_platt"], own=lines, fallback=("none",) * 3)
    assessment = replace(assess_random_rows(8), document=maps.make_map("label_platt", variant))
    curves = fitted_curves(assessment)
    assert len(curves) == 3
    for label, curve in enumerate(curves):
        confidence = curve["confidence"].to_numpy()
        expected_logit = lines.intercept[label] + lines.slope[label] * logit(confidence)
        np.testing.assert_allclose(curve["reliability"], expit(expected_logit))
        np.testing.assert_allclose(confidence, sorted([*np.linspace(0.001, 0.999, 150), 0.9995, 0.9999]))


@pytest.mark.parametrize(("n_rows", "n_bins"), [(0, 0), (1, 1), (9, 1), (19, 1), (20, 2), (119, 11), (140, 12)])
def test_the_curve_of_a_map_with_a_class_wise_calibrator_has_the_means_of_bins_of_rows(n_rows, n_bins):
    generator = np.random.default_rng(n_rows)
    decision = np.r_[np.ones(n_rows, dtype=np.int64), np.zeros(7, dtype=np.int64)]
    order = generator.permutation(len(decision))
    confidence = generator.uniform(0.4, 0.9, len(decision))
    assessment = assess(decision[order], confidence, confidence**2)
    document = assessment.document
    with_baseline = document.model_copy(update={"baseline": document.calibrator})
    curve = fitted_curves(replace(assessment, document=with_baseline))[1]
    assert curve.schema == {"confidence": pl.Float64, "reliability": pl.Float64}
    assert len(curve) == n_bins
    sorted_confidence = np.sort(confidence[decision[order] == 1])
    bins = np.array_split(sorted_confidence, max(n_bins, 1)) if n_rows else []
    np.testing.assert_allclose(curve["confidence"], [values.mean() for values in bins])
    np.testing.assert_allclose(curve["reliability"], [(values**2).mean() for values in bins])


def test_the_figure_of_a_map_shows_curves_and_rows_of_each_label():
    assessment = assess(np.repeat([0, 1], [1200, 25]), np.full(1225, 0.62), np.full(1225, 0.5))
    curves, risk = plot_map(assessment).figures
    assert (curves.key, risk.key) == ("map_curves", "risk_coverage")
    assert headings(curves.rows) == ["irrelevant\n1,200 rows", "partial\n25 rows", "exact\n0 rows"]
    assert "seed" not in curves.rows.columns
    assert curves.rows.filter(kind="curve")["confidence"].min() >= 1 / 3
    dots = curves.rows.filter(kind="rows")
    assert dots.group_by("label", maintain_order=True).agg(pl.sum("rows"), pl.len()).rows() == [
        ("irrelevant", 1200, 8),
        ("partial", 25, 1),
    ]
    bars = curves.rows.filter(kind="histogram").select("label", "rows")
    assert bars.rows() == [("irrelevant", 1200), ("partial", 25)]


@pytest.mark.parametrize(
    ("columns", "n_rows", "message"),
    [
        ({"weight": np.ones(8)}, 8, "sampling weights .*; .*random sample"),
        ({}, 0, "no rows .*; .*labels"),
    ],
)
def test_rows_that_cannot_be_plotted_are_rejected(columns, n_rows, message):
    with pytest.raises(InputError, match=message):
        plot_map(assess_random_rows(n_rows, **columns))


@pytest.fixture(scope="module")
def plot() -> Plot:
    return plot_map(assess_random_rows())


def test_a_plot_stacks_its_charts_with_their_data_in_light_colors(plot):
    spec = plot.to_dict()
    curves, risk = spec["vconcat"]
    assert spec["spacing"] == 30
    assert spec["config"] == json.loads(with_light_colors(theme(12, for_print=True)))
    assert set(spec) == {"vconcat", "spacing", "config"}
    assert "width" not in curves
    assert risk["width"] == 480
    for part, figure in zip((curves, risk), plot.figures, strict=True):
        assert "config" not in part
        assert part["data"] == {"values": figure.rows.fill_nan(None).to_dicts()}
    assert "var(" not in json.dumps(spec)
    assert plot.figures[1].spec["width"] == "container"


def test_changing_a_copy_of_the_charts_does_not_change_the_plot(plot):
    copied = plot.to_dict()
    copied["vconcat"].clear()
    assert len(plot.to_dict()["vconcat"]) == 2


def test_files_contain_the_charts(plot, tmp_path, monkeypatch):
    monkeypatch.setattr(plot_module, "svg", lambda spec: f"<svg>{len(spec['vconcat'])} charts, größer</svg>")
    for ending in ("json", "svg", "html"):
        plot.save(str(tmp_path / f"chart.{ending}"))
    assert json.loads((tmp_path / "chart.json").read_text()) == plot.to_dict()
    assert (tmp_path / "chart.svg").read_text(encoding="utf-8") == "<svg>2 charts, größer</svg>"
    html = (tmp_path / "chart.html").read_text(encoding="utf-8")
    first, second = plot.figures
    assert html == (
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><div><svg>2 charts, größer</svg>'
        f"<p><strong>{first.title}</strong> {first.caption}</p><p><strong>{second.title}</strong> {second.caption}</p>"
        "</div></html>\n"
    )


def test_titles_and_captions_are_escaped_in_a_notebook(plot, monkeypatch):
    monkeypatch.setattr(plot_module, "svg", lambda _: "")
    figure = plot.figures[0]._replace(title="a < b", caption="c & d")
    assert Plot((figure,))._repr_html_() == "<div><p><strong>a &lt; b</strong> c &amp; d</p></div>"


def test_a_png_has_two_pixels_for_each_unit(plot, tmp_path, monkeypatch):
    monkeypatch.setattr(vl_convert, "vegalite_to_png", lambda spec, scale: json.dumps([spec, scale]).encode())
    plot.save(tmp_path / "chart.png")
    spec, scale = json.loads((tmp_path / "chart.png").read_text(encoding="utf-8"))
    assert json.loads(spec) == plot.to_dict()
    assert scale == 2


def test_the_message_about_a_file_ending_lists_the_endings(plot, tmp_path):
    path = tmp_path / "chart.docx"
    with pytest.raises(InputError, match=rf"{re.escape(str(path))};.*\.html.*\.json.*\.pdf.*\.png.*\.svg$"):
        plot.save(path)


def make_figure(drawing: Drawing | None) -> Figure:
    return Figure(key="k", title="t", caption="How to read it.", role="paper", draw=lambda _: drawing)


def test_a_figure_without_rows_is_not_drawn():
    rows = pl.DataFrame({"a": [1, 2]})
    assert make_figure(None)("source") is None
    assert make_figure(Drawing(rows.clear(), {}))("source") is None
    drawn = make_figure(Drawing(rows, {"mark": "bar"}, "A note. "))("source")
    assert drawn is not None
    assert (drawn.key, drawn.title, drawn.caption, drawn.spec) == ("k", "t", "How to read it. A note.", {"mark": "bar"})
    assert drawn.rows.equals(rows)
    without_note = make_figure(Drawing(rows, {}))("source")
    assert without_note is not None
    assert without_note.caption == "How to read it."


def test_specifications_have_a_theme_and_only_the_data_that_they_are_given():
    layer_with_data = alt.Chart(pl.DataFrame({"a": [5.0]})).mark_bar().encode(x="a:Q")
    chart = alt.layer(alt.Chart(ROWS).mark_point().encode(x="a:Q"), layer_with_data).configure_view(stroke="red")
    page = page_spec(chart, subtitle="the shop")
    assert (page["title"], page["width"], page["height"], page["config"]) == ("the shop", "container", 260, theme())
    assert not {"data", "datasets"} & set(page)
    assert not any("data" in layer for layer in page["layer"])
    without_size = page_spec(chart, subtitle="the shop", height=None)
    assert not {"width", "height"} & set(without_size)
    assert page_spec(chart, subtitle="", height=300)["height"] == 300

    printed = print_spec(chart, pl.DataFrame({"a": [1.0, float("nan")]}))
    assert printed["data"] == {"values": [{"a": 1.0}, {"a": None}]}
    assert printed["config"] == theme(8, for_print=True)
    assert print_spec(chart, pl.DataFrame(), size=11)["config"] == theme(11, for_print=True)
    assert not {"width", "title", "datasets"} & set(printed)


def test_tooltips_show_numbers_in_their_format_and_names_unchanged():
    assert [tooltip.to_dict() for tooltip in tooltips(change_low="+.0f", variant="")] == [
        {"field": "change_low", "type": "quantitative", "title": "change low", "format": "+.0f"},
        {"field": "variant", "type": "nominal", "title": "variant"},
    ]


def test_the_figures_show_the_preferred_calibrator_or_the_last():
    results = make_results(make_scores({0: 3}))
    assert results.calibrators == ["uncal", "ts"]
    assert results.calibrator == "ts"
    assert replace(results, preferred_calibrator="uncal").calibrator == "uncal"
    assert replace(results, preferred_calibrator="matrix").calibrator == "ts"


@pytest.mark.parametrize(
    ("test_rows", "sample"), [(3, ""), (4, ", 3 of 4 test rows"), (12_345, ", 3 of 12,345 test rows")]
)
def test_the_subtitle_names_the_size_of_a_sample(test_rows, sample):
    results = replace(make_results(make_scores({0: 3}), seeds=(4, 5)), test_rows=test_rows)
    assert results.subtitle == f"the shop, calibrator ts{sample}"


def test_metrics_are_averaged_over_seeds_by_calibrator():
    rows = [
        ("ts", "mrp", "aurc", 0.25),
        ("ts", "mrp", "aurc", 0.5),
        ("ts", "mrp", "nll", 3.0),
        ("ts", "confidence", "aurc", 99.0),
        ("uncal", "mrp", "nll", 2.0),
        ("matrix", "mrp", "aurc", 77.0),
    ]
    metrics = pl.DataFrame(rows, schema=["calibrator", "variant", "metric", "value"], orient="row")
    results = make_results(make_scores({0: 3}), metrics=metrics)
    assert results.metric_means("mrp", area="aurc", loss="nll").rows() == [("ts", 0.375, 3.0)]
    assert results.metric_means("mrp", loss="nll", area="aurc").rows() == [("ts", 3.0, 0.375), ("uncal", 2.0, None)]


def test_labels_have_few_rows_if_any_seed_has_few():
    lattices = [
        make_lattice(4, (100, 100, 99), ("none",) * 3),
        make_lattice(5, (100, 99, 500), ("none",) * 3),
        make_lattice(4, (1, 1, 1), ("none",) * 3, variant="shared_1d"),
    ]
    results = make_results(make_scores({0: 3}), lattices=lattices)
    assert results.labels_with_few_rows == ("yes", "no")
    assert make_results(make_scores({0: 3})).labels_with_few_rows == ()
