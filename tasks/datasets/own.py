"""Judged pairs of one's own: what their options may say, and what is made of them, whatever brings them.

Rows stay as they are and in their order: what cannot be used is refused by file and row, never left out unasked.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, get_args

import polars as pl
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from relmap.errors import InputError
from tasks.datasets.base import SCHEMA, Judged, joined_text
from tasks.datasets.raw import ROW, file_format, forbid
from tasks.sources.hub import DATA_FILES, Repository

logger = logging.getLogger(__name__)

FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")  # each also with .gz
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
Columns = Annotated[Names, BeforeValidator(lambda given: (given,) if isinstance(given, str | int) else given)]
Place = Literal["train", "validation", "test", "drawn"]  # drawn: the split is drawn later, with the set's shares


class Options(BaseModel):
    """Options in which no unknown name and no wrong value goes unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


class Located(Options):
    """Files of one kind: one path, several, or one or several for each split."""

    path: Columns | Mapping[Place, Columns]

    @property
    def parts(self) -> list[tuple[str | None, str]]:
        """(split or None, path) of each file, in the order given."""
        groups = self.path if isinstance(self.path, Mapping) else {"drawn": self.path}
        return [(None if place == "drawn" else place, path) for place, paths in groups.items() for path in paths]

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is named, in its order; then tables that ids are looked up in."""
        tables = (getattr(self, side, None) for side in ("queries", "candidates"))
        return (*(path for _, path in self.parts), *(table.path for table in tables if table))


class Lookup(Options):
    """A table that turns the ids of the pairs into texts."""

    path: Name
    id: Name
    text: Columns


class PairColumns(Options):
    """Which columns of a table of text pairs say what. Several text columns are joined, a space between them."""

    group: Name  # what must not straddle splits: the query or its id
    query: Columns  # the text, or where it is looked up the column of its id
    candidate: Columns
    label: Name
    pair: Name | None = None  # a column of unique ids; without it a pair is named by file and row
    drop_empty: bool = False  # leave out pairs without a text, which are refused otherwise


class Pairs(Located, PairColumns):
    """Tables of text pairs."""

    split: Name | None = None
    # where the split column has other names: {dev: validation}
    splits: Mapping[str, Place] = Field(default_factory=dict)
    queries: Lookup | None = None
    candidates: Lookup | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "Pairs":
        for side, lookup in (("query", self.queries), ("candidate", self.candidates)):
            if lookup is not None and len(getattr(self, side)) > 1:
                raise ValueError(f"`{side}` must name one column of ids where they are looked up")
        if self.split is not None and isinstance(self.path, Mapping):
            raise ValueError("give a `split` column, or files for each split, not both")
        if self.splits and self.split is None:
            raise ValueError("`splits` maps the values of a `split` column, and none is named")
        for strange in [path for path in self.files if file_format(path) not in FORMATS][:1]:
            raise ValueError(f"{strange!r} ends in none of {', '.join(FORMATS)} (each also with .gz)")
        return self


class Features(Located):
    """svmlight lines with `qid:` groups."""

    width: Annotated[int, Field(ge=1)]  # number of features; a file that never names the last one would hide it


class OwnOptions(Options):
    """What every data set of one's own says about itself; by themselves those of the reader `logits`."""

    labels: Annotated[tuple[Name, ...], Field(min_length=2)]  # names, index = label: from irrelevant to exact
    title: str | None = None
    domain: str = "own data"
    task: str = "relevance prediction"
    licence: str = "not stated"

    @model_validator(mode="after")
    def _labels_differ(self) -> "OwnOptions":
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must differ from each other: {', '.join(self.labels)}")
        return self


class FilesOptions(OwnOptions):
    """`options` of a data set whose reader is `files`."""

    pairs: Pairs | None = None
    features: Features | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "FilesOptions":
        if (self.pairs is None) == (self.features is None):
            raise ValueError("give either `pairs` (tables of texts) or `features` (svmlight)")
        names = [PurePath(path).name for path in self.raw["files"]]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"files must differ in their base names: {', '.join(sorted(twice))} is named twice")
        return self

    @property
    def raw(self) -> dict[str, Any]:
        """Every file that the options name, in their order."""
        return {"files": (self.pairs or self.features).files}  # type: ignore[union-attr]


class HubOptions(OwnOptions, PairColumns):
    """`options` of a data set whose reader is `hub`."""

    licence: str = "see the data set's card"
    id: Annotated[str, Field(pattern=r"^([\w.-]+/)?[\w.-]+$")]  # owner/name, as the hub shows it
    revision: Name | None = None  # a commit; without one, that of the first download
    config: Name | None = None
    # patterns of what is downloaded (`**/` is in any folder); without any, every table there is
    files: Names | None = None
    splits: Annotated[Mapping[Name, Place], Field(min_length=1)]  # their split -> ours; others are not read

    @field_validator("revision")
    @classmethod
    def _is_a_commit(cls, revision: str | None) -> str | None:
        if revision is not None and not re.fullmatch(r"[0-9a-f]{40}", revision):
            raise ValueError(
                "a revision is a commit, 40 hexadecimal digits, since a branch or a tag may move; the hub shows it"
                " under `Files and versions`, `History`, with a button to copy it"
            )
        return revision

    @property
    def raw(self) -> dict[str, Any]:
        """The repository."""
        return {"repository": Repository(self.id, self.revision, self.files or DATA_FILES)}


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
    """`frames` (path -> rows with text labels) with labels 0..K-1; InputError names the first row outside of them.

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
    """The rows of SCHEMA of `frames` (path -> rows from `named`, their `split` in our names), checked.

    InputError where one has no group or two texts, unless `drop_empty` lets texts go, or the id of another.
    """
    columns = {"query": source.query, "candidate": source.candidate}
    has_text = {side: pl.col(side) != "" for side in columns}  # blank ones left no trace in it
    whole = {}
    for path, frame in frames.items():
        for column, called in (("group", source.group), ("pair", source.pair)):
            forbid(frame, pl.col(column).is_null(), path, column, "every row needs one", called=called)
        whole[path] = frame.filter(*has_text.values()) if source.drop_empty else frame
        if source.drop_empty:
            empty = len(frame) - len(whole[path])
            logger.info("%s: %d of %d pairs have no text and are left out", path, empty, len(frame))
        for side, there in has_text.items():
            advice = (
                "give it a text, or leave such pairs out with `drop_empty: true` under `pairs` of this data set in "
                "params.yaml"
            )
            forbid(whole[path], ~there, path, side, advice, called=", ".join(columns[side]))
    text = joined_text((f"{side}: ", side) for side in columns).alias("text")
    rows = pl.concat(frame.with_columns(text).select(*SCHEMA) for frame in coded(whole, labels, source.label))
    for repeated in rows.filter(pl.col("pair").is_duplicated())["pair"].head(1):
        raise InputError(f"{folder}: the pair id {repeated!r} is given more than once; each must be unique")
    return Judged(rows, dropped={"without text": sum(map(len, frames.values())) - len(rows)})
