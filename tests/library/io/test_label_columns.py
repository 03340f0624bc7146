"""Predictions in separate columns of a frame, which are named like labels."""

import re

import numpy as np
import polars as pl
import pytest

from relmap.io.label_columns import check_width, has_predictions, infer_column_kind, numbered_columns
from tests.texts import message_of


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["logits"], True),
        (["a", "probabilities"], True),
        (["decision"], True),
        (["confidence"], True),
        (["logits_0"], True),
        (["probabilities_12"], True),
        (["logits_", "logits_a", "logits_0b", "label", "xlogits_0"], False),
        ([], False),
    ],
)
def test_columns_of_predictions_are_recognized(names, expected):
    assert has_predictions(names) is expected


@pytest.mark.parametrize(
    ("data", "n_labels", "names", "expected"),
    [
        (np.zeros((4, 3)), 3, None, ""),
        (np.zeros(4), 2, None, ""),
        (np.zeros((4, 3)), None, None, ""),
        (np.zeros((4, 3, 2)), 7, None, ""),
        ([[1], [1, 2]], 7, None, ""),
        (np.zeros((4, 3)), 2, None, r"X .* 3 columns, .* 2 labels;.*"),
        (np.zeros((4, 2)), 3, ["a", "b", "c"], r"X .* 2 columns,.* 3 labels.*\(a, b, c\);.*"),
        (np.zeros(4), 3, None, r"X .*one number .* 3 labels;.*"),
    ],
)
def test_arrays_need_a_column_for_each_label(data, n_labels, names, expected):
    if expected:
        assert re.fullmatch(expected, message_of(check_width, data, n_labels, names))
    else:
        check_width(data, n_labels, names)


def test_named_columns_are_numbered_in_the_order_of_the_labels():
    frame = pl.DataFrame({"yes": [0.9], "no": [0.1], "other": [5]})
    numbered = numbered_columns(frame, ["no", "yes"], "probabilities", 2, ["no", "yes"])
    assert numbered.to_dict(as_series=False) == {"probabilities_1": [0.9], "probabilities_0": [0.1], "other": [5]}
    assert numbered_columns(frame, ["no", "yes"], "probabilities", None, None).equals(numbered)
    with_logits = frame.with_columns(logits_1=pl.lit(7), logits_2=pl.lit(8))
    assert numbered_columns(with_logits, ["no", "logits_1"], "logits", 2, None).columns == [
        "yes",
        "logits_0",
        "other",
        "logits_1",
        "logits_2",
    ]
    assert numbered_columns(with_logits, ["no", "yes"], "logits", 2, None).columns == [
        "logits_1",
        "logits_0",
        "other",
        "logits_2",
    ]


@pytest.mark.parametrize(
    ("columns", "n_labels", "names", "expected"),
    [
        (
            ["yes", "maybe"],
            2,
            ["a", "b"],
            r"X .* 1 columns.*\blogits,.* 2 labels \(a, b\);[^;]*\bmaybe;.*",
        ),
        (["yes"], 2, None, r"X .* 1 columns.*\blogits,.* 2 labels;[^;]*"),
        (["yes", "maybe", "x"], None, None, r"X .*column maybe, x,.*\blogits\b.*;.*\byes, no"),
        (["yes", "maybe"], 1, None, r"X .*column maybe, .*\blogits .*; .*\byes, no"),
        (["yes", "yes"], None, None, r"logits is \['yes', 'yes'\]; .*two labels .*once"),
        (["yes"], None, None, r"logits is \['yes'\]; .*two labels .*once"),
    ],
)
def test_named_columns_that_do_not_fit_the_labels_are_reported(columns, n_labels, names, expected):
    frame = pl.DataFrame({"yes": [0.9], "no": [0.1]})
    assert re.fullmatch(expected, message_of(numbered_columns, frame, columns, "logits", n_labels, names))


def test_columns_are_probabilities_where_their_rows_sum_to_one():
    frame = pl.DataFrame({"a": [0.25, None], "b": [0.75, 0.5], "c": [1.5, 0.5], "text": ["0.1", "0.2"]})
    full = frame[:1]
    assert infer_column_kind(full, ["a", "b"], "auto") == "probabilities"
    assert infer_column_kind(full, ["a", "b"], None) == "probabilities"
    assert infer_column_kind(full, ["a", "c"], "auto") == "logits"
    assert infer_column_kind(full, ["a", "b"], "logits") == "logits"
    assert infer_column_kind(full, ["a", "c"], "probabilities") == "probabilities"
    assert infer_column_kind(full, ["c", "missing"], "auto") == "probabilities"
    assert infer_column_kind(full, ["c", "text"], "auto") == "probabilities"
    ambiguous = full.with_columns(d=pl.lit(0.5))
    assert "sum to 1" in message_of(infer_column_kind, ambiguous, ["a", "d"], "auto")
