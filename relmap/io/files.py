"""Files of predictions, parquet, csv or json lines by the suffix of their name, read in pieces that fit in memory.

What is missing, cut off or no data at all is refused here. A csv file is text: a field stays what it is, "007" and
"1.10" too; an empty one is null, an empty one in quotes is not. The columns of a file of json lines, and their types,
are those of all its lines together. A JSON list and a workbook are read whole, see `frames`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, ClassVar

import polars as pl
import pyarrow as pa
from pyarrow import csv, parquet

from relmap.errors import InputError
from relmap.io.columns import FileRows
from relmap.io.contents import BYTE_ORDER_MARK, JSON_LINES, PARQUET, check_content, is_object, parsing
from relmap.io.frames import ANEW, PIECE_ROWS, FramePredictions, as_frame, read_whole, storable
from relmap.io.reading import AS_NAMED, Reading
from relmap.io.text import SeparatedText

BLOCK = 2**22  # bytes of text that are read at once
PIECE = 2**26  # bytes of parquet, unpacked, that are read at once, and so the size of a row group; or PIECE_ROWS
CSV = "a whole csv file"
STRING = r'"(?:[^"\\]|\\.)*"[ \t\r]*:?'  # of JSON; a colon follows a key


@dataclass(frozen=True)
class ParquetPredictions:
    """A parquet file."""

    text: ClassVar[SeparatedText | None] = None
    path: Path
    schema: pa.Schema
    reading: Reading = AS_NAMED

    @classmethod
    def of(cls, path: Path) -> "ParquetPredictions":
        """The file at `path`, of which only the footer is read yet."""
        with parsing(path, PARQUET, ANEW):
            return cls(path, parquet.read_schema(path))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in their order; without `columns` every column."""
        with parsing(self.path, PARQUET, ANEW), self._opened() as file:
            size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
            rows = PIECE * file.metadata.num_rows // max(size, 1)
            for batch in file.iter_batches(min(max(rows, 1), PIECE_ROWS), columns=columns):
                yield batch if columns is None else batch.select(columns)

    def has_checksums(self) -> bool:
        """Whether every column begins with a page that carries a checksum; all that are there are verified."""
        with parsing(self.path, PARQUET, ANEW), self._opened() as file, self.path.open("rb") as handle:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            chunks = (group.column(place) for group in groups for place in range(group.num_columns))
            return all(_begins_with_checksum(handle, chunk) for chunk in chunks if chunk.num_values)

    def _opened(self) -> parquet.ParquetFile:
        # buffered, or a whole column of a row group is in memory, however many rows that has
        return parquet.ParquetFile(self.path, buffer_size=2**20, pre_buffer=False, page_checksum_verification=True)


@dataclass(frozen=True)
class CsvPredictions:
    """A file of separated text with a header; every column is text."""

    path: Path
    schema: pa.Schema
    text: SeparatedText
    reading: Reading = AS_NAMED

    @classmethod
    def of(cls, path: Path) -> "CsvPredictions":
        """The file at `path`, of which only the header is read yet."""
        text = SeparatedText.of(path)
        with parsing(path, CSV, ANEW), cls(path, pa.schema([]), text)._opened(None) as reader:
            return cls(path, reader.schema, text)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in their order, without blank lines if there are two columns; without `columns` every column."""
        with parsing(self.path, CSV, ANEW), self._opened(columns) as reader:
            yield from reader

    def _opened(self, columns: Sequence[str] | None) -> csv.CSVStreamingReader:
        # with threads it names no row
        read_options = csv.ReadOptions(
            block_size=BLOCK, use_threads=False, encoding=self.text.encoding.replace("utf-8", "utf8")
        )
        parse_options = csv.ParseOptions(
            newlines_in_values=True, delimiter=self.text.separator, ignore_empty_lines=not self.text.one_column
        )
        if columns is None:  # pyarrow before 25 has no type for all columns, only for named ones
            with csv.open_csv(self.path, read_options=read_options, parse_options=parse_options) as header:
                names = header.schema.names
        else:
            names = columns
        return csv.open_csv(
            self.path,
            read_options=read_options,
            parse_options=parse_options,
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=columns,
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=False,
            ),
        )


@dataclass(frozen=True)
class JsonLinesPredictions:
    """A file with one JSON object on each line."""

    text: ClassVar[SeparatedText | None] = None
    path: Path
    schema: pa.Schema
    types: pl.Schema = field(repr=False)  # of all lines together
    reading: Reading = AS_NAMED

    @classmethod
    def of(cls, path: Path) -> "JsonLinesPredictions":
        """The file at `path`, all of which is read for its columns and their types."""
        types = pl.DataFrame()
        for line, block in _blocks(path):
            with parsing(path, JSON_LINES, ANEW, block, line):
                in_block = pl.scan_ndjson(block, infer_schema_length=None).collect_schema()
                _refuse_keys_twice(path, line, block)
                types = pl.concat([types, pl.DataFrame(schema=in_block)], how="diagonal_relaxed")
        types = storable(types)
        return cls(path, FramePredictions(types, "").schema, types.schema)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in their order, without blank lines; without `columns` every column. What a line lacks is null."""
        wanted = {name: self.types[name] for name in (self.types if columns is None else columns)}
        for line, block in _blocks(self.path):
            with parsing(self.path, JSON_LINES, ANEW, block, line):
                frame = pl.read_ndjson(block, schema=wanted).rechunk()
            yield from FramePredictions(frame, "").batches()

    def lines(self) -> Iterator[list[bytes]]:
        """The same rows as they stand in the file."""
        for _, block in _blocks(self.path):
            yield [line.strip() for line in block.split(b"\n") if line.strip()]


