"""`ReliabilityMap` names its own parameters, reads frames as people have them, and works in a pipeline."""

import inspect
import re
import warnings
from dataclasses import fields
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

from relmap import InputError, ReliabilityMap, ReliabilityPipeline
from relmap.io.reading import Reading
from relmap.options import assignment, naming, option
from tests.maps import make_confidence_predictions, make_predictions

ROWS = make_predictions(600)
LOGITS, LABEL = np.array(ROWS["logits"].to_list()), ROWS["label"].to_numpy()
SHARES = softmax(LOGITS, axis=1)
WRONG = {"labels": ["bad", "fair", "good"]}
NAMES = np.array(["fair", "bad", "good"])  # in no alphabetical order
WORDS = NAMES[LABEL]
KINDS = {"polars": lambda frame: frame, "pandas": pl.DataFrame.to_pandas, "arrow": pl.DataFrame.to_arrow}
SHIFTS = ReliabilityMap(variant="label_intercept")
EXPECTED = clone(SHIFTS).fit(SHARES, LABEL).reliability(SHARES)
FOUR = clone(SHIFTS).set_params(labels=["a", "b", "c", "d"])


@pytest.fixture(scope="module")
def of_four() -> ReliabilityMap:
    made = make_predictions(400, 4)
    label = np.array(["a", "b", "c", "d"])[made["label"].to_numpy()]
    return clone(FOUR).fit(softmax(np.array(made["logits"].to_list()), axis=1), label)


def test_every_way_to_read_a_file_is_a_parameter_so_that_each_message_names_one():
    with naming("python"):
        assert {option(field.name) for field in fields(Reading)} <= {*inspect.signature(ReliabilityMap).parameters}


TWO = make_confidence_predictions(300, 2)
JUDGE = {"decision": TWO["decision"], "confidence": TWO["confidence"]}


@pytest.mark.parametrize(
    ("frame", "y", "settings", "named"),
    [
        (pl.DataFrame({"probabilities": SHARES}), WORDS, {}, "name the labels with labels in the order"),
        (
            pl.DataFrame({"probabilities": SHARES}),
            WORDS,
            {"labels": ["bad", "fair", "good"]},
            r"labels=\['fair', 'bad'",
        ),
        (
            pl.DataFrame({"probabilities": SHARES}),
            WORDS,
            {"labels": ["bad", "fair", "good"]},
            "accept_label_order=True",
        ),
        (pl.DataFrame({"softmax": SHARES}), LABEL, {}, "name yours: probabilities='softmax'"),
        (pl.DataFrame(JUDGE), None, {}, "name yours with label='COLUMN'"),
        (pl.DataFrame(JUDGE | {"gold": TWO["label"]}), None, {}, "name yours: label='gold'"),
        (pl.DataFrame({"decision": TWO["decision"], "confidence": 95.0}), TWO["label"], {}, "give percent"),
        (
            pl.DataFrame({"decision": TWO["decision"], "confidence": "low"}),
            TWO["label"],
            {},
            "confidence_words='low=.'",
        ),
        (pl.DataFrame({"s": LOGITS[:, 0]}), LABEL == 0, {"score_column": "s"}, "score_column='s', border=0 decides"),
        (
            pl.DataFrame({"p": SHARES[:, 0]}),
            LABEL == 0,
            {"positive": 1},
            "positive names the label of prob",
        ),
        (
            pl.DataFrame({"p": SHARES[:, 0]}),
            WORDS == "fair",
            {"probability": "q"},
            "q, which probability names",
        ),
        (pl.DataFrame(JUDGE), [None, *TWO["label"][1:]], {}, "omit such rows with drop_unlabelled=True"),
        (LOGITS, LABEL, {"hold_out": 0.0001}, "increase hold_out"),
        (LOGITS, LABEL, {"hold_out": 0.2, "protocol": "paper"}, "omit signals and hold_out"),
    ],
)
def test_errors_name_parameters_and_no_option_of_the_command_line(frame, y, settings, named):
    with pytest.raises(InputError, match=named) as told:
        ReliabilityMap(**settings).fit(frame, y)
    assert not re.search(r"(?<!`relmap thresholds` with )--[a-z]", str(told.value).partition(" Only ")[0])
    assert option("hold_out") == "--hold-out"


