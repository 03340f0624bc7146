"""Predictions in memory and as text: arrays, frames, separators and encodings, with the exact message of each error."""

import codecs
import errno
import gzip
import math
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from relmap.errors import InputError
from relmap.io import frames
from relmap.io.atomic import write_text
from relmap.io.contents import HEAD_BYTES, check_content, first_line, is_json_object, report_parse_errors
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
from relmap.io.named_columns import check_width, has_predictions, infer_column_kind, numbered_columns
from relmap.io.output import map_in_order
from relmap.io.text import SeparatedText


def message_of(call, *arguments: object, **options: object) -> str:
    """Return the message with which a call rejects its input."""
    with pytest.raises(InputError) as error:
        call(*arguments, **options)
    return str(error.value)


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
            "X, row 1 (from 0): all numbers lie in [0, 1], but this row does not sum to 1; give arrays='logits' or "
            "arrays='probabilities'",
        ),
        (
            [[0.088] * 12],
            None,
            "X, row 0 (from 0): all numbers lie in [0, 1], but this row does not sum to 1; give arrays='logits' or "
            "arrays='probabilities'",
        ),
        (
            [0.5, 1.0],
            None,
            "X may contain logits or probabilities, since all its numbers lie in [0, 1], and a map that was loaded or "
            "fitted on a frame does not know which; give arrays='logits' or arrays='probabilities' to `load`, or to "
            "the constructor before `fit`",
        ),
        (["a"], "auto", "X is of the type list; give an array of numbers, or a frame"),
        (object(), "auto", "X is of the type object; give an array of numbers, or a frame"),
        *(
            (
                np.zeros(shape),
                "auto",
                f"X has the shape {shape}; it must be (rows, labels), or (rows,) for the second of two labels",
            )
            for shape in [(), (0,), (0, 2), (3, 1), (2, 2, 2)]
        ),
    ],
)
def test_other_arrays_are_rejected(data, kind, expected):
    assert message_of(read_array, data, kind) == expected


def test_frames_of_every_library_become_the_same_frame():
    expected = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    for frame in (expected, expected.to_pandas(), expected.to_arrow()):
        assert is_frame(frame)
        assert to_polars(frame, None).equals(expected)
    assert not is_frame(np.zeros((2, 2)))
    assert not is_frame({"a": [1]})
    repeated = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert message_of(to_polars, repeated, None).startswith("X is not a valid frame (")
    assert message_of(to_polars, repeated, None).endswith("); fix that column")


def test_columns_are_added_once_and_in_full_length():
    frame = pl.DataFrame({"a": [1, 2]})
    assert add_column(frame, "label", ["x", None], "y").to_dict(as_series=False) == {"a": [1, 2], "label": ["x", None]}
    assert add_column(frame, "w", np.array([0.5, np.nan]), "w")["w"].to_list() == [0.5, None]
    assert message_of(add_column, frame, "a", [1, 2], "y") == "X has a column a, and y is given too; give it once"
    for values, shape in [([1, 2, 3], "(3,)"), ([[1, 2]], "(1, 2)"), (1, "()")]:
        expected = f"X has 2 rows, and y has the shape {shape}; give one value for each row"
        assert message_of(add_column, frame, "b", values, "y") == expected
    many = pl.DataFrame({"a": range(1200)})
    assert message_of(add_column, many, "b", [1], "y").startswith("X has 1,200 rows, and y")


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
        assert message_of(get_column, data, "q", "groups") == "X has no column q, which groups names"


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
    assert to_native_column([[0, 1]], added["rank"]).tolist() == [2, 1]


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
        expected = f"p.parquet: the column bad is {arrow_type}; it must hold numbers, text or lists"
        assert message_of(arrow_to_polars, table, "p.parquet") == expected


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
        (np.zeros((4, 3)), 2, None, "X has 3 columns, but there are 2 labels; give a column for each label"),
        (
            np.zeros((4, 2)),
            3,
            ["a", "b", "c"],
            "X has 2 columns, but there are 3 labels (a, b, c); give a column for each label",
        ),
        (np.zeros(4), 3, None, "X has one number in each row, but there are 3 labels; give a column for each label"),
    ],
)
def test_arrays_need_a_column_for_each_label(data, n_labels, names, expected):
    if expected:
        assert message_of(check_width, data, n_labels, names) == expected
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
            "X has 1 columns of logits, but there are 2 labels (a, b); it lacks maybe; give a column for each label",
        ),
        (["yes"], 2, None, "X has 1 columns of logits, but there are 2 labels; give a column for each label"),
        (["yes", "maybe", "x"], None, None, "X has no column maybe, x, which logits names; it has yes, no"),
        (["yes", "maybe"], 1, None, "X has no column maybe, which logits names; it has yes, no"),
        (
            ["yes", "yes"],
            None,
            None,
            "logits is ['yes', 'yes']; give a column for each of two labels or more, each once",
        ),
        (["yes"], None, None, "logits is ['yes']; give a column for each of two labels or more, each once"),
    ],
)
def test_named_columns_that_do_not_fit_the_labels_are_reported(columns, n_labels, names, expected):
    frame = pl.DataFrame({"yes": [0.9], "no": [0.1]})
    assert message_of(numbered_columns, frame, columns, "logits", n_labels, names) == expected


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
    assert "does not sum to 1" in message_of(
        infer_column_kind, frame[:1].with_columns(d=pl.lit(0.5)), ["a", "d"], "auto"
    )


