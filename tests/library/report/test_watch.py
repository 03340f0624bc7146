"""Figure of new rows compared with the fit rows, of made-up shares: panels, bars and the names of ranges."""

from typing import Any

import pytest

from relmap.evaluation.watch import ColumnChange, WatchResult
from relmap.report import watch as watch_module
from relmap.report.watch import describe_ranges, shares_svg

NAMES = ("bad", "fair", "good")
SHARES = {"fit rows": (0.5, 0.25, 0.25), "new rows": (0.25, 0.5, 0.25)}


def make_change(
    column: str, *, is_changed: bool = False, label: int | None = None, edges: tuple[float, ...] = ()
) -> ColumnChange:
    """Make the comparison of a column with three ranges or decisions."""
    return ColumnChange(
        column=column,
        label=label,
        p_value=0.001 if is_changed else 0.5,
        place=0,
        share_fit=0.5,
        share_new=0.25,
        edges=edges,
        shares_fit=SHARES["fit rows"],
        shares_new=SHARES["new rows"],
    )


def draw(monkeypatch: pytest.MonkeyPatch, *changes: ColumnChange) -> dict[str, Any]:
    """Return the specification of the figure."""
    monkeypatch.setattr(watch_module, "svg", lambda spec: spec)
    result = WatchResult(
        rows=100,
        columns=changes,
        automatic_fit=0.7,
        automatic_new=0.6,
        thresholds="",
        accuracy_fit=None,
        expected_accuracy=0.8,
        expected_automatic=None,
        detectable_change=None,
    )
    return shares_svg(result, NAMES)


def test_a_panel_shows_the_shares_of_fit_rows_and_new_rows_in_each_range(monkeypatch):
    edges = (0.25, 0.5)
    spec = draw(monkeypatch, make_change("decision"), make_change("confidence", is_changed=True, edges=edges))
    places = {"decision": [*NAMES], "confidence": ["below 0.25", "0.25 to 0.5", "0.5 or more"]}
    rows = []
    for column, places_of_column in places.items():
        for sample, shares in SHARES.items():
            for place, share in zip(places_of_column, shares, strict=True):
                rows.append({"column": column, "place": place, "sample": sample, "share": share})
    assert spec["data"]["values"] == rows
    assert [panel["title"] for panel in spec["vconcat"]] == [
        "decision: no significant change",
        "confidence: changed",
    ]
    for panel, (column, places_of_column) in zip(spec["vconcat"], places.items(), strict=True):
        assert panel["transform"] == [{"filter": f"(datum.column === '{column}')"}]
        assert panel["encoding"]["x"]["sort"] == places_of_column


def test_shares_without_a_name_are_rejected(monkeypatch):
    with pytest.raises(ValueError, match="zip"):
        draw(monkeypatch, make_change("confidence", edges=(0.25,)))


def test_a_label_has_a_panel_only_if_its_confidences_changed(monkeypatch):
    edges = (0.25, 0.5)
    changed = make_change("confidence", is_changed=True, label=1, edges=edges)
    unchanged = make_change("confidence", label=2, edges=edges)
    spec = draw(monkeypatch, make_change("decision"), unchanged, changed)
    titles = [panel["title"].partition(":")[0] for panel in spec["vconcat"]]
    assert titles == ["decision", "confidence of rows decided fair"]


def test_bars_of_both_samples_are_side_by_side_with_their_colors_and_percentages(monkeypatch):
    spec = draw(monkeypatch, make_change("decision"))
    (panel,) = spec["vconcat"]
    assert panel["mark"]["type"] == "bar"
    samples = ["fit rows", "new rows"]
    encoding = panel["encoding"]
    assert encoding["xOffset"] == {"field": "sample", "sort": samples, "type": "nominal"}
    assert encoding["color"] == {
        "field": "sample",
        "legend": {"symbolType": "square", "title": None},
        "scale": {"domain": samples, "range": ["var(--confidence)", "var(--mrp)"]},
        "sort": samples,
        "type": "nominal",
    }
    x = encoding["x"]
    assert (x["field"], x["title"], x["axis"]) == ("place", None, {"labelAngle": -40, "labelOverlap": False})
    y = encoding["y"]
    assert (y["field"], y["axis"]) == ("share", {"format": "%"})
    assert spec["resolve"] == {"scale": {"xOffset": "independent"}}
    assert panel["height"] == 180
    assert spec["config"]["axis"]["titleFontSize"] == 12


@pytest.mark.parametrize(("n_edges", "width"), [(1, 480), (25, 480), (26, 486), (49, 900)])
def test_a_panel_has_18_pixels_for_each_range_and_at_least_480(n_edges, width, monkeypatch):
    change = make_change("length", edges=tuple(float(edge) for edge in range(n_edges)))
    shares = (1 / (n_edges + 1),) * (n_edges + 1)
    wide = ColumnChange(**vars(change) | {"shares_fit": shares, "shares_new": shares})
    assert draw(monkeypatch, wide)["vconcat"][0]["width"] == width


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ((), ["all"]),
        ((0.5,), ["below 0.5", "0.5 or more"]),
        ((0.12345, 0.5), ["below 0.123", "0.123 to 0.5", "0.5 or more"]),
        ((0.12341, 0.12346), ["below 0.1234", "0.1234 to 0.1235", "0.1235 or more"]),
        ((0.99991, 0.99992), ["below 0.99991", "0.99991 to 0.99992", "0.99992 or more"]),
    ],
)
def test_ranges_are_described_by_as_many_digits_as_they_need(edges, expected):
    assert describe_ranges(edges) == expected
