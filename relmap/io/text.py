"""Text files of separated columns: their separator, their encoding, and the line of each row.

The file name determines the separator; if it gives a single column, another separator is tried. A file that begins with
a byte order mark of UTF-16 is read as UTF-16. Any other file that is not UTF-8 is read as Windows-1252. Notes inform
the user if the separator is not that of the file name, or the encoding is not UTF-8.
"""

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO, NamedTuple

from relmap.errors import InputError
from relmap.io.contents import WRITE_AGAIN

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
BLOCK_BYTES = 2**20  # decoded at once
SEPARATOR_LINE = re.compile(r"sep=([,;\t|])", re.IGNORECASE)
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextRecord(NamedTuple):
    """Header or row of a text file.

    Attributes:
        line: Number of its first line, from 1.
        fields: Its fields.
    """

    line: int
    fields: list[str]


@dataclass(frozen=True)
class SeparatedText:
    """A text file with a header and separated columns, plain or gzipped.

    Attributes:
        path: The file.
        separator: Separator of the columns.
        encoding: Encoding of the text.
        has_blank_rows: Whether a blank line is a row without values, as in a file of a single column.
        header_line: Number of the line of the header, from 1, below blank lines and a line such as `sep=;` of Excel.
    """

    path: Path
    separator: str = ","
    encoding: str = "utf-8"
    has_blank_rows: bool = False
    header_line: int = 1

    @classmethod
    def from_path(cls, path: Path) -> "SeparatedText":
        """Detect separator and encoding, for which the whole file is decoded once.

        Args:
            path: The file.

        Returns:
            The file with its format.

        Raises:
            InputError: A gzipped file is truncated or invalid.
        """
        text = cls(path, _separator_of_name(path), _detect_encoding(path))
        try:
            line_of_header, header = next(text.records(), TextRecord(1, [""]))
        except (UnicodeDecodeError, csv.Error):  # CsvPredictions reports this error in more detail
            return text
        line = SEPARATOR_LINE.fullmatch(text.separator.join(header))
        if line is not None:
            return cls(path, line[1], text.encoding, header_line=line_of_header + 1)
        separators = [text.separator] if len(header) > 1 else [mark for mark in SEPARATORS if mark in header[0]]
        separator = separators[0] if separators else text.separator
        return cls(path, separator, text.encoding, has_blank_rows=not separators, header_line=line_of_header)

    @property
    def notes(self) -> list[str]:
        """Sentences on an unexpected separator or encoding."""
        notes = []
        if self.separator != _separator_of_name(self.path):
            notes.append(f"{self.path} is read with columns separated by {SEPARATORS[self.separator]}.")
        if self.encoding != "utf-8":
            notes.append(f"{self.path} is not UTF-8: it is read as {self.encoding}; check that its names are correct.")
        return notes

    def records(self) -> Iterator[TextRecord]:
        """Read the header and the rows; a blank line is skipped unless `has_blank_rows`.

        Yields:
            The records in their order.

        Raises:
            InputError: A gzipped file is truncated or invalid.
        """
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        with open_bytes(self.path) as handle, TextIOWrapper(handle, encoding, newline="") as lines:
            for _ in range(1, self.header_line):
                lines.readline()
            reader = csv.reader(lines, delimiter=self.separator)
            first_line = self.header_line
            for fields in reader:
                if fields or self.has_blank_rows:
                    yield TextRecord(first_line, fields)
                first_line = self.header_line + reader.line_num

    def locate(self, row: int) -> str:
        """Name the location of a row, for messages.

        Args:
            row: Number of the row, from 0.

        Returns:
            `line N`; `row N (from 0)` if the line of the row is not found.
        """
        with suppress(csv.Error):  # a field is longer than this reader allows
            for number, record in enumerate(self.records(), start=-1):  # the header is row -1
                if number == row:
                    return f"line {record.line}"
        return f"row {row} (from 0)"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, plain or gzipped.

    Args:
        path: The file; it is gzipped if its name ends in .gz.

    Yields:
        The unpacked bytes.

    Raises:
        InputError: A gzipped file is truncated or invalid.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
        try:
            yield handle  # type: ignore[misc]
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path} is not a complete gzip file ({error}); {WRITE_AGAIN}") from None


def _separator_of_name(path: Path) -> str:
    return "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","


def _detect_encoding(path: Path) -> str:
    """Return the first encoding that decodes the whole file; UTF-8 if there is none."""
    with open_bytes(path) as handle:
        if handle.read(2) in UTF_16_MARKS:
            return "utf-16"
        for encoding in ("utf-8", "cp1252"):
            handle.seek(0)
            with suppress(UnicodeDecodeError):
                for _ in codecs.iterdecode(iter(partial(handle.read, BLOCK_BYTES), b""), encoding):
                    pass
                return encoding
    return "utf-8"
