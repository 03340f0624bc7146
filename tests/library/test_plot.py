"""`ReliabilityMap.plot`: charts that notebooks display and that can be saved."""

import json
import pickle

import numpy as np
import pytest

from relmap import InputError, ReliabilityMap

N_ROWS = 600


def predictions(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of three labels, and true labels of which one is overconfident."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2, size=(N_ROWS, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(3, p=row) for row in probabilities])
    labels[(probabilities.argmax(axis=1) == 1) & (rng.random(N_ROWS) < 0.4)] = 2
    return probabilities, labels


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    return ReliabilityMap(variant="mrp").fit(*predictions(0))


def test_the_plot_has_a_panel_for_each_label_and_the_risk_coverage_curve(fitted):
    curves, risk_coverage = fitted.plot().figures
    assert set(curves.rows["panel"]) == {f"label {label}" for label in range(3)} or curves.rows["panel"].n_unique() == 3
    assert risk_coverage.key == "risk_coverage"


def test_the_curve_of_a_label_is_the_reliability_that_the_map_gives(fitted):
    curves = fitted.plot().figures[0].rows.filter(kind="curve")
    (first_panel, *_) = curves["panel"].unique(maintain_order=True)
    curve = curves.filter(panel=first_panel)
    confidence = curve["confidence"].to_numpy()
    fitted_model = fitted.document_.projection.fitted
    from relmap.projection.decisions import CalibratedDecisions

    logit = np.log(confidence) - np.log1p(-confidence)
    expected = 1 / (1 + np.exp(-fitted_model(CalibratedDecisions(logit, np.zeros(len(confidence), dtype=int)))))
    np.testing.assert_allclose(curve["reliability"].to_numpy(), expected, rtol=1e-9)


def test_other_labelled_rows_can_be_drawn(fitted):
    probabilities, labels = predictions(1)
    assert fitted.plot(probabilities, labels).to_dict() != fitted.plot().to_dict()


def test_a_notebook_gets_svg_with_escaped_captions(fitted):
    html = fitted.plot()._repr_html_()
    assert html.startswith("<div><svg")
    assert "<script" not in html


@pytest.mark.parametrize(
    ("ending", "start"),
    [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".html", b"<!DOCTYPE html>"), (".json", b"{")],
)
def test_each_format_can_be_saved(fitted, tmp_path, ending, start):
    path = tmp_path / f"plot{ending}"
    fitted.plot().save(path)
    assert path.read_bytes().startswith(start)


def test_the_json_is_a_specification_with_its_data(fitted, tmp_path):
    fitted.plot().save(tmp_path / "plot.json")
    specification = json.loads((tmp_path / "plot.json").read_text())
    assert specification == fitted.plot().to_dict()
    assert all(part["data"]["values"] for part in specification["vconcat"])


def test_another_ending_is_an_error_and_writes_nothing(fitted, tmp_path):
    with pytest.raises(InputError, match=r"\.svg"):
        fitted.plot().save(tmp_path / "plot.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_loaded_or_unpickled_map_asks_for_rows(fitted, tmp_path):
    fitted.save(tmp_path / "map.json")
    for other in (ReliabilityMap.load(tmp_path / "map.json"), pickle.loads(pickle.dumps(fitted))):
        with pytest.raises(InputError, match=r"plot\(X, y\)"):
            other.plot()
        assert other.plot(*predictions(1)).figures