@given(
    st.sampled_from(["command line", "form", "python"]), st.from_regex("[a-z]+(_[a-z]+)?", fullmatch=True), st.text()
)
def test_an_option_is_named_as_its_reader_writes_it_inside_the_context_alone(style, name, value):
    with naming(style):
        assert option(name) == ("--" + name.replace("_", "-") if style == "command line" else name)
        assert assignment(name, value).startswith(option(name))
        if style == "python":
            assert eval(f"dict({assignment(name, value)})") == {option(name): value}
        seen: list[str] = []
        other = Thread(target=lambda: seen.append(option(name)))
        other.start()
        other.join()
        assert seen == [f"--{name.replace('_', '-')}"]
    assert option(name).startswith("--")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numbers", [SHARES, LOGITS], ids=["probabilities", "logits"])
def test_columns_named_by_class_are_read_in_any_order_among_others(kind, numbers, tmp_path):
    frame = pl.DataFrame({name: numbers[:, place] for place, name in enumerate(NAMES)})
    frame = frame.select("good", pl.lit("text").alias("query"), "bad", "fair")
    made = clone(SHIFTS).fit(KINDS[kind](frame), WORDS)
    assert made.classes_.tolist() == ["good", "bad", "fair"]
    np.testing.assert_allclose(np.asarray(made.reliability(KINDS[kind](frame))), EXPECTED, atol=1e-6)
    given = made.apply(KINDS[kind](frame.select("fair", "good", "bad")))
    assert pl.DataFrame(given)["decision_name"].to_list() == NAMES[LOGITS.argmax(axis=1)].tolist()
    made.save(tmp_path / "map.json")
    loaded = ReliabilityMap.load(tmp_path / "map.json")
    np.testing.assert_array_equal(
        np.asarray(loaded.reliability(KINDS[kind](frame))), made.reliability(frame).to_numpy()
    )
    assert made.evaluate(KINDS[kind](frame), WORDS).to_dict()["fitted_rows"] == 600


def test_the_frame_of_a_classifier_with_its_classes_as_columns_is_read(tmp_path):
    """Classes are numbers here, and one is not among the labels."""
    frame = pd.DataFrame(np.c_[SHARES * 0.999, np.full(600, 0.001)], columns=[1, 2, 3, 4]).assign(label=LABEL + 1)
    made = clone(SHIFTS).fit(frame)
    assert made.classes_.tolist() == ["1", "2", "3", "4"] or made.classes_.tolist() == [1, 2, 3, 4]
    assert made.document_.label_names == ("1", "2", "3", "4")


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
def test_columns_are_named_by_a_list_or_by_what_they_begin_with(columns, settings):
    numbers = LOGITS if "logits" in settings else SHARES
    frame = pl.DataFrame({name: numbers[:, place] for name, place in columns.items()} | {"other": "x"})
    made = clone(SHIFTS).set_params(labels=NAMES.tolist(), **settings).fit(frame, WORDS)
    np.testing.assert_allclose(made.reliability(frame), EXPECTED, atol=1e-6)
    assert made.apply(frame).columns[: frame.width] == frame.columns


def test_a_score_and_a_probability_of_one_of_two_labels_are_read_in_one_step():
    relevant = np.random.default_rng(0).random(600) < SHARES[:, 0]
    words = np.where(relevant, "relevant", "irrelevant")
    frame = pl.DataFrame({"p": SHARES[:, 0], "s": np.log(SHARES[:, 0] / (1 - SHARES[:, 0]))})
    for settings in ({"score_column": "s", "border": 0}, {"probability": "p"}):
        made = clone(SHIFTS).set_params(positive="relevant", **settings).fit(frame, words)
        assert made.classes_.tolist() == ["irrelevant", "relevant"]
        assert (made.predict(frame) == "relevant").tolist() == (SHARES[:, 0] > 0.5).tolist()
        assert made.evaluate(frame, words).to_dict()["fitted_rows"] == 600
        assert clone(made).get_params() == made.get_params()
    assert cross_val_score(clone(made), frame.to_pandas(), words, cv=2, error_score="raise").max() < 0


