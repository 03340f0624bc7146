"""What a data set is: a value that says where it comes from and how its raw files become judged pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

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
class RawFile:
    """One file of the official source, relative to `raw/<d>/`; `size` in bytes and `sha256` where known.

    `path` may be a pattern (`us/train-*.parquet`) where the source does not say in how many parts it comes.
    `hf://datasets/<id>@<revision>/<path>` is a file of the Hugging Face hub; a file without `url` comes in an archive.
    """

    path: str
    url: str | None = None
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A data set as a declared value; the one thing it does is to read its own raw files.

    `read(folder, options)` returns a frame of TEXT_SCHEMA (or with `features`), raising BadInput where a file is
    missing, truncated or holds something else. `options` are the reader's own knobs from params.yaml.
    """

    name: str  # the key used everywhere: DVC, Prefect, params.yaml, paths
    title: str  # as the paper writes it
    domain: str
    task: str
    labels: tuple[str, ...]  # index = label
    licence: str
    bibkey: str
    homepage: str
    revision: str  # pinned commit, or what identifies the bytes
    files: tuple[RawFile, ...]
    read: Callable[[Path, Mapping[str, Any]], pl.DataFrame]
    features: int = 0  # number of ready-made features; 0 means text
    options: Mapping[str, Any] = field(default_factory=dict)  # the reader's knobs with their defaults

    @property
    def n_labels(self) -> int:
        """K."""
        return len(self.labels)
