"""`ReliabilityMap.plot` draws the curve of each label and the errors among the decisions that are kept."""

import pickle
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.special import logit, softmax
from sklearn.linear_model import LogisticRegression

from relmap import InputError, ReliabilityMap
from tests.maps import predictions

ROWS = predictions(600)
LOGITS, LABEL = np.array(ROWS["logits"].to_list()), ROWS["label"].to_numpy()
SHARES = softmax(LOGITS, axis=1)
BEGINNINGS = {"html": b"<!DOCTYPE html>", "json": b"{", "pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<svg"}


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    return ReliabilityMap(variant="mrp").fit(SHARES, LABEL)


def test_the_curve_of_a_label_is_what_the_map_gives(fitted):
    rows = fitted.plot().figures[0].rows
    curve = rows.filter(kind="curve", label="label 1")
    projection = fitted.document_.projection.fitted
    line, curves, share = projection.line, projection.curves, projection.share[1]
    at = curve["confidence"].to_numpy()
    z = np.clip(logit(at), -line.farthest, line.farthest)
    of_line = line.intercept[1] + line.slope[1] * z
    of_curve = np.interp(at, curves.knots, curves.values[1])
    expected = 1 / (1 + np.exp(-(of_line + share * (of_curve - of_line))))
    np.testing.assert_allclose(curve["reliability"].to_numpy(), expected, atol=1e-9)


def test_the_dots_are_the_share_of_correct_rows_of_each_label(fitted):
    rows = fitted.plot().figures[0].rows
    decision = LOGITS.argmax(axis=1)
    for label in range(3):
        dots = rows.filter(kind="rows", label=f"label {label}")
        mine = decision == label
        assert dots["rows"].sum() == mine.sum()
        np.testing.assert_allclose((dots["rows"] * dots["reliability"]).sum(), (LABEL[mine] == label).sum())


@pytest.mark.parametrize("variant", ["auto", "label_vector", "confidence", "label_isotonic"])
def test_every_map_has_a_curve_for_each_label_and_a_risk_coverage_curve(variant):
    plot = ReliabilityMap(variant=variant).fit(SHARES, LABEL).plot()
    assert [figure.key for figure in plot.figures] == ["map_curves", "risk_coverage"]
    curves = plot.figures[0].rows.filter(kind="curve")
    assert curves["label"].n_unique() == 3
    assert curves["reliability"].is_between(0, 1).all()


@pytest.mark.parametrize("ending", BEGINNINGS)
def test_charts_are_saved_in_a_file_that_needs_no_other(fitted, ending, tmp_path):
    fitted.plot().save(tmp_path / f"chart.{ending}")
    content = (tmp_path / f"chart.{ending}").read_bytes()
    assert content.startswith(BEGINNINGS[ending])
    if ending == "html":
        assert b"<script" not in content
        assert b"src=" not in content


def test_a_notebook_displays_the_charts(fitted):
    shown = fitted.plot()._repr_html_()
    assert ElementTree.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6]) is not None


def test_a_file_of_another_kind_is_refused(fitted, tmp_path):
    with pytest.raises(InputError, match="use one of the endings"):
        fitted.plot().save(tmp_path / "chart.docx")


def test_rows_of_a_classifier_are_drawn_out_of_fold():
    settings = {"classifier": LogisticRegression(), "variant": "label_platt"}
    fitted = ReliabilityMap(**settings).fit(LOGITS, LABEL)
    own, given = fitted.plot().figures[0].rows, fitted.plot(LOGITS, LABEL).figures[0].rows
    assert own.equals(given)


def test_a_map_without_rows_asks_for_them(fitted, tmp_path):
    fitted.save(tmp_path / "map.json")
    restored = pickle.loads(pickle.dumps(fitted))
    for made in (ReliabilityMap.load(tmp_path / "map.json"), restored):
        with pytest.raises(InputError, match=r"give labelled predictions: plot\(X, y\)"):
            made.plot()
        assert len(made.plot(SHARES, LABEL).figures) == 2
