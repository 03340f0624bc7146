"""Options of a user's own labelled pairs, and the conversion of their tables, for all sources.

Rows keep their order. Unusable rows are errors that name the file and row; they are never dropped silently.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Literal, get_args

import polars as pl
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from relmap.errors import InputError
from tasks.datasets.base import SCHEMA, LabelledPairs, concatenate_texts
from tasks.datasets.raw import ROW_NUMBER, forbid_rows
from tasks.sources.hub import DATA_FILES, Repository

logger = logging.getLogger(__name__)

FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".json")  # each also with .gz
SIDES = ("query", "candidate")
COMMIT_PATTERN = r"[0-9a-f]{40}"


def _as_tuple(value: object) -> object:
    """Accept one name instead of a list of names."""
    return (value,) if isinstance(value, str | int) else value


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
OneOrMoreNames = Annotated[Names, BeforeValidator(_as_tuple)]
Split = Literal["train", "validation", "test", "drawn"]  # drawn: assigned later, with the shares of the data set


class Options(BaseModel):
    """Options that accept no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


class LookupTable(Options):
    """Table with the texts of identifiers.

    Attributes:
        path: File.
        id: Column of the identifiers.
        text: Text columns, joined with a space.
    """

    path: Name
    id: Name
    text: OneOrMoreNames


class SplitFiles(Options):
    """Files of labelled pairs, listed for each split or without a split.

    Attributes:
        path: One or more files, or one or more files of each split.
    """

    path: OneOrMoreNames | Mapping[Split, OneOrMoreNames]

    @property
    def parts(self) -> list[tuple[str | None, str]]:
        """Split (None if it is drawn later) and path of each file, in the order given."""
        if not isinstance(self.path, Mapping):
            return [(None, path) for path in self.path]
        parts: list[tuple[str | None, str]] = []
        for split, paths in self.path.items():
            parts += [(None if split == "drawn" else split, path) for path in paths]
        return parts

    @property
    def lookups(self) -> Mapping[str, LookupTable]:
        """Side of a pair (`query` or `candidate`) -> table of its texts, if they are looked up."""
        return {}

    @property
    def files(self) -> tuple[str, ...]:
        """All files: first the files of the rows, in their order, then the lookup tables."""
        row_files = [path for _, path in self.parts]
        lookup_files = [lookup.path for lookup in self.lookups.values()]
        return (*row_files, *lookup_files)


class PairColumns(Options):
    """Columns of a table of text pairs. If there are several text columns, they are joined with a space.

    Attributes:
        group: Column of the query or its identifier; a group is never divided between splits.
        query: Columns of the query text, or the column of the identifier that is looked up.
        candidate: The same for the candidate.
        label: Column of the label.
        pair: Column of unique identifiers of pairs. Without it, a pair is named by file and row.
        drop_empty: Whether pairs without a text are omitted instead of reported as errors.
    """

    group: Name
    query: OneOrMoreNames
    candidate: OneOrMoreNames
    label: Name
    pair: Name | None = None
    drop_empty: bool = False

    @property
    def side_columns(self) -> Mapping[str, tuple[str, ...]]:
        """Side of a pair (`query` or `candidate`) -> its columns."""
        return {"query": self.query, "candidate": self.candidate}


class PairTables(SplitFiles, PairColumns):
    """Tables of text pairs.

    Attributes:
        split: Column of the split.
        splits: Other names in that column -> split, such as `{dev: validation}`.
        queries: Table of query texts.
        candidates: Table of candidate texts.
    """

    split: Name | None = None
    splits: Mapping[str, Split] = Field(default_factory=dict)
    queries: LookupTable | None = None
    candidates: LookupTable | None = None

    @property
    def lookups(self) -> Mapping[str, LookupTable]:
        """Side of a pair (`query` or `candidate`) -> table of its texts, if they are looked up."""
        tables = {"query": self.queries, "candidate": self.candidates}
        return {side: table for side, table in tables.items() if table is not None}

    @model_validator(mode="after")
    def _require_consistent_fields(self) -> "PairTables":
        for side in self.lookups:
            if len(self.side_columns[side]) > 1:
                raise ValueError(f"`{side}` must name exactly one column, with the ids that are looked up")
        if self.split is not None and isinstance(self.path, Mapping):
            raise ValueError("give either a `split` column or files for each split")
        if self.splits and self.split is None:
            raise ValueError("`splits` maps the values of a column, but `split` does not name one")
        for path in self.files:
            if not path.removesuffix(".gz").endswith(FORMATS):
                raise ValueError(f"{path!r} ends in none of {', '.join(FORMATS)} (each also with .gz)")
        return self


class FeatureFiles(SplitFiles):
    """Files of svmlight lines with `qid:` groups.

    Attributes:
        width: Number of features. It is required, since a file may never contain the last one.
    """

    width: Annotated[int, Field(ge=1)]