Predictions = ParquetPredictions | CsvPredictions | JsonLinesPredictions | FramePredictions
FORMATS: dict[str, Callable[[Path], Predictions]] = {
    ".parquet": ParquetPredictions.of,
    ".csv": CsvPredictions.of,
    ".jsonl": JsonLinesPredictions.of,
    ".tsv": CsvPredictions.of,
    ".csv.gz": CsvPredictions.of,
    ".tsv.gz": CsvPredictions.of,
    ".json": read_whole,
    ".xlsx": read_whole,
}


def opened(path: Path, reading: Reading = AS_NAMED) -> Predictions:
    """The file of predictions at `path`, by its suffix, with columns that are understood as `reading` says.

    Raises:
        InputError: missing, no file, another suffix, empty, a Git LFS pointer, cut off, corrupt, or two columns of one
            name.
    """
    suffix = suffix_of(path)
    if suffix not in FORMATS:
        raise InputError(f"{path}: predictions are read as {', '.join(FORMATS)}; name the file so")
    check_content(path, ANEW)
    predictions = FORMATS[suffix](path)
    with parsing(path, f"a whole {suffix[1:]} file", ANEW):  # a name may not be UTF-8
        names = predictions.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{path} has more than one column named {', '.join(twice)}; rename all but one")
    return replace(predictions, reading=reading)


def suffix_of(path: Path) -> str:
    """Return the end of a name that tells the format, such as `.csv` or `.csv.gz`."""
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def rows_of(predictions: Predictions, first: int = 0) -> FileRows:
    """The rows of a file from row `first` on, for messages."""
    return FileRows(str(predictions.path), first, predictions.text)


def notes_on(predictions: Predictions) -> list[str]:
    """What a person should know of how a file is read, a sentence each."""
    return predictions.text.notes if predictions.text else []


def columns_of(predictions: Predictions, columns: Sequence[str]) -> pl.DataFrame:
    """The named columns of all rows; InputError for a column that is not there, and for a bad row."""
    path, names = predictions.path, predictions.schema.names
    if missing := [name for name in columns if name not in names]:
        raise InputError(f"{path} has no column {', '.join(missing)}; it has {', '.join(names)}")
    kept = pa.schema([predictions.schema.field(name) for name in columns])
    return as_frame(pa.Table.from_batches(predictions.batches(columns), kept), path)


def numbered(pieces: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each piece of a file with the number of its first row, from 0."""
    first = 0
    for batch in pieces:
        yield first, batch
        first += len(batch)


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a text file, a block at a time, and the number of the first one, from 1; no block is blank."""
    line = 1
    with path.open("rb") as handle:
        if handle.read(3) != BYTE_ORDER_MARK:
            handle.seek(0)
        while block := handle.read(BLOCK) + handle.readline():
            if block.strip():
                yield line, block
            line += block.count(b"\n")


def _refuse_keys_twice(path: Path, first: int, block: bytes) -> None:
    """InputError names the first line with an object that has a key twice: one of the values would be lost."""
    lines, string = pl.Series(block.decode(errors="replace").split("\n")), pl.element()
    key = string.filter(string.str.ends_with(":")).str.head(-1).str.strip_chars_end()
    keys = lines.str.extract_all(STRING).list.eval(key)
    escaped = keys.list.eval(string.str.contains("\\", literal=True)).list.any()  # a key may be spelt in two ways
    for at in ((keys.list.n_unique() < keys.list.len()) | escaped).arg_true():
        if not is_object(lines[at].encode()):
            raise InputError(f"{path}, line {first + at} has an object with a key twice; keep one of the two")


def _begins_with_checksum(handle: BinaryIO, chunk: parquet.ColumnChunkMetaData) -> bool:
    """Whether the header of the first page has its field 4, a CRC-32; which PyArrow verifies, but does not tell.

    Thrift's compact protocol: for each field a byte with its distance from the one before and its type (5: an integer),
    then the integer, of which each byte but the last has its highest bit set.
    """
    handle.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
    head, at, number = handle.read(32), 0, 0
    while number < 4:
        distance, kind = divmod(head[at], 16)
        if not distance or kind != 5:
            return False
        number += distance
        at += 1 + next(place for place, byte in enumerate(head[at + 1 :], 1) if byte < 128)
    return number == 4
