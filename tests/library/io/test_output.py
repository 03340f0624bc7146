"""Files of scored predictions: the columns of the input, then the added columns, in every format."""

import gzip
import json
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from relmap import InputError
from relmap.io import output
from relmap.io.files import open_predictions
from relmap.io.output import check_output, map_in_order, write_frame_with_columns, write_with_columns

ADDED = pl.DataFrame({"rank": [2, 1], "route": ["review", "automatic"]})


def write(source: Path, name: str) -> Path:
    """Write the two rows of a file with the added columns, next to it."""
    out = source.with_name(name)
    write_frame_with_columns(open_predictions(source), ADDED, out)
    return out


def csv_file(folder: Path, text: str = 'a,b\n1,x\n2,"y,z"\n') -> Path:
    path = folder / "in.csv"
    path.write_text(text)
    return path


def test_csv_keeps_the_separator_of_the_input_and_tsv_has_tabs(tmp_path):
    source = csv_file(tmp_path, "a;b\n1;x\n2;y,z\n")
    assert write(source, "out.csv").read_text() == "a;b;rank;route\n1;x;2;review\n2;y,z;1;automatic\n"
    expected = "a\tb\trank\troute\n1\tx\t2\treview\n2\ty,z\t1\tautomatic\n"
    assert write(source, "out.tsv").read_text() == expected
    assert gzip.decompress(write(source, "out.tsv.gz").read_bytes()).decode() == expected


def test_parquet_rows_are_written_as_csv_with_commas(tmp_path):
    pl.DataFrame({"a,b": ['x"y', "z"]}).write_parquet(tmp_path / "in.parquet")
    expected = '"a,b",rank,route\n"x""y",2,review\nz,1,automatic\n'
    assert write(tmp_path / "in.parquet", "out.csv").read_text() == expected


def test_equal_rows_give_equal_bytes_of_gzip(tmp_path, monkeypatch):
    source = csv_file(tmp_path)
    first = write(source, "first.csv.gz").read_bytes()
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert write(source, "second.csv.gz").read_bytes() == first


def test_a_json_list_has_one_object_on_each_line(tmp_path):
    lines = write(csv_file(tmp_path), "out.json").read_text().splitlines()
    assert [lines[0], lines[-1], len(lines)] == ["[", "]", 4]
    expected = [
        {"a": "1", "b": "x", "rank": 2, "route": "review"},
        {"a": "2", "b": "y,z", "rank": 1, "route": "automatic"},
    ]
    assert json.loads("".join(lines)) == expected


def test_pieces_of_a_json_list_are_joined(tmp_path):
    parquet.write_table(pa.table({"a": np.arange(200_000)}), tmp_path / "in.parquet")
    write_frame_with_columns(
        open_predictions(tmp_path / "in.parquet"), pl.DataFrame({"b": np.arange(200_000)}), tmp_path / "out.json"
    )
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["a"] for row in rows] == [*range(200_000)]
    assert [row["b"] for row in rows] == [*range(200_000)]


@pytest.mark.parametrize(("suffix", "expected"), [(".json", "[]\n"), (".jsonl", ""), (".csv", "a,rank,route\n")])
def test_no_rows_give_a_valid_file(suffix, expected, tmp_path):
    pl.DataFrame({"a": []}, schema={"a": pl.Int64}).write_parquet(tmp_path / "in.parquet")
    out = tmp_path / f"out{suffix}"
    write_frame_with_columns(open_predictions(tmp_path / "in.parquet"), ADDED.head(0), out)
    assert out.read_text() == expected


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson"])
def test_json_lines_of_other_formats_have_one_object_for_each_row(suffix, tmp_path):
    lines = write(csv_file(tmp_path), f"out{suffix}").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(write(csv_file(tmp_path), "out.json").read_text())


@pytest.mark.parametrize(("codec", "expected"), [("snappy", "SNAPPY"), ("none", "UNCOMPRESSED"), ("gzip", "GZIP")])
def test_parquet_keeps_codec_dictionaries_and_metadata_and_adds_checksums(codec, expected, tmp_path):
    table = pa.table({"a": [1.5, 2.5], "b": ["x", "y"]}).replace_schema_metadata({"origin": "judge"})
    parquet.write_table(table, tmp_path / "in.parquet", compression=codec, use_dictionary=["b"])
    out = write(tmp_path / "in.parquet", "out.parquet")
    chunks = [parquet.read_metadata(out).row_group(0).column(index) for index in range(4)]
    assert [chunk.path_in_schema for chunk in chunks] == ["a", "b", "rank", "route"]
    assert {chunk.compression for chunk in chunks} == {expected}
    assert [chunk.has_dictionary_page for chunk in chunks] == [False, True, False, True]
    assert parquet.read_schema(out).metadata[b"origin"] == b"judge"
    assert open_predictions(out).has_checksums()


def compression_of_columns(file: Path) -> dict[str, str]:
    group = parquet.read_metadata(file).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    return {chunk.path_in_schema: chunk.compression for chunk in chunks}