class OwnOptions(Options):
    """Options that describe a user's own data set. The reader `logits` has no other options.

    Attributes:
        labels: Names of the labels, from irrelevant to exact; the index is the label.
        title: Name in reports.
        domain: Application domain.
        task: Prediction task.
        licence: Licence of the data.
    """

    labels: Annotated[tuple[Name, ...], Field(min_length=2)]
    title: str | None = None
    domain: str = "own data"
    task: str = "relevance prediction"
    licence: str = "not stated"

    @property
    def raw_files(self) -> tuple[str, ...]:
        """Files that the options name, in their order."""
        return ()

    @property
    def repository(self) -> Repository | None:
        """Repository that the options name."""
        return None

    @model_validator(mode="after")
    def _require_unique_labels(self) -> "OwnOptions":
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must differ from each other: {', '.join(self.labels)}")
        return self


class FilesOptions(OwnOptions):
    """Options of the reader `files`.

    Attributes:
        pairs: Tables of text pairs.
        features: Files of svmlight lines.
    """

    pairs: PairTables | None = None
    features: FeatureFiles | None = None

    @model_validator(mode="after")
    def _require_consistent_fields(self) -> "FilesOptions":
        if (self.pairs is None) == (self.features is None):
            raise ValueError("give either `pairs` (tables of texts) or `features` (svmlight)")
        names = [PurePath(path).name for path in self.raw_files]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"files must differ in their base names: {', '.join(sorted(repeated))} is named twice")
        return self

    @property
    def raw_files(self) -> tuple[str, ...]:
        """Files that the options name, in their order."""
        source = self.pairs or self.features
        return () if source is None else source.files


class HubOptions(OwnOptions, PairColumns):
    """Options of the reader `hub`.

    Attributes:
        id: Repository as `owner/name`.
        revision: Commit; by default the newest one at the first download.
        config: Configuration.
        files: Patterns of the files to download (`**/` means in any folder); by default all tables.
        splits: Split of the repository -> split of this project. Other splits of the repository are not read.
    """

    licence: str = "see the data set's card"
    id: Annotated[str, Field(pattern=r"^([\w.-]+/)?[\w.-]+$")]
    revision: Name | None = None
    config: Name | None = None
    files: Names | None = None
    splits: Annotated[Mapping[Name, Split], Field(min_length=1)]

    @field_validator("revision")
    @classmethod
    def _require_commit(cls, revision: str | None) -> str | None:
        if revision is not None and not re.fullmatch(COMMIT_PATTERN, revision):
            raise ValueError(
                "a revision is a commit, 40 hexadecimal digits, since a branch or a tag may move; the hub shows it "
                "under `Files and versions`, `History`, with a button to copy it"
            )
        return revision

    @property
    def repository(self) -> Repository:
        """Repository that the options name."""
        return Repository(self.id, self.revision, self.files or DATA_FILES)


def read_pair_columns(
    read_table: Callable[[Mapping[str, str]], pl.DataFrame],
    source: PairColumns,
    name: str,
    split: str | None = None,
    lookup_sides: Collection[str] = (),
) -> pl.DataFrame:
    """Read a table of text pairs, with the columns renamed.

    Args:
        read_table: Function that reads ROW_NUMBER and the columns of given kinds.
        source: Columns of the table.
        name: Name of the table. A pair without an identifier is named `<name>:<row>`.
        split: Column of the split.
        lookup_sides: Sides (`query`, `candidate`) whose column has identifiers of texts instead of texts.

    Returns:
        ROW_NUMBER, `group`, `label`, `split`, `pair`, `query` and `candidate`, all as text.
    """
    id_columns = {side: columns[0] for side, columns in source.side_columns.items() if side in lookup_sides}
    text_columns = {side: columns for side, columns in source.side_columns.items() if side not in lookup_sides}
    optional_columns = {"split": split, "pair": source.pair}
    named_columns = {column: name_in_file for column, name_in_file in optional_columns.items() if name_in_file}
    given_columns = {"group": source.group, "label": source.label, **id_columns, **named_columns}

    kinds = dict.fromkeys(given_columns.values(), "text or number")
    for columns in text_columns.values():
        kinds |= dict.fromkeys(columns, "text")
    frame = read_table(kinds)

    expressions = {
        "group": pl.col(source.group),
        "label": pl.col(source.label),
        "split": pl.col(split) if split else pl.lit(None, dtype=pl.String),
        "pair": pl.col(source.pair) if source.pair else pl.format("{}:{}", pl.lit(name), ROW_NUMBER),
    }
    for side, column in id_columns.items():
        expressions[side] = pl.col(column)
    for side, columns in text_columns.items():
        expressions[side] = concatenate_texts((("", column) for column in columns), " ")
    return frame.select(ROW_NUMBER, **expressions)


