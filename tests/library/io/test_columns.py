"""Columns are read at their limits: each value is accepted, or rejected with the first row, the value and a remedy."""

import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relmap.io.column_layout import Reading
from relmap.io.columns import (
    MAX_LISTED_NAMES,
    MAX_SUGGESTED_LABELS,
    MAX_UNNAMED_LABELS,
    UNKNOWN_N_LABELS,
    FileRows,
    _advise_unit,
    advise_names,
    advise_unjudged,
    are_whole_numbers,
    count_labels,
    find_grade_names,
    find_label_names,
    has_numeric_name,
    is_missing,
    is_missing_label,
    join_names,
    parse_label,
    read_labels,
    read_number_lists,
    read_numbers,
    read_probabilities,
)
from relmap.io.text import SeparatedText
from tests.texts import message_of

ROWS = FileRows("p.parquet")
LABEL_OPTION = "; fit .*--labels"


def no_advice() -> str:
    return ""


def read(values: list[object] | pl.Series, names: list[str] | None = None, n_labels: int = 3) -> list[int]:
    """Read a column of labels."""
    return read_labels(pl.Series("label", values), ROWS, names=names, n_labels=n_labels, advice=no_advice).tolist()


def test_the_first_invalid_row_is_reported_and_several_are_counted():
    one = message_of(ROWS.reject, np.array([False, False, True]), lambda row: f"value {row}")
    several = message_of(ROWS.reject, pl.Series([False, True, True, False]), lambda row: f"value {row}")
    many = message_of(ROWS.reject, np.arange(2500) >= 1200, lambda row: f"value {row}")
    assert re.fullmatch(r"p\.parquet, row 2 .*: value 2", one)
    assert re.fullmatch(r"p\.parquet, row 1 .*: value 1 \(2 of .*\b4 rows .*invalid\)", several)
    assert re.fullmatch(r"p\.parquet, row 1200 .*: value 1200 \(1,300 of .*\b2,500 rows .*invalid\)", many)
    ROWS.reject(np.array([], dtype=bool), str)
    ROWS.reject(np.array([False]), str)


def test_a_repeated_header_has_the_names_of_all_columns():
    columns = {"decision": ["no", " decision", "decision"], "label": ["yes", None, "label "]}
    ROWS.reject_repeated_header(pl.DataFrame(columns)[:2])
    assert re.match(r"p\.parquet, row 2 ", message_of(ROWS.reject_repeated_header, pl.DataFrame(columns)))


