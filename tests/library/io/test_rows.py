"""Rows of predictions with the exact numbers that are read."""

import re

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from relmap.io.column_layout import Layout, Reading, find_layout
from relmap.io.columns import FileRows
from relmap.io.rows import (
    describe_doubts,
    find_two_label_names,
    ordinal_log_probabilities,
    positive_label,
    read_rows,
    rows_from_array,
)
from tests.texts import message_of

ROWS = FileRows("p.parquet")


def layout_of(frame: pl.DataFrame, *, labelled: bool = True, **options: object) -> Layout:
    return find_layout(frame.columns, "p.parquet", labelled=labelled, **options)


@pytest.mark.parametrize(
    ("probabilities", "is_valid"),
    [
        ([0.5, 0.51], True),
        ([0.5, 0.49], True),
        ([0.5, 0.512], False),
        ([0.5, 0.488], False),
        ([-0.001, 1.0], False),
        ([0.25, 0.25, 0.25, 0.27], True),
        ([0.25, 0.25, 0.25, 0.272], False),
        ([0.0875] * 12, True),  # the sum is 1.05
        ([0.088] * 12, False),
    ],
)
def test_probabilities_may_differ_from_one_by_rounding(probabilities, is_valid):
    array = np.array([probabilities])
    if is_valid:
        np.testing.assert_array_equal(rows_from_array(array, "probabilities", "X").logits, np.log(array))
        return
    tolerance = {2: "0.01", 4: "0.02", 12: "0.05"}[len(probabilities)]
    remedies = []
    if min(probabilities) >= 0:
        remedies.append("[^;]*divide [^;]*")
    if min(probabilities) < 0 or sum(probabilities) > 1:
        remedies.append(r"[^;]*logits\?")
    shown = rf"{re.escape(str(probabilities))} sum to {sum(probabilities):.6g}"
    limits = rf"[^;]*\[0, 1\] .*sum to 1, .*\b{tolerance} [^;]*"
    message = message_of(rows_from_array, array, "probabilities", "X")
    assert re.fullmatch("; ".join([rf"X, row 0 .* {shown}", limits, *remedies]), message)


def test_numbers_of_every_label_must_be_finite():
    valid = np.array([[1e12, -1e12]])
    assert rows_from_array(valid, "logits", "X").logits.tolist() == valid.tolist()
    for number, shown in [(1.1e12, "1100000000000.0"), (-np.inf, "-inf"), (np.nan, "nan")]:
        message = message_of(rows_from_array, np.array([[0.0, 0.0], [0.0, number]]), "logits", "X")
        assert re.match(rf"X, row 1 .*: logits 1 is {re.escape(shown)}; .*±1e\+12", message)
        assert bool(re.search(r" -9999 .*probability of 0$", message)) is (number == -np.inf)


TWO_LABELS = r"p\.parquet: p .*two labels"


@pytest.mark.parametrize(
    ("labels", "positive", "expected"),
    [
        ([0, 1], None, None),
        (["true", "False"], None, None),
        ([0, 0], None, None),
        ([1, 2], None, None),
        ([-1, 1], None, None),
        ([1, 2], "1", ("2", "1")),
        ([1, 2], "2", ("1", "2")),
        (["no", "yes"], "yes", ("no", "yes")),
        (["no", "yes"], " NO", ("yes", "no")),
        (["no", "yes"], "maybe", "--positive .*'maybe'; .* no, yes"),
        (["no", "yes"], None, f"{TWO_LABELS}, no .*yes;.*--positive no.*--positive yes"),
        (["a", "b", "c"], None, rf"{TWO_LABELS},.*\blabel\b.* 3 labels.*\(a, b, c\);.*two .*"),
        (["a", "a"], "a", rf"{TWO_LABELS}, .*\blabel .* 1 labels \(a\); .*two labels"),
    ],
)
def test_names_of_the_two_labels_are_found_in_the_rows(labels, positive, expected):
    frame = pl.DataFrame({"p": [0.5] * len(labels), "label": labels})
    layout = layout_of(frame, reading=Reading(probability="p", positive=positive))
    if isinstance(expected, str):
        assert re.fullmatch(expected, message_of(find_two_label_names, frame, layout, ROWS))
    else:
        assert find_two_label_names(frame, layout, ROWS) == expected


def test_labels_of_decisions_count_among_the_two_labels():
    frame = pl.DataFrame({"p": [0.5, 0.5], "decision": ["no", "yes"], "label": ["no", "no"]})
    layout = layout_of(frame, reading=Reading(probability="p", positive="yes"))
    assert find_two_label_names(frame, layout, ROWS) == ("no", "yes")


def test_the_second_label_is_positive_unless_another_one_is_named():
    assert positive_label(Reading(), ["a", "b"]) == 1
    assert positive_label(Reading(probability="p", positive="a"), ["a", "b"]) == 0
    assert positive_label(Reading(probability="p", positive="1"), None) == 1
    assert positive_label(Reading(probability="p", positive="0"), None) == 0
    three = Reading(probability="p", positive="2")
    assert re.fullmatch("--positive .*'2'; .* 0, 1", message_of(positive_label, three, None))
    assert re.fullmatch("--positive .*'2'; .* a, b", message_of(positive_label, three, ["a", "b"]))


def doubts_of(frame: pl.DataFrame, n_labels: int, names: list[str] | None = None, **reading: object) -> list[str]:
    layout = layout_of(frame, reading=Reading(**reading))
    rows = read_rows(frame, layout, ROWS, names=names, n_labels=n_labels)
    return describe_doubts(rows, layout, names, n_labels)


@pytest.mark.parametrize("reading", [{}, {"confidence": "confidence"}])
@pytest.mark.parametrize("decides_at", [0.3, 0.5, 0.7])
def test_a_confidence_that_separates_the_decisions_is_a_probability_of_one_label(decides_at, reading):
    probability = np.linspace(0.02, 0.98, 40)
    decision = (probability > decides_at).astype(int)
    frame = pl.DataFrame({"decision": decision, "confidence": probability, "label": decision})
    assert "--probability confidence --positive 1" in message_of(doubts_of, frame, 2, **reading)
    layout = layout_of(frame, labelled=False, reading=Reading(**reading))
    assert "--probability confidence" in message_of(read_rows, frame, layout, ROWS, n_labels=2)


def test_twenty_rows_of_a_word_that_only_decisions_or_labels_take_show_different_words():
    for n_rows in (19, 20):
        decision = np.zeros(60, dtype=int)
        label = np.zeros(60, dtype=int)
        decision[:n_rows] = 1
        label[-n_rows:] = 2
        frame = pl.DataFrame({"decision": decision, "label": label})
        layout = layout_of(frame)
        if n_rows < 20:
            assert len(read_rows(frame, layout, ROWS, n_labels=3)) == 60
        else:
            message = message_of(read_rows, frame, layout, ROWS, n_labels=3)
            assert re.match(r"p\.parquet: only 20 of 60 .*decision has 0, 1,.* label has 0, 2", message)


@pytest.mark.parametrize(("borders", "scale"), [((-1.0, 0.5, 4.0), 1.25), ((2.0, 2.0), 1.0)])
def test_probabilities_of_ascending_labels_are_differences_of_a_cumulative_logit_model(borders, scale):
    distance = np.linspace(-3, 5, 9)[:, None] - borders
    probabilities = np.exp(ordinal_log_probabilities(distance, borders))
    is_above = np.hstack([np.ones((9, 1)), expit(distance / scale), np.zeros((9, 1))])
    np.testing.assert_allclose(probabilities, is_above[:, :-1] - is_above[:, 1:], rtol=1e-12, atol=1e-11)