@pytest.mark.parametrize("element", ["element", "item"])  # names of the elements of lists in Parquet, new and old
def test_large_columns_that_hardly_compress_are_written_uncompressed(element, tmp_path):
    generator = np.random.default_rng(0)
    n_rows = 2**17
    logits = pa.FixedSizeListArray.from_arrays(generator.normal(size=2 * n_rows), 2).cast(pa.list_(pa.float64()))
    few = pa.FixedSizeListArray.from_arrays(generator.integers(10, size=n_rows), 1).cast(pa.list_(pa.int64()))
    rows = pa.table({"logits": logits, "rounded": generator.integers(10, size=n_rows) / 10, "few": few})
    parquet.write_table(
        rows,
        tmp_path / "in.parquet",
        compression="zstd",
        use_dictionary=[f"few.list.{element}"],
        use_compliant_nested_type=element == "element",
    )
    predictions = open_predictions(tmp_path / "in.parquet")
    write_frame_with_columns(predictions, pl.DataFrame({"noise": generator.random(n_rows)}), tmp_path / "out.parquet")

    group = parquet.read_metadata(tmp_path / "out.parquet").row_group(0)
    chunks = [group.column(index) for index in range(4)]
    assert [chunk.path_in_schema for chunk in chunks] == ["logits.list.element", "rounded", "few.list.element", "noise"]
    assert [chunk.compression for chunk in chunks] == ["UNCOMPRESSED", "ZSTD", "ZSTD", "ZSTD"]
    assert [chunk.has_dictionary_page for chunk in chunks] == [False, False, True, False]
    assert parquet.read_table(tmp_path / "out.parquet", columns=rows.column_names).equals(rows)


def test_parquet_of_other_formats_is_compressed_with_dictionaries(tmp_path):
    metadata = parquet.read_metadata(write(csv_file(tmp_path), "out.parquet"))
    chunks = [metadata.row_group(0).column(index) for index in range(metadata.num_columns)]
    assert {(chunk.compression, chunk.has_dictionary_page) for chunk in chunks} == {("ZSTD", True)}


def test_a_workbook_keeps_text_that_looks_like_a_formula(tmp_path):
    out = write(csv_file(tmp_path, "a,b\n=1+1,x\n2,y\n"), "out.xlsx")
    read = pl.read_excel(out, schema_overrides={"a": pl.String})
    assert read.columns == ["a", "b", "rank", "route"]
    assert read.rows() == [("=1+1", "x", 2, "review"), ("2", "y", 1, "automatic")]


@pytest.mark.parametrize(("rows", "columns", "fits"), [(3, 4, True), (2, 4, False), (3, 3, False)])
def test_a_workbook_holds_a_limited_number_of_rows_and_columns(rows, columns, fits, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "MAX_SHEET_ROWS", rows)  # with the header
    monkeypatch.setattr(output, "MAX_SHEET_COLUMNS", columns)
    source = csv_file(tmp_path)
    if fits:
        assert write(source, "out.xlsx").exists()
        return
    with pytest.raises(InputError, match=rf"out\.xlsx: a workbook holds {rows - 1} rows and {columns} columns"):
        write(source, "out.xlsx")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_the_added_columns_of_each_piece_are_requested_once_in_order(tmp_path):
    parquet.write_table(pa.table({"a": np.arange(150_000)}), tmp_path / "in.parquet")
    requested = []

    def build(first: int, count: int) -> pa.RecordBatch:
        requested.append((first, count))
        return pa.record_batch({"row": np.arange(first, first + count)})

    write_with_columns(open_predictions(tmp_path / "in.parquet"), build, tmp_path / "out.parquet")
    assert requested[0] == (0, 0)
    starts, counts = np.array(requested).T
    assert starts[1:].tolist() == counts[:-1].cumsum().tolist()
    assert counts.sum() == 150_000
    written = parquet.read_table(tmp_path / "out.parquet")
    assert written["row"].equals(written["a"])


def test_a_suffix_of_no_format_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"out\.txt: .*\.csv"):
        check_output(open_predictions(csv_file(tmp_path)), tmp_path / "out.txt")


@pytest.mark.parametrize(("suffix", "fits"), [(".csv", False), (".xlsx", False), (".json", True), (".jsonl", True)])
def test_lists_fit_into_formats_with_nested_values_or_are_split(suffix, fits, tmp_path):
    pl.DataFrame({"p": [[0.5, 0.5]]}).write_parquet(tmp_path / "in.parquet")
    predictions = open_predictions(tmp_path / "in.parquet")
    check_output(predictions, tmp_path / f"out{suffix}", split=["p"])
    if fits:
        check_output(predictions, tmp_path / f"out{suffix}")
        return
    with pytest.raises(InputError, match=rf"the column p is large_list.* \{suffix} file .*\.parquet"):
        check_output(predictions, tmp_path / f"out{suffix}")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(), max_size=20), st.integers(1, 4))
def test_parallel_map_preserves_order_and_raises_errors(items, threads):
    assert list(map_in_order(lambda item: item * 2, items, threads=threads)) == [item * 2 for item in items]
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda item: 1 // item, [1, 2, 0, 3, 4], threads=2))


def test_the_output_is_checked_and_not_the_input(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a\n1\n")
    with pytest.raises(InputError, match=r"^~out\.csv begins with ~"):
        check_output(open_predictions(path), Path("~out.csv"))


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
