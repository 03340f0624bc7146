"""The source `files`: anybody's own judged pairs, as texts in tables or as svmlight features, under any key.

The options say which files and columns; the files lie in `raw/<d>/` under their base names. Rows are kept as they are
given and in their order: what cannot be used is refused by file and row, never left out unasked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, get_args

import polars as pl

from tasks.datasets.base import TEXT_SCHEMA, Dataset
from tasks.datasets.file_options import Features, FilesOptions, Lookup, Pairs, Place, file_format, several
from tasks.datasets.options import checked
from tasks.datasets.pairs import has_text, joined_text
from tasks.datasets.raw import ROW, forbid, label_codes, read_json_lines, read_parquet, read_table
from tasks.datasets.svmlight import read_svmlight
from tasks.protocol.errors import BadInput

logger = logging.getLogger(__name__)


def paths(options: Mapping[str, Any]) -> list[str]:
    """The files that the options name, in their order, for the download stage to bring."""
    return checked(FilesOptions, options, "reader `files`").paths


def files_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set `name` that `options` describe; BadInput says what is wrong with them."""
    chosen = checked(FilesOptions, options, name)
    return Dataset(
        name=name,
        title=chosen.title or name,
        domain=chosen.domain,
        task=chosen.task,
        labels=chosen.labels,
        licence=chosen.licence,
        bibkey="",
        homepage=chosen.homepage,
        revision="",
        files=(),
        read=read,
        features=chosen.features.width if chosen.features else 0,
        options=options,
    )


def read(folder: Path, options: Mapping[str, Any]) -> pl.DataFrame:
    """The judged pairs of the files in `folder`, file after file, each in its own order."""
    chosen = checked(FilesOptions, options, folder.name)
    if chosen.features is not None:
        return feature_rows(folder, chosen.features, chosen.labels)
    assert chosen.pairs is not None
    return text_rows(folder, chosen.pairs, chosen.labels)


def feature_rows(folder: Path, source: Features, labels: tuple[str, ...]) -> pl.DataFrame:
    """`pair` (`<file>:<line>`), `split, group, features, label` of svmlight files."""
    frames = {}
    for split, name in source.parts:
        path = folder / PurePath(name).name
        frames[path] = read_svmlight(path, source.width).with_columns(
            pl.format("{}:{}", pl.lit(path.name), ROW).alias("pair"), pl.lit(split, dtype=pl.String).alias("split")
        )
    return pl.concat(frame.select("pair", "split", "group", "features", "label") for frame in coded(frames, labels))


def text_rows(folder: Path, source: Pairs, labels: tuple[str, ...]) -> pl.DataFrame:
    """Rows of TEXT_SCHEMA of tables of text pairs; a pair without an id of its own is named `<file>:<row>`."""
    lookups = {
        side: texts_by_id(folder / PurePath(lookup.path).name, lookup)
        for side, lookup in (("query", source.queries), ("candidate", source.candidates))
        if lookup is not None
    }
    frames = {}
    for split, name in source.parts:
        path = folder / PurePath(name).name
        frame = table(path, source, lookups)
        for side, texts in lookups.items():
            frame = looked_up(frame, side, texts, path, called=several(getattr(source, side))[0])
        frames[path] = with_split(checked_rows(frame, source, path), split, source, path)
    rows = pl.concat(frame.select(*TEXT_SCHEMA) for frame in coded(frames, labels, source.label))
    repeated = rows.filter(pl.col("pair").is_duplicated())
    if not repeated.is_empty():
        raise BadInput(f"{folder}: the pair id {repeated['pair'][0]!r} is given more than once; each must be unique")
    return rows


