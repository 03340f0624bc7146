"""Reading of raw files and repositories: kinds of columns, row numbers, and the places that errors name."""

import errno
import gzip
import io
import re
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from relmap.errors import InputError
from tasks.datasets import raw
from tasks.datasets.raw import (
    ROW_NUMBER,
    RepositoryRows,
    open_repository,
    read_columns,
    require_columns,
    select_typed,
    unpack,
)

AGAIN = ".*download stage"  # pattern of the remedy


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def message_of(path: Path, content: bytes) -> str:
    """Return the error of unpacking a file with some content."""
    path.write_bytes(content)
    with pytest.raises(InputError) as error, unpack(path):
        pass
    return str(error.value)


def test_a_gzip_file_is_unpacked_whatever_its_name():
    for name in ("a.csv", "a.csv.gz"):
        Path(name).write_bytes(gzip.compress(b"x\n1\n"))
        with unpack(Path(name)) as plain:
            assert (plain.name, plain.read_bytes()) == ("a.csv", b"x\n1\n")
        assert not plain.exists()
    Path("b.csv").write_bytes(b"x\n1\n")
    with unpack(Path("b.csv")) as plain:
        assert plain == Path("b.csv")


def test_a_full_disk_is_no_error_of_the_packed_file(monkeypatch):
    def copy(_source: object, _target: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(raw.shutil, "copyfileobj", copy)
    Path("a.csv.gz").write_bytes(gzip.compress(b"x\n1\n"))
    with pytest.raises(OSError, match=r"temporary .*TMPDIR") as raised, unpack(Path("a.csv.gz")):
        pass
    assert not isinstance(raised.value, InputError)


def test_a_file_that_is_no_data_is_reported_with_its_remedy():
    named_gzip = message_of(Path("a.csv.gz"), b"query,title")
    assert re.match(rf"a\.csv\.gz .*\.gz .*b'query,ti', .*not gzip; {AGAIN}", named_gzip)
    assert re.match(rf"a\.csv .*empty; {AGAIN}", message_of(Path("a.csv"), b" \n"))
    assert re.match(rf"b\.csv\.gz .*empty; {AGAIN}", message_of(Path("b.csv.gz"), gzip.compress(b"")))
    page = b"<html>sign in</html>"
    for content in (page, gzip.compress(page)):
        message = message_of(Path("a.csv"), content)
        assert re.match(rf"a\.csv .*web page \(.*b'<html>sign in</'\).*; {AGAIN}", message)
    cut = message_of(Path("c.csv.gz"), gzip.compress(b"x\n1\n")[:-3])
    assert re.match(rf"c\.csv\.gz .*incomplete .*gzip .*\(.*\); {AGAIN}", cut)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
def test_blank_lines_of_a_table_are_skipped_and_counted(name):
    separator = "\t" if name == "a.tsv" else ","
    text = "\n".join(["x,y", "1,", ",", ",b", "", "2,c"]).replace(",", separator).encode()
    Path(name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    frame = read_columns(Path(name), {"y": "text", "x": "text or number"})
    assert frame.columns == [ROW_NUMBER, "y", "x"]
    assert frame.rows() == [(1, None, "1"), (3, "b", None), (5, "c", "2")]


TEXTS = {  # encoding or layout of a table in a CSV file -> its bytes
    "semicolons": "x;y\nä;1\n\n;2\n".encode(),
    "a line of Excel": "sep=;\r\nx;y\r\nä;1\r\n\r\n;2\r\n".encode(),
    "tabs": "x\ty\nä\t1\n\n\t2\n".encode(),
    "UTF-16": "x,y\nä,1\n\n,2\n".encode("utf-16"),
    "a byte order mark": "\ufeffx,y\nä,1\n\n,2\n".encode(),
    "Windows-1252": "x,y\nä,1\n\n,2\n".encode("cp1252"),
    "blank lines above the header": "\n\r\nx,y\nä,1\n\n,2\n".encode(),
    "blank lines in UTF-16": "\n\nx,y\nä,1\n\n,2\n".encode("utf-16"),
    "carriage returns": "x,y\rä,1\r\r,2\r".encode(),
}


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS)
def test_a_text_table_is_read_in_every_layout_that_the_library_reads(content):
    for name, packed in (("a.csv", content), ("a.csv.gz", gzip.compress(content))):
        Path(name).write_bytes(packed)
        frame = read_columns(Path(name), {"x": "text", "y": "text or number"})
        assert frame.rows() == [(1, "ä", "1"), (3, None, "2")]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_an_unexpected_layout_is_logged_with_the_name_of_the_file(name, caplog):
    caplog.set_level("INFO")
    content = "x;y\nä;1\n".encode("utf-16")
    Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    read_columns(Path(name), {"x": "text"})
    separator, encoding = caplog.messages
    assert re.match(rf"{name} .*semicolons", separator)
    assert re.match(rf"{name} .*utf-16", encoding)


def test_fields_of_a_text_table_are_read_as_they_are():
    long_text = "x" * 5_000_000
    Path("a.csv").write_text(f'x,y\n"a, ""b""\n\nc",007\n\n"",1.10\n5" high, 1 \n{long_text},NA\n')
    rows = [(1, 'a, "b"\n\nc', "007"), (3, "", "1.10"), (4, '5" high', " 1 "), (5, long_text, "NA")]
    assert read_columns(Path("a.csv"), {"x": "text", "y": "text"}).rows() == rows


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_file_of_one_column_has_no_rows_of_blank_lines(name):
    text = b'\nx\na\n\n""\nb\n\n'
    Path(name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert read_columns(Path(name), {"x": "text"}).rows() == [(1, "a"), (3, ""), (4, "b")]


def encode_parquet_with_checksums(table: pa.Table) -> bytes:
    """Return a table in the format parquet, uncompressed, so that bytes of its texts can be changed."""
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, write_page_checksum=True, compression="none", use_dictionary=False)
    return buffer.getvalue()


PARQUET = encode_parquet_with_checksums(pa.table({"x": ["first text", "text of the middle", "zero"], "y": [1, 2, 3]}))
REPEATED = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["x", "x", "y"])
DAMAGED_TABLES = {  # file name, content, facts that the message names
    "a short row": ("a.csv", b"x,y\na\nb,2\n", r"a\.csv .*Row #2: .*2 .*1: a"),
    "a long row": ("a.csv", b"x,y\na,1\nb,2,3\n", r"a\.csv .*Row #3: .*2 .*3: b,2,3"),
    "a short packed row": ("a.csv.gz", gzip.compress(b"x,y\na\n"), r"a\.csv\.gz .*Row #2: .*2 .*1: a"),
    "a repeated column": ("a.csv", b"x,y,z,z\na,1,2,3\n", r"a\.csv .*one column .*\bz;"),
    "a repeated column of parquet": ("a.parquet", encode_parquet_with_checksums(REPEATED), r"a\.parquet .*\bx;"),
    "columns without a name": ("a.csv", b"x,y,,\na,1,,\n", r"a\.csv has 2 columns without"),
    "a column of row numbers": ("a.csv", b"x,y,(row)\na,1,7\n", r"a\.csv .*\(row\)"),
    "a NaN": ("a.jsonl", b'{"x": "a", "y": 1}\n{"x": "b", "y": NaN}\n', r"a\.jsonl, line 2 .*NaN"),
    "a repeated key": ("a.jsonl", b'{"x": "a", "y": 1, "x": "b"}\n', r"a\.jsonl, line 1 .*repeated key"),
    "a packed line": ("a.jsonl.gz", gzip.compress(b'{"x": "a", "y": 1}\n{"x": '), r"a\.jsonl\.gz, line 2 .*JSON"),
    "a flipped bit": ("a.parquet", PARQUET.replace(b"of the", b"Of the"), r"a\.parquet .*CRC checksum"),
}


