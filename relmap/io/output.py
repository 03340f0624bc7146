"""The file of scored predictions: the input's columns as they are, then ours, a piece at a time.

Parquet keeps types, encodings and compression; a field of csv keeps its text, a line of json lines all of its bytes
when the output is json lines too. A workbook is written whole, all else in pieces. It appears whole or not at all.
"""

import csv
import gzip
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import BinaryIO, TypeVar

import polars as pl
import pyarrow as pa
from pyarrow import parquet

from relmap.errors import InputError, needs_extra
from relmap.io.atomic import check_place, write_whole
from relmap.io.files import FORMATS, JsonLinesPredictions, ParquetPredictions, Predictions, numbered, suffix_of
from relmap.io.frames import as_frame, is_readable

Added = Callable[[int, int], pa.RecordBatch]  # first row and number of rows to the columns that are added to them
NESTED = (".parquet", ".jsonl", ".json")  # formats that hold lists
MAX_SHEET_ROWS = 2**20  # of a workbook, its header included
MAX_SHEET_COLUMNS = 2**14
Item = TypeVar("Item")
Made = TypeVar("Made")


def check_output(predictions: Predictions, out: Path, split: Sequence[str] = ()) -> None:
    """InputError unless `out` is named as a format is that can hold the columns of `predictions`, and is another file.

    Columns `split` become columns of single numbers first.
    """
    suffix = suffix_of(out)
    if suffix not in FORMATS:
        raise InputError(f"{out}: predictions are written as {', '.join(FORMATS)}; name the file so")
    check_place(out, predictions.path)
    if suffix == ".xlsx":
        with needs_extra("excel"):
            import xlsxwriter  # noqa: F401, PLC0415 - only workbooks need it
    if suffix == ".parquet" or (isinstance(predictions, JsonLinesPredictions) and suffix == ".jsonl"):
        return
    for column in predictions.schema:
        if column.name not in split and not is_readable(column.type, nested=suffix in NESTED):
            raise InputError(
                f"{predictions.path}: the column {column.name} is {column.type}, which a {suffix} file cannot "
                "hold; write a .parquet file"
            )


def write_beside(predictions: Predictions, added: Added, out: Path) -> None:
    """Write the rows of `predictions` to `out`, each with what `added` gives, which is asked in their order."""
    suffix = suffix_of(out)
    if suffix == ".parquet":
        write_whole(out, lambda partial: _write_parquet(predictions, added, partial))
    elif suffix == ".jsonl":
        write_whole(out, lambda partial: _write_lines(predictions, added, partial))
    elif suffix == ".json":
        write_whole(out, lambda partial: _write_list(predictions, added, partial))
    elif suffix == ".xlsx":
        write_whole(out, lambda partial: _write_workbook(predictions, added, partial, out))
    else:
        write_whole(out, lambda partial: _write_text(predictions, added, partial, suffix))


def _write_parquet(predictions: Predictions, added: Added, path: Path) -> None:
    kept, ours = predictions.schema, added(0, 0).schema
    schema = pa.schema([*kept, *ours], metadata=kept.metadata)
    with parquet.ParquetWriter(path, schema, write_page_checksum=True, **_encoding(predictions, ours)) as writer:
        whole = (pa.record_batch([*batch, *own], schema=schema) for batch, own in _side_by_side(predictions, added))
        for _ in in_order(writer.write_batch, whole, threads=1):
            pass


def _encoding(predictions: Predictions, ours: pa.Schema) -> dict[str, object]:
    """Compression and the columns with a dictionary, as in the file that is read: a useless one takes time."""
    metadata = parquet.read_metadata(predictions.path) if isinstance(predictions, ParquetPredictions) else None
    if metadata is None or not metadata.num_row_groups or not metadata.num_columns:
        return {"compression": "zstd"}
    chunks = [metadata.row_group(0).column(place) for place in range(metadata.num_columns)]
    repeated = [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page]
    texts = [column.name for column in ours if pa.types.is_string(column.type)]
    codec = chunks[0].compression
    return {"compression": "none" if codec == "UNCOMPRESSED" else codec, "use_dictionary": [*repeated, *texts]}


def _write_text(predictions: Predictions, added: Added, path: Path, suffix: str) -> None:
    """What separates the columns of the file that is read does so here; tabs where the name says so."""
    names = [*predictions.schema.names, *added(0, 0).schema.names]
    separator = predictions.text.separator if predictions.text else ","
    if suffix.startswith(".tsv"):
        separator = "\t"
    header = StringIO(newline="")
    csv.writer(header, delimiter=separator, lineterminator="\n").writerow(names)
    with _opened(path, compressed=suffix.endswith(".gz")) as handle:
        handle.write(header.getvalue().encode())
        for frame in _frames(predictions, added):
            frame.write_csv(handle, include_header=False, separator=separator)


@contextmanager
def _opened(path: Path, *, compressed: bool) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        if not compressed:
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as handle:  # the same rows, the same bytes
            yield handle  # type: ignore[misc]


def _write_list(predictions: Predictions, added: Added, path: Path) -> None:
    """A JSON list of objects, one on each line."""
    separator = b"[\n"
    with path.open("wb") as handle:
        for frame in _frames(predictions, added):
            lines = frame.write_ndjson().encode().splitlines()
            if lines:
                handle.write(separator + b",\n".join(lines))
                separator = b",\n"
        handle.write(b"[]\n" if separator == b"[\n" else b"\n]\n")


def _write_workbook(predictions: Predictions, added: Added, path: Path, out: Path) -> None:
    """The first sheet of a workbook, in which text that begins with = stays text."""
    none = as_frame(predictions.schema.empty_table(), predictions.path)
    frames = [none.hstack(as_frame(added(0, 0), predictions.path))]
    n_rows = 0
    for frame in _frames(predictions, added):
        n_rows += len(frame)
        if n_rows >= MAX_SHEET_ROWS or frame.width > MAX_SHEET_COLUMNS:
            raise InputError(
                f"{out}: a workbook holds {MAX_SHEET_ROWS - 1:,} rows and {MAX_SHEET_COLUMNS:,} columns; write a "
                ".parquet file"
            )
        frames.append(frame)
    with path.open("wb") as handle:
        pl.concat(frames).write_excel(handle)


def _write_lines(predictions: Predictions, added: Added, path: Path) -> None:
    """Of json lines each line stays as it is, with more members before its last bracket."""
    first = 0
    with path.open("wb") as handle:
        if not isinstance(predictions, JsonLinesPredictions):
            for frame in _frames(predictions, added):
                frame.write_ndjson(handle)
            return
        for lines in predictions.lines():
            own = as_frame(added(first, len(lines)), path).write_ndjson().encode().splitlines()
            handle.writelines(b"%b,%b\n" % (line[:-1], more[1:]) for line, more in zip(lines, own, strict=True))
            first += len(lines)


def _frames(predictions: Predictions, added: Added) -> Iterator[pl.DataFrame]:
    for batch, own in _side_by_side(predictions, added):
        yield as_frame(batch, predictions.path).hstack(as_frame(own, predictions.path))


def _side_by_side(predictions: Predictions, added: Added) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    for first, batch in numbered(predictions.batches()):
        yield batch, added(first, len(batch))


def in_order(function: Callable[[Item], Made], items: Iterable[Item], *, threads: int) -> Iterator[Made]:
    """`function` of each item, in the order of the items, on `threads` threads beside the one that takes the items.

    NumPy, polars and Arrow let other threads run while they compute. Only as many items as there are threads, and one
    more, are in memory at a time. What is raised comes through.
    """
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[Made]] = deque()
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
