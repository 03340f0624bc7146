"""Train, validation and test rows of a data set."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl

SPLITS = ("train", "validation", "test")


def draw_splits(
    frame: pl.DataFrame, *, by: Literal["row", "group"], shares: Mapping[str, float], seed: int
) -> pl.DataFrame:
    """Assign a random split to each row without one.

    Args:
        frame: Rows with the columns `group` and `split`. Rows with a known split keep it.
        by: Unit to draw: `row`, or `group`, so that all drawn rows of a group are in one split.
        shares: Split -> share of the drawn units; the shares sum to one.
        seed: Seed of the random order.

    Returns:
        The rows with a complete column `split`.
    """
    unit_of_row = pl.int_range(pl.len()) if by == "row" else pl.col("group")
    without_split = unit_of_row.filter(pl.col("split").is_null())
    units = frame.select(without_split.unique(maintain_order=True)).to_series()
    order = np.random.default_rng(seed).permutation(len(units))
    ends = np.floor(np.cumsum(list(shares.values())) * len(units) + 0.5).astype(int)
    split_of_unit = np.empty(len(units), dtype=object)
    for split, indices in zip(shares, np.split(order, ends[:-1]), strict=True):
        split_of_unit[indices] = split
    drawn_split = unit_of_row.replace_strict(units, pl.Series(split_of_unit, dtype=pl.String), default=None)
    return frame.with_columns(split=pl.coalesce("split", drawn_split))
