"""`ReliabilityMap` on arrays and frames: the results of the commands, types of outputs, scikit-learn conventions."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relmap import ReliabilityMap, cli
from relmap.errors import InputError
from relmap.projection.registry import VARIANTS
from tests import maps

ROWS = maps.make_predictions(600)
NEW_ROWS = maps.make_predictions(1000, seed=1)
LOGITS = np.array(ROWS["logits"].to_list())
LABEL = ROWS["label"].to_numpy()
GROUP = ROWS["group"].to_numpy()
FRAME_CONVERTERS = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: frame.to_pandas().set_index(np.arange(len(frame)) * 3 + 7),
    "arrow": pl.DataFrame.to_arrow,
}
INTERCEPT_MAP = ReliabilityMap(variant="label_intercept")


@pytest.fixture(scope="module")
def fitted() -> ReliabilityMap:
    return clone(INTERCEPT_MAP).fit(LOGITS, LABEL, groups=GROUP)


def content_without_source(document: object) -> dict:
    return document.model_dump(mode="json", exclude={"source"})


@pytest.mark.parametrize("library", FRAME_CONVERTERS)
def test_frames_give_the_results_of_arrays_in_their_own_type(library, fitted):
    rows = FRAME_CONVERTERS[library](ROWS)
    new = FRAME_CONVERTERS[library](NEW_ROWS)
    from_frame = clone(INTERCEPT_MAP).fit(rows, groups="group")

    assert content_without_source(from_frame.document_) == content_without_source(fitted.document_)

    scored = from_frame.apply(new, coverage=0.6)
    logits = np.array(NEW_ROWS["logits"].to_list())
    assert type(scored) is type(new)

    scored_frame = pl.DataFrame(scored)
    assert scored_frame.select(NEW_ROWS.columns).equals(NEW_ROWS)
    np.testing.assert_array_equal(scored_frame["reliability"], fitted.reliability(logits))

    reliability = from_frame.reliability(new)
    scored_array = fitted.apply(logits, coverage=0.6)
    assert type(reliability) is type(new["label"])
    np.testing.assert_array_equal(np.asarray(reliability), scored_frame["reliability"])
    for name in scored_array.dtype.names:
        assert scored_array[name].tolist() == scored_frame[name].to_list()
    if library == "pandas":
        assert scored.index.equals(new.index)
        assert reliability.index.equals(new.index)
    assert from_frame.evaluate(rows).to_dict() == fitted.evaluate(LOGITS, LABEL, groups=GROUP).to_dict()


def test_estimator_and_commands_give_the_same_results(fitted, tmp_path, capsys):
    ROWS.write_parquet(tmp_path / "rows.parquet")
    NEW_ROWS.write_parquet(tmp_path / "new.parquet")
    cli.fit(predictions=tmp_path / "rows.parquet", out=tmp_path / "map.json", variant="label_intercept", group="group")
    fitted.save(str(tmp_path / "saved.json"))
    saved = ReliabilityMap.load(str(tmp_path / "saved.json"))
    from_command = ReliabilityMap.load(str(tmp_path / "map.json"))

    assert (
        content_without_source(saved.document_)
        == content_without_source(from_command.document_)
        == content_without_source(fitted.document_)
    )
    assert saved.get_params() == from_command.get_params()

    capsys.readouterr()
    cli.evaluate(tmp_path / "map.json", tmp_path / "new.parquet")
    printed = capsys.readouterr()
    evaluation = saved.evaluate(NEW_ROWS)

    assert evaluation.to_dict().items() <= json.loads(printed.out).items()
    assert sorted(str(evaluation).split("\n")) == sorted(printed.err.splitlines())
    assert "grouped by group" in printed.err

    cli.thresholds(tmp_path / "new.parquet", tmp_path / "map.json", coverage="0.5")
    thresholds = saved.thresholds(NEW_ROWS, coverage=0.5)
    assert thresholds.to_dict().items() <= json.loads(capsys.readouterr().out).items()

    least_cost = saved.thresholds(NEW_ROWS, cost_error=np.float32(5), cost_review=1)
    validated = saved.thresholds(NEW_ROWS, cut=0.7)
    assert validated.cut == 0.7
    for cuts in (thresholds, least_cost, validated):
        route = pl.Series(saved.apply(NEW_ROWS, cuts=cuts)["route"])
        assert (route == "automatic").to_list() == (saved.reliability(NEW_ROWS) >= cuts.cut).to_list()
    assert least_cost.cut == 0.8
    assert json.dumps(least_cost.to_dict())
    assert saved.apply(NEW_ROWS, cuts=thresholds.to_dict()).equals(saved.apply(NEW_ROWS, cuts=thresholds))
    for method, options, message in (
        (saved.apply, {"cuts": 0.8}, r"^cuts .*0\.8; .*`thresholds`"),
        (saved.apply, {"cut": "0.8"}, r"^cut .*'0\.8'; .*number"),
        (saved.thresholds, {"coverage": 0.5, "cost_review": 1}, "exactly one .*accuracy, .*coverage, .*costs"),
        (saved.thresholds, {"target_accuracy": "0.9"}, r"^target_accuracy .*'0\.9'; .*number"),
    ):
        with pytest.raises(InputError, match=message):
            method(NEW_ROWS, **options)

    path = tmp_path / "map.json"
    saved.save(path)
    for column, columns_read in (("reliability", "confidence"), ("confidence", "logits_0 to logits_2")):
        expression = cli.sql(path, column=column)
        assert expression == saved.sql(column=column)
        assert capsys.readouterr().out.strip() == expression
        assert columns_read in expression.partition("*/")[0]


def test_training_rows_are_evaluated_out_of_fold(fitted):
    some_rows = fitted.evaluate(LOGITS[:500], LABEL[:500])
    assert some_rows.to_dict()["fitted_rows"] == 500
    assert "500 of 500 rows" in str(some_rows)  # recognized one by one

    all_rows = fitted.evaluate(LOGITS.astype(np.float32), LABEL.astype(float), groups=GROUP)
    assert all_rows.to_dict()["fitted_rows"] == 600
    assert "without its fold" in str(all_rows)
    assert "600 of 600 rows" not in str(all_rows)  # recognized all together

    source = fitted.document_.source.model_copy(update={"fingerprint": None})
    without_fingerprint = ReliabilityMap().fit(LOGITS, LABEL)  # like a map of an earlier version
    without_fingerprint.document_ = fitted.document_.model_copy(update={"source": source})

    for reliability_map, groups in ((without_fingerprint, None), (fitted, None), (fitted, np.roll(GROUP, 1))):
        with pytest.raises(InputError, match=r"^X.*groups by group;"):
            reliability_map.evaluate(LOGITS, LABEL, groups)

    reversed_rows = fitted.evaluate(LOGITS[::-1], LABEL[::-1], groups=GROUP[::-1])
    assert reversed_rows.to_dict()["fitted_rows"] == len(LABEL)

    names = np.array(["bad", "fair", "good"])
    inputs = np.hstack([LOGITS, np.random.default_rng(0).normal(size=(len(LOGITS), 150))])  # to overfit
    model = make_pipeline(StandardScaler(), ReliabilityMap(classifier=LogisticRegression(C=100, max_iter=900)))
    reliability_map_of_classes = model.fit(inputs, names[LABEL])[-1]

    assert (
        model.predict(inputs).tolist()
        == reliability_map_of_classes.classifier_.predict(model[:-1].transform(inputs)).tolist()
    )
    assert (model.predict(inputs) == names[LABEL]).mean() > 0.8

    evaluation = reliability_map_of_classes.evaluate(model[:-1].transform(inputs), names[LABEL])
    assert evaluation.to_dict()["accuracy"]["value"] < 0.7
    assert [label["name"] for label in evaluation.to_dict()["labels"]] == names.tolist()


def test_estimator_can_be_cloned_and_cross_validated(fitted):
    parameters = {"calibrator": "diag", "variant": "mrp", "labels": ("a", "b", "c"), "hold_out": 0.2, "seed": 3}
    estimator = clone(ReliabilityMap(**parameters))
    assert parameters.items() <= estimator.get_params().items()
    with pytest.raises(NotFittedError):
        estimator.set_params(seed=4).reliability(LOGITS)

    folds = cross_val_score(INTERCEPT_MAP, LOGITS, LABEL, groups=GROUP, cv=GroupKFold(3), error_score="raise")
    assert ((folds < 0) & (folds > np.log(0.5))).all()

    label_blind = clone(INTERCEPT_MAP).set_params(variant="confidence", calibrator="ts")
    with_confidence = cross_val_score(label_blind, LOGITS, LABEL, groups=GROUP, cv=GroupKFold(3))
    assert folds.mean() > with_confidence.mean()  # label 1 is overconfident
    assert fitted.predict(LOGITS).tolist() == LOGITS.argmax(axis=1).tolist()


def test_kind_of_an_array_is_detected_stored_or_required(fitted, tmp_path):
    probabilities = softmax(LOGITS, axis=1)
    from_probabilities = clone(INTERCEPT_MAP).fit(probabilities.astype(np.float32), LABEL)
    assert (fitted.arrays_, from_probabilities.arrays_) == ("logits", "probabilities")

    from_logits = clone(INTERCEPT_MAP).fit(LOGITS, LABEL)
    np.testing.assert_allclose(
        from_probabilities.reliability(probabilities), from_logits.reliability(LOGITS), atol=1e-5
    )

    fitted.reliability([[0.5, 0.3, 0.2]])  # read as logits by a map of logits
    log_odds = LOGITS[:, 1] - LOGITS[:, 0]
    from_second = clone(INTERCEPT_MAP).fit(expit(log_odds), LABEL == 1)
    from_both = clone(INTERCEPT_MAP).fit(np.c_[1 - expit(log_odds), expit(log_odds)], LABEL == 1)

    np.testing.assert_array_equal(
        from_second.reliability(expit(log_odds)), from_both.reliability(np.c_[1 - expit(log_odds), expit(log_odds)])
    )

    two_labels = clone(INTERCEPT_MAP).set_params(labels=(1.0, 2.0)).fit(log_odds, (LABEL == 1) + 1.0)
    frame = pl.DataFrame({"logits": np.c_[0 * log_odds, log_odds], "label": (LABEL == 1) + 1})[:500]
    assert two_labels.score(frame) == two_labels.score(log_odds[:500], frame["label"])

    two_labels.save(tmp_path / "map.json")
    loaded = ReliabilityMap.load(tmp_path / "map.json", arrays="logits")
    ambiguous = np.array([0.2, 0.3])

    assert loaded.predict(ambiguous).tolist() == two_labels.predict(ambiguous).tolist() == [2, 2]
    for reliability_map in (
        ReliabilityMap.load(tmp_path / "map.json"),
        clone(INTERCEPT_MAP).fit(frame.with_columns(pl.col("label") - 1)),
    ):
        with pytest.raises(InputError, match=r"^X.*logits or probabilities,.*arrays='logits'"):
            reliability_map.reliability(ambiguous)

    from_both = np.c_[1 - ambiguous, ambiguous]  # rows that sum to 1 are probabilities
    np.testing.assert_array_equal(ReliabilityMap.load(tmp_path / "map.json").predict(from_both), [1, 1])


def test_evaluation_has_text_and_escaped_html():
    fitted = ReliabilityMap(labels=("<b>bad</b>", "fair", "good"), variant="mrp_exact").fit(LOGITS, LABEL)
    evaluation = fitted.evaluate(NEW_ROWS)
    assert any("<b>bad</b>" in line for line in evaluation.details)
    assert "<b>bad</b>" not in evaluation._repr_html_()
    assert VARIANTS["mrp_exact"].description in str(fitted.summary_)
    assert fitted.summary_.to_dict()["variant"] == "mrp_exact"

    evaluation.to_dict()["metrics"].clear()
    assert evaluation.to_dict()["metrics"]


UNLABELLED_FRAME = ROWS.drop("label")


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, ("rows", LABEL), "^X .*type str; .*array"),
        ({}, (LOGITS, LABEL[:9]), r"^X .*600 rows, .*y .*\(9,\)"),
        ({}, (ROWS, LABEL), "^X .*column label, .*y "),
        ({}, (np.clip(LOGITS, 0, 1), LABEL), r"^X, row 22 .*sum to 1; .*arrays='logits'"),
        ({"arrays": "probabilities"}, (LOGITS, LABEL), "are these logits"),
        ({"labels": "ab"}, (LOGITS, LABEL), "^labels .*'ab'; .*list"),
        ({"hold_out": 1.0}, (LOGITS, LABEL), r"^hold_out .*1\.0; .*\[0, 0\.9\]"),
        ({"seed": 1.5}, (LOGITS, LABEL), r"^seed .*1\.5; .*whole number"),
        ({"classifier": StandardScaler()}, (LOGITS, LABEL), "classifier, StandardScaler, .*predict_proba"),
        ({"classifier": LogisticRegression()}, (LOGITS, LABEL, "query"), "^X .*column query, .*groups"),
    ],
)
def test_invalid_fit_input_is_rejected(settings, arguments, message):
    with pytest.raises(InputError, match=message):
        ReliabilityMap(**settings).fit(*arguments)


def test_signals_are_read_from_frame_columns():
    frame = maps.make_predictions_with_signals(400).to_pandas()
    fitted = ReliabilityMap(signals=["agreement"]).fit(frame.drop(columns="label"), frame["label"], groups="group")
    assert isinstance(fitted.reliability(frame), pd.Series)


@pytest.mark.parametrize(
    ("frame", "options", "n_figures"),
    [
        (ROWS.with_columns(inverse_probability=pl.int_range(600) % 3 + 1.0), {}, 0),  # weighted rows are not plotted
        (maps.make_confidence_predictions(300), {"variant": "confidence", "hold_out": 0.3}, 2),
        (maps.make_predictions_with_signals(400), {"signals": "agreement", "group": "group"}, 3),
    ],
)
def test_every_kind_of_map_has_a_report(frame, options, n_figures, tmp_path):
    cli.report(predictions=maps.write_frame(frame, tmp_path / "rows.parquet"), out=tmp_path / "page.html", **options)
    page = (tmp_path / "page.html").read_text()
    assert page.count("<figure") == n_figures
    assert ">most reliable</th>" in page
