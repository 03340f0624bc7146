"""Raw files as columns of the kinds that a reader asks for; what is missing or of another kind is refused by name.

Repositories of the hub are read with the library that they are made for, `datasets`: after a look at each file, never
in its place, since the library casts numbers to texts without a word and calls a page in HTML a broken footer. Nothing
is written outside a throw-away folder, and nothing is asked of a network.
"""

import errno
import gzip
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import polars as pl
import polars.selectors as cs

from relmap.errors import InputError
from relmap.io.contents import HEAD_BYTES, JSON_LINES, PARQUET, check_content, reject_non_data, report_parse_errors
from tasks.sources.hub import INDEX

ROW = "(row)"  # the column that counts the rows of a raw file from 1, for messages and for pair names

SEPARATORS = {".csv": ",", ".tsv": "\t"}
GZIP = b"\x1f\x8b"
FETCH = "run the download stage again, or fetch the file anew"

# what a column must hold -> those that do, and the type it is read as
_TEXTS = cs.by_dtype(pl.String, pl.Null)
KINDS: Mapping[str, tuple[cs.Selector, pl.DataType | type[pl.DataType]]] = {
    "text": (_TEXTS, pl.String),
    "text or number": (_TEXTS | cs.boolean() | cs.numeric(), pl.String),
    "integer": (cs.integer(), pl.Int64),
    "list of texts": (cs.list(_TEXTS), pl.List(pl.String)),
    "list of integers": (cs.list(cs.integer()), pl.List(pl.Int64)),
    "list of lists of numbers": (cs.list(cs.list(cs.numeric())), pl.List(pl.List(pl.Float32))),
}


def opened(path: Path) -> Path | bytes:
    """What a parser may read: `path` itself, or the unpacked bytes of a gzip file.

    Raises:
        InputError: the file is missing, empty, a Git LFS pointer, a web page, or a gzip file that is cut off.
    """
    head = check_content(path, FETCH)
    if not head.startswith(GZIP):
        if path.suffix == ".gz":
            raise InputError(f"{path} is named .gz but begins with {head[:8]!r}, which is no gzip; {FETCH}")
        return path
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is a cut or corrupt gzip file ({error}); {FETCH}") from None
    reject_non_data(path, content[:HEAD_BYTES], FETCH)
    return content


def read_columns(path: Path, kinds: Mapping[str, str]) -> pl.DataFrame:
    """ROW and columns of a table by the ending of its name; `kinds` gives what each must hold.

    Tables with separators hold text, whatever else it may say; an empty field is null, a blank line no row. Without
    another ending, a table has a JSON object on each line.
    """
    source, ending = opened(path), file_format(path.name)
    if ending == ".parquet":
        with report_parse_errors(path, PARQUET, FETCH):
            return typed(path, pl.scan_parquet(source).with_row_index(ROW, offset=1), kinds)
    if ending not in SEPARATORS:
        with report_parse_errors(path, JSON_LINES, FETCH, source):
            frame = pl.read_ndjson(source, infer_schema_length=None)
        return typed(path, frame.lazy().with_row_index(ROW, offset=1), kinds)
    with report_parse_errors(path, "a whole table", FETCH):
        frame = pl.read_csv(source, separator=SEPARATORS[ending], infer_schema=False)
    rows = frame.lazy().with_row_index(ROW, offset=1)
    return typed(path, rows.filter(~pl.all_horizontal(pl.exclude(ROW).is_null())), kinds)


def file_format(path: str) -> str:
    """The ending that says how a file is read: `.jsonl` of `data/x.jsonl.gz`."""
    return PurePath(path.removesuffix(".gz")).suffix


def typed(path: Path, rows: pl.LazyFrame, kinds: Mapping[str, str]) -> pl.DataFrame:
    """ROW and the wanted columns, cast to their kind; InputError where one is missing or of another kind, or no row."""
    schema = rows.collect_schema()
    require(path, schema.names(), kinds)
    for column, kind in kinds.items():
        if column not in cs.expand_selector(schema, KINDS[kind][0]):
            raise InputError(f"{path}, column {column!r} is {schema[column]}, not {kind}; write it as {kind}")
    frame = rows.select(ROW, *(pl.col(column).cast(KINDS[kind][1]) for column, kind in kinds.items())).collect()
    if frame.is_empty():
        raise InputError(f"{path} holds no row; {FETCH}")
    return frame


def require(path: Path, columns: Sequence[str], wanted: Iterable[str]) -> None:
    """InputError that names what is wanted and none of the `columns`, and those there are."""
    missing = [column for column in wanted if column not in columns]
    if missing:
        have = ", ".join(column for column in columns if column != ROW)
        raise InputError(f"{path} has no column {', '.join(map(repr, missing))}; it has {have}")


