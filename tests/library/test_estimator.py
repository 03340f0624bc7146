"""`ReliabilityMap` in Python: names in messages, kinds of frames, column selection and pipelines."""

import inspect
import re
import warnings
from dataclasses import fields
from keyword import iskeyword
from threading import Thread

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from relmap import InputError, ReliabilityMap
from relmap.errors import assignment, naming, option
from relmap.io.column_layout import Reading
from tests.maps import make_confidence_predictions, make_predictions

ROWS = make_predictions(600)
LOGITS = np.array(ROWS["logits"].to_list())
LABEL = ROWS["label"].to_numpy()
PROBABILITIES = softmax(LOGITS, axis=1)
NAMES = np.array(["fair", "bad", "good"])  # in no alphabetical order
WORDS = NAMES[LABEL]
FRAME_CONVERTERS = {"polars": lambda frame: frame, "pandas": pl.DataFrame.to_pandas, "arrow": pl.DataFrame.to_arrow}
INTERCEPT_MAP = ReliabilityMap(variant="label_intercept")
EXPECTED = clone(INTERCEPT_MAP).fit(PROBABILITIES, LABEL).reliability(PROBABILITIES)
FOUR_LABEL_MAP = clone(INTERCEPT_MAP).set_params(labels=["a", "b", "c", "d"])


@pytest.fixture(scope="module")
def fitted_on_four_labels() -> ReliabilityMap:
    rows = make_predictions(400, 4)
    label = np.array(["a", "b", "c", "d"])[rows["label"].to_numpy()]
    return clone(FOUR_LABEL_MAP).fit(softmax(np.array(rows["logits"].to_list()), axis=1), label)


def test_every_reading_option_is_a_parameter():
    with naming("python"):
        assert {option(field.name) for field in fields(Reading)} <= {*inspect.signature(ReliabilityMap).parameters}


TWO_LABEL_ROWS = make_confidence_predictions(300, 2)
JUDGE_COLUMNS = {"decision": TWO_LABEL_ROWS["decision"], "confidence": TWO_LABEL_ROWS["confidence"]}


@pytest.mark.parametrize(
    ("frame", "y", "settings", "message"),
    [
        (pl.DataFrame({"probabilities": PROBABILITIES}), WORDS, {}, "labels in .*order .*probabilities"),
        (
            pl.DataFrame({"probabilities": PROBABILITIES}),
            WORDS,
            {"labels": ["bad", "fair", "good"]},
            r"labels=\['fair', 'bad'",
        ),
        (
            pl.DataFrame({"probabilities": PROBABILITIES}),
            WORDS,
            {"labels": ["bad", "fair", "good"]},
            "accept_label_order=True",
        ),
        (pl.DataFrame({"softmax": PROBABILITIES}), LABEL, {}, "probabilities='softmax'"),
        (pl.DataFrame(JUDGE_COLUMNS), None, {}, "label='COLUMN'"),
        (pl.DataFrame(JUDGE_COLUMNS | {"gold": TWO_LABEL_ROWS["label"]}), None, {}, "label='gold'"),
        (
            pl.DataFrame({"decision": TWO_LABEL_ROWS["decision"], "confidence": 95.0}),
            TWO_LABEL_ROWS["label"],
            {},
            "give percent",
        ),
        (
            pl.DataFrame({"decision": TWO_LABEL_ROWS["decision"], "confidence": "low"}),
            TWO_LABEL_ROWS["label"],
            {},
            "confidence_words='low=.'",
        ),
        (pl.DataFrame({"s": LOGITS[:, 0]}), LABEL == 0, {"score_column": "s"}, "score_column='s', border=0 decides"),
        (
            pl.DataFrame({"p": PROBABILITIES[:, 0]}),
            LABEL == 0,
            {"positive": 1},
            "positive .*label of probability",
        ),
        (
            pl.DataFrame({"p": PROBABILITIES[:, 0]}),
            WORDS == "fair",
            {"probability": "q"},
            "column q, .*probability",
        ),
        (
            pl.DataFrame(JUDGE_COLUMNS),
            [None, *TWO_LABEL_ROWS["label"][1:]],
            {},
            "omit .*drop_unlabelled=True",
        ),
        (LOGITS, LABEL, {"hold_out": 0.0001}, "increase hold_out"),
        (LOGITS, LABEL, {"hold_out": 0.2, "protocol": "paper"}, "omit signals .*hold_out"),
    ],
)
def test_errors_name_python_parameters_instead_of_command_line_options(frame, y, settings, message):
    with pytest.raises(InputError, match=message) as raised:
        ReliabilityMap(**settings).fit(frame, y)
    message_for_python, _, _ = str(raised.value).partition(" Only ")  # then follows a command without a map
    assert not re.search(r"(?<!`relmap thresholds` with )--[a-z]", message_for_python)
    assert option("hold_out") == "--hold-out"


