"""The source `files`: anybody's own judged pairs, as texts in tables or as svmlight features, under any key.

The options say which files and columns; the files lie in `raw/<d>/` under their base names. A line of svmlight is
`<label> qid:<group> 1:<v> 2:<v> …`, features counted from 1, those left out are 0. Also understood: a space at the end,
CRLF, blank lines, a comment after `#`, groups that are no integers (not by scikit-learn's reader, which names no line).
"""

from functools import partial
from pathlib import Path, PurePath

import numpy as np
import polars as pl

from relmap.errors import InputError
from relmap.io.contents import report_parse_errors
from tasks.datasets.base import Judged, joined_text
from tasks.datasets.own import FilesOptions, Lookup, Pairs, coded, judged, named, placed
from tasks.datasets.raw import FETCH, ROW, SEPARATORS, forbid, opened, read_columns, require

LINES_AT_ONCE = 5_000  # of svmlight: a token takes some 200 bytes of memory
GROUP = "qid:"


def read(folder: Path, chosen: FilesOptions) -> Judged:
    """The judged pairs of the files in `folder`, file after file, each in its own order.

    Of svmlight files they have `features` in place of `text`, and are named `<file>:<line>`. InputError names the line
    and what is wrong with it: no label, no group, a feature outside 1..width, given twice, or no finite float32.
    """
    if chosen.features is None:
        assert chosen.pairs is not None
        return _text_rows(folder, chosen.pairs, chosen.labels)
    frames = {}
    for split, name in chosen.features.parts:
        path = folder / PurePath(name).name
        frames[path] = _features(path, chosen.features.width).with_columns(
            pair=pl.format("{}:{}", pl.lit(path.name), ROW), split=pl.lit(split, dtype=pl.String)
        )
    columns = ("pair", "split", "group", "features", "label")
    return Judged(pl.concat(frame.select(columns) for frame in coded(frames, chosen.labels)))


def _features(path: Path, width: int) -> pl.DataFrame:
    """All lines of a file, plain or gzip: ROW (line number from 1), `label` and `group` as text, `features`."""
    with report_parse_errors(path, "a text file of svmlight lines", FETCH):
        lines = pl.read_lines(opened(path)).with_row_index(ROW, offset=1)
    lines = lines.with_columns(pl.col("line").str.replace(r"#.*$", "")).filter(pl.col("line").str.contains(r"\S"))
    if lines.is_empty():
        raise InputError(f"{path} holds no line but comments; {FETCH}")
    return pl.concat(_rows(path, part, width) for part in lines.iter_slices(LINES_AT_ONCE))


def _rows(path: Path, lines: pl.DataFrame, width: int) -> pl.DataFrame:
    tokens = pl.col("tokens").list
    rows = lines.select(ROW, tokens=pl.col("line").str.extract_all(r"\S+")).select(
        ROW, label=tokens.get(0), group=tokens.get(1, null_on_oob=True), feature=tokens.slice(2)
    )
    ungrouped = ~pl.col("group").str.starts_with(GROUP).fill_null(False)
    forbid(rows, ungrouped, path, "group", "there must be `qid:<group>`")
    part = pl.col("feature").str.split_exact(":", 1).struct
    features = (
        rows.select(ROW, "feature", at=pl.int_range(pl.len()))
        .explode("feature", empty_as_null=False)
        .with_columns(
            place=part.field("field_0").str.to_integer(strict=False),
            value=part.field("field_1").cast(pl.Float32, strict=False),
        )
    )
    for wrong, advice in (
        (~pl.col("place").is_between(1, width), f"it must be <place>:<number>, its place in 1..{width}"),
        (~pl.col("value").is_finite(), "its value must be a finite number"),
        ((pl.col("at") * width + pl.col("place")).is_duplicated(), "this feature is given more than once"),
    ):
        forbid(features, wrong.fill_null(True), path, "feature", advice)
    matrix = np.zeros((len(rows), width), dtype=np.float32)
    matrix[features["at"].to_numpy(), features["place"].to_numpy() - 1] = features["value"].to_numpy()
    return rows.select(ROW, "label", pl.col("group").str.strip_prefix(GROUP), pl.Series("features", matrix))


def check_columns(folder: Path, source: Pairs) -> None:
    """Check that tables of text pairs have the columns that the options name, without reading their rows.

    Args:
        folder: Folder of the files as the options name them.
        source: Files and columns.

    Raises:
        InputError: A column is missing; the message names the file and the columns that it has. Tables whose columns
            cannot be told from a header (compressed ones, and JSON) are checked when they are read.
    """
    columns = [source.group, *source.query, *source.candidate, source.label]
    columns += [name for name in (source.pair, source.split) if name is not None]
    for _, name in source.parts:
        _check_header(folder / name, columns)
    for lookup in (source.queries, source.candidates):
        if lookup is not None:
            _check_header(folder / lookup.path, [lookup.id, *lookup.text])


def _check_header(path: Path, columns: list[str]) -> None:
    try:
        if path.suffix == ".parquet":
            require(path, list(pl.read_parquet_schema(path)), columns)
        elif path.suffix in SEPARATORS:
            table = pl.scan_csv(path, separator=SEPARATORS[path.suffix], infer_schema=False)
            require(path, table.collect_schema().names(), columns)
    except (pl.exceptions.PolarsError, OSError):
        return  # not such a file; reading it says what it is


def _text_rows(folder: Path, source: Pairs, labels: tuple[str, ...]) -> Judged:
    """Rows of SCHEMA of tables of text pairs; a pair without an id of its own is named `<file>:<row>`."""
    lookups = {
        side: _texts_by_id(folder / PurePath(lookup.path).name, lookup)
        for side, lookup in (("query", source.queries), ("candidate", source.candidates))
        if lookup is not None
    }
    frames = {}
    for split, name in source.parts:
        path = folder / PurePath(name).name
        frame = named(partial(read_columns, path), source, path.name, source.split, ids=lookups)
        for side, texts in lookups.items():
            unknown = ~pl.col(side).is_in(texts["id"].implode()).fill_null(False)
            advice = "no row of the table it is looked up in has this id"
            forbid(frame, unknown, path, side, advice, called=getattr(source, side)[0])
            frame = frame.with_columns(pl.col(side).replace_strict(texts["id"], texts["text"], default=None))
        drawn = frame.with_columns(split=pl.lit(split, dtype=pl.String))
        frames[path] = placed(frame, source.splits, path, called=source.split) if source.split else drawn
    return judged(frames, source, labels, folder)


def _texts_by_id(path: Path, lookup: Lookup) -> pl.DataFrame:
    """`id, text` of a table of queries or candidates; InputError where an id is null or comes twice."""
    frame = read_columns(path, {lookup.id: "text or number", **dict.fromkeys(lookup.text, "text")})
    twice = pl.col(lookup.id).is_null() | pl.col(lookup.id).is_duplicated()
    forbid(frame, twice, path, lookup.id, "every row needs an id of its own")
    text = joined_text((("", column) for column in lookup.text), " ").alias("text")
    return frame.select(pl.col(lookup.id).alias("id"), text)
