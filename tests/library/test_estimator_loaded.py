"""A loaded map: its parameters, labels, arrays, routes and errors. The few fits are small, for speed."""

import json
import pickle
from copy import copy

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax, softmax
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags

from relmap import InputError, ReliabilityMap
from relmap.estimator import INTEGER_NAME
from relmap.maps.document import MapDocument, save_map
from relmap.maps.score import FittedMap
from relmap.settings import DEFAULTS
from tests import maps

FRAME = maps.make_predictions(60)
LOGITS = np.array(FRAME["logits"].to_list())
LABEL = FRAME["label"].to_numpy()


def load(document: MapDocument, folder, **options: object) -> ReliabilityMap:
    save_map(document, folder / "map.json")
    return ReliabilityMap.load(folder / "map.json", **options)


def map_with_source(**fields: object) -> MapDocument:
    document = maps.make_map("mrp")
    return document.model_copy(update={"source": document.source.model_copy(update=fields)})


def test_a_loaded_map_has_the_parameters_of_its_fit(tmp_path):
    document = map_with_source(seed=7, hold_out=0.25, protocol=DEFAULTS.protocol)
    loaded = load(document, tmp_path, arrays="logits")
    defaults = ReliabilityMap().get_params()
    assert loaded.get_params() == defaults | {
        "calibrator": "ts",
        "variant": "mrp",
        "seed": 7,
        "labels": maps.LABEL_NAMES,
        "hold_out": 0.25,
        "protocol": "paper",
        "arrays": "logits",
    }
    assert loaded.document_.fingerprint == document.fingerprint
    assert load(map_with_source(), tmp_path).protocol == "own"


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (("irrelevant", "partial", "exact"), ["irrelevant", "partial", "exact"]),
        (("3", "-1", "0"), [3, -1, 0]),
        (("3", "x", "0"), ["3", "x", "0"]),
        (("1", "2", "03"), ["1", "2", "03"]),
        (("1", "2", "-0"), ["1", "2", "-0"]),
        (("1", "2", "9" * 18), [1, 2, int("9" * 18)]),
        (("1", "2", "9" * 19), ["1", "2", "9" * 19]),
        (None, [0, 1, 2]),
    ],
)
def test_classes_are_integers_if_every_name_is_one(names, classes, tmp_path):
    loaded = load(maps.make_map("mrp", names=names), tmp_path)
    assert loaded.classes_.tolist() == classes
    assert loaded.classes_.dtype.kind == ("U" if isinstance(classes[0], str) else "i")
    assert loaded.predict(LOGITS).tolist() == [classes[row.argmax()] for row in LOGITS]
    assert "{0,17}" in INTEGER_NAME  # at most 18 digits, which fit into an int64


def test_an_unknown_kind_of_arrays_is_rejected(tmp_path):
    with pytest.raises(InputError, match=r"^arrays.*'scores';.*auto, logits, probabilities$"):
        load(maps.make_map(), tmp_path, arrays="scores")


def test_arrays_are_read_as_logits_or_probabilities(tmp_path):
    probabilities = softmax(LOGITS, axis=1)
    expected = load(maps.make_map("mrp"), tmp_path, arrays="logits").reliability(log_softmax(LOGITS, axis=1))
    for arrays in ("auto", "probabilities"):
        found = load(maps.make_map("mrp"), tmp_path, arrays=arrays).reliability(probabilities)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    as_logits = load(maps.make_map("mrp"), tmp_path, arrays="logits").reliability(probabilities)
    assert np.abs(as_logits - expected).max() > 0.01


def reliability_and_correctness() -> tuple[np.ndarray, np.ndarray]:
    """Score the rows with the map, without the estimator."""
    rows = maps.rows_of_frame(FRAME)
    return FittedMap.from_document(maps.make_map("mrp"))(rows).reliability, rows.correct


def test_the_score_is_minus_the_log_loss_and_weights_repeat_rows(tmp_path):
    loaded = load(maps.make_map("mrp", names=None), tmp_path)
    reliability, correct = reliability_and_correctness()
    losses = -np.log(np.where(correct, reliability, 1 - reliability))
    assert loaded.score(LOGITS, LABEL) == pytest.approx(-losses.mean())
    weight = np.arange(60) % 4 + 1
    weighted = FRAME.select("logits", "label").with_columns(inverse_probability=weight.astype(float))
    assert loaded.score(weighted) == pytest.approx(-np.average(losses, weights=weight))
    repeated = np.repeat(np.arange(60), weight)
    assert loaded.score(LOGITS[repeated], LABEL[repeated]) == pytest.approx(loaded.score(weighted))