def test_rows_are_located_by_their_number_in_the_file(tmp_path):
    batch = FileRows("p.parquet", first=1000)
    remaining = batch.without(np.array([True, False, True, False]))
    (tmp_path / "p.csv").write_text("a,b\n1,2\n\n3,4\n")
    text = FileRows("p.csv", text=SeparatedText.from_path(tmp_path / "p.csv"))
    assert [batch.locate(0), batch.locate(7)] == ["row 1000 (from 0)", "row 1007 (from 0)"]
    assert [remaining.locate(0), remaining.locate(1)] == ["row 1001 (from 0)", "row 1003 (from 0)"]
    assert [text.locate(0), text.locate(1), text.locate(2)] == ["line 2", "line 4", "row 2 (from 0)"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (None, False),
        ([], False),
        (["no", "yes"], False),
        (["1a", "b2", "1.", ".5", "1,5", "+1"], False),
        (["no", "2"], True),
        (["-1", "no"], True),
        (["no", "10.25"], True),
    ],
)
def test_names_that_are_numbers_are_recognized(names, expected):
    assert has_numeric_name(names) is expected


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("0", None, 0),
        (" 7 ", None, 7),
        ("2.0", None, 2),
        ("2.00", None, 2),
        ("2.5", None, None),
        ("2.", None, None),
        ("-1", None, None),
        ("123456789", None, 123456789),
        ("1234567890", None, None),
        ("False", None, 0),
        (" TRUE ", None, 1),
        ("", None, None),
        ("yes", None, None),
        ("yes", ["no", "yes"], 1),
        (" YES ", ["no", "yes"], 1),
        ("true", ["no", "yes"], 1),
        ("1", ["no", "yes"], 1),
        ("maybe", ["no", "yes"], None),
        ("true", ["TRUE", "false"], 0),
        ("Yes", ["yes", "YES"], None),  # both names match without case
        ("YES", ["yes", "YES"], 1),
        ("1", ["1", "2"], 0),
        ("1.0", ["1", "2"], 0),
        ("1", ["2.0", "1.0"], 1),
        ("-1.00", ["-1", "+1"], 0),
        ("+1.0", ["-1", "+1"], 1),
        ("0", ["1", "2"], None),
        ("0", ["1", "none"], None),
        ("1.5", ["1", "1.5"], 1),
        ("1", ["true", "fake"], 0),  # so 0 is the other name, and not the first one again
        ("0", ["true", "fake"], 1),
        ("False", ["true", "fake"], 1),
        ("0", ["fake", "true"], 0),
        ("1", ["maybe", "no"], 0),
        ("true", ["maybe", "no"], 0),
        ("0", ["maybe", "no"], 1),
        ("False", ["true", "fake", "satire"], None),  # one of two names, and it is not known which
        ("1", ["true", "fake", "satire"], 1),
        ("true", ["Y", "N"], 0),
        ("0", ["t", "f"], 1),
        ("0", ["m", "f"], 0),  # f alone is not false
        ("yes", ["relevant", "no"], None),
    ],
)
def test_a_text_is_parsed_as_the_name_or_the_number_of_a_label(text, names, expected):
    assert parse_label(text, names) == expected


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt32, pl.Int64, pl.Float32, pl.Float64, pl.String])
def test_label_numbers_of_every_type_are_read(dtype):
    assert read(pl.Series("label", [2, 0, 1], dtype=pl.Int64).cast(dtype)) == [2, 0, 1]


def test_labels_of_other_types_are_read_by_name():
    categorical = pl.Series("label", ["yes", "no"], dtype=pl.Categorical)
    enum = pl.Series("label", ["yes", "no"], dtype=pl.Enum(["yes", "no"]))
    assert read([True, False]) == [1, 0]
    assert read(categorical, ["no", "yes"]) == [1, 0]
    assert read(enum, ["no", "yes"]) == [1, 0]
    assert read([2, 1], ["1", "2"]) == [1, 0]  # where a name is a number, numbers are names
    assert read([1, 0], ["no", "yes"]) == [1, 0]
    assert read([5.0, 7.0], ["5", "7"]) == [0, 1]


@pytest.mark.parametrize(
    ("values", "names", "n_labels", "expected"),
    [
        ([0, None, 1], None, 3, "row 1 .*: label is missing; .*"),
        ([0.0, float("nan")], None, 3, "row 1 .*: label is missing; .*"),
        ([0, 3], None, 3, rf"row 1 .*: label is 3,.* 0\.\.2{LABEL_OPTION}"),
        ([-1, 0], None, 3, rf"row 0 .*: label is -1,.* 0\.\.2{re.escape(advise_unjudged('-1'))}"),
        ([0.5, 0.0], None, 3, rf"row 0 .*: label is 0\.5,.* 0\.\.2{LABEL_OPTION}"),
        ([0.0, float("inf")], None, 3, rf"row 1 .*: label is inf,.* 0\.\.2{LABEL_OPTION}"),
        (
            [0, -2],
            None,
            UNKNOWN_N_LABELS,
            rf"row 1 .*: label is -2,.* 0, 1, 2, \.\.\.{re.escape(advise_unjudged('-2'))}",
        ),
        (["0", "no"], None, 3, f"row 1 .*: label is 'no'{LABEL_OPTION}"),
        (["yes", "maybe"], ["no", "yes"], 2, r"row 1 .*: label.*'maybe';.*\bno, yes"),
        ([1, 0], ["1", "2"], 2, r"row 1 .*: label.*'0';.*\b1, 2"),
    ],
)
def test_unknown_labels_are_named_with_row_and_remedy(values, names, n_labels, expected):
    assert re.fullmatch(rf"p\.parquet, {expected}", message_of(read, values, names, n_labels))


