"""Prediction files: exact reading in batches or at once, and rejection of invalid files with a reason."""

import datetime
import decimal
import gzip
import io
import json
import os
import re
import struct
import zipfile
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io import files, frames
from relmap.io.column_layout import find_layout
from relmap.io.columns import FileRows, count_labels, read_numbers
from relmap.io.files import open_predictions, read_columns
from relmap.io.output import write_with_columns
from relmap.io.rows import read_rows
from tests.maps import WRITERS, read_in_small_batches, write_frame

ROWS = 100
ROW_NUMBERS = pa.array(range(ROWS))


def plain_frame() -> pl.DataFrame:
    text = ['a, "b"\nc', "", None, "ü"] * 25
    return pl.DataFrame({"id": [f"{row:03}" for row in range(ROWS)], "logits_0": np.arange(ROWS) / 7, "text": text})


def table_of_unusual_types() -> pa.Table:
    """Return a table with unusual column types and nulls."""
    day = datetime.datetime(2020, 1, 1, 12, 30, 0, 123456)
    return pa.table(
        {
            "logits": pa.array([[row, None] if row % 3 else None for row in range(ROWS)], pa.list_(pa.float32())),
            "fixed": pa.array([[row, 1] for row in range(ROWS)], pa.list_(pa.int16(), 2)),
            "price": pa.array([decimal.Decimal("1.10"), None] * 50, pa.decimal128(10, 2)),
            "colour": pa.array(["red", "blue", None, "red"] * 25).dictionary_encode(),
            "at": pa.array([day, None] * 50, pa.timestamp("ns", "Europe/Berlin")),
            "took": pa.array([datetime.timedelta(seconds=1)] * ROWS, pa.duration("us")),
            "nothing": pa.nulls(ROWS),
            "bytes": pa.array([b"\xff\x00"] * ROWS),
            "tiny": pa.array([-1] * ROWS, pa.int8()),
            "half": pa.array(np.array([1.5, float("nan")] * 50, dtype=np.float16), pa.float16()),
            "where": pa.array([{"x": 1, "y": [1.0]}, None] * 50),
            "by.key": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
            "": ROW_NUMBERS,
        }
    ).replace_schema_metadata({"made": "by hand"})


def read_file(path: Path, columns: list[str]) -> pl.DataFrame:
    return read_columns(open_predictions(path), columns)


def added_columns(first: int, count: int) -> pa.RecordBatch:
    """Return the columns `rank` and `route` of the given number of rows."""
    return pa.record_batch(
        {"rank": ROW_NUMBERS.slice(first, count), "route": pa.array(["review"] * count, pa.string())}
    )


@pytest.mark.parametrize("suffix", WRITERS)
def test_batches_concatenate_to_the_whole_file(suffix, tmp_path, monkeypatch):
    path = write_frame(plain_frame(), tmp_path / f"p{suffix}")
    expected = pa.Table.from_batches(open_predictions(path).batches())
    read_in_small_batches(monkeypatch)
    batches = list(open_predictions(path).batches())

    assert len(batches) > 3
    assert pa.Table.from_batches(batches).equals(expected)
    assert open_predictions(path).schema.names == plain_frame().columns
    assert read_file(path, ["text", "id"]).equals(plain_frame().select("text", "id"))


def test_csv_fields_are_read_as_text(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b'\xef\xbb\xbfid,x,,at\r\n007,1.10,,2020-01-01\r\n\r\n1e5,"","a ""b"", c"," NA"\r\n')
    assert open_predictions(path).schema.names == ["id", "x", "", "at"]

    rows = [("007", "1.10", None, "2020-01-01"), ("1e5", "", 'a "b", c', " NA")]
    assert read_file(path, ["id", "x", "", "at"]).rows() == rows

    path.write_text("x\n7\n\n8\n\n")
    assert read_file(path, ["x"])["x"].to_list() == ["7", None, "8", None]
    path.write_text("\n\nx\n7\n\n8\n\n")
    assert read_file(path, ["x"])["x"].to_list() == ["7", None, "8", None]


def test_numbers_labels_and_probabilities_are_parsed():
    assert read_numbers(pl.Series("x", [" 0.5", "1 "]), FileRows("file")).tolist() == [0.5, 1]
    assert count_labels(pl.DataFrame({"label": [0, 0]}), "label", "label", FileRows("file")) == 2
    columns = ["logits", "probabilities", "decision", "confidence"]
    assert find_layout(columns, "file", labelled=False, map_input="confidence_only").kind == "confidence_only"
    logits = read_labelled_frame(
        pl.DataFrame({"probabilities": [[0.334, 0.333, 0.32], [0.0, 0.5, 0.51]], "label": [0, 1]})
    ).logits
    np.testing.assert_allclose(np.exp(logits), [[0.334, 0.333, 0.32], [1e-12, 0.5, 0.51]])