@pytest.mark.parametrize("as_frame", [False, True])
def test_routes_of_arrays_and_frames_follow_their_options(as_frame, tmp_path):
    loaded = load(maps.make_map("mrp", names=None), tmp_path)
    reliability, _ = reliability_and_correctness()
    rows = FRAME.select("logits") if as_frame else LOGITS
    for options, expected in (
        ({}, reliability >= 0.5),
        ({"cut": 0.75}, reliability >= 0.75),
        ({"coverage": 0.25}, reliability >= np.sort(reliability)[-15]),  # 25% of 60 rows
        ({"coverage": "0.25", "cut": 0.9}, (reliability >= np.sort(reliability)[-15]) & (reliability >= 0.9)),
    ):
        routed = pl.DataFrame(loaded.apply(rows, **options))
        assert (routed["route"] == "automatic").to_list() == expected.tolist()
        np.testing.assert_allclose(routed["reliability"], reliability, rtol=1e-12)


def test_cuts_are_given_as_result_numbers_path_or_text(tmp_path):
    loaded = load(maps.make_map("mrp", names=None), tmp_path)
    found = loaded.thresholds(LOGITS, LABEL, cut=0.625)
    reliability, _ = reliability_and_correctness()
    path = tmp_path / "cuts.json"
    path.write_text(json.dumps(found.to_dict()), encoding="utf-8")
    for cuts in (found, found.to_dict(), path, str(path)):
        routed = pl.DataFrame(loaded.apply(LOGITS, cuts=cuts))
        assert (routed["route"] == "automatic").to_list() == (reliability >= 0.625).tolist()
    with pytest.raises(InputError, match=r"^cuts .*0\.5; .*`thresholds`.* cut "):
        loaded.apply(LOGITS, cuts=0.5)


def test_groups_are_given_as_values_or_as_the_name_of_a_column(tmp_path):
    loaded = load(maps.make_map("mrp", names=None), tmp_path)
    by_values = loaded.thresholds(LOGITS, LABEL, FRAME["group"].to_numpy(), cut=0.5).to_dict()
    by_name = loaded.thresholds(FRAME, groups="group", cut=0.5).to_dict()
    assert by_values == by_name
    assert (by_name["overall"]["rows"], by_name["groups"]) == (60, 6)
    assert loaded.thresholds(LOGITS, LABEL, cut=0.5).to_dict()["overall"]["rows"] == 60


@pytest.mark.parametrize("name", ["target_accuracy", "confidence_level", "cut", "cost_error", "cost_review"])
def test_numbers_given_as_text_are_rejected(name, tmp_path):
    loaded = load(maps.make_map("mrp", names=None), tmp_path)
    with pytest.raises(InputError, match=rf"^{name} .*'0\.5'; .*number$"):
        loaded.thresholds(LOGITS, LABEL, **{name: "0.5"})


def test_a_loaded_map_has_no_rows_to_plot_and_an_unfitted_one_cannot_score(tmp_path):
    loaded = load(maps.make_map("mrp"), tmp_path)
    with pytest.raises(InputError, match=r"loaded.*rows;.*plot\(X, y\)$"):
        loaded.plot()
    for method in (ReliabilityMap().reliability, ReliabilityMap().predict, ReliabilityMap().apply):
        with pytest.raises(NotFittedError):
            method(LOGITS)


def test_a_frame_without_columns_of_the_labels_is_rejected_by_its_columns(tmp_path):
    loaded = load(maps.make_map("mrp"), tmp_path)
    with pytest.raises(InputError, match=r"^X.*columns.*a, b, c;.*logits.*probabilities"):
        loaded.reliability(pl.DataFrame({"a": [0.2, 0.3], "b": [0.1, 0.5], "c": [0.7, 0.2]}))


def test_labels_of_shape_n_1_are_flattened_with_a_warning():
    model = ReliabilityMap(variant="confidence")
    with pytest.warns(UserWarning, match="column-vector"):
        model.fit(np.tile(LOGITS, (2, 1)), np.tile(LABEL, 2)[:, None])
    assert model.n_features_in_ == 3
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(LOGITS, LABEL) == pytest.approx(model.score(LOGITS, LABEL.astype(float)))


