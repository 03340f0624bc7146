"""What a data set is: a value that says what it holds and how its raw files become judged pairs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl

from tasks.sources.hub import Repository

# The frame that every reader returns: one row for each judged pair, in a fixed order.
SCHEMA = {
    "pair": pl.String,  # names the pair within its data set; never a feature
    "split": pl.String,  # train, validation or test; null where it is still to be drawn
    "group": pl.String,  # the query
    "label": pl.Int8,  # 0..K-1, in the order of Dataset.labels
    "text": pl.String,  # or `features`, pl.Array(pl.Float32, width)
}


@dataclass(frozen=True)
class Judged:
    """What a reader makes of its raw files."""

    pairs: pl.DataFrame  # of SCHEMA, or with `features`, or with `logits`, pl.Array(pl.Float64, K)
    dropped: Mapping[str, int] = field(default_factory=dict)  # pairs left out, by the rule that left them out
    members: tuple[pl.DataFrame, ...] = ()  # the same pairs with the logits of each member, where these are saved


@dataclass(frozen=True)
class Dataset:
    """A data set as a declared value; the one thing it does is to read its own raw files.

    `read(folder)` raises BadInput where a file is missing, cut or holds something else.
    """

    name: str  # the key used everywhere: DVC, Prefect, params.yaml, paths
    title: str  # as the paper writes it
    domain: str
    task: str
    labels: tuple[str, ...]  # index = label
    licence: str
    read: Callable[[Path], Judged]
    repository: Repository | None = None  # on the hub
    files: tuple[str, ...] = ()  # one's own, in the folder that params.yaml names
    split_by: Literal["row", "group"] = "row"  # group: no query is in two splits
    drawn: tuple[str, ...] = ()  # splits that `read` draws from one pool
    member_seed: int = 0  # of the first base predictor
    passes: int | None = None  # of the linear base predictor over the rows; None: as that of other sets
    terms: int | None = None  # most words and word pairs that count; None: as in other sets

    @property
    def n_labels(self) -> int:
        """K."""
        return len(self.labels)