HALVES = [[0.5, 0.5]]
SURE = {"decision": [1], "confidence": [1.0]}


def read_labelled_frame(frame: pl.DataFrame, group=None, map_input=None, **options) -> FixedDecisions:
    """Read a labelled frame as rows of a file from row 40 on."""
    layout = find_layout(frame.columns, "file", labelled=True, group=group, map_input=map_input)
    return read_rows(frame, layout, FileRows("file", 40), **options)


def test_invalid_row_is_named_by_its_number():
    with pytest.raises(InputError, match=r"^file, row 41.*sum.*\b1\.1;"):
        read_labelled_frame(pl.DataFrame({"probabilities": [[1 / 40] * 40, [1.1 / 40] * 40], "label": [0, 0]}))
    with pytest.raises(InputError, match=r"^file, row 40.*\blabel.*'1';.*\b7, 8"):
        read_labelled_frame(pl.DataFrame({"logits": [[0.5, 0.5]], "label": ["1"]}), names=("7", "8"))


def test_json_lines_types_are_inferred_from_all_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 16)
    path = tmp_path / "p.jsonl"
    path.write_text('\ufeff{"x": 1}\n\n{"x": 2.5, "late": "a"}\r\n{"x": null, "list": [1]}\n{"x": 3, "list": [0.5]}')
    frame = read_file(path, ["x", "late", "list"])
    assert frame.rows() == [(1.0, None, None), (2.5, "a", None), (None, None, [1.0]), (3.0, None, [0.5])]


def test_wide_rows_are_read_in_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH_BYTES", 10_000)
    wide = pl.DataFrame({"logits": np.arange(20_000.0).reshape(200, 100)})
    wide.write_parquet(tmp_path / "p.parquet", compression="uncompressed")
    # a row has 100 numbers of 8 bytes
    assert max(map(len, open_predictions(tmp_path / "p.parquet").batches())) <= 13


def test_batches_have_at_most_64_mebibytes(tmp_path):
    path = tmp_path / "p.parquet"
    texts = pa.array([f"{row:0>20000}" for row in range(5000)])  # 96 MiB
    parquet.write_table(pa.table({"text": texts}), path, compression="zstd", use_dictionary=False)
    sizes = [len(batch) * 20_000 / 2**20 for batch in open_predictions(path).batches()]
    assert len(sizes) == 2
    assert max(sizes) == pytest.approx(64, abs=0.1)


@pytest.mark.parametrize("codec", ["SNAPPY", "ZSTD", "UNCOMPRESSED"])
def test_parquet_columns_are_preserved_exactly(codec, tmp_path, monkeypatch):
    source = tmp_path / "in.parquet"
    out = tmp_path / "out.parquet"
    parquet.write_table(table_of_unusual_types(), source, compression="none" if codec == "UNCOMPRESSED" else codec)
    read_in_small_batches(monkeypatch)
    write_with_columns(open_predictions(source), added_columns, out)
    before = parquet.read_table(source)
    after = parquet.read_table(out)

    assert after.select(before.column_names).schema.equals(before.schema, check_metadata=True)
    for name in before.column_names:
        assert repr(after[name].to_pylist()) == repr(before[name].to_pylist()), name  # NaN differs from itself
    assert after.column_names[-2:] == ["rank", "route"]
    assert parquet.read_metadata(out).row_group(0).column(0).compression == codec


def reads_integers_beyond_64_bits() -> bool:
    try:
        pl.read_ndjson(b'{"x": 12345678901234567890123}')
    except pl.exceptions.ComputeError:
        return False
    return True


@pytest.mark.parametrize(
    ("suffix", "text", "added"),
    [
        (".csv", ',x,y\n007,1.10,"a, b"\n,"",1e-3\n', (",rank,route\n", ",0,review\n", ",1,review\n")),
        (
            ".jsonl",
            '{"x": 1.10, "y":{"z":[ ]}}  \n\n { "x":1e-3,"x2":12345678901234567890123}',
            (',"rank":0,"route":"review"}\n', ',"rank":1,"route":"review"}\n'),
        ),
    ],
)
def test_csv_and_json_lines_text_is_preserved(suffix, text, added, tmp_path):
    if suffix == ".jsonl" and not reads_integers_beyond_64_bits():
        pytest.skip("this version of polars reads no integer of more than 64 bits")
    source = tmp_path / f"in{suffix}"
    out = tmp_path / f"out{suffix}"
    source.write_text(text)
    write_with_columns(open_predictions(source), added_columns, out)
    lines = [line.strip().removesuffix("}") for line in text.split("\n") if line.strip()]
    expected = [line + addition for line, addition in zip(lines, added, strict=True)]
    assert out.read_text() == "".join(expected)