def test_labels_at_the_limits_of_their_numbers_are_read():
    assert read([0, 2], n_labels=3) == [0, 2]
    assert read([0, 2**31 - 1], n_labels=UNKNOWN_N_LABELS) == [0, 2**31 - 1]


def test_given_advice_replaces_the_default():
    column = pl.Series("label", ["a"])
    numbers = pl.Series("label", [5])
    options = {"names": None, "n_labels": 2, "advice": lambda: "; rename it"}
    message = message_of(read_labels, column, ROWS, **options)
    assert re.fullmatch(r"p\.parquet, row 0 .*: label is 'a'; rename it", message)
    assert re.search(r": label is 5, .*\b0\.\.1; rename it$", message_of(read_labels, numbers, ROWS, **options))


def test_a_column_of_lists_is_rejected_as_labels():
    message = message_of(read, pl.Series("label", [[1], [0]]))
    assert re.fullmatch(r"p\.parquet: .*\blabel is List\(Int64\); .*\b0\.\.K-1 .*\[1\]; .*each cell, .*", message)


def test_names_of_labels_are_found_once_in_a_known_order():
    frame = pl.DataFrame(
        {
            "a": ["Yes ", "no", "NO", None],
            "b": ["maybe", "yes", "no", "no"],
            "c": [10.0, 9.0, -1.0, 9.0],
            "d": [[1]] * 4,
        }
    )
    assert find_label_names(frame, ["a", None, "b", "d"]) == ["maybe", "no", "yes"]
    assert find_label_names(frame, ["c"]) == ["-1", "9", "10"]
    assert find_label_names(frame, [None, "d"]) == []


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ([2, 0, 1, 0], "0 1 2"),
        ([0, 1, 2, 99], "0 1 2"),
        ([-2, -1, 0, 1], "0 1"),
        ([10, 9, 8], "8 9 10"),
        ([1, 2, 9], "1 2"),
        (["3", None, "10", "NA", "2"], "2 3 10"),
    ],
)
def test_grades_are_whole_numbers_in_their_order_without_codes_for_a_missing_label(grades, expected):
    assert find_grade_names(pl.Series("grade", grades), ROWS) == tuple(expected.split())


def test_grades_that_are_words_need_an_order():
    message = message_of(find_grade_names, pl.Series("grade", ["low", "high"]), ROWS)
    assert re.search(r"p\.parquet: grade .*high, low; .*--labels ", message)


def test_whole_numbers_have_at_most_nine_digits():
    assert are_whole_numbers(["-1", "0", "123456789"])
    assert not are_whole_numbers(["0", "1234567890"])
    assert not are_whole_numbers(["0", "1.0"])
    assert not are_whole_numbers(["0", "--1"])


@pytest.mark.parametrize(
    ("labels", "n_labels", "by_position", "expected"),
    [
        (["a", "b"], 2, [], r"; .*\bfit: --labels a,b \(.*signals .*\)"),
        (["b", "a"], 2, ["p_0", "p_1"], r"; .*--labels.* p_0, p_1;.* a, b"),
        (["b", "a"], 2, ["p"], r"; .*--labels.*numbers in p;.* a, b"),
        (["a", "b"], 3, [], ""),
        (["a", 'b"'], 2, [], ""),
        (["a", "b,c"], 2, [], ""),
        ([2, 3], 2, [], r"; .*\bfit, .*order: --labels 2,3"),
        ([1, 3], 3, [], r"; .*\bfit, .*order: --labels 1,2,3"),
        ([2, 3], 3, [], ""),
        ([1, 4], 3, [], ""),
        ([1, 2], UNKNOWN_N_LABELS, [], r"; .*\bfit, .*order: --labels 1,2"),
        ([1], UNKNOWN_N_LABELS, [], ""),
        (["a"], UNKNOWN_N_LABELS, [], ""),
    ],
)
def test_names_are_advised_where_their_order_is_known_or_irrelevant(labels, n_labels, by_position, expected):
    advice = advise_names(pl.DataFrame({"label": labels}), None, "label", n_labels, by_position)
    assert re.fullmatch(expected, advice)


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["Yes", "no"], ["no,Yes"]),
        (["LABEL_1", "LABEL_0"], ["LABEL_0,LABEL_1"]),
        (["relevant", "other"], ["other,relevant", "relevant,other"]),  # the order is not known
    ],
)
def test_words_for_labels_0_and_1_are_suggested_in_their_order_if_it_is_known(words, suggested):
    frame = pl.DataFrame({"decision": words, "label": [0, 1]})
    assert re.findall(r"--labels ([^ ;]+)", advise_names(frame, "decision", "label", 2)) == suggested


