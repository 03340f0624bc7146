"""Write a file of scored predictions in pieces: the columns of the input unchanged, then the added columns.

Parquet files keep types, encodings and compression. Fields of csv files keep their text. Lines of json lines files keep
their bytes if the output is json lines too. Workbooks are written as a whole. All files are written atomically.
"""

import csv
import gzip
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from relmap.errors import InputError, needs_extra
from relmap.io.atomic import check_output_path, write_atomically
from relmap.io.files import (
    FORMATS,
    JsonLinesPredictions,
    ParquetPredictions,
    Predictions,
    format_suffix,
    number_batches,
)
from relmap.io.frames import arrow_to_polars, is_readable, is_text

ColumnBuilder = Callable[[int, int], pa.RecordBatch]  # number of the first row, number of rows -> their added columns
LINE_FORMATS = (".jsonl", ".ndjson")
NESTED_FORMATS = (".parquet", ".json", *LINE_FORMATS)  # can contain lists
LARGE_COLUMN_BYTES = 2**20  # in a row group
MIN_SAVING = 0.1  # share of the bytes of a large column that compression must save
MAX_SHEET_ROWS = 2**20  # of a workbook, including its header
MAX_SHEET_COLUMNS = 2**14
Item = TypeVar("Item")
Result = TypeVar("Result")


def check_output(predictions: Predictions, out: Path, split: Sequence[str] = ()) -> None:
    """Check that a file can be written, and that its format can contain the columns of the predictions.

    Args:
        predictions: The input.
        out: File to write.
        split: Columns of lists that are split into columns of numbers before they are written.

    Raises:
        InputError: The suffix is unknown, the format cannot contain a column, or `out` cannot be written or is the
            input.
    """
    suffix = format_suffix(out)
    if suffix not in FORMATS:
        raise InputError(f"{out}: predictions are written as {', '.join(FORMATS)}; rename the file accordingly")
    check_output_path(out, predictions.path)
    if suffix == ".xlsx":
        with needs_extra("excel"):
            import xlsxwriter  # noqa: F401, PLC0415 - only workbooks need it
    if suffix == ".parquet" or (isinstance(predictions, JsonLinesPredictions) and suffix in LINE_FORMATS):
        return
    for column in predictions.schema:
        if column.name not in split and not is_readable(column.type, nested=suffix in NESTED_FORMATS):
            raise InputError(
                f"{predictions.path}: the column {column.name} is {column.type}, which a {suffix} file cannot "
                "contain; write a .parquet file"
            )


def write_with_columns(predictions: Predictions, build_columns: ColumnBuilder, out: Path) -> None:
    """Write the rows of predictions with added columns.

    Args:
        predictions: The input.
        build_columns: Returns the added columns of consecutive rows. It is called with (0, 0) for the names and types
            of the columns, and then once for each piece, in the order of the rows.
        out: File to write; its suffix determines the format.

    Raises:
        InputError: A row cannot be read, or a workbook cannot contain all rows.
    """
    suffix = format_suffix(out)

    def write(path: Path) -> None:
        if suffix == ".parquet":
            _write_parquet(predictions, build_columns, path)
        elif suffix in LINE_FORMATS:
            _write_json_lines(predictions, build_columns, path)
        elif suffix == ".json":
            _write_json_list(predictions, build_columns, path)
        elif suffix == ".xlsx":
            _write_workbook(predictions, build_columns, path, out)
        else:
            _write_text(predictions, build_columns, path, suffix)

    write_atomically(out, write)


def write_frame_with_columns(predictions: Predictions, added: pl.DataFrame, out: Path) -> None:
    """Write the rows of predictions with columns that are in memory.

    Args:
        predictions: The input, n rows.
        added: The columns, n rows.
        out: File to write; its suffix determines the format.

    Raises:
        InputError: A row cannot be read, or a workbook cannot contain all rows.
    """
    table = added.to_arrow(compat_level=pl.CompatLevel.oldest())

    def build_columns(first: int, n_rows: int) -> pa.RecordBatch:
        columns = [column.combine_chunks() for column in table.slice(first, n_rows).columns]
        return pa.record_batch(columns, schema=table.schema)

    write_with_columns(predictions, build_columns, out)


def _write_parquet(predictions: Predictions, build_columns: ColumnBuilder, path: Path) -> None:
    added_schema = build_columns(0, 0).schema
    schema = pa.schema([*predictions.schema, *added_schema], metadata=predictions.schema.metadata)
    encoding = _parquet_encoding(predictions, schema, added_schema)
    batches = (
        pa.record_batch([*piece.rows, *piece.added], schema=schema) for piece in _pieces(predictions, build_columns)
    )
    with parquet.ParquetWriter(
        path,
        schema,
        write_page_checksum=True,
        compression=encoding.compression,
        use_dictionary=encoding.dictionary_columns,
    ) as writer:
        # a thread writes each batch while the next one is computed; write_batch returns nothing
        for _ in map_in_order(writer.write_batch, batches, threads=1):
            pass


@dataclass(frozen=True)
class _ParquetEncoding:
    """Compression codec of each column or of all, and the columns that are encoded with a dictionary; True for all."""

    compression: dict[str, str] | str
    dictionary_columns: list[str] | bool


