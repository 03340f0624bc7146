"""`ReliabilityMap` passes its parameters to the fit and to the reading of frames; most tests fit no map, for speed."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from relmap import ReliabilityMap, estimator
from relmap.errors import PARAMETERS, option
from relmap.evaluation import assessment
from relmap.evaluation.summary import FitSummary
from relmap.io.column_layout import Reading
from relmap.io.frames import FramePredictions
from relmap.maps import fit as api
from relmap.maps.options import FitOptions
from tests import maps

FRAME = maps.make_predictions(60)
LOGITS = np.array(FRAME["logits"].to_list())
LABEL = FRAME["label"].to_numpy()


class RecordedFit:
    """Fit that records its arguments and how messages spell an option, and returns a made-up map."""

    def __init__(self) -> None:
        self.file: FramePredictions | None = None
        self.options: dict[str, Any] = {}
        self.spelled_option = ""
        self.document = maps.make_map("mrp", names=None)

    def __call__(self, file: FramePredictions, options: FitOptions) -> SimpleNamespace:
        self.file = file
        self.options = asdict(options)
        self.spelled_option = option("hold_out")
        return SimpleNamespace(document=self.document)


@pytest.fixture
def recorded(monkeypatch) -> RecordedFit:
    recorded = RecordedFit()
    monkeypatch.setattr(api, "fit_map", recorded)
    monkeypatch.setattr(assessment, "describe_fit", lambda _: FitSummary(("Better.",)))
    return recorded


DEFAULTS = {
    "calibrator": None,
    "variant": None,
    "seed": 1,
    "group": None,
    "labels": None,
    "signals": (),
    "hold_out": 0.0,
    "protocol": "own",
    "accept_label_order": False,
}
OPTIONS = [  # parameters of the model, options of the fit
    ({"calibrator": "diag"}, {"calibrator": "diag"}),
    ({"variant": "mrp"}, {"variant": "mrp"}),
    ({"seed": np.int64(7)}, {"seed": 7}),
    ({"signals": ["length", "age"]}, {"signals": ("length", "age")}),
    ({"hold_out": np.float32(0.25)}, {"hold_out": 0.25}),
    ({"protocol": "paper"}, {"protocol": "paper"}),
    ({"accept_label_order": 1}, {"accept_label_order": True}),
    ({"labels": ["no", "some", "yes"]}, {"labels": ("no", "some", "yes")}),
    ({"labels": np.array([3.0, 1.0, 2.0])}, {"labels": ("3", "1", "2")}),
]


@pytest.mark.parametrize(("parameters", "expected"), [({}, {}), *OPTIONS])
def test_each_parameter_is_passed_on_to_the_fit(parameters, expected, recorded):
    model = ReliabilityMap(**parameters)
    assert model.fit(FRAME.drop("group")) is model
    assert recorded.options == DEFAULTS | expected
    for name in ("seed", "hold_out", "accept_label_order"):
        assert type(recorded.options[name]) is type(DEFAULTS[name])
    assert recorded.spelled_option == "hold_out"
    assert option("hold_out") == "--hold-out"  # the spelling is restored after the fit
    assert model.document_ is recorded.document
    assert model.summary_.lines == ("Better.",)
    assert model.fitted_rows_.frame is recorded.file.frame


@pytest.mark.parametrize(
    ("groups", "name"), [(None, None), ("group", "group"), (FRAME["group"].to_numpy(), "group"), ("query", "query")]
)
def test_groups_are_a_column_of_the_fitted_rows(groups, name, recorded):
    is_given_by_name = isinstance(groups, str) and groups == "group"
    frame = FRAME if is_given_by_name else FRAME.rename({"group": "query"})
    ReliabilityMap().fit(frame, groups=groups)
    assert recorded.options["group"] == name
    if name is not None:
        assert recorded.file.frame[name].to_list() == FRAME["group"].to_list()


@pytest.mark.parametrize(
    ("X", "arrays", "expected", "n_features"),
    [
        (LOGITS, "auto", "logits", 3),
        (LOGITS, "logits", "logits", 3),
        (FRAME.drop("label"), "auto", None, None),
        (FRAME.drop("label"), "probabilities", "probabilities", None),
    ],
)
def test_a_fit_records_what_arrays_contain_and_their_width(X, arrays, expected, n_features, recorded):
    model = ReliabilityMap(arrays=arrays).fit(X, LABEL)
    assert model.arrays_ == expected
    assert getattr(model, "n_features_in_", None) == n_features
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.label_names_ is None
    assert model.training_inputs_ is None
    assert model.out_of_fold_ == {}


def test_labels_of_a_fit_are_its_classes(recorded):
    recorded.document = maps.make_map("mrp")
    words = np.array(maps.LABEL_NAMES)[LABEL]
    model = ReliabilityMap(labels=maps.LABEL_NAMES).fit(LOGITS, words)
    assert model.classes_.tolist() == list(maps.LABEL_NAMES)
    assert model.label_names_ == maps.LABEL_NAMES
    assert recorded.file.frame["label"].to_list() == words.tolist()


def test_a_classifier_is_fitted_on_all_rows_and_the_map_on_its_out_of_fold_predictions(recorded):
    generator = np.random.default_rng(1)
    features = generator.normal(size=(60, 2))
    words = np.array(["a", "b"])[(features[:, 0] + generator.normal(size=60) > 0).astype(int)]
    groups = np.arange(60) // 3
    classifier = LogisticRegression(C=0.5)
    model = ReliabilityMap(classifier=classifier).fit(features, words, groups)
    np.testing.assert_allclose(
        model.classifier_.predict_proba(features),
        LogisticRegression(C=0.5).fit(features, words).predict_proba(features),
    )
    assert not hasattr(classifier, "classes_")
    assert model.classes_.tolist() == ["a", "b"]
    assert recorded.options == DEFAULTS | {"labels": ("a", "b"), "group": "group"}
    columns = recorded.file.frame.columns
    assert columns[0] == "probabilities"
    given = np.array(recorded.file.frame["probabilities"].to_list())
    assert given.shape == (60, 2)
    assert np.abs(given - model.predict_proba(features)).max() > 0.01
    np.testing.assert_array_equal(recorded.file.frame["group"].cast(pl.Int64), groups)
    assert recorded.file.frame["label"].to_list() == words.tolist()
    assert model.arrays_ == "probabilities"
    assert len(model.out_of_fold_) == 1
    assert model.training_inputs_ is not None
    assert model.n_features_in_ == 2


def test_groups_of_some_training_rows_are_used_in_their_evaluation():
    generator = np.random.default_rng(1)
    features = generator.normal(size=(120, 2))
    label = (features[:, 0] + generator.normal(size=120) > 0).astype(int)
    groups = np.arange(120) // 3
    model = ReliabilityMap(classifier=LogisticRegression(), variant="label_intercept").fit(features, label, groups)
    evaluation = model.evaluate(features[:90], label[:90], groups[:90])
    assert evaluation.to_dict()["groups"] == 30


def test_training_rows_of_dictionaries_are_recognized_if_all_of_them_are_given():
    """Dictionaries have no hashes by which single rows could be recognized."""
    generator = np.random.default_rng(1)
    numbers = generator.normal(size=(120, 2))
    rows = [{"a": first, "b": second} for first, second in numbers.tolist()]
    label = (numbers[:, 0] + generator.normal(size=120) > 0).astype(int)
    groups = np.arange(120) // 3
    classifier = make_pipeline(DictVectorizer(), LogisticRegression())
    model = ReliabilityMap(classifier=classifier, variant="label_intercept").fit(rows, label, groups)
    assert model.training_inputs_ is None
    assert model.evaluate(rows, label, groups).to_dict()["fitted_rows"] == 120


READINGS = [
    {"probability": "p", "positive": "yes"},
    {"score_column": "s", "border": 0.5, "positive": 2.0},
    {"label": "truth"},
    {"decision": "d", "confidence": "c", "percent": True},
    {"confidence_words": "low=.3,high=.9"},
    {"id": "key", "drop_unlabelled": True},
    {"logits": "z"},
    {"probabilities": "z"},
]


@pytest.mark.parametrize("parameters", READINGS)
def test_a_frame_is_read_by_the_parameters(parameters):
    model = ReliabilityMap(**parameters)
    model.label_names_ = None
    model.arrays_ = None
    frame, reading = model._read(FRAME)
    assert frame.equals(FRAME)
    option_of = {parameter: name for name, parameter in PARAMETERS.items()}
    expected = {option_of.get(name, name): value for name, value in parameters.items()}
    if parameters.get("positive") == 2.0:
        expected["positive"] = "2"
    assert reading == Reading(**expected)


@pytest.mark.parametrize("drop_unlabelled", [False, True])
def test_an_array_is_read_without_the_names_of_columns(drop_unlabelled):
    model = ReliabilityMap(drop_unlabelled=drop_unlabelled)
    model.label_names_ = None
    model.arrays_ = "logits"
    frame, reading = model._read(LOGITS)
    assert frame.columns == ["logits"]
    assert reading == Reading(drop_unlabelled=drop_unlabelled, logits="logits")


def test_columns_by_label_are_numbered_and_replace_their_option():
    model = ReliabilityMap(logits=["y", "x"], id="key")
    model.label_names_ = ("a", "b")
    model.arrays_ = None
    given = pl.DataFrame({"x": [1.0, 2.0], "y": [0.5, 0.25], "key": ["k", "l"]})
    frame, reading = model._read(given)
    assert frame.select("logits_0", "logits_1").rows() == [(0.5, 1.0), (0.25, 2.0)]
    assert reading == Reading(id="key", logits="logits")


@pytest.mark.parametrize(("n_rows", "is_one_piece"), [(3, True), (4, False)])
def test_long_arrays_are_scored_in_pieces(n_rows, is_one_piece, monkeypatch):
    monkeypatch.setattr(estimator, "BATCH_ROWS", 3)
    model = ReliabilityMap()
    model.document_ = maps.make_map("mrp", names=None)
    model.label_names_ = None
    model.arrays_ = "logits"
    numbers = model._numbers(LOGITS[:n_rows])
    assert (numbers is not None) == is_one_piece
    if numbers is not None:
        np.testing.assert_array_equal(numbers[0], LOGITS[:n_rows])
        assert numbers[1] == "logits"
    np.testing.assert_array_equal(model.reliability(LOGITS[:n_rows]), model.reliability(LOGITS)[:n_rows])