OPTION_NAMES = st.from_regex("[a-z]+(_[a-z]+)?", fullmatch=True).filter(lambda name: not iskeyword(name))


@given(st.sampled_from(["command line", "python"]), OPTION_NAMES, st.text())
def test_naming_style_applies_only_inside_its_context(style, name, value):
    with naming(style):
        assert option(name) == ("--" + name.replace("_", "-") if style == "command line" else name)
        assert assignment(name, value).startswith(option(name))
        if style == "python":
            assert eval(f"dict({assignment(name, value)})") == {option(name): value}
        names_in_thread: list[str] = []
        thread = Thread(target=lambda: names_in_thread.append(option(name)))
        thread.start()
        thread.join()
        assert names_in_thread == [f"--{name.replace('_', '-')}"]
    assert option(name).startswith("--")


@pytest.mark.parametrize("library", FRAME_CONVERTERS)
@pytest.mark.parametrize("numbers", [PROBABILITIES, LOGITS], ids=["probabilities", "logits"])
def test_class_columns_are_read_in_any_order(library, numbers, tmp_path):
    frame = pl.DataFrame({name: numbers[:, label] for label, name in enumerate(NAMES)})
    frame = frame.select("good", pl.lit("text").alias("query"), "bad", "fair")
    fitted = clone(INTERCEPT_MAP).fit(FRAME_CONVERTERS[library](frame), WORDS)

    assert fitted.classes_.tolist() == ["good", "bad", "fair"]
    np.testing.assert_allclose(np.asarray(fitted.reliability(FRAME_CONVERTERS[library](frame))), EXPECTED, atol=1e-6)

    routed = fitted.apply(FRAME_CONVERTERS[library](frame.select("fair", "good", "bad")))
    assert pl.DataFrame(routed)["decision_name"].to_list() == NAMES[LOGITS.argmax(axis=1)].tolist()

    fitted.save(tmp_path / "map.json")
    loaded = ReliabilityMap.load(tmp_path / "map.json")
    np.testing.assert_array_equal(
        np.asarray(loaded.reliability(FRAME_CONVERTERS[library](frame))), fitted.reliability(frame).to_numpy()
    )
    assert fitted.evaluate(FRAME_CONVERTERS[library](frame), WORDS).to_dict()["fitted_rows"] == 600


def test_classifier_frame_with_numeric_class_columns_is_read(tmp_path):
    """Use numeric classes, one of which is not among the labels."""
    frame = pd.DataFrame(np.c_[PROBABILITIES * 0.999, np.full(600, 0.001)], columns=[1, 2, 3, 4]).assign(
        label=LABEL + 1
    )
    fitted = clone(INTERCEPT_MAP).fit(frame)
    assert fitted.classes_.tolist() == ["1", "2", "3", "4"] or fitted.classes_.tolist() == [1, 2, 3, 4]
    assert fitted.document_.label_names == ("1", "2", "3", "4")


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        ({"p_fair": 0, "p_bad": 1, "p_good": 2}, {"probabilities": ["p_fair", "p_bad", "p_good"]}),
        ({"p_fair": 0, "p_good": 2, "p_bad": 1}, {"probabilities": "p"}),
        ({"p_0": 0, "p_1": 1, "p_2": 2}, {"probabilities": "p"}),
        ({"z_2": 0, "z_1": 1, "z_0": 2}, {"logits": ("z_2", "z_1", "z_0")}),
        (
            {"probabilities_1": 0, "probabilities_0": 1, "c": 2},
            {"probabilities": ["probabilities_1", "probabilities_0", "c"]},
        ),
    ],
)
def test_columns_are_selected_by_list_or_prefix(columns, settings):
    numbers = LOGITS if "logits" in settings else PROBABILITIES
    frame = pl.DataFrame({name: numbers[:, label] for name, label in columns.items()} | {"other": "x"})
    fitted = clone(INTERCEPT_MAP).set_params(labels=NAMES.tolist(), **settings).fit(frame, WORDS)
    np.testing.assert_allclose(fitted.reliability(frame), EXPECTED, atol=1e-6)
    assert fitted.apply(frame).columns[: frame.width] == frame.columns


