"""Read columns of raw files with checked types. Errors name the file, row and column.

Repositories of the Hugging Face hub are read with the library `datasets`. Each file is checked first, since the library
silently casts numbers to text and reports a web page as a broken footer. Nothing is written outside a temporary folder,
and no network is used.
"""

import errno
import gzip
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl
import polars.selectors as cs

from relmap.errors import InputError
from relmap.io.contents import check_content
from relmap.io.files import CsvPredictions, open_predictions, read_frame, reading_notes
from tasks.sources.hub import INDEX

if TYPE_CHECKING:
    import datasets

logger = logging.getLogger(__name__)

ROW_NUMBER = "(row)"  # column that counts the rows of a raw file from 1, for messages and pair identifiers

# Characters that Python's `str.strip` removes. Polars removes them too by default, except U+001C to U+001F.
WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

GZIP_MAGIC = b"\x1f\x8b"
FETCH_AGAIN = "run the download stage again, or fetch the file again"
FULL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT)
MAX_CAUSE_LENGTH = 300

# Kind of a column -> the columns that are accepted, and the type to which they are converted.
_TEXTS = cs.by_dtype(pl.String, pl.Null)
KINDS: Mapping[str, tuple[cs.Selector, pl.DataType | type[pl.DataType]]] = {
    "text": (_TEXTS, pl.String),
    "text or number": (_TEXTS | cs.boolean() | cs.numeric(), pl.String),
    "integer": (cs.integer(), pl.Int64),
    "list of texts": (cs.list(_TEXTS), pl.List(pl.String)),
    "list of integers": (cs.list(cs.integer()), pl.List(pl.Int64)),
    "list of lists of numbers": (cs.list(cs.list(cs.numeric())), pl.List(pl.List(pl.Float32))),
}


@contextmanager
def unpack(path: Path) -> Iterator[Path]:
    """Check the content of a raw file, and unpack a gzip file into a temporary folder.

    Args:
        path: Raw file.

    Yields:
        The path of the plain file. An InputError inside the `with` block that names it is changed to name `path`.

    Raises:
        InputError: The file is missing, empty, a Git LFS pointer, a web page, or an incomplete gzip file.
    """
    head = check_content(path, FETCH_AGAIN)
    if not head.startswith(GZIP_MAGIC):
        if path.suffix == ".gz":
            raise InputError(f"{path} is named .gz but begins with {head[:8]!r}, which is not gzip; {FETCH_AGAIN}")
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.name.removesuffix(".gz")
        try:
            with gzip.open(path) as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{path} is an incomplete or corrupt gzip file ({error}); {FETCH_AGAIN}") from None
        except OSError as error:
            raise _explain_machine_error(error) from None
        try:
            check_content(plain, FETCH_AGAIN)
            yield plain
        except InputError as error:
            raise InputError(str(error).replace(str(plain), str(path))) from None


def read_columns(path: Path, kinds: Mapping[str, str]) -> pl.DataFrame:
    """Read columns of a table as the library does.

    An empty field of a CSV or TSV file is null. Rows of empty fields and blank lines are counted, but omitted.

    Args:
        path: File.
        kinds: Column -> required kind, a key of KINDS.

    Returns:
        ROW_NUMBER and the columns.

    Raises:
        InputError: The table cannot be read, lacks a column, or has a column ROW_NUMBER.
    """
    with unpack(path) as plain:
        table = open_predictions(plain)
        for note in reading_notes(table):
            logger.info(note.replace(str(plain), str(path)))
        names = table.schema.names
        require_columns(path, names, kinds)
        if ROW_NUMBER in names:
            raise InputError(f"{path} has a column {ROW_NUMBER!r}, as row numbers are named here; rename it")
        if isinstance(table, CsvPredictions):
            table = replace(table, text=replace(table.text, has_blank_rows=True))
            rows = read_frame(table).frame.with_row_index(ROW_NUMBER, offset=1)
            rows = rows.filter(~pl.all_horizontal(pl.exclude(ROW_NUMBER).is_null()))
        else:
            unused = [name for name in names if name not in kinds]
            rows = read_frame(table, unused).frame.with_row_index(ROW_NUMBER, offset=1)
    return select_typed(path, rows, kinds)


