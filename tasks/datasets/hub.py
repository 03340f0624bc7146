"""Source `hub`: labelled pairs in any repository of the Hugging Face hub."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import polars as pl

from relmap.errors import InputError
from tasks.datasets import base, own, raw


def read(folder: Path, options: own.HubOptions) -> base.LabelledPairs:
    """Read the labelled pairs of the splits that the options name, in the order of the splits and of their rows.

    Args:
        folder: Folder of the repository.
        options: Options of the data set.

    Returns:
        The labelled pairs.
    """
    frames = {}
    with raw.open_repository(folder) as read_split:
        for released_split, split in options.splits.items():
            rows = read_split(released_split, options.config)
            frame = own.read_pair_columns(partial(read_table, rows, options), options, released_split)
            value = None if split == "drawn" else split
            frames[rows.path] = frame.with_columns(split=pl.lit(value, dtype=pl.String))
    return own.build_labelled_pairs(frames, options, options.labels, folder)


def read_table(rows: raw.RepositoryRows, options: own.HubOptions, kinds: Mapping[str, str]) -> pl.DataFrame:
    """Read columns of a split. A label column with class names gives names instead of codes.

    Args:
        rows: Rows of the split.
        options: Options of the data set.
        kinds: Column -> required kind.

    Returns:
        ROW_NUMBER and the columns.

    Raises:
        InputError: The class names are not the labels of the options.
    """
    frame = rows.table(kinds)
    feature = rows.data.features[options.label]
    if not isinstance(feature, raw.import_hub_library().ClassLabel):
        return frame
    names = [str(name) for name in feature.names]
    if set(names) != set(options.labels):
        raise InputError(
            f"{rows.path}, column {options.label!r} names its labels {', '.join(names)}, but the options name "
            f"{', '.join(options.labels)}; they must be the same, in the order from irrelevant to exact"
        )
    name_of_code = {str(code): name for code, name in enumerate(names)}
    return frame.with_columns(pl.col(options.label).replace_strict(name_of_code, default=None))