def map_splits(frame: pl.DataFrame, splits: Mapping[str, Split], path: Path, name_in_file: str) -> pl.DataFrame:
    """Replace the values of the column `split` by the names of splits. Null means that the split is drawn later.

    Args:
        frame: Rows with ROW_NUMBER and `split`.
        splits: Other names -> split.
        path: File, for messages.
        name_in_file: Name of the column in the file.

    Returns:
        The rows.

    Raises:
        InputError: A value is unknown.
    """
    known_splits = {split: split for split in get_args(Split)} | dict(splits)
    is_known = pl.col("split").is_in(list(known_splits)) | pl.col("split").is_null()
    remedy = f"it must be one of {', '.join(known_splits)}; `splits` maps other names to them"
    forbid_rows(frame, ~is_known, path, "split", remedy, name_in_file=name_in_file)
    split = pl.col("split").replace_strict(known_splits, default=None)
    return frame.with_columns(pl.when(split != "drawn").then(split).alias("split"))


def encode_labels(
    frames: Mapping[Path, pl.DataFrame], labels: tuple[str, ...], name_in_file: str = "label"
) -> list[pl.DataFrame]:
    """Replace text labels by 0..K-1.

    The labels in the files are read either as names or as numbers 0..K-1, whichever matches more rows of all files.

    Args:
        frames: File -> rows with ROW_NUMBER and `label`.
        labels: Names of the labels.
        name_in_file: Name of the column in the files.

    Returns:
        The frames.

    Raises:
        InputError: A label is unknown.
    """
    without_decimals = pl.col("label").str.replace(r"^\+?(-?\d+)\.0+$", "$1")  # 2.0 is 2
    frames = {path: frame.with_columns(without_decimals) for path, frame in frames.items()}
    values = pl.concat([frame["label"] for frame in frames.values()])
    code_of_name = {name: code for code, name in enumerate(labels)}
    code_of_number = {str(code): code for code in range(len(labels))}

    def n_matches(codes: Mapping[str, int]) -> int:
        return int(values.is_in(list(codes)).sum())

    codes = code_of_name if n_matches(code_of_name) >= n_matches(code_of_number) else code_of_number
    for path, frame in frames.items():
        is_known = pl.col("label").is_in(list(codes)).fill_null(False)
        remedy = f"it must be one of {', '.join(codes)}"
        forbid_rows(frame, ~is_known, path, "label", remedy, name_in_file=name_in_file)
    code = pl.col("label").replace_strict(codes, return_dtype=pl.Int8)
    return [frame.with_columns(code) for frame in frames.values()]


def build_labelled_pairs(
    frames: Mapping[Path, pl.DataFrame], source: PairColumns, labels: tuple[str, ...], folder: Path
) -> LabelledPairs:
    """Check text pairs and convert them to SCHEMA.

    Args:
        frames: File -> rows of `read_pair_columns`, with the final `split`.
        source: Columns of the tables.
        labels: Names of the labels.
        folder: Folder of the raw files, for messages.

    Returns:
        The labelled pairs.

    Raises:
        InputError: A row has no group, no text (unless `drop_empty`), or the identifier of another row.
    """
    checked = {path: _check_rows(frame, source, path) for path, frame in frames.items()}
    text = concatenate_texts((f"{side}: ", side) for side in SIDES).alias("text")
    encoded = encode_labels(checked, labels, source.label)
    rows = pl.concat(frame.with_columns(text).select(*SCHEMA) for frame in encoded)
    repeated = rows.filter(pl.col("pair").is_duplicated())["pair"]
    if len(repeated):
        raise InputError(f"{folder}: the pair id {repeated[0]!r} is given more than once; each must be unique")
    n_read = sum(len(frame) for frame in frames.values())
    return LabelledPairs(rows, dropped={"without text": n_read - len(rows)})


def _check_rows(frame: pl.DataFrame, source: PairColumns, path: Path) -> pl.DataFrame:
    """Check groups, identifiers and texts of a table, or drop pairs without a text if the options ask for it."""
    for column, name_in_file in (("group", source.group), ("pair", source.pair)):
        forbid_rows(frame, pl.col(column).is_null(), path, column, "every row needs one", name_in_file=name_in_file)
    has_text = {side: pl.col(side) != "" for side in SIDES}  # blank texts are empty after concatenation
    if source.drop_empty:
        complete = frame.filter(*has_text.values())
        logger.info("%s: %d of %d pairs have no text and are dropped", path, len(frame) - len(complete), len(frame))
        return complete
    remedy = "add a text, or drop such pairs with `drop_empty: true` under `pairs` of this data set in params.yaml"
    for side, columns in source.side_columns.items():
        forbid_rows(frame, ~has_text[side], path, side, remedy, name_in_file=", ".join(columns))
    return frame