def table(path: Path, source: Pairs, lookups: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """ROW and, all as text, `group, label, split, pair, query, candidate` of one file; the last two may be ids."""
    optional = {name: column for name, column in (("split", source.split), ("pair", source.pair)) if column}
    names = {"group": source.group, "label": source.label, **optional}
    texts = {}
    for side, columns in (("query", several(source.query)), ("candidate", several(source.candidate))):
        if side in lookups:
            names[side] = columns[0]
        else:
            texts[side] = columns
    frame = read_columns(path, list(names.values()), [column for columns in texts.values() for column in columns])
    return frame.select(
        ROW,
        *(pl.col(column).alias(name) for name, column in names.items()),
        *(joined_text(list(columns)).alias(side) for side, columns in texts.items()),
        *([] if source.split else [pl.lit(None, dtype=pl.String).alias("split")]),
        *([] if source.pair else [pl.format("{}:{}", pl.lit(path.name), ROW).alias("pair")]),
    )


def read_columns(path: Path, keys: list[str], texts: list[str]) -> pl.DataFrame:
    """ROW and columns of a table, as text: `keys` may hold numbers or truth values, `texts` only texts."""
    ending = file_format(path.name)
    if ending in (".csv", ".tsv"):
        return read_table(path, [*keys, *texts], "," if ending == ".csv" else "\t")
    kinds = {**dict.fromkeys(keys, "text or number"), **dict.fromkeys(texts, "text")}
    return read_parquet(path, kinds) if ending == ".parquet" else read_json_lines(path, kinds)


def texts_by_id(path: Path, lookup: Lookup) -> pl.DataFrame:
    """`id, text` of a table of queries or candidates; BadInput where an id is null or comes twice."""
    columns = list(several(lookup.text))
    frame = read_columns(path, [lookup.id], columns)
    twice = pl.col(lookup.id).is_null() | pl.col(lookup.id).is_duplicated()
    forbid(frame, twice, path, lookup.id, "every row needs an id of its own")
    return frame.select(pl.col(lookup.id).alias("id"), joined_text(columns).alias("text"))


def looked_up(frame: pl.DataFrame, side: str, texts: pl.DataFrame, path: Path, *, called: str) -> pl.DataFrame:
    """`frame` with the text for the id in column `side`; BadInput names the first row whose id is unknown."""
    unknown = ~pl.col(side).is_in(texts["id"].implode()).fill_null(False)
    forbid(frame, unknown, path, side, "no row of the table it is looked up in has this id", called=called)
    found = frame.join(texts, left_on=side, right_on="id", how="left", maintain_order="left")
    return found.with_columns(pl.col("text").alias(side)).drop("text")


def checked_rows(frame: pl.DataFrame, source: Pairs, path: Path) -> pl.DataFrame:
    """The rows that have a group and two texts; BadInput where one has not, unless `drop_empty` lets texts go."""
    for column, called in (("group", source.group), ("pair", source.pair)):
        forbid(frame, pl.col(column).is_null(), path, column, "every row needs one", called=called)
    if source.drop_empty:
        whole = frame.filter(has_text("query") & has_text("candidate"))
        logger.info("%s: %d of %d pairs have no text and are left out", path, len(frame) - len(whole), len(frame))
        return whole
    advice = "give it a text, or leave such pairs out with `drop_empty: true`"
    for side, columns in (("query", source.query), ("candidate", source.candidate)):
        forbid(frame, ~has_text(side), path, side, advice, called=", ".join(several(columns)))
    return frame


def with_split(frame: pl.DataFrame, split: str | None, source: Pairs, path: Path) -> pl.DataFrame:
    """`frame` with its column `split` in our names; null where the row is still to be drawn."""
    if source.split is None:
        return frame.with_columns(pl.lit(split, dtype=pl.String).alias("split"))
    places = {place: place for place in get_args(Place)} | dict(source.splits)
    known = pl.col("split").is_in(list(places)) | pl.col("split").is_null()
    advice = f"it must be one of {', '.join(places)}; `splits` maps other names to them"
    forbid(frame, ~known, path, "split", advice, called=source.split)
    named = pl.col("split").replace_strict(places, return_dtype=pl.String, default=None)
    return frame.with_columns(pl.when(named != "drawn").then(named).alias("split"))


def coded(frames: Mapping[Path, pl.DataFrame], labels: tuple[str, ...], called: str = "label") -> list[pl.DataFrame]:
    """`frames` (path -> rows with text labels) with labels 0..K-1; BadInput names the first row outside of them.

    Labels are given as names or as numbers 0..K-1, in all files alike: as whichever accepts more of the rows.
    """
    plain = pl.col("label").str.replace(r"^\+?(-?\d+)\.0+$", "$1")  # 2.0 is 2
    frames = {path: frame.with_columns(plain) for path, frame in frames.items()}
    found = pl.concat([frame["label"] for frame in frames.values()])
    names = {name: code for code, name in enumerate(labels)}
    numbers = {str(code): code for code in range(len(labels))}
    codes = max((names, numbers), key=lambda accepted: int(found.is_in(list(accepted)).sum()))
    return [
        frame.with_columns(label_codes(frame, "label", codes, path, called=called).alias("label"))
        for path, frame in frames.items()
    ]
