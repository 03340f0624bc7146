"""Source `hub`: labelled pairs in any repository of the Hugging Face hub."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import polars as pl

from relmap.errors import InputError
from tasks.datasets import base, own, raw


def read(folder: Path, options: own.HubOptions) -> base.LabelledPairs:
    """Read the labelled pairs of the splits in the options. Splits keep the order of the options, and rows their order.

    Args:
        folder: Folder of the repository.
        options: Options of the data set.

    Returns:
        The labelled pairs.
    """
    frames = {}
    with raw.open_repository(folder) as read_split:
        for split_in_repository, split in options.splits.items():
            rows = read_split(split_in_repository, options.config)
            frame = own.read_pair_columns(partial(read_table, rows, options), options, split_in_repository)
            assigned_split = None if split == "drawn" else split  # None: a later step assigns splits at random
            frames[rows.path] = frame.with_columns(split=pl.lit(assigned_split, dtype=pl.String))
    return own.build_labelled_pairs(frames, options, options.labels, folder)


def read_table(rows: raw.RepositoryRows, options: own.HubOptions, kinds: Mapping[str, str]) -> pl.DataFrame:
    """Read columns of a split. Class codes in the label column are replaced by the class names, if there are any.

    Args:
        rows: Rows of the split.
        options: Options of the data set.
        kinds: Column -> required kind, a key of `raw.KINDS`.

    Returns:
        ROW_NUMBER and the columns.

    Raises:
        InputError: The class names are not the labels of the options; their order may differ.
    """
    frame = rows.table(kinds)
    feature = rows.data.features[options.label]
    if not isinstance(feature, raw.import_hub_library().ClassLabel):
        return frame
    names = [str(name) for name in feature.names]
    if set(names) != set(options.labels):
        raise InputError(
            f"{rows.path}, column {options.label!r} has the class names {', '.join(names)}, but the option `labels` "
            f"has {', '.join(options.labels)}; list exactly the class names in `labels`, from irrelevant to exact"
        )
    name_of_code = {str(code): name for code, name in enumerate(names)}  # the column was read as text
    # null for a code without a name, such as -1 of a row without a label
    return frame.with_columns(pl.col(options.label).replace_strict(name_of_code, default=None))
