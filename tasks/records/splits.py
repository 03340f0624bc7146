"""Train, validation and test rows of a data set."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl

SPLITS = ("train", "validation", "test")


def draw_splits(
    frame: pl.DataFrame, *, by: Literal["row", "group"], shares: Mapping[str, float], seed: int
) -> pl.DataFrame:
    """Give each row of `frame` with a null `split` one of the splits in `shares`, drawn by row or by group.

    Args:
        frame: has the columns `group` and `split`; rows whose split is known keep it.
        by: `row`, or `group` (then no group that is drawn falls in two splits).
        shares: the share of the drawn rows (or groups) for each split; the shares sum to one.
    """
    unit = pl.int_range(pl.len()) if by == "row" else pl.col("group")
    units = frame.select(unit.filter(pl.col("split").is_null()).unique(maintain_order=True)).to_series()
    order = np.random.default_rng(seed).permutation(len(units))
    ends = np.floor(np.cumsum(list(shares.values())) * len(units) + 0.5).astype(int)
    drawn = np.empty(len(units), dtype=object)
    for split, places in zip(shares, np.split(order, ends[:-1]), strict=True):
        drawn[places] = split
    of_unit = unit.replace_strict(units, pl.Series(drawn, dtype=pl.String), default=None)
    return frame.with_columns(split=pl.coalesce("split", of_unit))
