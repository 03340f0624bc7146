"""Signals by hand: standardized numbers, indicators of texts, and the rank and the gap of a row in its group."""

import re

import numpy as np
import polars as pl
import pytest

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io.columns import FileRows
from relmap.io.signals import MAX_TEXT_VALUES, NumberSignal, TextSignal, group_signals, read_signals, relevance

ROWS = FileRows("p.parquet")


def make_decisions(n: int, group: list[str] | None = None, **parts: object) -> FixedDecisions:
    groups = None if group is None else np.array(group)
    return FixedDecisions(decision=np.arange(n) % 2, group=groups, **parts)


def learn(name: str, values: list[object] | pl.Series, **options: object):
    """Learn the signal of one column, and return it with its values."""
    frame = pl.DataFrame({name: values})
    signals, rows = read_signals([name], frame, make_decisions(len(frame)), 2, ROWS, **options)
    return signals[0], rows.signals.tolist()


def message_of(*arguments: object, **options: object) -> str:
    with pytest.raises(InputError) as error:
        learn(*arguments, **options)
    return str(error.value)


def test_numbers_are_standardized_and_clipped_to_the_range_of_the_fit():
    signal, values = learn("length", [1, 2, 6, 7])
    deviation = np.sqrt((9 + 4 + 4 + 9) / 4)
    assert signal == NumberSignal(name="length", mean=4.0, deviation=deviation, lowest=1.0, highest=7.0)
    np.testing.assert_allclose(values, np.array([[-3], [-2], [2], [3]]) / deviation)
    clipped = signal(pl.Series("length", [-5.0, 5.0, 100.0]), ROWS)
    np.testing.assert_allclose(clipped, np.array([[-3], [1], [3]]) / deviation)


def test_numbers_as_text_are_one_signal():
    signal, _ = learn("length", ["1", " 2", "6 ", "7"])
    assert (signal.kind, signal.mean) == ("number", 4.0)