def select_typed(path: Path, rows: pl.DataFrame, kinds: Mapping[str, str]) -> pl.DataFrame:
    """Select columns and cast them to their kinds.

    Args:
        path: File, for messages.
        rows: Rows with ROW_NUMBER and the columns.
        kinds: Column -> required kind, a key of KINDS.

    Returns:
        ROW_NUMBER and the columns.

    Raises:
        InputError: A column is of another kind, or there are no rows.
    """
    columns = []
    for column, kind in kinds.items():
        accepted, dtype = KINDS[kind]
        if column not in cs.expand_selector(rows, accepted):
            raise InputError(f"{path}, column {column!r} is {rows.schema[column]}, not {kind}; write it as {kind}")
        columns.append(pl.col(column).cast(dtype))
    frame = rows.select(ROW_NUMBER, *columns)
    if frame.is_empty():
        raise InputError(f"{path} has no rows; {FETCH_AGAIN}")
    return frame


def require_columns(path: Path, columns: Sequence[str], required: Iterable[str]) -> None:
    """Check that a file has all required columns.

    Args:
        path: File, for messages.
        columns: Columns of the file.
        required: Names of the required columns.

    Raises:
        InputError: A column is missing. The message lists those that exist.
    """
    missing = [column for column in required if column not in columns]
    if missing:
        existing = ", ".join(column for column in columns if column != ROW_NUMBER)
        raise InputError(f"{path} has no column {', '.join(map(repr, missing))}; it has {existing}")


def forbid_rows(
    frame: pl.DataFrame, is_wrong: pl.Expr, path: Path, column: str, remedy: str, *, name_in_file: str | None = None
) -> None:
    """Check that no row satisfies a condition.

    Args:
        frame: Rows with ROW_NUMBER.
        is_wrong: Condition.
        path: File, for messages.
        column: Column whose value the message quotes.
        remedy: What the value should be.
        name_in_file: Name of the column in the file, if it was renamed.

    Raises:
        InputError: A row satisfies the condition. The message names the first one.
    """
    wrong = frame.filter(is_wrong)
    if wrong.is_empty():
        return
    others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    row = wrong[ROW_NUMBER][0]
    value = wrong[column][0]
    raise InputError(f"{path}, row {row}, column {(name_in_file or column)!r}: found {value!r}{others}; {remedy}")


@dataclass(frozen=True)
class RepositoryRows:
    """Rows of one split of a repository, stored on disk.

    Attributes:
        path: `<raw folder>/<config>/<split>`, for messages.
        data: The rows.
    """

    path: Path
    data: "datasets.Dataset"

    def take(self, positions: np.ndarray) -> "RepositoryRows":
        """Return the rows at some positions, shape (n,)."""
        return RepositoryRows(self.path, self.data.select(positions))

    def table(self, kinds: Mapping[str, str]) -> pl.DataFrame:
        """Read columns.

        Args:
            kinds: Column -> required kind, a key of KINDS.

        Returns:
            ROW_NUMBER and the columns.
        """
        require_columns(self.path, self.data.column_names, kinds)
        frame = self.data.select_columns(list(kinds)).to_polars().with_row_index(ROW_NUMBER, offset=1)
        return select_typed(self.path, frame, kinds)

    def labelled_table(self, kinds: Mapping[str, str], labels: tuple[str, ...], label: str = "label") -> pl.DataFrame:
        """Read columns, with identifiers and checked labels of the rows.

        Args:
            kinds: Column -> required kind, a key of KINDS.
            labels: Names of the labels 0..K-1.
            label: Column of the labels.

        Returns:
            As `table`, with `pair` (`<split>:<row>`, rows counted from 1) and `label`.

        Raises:
            InputError: A label is not in 0..K-1.
        """
        return self.check_labels(self.table(kinds), labels, label)

    def check_labels(self, frame: pl.DataFrame, labels: tuple[str, ...], label: str = "label") -> pl.DataFrame:
        """Check the labels of rows, and add identifiers.

        Args:
            frame: Rows of `table`.
            labels: Names of the labels 0..K-1.
            label: Column of the labels.

        Returns:
            The rows with `pair` (`<split>:<row>`, rows counted from 1) and `label`.

        Raises:
            InputError: A label is not in 0..K-1.
        """
        is_known = pl.col(label).is_between(0, len(labels) - 1).fill_null(False)
        names = ", ".join(f"{code} ({name})" for code, name in enumerate(labels))
        forbid_rows(frame, ~is_known, self.path, label, f"it must be one of {names}")
        pair = pl.format("{}:{}", pl.lit(self.path.name), ROW_NUMBER)
        return frame.with_columns(pl.col(label).cast(pl.Int8).alias("label"), pair=pair)

    def texts_by_id(self, *, with_title: bool = True) -> pl.DataFrame:
        """Read the texts of queries or documents. Texts and titles are stripped; a text may be empty.

        Args:
            with_title: True if a title that is not blank comes first, on a line of its own.

        Returns:
            Frame with `id` and `text`.

        Raises:
            InputError: An identifier occurs twice.
        """
        key = "_id" if "_id" in self.data.column_names else "id"
        title = {"title": "text"} if with_title and "title" in self.data.column_names else {}
        frame = self.table({key: "text or number", "text": "text", **title})
        forbid_rows(frame, pl.col(key).is_duplicated(), self.path, key, "each row needs a unique id")
        lines = []
        for column in (*title, "text"):
            stripped = pl.col(column).str.strip_chars(WHITE_SPACE)
            lines.append(pl.when(stripped != "").then(stripped))
        return frame.select(pl.col(key).alias("id"), text=pl.concat_str(lines, separator="\n", ignore_nulls=True))


