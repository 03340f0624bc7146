"""Predictions in memory: arrays and frames of several libraries."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from relmap.io import frames
from relmap.io.files import format_suffix, number_batches
from relmap.io.frames import (
    FramePredictions,
    add_column,
    append_columns,
    arrow_to_polars,
    cast_for_arrow,
    get_column,
    is_frame,
    is_readable,
    read_array,
    read_whole,
    to_native_column,
    to_polars,
    to_structured_array,
    unify_missing,
)
from tests.texts import message_of


@pytest.mark.parametrize(
    ("data", "kind", "expected_kind", "expected"),
    [
        ([[0.25, 0.75]], "auto", "probabilities", [[0.25, 0.75]]),
        ([[0.25, 0.75]], None, "probabilities", [[0.25, 0.75]]),
        ([[0.25, 0.75]], "logits", "logits", [[0.25, 0.75]]),
        ([[0.25, 1.75]], "auto", "logits", [[0.25, 1.75]]),
        ([[0.25, -0.75]], None, "logits", [[0.25, -0.75]]),
        ([[2.0, 3.0]], "probabilities", "probabilities", [[2.0, 3.0]]),  # rejected when the rows are read
        ([[-9e-7, 1 + 9e-7]], "auto", "probabilities", [[-9e-7, 1 + 9e-7]]),
        ([[-2e-6, 1.0]], "auto", "logits", [[-2e-6, 1.0]]),
        ([[0.0, 1 + 2e-6]], "auto", "logits", [[0.0, 1 + 2e-6]]),
        ([0.25, 1.0], "auto", "probabilities", [[0.75, 0.25], [0.0, 1.0]]),
        ([0.25, 1.0], "logits", "logits", [[0.0, 0.25], [0.0, 1.0]]),
        ([0.25, -1.0], None, "logits", [[0.0, 0.25], [0.0, -1.0]]),
        ([0.25, 1.0], "probabilities", "probabilities", [[0.75, 0.25], [0.0, 1.0]]),
        ([[0.5, 0.51]], "auto", "probabilities", [[0.5, 0.51]]),
        ([[0.0875] * 12], "auto", "probabilities", [[0.0875] * 12]),
        ([[True, False]], "auto", "probabilities", [[1.0, 0.0]]),
    ],
)
def test_arrays_are_probabilities_or_logits(data, kind, expected_kind, expected):
    read = read_array(data, kind)
    assert read.kind == expected_kind
    assert read.numbers.tolist() == expected
    assert to_polars(data, kind).equals(pl.DataFrame({expected_kind: np.array(expected)}))


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        (
            [[0.5, 0.5], [0.5, 0.511]],
            "auto",
            r"X, row 1 .*\[0, 1\],.*sum to 1;.*arrays='logits'.*arrays='probabilities'",
        ),
        (
            [[0.088] * 12],
            None,
            r"X, row 0 .*\[0, 1\],.*sum to 1;.*arrays='logits'.*arrays='probabilities'",
        ),
        (
            [0.5, 1.0],
            None,
            r"X .*\[0, 1\],.*\bmap\b.*;.*arrays='logits'.*arrays='probabilities'.*`load`,.*`fit`",
        ),
        (["a"], "auto", "X .*type list; .*array .*frame"),
        (object(), "auto", "X .*type object; .*array .*frame"),
        # such as a dataset of Hugging Face
        (SimpleNamespace(to_polars=None), "auto", r"X .*type SimpleNamespace; .* X\.to_polars\(\)"),
        *(
            (
                np.zeros(shape),
                "auto",
                rf"X .*shape {re.escape(str(shape))};.*\(rows, labels\),.*\(rows,\).*two .*",
            )
            for shape in [(), (0,), (0, 2), (3, 1), (2, 2, 2)]
        ),
    ],
)
def test_other_arrays_are_rejected(data, kind, expected):
    assert re.fullmatch(expected, message_of(read_array, data, kind))


def test_frames_of_every_library_become_the_same_frame():
    expected = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    for frame in (expected, expected.to_pandas(), expected.to_arrow()):
        assert is_frame(frame)
        assert to_polars(frame, None).equals(expected)
    assert not is_frame(np.zeros((2, 2)))
    assert not is_frame({"a": [1]})
    repeated = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert re.fullmatch(r"X .*valid frame \(.+\); .*column", message_of(to_polars, repeated, None), re.DOTALL)


def test_columns_are_added_once_and_in_full_length():
    frame = pl.DataFrame({"a": [1, 2]})
    assert add_column(frame, "label", ["x", None], "y").to_dict(as_series=False) == {"a": [1, 2], "label": ["x", None]}
    assert add_column(frame, "w", np.array([0.5, np.nan]), "w")["w"].to_list() == [0.5, None]
    assert re.fullmatch(r"X .*column a, .*\by .*; .*once", message_of(add_column, frame, "a", [1, 2], "y"))
    for values, shape in [([1, 2, 3], "(3,)"), ([[1, 2]], "(1, 2)"), (1, "()")]:
        expected = rf"X .*\b2 rows, .*\by .*shape {re.escape(shape)}; .*"
        assert re.fullmatch(expected, message_of(add_column, frame, "b", values, "y"))
    many = pl.DataFrame({"a": range(1200)})
    assert re.match(r"X .*\b1,200 rows, .*\by ", message_of(add_column, many, "b", [1], "y"))


@pytest.mark.parametrize(
    "values",
    [
        [1.0, None],
        (1.0, math.nan),
        np.array([1.0, np.nan]),
        np.array([1.0, None], dtype=object),
        pd.Series([1.0, None]),
        pd.Series([1, pd.NA], dtype="Int64"),
    ],
    ids=["list", "tuple", "floats", "objects", "pandas", "nullable pandas"],
)
def test_every_missing_value_becomes_none(values):
    array = unify_missing(values)
    assert array.dtype == object
    assert array.tolist() == [1.0, None]


def test_values_without_missing_ones_are_unchanged():
    numbers = np.array([1, 2])
    assert unify_missing(numbers) is numbers
    assert unify_missing([1, 2]).dtype == np.int64
    assert unify_missing([1.5, 2.5]).dtype == np.float64
    assert unify_missing(["a", "b"]).tolist() == ["a", "b"]
    assert unify_missing([["a", None], ["b", "c"]]).tolist() == [["a", None], ["b", "c"]]


def test_a_column_is_taken_from_a_frame_in_its_own_library():
    frame = pl.DataFrame({"a": [1, 2]})
    assert isinstance(get_column(frame.to_pandas(), "a", "groups"), pd.Series)
    assert get_column(frame, "a", "groups").to_list() == [1, 2]
    for data in (frame, np.zeros((2, 2))):
        assert re.fullmatch(r"X .*no column q, .*\bgroups .*", message_of(get_column, data, "q", "groups"))


def test_columns_are_appended_in_the_library_of_the_frame():
    added = pl.DataFrame({"route": ["auto", "review"], "rank": [2, 1]})
    frame = pl.DataFrame({"a": [1, 2]})
    expected = {"a": [1, 2], "route": ["auto", "review"], "rank": [2, 1]}
    assert append_columns(frame, added).to_dict(as_series=False) == expected
    pandas = append_columns(frame.to_pandas(), added)
    assert isinstance(pandas, pd.DataFrame)
    assert pandas.to_dict("list") == expected
    assert append_columns(frame.to_arrow(), added).to_pydict() == expected
    array = append_columns(np.zeros((2, 2)), added)
    assert array.dtype.names == ("route", "rank")
    assert array["rank"].tolist() == [2, 1]
    column = to_native_column(frame.to_pandas(), added["rank"])
    assert isinstance(column, pd.Series)
    assert column.tolist() == [2, 1]


def test_structured_arrays_keep_names_types_and_order():
    array = to_structured_array({"b": np.array([1, 2]), "a": np.array([0.5, 1.5])})
    assert array.dtype == np.dtype([("b", np.int64), ("a", np.float64)])
    assert array.tolist() == [(1, 0.5), (2, 1.5)]


@pytest.mark.parametrize(
    ("arrow_type", "flat", "nested"),
    [
        (pa.int8(), True, True),
        (pa.float16(), True, True),
        (pa.bool_(), True, True),
        (pa.decimal128(5, 2), True, True),
        (pa.null(), True, True),
        (pa.date32(), True, True),
        (pa.timestamp("us"), True, True),
        (pa.string(), True, True),
        (pa.large_string(), True, True),
        (pa.string_view(), True, True),
        (pa.dictionary(pa.int8(), pa.string()), True, True),
        (pa.dictionary(pa.int8(), pa.list_(pa.int8())), False, False),
        (pa.list_(pa.int8()), False, True),
        (pa.large_list(pa.int8()), False, True),
        (pa.list_(pa.int8(), 2), False, True),
        (pa.list_(pa.binary()), False, False),
        (pa.struct([("a", pa.int8())]), False, True),
        (pa.struct([("a", pa.int8()), ("b", pa.binary())]), False, False),
        (pa.binary(), False, False),
        (pa.month_day_nano_interval(), False, False),
    ],
)
def test_types_are_readable_with_or_without_nesting(arrow_type, flat, nested, tmp_path):
    assert is_readable(arrow_type, nested=False) is flat
    assert is_readable(arrow_type) is nested
    if not nested:
        table = pa.table({"ok": [1]}).append_column(pa.field("bad", arrow_type), pa.nulls(1, arrow_type))
        expected = rf"p\.parquet: .*\bbad is {re.escape(str(arrow_type))}; .*numbers, text .*lists"
        assert re.fullmatch(expected, message_of(arrow_to_polars, table, "p.parquet"))


def test_a_column_with_an_empty_name_is_read():
    table = pa.table([pa.array([1]), pa.array([2])], names=["", "a"])
    assert arrow_to_polars(table, "p").columns == ["", "a"]


def test_large_integers_become_text_also_within_lists_and_structs():
    large = 2**100
    frame = pl.DataFrame(
        {"n": [large], "list": [[large]], "struct": [{"n": large, "m": 1}], "small": [1]},
        schema={
            "n": pl.Int128,
            "list": pl.List(pl.Int128),
            "struct": pl.Struct({"n": pl.Int128, "m": pl.Int64}),
            "small": pl.Int64,
        },
    )
    converted = cast_for_arrow(frame).to_dict(as_series=False)
    text = str(large)
    assert converted == {"n": [text], "list": [[text]], "struct": [{"n": text, "m": 1}], "small": [1]}


def test_frames_are_read_in_batches_and_identified_by_their_rows():
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    predictions = FramePredictions.from_frame(frame)
    assert predictions.schema.names == ["a", "b"]
    assert [batch.to_pydict() for batch in predictions.batches()] == [{"a": [1, 2], "b": ["x", "y"]}]
    assert [batch.to_pydict() for batch in predictions.batches(["b"])] == [{"b": ["x", "y"]}]
    same = FramePredictions.from_frame(frame.with_columns(time=pl.datetime(2026, 1, 1)))
    other = FramePredictions.from_frame(frame.with_columns(a=pl.lit(1)))
    assert predictions.sha256 == same.sha256 != other.sha256


@pytest.mark.parametrize("suffix", [".json", ".xlsx"])
def test_large_files_that_are_read_at_once_are_rejected(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "MAX_WHOLE_BYTES", 3 * 2**20)
    path = tmp_path / f"p{suffix}"
    path.write_bytes(b"[" + b" " * (4 * 2**20))
    expected = rf"{re.escape(str(path))} .*\b4 MiB, .* \{suffix} .*\b3 MiB; .* \.parquet, \.csv .*\.jsonl, .*"
    assert re.fullmatch(expected, message_of(read_whole, path))
    path.write_bytes(b"x" * (3 * 2**20))
    assert "MiB" not in message_of(read_whole, path)


@pytest.mark.parametrize("suffix", [".json", ".xlsx"])
def test_files_that_are_read_at_once_have_at_most_128_mib(suffix, tmp_path):
    path = tmp_path / f"p{suffix}"
    with path.open("wb") as file:
        file.truncate(128 * 2**20 + 1)
    assert re.search(r"p\.\w+ .*\b128 MiB; ", message_of(read_whole, path))


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.csv", ".csv"), ("a.b.csv.gz", ".csv.gz"), ("a.gz", ".gz"), ("a.b.parquet", ".parquet"), ("a", "")],
)
def test_the_suffix_of_gzipped_files_has_two_parts(name, suffix, tmp_path):
    assert format_suffix(tmp_path / name) == suffix


def test_batches_are_numbered_by_their_first_row():
    batches = [pa.record_batch({"a": [0] * n}) for n in (2, 0, 3, 1)]
    assert [(batch.first, len(batch.rows)) for batch in number_batches(batches)] == [(0, 2), (2, 0), (2, 3), (5, 1)]