BUFFER = io.BytesIO()
plain_frame().write_parquet(BUFFER)
PARQUET_BYTES = BUFFER.getvalue()


def make_file_of_256_mebibytes(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**28)


INVALID_FILES = {  # file, its bytes or a function that creates it, message
    "a folder": ("p.csv", Path.mkdir, r"p\.csv .*folder"),
    "a pipe that nobody writes to": ("p.csv", os.mkfifo, r"p\.csv .*pipe"),
    "a device": ("p.jsonl", lambda path: path.symlink_to("/dev/zero"), r"p\.jsonl .*device"),
    "a name that is not UTF-8": ("p\udcff.csv", b"a,b\n", "name .*UTF-8"),
    "a blank file": ("p.csv", b" \n\n", r"p\.csv is empty"),
    "parquet that is cut off": (
        "p.parquet",
        PARQUET_BYTES[: len(PARQUET_BYTES) // 2],
        r"p\.parquet .*complete parquet",
    ),
    "damaged parquet": (
        "p.parquet",
        PARQUET_BYTES[:40] + b"\xff" * 160 + PARQUET_BYTES[200:],
        r"p\.parquet .*complete parquet",
    ),
    "two columns of one name": ("p.csv", b"a,b,a\n1,2,3\n", r"p\.csv .*one column named a\b"),
    "csv in no encoding": ("p.csv", b"a,b\n1,\xff\x81\n", r"p\.csv .*complete csv .*UTF8"),
    "a line that is cut off": ("p.jsonl", b'{"a": 1}\n\n{"a": ', r"p\.jsonl, line 3 .*JSON"),
    "a NaN in JSON": ("p.jsonl", b'{"a": 1}\n{"a": NaN}\n', r"p\.jsonl, line 2 .*NaN, .*JSON"),
    "a key twice": ("p.jsonl", b'{"a": 1}\n\n{"a": 1, "b": 2, "a" :3}\n', r"p\.jsonl, line 3 .*repeated key"),
    "a key twice within a value": ("p.jsonl", b'{"a": {"b": 1, "b": 1}}\n', r"p\.jsonl, line 1 .*repeated key"),
    "no gzip": ("p.csv.gz", b"a,b\n", r"p\.csv\.gz .*complete gzip"),
    "gzip that is cut off": ("p.tsv.gz", gzip.compress(b"a\tb\n" * 999)[:40], r"p\.tsv\.gz .*complete gzip"),
    "columns of JSON": ("p.json", b'{"a": {"0": 1}}', "orient='records'"),
    "a JSON list that is cut off": ("p.json", b'[{"a": 1}, {"a"', r"p\.json .*JSON list"),
    "a key twice in a list": (
        "p.json",
        b'[{"a": 1, "a": 2}]',
        "repeated key|one occurrence",
    ),
    "no workbook": ("p.xlsx", b"PK", "p.xlsx.* workbook"),
    "too much to read whole": (
        "p.json",
        make_file_of_256_mebibytes,
        "read into memory",
    ),
}


@pytest.mark.parametrize(("name", "content", "message"), INVALID_FILES.values(), ids=INVALID_FILES)
def test_invalid_prediction_file_is_rejected(name, content, message, tmp_path):
    if callable(content):
        content(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_file(tmp_path / name, open_predictions(tmp_path / name).schema.names)


@pytest.mark.parametrize("name", ["bytes", "took", "by.key", "label"])
def test_missing_or_unsupported_column_is_named(name, tmp_path):
    parquet.write_table(table_of_unusual_types(), tmp_path / "p.parquet")
    assert read_file(tmp_path / "p.parquet", ["logits", "price", "colour", "fixed"]).height == ROWS
    facts = "no column label; .*logits, fixed" if name == "label" else f"{re.escape(name)} is"
    with pytest.raises(InputError, match=rf"p\.parquet.*\b{facts}"):
        read_file(tmp_path / "p.parquet", [name])


TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=5)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("origin", WRITERS)
@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.none() | TEXTS, st.floats(allow_nan=False, allow_infinity=False)), max_size=20))
@example([])
def test_conversion_between_formats_preserves_any_text(origin, suffix, tmp_path_factory, rows):
    assume(rows or ".jsonl" not in (origin, suffix))  # an empty .jsonl file has no columns
    folder = tmp_path_factory.mktemp("files")
    frame = pl.DataFrame(rows, schema={"text, \n": pl.String, "x": pl.Float64}, orient="row")
    path = write_frame(frame, folder / f"in{origin}")
    out = folder / f"out{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        read_in_small_batches(patch)
        write_with_columns(open_predictions(path), added_columns, out)
    converted = read_file(out, [*frame.columns, "rank"]).with_columns(pl.col("x", "rank").cast(pl.Float64))

    assert converted.equals(frame.with_columns(rank=pl.int_range(pl.len()).cast(pl.Float64)))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json", ".xlsx"])
