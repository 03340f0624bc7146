"""Raw files as columns of the kinds that a reader asks for; what is missing or of another kind is refused by name."""

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

import polars as pl
import polars.selectors as cs

from tasks.protocol.errors import BadInput
from tasks.sources.contents import HEAD, JSON_LINES, PARQUET, check_content, parsing, refuse_no_data

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
        BadInput: the file is missing, empty, a Git LFS pointer, a web page, or a gzip file that is cut off.
    """
    head = check_content(path, FETCH)
    if not head.startswith(GZIP):
        if path.suffix == ".gz":
            raise BadInput(f"{path} is named .gz but begins with {head[:8]!r}, which is no gzip; {FETCH}")
        return path
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, OSError, zlib.error) as error:
        raise BadInput(f"{path} is a cut or corrupt gzip file ({error}); {FETCH}") from None
    refuse_no_data(path, content[:HEAD], FETCH)
    return content


def read_columns(path: Path, kinds: Mapping[str, str]) -> pl.DataFrame:
    """ROW and columns of a table by the ending of its name; `kinds` gives what each must hold.

    Tables with separators hold text, whatever else it may say; an empty field is null, a blank line no row. Without
    another ending, a table has a JSON object on each line.
    """
    source, ending = opened(path), file_format(path.name)
    if ending == ".parquet":
        with parsing(path, PARQUET, FETCH):
            return typed(path, pl.scan_parquet(source).with_row_index(ROW, offset=1), kinds)
    if ending not in SEPARATORS:
        with parsing(path, JSON_LINES, FETCH, source):
            frame = pl.read_ndjson(source, infer_schema_length=None)
        return typed(path, frame.lazy().with_row_index(ROW, offset=1), kinds)
    with parsing(path, "a whole table", FETCH):
        frame = pl.read_csv(source, separator=SEPARATORS[ending], infer_schema=False)
    rows = frame.lazy().with_row_index(ROW, offset=1)
    return typed(path, rows.filter(~pl.all_horizontal(pl.exclude(ROW).is_null())), kinds)


def file_format(path: str) -> str:
    """The ending that says how a file is read: `.jsonl` of `data/x.jsonl.gz`."""
    return PurePath(path.removesuffix(".gz")).suffix


def typed(path: Path, rows: pl.LazyFrame, kinds: Mapping[str, str]) -> pl.DataFrame:
    """ROW and the wanted columns, cast to their kind; BadInput where one is missing or of another kind, or no row."""
    schema = rows.collect_schema()
    require(path, schema.names(), kinds)
    for column, kind in kinds.items():
        if column not in cs.expand_selector(schema, KINDS[kind][0]):
            raise BadInput(f"{path}, column {column!r} is {schema[column]}, not {kind}; write it as {kind}")
    frame = rows.select(ROW, *(pl.col(column).cast(KINDS[kind][1]) for column, kind in kinds.items())).collect()
    if frame.is_empty():
        raise BadInput(f"{path} holds no row; {FETCH}")
    return frame


def require(path: Path, columns: Sequence[str], wanted: Iterable[str]) -> None:
    """BadInput that names what is wanted and none of the `columns`, and those there are."""
    missing = [column for column in wanted if column not in columns]
    if missing:
        have = ", ".join(column for column in columns if column != ROW)
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