def test_names_are_advised_up_to_the_maximum_number_of_suggested_labels():
    names = [f"n{number:03}" for number in range(MAX_SUGGESTED_LABELS + 1)]
    all_but_one = pl.DataFrame({"label": names[:-1]})
    assert f"--labels {','.join(names[:-1])} (" in advise_names(all_but_one, None, "label", UNKNOWN_N_LABELS)
    assert advise_names(pl.DataFrame({"label": names}), None, "label", UNKNOWN_N_LABELS) == ""


def test_values_without_a_label_are_recognized():
    assert is_missing(pl.Series([1.0, None, float("nan")])).to_list() == [False, True, True]
    assert is_missing(pl.Series(["", None])).to_list() == [False, True]
    assert is_missing_label(pl.Series(["a", "", " \t", None])).to_list() == [False, True, True, True]
    assert is_missing_label(pl.Series([0.0, None, float("nan")])).to_list() == [False, True, True]
    assert is_missing_label(pl.Series([0, None])).to_list() == [False, True]


def test_labels_of_whole_numbers_are_counted():
    frame = pl.DataFrame({"decision": [0, 0, 1], "label": [0, 4, 2], "zero": [0, 0, 0]})
    assert count_labels(frame, "decision", "label", ROWS) == 5
    assert count_labels(frame, "decision", "decision", ROWS) == 2
    assert count_labels(frame, "zero", "zero", ROWS) == 2
    assert count_labels(frame.clear(), "zero", "zero", ROWS) == 2


def test_labels_that_are_too_large_need_names():
    frame = pl.DataFrame({"label": [0, MAX_UNNAMED_LABELS - 1], "other": [0, MAX_UNNAMED_LABELS]})
    assert count_labels(frame, "label", "label", ROWS) == MAX_UNNAMED_LABELS == 1000
    too_large = message_of(count_labels, frame, "label", "other", ROWS)
    assert re.fullmatch(r"p\.parquet: .*\blabel is 1000; .*\b0\.\.K-1, .*--labels .*", too_large)
    words = pl.DataFrame({"label": ["no", "yes"]})
    named = message_of(count_labels, words, "label", "label", ROWS)
    assert re.fullmatch(
        r"p\.parquet, row 0 .*: label is 'no'; .*\bfit: --labels no,yes \(.*\) \(2 of .*\b2 rows .*\)", named
    )


def test_at_most_ten_names_are_listed():
    names = [f"n{number}" for number in range(MAX_LISTED_NAMES + 2)]
    assert join_names([]) == ""
    assert join_names(names[:2]) == "n0, n1"
    assert join_names(names[:10]) == ", ".join(names[:10])
    assert join_names(names[:11]) == ", ".join(names[:10]) + " and 1 more"
    assert join_names(names) == ", ".join(names[:10]) + " and 2 more"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], [1.0, 2.0]),
        ([1.5, -2.0], [1.5, -2.0]),
        ([" 1.5", "-2e3 "], [1.5, -2000.0]),
        (pl.Series(["1.25", "3"]).cast(pl.Decimal(10, 2)), [1.25, 3.0]),
        (["inf"], [np.inf]),
    ],
)
def test_numbers_of_every_type_are_read(values, expected):
    numbers = read_numbers(pl.Series("x", values), ROWS)
    assert numbers.tolist() == expected
    assert numbers.dtype == np.float64


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, None], ", row 1 .*: x is missing; [^!]*"),
        ([1.0, float("nan")], ", row 1 .*: x is missing; [^!]*"),
        (["1", "nan"], ", row 1 .*: x is 'nan', .*missing .*; [^!]*"),
        (["1", "2x"], ", row 1 .*: x is '2x', .*number!"),
        (["1,2,5", "2"], ", row 0 .*: x is '1,2,5', .*number!"),
        (["1,234"], ", row 0 .*: x is '1,234', .*thousands .*; .*decimal [^!]*"),
        ([True], r": .*\bx is Boolean; .*numbers"),
        ([[1]], r": .*\bx is List\(Int64\); .*numbers"),
    ],
)
def test_values_that_are_not_numbers_are_rejected(values, expected):
    assert re.fullmatch(rf"p\.parquet{expected}", message_of(read_numbers, pl.Series("x", values), ROWS, "!"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1,5", "-,25", "+2,125", "3"], [1.5, -0.25, 2.125, 3]),
        (["1,500", "0,5"], [1.5, 0.5]),  # the second value shows that commas are decimal
        (["1,5e3", "2"], [1500, 2]),
        (["0,123"], [0.123]),
        (["1000,123"], [1000.123]),
    ],
)
def test_decimal_commas_are_read_where_columns_are_not_separated_by_commas(values, expected, tmp_path):
    rows = FileRows("p.csv", text=SeparatedText(tmp_path / "p.csv", separator=";"))
    assert read_numbers(pl.Series("x", values), rows).tolist() == expected


