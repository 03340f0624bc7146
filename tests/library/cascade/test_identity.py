"""Columns that identify a row, and texts that are equal wherever the values are."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from relmap.cascade.identity import canonical_texts, describe_identity, find_identity_columns, identify_rows
from relmap.errors import InputError, naming
from relmap.io.column_layout import Reading
from relmap.io.frames import FramePredictions

MODELS = {"small": Reading(decision="small", confidence="sure", label="truth"), "large": Reading(decision="large")}


def rows_of(**columns: object) -> FramePredictions:
    return FramePredictions.from_frame(pl.DataFrame(columns))


def rows_with(*names: str) -> FramePredictions:
    """Return a row with these columns and those that the models read."""
    read = ("small", "sure", "large", "truth", "label")
    return rows_of(**{name: [1] for name in (*names, *read)})


# Columns


def test_without_ids_all_columns_that_are_no_predictions_identify_a_row():
    assert find_identity_columns(rows_with("query", "passage"), MODELS, None) == ("passage", "query")


def test_columns_that_an_earlier_call_added_identify_no_row():
    added = ("cascade_decision", "cascade_reliability", "cascade_route")
    assert find_identity_columns(rows_with("query", *added), MODELS, None) == ("query",)


def test_a_column_id_alone_identifies_a_row():
    assert find_identity_columns(rows_with("query", "id"), MODELS, None) == ("id",)


@pytest.mark.parametrize("named", [("passage",), ("query", "passage"), ("small",), ()])
def test_named_columns_identify_a_row(named):
    assert find_identity_columns(rows_with("query", "passage", "id"), MODELS, list(named)) == named


def test_predictions_alone_identify_no_row():
    assert find_identity_columns(rows_with(), MODELS, None) == ()


def test_the_labels_that_all_models_read_identify_no_row():
    rows = rows_of(query=[1], label=[1], truth=[1], small=[1])
    assert find_identity_columns(rows, {"small": Reading(decision="small")}, None) == ("query", "truth")


def test_columns_of_ids_must_exist():
    with naming("python"), pytest.raises(InputError, match=r"^X has no column page, which id names.*passage"):
        find_identity_columns(rows_with("passage"), MODELS, ["passage", "page"])


# Descriptions


def test_rows_without_columns_must_keep_their_order():
    assert "same order" in describe_identity(())


@pytest.mark.parametrize("columns", [("query",), ("id", "query"), ("query", "passage"), ("id",)])
def test_identifying_columns_are_named(columns):
    with naming("python"):
        sentence = describe_identity(columns)
    assert sentence.startswith(f"Rows are identified by {', '.join(columns)}: ")
    assert ("(id='COLUMN,COLUMN' names others)" in sentence) == (columns != ("id",))
    assert "same order" not in sentence


# Rows


def test_a_row_is_identified_by_the_texts_of_its_columns():
    rows = rows_of(a=[7.0, None], b=["x", " y "], c=[1, 2])
    assert identify_rows(rows, ("a",)) == ["7", ""]
    assert identify_rows(rows, ("b", "a")) == [("x", "7"), ("y", "")]
    assert identify_rows(rows, ("a", "b", "c")) == [("7", "x", "1"), ("", "y", "2")]
    assert list(identify_rows(rows, ())) == [0, 1]


@pytest.mark.parametrize(
    ("columns", "missing", "advised"),
    [
        (("page", "query"), "page", "'query'"),
        (("query", "page", "passage"), "page", "'query,passage'"),
        (("page",), "page", "'COLUMN'"),
        (("page", "site"), "page, site", "'COLUMN'"),
    ],
)
def test_rows_without_an_identifying_column_are_refused(columns, missing, advised):
    rows = FramePredictions(pl.DataFrame({"query": [1], "passage": [2]}), sha256="", path=Path("rows.csv"))
    with naming("python"), pytest.raises(InputError) as refusal:
        identify_rows(rows, columns)
    message = str(refusal.value)
    assert message.startswith(f"rows.csv has no column {missing}, and the cascade identifies rows by ")
    assert message.endswith(f" id={advised}")
    assert f" by {', '.join(columns)};" in message


# Texts


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7, None, -7], ["7", "", "-7"]),
        ([7.0, 0.5, -0.0, None], ["7", "0.5", "0", ""]),
        ([1e20, float("nan")], ["100000000000000000000", ""]),
        ([Decimal("7.50"), Decimal("0.00"), None], ["7.5", "0", ""]),
        ([True, False, None], ["true", "false", ""]),
        ([date(2020, 1, 2), None], ["2020-01-02", ""]),
        ([datetime(2020, 1, 2), datetime(2020, 1, 2, 3, 4, 5)], ["2020-01-02", "2020-01-02 03:04:05"]),
        ([datetime(2020, 1, 2, 0, 0, 0, 500_000)], ["2020-01-02 00:00:00.5"]),
        ([["a", "b"]], ["['a', 'b']"]),
        ([{"a": 1}], ["{'a': 1}"]),
        ([b"ab"], ["b'ab'"]),
        ([timedelta(seconds=90)], ["0:01:30"]),
    ],
)
def test_values_of_each_type_have_a_text(values, expected):
    assert canonical_texts(pl.Series("key", values)).to_list() == expected


def test_python_objects_have_a_text():
    assert canonical_texts(pl.Series("key", [Path("a"), Path("b")], dtype=pl.Object)).to_list() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # numbers
        *(("7", "7"), (" 7.0", "7"), ("+07", "7"), ("-7.", "-7"), (".5", "0.5"), ("0.50", "0.5"), ("100", "100")),
        *(("0", "0"), ("-0", "0"), ("0.00", "0"), ("0e5", "0"), ("00", "0")),
        *(("1e3", "1000"), ("1.50e1", "15"), ("1e-2", "0.01"), ("120e-1", "12"), ("10e1", "100")),
        ("12345678901234567891", "12345678901234567891"),
        ("0" * 39 + "7", "7"),
        # numbers that would be long as digits
        ("1e40", "1" + "0" * 40),
        ("1e41", "1E+41"),
        ("10e40", "1E+41"),
        ("1e-40", "0." + "0" * 39 + "1"),
        ("1e-41", "1E-41"),
        # texts that are too long, or out of range, for a number
        ("0" * 40 + "7", "0" * 40 + "7"),
        ("1" * 60, "1" * 60),
        ("1e9999999999999999999", "1e9999999999999999999"),
        # words
        *(
            ("True", "true"),
            ("FALSE", "false"),
            ("a B", "a B"),
            ("", ""),
            (" a ", "a"),
            ("7a", "7a"),
            ("1.2.3", "1.2.3"),
        ),
        # dates
        ("2020-01-02", "2020-01-02"),
        ("2020-01-02T00:00:00.000000", "2020-01-02"),
        ("2020-01-02T00:00:00", "2020-01-02"),
        ("2020-01-02T03:04:05.000", "2020-01-02 03:04:05"),
        ("2020-01-02 03:04:05.120", "2020-01-02 03:04:05.12"),
        ("2020-01-02T03:04:50", "2020-01-02 03:04:50"),
        ("2020-01-02T03:04", "2020-01-02T03:04"),
    ],
)
def test_a_text_has_one_spelling(text, expected):
    assert canonical_texts(pl.Series("key", [text])).to_list() == [expected]
    assert canonical_texts(pl.Series("key", [expected])).to_list() == [expected]


@pytest.mark.parametrize("exponent", [999_999_999_999_999_999, 10**19])
def test_a_number_of_any_size_has_a_text(exponent):
    for sign in ("", "-"):
        assert len(canonical_texts(pl.Series("key", [f"1e{sign}{exponent}"]))[0]) < 40
