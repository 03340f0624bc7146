"""The source `files`: anybody's own judged pairs, as texts in tables or as svmlight features, under any key.

The options say which files and columns; the files lie in `raw/<d>/` under their base names.
"""

from functools import partial
from pathlib import Path, PurePath

import polars as pl

from tasks.datasets.base import Judged
from tasks.datasets.options import Features, FilesOptions, Lookup, Pairs
from tasks.datasets.own import coded, joined_text, judged, named, placed
from tasks.datasets.raw import ROW, forbid, read_columns
from tasks.datasets.svmlight import read_svmlight


def read(folder: Path, chosen: FilesOptions) -> Judged:
    """The judged pairs of the files in `folder`, file after file, each in its own order."""
    if chosen.features is not None:
        return feature_rows(folder, chosen.features, chosen.labels)
    assert chosen.pairs is not None
    return text_rows(folder, chosen.pairs, chosen.labels)


def feature_rows(folder: Path, source: Features, labels: tuple[str, ...]) -> Judged:
    """`pair` (`<file>:<line>`), `split, group, features, label` of svmlight files."""
    frames = {}
    for split, name in source.parts:
        path = folder / PurePath(name).name
        frames[path] = read_svmlight(path, source.width).with_columns(
            pl.format("{}:{}", pl.lit(path.name), ROW).alias("pair"), pl.lit(split, dtype=pl.String).alias("split")
        )
    rows = pl.concat(frame.select("pair", "split", "group", "features", "label") for frame in coded(frames, labels))
    return Judged(rows)


def text_rows(folder: Path, source: Pairs, labels: tuple[str, ...]) -> Judged:
    """Rows of SCHEMA of tables of text pairs; a pair without an id of its own is named `<file>:<row>`."""
    lookups = {
        side: texts_by_id(folder / PurePath(lookup.path).name, lookup)
        for side, lookup in (("query", source.queries), ("candidate", source.candidates))
        if lookup is not None
    }
    frames = {}
    for split, name in source.parts:
        path = folder / PurePath(name).name
        frame = named(partial(read_columns, path), source, path.name, source.split, ids=lookups)
        for side, texts in lookups.items():
            frame = looked_up(frame, side, texts, path, called=getattr(source, side)[0])
        if source.split is None:
            frames[path] = frame.with_columns(pl.lit(split, dtype=pl.String).alias("split"))
        else:
            frames[path] = placed(frame, source.splits, path, called=source.split)
    return judged(frames, source, labels, folder)


def texts_by_id(path: Path, lookup: Lookup) -> pl.DataFrame:
    """`id, text` of a table of queries or candidates; BadInput where an id is null or comes twice."""
    frame = read_columns(path, {lookup.id: "text or number", **dict.fromkeys(lookup.text, "text")})
    twice = pl.col(lookup.id).is_null() | pl.col(lookup.id).is_duplicated()
    forbid(frame, twice, path, lookup.id, "every row needs an id of its own")
    return frame.select(pl.col(lookup.id).alias("id"), joined_text(lookup.text).alias("text"))


def looked_up(frame: pl.DataFrame, side: str, texts: pl.DataFrame, path: Path, *, called: str) -> pl.DataFrame:
    """`frame` with the text for the id in column `side`; BadInput names the first row whose id is unknown."""
    unknown = ~pl.col(side).is_in(texts["id"].implode()).fill_null(False)
    forbid(frame, unknown, path, side, "no row of the table it is looked up in has this id", called=called)
    found = frame.join(texts, left_on=side, right_on="id", how="left", maintain_order="left")
    return found.with_columns(pl.col("text").alias(side)).drop("text")
