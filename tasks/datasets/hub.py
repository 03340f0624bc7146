"""The source `hub` for one's own sets: judged pairs in any repository of the Hugging Face hub."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import polars as pl

from relmap.errors import InputError
from tasks.datasets import base, own, raw


def read(folder: Path, chosen: own.HubOptions) -> base.Judged:
    """The judged pairs of the splits that the options name, split after split, each in its own order."""
    frames = {}
    with raw.opened_repository(folder) as rows:
        for theirs, ours in chosen.splits.items():
            there = rows(theirs, chosen.config)
            frame = own.named(partial(table, there, chosen), chosen, theirs)
            frames[there.path] = frame.with_columns(split=pl.lit(None if ours == "drawn" else ours, dtype=pl.String))
    return own.judged(frames, chosen, chosen.labels, folder)


def table(rows: raw.RepositoryRows, chosen: own.HubOptions, kinds: Mapping[str, str]) -> pl.DataFrame:
    """ROW and the columns of `kinds`; a label column that names its classes gives names, which must be ours."""
    frame, label, labels = rows.table(kinds), chosen.label, chosen.labels
    kind = rows.data.features[label]
    if isinstance(kind, raw.hub_library().ClassLabel):
        names = [str(name) for name in kind.names]
        if set(names) != set(labels):
            raise InputError(
                f"{rows.path}, column {label!r} names its labels {', '.join(names)}, but the options name"
                f" {', '.join(labels)}; they must be the same, in the order from irrelevant to exact"
            )
        by_code = {str(code): name for code, name in enumerate(names)}
        frame = frame.with_columns(pl.col(label).replace_strict(by_code, default=None))
    return frame
