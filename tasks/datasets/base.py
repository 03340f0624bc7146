"""What a data set is: a value that says where it comes from and how its raw files become judged pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from tasks.sources.origin import Origin

# The frame that every reader returns: one row for each judged pair, in a fixed order.
TEXT_SCHEMA = {
    "pair": pl.String,  # names the pair within its data set; never a feature
    "split": pl.String,  # train, validation or test where the source fixes it, else null
    "group": pl.String,  # the query; what must not straddle splits
    "query": pl.String,
    "candidate": pl.String,
    "label": pl.Int8,  # 0..K-1, in the order of Dataset.labels
}
# Feature data carry `features`, pl.Array(pl.Float32, width), in place of `query` and `candidate`.


@dataclass(frozen=True)
class Judged:
    """What a reader makes of its raw files."""

    pairs: pl.DataFrame  # of TEXT_SCHEMA, or with `features`
    counts: Mapping[str, int] = field(default_factory=dict)  # of the raw files, as `Origin.published` names them
    dropped: Mapping[str, int] = field(default_factory=dict)  # pairs left out, by the rule that left them out


@dataclass(frozen=True)
class Dataset:
    """A data set as a declared value; the one thing it does is to read its own raw files.

    `read(folder, options)` raises BadInput where a file is missing, truncated or holds something else. `options` are
    the reader's own knobs from params.yaml.
    """

    name: str  # the key used everywhere: DVC, Prefect, params.yaml, paths
    title: str  # as the paper writes it
    domain: str
    task: str
    labels: tuple[str, ...]  # index = label
    bibkey: str
    origins: Mapping[str, Origin]  # its official places, the one that is used by default first
    read: Callable[[Path, Mapping[str, Any]], Judged]
    features: int = 0  # number of ready-made features; 0 means text
    options: Mapping[str, Any] = field(default_factory=dict)  # the reader's knobs with their defaults
    origin_option: str | None = None  # the knob that says which of `origins`; without one there is one

    @property
    def n_labels(self) -> int:
        """K."""
        return len(self.labels)

    def origin(self, options: Mapping[str, Any]) -> Origin:
        """The official place that these options read."""
        if self.origin_option is None:
            return next(iter(self.origins.values()))
        return self.origins[str({**self.options, **options}[self.origin_option])]