class RepositoryReader(Protocol):
    """Function that reads one split of a repository."""

    def __call__(self, split: str, config: str | None = None) -> RepositoryRows:
        """Read a split of a configuration."""
        ...


def import_hub_library() -> ModuleType:
    """Import the library `datasets` and silence it.

    The import takes seconds, so only readers of repositories do it. By default, the library reports each file that
    it reads to its makers, even local files and even if telemetry is disabled. Without a network, this takes seconds.

    Returns:
        The module.
    """
    import datasets  # noqa: PLC0415

    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets


@contextmanager
def open_repository(folder: Path) -> Iterator[RepositoryReader]:
    """Open a repository in a folder, with the configurations and splits of its card.

    Args:
        folder: Folder of the repository.

    Yields:
        Function that reads a split. It can be used inside the `with` block, and raises InputError if the configuration
        or split does not exist or cannot be read.

    Raises:
        InputError: A file is incomplete or not data.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            with unpack(path) as plain:
                if path.suffix == ".parquet":
                    open_predictions(plain)  # the schema is at the end of the file, so an incomplete file has none
    library = import_hub_library()
    with tempfile.TemporaryDirectory() as temporary_folder:
        # The library reads a folder of links, without the index of this project, which it would read as data.
        view = Path(temporary_folder) / "repository"
        shutil.copytree(folder.resolve(), view, copy_function=os.symlink, ignore=shutil.ignore_patterns(INDEX))

        def read_split(split: str, config: str | None = None) -> RepositoryRows:
            try:
                # No checks: the card has the number of rows of the complete data set, but a part of it is valid too.
                data = library.load_dataset(
                    str(view), name=config, split=split, cache_dir=temporary_folder, verification_mode="no_checks"
                )
            except (ValueError, OSError, library.exceptions.DatasetGenerationError) as error:
                cause = error.__cause__ or error
                if isinstance(cause, OSError) and cause.errno is not None:
                    raise _explain_machine_error(cause) from None
                part = f"split {split} of config {config}" if config else f"split {split}"
                reason = " ".join(str(cause).split())[:MAX_CAUSE_LENGTH]
                raise InputError(f"{folder}: {part} cannot be read: {reason}") from None
            return RepositoryRows(folder / (config or "") / split, data)

        yield read_split


def _explain_machine_error(error: OSError) -> OSError:
    """Name the temporary folder in an error about a full disk: the library unpacks there."""
    if error.errno not in FULL_DISK_ERRORS:
        return error
    reason = f"{os.strerror(error.errno)} in the folder for temporary files, which TMPDIR sets"
    return OSError(error.errno, reason, tempfile.gettempdir())