COLUMNS = {name: SHARES[:, place] for place, name in enumerate("abc")}


@pytest.mark.parametrize(
    ("given", "settings", "told"),
    [
        (SHARES, {}, r"X has 3 columns, and there are 4 labels \(a, b, c, d\)"),
        (SHARES[:, 0], {}, "X has one number in each row, and there are 4 labels"),
        (pl.DataFrame(COLUMNS), {}, "X has 3 columns of .*, and there are 4 labels .*; it lacks d"),
        (
            pl.DataFrame(COLUMNS),
            {"probabilities": ["a", "b", "c"]},
            "X has 3 columns of probabilities, and",
        ),
        (pl.DataFrame({"probabilities": SHARES}), {}, "3 probabilities in each row, but there are 4 labels"),
    ],
)
def test_too_few_columns_are_reported_as_such(given, settings, told, of_four):
    made = clone(FOUR).set_params(**settings)
    made.document_, made.label_names_, made.arrays_ = of_four.document_, of_four.label_names_, "probabilities"
    made.classes_, made.classifier_, made.out_of_fold_, made.training_inputs_ = of_four.classes_, None, {}, None
    for call in (made.reliability, made.predict, made.apply):
        with pytest.raises(InputError, match=told):
            call(given)
    with pytest.raises(InputError, match=told):
        clone(FOUR).set_params(**settings).fit(given, np.array(["a", "b", "c", "d"])[LABEL])


def test_a_fit_forgets_the_labels_of_an_earlier_one(of_four):
    again = clone(SHIFTS).fit(make_predictions(200, 4).drop("group"))
    assert again.fit(SHARES, LABEL).document_.n_labels == 3


def test_a_pipeline_has_the_reliability_and_the_probabilities_of_its_classifier(tmp_path):
    inputs = np.hstack([LOGITS, np.random.default_rng(0).normal(size=(600, 5))])
    last = ReliabilityMap(classifier=LogisticRegression(), variant="label_intercept")
    steps = [("scale", StandardScaler()), ("map", last)]
    model, plain = ReliabilityPipeline(steps).fit(inputs, WORDS), make_pipeline(StandardScaler(), clone(last))
    scaled = model[:-1].transform(inputs)
    np.testing.assert_array_equal(model.reliability(inputs), last.reliability(scaled))
    np.testing.assert_array_equal(model.predict_proba(inputs), last.classifier_.predict_proba(scaled))
    np.testing.assert_array_equal(plain.fit(inputs, WORDS).predict_proba(inputs), model.predict_proba(inputs))
    assert model.evaluate(inputs, WORDS).to_dict() == last.evaluate(scaled, WORDS).to_dict()
    cuts = model.thresholds(inputs, WORDS, coverage=0.5)
    assert model.apply(inputs, cuts=cuts)["route"].tolist() == last.apply(scaled, cuts=cuts)["route"].tolist()
    inside = ReliabilityMap(classifier=make_pipeline(StandardScaler(), LogisticRegression())).fit(inputs, WORDS)
    assert inside.predict_proba(inputs).shape == (600, 3)
    assert cross_val_score(ReliabilityPipeline(steps), inputs, WORDS, cv=2, error_score="raise").max() < 0
    for other in (ReliabilityMap(), ReliabilityMap(classifier=SVC())):
        assert not hasattr(other, "predict_proba")
        assert not hasattr(make_pipeline(StandardScaler(), other), "predict_proba")
    with pytest.warns(UserWarning, match="saved without its classifier") as told:
        last.save(tmp_path / "map.json")
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(SHIFTS).fit(SHARES, LABEL).save(tmp_path / "map.json")
