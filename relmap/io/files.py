"""Files of predictions: parquet, separated text and json lines, read in pieces that fit in memory.

All columns of separated text are text: "007" and "1.10" remain as they are. An empty field is null, unless it is in
quotes. A json lines file has every column that occurs in a line, with a type that fits all lines. JSON lists and
workbooks are read into memory, see `frames`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, ClassVar, NamedTuple

import polars as pl
import pyarrow as pa
from pyarrow import csv, parquet

from relmap.errors import InputError
from relmap.io.column_layout import DEFAULT_READING, Reading, advise_header, check_header
from relmap.io.columns import FileRows
from relmap.io.contents import (
    BYTE_ORDER_MARK,
    JSON_LINES,
    PARQUET,
    WRITE_AGAIN,
    check_content,
    combine_column_types,
    infer_column_types,
    is_json_object,
    report_parse_errors,
)
from relmap.io.frames import BATCH_ROWS, FramePredictions, arrow_to_polars, cast_for_arrow, read_whole
from relmap.io.text import SeparatedText

BLOCK_BYTES = 2**22  # of text, read at once
HEADER_BYTES = 2**16  # of text, read for the names of the columns
MAX_LINE_BYTES = 2**24  # of JSON; a line is read as a whole
BATCH_BYTES = 2**26  # of decompressed parquet, read at once as one piece; each piece is written as one row group
BUFFER_BYTES = 2**20
HEAD_CHARACTERS = 1000
CHECK_NAME = "check its name and its folder"
PAGE_HEADER_BYTES = 32
CHECKSUM_FIELD = 4  # of a page header
THRIFT_INTEGER = 5  # type code of the compact protocol
CSV = "a complete csv file"
JSON_STRING = r'"(?:[^"\\]|\\.)*"[ \t\r]*:?'  # a colon follows a key


@dataclass(frozen=True)
class ParquetPredictions:
    """Predictions in a parquet file.

    Attributes:
        path: The file.
        schema: Names and types of the columns.
        reading: Names and units of the columns.
    """

    text: ClassVar[SeparatedText | None] = None
    path: Path
    schema: pa.Schema
    reading: Reading = DEFAULT_READING

    @classmethod
    def from_path(cls, path: Path) -> "ParquetPredictions":
        """Read the footer of a file.

        Args:
            path: The file.

        Returns:
            The predictions.

        Raises:
            InputError: It is not a parquet file.
        """
        with report_parse_errors(path, PARQUET, WRITE_AGAIN):
            return cls(path, parquet.read_schema(path))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows in pieces of about `BATCH_BYTES`, but at most `BATCH_ROWS` rows.

        Args:
            columns: Columns to read; None for all.

        Yields:
            The rows in their order.

        Raises:
            InputError: The file is corrupted.
        """
        with report_parse_errors(self.path, PARQUET, WRITE_AGAIN), self._open() as file:
            metadata = file.metadata
            total_bytes = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
            rows_per_batch = BATCH_BYTES * metadata.num_rows // max(total_bytes, 1)
            for batch in file.iter_batches(min(max(rows_per_batch, 1), BATCH_ROWS), columns=columns):
                yield batch if columns is None else batch.select(columns)

    def has_checksums(self) -> bool:
        """Return whether the first page of each column has a checksum in every row group.

        Checksums that exist are verified whenever rows are read.

        Returns:
            Whether all of these pages have one.

        Raises:
            InputError: The file is corrupted.
        """
        with (
            report_parse_errors(self.path, PARQUET, WRITE_AGAIN),
            self._open() as file,
            self.path.open("rb") as handle,
        ):
            for group_index in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(group_index)
                chunks = [group.column(index) for index in range(group.num_columns)]
                if not all(_has_checksum(handle, chunk) for chunk in chunks if chunk.num_values):
                    return False
        return True

    def _open(self) -> parquet.ParquetFile:
        # without a buffer, whole columns of a row group would be in memory, even if it has all rows of the file
        return parquet.ParquetFile(
            self.path, buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
        )