@pytest.fixture(scope="module")
def fitted_on_frame() -> ReliabilityMap:
    frame = maps.make_predictions(120, 2)
    return ReliabilityMap(variant="confidence").fit(frame.select("logits", "label"))


def test_a_map_fitted_on_a_frame_does_not_know_what_arrays_contain(fitted_on_frame):
    assert not hasattr(fitted_on_frame, "n_features_in_")
    np.testing.assert_array_equal(fitted_on_frame.predict(np.array([-1.5, 1.5])), [0, 1])
    with pytest.raises(InputError, match=r"^X.*logits or probabilities,.*arrays='logits'"):
        fitted_on_frame.reliability(np.array([0.25, 0.75]))


def test_a_map_records_the_rows_and_versions_of_its_fit(fitted_on_frame):
    source = fitted_on_frame.document_.source
    assert (source.rows, source.seed, source.group, source.hold_out, source.protocol) == (120, 1, None, 0, None)
    assert list(source.versions) == ["relmap", "numpy", "scipy"]
    assert source.versions["numpy"] == np.__version__


def test_a_numeric_column_of_groups_is_not_read_as_a_label():
    probabilities = softmax(np.array(maps.make_predictions(90)["logits"].to_list()), axis=1)
    frame = pl.DataFrame(probabilities, schema=["a", "b", "c"]).with_columns(query=np.arange(90) // 3)
    y = np.array(["a", "b"])[np.arange(90) % 2]  # c never occurs
    model = ReliabilityMap(variant="confidence").fit(frame, y, groups="query")
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.document_.source.group == "query"


def test_groups_of_features_are_groups_of_the_out_of_fold_predictions():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(120, 2))
    y = (features[:, 0] + generator.normal(size=120) > 0).astype(int)
    groups = np.arange(120) // 4
    model = ReliabilityMap(classifier=LogisticRegression(), variant="confidence").fit(features, y, groups)
    assert model.document_.source.group == "group"
    assert model.fitted_rows_.frame["group"].n_unique() == 30
    numbers = model.thresholds(features, y, groups, coverage=0.5).to_dict()
    assert (numbers["overall"]["rows"], numbers["fitted_rows"], numbers["guaranteed"]) == (120, 120, False)


def test_a_pickled_map_has_no_rows(fitted_on_frame):
    restored = pickle.loads(pickle.dumps(fitted_on_frame))
    assert fitted_on_frame.fitted_rows_ is not None
    assert restored.fitted_rows_ is None
    assert restored.document_.fingerprint == fitted_on_frame.document_.fingerprint
    assert not hasattr(pickle.loads(pickle.dumps(ReliabilityMap(seed=3))), "fitted_rows_")


def test_a_map_with_a_classifier_is_saved_with_a_warning(fitted_on_frame, tmp_path, recwarn):
    fitted_on_frame.save(tmp_path / "map.json")
    assert not recwarn
    with_classifier = copy(fitted_on_frame).set_params(classifier=LogisticRegression())
    with pytest.warns(UserWarning, match="without its classifier") as caught:
        with_classifier.save(tmp_path / "map.json")
    assert caught[0].filename == __file__


def test_with_a_classifier_labels_are_required_and_inputs_have_its_tags():
    classifier = HistGradientBoostingClassifier()  # its tags differ from the defaults in every version
    without_classifier = get_tags(ReliabilityMap())
    with_classifier = get_tags(ReliabilityMap(classifier=classifier))
    assert (without_classifier.target_tags.required, with_classifier.target_tags.required) == (False, True)
    assert with_classifier.input_tags == get_tags(classifier).input_tags
    assert without_classifier.input_tags != with_classifier.input_tags


def test_numeric_columns_not_named_like_a_label_are_ignored():
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(200, 2)) * 3
    label = np.where((scores + generator.gumbel(size=scores.shape)).argmax(axis=1) == 0, "no", "yes")
    frame = pl.DataFrame(scores, schema=["no", "yes"])
    with_length = frame.with_columns(length=pl.Series(generator.integers(1, 99, 200)))

    fitted = ReliabilityMap(variant="label_intercept").fit(with_length, label)

    assert fitted.classes_.tolist() == ["no", "yes"]
    expected = ReliabilityMap(variant="label_intercept").fit(frame, label).reliability(frame).to_numpy()
    np.testing.assert_array_equal(fitted.reliability(with_length).to_numpy(), expected)