@pytest.mark.parametrize(("name", "content", "facts"), DAMAGED_TABLES.values(), ids=DAMAGED_TABLES)
def test_a_damaged_table_is_rejected_with_its_place(name, content, facts):
    Path(name).write_bytes(content)
    with pytest.raises(InputError, match=f"^{facts}"):
        read_columns(Path(name), {"x": "text", "y": "text or number"})


def test_only_the_columns_of_a_typed_table_that_are_needed_must_be_readable():
    Path("a.parquet").write_bytes(encode_parquet_with_checksums(pa.table({"bytes": [b"\xff"], "y": [1], "x": ["a"]})))
    assert read_columns(Path("a.parquet"), {"x": "text", "y": "integer"}).rows() == [(1, "a", 1)]


def test_values_of_json_lines_keep_their_types_beyond_the_first_lines():
    lines = ['{"x": 1, "y": null}'] * 200 + ['{"x": 2.5, "y": "late"}']
    Path("a.jsonl").write_text("\n".join(lines))
    frame = read_columns(Path("a.jsonl"), {"x": "text or number", "y": "text"})
    assert frame.row(0) == (1, "1.0", None)
    assert frame.row(-1) == (201, "2.5", "late")


VALUES = {
    "text": (["a", None], "String"),
    "nulls": ([None, None], "Null"),
    "integers": ([1, 2], "Int64"),
    "decimals": ([1.5, 2.0], "Float64"),
    "truth": ([True, False], "Boolean"),
    "texts": ([["a"], []], "List(String)"),
    "numbers": ([[1], [2, 3]], "List(Int64)"),
    "matrix": ([[[1.5]], [[2.0, 3.0]]], "List(List(Float64))"),
}
ACCEPTED = {
    "text": {"text", "nulls"},
    "text or number": {"text", "nulls", "integers", "decimals", "truth"},
    "integer": {"integers"},
    "list of texts": {"texts"},
    "list of integers": {"numbers"},
    "list of lists of numbers": {"matrix"},
}
FRAME = pl.DataFrame({name: values for name, (values, _) in VALUES.items()}).with_row_index(ROW_NUMBER, offset=1)