def _parquet_encoding(predictions: Predictions, schema: pa.Schema, added_schema: pa.Schema) -> _ParquetEncoding:
    """Return the encoding of the input file, since a dictionary for a column without repeated values wastes time.

    So does compression that hardly saves space. Added columns of text get a dictionary.

    Returns:
        The encoding; compressed, with dictionaries for all columns, if the input is not parquet or has no rows.
    """
    metadata = parquet.read_metadata(predictions.path) if isinstance(predictions, ParquetPredictions) else None
    if metadata is None or not metadata.num_row_groups or not metadata.num_columns:
        return _ParquetEncoding(compression="zstd", dictionary_columns=True)
    chunks = [metadata.row_group(0).column(index) for index in range(metadata.num_columns)]
    codec = "none" if chunks[0].compression == "UNCOMPRESSED" else chunks[0].compression
    columns = _parquet_columns(schema)  # those of the input come first
    compression = dict.fromkeys(columns, codec)
    texts = [column.name for column in added_schema if is_text(column.type)]
    with_dictionary = []
    for name, chunk in zip(columns, chunks, strict=False):
        if chunk.has_dictionary_page:
            with_dictionary.append(name)
        if _is_hardly_compressed(chunk):
            compression[name] = "none"
    return _ParquetEncoding(compression, dictionary_columns=[*with_dictionary, *texts])


def _parquet_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns in Parquet; those of lists and structs have several parts."""
    empty_file = BytesIO()
    parquet.write_metadata(schema, empty_file)
    columns = parquet.read_metadata(empty_file).schema
    return [columns.column(index).path for index in range(len(columns))]


def _is_hardly_compressed(chunk: parquet.ColumnChunkMetaData) -> bool:
    """Return whether a large part of a column is about as large as without compression, as logits often are."""
    size = chunk.total_uncompressed_size
    return bool(size >= LARGE_COLUMN_BYTES and chunk.total_compressed_size > (1 - MIN_SAVING) * size)


def _write_text(predictions: Predictions, build_columns: ColumnBuilder, path: Path, suffix: str) -> None:
    """Write separated text: with tabs if the suffix requires them, else with the separator of the input."""
    names = [*predictions.schema.names, *build_columns(0, 0).schema.names]
    separator = predictions.text.separator if predictions.text else ","
    if suffix.startswith(".tsv"):
        separator = "\t"
    header = StringIO(newline="")
    csv.writer(header, delimiter=separator, lineterminator="\n").writerow(names)
    with _open_binary(path, compressed=suffix.endswith(".gz")) as handle:
        handle.write(header.getvalue().encode())
        for frame in _frames(predictions, build_columns):
            frame.write_csv(handle, include_header=False, separator=separator)


@contextmanager
def _open_binary(path: Path, *, compressed: bool) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        if not compressed:
            yield file
            return
        # the gzip header has neither name nor time, so that equal rows give equal bytes
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as handle:
            yield handle  # type: ignore[misc]


def _write_json_list(predictions: Predictions, build_columns: ColumnBuilder, path: Path) -> None:
    """Write a JSON list of objects, one on each line."""
    separator = b"[\n"
    with path.open("wb") as handle:
        for frame in _frames(predictions, build_columns):
            lines = frame.write_ndjson().encode().splitlines()
            if lines:
                handle.write(separator + b",\n".join(lines))
                separator = b",\n"
        handle.write(b"[]\n" if separator == b"[\n" else b"\n]\n")


def _write_workbook(predictions: Predictions, build_columns: ColumnBuilder, path: Path, out: Path) -> None:
    """Write a workbook of one sheet, in which text that begins with = remains text."""
    # the first frame has the columns but no rows, since predictions may have no rows
    no_rows = arrow_to_polars(predictions.schema.empty_table(), predictions.path)
    frames = [no_rows.hstack(arrow_to_polars(build_columns(0, 0), predictions.path))]
    n_rows = 0
    for frame in _frames(predictions, build_columns):
        n_rows += len(frame)
        if n_rows >= MAX_SHEET_ROWS or frame.width > MAX_SHEET_COLUMNS:
            raise InputError(
                f"{out}: a workbook holds {MAX_SHEET_ROWS - 1:,} rows and {MAX_SHEET_COLUMNS:,} columns; write a "
                ".parquet file"
            )
        frames.append(frame)
    with path.open("wb") as handle:
        pl.concat(frames).write_excel(handle)


def _write_json_lines(predictions: Predictions, build_columns: ColumnBuilder, path: Path) -> None:
    """Write json lines; lines of a json lines input keep their bytes, with the added members before the last brace."""
    with path.open("wb") as handle:
        if not isinstance(predictions, JsonLinesPredictions):
            for frame in _frames(predictions, build_columns):
                frame.write_ndjson(handle)
            return
        first = 0
        for lines in predictions.lines():
            added = arrow_to_polars(build_columns(first, len(lines)), path).write_ndjson().encode().splitlines()
            for line, members in zip(lines, added, strict=True):
                handle.write(b"%b,%b\n" % (line[:-1], members[1:]))
            first += len(lines)


class _Piece(NamedTuple):
    """Rows of the input, and the columns that are added to them."""

    rows: pa.RecordBatch
    added: pa.RecordBatch


def _pieces(predictions: Predictions, build_columns: ColumnBuilder) -> Iterator[_Piece]:
    for batch in number_batches(predictions.batches()):
        yield _Piece(batch.rows, build_columns(batch.first, len(batch.rows)))


def _frames(predictions: Predictions, build_columns: ColumnBuilder) -> Iterator[pl.DataFrame]:
    for piece in _pieces(predictions, build_columns):
        rows = arrow_to_polars(piece.rows, predictions.path)
        yield rows.hstack(arrow_to_polars(piece.added, predictions.path))


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], *, threads: int) -> Iterator[Result]:
    """Map a function over items on threads, in the order of the items.

    Threads run in parallel, since NumPy, polars and Arrow release the interpreter lock while they compute. At most
    `threads` + 1 items are in memory at a time. Exceptions are raised where the result would be yielded.

    Args:
        function: The function.
        items: The items, which the calling thread reads.
        threads: Number of further threads.

    Yields:
        The results.
    """
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[Result]] = deque()
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