def forbid(
    frame: pl.DataFrame, wrong: pl.Expr, path: Path, column: str, advice: str, *, called: str | None = None
) -> None:
    """InputError that names the first row of `frame` (which has ROW) where `wrong` holds and what `column` has there.

    `called`: the column's name in the file, where it is another by now.
    """
    bad = frame.filter(wrong)
    if not bad.is_empty():
        more = f" (and {len(bad) - 1} more rows)" if len(bad) > 1 else ""
        raise InputError(
            f"{path}, row {bad[ROW][0]}, column {(called or column)!r}: found {bad[column][0]!r}{more}; {advice}"
        )


class RepositoryRows(NamedTuple):
    """The rows of one split, on the disk."""

    path: Path  # <raw folder>/<config>/<split>, for messages
    data: Any  # datasets.Dataset

    def table(self, kinds: Mapping[str, str]) -> pl.DataFrame:
        """ROW and the columns of `kinds`, cast; InputError where one is missing or of another kind."""
        require(self.path, self.data.column_names, kinds)
        frame = self.data.select_columns(list(kinds)).to_polars().with_row_index(ROW, offset=1)
        return typed(self.path, frame.lazy(), kinds)

    def frame(self, kinds: Mapping[str, str], labels: tuple[str, ...], label: str = "label") -> pl.DataFrame:
        """As `table`, with `pair` (`<split>:<row>`, from 1) and `label` 0..K-1, which the column `label` holds.

        Raises:
            InputError: as `table`, and for a label that is none of `labels`.
        """
        frame = self.table(kinds)
        known = pl.col(label).is_between(0, len(labels) - 1).fill_null(False)
        named = ", ".join(f"{code} ({name})" for code, name in enumerate(labels))
        forbid(frame, ~known, self.path, label, f"it must be one of {named}")
        pair = pl.format("{}:{}", pl.lit(self.path.name), ROW)
        return frame.with_columns(pl.col(label).cast(pl.Int8).alias("label"), pair=pair)

    def texts_by_id(self) -> pl.DataFrame:
        """`id` (or `_id`) and `text` of queries or of a corpus, below its title where there is one; blank texts go.

        Raises:
            InputError: a column is missing, or an id comes twice.
        """
        key = "_id" if "_id" in self.data.column_names else "id"
        title = {"title": "text"} if "title" in self.data.column_names else {}
        frame = self.table({key: "text or number", "text": "text", **title})
        forbid(frame, pl.col(key).is_duplicated(), self.path, key, "every row needs an id of its own")
        titled = [pl.when(pl.col(column) != "").then(column) for column in (*title, "text")]
        frame = frame.filter(pl.col("text").str.strip_chars() != "")
        return frame.select(pl.col(key).alias("id"), text=pl.concat_str(titled, separator="\n", ignore_nulls=True))


OpenedRepository = Callable[..., RepositoryRows]  # (split, config=None) -> its rows


def hub_library() -> Any:
    """The library `datasets`, quiet; importing it takes seconds, so only those who read with it do.

    Left to itself it tells its makers of every file of JSON or parquet that is read, local ones too; no setting
    against telemetry is heeded there, and where no network answers that takes seconds.
    """
    import datasets  # noqa: PLC0415

    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    return datasets


@contextmanager
def opened_repository(folder: Path) -> Iterator[OpenedRepository]:
    """`rows(split, config=None)` of the repository whose files lie in `folder`, as its card says.

    Raises:
        InputError: a file is cut or no data, there is no such configuration or split, or the library cannot read them.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            opened(path)
            if path.suffix == ".parquet":
                with report_parse_errors(path, PARQUET, FETCH):  # what it holds stands at its end
                    pl.read_parquet_schema(path)
    library = hub_library()
    with tempfile.TemporaryDirectory() as place:
        view = Path(place) / "repository"  # these files, and none of our own beside them
        shutil.copytree(folder.resolve(), view, copy_function=os.symlink, ignore=shutil.ignore_patterns(INDEX))

        def rows(split: str, config: str | None = None) -> RepositoryRows:
            try:
                # "no_checks": the card counts the whole set, and a cut mirror is a set too
                data = library.load_dataset(
                    str(view), name=config, split=split, cache_dir=place, verification_mode="no_checks"
                )
            except (ValueError, OSError, library.exceptions.DatasetGenerationError) as error:
                cause = error.__cause__ or error
                if isinstance(cause, OSError) and cause.errno is not None:  # the machine failed, not the data
                    if cause.errno in (errno.ENOSPC, errno.EDQUOT):  # where the library unpacks, seldom where data are
                        where = f"{os.strerror(cause.errno)} in the folder for temporary files, which TMPDIR sets"
                        raise OSError(cause.errno, where, tempfile.gettempdir()) from None
                    raise cause from None
                of = f"split {split}" + (f" of config {config}" if config else "")
                raise InputError(f"{folder}: {of} cannot be read: {' '.join(str(cause).split())[:300]}") from None
            return RepositoryRows(folder / (config or "") / split, data)

        yield rows