TEXTS = {  # name, content, and separator, encoding, whether there is one column
    "commas": ("p.csv", b"a,b\n1,2\n", (",", "utf-8", False)),
    "tabs": ("p.tsv", b"a\tb\n", ("\t", "utf-8", False)),
    "semicolons in csv": ("p.csv", b"a;b\n", (";", "utf-8", False)),
    "bars in tsv": ("p.tsv", b"a|b\n", ("|", "utf-8", False)),
    "one column": ("p.csv", b"a\n1\n\n", (",", "utf-8", True)),
    "one column of tsv": ("p.tsv", b"a\n", ("\t", "utf-8", True)),
    "empty": ("p.csv", b"", (",", "utf-8", True)),
    "gzip": ("p.csv.gz", gzip.compress(b"a;b\n"), (";", "utf-8", False)),
    "gzip with tabs": ("p.tsv.gz", gzip.compress(b"a\tb\n"), ("\t", "utf-8", False)),
    "byte order mark": ("p.csv", codecs.BOM_UTF8 + b"a,b\n", (",", "utf-8", False)),
    "UTF-16": ("p.csv", "ä,b\n".encode("utf-16"), (",", "utf-16", False)),
    "UTF-16, other order": ("p.csv", codecs.BOM_UTF16_BE + "a\tb\n".encode("utf-16-be"), ("\t", "utf-16", False)),
    "Windows": ("p.csv", "ä,b\n".encode("cp1252"), (",", "cp1252", False)),
    "no encoding": ("p.csv", b"\x81,b\n", (",", "utf-8", False)),
}


@pytest.mark.parametrize(("name", "content", "expected"), TEXTS.values(), ids=TEXTS)
def test_separator_and_encoding_are_detected(name, content, expected, tmp_path):
    (tmp_path / name).write_bytes(content)
    text = SeparatedText.from_path(tmp_path / name)
    assert (text.separator, text.encoding, text.one_column) == expected


def test_a_format_that_differs_from_the_name_is_noted(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes("ä|b\n".encode("cp1252"))
    assert SeparatedText.from_path(path).notes == [
        f"{path} is read with columns separated by bars.",
        f"{path} is not UTF-8: it is read as cp1252; check that its names are correct.",
    ]
    path.write_bytes("ä;b\n".encode())
    assert SeparatedText.from_path(path).notes == [f"{path} is read with columns separated by semicolons."]
    path.write_bytes("ä,b\n".encode())
    assert SeparatedText.from_path(path).notes == []


def test_records_have_the_number_of_their_first_line(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(codecs.BOM_UTF8 + b'a,b\r\n\r\n1,"x\r\ny"\r\n2,z\r\n')
    assert [*SeparatedText.from_path(path).records()] == [(1, ["a", "b"]), (3, ["1", "x\r\ny"]), (5, ["2", "z"])]
    path.write_bytes(b"a\n\n1\n")
    assert [*SeparatedText.from_path(path).records()] == [(1, ["a"]), (2, []), (3, ["1"])]


def test_records_are_divided_at_the_separator_of_the_file(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text('a;b\n1,5;"2;5"\n')
    assert [record.fields for record in SeparatedText.from_path(path).records()] == [["a", "b"], ["1,5", "2;5"]]


def test_rows_that_cannot_be_located_keep_their_number(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("a,b\n" + "x" * 200_000 + ",1\n2,3\n")
    assert SeparatedText(path).locate(1) == "row 1 (from 0)"


@pytest.mark.parametrize("content", [gzip.compress(b"a,b\n" * 99)[:-9], b"a,b\n"], ids=["truncated", "not gzipped"])
def test_incomplete_gzip_files_are_rejected(content, tmp_path):
    path = tmp_path / "p.csv.gz"
    path.write_bytes(content)
    message = message_of(SeparatedText.from_path, path)
    assert message.startswith(f"{path} is not a complete gzip file (")
    assert message.endswith("); write the predictions again")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty; !"),
        (b"\xef\xbb\xbf \n\t", "is empty; !"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "is a Git LFS pointer, not the file that it refers to (`git lfs pull` downloads it); !",
        ),
        (b"\n <!DOCTYPE html><p>", "is a web page (it begins with b'<!DOCTYPE html>'), not data; !"),
        (b"\xef\xbb\xbf<HTML lang='en'>", "is a web page (it begins with b\"<HTML lang='en'\"), not data; !"),
    ],
)
def test_files_without_data_are_rejected(content, expected, tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    assert message_of(check_content, path, "!") == f"{path} {expected}"


def test_a_file_that_cannot_be_read_is_reported_with_the_reason(tmp_path, monkeypatch):
    path = tmp_path / "p.csv"
    path.write_bytes(b"a")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "open", fail)
    assert message_of(check_content, path, "!") == f"{path} cannot be read: Input/output error; !"


def test_the_first_bytes_of_a_file_are_returned(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"a" * (HEAD_BYTES + 1))
    assert check_content(path, "!") == b"a" * HEAD_BYTES
    assert message_of(check_content, tmp_path / "missing.csv", "!") == f"{tmp_path / 'missing.csv'} is missing; !"
    for url in ("https://host/p.csv", "s3://bucket/p.csv"):
        expected = f"{url} is a URL, not a file; download it, and give the path of the file"
        assert message_of(check_content, path.__class__(url), "!") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"", True),
        (b"  \r", True),
        (b'{"a": 1}', True),
        (b' {"a": {"b": 1}, "c": {"b": 2}} ', True),
        (b"[1]", False),
        (b"1", False),
        (b'{"a": 1', False),
        (b'{"a": NaN}', False),
        (b'{"a": 1, "a": 1}', False),
        (b'{"a": {"b": 1, "b": 2}}', False),
        (b"[" * 100_000, False),
    ],
)
def test_lines_with_one_json_object_are_recognized(line, expected):
    assert is_json_object(line) is expected