def test_a_column_that_only_parquet_files_can_contain_is_reported_with_its_file(suffix, tmp_path):
    path = tmp_path / "in.parquet"
    parquet.write_table(pa.table({"bytes": pa.array([b"x"] * ROWS)}), path)
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}: .*\bbytes .*binary"):
        write_with_columns(open_predictions(path), added_columns, tmp_path / f"out{suffix}")
    assert [file.name for file in tmp_path.iterdir()] == ["in.parquet"]


def test_equal_keys_of_different_objects_are_not_repeated_keys(tmp_path):
    line = '{"a": [{"b": 1}, {"b": 2}], "b": "\\"a\\": \\"b\\":", "c": ":a:", "d\\\\": "d", "d": 1}\n'
    (tmp_path / "p.jsonl").write_text(line * 2)
    assert read_file(tmp_path / "p.jsonl", ["b"])["b"].to_list() == [json.loads(line)["b"]] * 2


def test_parquet_checksums_are_detected(tmp_path):
    table = table_of_unusual_types().select(["logits", "colour", "half", "where", "by.key"])
    options = [True, False]
    for codec, version, dictionary, checksums in product(["none", "zstd"], ["1.0", "2.0"], options, options):
        parquet.write_table(table, tmp_path / "p.parquet", row_group_size=30, compression=codec,
            use_dictionary=dictionary, data_page_version=version, write_page_checksum=checksums)  # fmt: skip
        assert open_predictions(tmp_path / "p.parquet").has_checksums() == checksums


def test_flipped_bit_in_written_parquet_is_detected(tmp_path):
    out = tmp_path / "p.parquet"
    numbers = pa.array(np.arange(5000.0))
    parquet.write_table(pa.table({"x": numbers}), tmp_path / "in.parquet", compression="none")
    write_with_columns(open_predictions(tmp_path / "in.parquet"), lambda _, n: pa.record_batch({"y": numbers[:n]}), out)
    content = bytearray(out.read_bytes())
    content[20_000] ^= 1
    out.write_bytes(content)

    with pytest.raises(InputError, match="CRC checksum"):
        read_file(out, ["x"])


def test_a_file_has_checksums_only_if_every_column_has_one(tmp_path, monkeypatch):
    path = tmp_path / "p.parquet"
    pl.DataFrame({"a": [1], "b": [2]}).write_parquet(path)
    for answers, expected in [([True, True], True), ([True, False], False), ([False, True], False)]:
        checksums = iter(answers)
        monkeypatch.setattr(files, "_has_checksum", lambda *_, checksums=checksums: next(checksums))
        assert open_predictions(path).has_checksums() is expected


def write_zeros(path: Path, *, n_bytes: int, declared: int) -> None:
    """Write a zip archive of zeros, with the given size in its headers."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(n_bytes))
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<I", n_bytes), struct.pack("<I", declared)))


@pytest.mark.parametrize("declared", [2**21, 10])
def test_workbook_that_unpacks_to_more_than_the_limit_is_rejected_whatever_size_it_declares(
    declared, tmp_path, monkeypatch
):
    monkeypatch.setattr(frames, "MAX_WHOLE_BYTES", 2**20)
    path = tmp_path / "p.xlsx"
    write_zeros(path, n_bytes=2**21, declared=declared)
    assert path.stat().st_size < 2**13
    with pytest.raises(InputError, match=r"p\.xlsx .*more .* 1 MiB"):
        open_predictions(path)


@pytest.mark.parametrize("where", ["first", "later"])
def test_json_line_that_is_too_long_is_rejected_with_its_number(where, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 2**10)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 2**20)
    before = b'{"a": "b"}\n' * 200 if where == "later" else b""
    path = tmp_path / "p.jsonl"
    path.write_bytes(before + b'{"a": "' + b"x" * (2**20 + 2**12) + b'"}\n')
    number = 201 if where == "later" else 1
    with pytest.raises(InputError, match=rf"p\.jsonl.*line {number} .* 1 MiB"):
        open_predictions(path)
