"""The options of a data set of one's own: its files or its repository, its columns, its labels in order."""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tasks.datasets.raw import file_format
from tasks.sources.hub import DATA_FILES, Repository

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