@dataclass(frozen=True)
class CsvPredictions:
    """Predictions in a file of separated text with a header; every column is text.

    Attributes:
        path: The file.
        schema: Names of the columns.
        text: Separator and encoding.
        reading: Names and units of the columns.
    """

    path: Path
    schema: pa.Schema
    text: SeparatedText
    reading: Reading = DEFAULT_READING

    @classmethod
    def from_path(cls, path: Path) -> "CsvPredictions":
        """Read the header of a file.

        Args:
            path: The file.

        Returns:
            The predictions.

        Raises:
            InputError: It is not separated text.
        """
        text = SeparatedText.from_path(path)
        with report_parse_errors(path, CSV, WRITE_AGAIN):
            names = cls(path, pa.schema([]), text)._read_names()
        return cls(path, pa.schema([(name, pa.string()) for name in names]), text)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows in pieces; a blank line is skipped unless `text.has_blank_rows`.

        Args:
            columns: Columns to read; None for all.

        Yields:
            The rows in their order.

        Raises:
            InputError: A row has another number of fields, or cannot be decoded.
        """
        with report_parse_errors(self.path, CSV, WRITE_AGAIN), self._open(columns) as reader:
            yield from reader

    def _open(self, columns: Sequence[str] | None) -> csv.CSVStreamingReader:
        # pyarrow before 25 can set the type of named columns only
        names = self.schema.names if columns is None else columns
        return csv.open_csv(
            self.path,
            read_options=self._read_options(BLOCK_BYTES),
            parse_options=self._parse_options,
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=columns,
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=False,
            ),
        )

    def _read_names(self) -> list[str]:
        """Read the header and the types of the first rows, which PyArrow infers too."""
        try:
            return self._read_names_in(HEADER_BYTES)
        except pa.ArrowInvalid:  # a longer header or first row, or no separated text
            return self._read_names_in(BLOCK_BYTES)

    def _read_names_in(self, block_size: int) -> list[str]:
        options = self._read_options(block_size)
        with csv.open_csv(self.path, read_options=options, parse_options=self._parse_options) as reader:
            names: list[str] = reader.schema.names
            return names

    def _read_options(self, block_size: int) -> csv.ReadOptions:
        return csv.ReadOptions(
            block_size=block_size,
            use_threads=False,  # errors in threads do not name the row
            encoding=self.text.encoding.replace("utf-8", "utf8"),
            skip_rows=self.text.header_line - 1,
        )

    @property
    def _parse_options(self) -> csv.ParseOptions:
        return csv.ParseOptions(
            newlines_in_values=True, delimiter=self.text.separator, ignore_empty_lines=not self.text.has_blank_rows
        )


@dataclass(frozen=True)
class JsonLinesPredictions:
    """Predictions in a file with one JSON object on each line.

    Attributes:
        path: The file.
        schema: Names and Arrow types of the columns.
        types: Names and polars types of the columns; the types fit all lines.
        reading: Names and units of the columns.
    """

    text: ClassVar[SeparatedText | None] = None
    path: Path
    schema: pa.Schema
    types: pl.Schema = field(repr=False)
    reading: Reading = DEFAULT_READING

    @classmethod
    def from_path(cls, path: Path) -> "JsonLinesPredictions":
        """Read a whole file to find its columns and their types.

        Args:
            path: The file.

        Returns:
            The predictions.

        Raises:
            InputError: A line is not a JSON object, or has a repeated key.
        """
        schema = pl.Schema()
        for block in _text_blocks(path):
            with report_parse_errors(path, JSON_LINES, WRITE_AGAIN, block.content, block.first_line):
                schema = combine_column_types(schema, infer_column_types(block.content))
                _reject_repeated_keys(path, block)
        types = cast_for_arrow(pl.DataFrame(schema=schema))
        return cls(path, FramePredictions(types, "").schema, types.schema)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows in pieces; blank lines are skipped, and missing members are null.

        Args:
            columns: Columns to read; None for all.

        Yields:
            The rows in their order.

        Raises:
            InputError: A line is not a JSON object.
        """
        schema = {name: self.types[name] for name in (self.types if columns is None else columns)}
        for block in _text_blocks(self.path):
            with report_parse_errors(self.path, JSON_LINES, WRITE_AGAIN, block.content, block.first_line):
                frame = pl.read_ndjson(block.content, schema=schema).rechunk()
            yield from FramePredictions(frame, "").batches()

    def lines(self) -> Iterator[list[bytes]]:
        """Read the lines of the rows, without blank ones.

        Yields:
            The lines of a piece, without surrounding spaces.
        """
        for block in _text_blocks(self.path):
            yield [line.strip() for line in block.content.split(b"\n") if line.strip()]