def test_parse_errors_name_the_file_and_the_first_invalid_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n2\n')

    def fail(*arguments: object) -> None:
        with report_parse_errors(path, "one JSON object per line", "!", *arguments):
            raise pl.exceptions.ComputeError("first line\nsecond line")

    expected = f"{path}{{}} is not one JSON object per line (first line); !"
    assert message_of(fail) == expected.format("")
    assert message_of(fail, path) == expected.format(", line 2")
    assert message_of(fail, b"{}\n{}\nx", 7) == expected.format(", line 9")
    assert message_of(fail, b"{}\n") == expected.format("")
    assert first_line(ValueError(f"\n {'x' * 300}\nother")) == "x" * 200


def test_errors_of_the_machine_are_not_errors_of_the_file(tmp_path):
    with pytest.raises(OSError, match="no space"), report_parse_errors(tmp_path, "data", "!"):
        raise OSError(28, "no space")

    def fail() -> None:
        with report_parse_errors(tmp_path, "data", "!"):
            raise OSError("broken footer")

    assert message_of(fail) == f"{tmp_path} is not data (broken footer); !"


def test_text_is_written_as_utf_8_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setattr("io.text_encoding", lambda encoding, _=2: encoding or "ascii")
    write_text(tmp_path / "a.txt", "ä\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa4\n"


@pytest.mark.parametrize("suffix", [".json", ".xlsx"])
def test_large_files_that_are_read_at_once_are_rejected(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "MAX_WHOLE_BYTES", 3 * 2**20)
    path = tmp_path / f"p{suffix}"
    path.write_bytes(b"[" + b" " * (4 * 2**20))
    assert message_of(read_whole, path) == (
        f"{path} has 4 MiB, but {suffix} files are read into memory, up to 3 MiB; save it as .parquet, .csv or .jsonl, "
        "which are read in pieces"
    )
    path.write_bytes(b"x" * (3 * 2**20))
    assert "files are read into memory" not in message_of(read_whole, path)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.csv", ".csv"), ("a.b.csv.gz", ".csv.gz"), ("a.gz", ".gz"), ("a.b.parquet", ".parquet"), ("a", "")],
)
def test_the_suffix_of_gzipped_files_has_two_parts(name, suffix, tmp_path):
    assert format_suffix(tmp_path / name) == suffix


def test_batches_are_numbered_by_their_first_row():
    batches = [pa.record_batch({"a": [0] * n}) for n in (2, 0, 3, 1)]
    assert [(batch.first, len(batch.rows)) for batch in number_batches(batches)] == [(0, 2), (2, 0), (2, 3), (5, 1)]


@pytest.mark.parametrize("threads", [1, 3])
def test_at_most_one_item_more_than_threads_is_read_ahead(threads):
    read = []

    def items():
        for number in range(8):
            read.append(number)
            yield number

    for n_results, result in enumerate(map_in_order(lambda number: number * 10, items(), threads=threads), 1):
        assert result == 10 * (n_results - 1)
        assert len(read) <= n_results + threads
    assert n_results == 8


def test_as_many_items_are_mapped_at_the_same_time_as_there_are_threads():
    barrier = threading.Barrier(2)
    assert len(list(map_in_order(lambda _: barrier.wait(timeout=20), range(2), threads=2))) == 2