@pytest.mark.parametrize("kind", ACCEPTED)
@pytest.mark.parametrize("column", VALUES)
def test_a_column_must_be_of_its_kind(kind, column):
    path = Path("a.parquet")
    if column in ACCEPTED[kind]:
        assert select_typed(path, FRAME, {column: kind}).columns == [ROW_NUMBER, column]
        return
    with pytest.raises(InputError) as error:
        select_typed(path, FRAME, {column: kind})
    type_name = VALUES[column][1]
    found_and_expected = f"is {re.escape(type_name)}, not {kind}; .* {kind}"
    assert re.fullmatch(rf"a\.parquet, column '{column}' {found_and_expected}", str(error.value))


def test_columns_are_cast_to_the_type_of_their_kind():
    kinds = {
        "nulls": "text",
        "integers": "text or number",
        "truth": "text or number",
        "matrix": "list of lists of numbers",
    }
    frame = select_typed(Path("a"), FRAME, kinds)
    types = {"nulls": pl.String, "integers": pl.String, "truth": pl.String, "matrix": pl.List(pl.List(pl.Float32))}
    assert dict(frame.drop(ROW_NUMBER).schema) == types
    small = FRAME.with_columns(pl.col("integers").cast(pl.Int8), pl.col("numbers").cast(pl.List(pl.UInt8)))
    cast = select_typed(Path("a"), small, {"integers": "integer", "numbers": "list of integers"})
    assert dict(cast.drop(ROW_NUMBER).schema) == {"integers": pl.Int64, "numbers": pl.List(pl.Int64)}


def test_a_table_without_rows_is_reported():
    with pytest.raises(InputError) as error:
        select_typed(Path("a"), FRAME.clear(), {"text": "text"})
    assert re.match(f"a .*no rows; {AGAIN}", str(error.value))


def test_all_missing_columns_are_named_and_the_existing_ones_without_the_row_number():
    with pytest.raises(InputError) as error:
        require_columns(Path("a.csv"), [ROW_NUMBER, "x", "y"], ["z", "x", "w"])
    assert re.fullmatch(r"a\.csv [a-z ]* 'z', 'w';[^,]* x, y", str(error.value))
    require_columns(Path("a.csv"), ["x", "y"], ["y", "x"])


@pytest.fixture
def rows() -> RepositoryRows:
    columns = {"id": [7, 8, 9], "text": ["a", "b", "c"], "grade": [2, 0, 1]}
    return RepositoryRows(Path("raw/shop/en/train"), datasets.Dataset.from_dict(columns))


def test_labelled_rows_of_a_repository_are_named_by_split_and_row(rows):
    frame = rows.labelled_table({"text": "text", "grade": "integer"}, ("bad", "fair", "good"), label="grade")
    assert frame.columns == [ROW_NUMBER, "text", "grade", "label", "pair"]
    assert frame.select("pair", "text", "label").rows() == [
        ("train:1", "a", 2),
        ("train:2", "b", 0),
        ("train:3", "c", 1),
    ]
    assert frame.schema["label"] == pl.Int8


def test_an_unknown_label_of_a_repository_is_reported_with_the_known_ones(rows):
    with pytest.raises(InputError) as error:
        rows.labelled_table({"grade": "integer"}, ("bad", "good"), label="grade")
    pattern = r"raw/shop/en/train, row 1, .*'grade': \w+ 2; [^,]* 0 \(bad\), 1 \(good\)"
    assert re.fullmatch(pattern, str(error.value))
    missing = RepositoryRows(Path("raw"), datasets.Dataset.from_dict({"label": [1, None]}))
    with pytest.raises(InputError, match=r"^raw, row 2,.*'label'.*None.*\b0.\(bad"):
        missing.labelled_table({"label": "integer"}, ("bad", "good"))


