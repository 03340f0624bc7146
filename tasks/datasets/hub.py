"""The source `hub`: anybody's own judged pairs in a repository of the Hugging Face hub, read as the hub reads it.

`raw/<d>/` holds the repository's data files and its card, at the commit that the options name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from tasks.datasets.base import Dataset, Judged
from tasks.datasets.file_options import DATA_FILES, HubOptions
from tasks.datasets.loading import hub_library, load_repository
from tasks.datasets.options import checked
from tasks.datasets.own import Wanted, judged, named, own_dataset, wanted
from tasks.datasets.raw import ROW, require, typed
from tasks.protocol.errors import BadInput
from tasks.sources.origin import Origin, RawFile


def hub_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set `name` that `options` describe; BadInput says what is wrong with them."""
    chosen = checked(HubOptions, options, name)
    origin = Origin(
        homepage=f"https://huggingface.co/datasets/{chosen.id}",
        revision=chosen.revision,
        licence="see the data set's card",
        terms="Whoever published the data set says on its card how it may be used.",
        files=tuple(RawFile(path, required=chosen.files is not None) for path in chosen.files or DATA_FILES),
        repository=chosen.id,
    )
    return own_dataset(name, chosen, origin, read, options)


def read(folder: Path, options: Mapping[str, Any]) -> Judged:
    """The judged pairs of the splits that the options name, split after split, each in its own order."""
    chosen = checked(HubOptions, options, folder.name)
    columns = wanted(chosen)
    repository = load_repository(folder, chosen.id, chosen.config)
    frames = {}
    for theirs, ours in chosen.splits.items():
        path = folder / theirs
        if theirs not in repository:
            raise BadInput(f"{path}: {chosen.id} has no such split; it has {', '.join(repository)}; mend `splits`")
        frame = named(table(repository[theirs], columns, path, chosen.labels), columns, theirs)
        split = pl.lit(None if ours == "drawn" else ours, dtype=pl.String)
        frames[path] = frame.with_columns(split.alias("split"))
    return judged(frames, chosen, chosen.labels, folder)


def table(rows: Any, columns: Wanted, path: Path, labels: tuple[str, ...]) -> pl.DataFrame:
    """ROW and the wanted columns, as text; a label column that names its classes gives names, which must be ours."""
    require(path, rows.column_names, columns.kinds)
    frame = rows.select_columns(list(columns.kinds)).to_polars().with_row_index(ROW, offset=1)
    label = columns.keys["label"]
    kind = rows.features[label]
    if isinstance(kind, hub_library().ClassLabel):
        names = [str(name) for name in kind.names]
        if set(names) != set(labels):
            raise BadInput(
                f"{path}, column {label!r} names its labels {', '.join(names)}, but the options name"
                f" {', '.join(labels)}; they must be the same, in the order from irrelevant to exact"
            )
        by_code = dict(enumerate(names))
        frame = frame.with_columns(pl.col(label).replace_strict(by_code, default=None, return_dtype=pl.String))
    return typed(path, frame.lazy(), frame.schema, columns.kinds).collect()
