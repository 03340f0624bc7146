"""Files of predictions, parquet, csv or json lines by the suffix of their name, read in pieces that fit in memory.

What is missing, cut off or no data at all is refused here. A csv file is text: a field stays what it is, "007" and
"1.10" too; an empty one is null, an empty one in quotes is not. The columns of a file of json lines, and their types,
are those of all its lines together. A JSON list and the first sheet of a workbook are read whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, ClassVar

import polars as pl
import pyarrow as pa
from polars.datatypes import DataTypeClass
from pyarrow import csv, parquet

from tasks.predictions.columns import FileRows
from tasks.predictions.frames import FramePredictions
from tasks.predictions.reading import AS_NAMED, Reading
from tasks.predictions.text import SeparatedText
from tasks.protocol.errors import BadInput
from tasks.provenance.hashing import sha256_of_file
from tasks.sources.contents import BYTE_ORDER_MARK, JSON_LINES, PARQUET, check_content, first_line, is_object, parsing

BLOCK = 2**22  # bytes of text that are read at once
PIECE = 2**26  # bytes of parquet, unpacked, that are read at once, and so the size of a row group that is written
PIECE_ROWS = 2**17  # and no more rows than this
LARGEST_WHOLE = 2**27  # bytes of a file that cannot be read in pieces
CSV = "a whole csv file"
ANEW = "write the predictions anew"
STRING = r'"(?:[^"\\]|\\.)*"[ \t\r]*:?'  # of JSON; a colon follows a key
PLAIN = ("integer", "floating", "boolean", "decimal128", "null", "date32", "timestamp")
TEXT = ("string", "large_string", "string_view")
LISTS = ("list", "large_list", "fixed_size_list")


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
        with parsing(path, PARQUET, ANEW), parquet.ParquetFile(path) as file:
            return cls(path, file.schema_arrow)

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

    text: SeparatedText
    schema: pa.Schema
    reading: Reading = AS_NAMED

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.text.path

    @classmethod
    def of(cls, path: Path) -> "CsvPredictions":
        """The file at `path`, of which only the header is read yet."""
        text = SeparatedText.of(path)
        with parsing(path, CSV, ANEW), cls(text, pa.schema([]))._opened(None) as reader:
            return cls(text, reader.schema)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in their order, without blank lines if there are two columns; without `columns` every column."""
        with parsing(self.path, CSV, ANEW), self._opened(columns) as reader:
            yield from reader

    def _opened(self, columns: Sequence[str] | None) -> csv.CSVStreamingReader:
        return csv.open_csv(
            self.path,
            # with threads it names no row
            read_options=csv.ReadOptions(
                block_size=BLOCK, use_threads=False, encoding=self.text.encoding.replace("utf-8", "utf8")
            ),
            parse_options=csv.ParseOptions(
                newlines_in_values=True, delimiter=self.text.separator, ignore_empty_lines=not self.text.one_column
            ),
            convert_options=csv.ConvertOptions(
                default_column_type=pa.string(),
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
        return cls(path, pl.Schema({name: _storable(kind) for name, kind in types.schema.items()}))

    @property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return _arrow(pl.DataFrame(schema=self.types)).schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in their order, without blank lines; without `columns` every column. What a line lacks is null."""
        wanted = {name: self.types[name] for name in (self.types if columns is None else columns)}
        for line, block in _blocks(self.path):
            with parsing(self.path, JSON_LINES, ANEW, block, line):
                frame = pl.read_ndjson(block, schema=wanted).rechunk()
            yield from _arrow(frame).to_batches()

    def lines(self) -> Iterator[list[bytes]]:
        """The same rows as they stand in the file."""
        for _, block in _blocks(self.path):
            yield [line.strip() for line in block.split(b"\n") if line.strip()]


def read_whole(path: Path) -> FramePredictions:
    """A JSON list of objects, or the first sheet of a workbook, which is in memory from now on."""
    if path.stat().st_size > LARGEST_WHOLE:
        raise BadInput(
            f"{path} has {path.stat().st_size / 2**20:,.0f} MiB, and {path.suffix} is read whole, up to "
            f"{LARGEST_WHOLE / 2**20:,.0f} MiB; save it as .parquet, .csv or .jsonl, which are read in pieces"
        )
    frame = _of_json(path) if path.suffix == ".json" else _of_workbook(path)
    frame = frame.cast({name: _storable(kind) for name, kind in frame.schema.items()})
    return FramePredictions(frame, sha256_of_file(path), path)


def _of_json(path: Path) -> pl.DataFrame:
    content = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    if not content.lstrip().startswith(b"["):
        raise BadInput(
            f"{path} is no JSON list of objects; name it .jsonl if it has one on each line, and write such a list from "
            "pandas with to_json(orient='records')"
        )
    with parsing(path, "a JSON list of objects", ANEW):
        frame = pl.read_json(content, infer_schema_length=None)
    if not is_object(b'{"rows": %b}' % content):
        raise BadInput(f"{path} has an object with a key twice; keep one of the two")
    return frame


def _of_workbook(path: Path) -> pl.DataFrame:
    try:
        import fastexcel  # noqa: PLC0415 - only who has a workbook needs it
    except ModuleNotFoundError:
        raise BadInput(
            f"{path}: save the sheet as .csv, or install what reads workbooks: pip install fastexcel"
        ) from None
    try:
        # what is not of the type that the first rows have would be null, and a blank row would not be there
        return pl.read_excel(path, infer_schema_length=None, drop_empty_rows=False)
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError) as error:
        raise BadInput(f"{path} is not a whole workbook ({first_line(error)}); {ANEW}") from None


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
WRITTEN = (".parquet", ".csv", ".jsonl")


def opened(path: Path, reading: Reading = AS_NAMED) -> Predictions:
    """The file of predictions at `path`, by its suffix, with columns that are understood as `reading` says.

    Raises:
        BadInput: missing, no file, another suffix, empty, a Git LFS pointer, cut off, corrupt, two columns of one name.
    """
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if suffix not in FORMATS:
        raise BadInput(f"{path}: predictions are read as {', '.join(FORMATS)}; name the file so")
    check_content(path, ANEW)
    predictions = FORMATS[suffix](path)
    with parsing(path, f"a whole {suffix[1:]} file", ANEW):  # a name may not be UTF-8
        names = predictions.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{path} has more than one column named {', '.join(twice)}; rename all but one")
    return replace(predictions, reading=reading)


def check_suffix(path: Path) -> None:
    """BadInput unless `path` is named as one of the formats is that are written."""
    if path.suffix not in WRITTEN:
        raise BadInput(f"{path}: predictions are written as {', '.join(WRITTEN)}; name the file so")


def rows_of(predictions: Predictions, first: int = 0) -> FileRows:
    """The rows of a file from row `first` on, for messages."""
    return FileRows(str(predictions.path), first, predictions.text)


def notes_on(predictions: Predictions) -> list[str]:
    """What a person should know of how a file is read, a sentence each."""
    return predictions.text.notes if predictions.text else []


def columns_of(predictions: Predictions, columns: Sequence[str]) -> pl.DataFrame:
    """The named columns of all rows; BadInput for a column that is not there, and for a bad row."""
    path = predictions.path
    missing = [name for name in columns if name not in predictions.schema.names]
    if missing:
        raise BadInput(f"{path} has no column {', '.join(missing)}; it has {', '.join(predictions.schema.names)}")
    kept = pa.schema([predictions.schema.field(name) for name in columns])
    return as_frame(pa.Table.from_batches(predictions.batches(columns), kept), path)


def numbered(pieces: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each piece of a file with the number of its first row, from 0."""
    first = 0
    for batch in pieces:
        yield first, batch
        first += len(batch)


def as_frame(rows: pa.RecordBatch | pa.Table, path: Path) -> pl.DataFrame:
    """The same rows for polars; BadInput names a column of `path` whose type it does not know."""
    for column in rows.schema:
        if not is_readable(column.type):
            raise BadInput(f"{path}: the column {column.name} is {column.type}; it must hold numbers, text or lists")
    frame = pl.DataFrame(rows.rename_columns([str(place) for place in range(rows.num_columns)]))
    frame.columns = rows.schema.names  # polars gives a column without a name another one
    return frame


def is_readable(kind: pa.DataType, *, nested: bool = True) -> bool:
    """Whether polars knows an Arrow type; where not it may abort rather than say so."""
    if pa.types.is_dictionary(kind):
        return is_readable(kind.value_type, nested=False)
    if nested and pa.types.is_struct(kind):
        return all(is_readable(part.type) for part in kind)
    if nested and _is_one_of(kind, LISTS):
        return is_readable(kind.value_type)
    return _is_one_of(kind, PLAIN + TEXT)


def _is_one_of(kind: pa.DataType, names: Sequence[str]) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _storable(kind: pl.DataType | DataTypeClass) -> pl.DataType | DataTypeClass:
    """A type, with text in place of whole numbers beyond 64 bits, which Arrow does not have."""
    match kind:
        case pl.Int128():
            return pl.String()
        case pl.List():
            return pl.List(_storable(kind.inner))
        case pl.Struct():
            return pl.Struct({part.name: _storable(part.dtype) for part in kind.fields})
        case _:
            return kind


def _arrow(frame: pl.DataFrame) -> pa.Table:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a text file, a block at a time, and the number of the first one, from 1; no block is blank."""
    line, rest = 1, b""
    with path.open("rb") as handle:
        if handle.read(3) != BYTE_ORDER_MARK:
            handle.seek(0)
        while read := handle.read(BLOCK):
            block, newline, rest = (rest + read).rpartition(b"\n")
            if block.strip():
                yield line, block + newline
            line += block.count(b"\n") + len(newline)
    if rest.strip():
        yield line, rest


def _refuse_keys_twice(path: Path, first: int, block: bytes) -> None:
    """BadInput names the first line with an object that has a key twice: one of the values would be lost."""
    lines, string = pl.Series(block.decode(errors="replace").split("\n")), pl.element()
    key = string.filter(string.str.ends_with(":")).str.head(-1).str.strip_chars_end()
    keys = lines.str.extract_all(STRING).list.eval(key)
    escaped = keys.list.eval(string.str.contains("\\", literal=True)).list.any()  # a key may be spelt in two ways
    for at in ((keys.list.n_unique() < keys.list.len()) | escaped).arg_true():
        if not is_object(lines[at].encode()):
            raise BadInput(f"{path}, line {first + at} has an object with a key twice; keep one of the two")


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