def test_texts_have_an_indicator_for_each_value_in_order():
    signal, values = learn("source", ["web", "ads", "web", "5"])
    assert signal == TextSignal(name="source", values=("5", "ads", "web"))
    assert values == [[0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert signal(pl.Series("source", ["ads", "new", "WEB"]), ROWS).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("values", [[True, False, True], ["TRUE", "False", "true"]])
def test_booleans_are_compared_in_lower_case(values):
    signal, indicators = learn("is_new", values)
    assert signal.values == ("false", "true")
    assert indicators == [[0, 1], [1, 0], [0, 1]]


def test_signals_are_learned_on_given_rows_and_computed_for_all():
    positions = np.array([0, 2])
    number, values = learn("x", [1.0, 9.0, 3.0, 2.0], learn_on=positions)
    text, indicators = learn("x", ["a", "c", "b", "a"], learn_on=positions)
    assert (number.mean, number.deviation, number.lowest, number.highest) == (2, 1, 1, 3)
    assert values == [[-1], [1], [1], [0]]
    assert text.values == ("a", "b")
    assert indicators == [[1, 0], [0, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    "values",
    [[3.0] * 4, ["a"] * 4, [True] * 4, [1e8, 1e8 + 0.01] * 2, [0.0, 1e-19] * 2],
    ids=["number", "text", "boolean", "rounding error", "rounding error of zero"],
)
def test_constant_columns_are_rejected_as_signals(values):
    expected = r"p\.parquet: .*signal x .*same .*; .*"
    assert re.fullmatch(expected, message_of("x", values))
    assert re.fullmatch(expected, message_of("x", [*values, values[-1]], learn_on=np.array([0, 1, 2, 3])))


@pytest.mark.parametrize("values", [[1e8, 1e8 + 1], [0.0, 1e8, 1e8 + 0.01], [0.0, 1e-17]])
def test_small_differences_above_rounding_errors_are_signals(values):
    signal, _ = learn("x", values)
    assert signal.deviation == pytest.approx(np.std(values))


def test_numbers_are_limited_to_a_range():
    signal, _ = learn("x", [1e9, -1e9])
    assert (signal.lowest, signal.highest) == (-1e9, 1e9)
    expected = r"p\.parquet: .*signal x .*±1e\+09 .*; scale .*"
    assert re.fullmatch(expected, message_of("x", [0.0, 1.1e9]))
    assert re.fullmatch(expected, message_of("x", [0.0, -np.inf]))


def test_columns_with_many_texts_are_rejected_as_signals():
    texts = [f"t{number:02}" for number in range(MAX_TEXT_VALUES + 1)]
    signal, _ = learn("id", texts[:-1])
    assert len(signal.values) == MAX_TEXT_VALUES == 50
    listed = rf"\({', '.join(texts[:10])} .*\b41 .*\)"
    assert re.fullmatch(rf"p\.parquet: .*signal id .*\b51 .*{listed}, .*\b50; .*", message_of("id", texts))


@pytest.mark.parametrize("values", [["a", None], [1.0, None], [1.0, float("nan")]])
def test_missing_values_of_signals_are_rejected(values):
    assert re.fullmatch(r"p\.parquet, row 1 .*: x is missing; .*", message_of("x", values))
    second = 2.0 if isinstance(values[0], float) else "b"
    message = message_of("x", [second, *values], learn_on=np.array([0, 1]))
    assert re.fullmatch(r"p\.parquet, row 2 .*: x is missing; .*", message)


@pytest.mark.parametrize("name", ["label", "reliability", "review_rank", "route", "group_rank", "group_gap"])
def test_reserved_names_are_rejected_as_signals(name):
    frame = pl.DataFrame({name: [1, 2]})
    with pytest.raises(InputError, match=rf"^p\.parquet: .* {name} .*reserved;.*rename"):
        read_signals([name], frame, make_decisions(2, ["a", "a"]), 2, ROWS)


def test_missing_columns_and_groups_are_named():
    frame = pl.DataFrame({"a": [1], "b": [2]})
    with pytest.raises(InputError, match=r"^p\.parquet.*column x,.*\bsignals\b.*\ba, b$"):
        read_signals(["x"], frame, make_decisions(1), 2, ROWS)
    for name in ("group_rank", "group_gap"):
        with pytest.raises(InputError, match=r"^group_rank .*group_gap .*groups; .*"):
            read_signals([name], frame, make_decisions(1), 2, ROWS)


def test_rank_and_gap_of_a_row_in_its_group():
    computed = group_signals(np.array(["a", "b", "a", "a", "a", "b"]), np.array([0.5, 2.0, 1.5, 0.5, 0.0, 2.5]))
    assert computed["group_rank"].tolist() == [2.5, 2, 1, 2.5, 4, 1]
    assert computed["group_gap"].tolist() == [1.0, 0.5, 0.0, 1.0, 1.5, 0.0]


def test_relevance_is_the_mean_label_or_the_probability_of_the_second():
    logits = np.log([[0.2, 0.3, 0.5], [0.6, 0.4, 1e-300]])
    confidence = np.array([0.9, 0.7])
    np.testing.assert_allclose(relevance(make_decisions(2, logits=logits), 3), [1.3, 0.4])
    np.testing.assert_allclose(relevance(make_decisions(2, confidence=confidence), 2), [0.1, 0.7])
    assert relevance(make_decisions(2, confidence=confidence), 3).tolist() == [0, 1]
    assert relevance(make_decisions(2), 2).tolist() == [0, 1]


def test_several_signals_keep_their_order_and_groups_are_computed_once():
    frame = pl.DataFrame({"x": [1.0, 3.0, 1.0, 3.0], "t": ["a", "b", "b", "a"]})
    rows = make_decisions(4, ["q", "q", "r", "r"], confidence=np.array([0.9, 0.6, 0.7, 0.8]))
    signals, read = read_signals(["t", "group_gap", "x"], frame, rows, 2, ROWS)
    assert [signal.name for signal in signals] == ["t", "group_gap", "x"]
    gap = np.array([0.5, 0.0, 0.5, 0.0])
    expected = np.column_stack([[1, 0, 0, 1], [0, 1, 1, 0], (gap - 0.25) / 0.25, [-1, 1, -1, 1]])
    np.testing.assert_allclose(read.signals, expected)

    computed = {"group_rank": np.ones(4), "group_gap": np.array([0.25, 0.5, 0.0, 0.25])}
    _, applied = read_signals(signals, frame, rows, 2, ROWS, computed=computed)
    np.testing.assert_allclose(applied.signals[:, 2], [0, 1, -1, 0])
    np.testing.assert_array_equal(applied.signals[:, [0, 1, 3]], read.signals[:, [0, 1, 3]])


def test_without_signals_rows_are_unchanged():
    rows = make_decisions(2)
    assert read_signals([], pl.DataFrame({"x": [1, 2]}), rows, 2, ROWS) == ((), rows)
