"""Figure of thresholds on a score, of made-up curves: points of the thresholds, lines, colors and legends."""

import polars as pl
import pytest

from relmap.report import score as score_module
from relmap.report.score import precision_recall_svg
from relmap.routing.score_thresholds import GradeThresholds, ScoreThreshold, ScoreThresholds

COLORS = ["var(--isotonic)", "var(--platt)", "var(--other)"]  # the first three


def make_score_threshold(metric: str, target: float, threshold: float | None) -> ScoreThreshold:
    fields = dict.fromkeys(ScoreThreshold.__dataclass_fields__)
    return ScoreThreshold(**fields | {"metric": metric, "target": target, "threshold": threshold})


def make_score_thresholds(curve: pl.DataFrame, *thresholds: ScoreThreshold) -> ScoreThresholds:
    fields = dict.fromkeys(ScoreThresholds.__dataclass_fields__)
    return ScoreThresholds(**fields | {"curve": curve, "thresholds": thresholds})


def make_curve(*points: tuple[float, float, float]) -> pl.DataFrame:
    return pl.DataFrame(points, schema=["threshold", "recall", "precision"], orient="row")


def test_the_chart_of_score_thresholds_marks_the_last_point_at_or_above_each(monkeypatch):
    monkeypatch.setattr(score_module, "svg", lambda spec: spec)
    curve = pl.DataFrame(
        {"threshold": [0.9, 0.5, 0.25], "recall": [0.2, 0.6, 1.0], "precision": [1.0, 0.75, 0.5]},
    )
    thresholds = (
        make_score_threshold("precision", 0.7, 0.5),
        make_score_threshold("recall", 0.9, None),
        make_score_threshold("recall", 0.625, 0.26),
    )
    spec = precision_recall_svg(make_score_thresholds(curve, *thresholds))
    points = [row for row in spec["data"]["values"] if row["kind"] == "threshold"]
    assert [(row["name"], row["threshold"]) for row in points] == [
        ("precision at least 70%: 0.5", 0.5),
        ("recall at least 62.5%: 0.26", 0.5),
    ]
    assert [row["name"] for row in spec["data"]["values"] if row["kind"] == "curve"] == ["", "", ""]
    assert spec["title"].startswith("Precision and recall ")
    assert (spec["width"], spec["height"]) == (480, 300)
    assert spec["config"]["axis"]["titleFontSize"] == 12
    line, marks = spec["layer"]
    axes = {}
    for name in ("recall", "precision"):
        scale = {"domain": [0, 1]}
        axes[name] = {"field": name, "type": "quantitative", "axis": {"format": "%"}, "scale": scale}
    for layer in (line, marks):
        assert (layer["encoding"]["x"], layer["encoding"]["y"]) == (axes["recall"], axes["precision"])
    assert line["mark"] == {"type": "line", "color": "var(--mrp)", "strokeWidth": 2}
    assert line["encoding"]["order"] == {"field": "threshold", "type": "quantitative"}
    assert marks["mark"] == {"type": "point", "filled": True, "size": 90, "opacity": 1}
    legend = {"title": "Threshold for"}
    colors = ["var(--isotonic)", "var(--platt)", "var(--other)"]
    name = {"field": "name", "type": "nominal", "legend": legend}
    scale = marks["encoding"]["color"].pop("scale")
    assert marks["encoding"]["color"] == name
    assert scale["range"][:3] == colors
    assert marks["encoding"]["shape"] == name


def test_the_chart_of_grades_has_a_line_and_points_for_each_border(monkeypatch):
    monkeypatch.setattr(score_module, "svg", lambda spec: spec)
    lower = make_score_thresholds(
        make_curve((0.9, 0.5, 1.0), (0.5, 1.0, 0.75)), make_score_threshold("precision", 0.7, 0.5)
    )
    upper = make_score_thresholds(
        make_curve((0.8, 0.5, 0.5), (0.6, 1.0, 0.25)), make_score_threshold("recall", 0.4, 0.7)
    )
    fields = dict.fromkeys(GradeThresholds.__dataclass_fields__)
    grades = GradeThresholds(**fields | {"grades": ("no", "partly", "yes"), "borders": (lower, upper)})
    spec = precision_recall_svg(grades)
    rows = [(row["border"], row["kind"], row["metric"], row["threshold"]) for row in spec["data"]["values"]]
    assert rows == [
        ("at least partly", "curve", "", 0.9),
        ("at least partly", "curve", "", 0.5),
        ("at least partly", "threshold", "precision at least 70%", 0.5),
        ("at least yes", "curve", "", 0.8),
        ("at least yes", "curve", "", 0.6),
        ("at least yes", "threshold", "recall at least 40%", 0.8),
    ]
    line, marks = spec["layer"]
    color = line["encoding"]["color"]
    assert color["scale"]["range"][:3] == COLORS
    assert (color["field"], color["sort"], color["legend"]) == ("border", None, {"title": "Grade"})
    assert marks["encoding"]["color"] == color
    shape = marks["encoding"]["shape"]
    assert (shape["field"], shape["legend"]) == ("metric", {"title": "Threshold for"})
    with pytest.raises(ValueError, match="zip"):
        precision_recall_svg(GradeThresholds(**fields | {"grades": ("no", "yes"), "borders": (lower, upper)}))
