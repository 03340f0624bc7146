"""Figure of a cascade, of made-up curves: rows, marks and axes."""

from typing import Any

import pytest

from relmap.report import cascade as cascade_module
from relmap.report.cascade import cost_accuracy_svg

CURVES = {
    "by reliability": [{"cost": 1.0, "accuracy": 0.5}, {"cost": 2.0, "accuracy": 0.7}],
    "by confidence": [{"cost": 1.0, "accuracy": 0.4}],
}
CHOSEN = {"cost": 1.5, "accuracy": 0.6, "thresholds": [0.9]}


@pytest.fixture
def draw(monkeypatch):
    """Return a function that draws and returns the specification."""
    monkeypatch.setattr(cascade_module, "svg", lambda spec: spec)

    def draw_cascade(chosen: dict[str, Any] | None = CHOSEN) -> dict[str, Any]:
        alone = {"small": {"cost": 1.0, "accuracy": 0.3}}
        return cost_accuracy_svg({"curves": CURVES, "alone": alone, "chosen": chosen})

    return draw_cascade


def test_the_figure_has_the_points_of_curves_models_and_the_chosen_cascade(draw):
    curves = [
        {"kind": "curve", "name": "by reliability", "cost": 1.0, "accuracy": 0.5},
        {"kind": "curve", "name": "by reliability", "cost": 2.0, "accuracy": 0.7},
        {"kind": "curve", "name": "by confidence", "cost": 1.0, "accuracy": 0.4},
    ]
    alone = {"kind": "alone", "name": "small", "cost": 1.0, "accuracy": 0.3}
    chosen = {"kind": "chosen", "name": "the cascade", "cost": 1.5, "accuracy": 0.6}
    assert draw()["data"]["values"] == [*curves, alone, chosen]
    assert draw(None)["data"]["values"] == [*curves, alone]


def test_curves_are_lines_models_are_named_dots_and_the_cascade_is_a_diamond(draw):
    spec = draw()
    lines, dots, names, diamond = spec["layer"]
    kinds = [layer["transform"] for layer in spec["layer"]]
    assert kinds == [[{"filter": f"(datum.kind === '{kind}')"}] for kind in ("curve", "alone", "alone", "chosen")]
    assert lines["mark"] == {"type": "line", "strokeWidth": 2}
    assert lines["encoding"]["order"] == {"field": "cost", "type": "quantitative"}
    color = lines["encoding"]["color"]
    assert color["scale"] == {"domain": [*CURVES], "range": ["var(--mrp)", "var(--isotonic)"]}
    assert (color["field"], color["legend"]) == ("name", {"title": None})
    dot = {"type": "point", "filled": True, "opacity": 1}
    assert dots["mark"] == dot | {"color": "var(--ink)", "size": 60}
    assert names["mark"] == {"type": "text", "align": "left", "color": "var(--ink)", "dx": 8}
    assert names["encoding"]["text"] == {"field": "name", "type": "nominal"}
    assert diamond["mark"] == dot | {"color": "var(--mrp)", "shape": "diamond", "size": 160}
    for layer in spec["layer"]:
        x = layer["encoding"]["x"]
        y = layer["encoding"]["y"]
        assert (x["field"], y["field"]) == ("cost", "accuracy")
        assert (y["axis"], y["scale"]) == ({"format": "%"}, {"zero": False})


def test_the_figure_is_wide_enough_for_a_page_and_has_a_title(draw):
    spec = draw()
    assert (spec["width"], spec["height"]) == (480, 300)
    assert "diamond" in spec["title"]
    assert spec["config"]["axis"]["titleFontSize"] == 12


def test_the_figure_is_drawn_as_svg():
    assert cost_accuracy_svg({"curves": CURVES, "alone": {}, "chosen": CHOSEN}).startswith("<svg")