def test_selected_rows_of_a_repository_are_in_the_given_order(rows):
    selected = rows.take(np.array([2, 0]))
    assert selected.path == rows.path
    assert selected.table({"id": "text or number"}).rows() == [(1, "9"), (2, "7")]


def test_an_identifier_of_a_text_must_be_unique():
    columns = {"id": ["a", "b", "a"], "text": ["x", "y", "z"]}
    with pytest.raises(InputError) as error:
        RepositoryRows(Path("raw"), datasets.Dataset.from_dict(columns)).texts_by_id()
    assert re.match(r"raw, row 1, .*'id': .*'a' \(.* 1 .*\); .*unique", str(error.value))


def test_the_rows_of_a_repository_are_named_by_configuration_and_split_and_its_notes_are_not_data():
    folder = Path("shop")
    folder.mkdir()
    buffer = io.BytesIO()
    pl.DataFrame({"x": [1, 2]}).write_parquet(buffer)
    (folder / "train.parquet").write_bytes(buffer.getvalue())
    (folder / "source.json").write_text("{}")
    (folder / "README.md").write_bytes(b"")
    with open_repository(folder) as read_split:
        rows = read_split("train")
        assert rows.path == Path("shop/train")
        assert rows.table({"x": "integer"})["x"].to_list() == [1, 2]
        assert read_split("train", "default").path == Path("shop/default/train")
        with pytest.raises(InputError, match=r"^shop:.*\bdev\b.*\bdefault\b.*: Unknown split"):
            read_split("dev", "default")


class GenerationError(Exception):
    """Stands for the error of the library that hides the cause of a failed read."""


def make_error_with_cause(cause: Exception) -> Exception:
    """Return an error of the library with a cause."""
    error = GenerationError("An error occurred while generating the dataset")
    error.__cause__ = cause
    return error


def read_with_error(error: Exception, monkeypatch: pytest.MonkeyPatch, **arguments: str) -> None:
    """Read a split of a repository whose library raises an error."""

    def load_dataset(*_arguments: object, **_options: object) -> None:
        raise error

    exceptions = SimpleNamespace(DatasetGenerationError=GenerationError)
    library = SimpleNamespace(load_dataset=load_dataset, exceptions=exceptions)
    monkeypatch.setattr(raw, "import_hub_library", lambda: library)
    Path("shop").mkdir()
    with open_repository(Path("shop")) as read_split:
        read_split("train", **arguments)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("Unknown split\n  'train'"), "Unknown split 'train'"),
        (make_error_with_cause(ValueError("no column")), "no column"),
        (OSError("not a file"), "not a file"),
        (make_error_with_cause(OSError("not a file")), "not a file"),
        (ValueError("x" * 300), "x" * 300),
        (ValueError("x" * 301), "x" * 300),
    ],
    ids=repr,
)
def test_a_split_that_cannot_be_read_is_reported_with_the_first_words_of_the_cause(error, reason, monkeypatch):
    with pytest.raises(InputError) as raised:
        read_with_error(error, monkeypatch)
    message = str(raised.value)
    assert message.startswith("shop: split train ")
    assert message.endswith(f"read: {reason}")


@pytest.mark.parametrize("hide", [make_error_with_cause, lambda error: error], ids=["hidden", "raised"])
def test_an_error_of_the_machine_is_raised_as_it_is(hide, monkeypatch):
    with pytest.raises(OSError, match=r"temporary .*TMPDIR") as raised:
        read_with_error(hide(OSError(errno.ENOSPC, "full")), monkeypatch, config="en")
    assert not isinstance(raised.value, InputError)


def test_the_library_gets_the_split_and_configuration_of_links_to_the_files(monkeypatch):
    calls = []
    listed = []

    def load_dataset(view: str, **options: object) -> str:
        calls.append(options)
        listed.extend(sorted(path.name for path in Path(view).iterdir()))
        assert all(path.is_symlink() for path in Path(view).iterdir())
        return "rows"

    library = SimpleNamespace(
        load_dataset=load_dataset, exceptions=SimpleNamespace(DatasetGenerationError=GenerationError)
    )
    monkeypatch.setattr(raw, "import_hub_library", lambda: library)
    Path("shop").mkdir()
    for name in ("source.json", "README.md", "a.jsonl"):
        (Path("shop") / name).write_text("{}")
    with open_repository(Path("shop")) as read_split:
        rows = read_split("test", "fr")
    assert (rows.path, rows.data) == (Path("shop/fr/test"), "rows")
    (options,) = calls
    assert not Path(str(options.pop("cache_dir"))).exists()
    assert options == {"name": "fr", "split": "test", "verification_mode": "no_checks"}
    assert listed == ["README.md", "a.jsonl"]