@pytest.mark.parametrize("values", [["7", "1,500"], ["12,345", "3"], ["-123,456"], ["+1,000", "2,000"]])
def test_commas_that_may_separate_thousands_are_rejected(values, tmp_path):
    (tmp_path / "p.csv").write_text("x\n" + "\n".join(values) + "\n")
    rows = FileRows("p.csv", text=SeparatedText(tmp_path / "p.csv", separator=";"))
    row = next(row for row, value in enumerate(values) if "," in value)
    message = message_of(read_numbers, pl.Series("x", values), rows)
    value = re.escape(repr(values[row]))
    assert re.match(rf"p\.csv, line {row + 2}: x is {value}, .*thousands .*; .*decimal ", message)


def test_probabilities_are_read_as_numbers_percent_or_words():
    words = Reading(confidence_words="low=.25,very sure=1")
    assert read_probabilities(pl.Series("p", [0.0, 0.5, 1.0]), ROWS, Reading()).tolist() == [0, 0.5, 1]
    assert read_probabilities(pl.Series("p", [0, 50, 100]), ROWS, Reading(percent=True)).tolist() == [0, 0.5, 1]
    assert read_probabilities(pl.Series("p", ["50%", "0.25", "75 %"]), ROWS, Reading()).tolist() == [0.5, 0.25, 0.75]
    mixed = pl.Series("p", ["Low ", "very sure", "30%", "0.3"])
    assert read_probabilities(mixed, ROWS, words).tolist() == [0.25, 1, 0.3, 0.3]
    mixed = pl.Series("p", ["low", "30", "30%"])
    in_percent = Reading(confidence_words="low=.25", percent=True)
    assert read_probabilities(mixed, ROWS, in_percent).tolist() == [0.25, 0.3, 0.3]


@pytest.mark.parametrize(
    ("values", "reading", "expected"),
    [
        ([-0.1, 0.5], {}, r"p is -0\.1; [^;]*\[0, 1\]"),
        ([-0.1], {}, r"p is -0\.1; [^;]*\[0, 1\]; .*log-probabilities, .*: exp\(p\)"),
        ([100.5], {"percent": True}, r"p is 1\.005; [^;]*\[0, 1\]"),
        ([101.0], {}, r"p is 101; [^;]*\[0, 1\]"),
        ([100.0], {}, r"p is 100; [^;]*\[0, 1\]; [^;]*--percent"),
        ([10.5], {}, r"p is 10\.5; [^;]*\[0, 1\]; [^;]*--percent"),
        ([1.5], {}, r"p is 1\.5; [^;]*\[0, 1\]; [^;]*--percent; .* 0 to 10,.* 10"),
        (["150%"], {}, r"p is 1\.5; [^;]*\[0, 1\]"),
        ([None], {}, r"p is missing; [^;]*"),
        (["", None], {}, r"p is missing; [^;]*"),
        (
            ["sure", "0.5", "unsure"],
            {},
            r"p is 'sure',.*number;.*\[0, 1\]:.*--confidence-words 'sure=\?,unsure=\?' \(2 .* 3 .*\)",
        ),
        (["low", "0/5"], {"confidence_words": "low=0"}, r"p is '0/5', [^;]*number"),
        (
            ["low", "high"],
            {"confidence_words": "low=0"},
            r"p is 'high',.*number;.*\[0, 1\]:.*--confidence-words 'low=0,high=\?'",
        ),
    ],
)
def test_invalid_probabilities_are_named_with_a_remedy(values, reading, expected):
    message = message_of(read_probabilities, pl.Series("p", values), ROWS, Reading(**reading))
    assert re.fullmatch(expected, message.partition(": ")[2])


