"""The one door for raw files: what is missing, cut off or no data at all is refused here, by name."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from tasks.protocol.errors import BadInput
from tasks.sources.contents import HEAD, no_data

ROW = "(row)"  # the column that counts the rows of a raw file from 1, for messages and for pair names

GZIP = b"\x1f\x8b"
FETCH = "delete it and run the download stage again, or fetch the file anew"

# what a column must hold -> the types that do, and the type it is read as
KINDS: Mapping[str, tuple[Callable[[pl.DataType], bool], pl.DataType | type[pl.DataType]]] = {
    "text": (lambda dtype: dtype in (pl.String, pl.Null), pl.String),
    "text or number": (lambda dtype: dtype in (pl.String, pl.Null, pl.Boolean) or dtype.is_numeric(), pl.String),
    "integer": (lambda dtype: dtype.is_integer(), pl.Int64),
    "list of texts": (lambda dtype: dtype in (pl.List(pl.String), pl.List(pl.Null)), pl.List(pl.String)),
    "list of integers": (
        lambda dtype: isinstance(dtype, pl.List) and dtype.inner in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8),
        pl.List(pl.Int64),
    ),
    "list of lists of numbers": (
        lambda dtype: dtype in (pl.List(pl.List(pl.Float32)), pl.List(pl.List(pl.Float64)), pl.List(pl.List(pl.Int64))),
        pl.List(pl.List(pl.Float32)),
    ),
}


def opened(path: Path) -> Path | bytes:
    """What a parser may read: `path` itself, or the unpacked bytes of a gzip file.

    Raises BadInput for a file that is missing, empty, a Git LFS pointer, a web page, or a gzip file that is cut off.
    """
    if not path.is_file():
        raise BadInput(f"{path} is missing: run the download stage, or put the file there by hand")
    with path.open("rb") as handle:
        head = handle.read(HEAD)
    if head.startswith(GZIP):
        try:
            content = gzip.decompress(path.read_bytes())
        except (EOFError, OSError, zlib.error) as error:
            raise BadInput(f"{path} is a cut or corrupt gzip file ({error}); {FETCH}") from None
        _refuse_no_data(path, content[:HEAD])
        return content
    _refuse_no_data(path, head)
    if path.suffix == ".gz":
        raise BadInput(f"{path} is named .gz but begins with {head[:8]!r}, which is no gzip; {FETCH}")
    return path


def _refuse_no_data(path: Path, head: bytes) -> None:
    if (instead := no_data(head)) is not None:
        raise BadInput(f"{path} {instead}; {FETCH}")


def read_table(path: Path, columns: Iterable[str], separator: str) -> pl.DataFrame:
    """Columns of a delimited file with a header, all as text, and ROW; an empty field is null, a blank line no row."""
    source = opened(path)
    try:
        frame = pl.read_csv(source, separator=separator, infer_schema=False).with_row_index(ROW, offset=1)
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path} is not a whole table ({first_line(error)}); {FETCH}") from None
    wanted = list(dict.fromkeys(columns))
    require(path, frame.columns, wanted)
    frame = frame.filter(~pl.all_horizontal(pl.exclude(ROW).is_null())).select(ROW, *wanted)
    if frame.is_empty():
        raise BadInput(f"{path} holds no row below its header; {FETCH}")
    return frame


def read_json_lines(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    """Columns of a file with one JSON object on each line, and ROW; `columns` gives the kind that each must be."""
    source = opened(path)
    try:
        frame = pl.read_ndjson(source, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        line = bad_json_line(source)
        raise BadInput(f"{path}{line} is not one JSON object per line ({first_line(error)}); {FETCH}") from None
    return typed(path, frame.lazy().with_row_index(ROW, offset=1), frame.schema, columns).collect()


def read_parquet(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    """Columns of a parquet file, and ROW; `columns` gives the kind that each must be."""
    source = opened(path)
    try:
        lazy = pl.scan_parquet(source, row_index_name=ROW, row_index_offset=1)
        return typed(path, lazy, lazy.collect_schema(), columns).collect()
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path} is not a whole parquet file ({first_line(error)}); {FETCH}") from None


def check_parquet(path: Path) -> None:
    """BadInput where a parquet file is cut: what it holds stands at its end."""
    try:
        pl.read_parquet_schema(path)
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path} is not a whole parquet file ({first_line(error)}); {FETCH}") from None


def typed(path: Path, lazy: pl.LazyFrame, schema: pl.Schema, columns: Mapping[str, str]) -> pl.LazyFrame:
    """ROW and the wanted columns, cast to their kind; BadInput where one is missing or of another kind, or no row."""
    require(path, schema.names(), columns)
    if lazy.select(pl.len()).collect().item() == 0:
        raise BadInput(f"{path} holds no row; {FETCH}")
    for column, kind in columns.items():
        if not KINDS[kind][0](schema[column]):
            raise BadInput(f"{path}, column {column!r} is {schema[column]}, not {kind}; write it as {kind}")
    casts = [pl.col(column).cast(KINDS[kind][1]) for column, kind in columns.items()]
    return lazy.select(ROW, *casts)


def require(path: Path, found: Sequence[str], wanted: Iterable[str]) -> None:
    """BadInput that names the columns that are wanted and not found, and those there are."""
    missing = [column for column in wanted if column not in found]
    if missing:
        have = ", ".join(column for column in found if column != ROW)
        raise BadInput(f"{path} has no column {', '.join(map(repr, missing))}; it has {have}")


def forbid(
    frame: pl.DataFrame, wrong: pl.Expr, path: Path, column: str, advice: str, *, called: str | None = None
) -> None:
    """BadInput that names the first row of `frame` (which has ROW) where `wrong` holds and what `column` has there.

    `called`: the column's name in the file, where it is another by now.
    """
    bad = frame.filter(wrong)
    if not bad.is_empty():
        more = f" (and {len(bad) - 1} more rows)" if len(bad) > 1 else ""
        raise BadInput(
            f"{path}, row {bad[ROW][0]}, column {(called or column)!r}: found {bad[column][0]!r}{more}; {advice}"
        )


def label_codes(
    frame: pl.DataFrame, column: str, codes: Mapping[str, int], path: Path, *, called: str | None = None
) -> pl.Expr:
    """The expression that turns raw label names into 0..K-1; BadInput names the first row with another name."""
    unknown = ~pl.col(column).is_in(list(codes)).fill_null(False)
    forbid(frame, unknown, path, column, f"it must be one of {', '.join(codes)}", called=called)
    return pl.col(column).replace_strict(codes, return_dtype=pl.Int8)


def first_line(error: Exception) -> str:
    """The first line of what a library says, as long as a message can bear."""
    return str(error).strip().split("\n")[0][:200]


def bad_json_line(source: Path | bytes) -> str:
    """', line 17', the first line that is no JSON object; empty where every line is one."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            if line.strip() and not isinstance(json.loads(line), dict):
                return f", line {number}"
        except ValueError:
            return f", line {number}"
    return ""
