"""Columns of a frame that have the logits or probabilities of one label each, and the labels that they name."""

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from relmap import ReliabilityMap

LOGITS = np.array([[2.5, -1.0, 0.5], [-0.5, 1.5, 0.0], [0.25, 0.5, -2.0]])
PROBABILITIES = softmax(LOGITS, axis=1)
NAMES = ("a", "b", "c")
Y_TRUE = ["a", "b", "a"]  # no row has the label c


def make_frame(numbers: np.ndarray, **columns: object) -> pl.DataFrame:
    frame = pl.DataFrame(numbers, schema=NAMES)
    return frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})


def labels_of(frame: pl.DataFrame, y: object = None, groups: object = None, **settings: object) -> list[object] | None:
    return ReliabilityMap(**settings)._labels_of_columns(frame, y, groups)


def columns_of(
    frame: pl.DataFrame, *, names: tuple[str, ...] | None = NAMES, arrays: str | None = None, **settings: object
) -> tuple[str, object]:
    """Return what the columns by label contain, and their names, for a map with the given names of labels."""
    model = ReliabilityMap(**settings)
    model.label_names_ = names
    model.arrays_ = arrays
    return model._columns_by_label(frame)


def test_labels_are_all_columns_of_probabilities_in_their_order():
    frame = make_frame(PROBABILITIES).select("c", "a", "b")
    assert labels_of(frame, Y_TRUE) == ["c", "a", "b"]


def test_labels_are_the_columns_of_logits_that_occur():
    frame = make_frame(LOGITS, age=[31, 42, 53])
    assert labels_of(frame, Y_TRUE) == ["a", "b"]
    assert labels_of(frame.select("age", "c", "b", "a"), ["c", "a", "b"]) == ["c", "b", "a"]


def test_numbers_as_labels_keep_their_type_and_other_columns_are_text():
    frame = pl.DataFrame(PROBABILITIES, schema=["3", "1", "2"])
    assert labels_of(frame, np.array([1, 3, 1])) == [3, 1, "2"]


@pytest.mark.parametrize(
    ("name", "groups", "settings"),
    [
        ("label", None, {}),
        ("truth", None, {"label": "truth"}),
        ("query", "query", {}),
        ("id", None, {}),
        ("key", None, {"id": "key"}),
        ("inverse_probability", None, {}),
        ("length", None, {"signals": ("length",)}),
    ],
)
def test_numeric_columns_of_other_content_are_not_read_as_labels(name, groups, settings):
    frame = make_frame(PROBABILITIES, **{name: [0.0, 0.0, 0.0]})
    assert labels_of(frame, Y_TRUE, groups, **settings) == ["a", "b", "c"]
    assert labels_of(frame.rename({name: "other"}), Y_TRUE, groups, **settings) == ["a", "b", "c", "other"]


def test_groups_given_as_values_reserve_no_column():
    assert labels_of(make_frame(PROBABILITIES), Y_TRUE, np.array(["x", "y", "z"])) == ["a", "b", "c"]


def test_columns_of_text_are_not_read_as_labels():
    frame = make_frame(PROBABILITIES, text=["x", "y", "z"])
    assert labels_of(frame, Y_TRUE) == ["a", "b", "c"]
    assert labels_of(frame, ["text", "a", "b"]) is None


@pytest.mark.parametrize("column", ["label", "truth"])
def test_true_labels_may_be_a_column_of_the_frame(column):
    frame = make_frame(PROBABILITIES, **{column: Y_TRUE})
    settings = {} if column == "label" else {"label": column}
    assert labels_of(frame, **settings) == ["a", "b", "c"]
    assert labels_of(make_frame(PROBABILITIES), **settings) is None


def test_missing_labels_are_ignored_and_unknown_ones_prevent_labels():
    frame = make_frame(PROBABILITIES)
    assert labels_of(frame, [None, "b", "a"]) == ["a", "b", "c"]
    assert labels_of(frame, [None, None, None]) is None
    assert labels_of(frame, ["a", "b", "d"]) is None


@pytest.mark.parametrize("name", ["logits", "probabilities", "decision", "confidence", "logits_0", "probabilities_12"])
def test_a_frame_with_columns_of_predictions_has_no_columns_of_labels(name):
    frame = make_frame(PROBABILITIES, **{name: [0, 1, 2]})
    assert labels_of(frame, Y_TRUE) is None
    assert columns_of(frame) == ("probabilities", None)


def test_columns_named_like_labels_are_read_by_their_content():
    assert columns_of(make_frame(PROBABILITIES)) == ("probabilities", NAMES)
    assert columns_of(make_frame(LOGITS)) == ("logits", NAMES)
    assert columns_of(make_frame(PROBABILITIES), arrays="logits") == ("logits", NAMES)
    assert columns_of(make_frame(PROBABILITIES).select("b")) == ("probabilities", NAMES)


def test_without_names_of_labels_or_without_their_columns_no_columns_are_found():
    assert columns_of(make_frame(LOGITS), names=None) == ("probabilities", None)
    assert columns_of(make_frame(LOGITS), names=("x", "y", "z")) == ("probabilities", None)


@pytest.mark.parametrize("name", ["probability", "score_column", "decision", "confidence"])
def test_a_named_column_of_other_predictions_is_used_in_place_of_columns_of_labels(name):
    assert columns_of(make_frame(LOGITS), **{name: "p"}) == ("probabilities", None)


@pytest.mark.parametrize("kind", ["probabilities", "logits"])
def test_columns_are_given_as_list_as_prefix_or_as_one_column_of_lists(kind):
    frame = make_frame(PROBABILITIES)
    assert columns_of(frame, **{kind: ("c", "a", "b")}) == (kind, ["c", "a", "b"])
    assert columns_of(frame, **{kind: [1, 2]}) == (kind, ["1", "2"])
    assert columns_of(frame, **{kind: "p"}) == (kind, ["p_a", "p_b", "p_c"])
    assert columns_of(frame, **{kind: "a"}) == (kind, None)
    assert columns_of(frame.rename({"b": "p_0"}), **{kind: "p"}) == (kind, None)
    assert columns_of(frame, names=None, **{kind: "p"}) == (kind, None)
