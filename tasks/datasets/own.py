"""Judged pairs of one's own, whatever brings them: which column says what, and what is refused.

Rows stay as they are and in their order: what cannot be used is refused by file and row, never left out unasked.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import get_args

import polars as pl

from tasks.datasets.base import SCHEMA, Judged
from tasks.datasets.drawing import joined_text
from tasks.datasets.options import PairColumns, Place
from tasks.datasets.raw import ROW, forbid
from tasks.protocol.errors import BadInput

logger = logging.getLogger(__name__)


def named(
    read: Callable[[Mapping[str, str]], pl.DataFrame],
    source: PairColumns,
    name: str,
    split: str | None = None,
    ids: Collection[str] = (),
) -> pl.DataFrame:
    """ROW and `group, label, split, pair, query, candidate` of a table; a pair without an id is named `<name>:<row>`.

    `read` gives ROW and the columns that are asked for, of the kinds that are asked for, as text. Of `query` and
    `candidate`, those in `ids` are no texts, to be joined, but ids, to be looked up.
    """
    sides = {"query": source.query, "candidate": source.candidate}
    keys = {"group": source.group, "label": source.label, "split": split, "pair": source.pair}
    keys |= {side: columns[0] for side, columns in sides.items() if side in ids}
    texts = {side: columns for side, columns in sides.items() if side not in ids}
    kinds = {theirs: "text or number" for theirs in keys.values() if theirs}
    frame = read(kinds | {column: "text" for columns in texts.values() for column in columns})
    absent = {"split": pl.lit(None, dtype=pl.String), "pair": pl.format("{}:{}", pl.lit(name), ROW)}
    columns = {ours: pl.col(theirs) if theirs else absent[ours] for ours, theirs in keys.items()}
    joined = {side: joined_text((("", name) for name in own), " ") for side, own in texts.items()}
    return frame.select(ROW, **columns, **joined)


def placed(frame: pl.DataFrame, places: Mapping[str, Place], path: Path, called: str) -> pl.DataFrame:
    """`frame` with its column `split` in our names, or in those that `places` maps; null is still to be drawn."""
    known_places = {place: place for place in get_args(Place)} | dict(places)
    known = pl.col("split").is_in(list(known_places)) | pl.col("split").is_null()
    advice = f"it must be one of {', '.join(known_places)}; `splits` maps other names to them"
    forbid(frame, ~known, path, "split", advice, called=called)
    ours = pl.col("split").replace_strict(known_places, return_dtype=pl.String, default=None)
    return frame.with_columns(pl.when(ours != "drawn").then(ours).alias("split"))


def coded(frames: Mapping[Path, pl.DataFrame], labels: tuple[str, ...], called: str = "label") -> list[pl.DataFrame]:
    """`frames` (path -> rows with text labels) with labels 0..K-1; BadInput names the first row outside of them.

    Labels are given as names or as numbers 0..K-1, in all files alike: as whichever accepts more of the rows.
    """
    plain = pl.col("label").str.replace(r"^\+?(-?\d+)\.0+$", "$1")  # 2.0 is 2
    frames = {path: frame.with_columns(plain) for path, frame in frames.items()}
    given = pl.concat([frame["label"] for frame in frames.values()])
    names = {name: code for code, name in enumerate(labels)}
    numbers = {str(code): code for code in range(len(labels))}
    codes = max((names, numbers), key=lambda accepted: int(given.is_in(list(accepted)).sum()))
    for path, frame in frames.items():
        unknown = ~pl.col("label").is_in(list(codes)).fill_null(False)
        forbid(frame, unknown, path, "label", f"it must be one of {', '.join(codes)}", called=called)
    code = pl.col("label").replace_strict(codes, return_dtype=pl.Int8)
    return [frame.with_columns(code) for frame in frames.values()]


def judged(frames: Mapping[Path, pl.DataFrame], source: PairColumns, labels: tuple[str, ...], folder: Path) -> Judged:
    """The rows of SCHEMA of `frames` (path -> rows from `named`, their `split` in our names).

    Raises:
        BadInput: names a row without a group, an id or a text (unless `drop_empty` lets such rows go), or with a label
            that is none of `labels`, and an id that comes twice.
    """
    columns = {"query": source.query, "candidate": source.candidate}
    has_text = {side: (pl.col(side).str.strip_chars() != "").fill_null(False) for side in columns}
    whole = {}
    for path, frame in frames.items():
        for column, called in (("group", source.group), ("pair", source.pair)):
            forbid(frame, pl.col(column).is_null(), path, column, "every row needs one", called=called)
        whole[path] = frame.filter(*has_text.values()) if source.drop_empty else frame
        if source.drop_empty:
            empty = len(frame) - len(whole[path])
            logger.info("%s: %d of %d pairs have no text and are left out", path, empty, len(frame))
        for side, there in has_text.items():
            advice = "give it a text, or leave such pairs out with `drop_empty: true`"
            forbid(whole[path], ~there, path, side, advice, called=", ".join(columns[side]))
    text = joined_text((f"{side}: ", side) for side in columns).alias("text")
    rows = pl.concat(frame.with_columns(text).select(*SCHEMA) for frame in coded(whole, labels, source.label))
    for repeated in rows.filter(pl.col("pair").is_duplicated())["pair"].head(1):
        raise BadInput(f"{folder}: the pair id {repeated!r} is given more than once; each must be unique")
    return Judged(rows, dropped={"without text": sum(map(len, frames.values())) - len(rows)})
