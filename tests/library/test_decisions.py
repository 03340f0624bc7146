"""The container of fixed decisions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relmap import decisions
from relmap.decisions import FixedDecisions, ProtocolDecisions, confidence_logit, decide, number_groups

DECISION = np.array([0, 1, 1])


def test_protocol_decisions_require_logits_labels_and_groups():
    with pytest.raises(TypeError, match=r"'logits', 'label',.*'group'$"):
        ProtocolDecisions(decision=DECISION)


def test_selected_and_concatenated_rows_keep_their_class_and_their_values():
    rows = ProtocolDecisions(decision=DECISION, logits=np.eye(3), label=DECISION[::-1], group=np.array(["a", "b", "c"]))

    both = ProtocolDecisions.concatenate([rows.take(slice(1)), rows.take([2, 1])])

    assert isinstance(both, ProtocolDecisions)
    np.testing.assert_array_equal(both.decision, [0, 1, 1])
    np.testing.assert_array_equal(both.logits, np.eye(3)[[0, 2, 1]])
    np.testing.assert_array_equal(both.correct, [False, False, True])
    np.testing.assert_array_equal(both.group, ["a", "c", "b"])
    assert both.weight is None


def test_a_value_that_one_part_lacks_is_missing_after_concatenation():
    labelled = FixedDecisions(decision=DECISION, label=DECISION, weight=np.ones(3))
    unlabelled = FixedDecisions(decision=DECISION, weight=np.full(3, 2.0))

    both = FixedDecisions.concatenate([labelled, unlabelled])

    assert len(both) == 6
    assert both.label is None
    np.testing.assert_array_equal(both.weight, [1, 1, 1, 2, 2, 2])


ALL_VALUES = FixedDecisions(
    decision=np.array([0, 1, 1, 2]),
    logits=np.arange(12.0).reshape(4, 3),
    confidence=np.array([0.1, 0.2, 0.3, 0.4]),
    label=np.array([2, 1, 0, 2]),
    group=np.array(["a", "b", "c", "d"]),
    signals=np.arange(8.0).reshape(4, 2),
    weight=np.array([1.0, 2.0, 3.0, 4.0]),
)
OPTIONAL_VALUES = ("logits", "confidence", "label", "group", "signals", "weight")


@pytest.mark.parametrize(
    "rows", [slice(1, 3), np.array([3, 0, 3]), np.array([True, False, False, True])], ids=["slice", "numbers", "mask"]
)
def test_every_value_of_the_selected_rows_is_selected(rows):
    selected = ALL_VALUES.take(rows)
    for name in ("decision", *OPTIONAL_VALUES):
        np.testing.assert_array_equal(getattr(selected, name), getattr(ALL_VALUES, name)[rows])
    unknown = FixedDecisions(decision=DECISION).take(slice(2))
    assert [getattr(unknown, name) for name in OPTIONAL_VALUES] == [None] * 6


def test_every_value_is_concatenated_in_the_order_of_the_parts():
    parts = [ALL_VALUES.take(slice(3, None)), ALL_VALUES, ALL_VALUES.take(slice(1))]
    concatenated = FixedDecisions.concatenate(parts)
    for name in ("decision", *OPTIONAL_VALUES):
        expected = getattr(ALL_VALUES, name)[[3, 0, 1, 2, 3, 0]]
        np.testing.assert_array_equal(getattr(concatenated, name), expected)


def test_input_of_a_map_is_the_most_informative_known_value():
    logits = np.zeros((3, 4))
    confidence = np.full(3, 0.5)
    assert FixedDecisions(decision=DECISION).kind == "decision_only"
    assert FixedDecisions(decision=DECISION, confidence=confidence).kind == "confidence_only"
    assert FixedDecisions(decision=DECISION, logits=logits).kind == "logits"
    assert FixedDecisions(decision=DECISION, logits=logits).n_labels == 4


def test_rows_without_weights_have_one_copy_each():
    assert FixedDecisions(decision=DECISION).copies.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("weight", "max_copies", "expected"),
    [
        ([1, 1, 1, 5], 10**6, [50, 50, 50, 250]),  # at most 100 copies of a row on average
        ([1, 1, 1, 5], 400, [50, 50, 50, 250]),
        ([1, 1, 1, 5], 80, [10, 10, 10, 50]),
        ([0.1, 0.3, 0.1, 0.3], 40, [5, 15, 5, 15]),
        ([1, 1, 1, 5], 4, [5, 5, 5, 25]),  # at least 10 copies of a row on average, even above the maximum
        ([1e-9, 1, 1, 2], 80, [1, 20, 20, 40]),  # at least one copy of each row
    ],
)
def test_copies_of_rows_are_in_proportion_to_their_weights(weight, max_copies, expected, monkeypatch):
    monkeypatch.setattr(decisions, "MAX_COPIES", max_copies)
    rows = FixedDecisions(decision=np.zeros(4, dtype=int), weight=np.array(weight, dtype=float))
    assert rows.copies.tolist() == np.repeat(np.arange(4), expected).tolist()
    assert rows.copies.dtype == np.int64


def test_all_rows_together_have_a_million_copies():
    n_rows = 25_000
    rows = FixedDecisions(decision=np.zeros(n_rows, dtype=int), weight=np.full(n_rows, 0.3))
    assert set(np.bincount(rows.copies)) == {40}


def test_copies_are_rounded_at_random_and_right_on_average(monkeypatch):
    monkeypatch.setattr(decisions, "MAX_COPIES", 10_000)
    rows = FixedDecisions(decision=np.zeros(1000, dtype=int), weight=np.tile([1.0, 3.0, 3.0, 3.0], 250))
    n_copies = np.bincount(rows.copies)  # 4 and 12 expected
    assert set(n_copies) == {4, 12}

    rows = FixedDecisions(decision=np.zeros(1000, dtype=int), weight=np.tile([1.0, 2.0], 500))
    n_copies = np.bincount(rows.copies).reshape(500, 2)
    assert [sorted(set(copies)) for copies in n_copies.T] == [[6, 7], [13, 14]]
    assert n_copies.mean(axis=0) == pytest.approx([20 / 3, 40 / 3], abs=0.06)
    assert rows.copies.tolist() == rows.copies.tolist()  # computed twice, with the same random numbers


def test_decision_ignores_differences_below_double_precision():
    logits = np.array([[1.0, 1.0, 0.5]], dtype=np.longdouble)
    logits[0, 1] += np.longdouble(1e-18)
    assert decide(logits).tolist() == [0]


def test_confidence_logit_of_each_label_by_hand():
    log_probabilities = np.log([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    original = log_probabilities.copy()
    computed = confidence_logit(log_probabilities, np.array([0, 1, 2]))
    np.testing.assert_allclose(computed, np.log([0.5 / 0.5, 0.3 / 0.7, 0.2 / 0.8]), atol=1e-15)
    np.testing.assert_array_equal(log_probabilities, original)


def test_confidence_logit_of_tiny_probabilities_is_finite():
    log_probabilities = np.array([[-1000.0, -1000.0, -1002.0], [-5.0, -np.inf, -800.0]])
    computed = confidence_logit(log_probabilities, np.array([2, 0]))
    # the odds are e^-1002 / (2 e^-1000) and e^-5 / e^-800
    np.testing.assert_allclose(computed, [-2 - np.log(2), 795])


@given(
    st.lists(st.text(), min_size=1).map(lambda names: np.array(names, dtype=object))
    | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1).map(lambda names: np.array(names, dtype=np.int64))
)
def test_groups_are_numbered_in_the_order_of_their_names(group):
    in_order = sorted(set(group.tolist()))
    np.testing.assert_array_equal(number_groups(group), [in_order.index(name) for name in group])
