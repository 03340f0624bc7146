"""`ReliabilityMap.plot`: curves of the labels and the risk-coverage curve."""

import pickle
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.special import logit, softmax
from sklearn.linear_model import LogisticRegression

from relmap import InputError, ReliabilityMap
from tests.maps import make_predictions

ROWS = make_predictions(600)
LOGITS = np.array(ROWS["logits"].to_list())
LABEL = ROWS["label"].to_numpy()
PROBABILITIES = softmax(LOGITS, axis=1)
MAGIC_BYTES = {"html": b"<!DOCTYPE html>", "json": b"{", "pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<svg"}


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    return ReliabilityMap(calibrator="ts").fit(PROBABILITIES, LABEL)


def test_plotted_curve_equals_the_map(fitted):
    rows = fitted.plot().figures[0].rows
    curve = rows.filter(kind="curve", label="label 1")
    projection = fitted.document_.projection.fitted
    line = projection.line
    curves = projection.curves
    share = projection.share[1]
    confidence = curve["confidence"].to_numpy()
    confidence_logit = np.clip(logit(confidence), -line.farthest, line.farthest)
    logit_of_line = line.intercept[1] + line.slope[1] * confidence_logit
    logit_of_curve = np.interp(confidence, curves.knots, curves.values[1])
    odds_of_error = np.exp(-(logit_of_line + share * (logit_of_curve - logit_of_line))) + np.exp(-projection.largest)
    expected = 1 / (1 + odds_of_error)

    np.testing.assert_allclose(curve["reliability"].to_numpy(), expected, atol=1e-9)


def test_plotted_dots_are_the_accuracy_of_each_label(fitted):
    rows = fitted.plot().figures[0].rows
    decision = LOGITS.argmax(axis=1)
    for label in range(3):
        dots = rows.filter(kind="rows", label=f"label {label}")
        of_label = decision == label
        assert dots["rows"].sum() == of_label.sum()
        np.testing.assert_allclose((dots["rows"] * dots["reliability"]).sum(), (LABEL[of_label] == label).sum())


@pytest.mark.parametrize("variant", ["mrp_pooled", "mrp_exact", "confidence", "label_isotonic"])
def test_every_variant_has_label_curves_and_a_risk_coverage_curve(variant):
    plot = ReliabilityMap(variant=variant).fit(PROBABILITIES, LABEL).plot()
    assert [figure.key for figure in plot.figures] == ["map_curves", "risk_coverage"]
    curves = plot.figures[0].rows.filter(kind="curve")
    assert curves["label"].n_unique() == 3
    assert curves["reliability"].is_between(0, 1).all()


@pytest.mark.parametrize("ending", MAGIC_BYTES)
def test_charts_are_saved_in_a_self_contained_file(fitted, ending, tmp_path):
    fitted.plot().save(tmp_path / f"chart.{ending}")
    content = (tmp_path / f"chart.{ending}").read_bytes()
    assert content.startswith(MAGIC_BYTES[ending])
    if ending == "html":
        assert b"<script" not in content
        assert b"src=" not in content


def test_notebook_displays_the_charts(fitted):
    html = fitted.plot()._repr_html_()
    assert ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6]) is not None


def test_unsupported_file_ending_is_rejected(fitted, tmp_path):
    with pytest.raises(InputError, match=r"chart\.docx;.*\.html.*\.json.*\.pdf.*\.png.*\.svg$"):
        fitted.plot().save(tmp_path / "chart.docx")


def test_classifier_rows_are_plotted_out_of_fold():
    settings = {"classifier": LogisticRegression(), "variant": "label_platt"}
    fitted = ReliabilityMap(**settings).fit(LOGITS, LABEL)
    stored_rows = fitted.plot().figures[0].rows
    given_rows = fitted.plot(LOGITS, LABEL).figures[0].rows
    assert stored_rows.equals(given_rows)


def test_fitted_rows_are_plotted_with_their_groups():
    groups = np.arange(len(LABEL)) // 4
    fitted = ReliabilityMap(variant="label_intercept").fit(PROBABILITIES, LABEL, groups)
    risk_coverage = fitted.plot().figures[1].rows
    assert risk_coverage.equals(fitted.plot(PROBABILITIES, LABEL, groups).figures[1].rows)


def test_plot_of_a_loaded_map_requires_rows(fitted, tmp_path):
    fitted.save(tmp_path / "map.json")
    restored = pickle.loads(pickle.dumps(fitted))
    for reliability_map in (ReliabilityMap.load(tmp_path / "map.json"), restored):
        with pytest.raises(InputError, match=r"no rows;.*plot\(X, y\)"):
            reliability_map.plot()
        assert len(reliability_map.plot(PROBABILITIES, LABEL).figures) == 2


def test_text_of_plots_has_12_points(fitted):
    config = fitted.plot().to_dict()["config"]
    assert (config["title"]["fontSize"], config["axis"]["titleFontSize"]) == (12, 12)