Predictions = ParquetPredictions | CsvPredictions | JsonLinesPredictions | FramePredictions
FORMATS: dict[str, Callable[[Path], Predictions]] = {
    ".parquet": ParquetPredictions.from_path,
    ".csv": CsvPredictions.from_path,
    ".jsonl": JsonLinesPredictions.from_path,
    ".ndjson": JsonLinesPredictions.from_path,
    ".tsv": CsvPredictions.from_path,
    ".csv.gz": CsvPredictions.from_path,
    ".tsv.gz": CsvPredictions.from_path,
    ".json": read_whole,
    ".xlsx": read_whole,
}


def open_predictions(path: Path, reading: Reading = DEFAULT_READING) -> Predictions:
    """Open a file of predictions; its suffix determines the format.

    Args:
        path: The file.
        reading: Names and units of the columns.

    Returns:
        The predictions.

    Raises:
        InputError: The file is missing, empty, truncated or corrupted, has an unknown suffix, contains no data, or has
            a repeated column.
    """
    suffix = format_suffix(path)
    if suffix not in FORMATS:
        remedy = "unpack the file" if suffix.endswith(".gz") else "rename the file accordingly"
        if not path.exists():
            raise InputError(f"{path} is missing; {CHECK_NAME}")
        raise InputError(f"{path}: predictions are read as {', '.join(FORMATS)}; {remedy}{_advise_text_format(path)}")
    check_content(path, WRITE_AGAIN if path.exists() else CHECK_NAME)
    predictions = FORMATS[suffix](path)
    with report_parse_errors(path, f"a complete {suffix[1:]} file", WRITE_AGAIN):  # a column name may not be UTF-8
        names = predictions.schema.names
    n_unnamed = names.count("")
    if n_unnamed > 1:
        raise InputError(
            f"{path} has {n_unnamed} columns without a name; name them, or remove the separators at the ends of lines"
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(
            f"{path} has more than one column named {', '.join(repeated)}; rename all but one{advise_header(names)}"
        )
    if predictions.text is not None:
        check_header(names, str(path), reading)
    return replace(predictions, reading=reading)


def _advise_text_format(path: Path) -> str:
    """Advise, as the end of a message, how to write a text file whose suffix is unknown, such as a run of TREC."""
    try:
        with path.open(encoding="utf-8") as lines:
            first_line = lines.readline(HEAD_CHARACTERS)
    except (OSError, UnicodeDecodeError):
        return ""
    return advise_header([first_line.strip()]) or advise_header(first_line.split("\t"))


def format_suffix(path: Path) -> str:
    """Return the suffix that determines the format, such as `.csv` or `.csv.gz`.

    Args:
        path: The file.

    Returns:
        The suffix.
    """
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def rows_in_file(predictions: Predictions, first: int = 0) -> FileRows:
    """Return the row or line numbers of consecutive rows of a file, for messages.

    Args:
        predictions: The file.
        first: Number of the first of these rows in the file, from 0.

    Returns:
        The rows from the first one on.
    """
    is_sheet = predictions.path.suffix == ".xlsx"
    return FileRows(str(predictions.path), first, predictions.text, is_sheet=is_sheet)


def reading_notes(predictions: Predictions) -> list[str]:
    """Return notes for the user on how a file is read.

    Args:
        predictions: The file.

    Returns:
        Sentences.
    """
    return predictions.text.notes if predictions.text else []


def read_columns(predictions: Predictions, columns: Sequence[str]) -> pl.DataFrame:
    """Read columns of all rows.

    Args:
        predictions: The file.
        columns: Names of the columns.

    Returns:
        The rows.

    Raises:
        InputError: A column is missing, or a row cannot be read.
    """
    names = predictions.schema.names
    missing = [name for name in columns if name not in names]
    if missing:
        raise InputError(f"{predictions.path} has no column {', '.join(missing)}; it has {', '.join(names)}")
    if isinstance(predictions, FramePredictions):
        return predictions.read(columns)
    schema = pa.schema([predictions.schema.field(name) for name in columns])
    return arrow_to_polars(pa.Table.from_batches(predictions.batches(columns), schema), predictions.path)


def read_frame(predictions: Predictions, without: Sequence[str] = ()) -> FramePredictions:
    """Read all rows of a file into memory.

    Args:
        predictions: The file.
        without: Columns to omit, if the file has them.

    Returns:
        The rows, with the file's path for messages.

    Raises:
        InputError: A row cannot be read.
    """
    names = [name for name in predictions.schema.names if name not in without]
    return FramePredictions(
        frame=read_columns(predictions, names),
        sha256="",
        path=predictions.path,
        reading=predictions.reading,
        text=predictions.text,
    )


class NumberedBatch(NamedTuple):
    """A piece of a file.

    Attributes:
        first: Number in the file of the first row of the piece, from 0.
        rows: The rows of the piece.
    """

    first: int
    rows: pa.RecordBatch


def number_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[NumberedBatch]:
    """Add to each piece of a file the number of its first row.

    Args:
        batches: The pieces.

    Yields:
        The numbered pieces.
    """
    first = 0
    for batch in batches:
        yield NumberedBatch(first, batch)
        first += len(batch)


class _TextBlock(NamedTuple):
    """Whole lines of a file, and the number of the first one, from 1."""

    first_line: int
    content: bytes


def _text_blocks(path: Path) -> Iterator[_TextBlock]:
    """Read a text file in blocks of whole lines, without blank blocks."""
    first_line = 1
    with path.open("rb") as handle:
        if handle.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
            handle.seek(0)
        while True:
            content = handle.read(BLOCK_BYTES)
            rest_of_line = handle.readline(MAX_LINE_BYTES)
            if len(rest_of_line) == MAX_LINE_BYTES and not rest_of_line.endswith(b"\n"):
                number = first_line + content.count(b"\n")
                raise InputError(
                    f"{path}, line {number} has more than {MAX_LINE_BYTES // 2**20} MiB; "
                    "write one object on each line, or rename a JSON list to .json"
                )
            content += rest_of_line
            if not content:
                return
            if content.strip():
                yield _TextBlock(first_line, content)
            first_line += content.count(b"\n")


def _reject_repeated_keys(path: Path, block: _TextBlock) -> None:
    """Reject an object that has a key twice, since one of the values would be lost."""
    # a fast search finds suspicious lines, which are then parsed
    lines = pl.Series(block.content.decode(errors="replace").split("\n"))
    string = pl.element()
    key = string.filter(string.str.ends_with(":")).str.head(-1).str.strip_chars_end()
    keys = lines.str.extract_all(JSON_STRING).list.eval(key)
    # with escapes, the same key can be spelled in several ways
    has_escapes = keys.list.eval(string.str.contains("\\", literal=True)).list.any()
    is_suspicious = (keys.list.n_unique() < keys.list.len()) | has_escapes
    for index in is_suspicious.arg_true():
        if not is_json_object(lines[index].encode()):
            raise InputError(
                f"{path}, line {block.first_line + index} has an object with a repeated key; keep one of the two"
            )


def _has_checksum(handle: BinaryIO, chunk: parquet.ColumnChunkMetaData) -> bool:
    """Return whether the header of the first page has field 4, a CRC-32, which PyArrow verifies but does not expose.

    The header is in Thrift's compact protocol. Each field begins with a byte: the upper 4 bits are the field number
    minus the previous field number, and the lower 4 bits are the type (5 is an integer). The integer follows; each of
    its bytes but the last has the highest bit set.
    """
    handle.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
    header = handle.read(PAGE_HEADER_BYTES)
    position = 0
    field_number = 0
    while field_number < CHECKSUM_FIELD:
        distance, type_code = divmod(header[position], 16)
        if not distance or type_code != THRIFT_INTEGER:
            return False
        field_number += distance
        position += 1
        while header[position] >= 128:
            position += 1
        position += 1
    return field_number == CHECKSUM_FIELD