def test_binary_score_and_probability_columns_are_read():
    relevant = np.random.default_rng(0).random(600) < PROBABILITIES[:, 0]
    words = np.where(relevant, "relevant", "irrelevant")
    frame = pl.DataFrame({"p": PROBABILITIES[:, 0], "s": np.log(PROBABILITIES[:, 0] / (1 - PROBABILITIES[:, 0]))})
    for settings in ({"score_column": "s", "border": 0}, {"probability": "p"}):
        fitted = clone(INTERCEPT_MAP).set_params(positive="relevant", **settings).fit(frame, words)
        assert fitted.classes_.tolist() == ["irrelevant", "relevant"]
        assert (fitted.predict(frame) == "relevant").tolist() == (PROBABILITIES[:, 0] > 0.5).tolist()
        assert fitted.evaluate(frame, words).to_dict()["fitted_rows"] == 600
        assert clone(fitted).get_params() == fitted.get_params()
    assert cross_val_score(clone(fitted), frame.to_pandas(), words, cv=2, error_score="raise").max() < 0


COLUMNS = {name: PROBABILITIES[:, index] for index, name in enumerate("abc")}


@pytest.mark.parametrize(
    ("inputs", "settings", "message"),
    [
        (PROBABILITIES, {}, r"3 columns,.*4 labels.*\(a, b, c, d\)"),
        (PROBABILITIES[:, 0], {}, "one number .*4 labels"),
        (pl.DataFrame(COLUMNS), {}, "3 columns of .*4 labels .*lacks d;"),
        (
            pl.DataFrame(COLUMNS),
            {"probabilities": ["a", "b", "c"]},
            "3 columns of probabilities.*4 labels",
        ),
        (pl.DataFrame({"probabilities": PROBABILITIES}), {}, "3 probabilities .*4 labels"),
    ],
)
def test_too_few_columns_are_reported(inputs, settings, message, fitted_on_four_labels):
    # the attributes of a fit, for other parameters
    fitted = clone(FOUR_LABEL_MAP).set_params(**settings)
    fitted.document_ = fitted_on_four_labels.document_
    fitted.label_names_ = fitted_on_four_labels.label_names_
    fitted.arrays_ = "probabilities"
    fitted.classes_ = fitted_on_four_labels.classes_
    fitted.classifier_ = None
    fitted.out_of_fold_ = {}
    fitted.training_inputs_ = None

    for method in (fitted.reliability, fitted.predict, fitted.apply):
        with pytest.raises(InputError, match=message):
            method(inputs)
    with pytest.raises(InputError, match=message):
        clone(FOUR_LABEL_MAP).set_params(**settings).fit(inputs, np.array(["a", "b", "c", "d"])[LABEL])


def test_refit_forgets_earlier_labels(fitted_on_four_labels):
    refitted = clone(INTERCEPT_MAP).fit(make_predictions(200, 4).drop("group"))
    assert refitted.fit(PROBABILITIES, LABEL).document_.n_labels == 3


def test_map_can_end_a_pipeline_or_contain_one(tmp_path):
    inputs = np.hstack([LOGITS, np.random.default_rng(0).normal(size=(600, 5))])
    reliability_map = ReliabilityMap(classifier=LogisticRegression(), variant="label_intercept")
    scaled = StandardScaler().fit_transform(inputs)
    last = clone(reliability_map).fit(scaled, WORDS)
    pipeline = make_pipeline(StandardScaler(), clone(reliability_map)).fit(inputs, WORDS)
    np.testing.assert_array_equal(pipeline.predict_proba(inputs), last.predict_proba(scaled))

    with_inner_pipeline = ReliabilityMap(classifier=make_pipeline(StandardScaler(), LogisticRegression())).fit(
        inputs, WORDS
    )
    assert with_inner_pipeline.predict_proba(inputs).shape == (600, 3)
    assert cross_val_score(with_inner_pipeline, inputs, WORDS, cv=2, error_score="raise").max() < 0
    for other in (ReliabilityMap(), ReliabilityMap(classifier=SVC())):
        assert not hasattr(other, "predict_proba")
        assert not hasattr(make_pipeline(StandardScaler(), other), "predict_proba")

    with pytest.warns(UserWarning, match="without its classifier") as warning:
        last.save(tmp_path / "map.json")
    assert warning[0].filename == __file__

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(INTERCEPT_MAP).fit(PROBABILITIES, LABEL).save(tmp_path / "map.json")