def test_a_probability_of_one_percent_is_accepted():
    read_probabilities(pl.Series("p", [1.0]), ROWS, Reading(percent=True))


def test_at_most_ten_words_are_listed():
    words = [f"w{chr(97 + number)}" for number in range(12)]
    message = message_of(read_probabilities, pl.Series("p", words), ROWS, Reading())
    assert f"--confidence-words '{','.join(f'{word}=?' for word in words[:10])}'" in message


LISTS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("x", LISTS),
        pl.Series("x", LISTS, dtype=pl.Array(pl.Float64, 3)),
        pl.Series("x", LISTS).cast(pl.List(pl.Int16)),
        pl.Series("x", ["[1, 2, 3]", " [4.0,5e0,  6]"]),
        pl.Series("x", ["[1 2\n 3]", "[4.  5. 6. ]"]),
    ],
    ids=["lists", "arrays", "whole numbers", "lists as text", "arrays as text"],
)
def test_lists_of_numbers_are_read(column):
    numbers = read_number_lists(column, ROWS)
    assert numbers.tolist() == LISTS
    assert numbers.dtype == np.float64


def test_an_empty_column_of_lists_has_two_numbers_in_each_row():
    assert read_number_lists(pl.Series("x", [], dtype=pl.List(pl.Float64)), ROWS).shape == (0, 2)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1, 2], None], ", row 1 .*: x is missing; .*"),
        (["[1, 2]", None], ", row 1 .*: x is missing; .*"),
        ([[1, 2], [1, 2], [1, None]], ", row 2 .*: x has .*missing number; .*"),
        ([[1, 2], [1, 2, 3]], ", row 1 .*: x has 3 .*row 0 .* 2; .*two"),
        ([[1], [2]], r", row 0 .*: x has 1 .*row 0 .* 1; .*two \(2 .* 2 .*\)"),
        (pl.Series([[]], dtype=pl.List(pl.Float64)), ", row 0 .*: x has 0 .*row 0 .* 0; .*two"),
        (["[1, 2]", "1, 2"], r", row 1 .*: x is '1, 2', .*\[0\.1, 0\.9\]"),
        (["[a]"], r", row 0 .*: x is '\[a\]', .*\[0\.1, 0\.9\]"),
        # long values are truncated
        (["x" * 99], rf", row 0 .*: x is '{'x' * 59}, .*\[0\.1, 0\.9\]"),
        ([0.5], r": .*\bx is Float64;.*lists.*\bx_0, x_1, \.\.\."),
        ([["a", "b"]], r", row 0 .*: x is \['a', 'b'\],.*numbers"),
    ],
)
def test_values_that_are_not_lists_of_equal_length_are_rejected(values, expected):
    assert re.fullmatch(rf"p\.parquet{expected}", message_of(read_number_lists, pl.Series("x", values), ROWS))


@given(st.lists(st.sampled_from(["true", "false", "yes", "no", "t", "f", "fake", "maybe"]), min_size=2, unique=True))
def test_false_and_true_are_never_the_same_label(names):
    for pair in (("0", "1"), ("false", "true")):
        labels = [parse_label(text, names) for text in pair]
        assert None in labels or labels[0] != labels[1]


def test_percentages_that_include_zero_are_recognized():
    assert "percent" in _advise_unit("p", np.array([0.0, 50.0, 100.0]))
    assert _advise_unit("p", np.array([-1.0, 50.0])) == ""
