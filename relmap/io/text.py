"""How a file of separated text is written: what parts its columns, in which encoding, and on which line a row stands.

A separator other than that of the file's name is taken where the header would be one column otherwise. A file that is
not UTF-8 is read as UTF-16, if it begins so, or as Windows-1252; whoever reads it is told.
"""

import codecs
import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from relmap.errors import InputError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
BLOCK = 2**20  # bytes that are decoded at once
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class SeparatedText:
    """A text file of columns that a separator parts, plain or gzipped, with a header."""

    path: Path
    separator: str = ","
    encoding: str = "utf-8"
    one_column: bool = False  # then a blank line is a row without a value

    @classmethod
    def of(cls, path: Path) -> "SeparatedText":
        """The file at `path`, of which all is decoded once, and the header is split."""
        text = cls(path, _by_name(path), _encoding(path))
        try:
            header = next(text.records(), (1, [""]))[1]
        except (UnicodeDecodeError, csv.Error):  # which its reader says with more words
            return text
        other = [sign for sign in SEPARATORS if sign in header[0]] if len(header) == 1 else []
        one_column = len(header) == 1 and not other
        return cls(path, other[0] if other else text.separator, text.encoding, one_column)

    @property
    def notes(self) -> list[str]:
        """What is taken of the file that its name does not say, a sentence each."""
        notes = []
        if self.separator != _by_name(self.path):
            notes.append(f"{self.path} is read as columns parted by {SEPARATORS[self.separator]}.")
        if self.encoding != "utf-8":
            notes.append(f"{self.path} is not UTF-8: it is read as {self.encoding}; see that its names come out right.")
        return notes

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """The header and each row, with the number of its first line, from 1; blank lines are rows of one column."""
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        with _bytes_of(self.path) as handle, TextIOWrapper(handle, encoding, newline="") as lines:
            reader, begins = csv.reader(lines, delimiter=self.separator), 1
            for record in reader:
                if record or self.one_column:
                    yield begins, record
                begins = reader.line_num + 1

    def place(self, row: int) -> str:
        """Where row `row` (from 0) stands, for a message."""
        try:
            at = next((line for number, (line, _) in enumerate(self.records(), -1) if number == row), None)
        except csv.Error:  # a field beyond what this reader takes
            at = None
        return f"row {row} (from 0)" if at is None else f"line {at}"


@contextmanager
def _bytes_of(path: Path) -> Iterator[IO[bytes]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
        try:
            yield handle  # type: ignore[misc]
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(f"{path} is not a whole gzip file ({error}); write the predictions anew") from None


def _by_name(path: Path) -> str:
    return "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","


def _encoding(path: Path) -> str:
    """The first encoding in which all of a file can be read; UTF-8 where there is none."""
    with _bytes_of(path) as handle:
        if handle.read(2) in UTF_16:
            return "utf-16"
        for encoding in ("utf-8", "cp1252"):
            handle.seek(0)
            with suppress(UnicodeDecodeError):
                for _ in codecs.iterdecode(iter(partial(handle.read, BLOCK), b""), encoding):
                    pass
                return encoding
    return "utf-8"
