"""Who sees which row: train, validation, test of a data set; the three validation parts of a protocol seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tasks.protocol.decisions import FixedDecisions, interleave
from tasks.protocol.errors import BadInput
from tasks.protocol.params import ProtocolParams

SPLITS = ("train", "validation", "test")


class ValidationRows(NamedTuple):
    """The validation rows of one protocol seed, each part for its one purpose."""

    seed: int
    calibrator_fit: FixedDecisions
    projection_fit: FixedDecisions
    projection_selection: FixedDecisions

    @property
    def both_fits(self) -> FixedDecisions:
        """Calibrator-fit and projection-fit rows in turn, as many of each: what one fit could have had of both."""
        pairs = min(len(self.calibrator_fit), len(self.projection_fit))
        return interleave(self.calibrator_fit.take(slice(pairs)), self.projection_fit.take(slice(pairs)))

    def first(self, rows: int) -> ValidationRows:
        """The same with so many of the first rows to fit on, at most."""
        return self._replace(
            calibrator_fit=self.calibrator_fit.take(slice(rows)), projection_fit=self.projection_fit.take(slice(rows))
        )


class ValidationParts(NamedTuple):
    """Row numbers within the validation rows; disjoint, each at most its cap (paper, section 4.3)."""

    calibrator_fit: np.ndarray
    projection_fit: np.ndarray
    projection_selection: np.ndarray


def validation_parts(
    n: int, seed: int, *, calibrator_fit_cap: int, projection_cap: int, group: np.ndarray | None = None
) -> ValidationParts:
    """Permute `n` validation rows once under `seed` and cut them in three equal parts, each capped.

    With `group` `(n,)` the groups are permuted in place of the rows and no group falls in two parts; the rows of
    a group stay in file order. The same `n`, seed and groups give the same parts on every machine.
    """
    generator = np.random.default_rng(seed)
    if group is None:
        thirds = np.array_split(generator.permutation(n), 3)
    else:
        _, first, code = np.unique(group, return_index=True, return_inverse=True)
        # groups in the order of their first row, so that their names do not matter
        code = np.argsort(np.argsort(first))[code]
        rows_by_group = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
        drawn = np.array_split(generator.permutation(len(rows_by_group)), 3)
        empty = np.empty(0, dtype=np.int64)
        thirds = [np.concatenate([empty, *(rows_by_group[g] for g in part)]) for part in drawn]
    caps = (calibrator_fit_cap, projection_cap, projection_cap)
    return ValidationParts(*(third[:cap] for third, cap in zip(thirds, caps, strict=True)))


def validation_rows(
    validation: FixedDecisions, seed: int, params: ProtocolParams, group: np.ndarray | None
) -> ValidationRows:
    """Cut the validation rows under protocol seed `seed`; `group` as in `validation_parts`."""
    parts = validation_parts(len(validation), seed, **params.model_dump(), group=group)
    return ValidationRows(seed, *(validation.take(rows) for rows in parts))


def draw_splits(frame: pl.DataFrame, *, by: str, shares: dict[str, float], seed: int) -> pl.DataFrame:
    """Give each row of `frame` with a null `split` one of the splits in `shares`, drawn by row or by group.

    Parameters
    ----------
    frame: has the columns `group` and `split`; rows whose split is known keep it.
    by: `row`, or `group` (then no group that is drawn falls in two splits).
    shares: the share of the drawn rows (or groups) for each split; the shares sum to one.

    Raises
    ------
    BadInput: an unknown `by`, or shares that do not sum to one.
    """
    if by not in ("row", "group"):
        raise BadInput(f"split.by is {by!r}; it must be 'row' or 'group'")
    if abs(sum(shares.values()) - 1) > 1e-9:
        raise BadInput(f"the shares of the splits sum to {sum(shares.values()):g}, not to 1: {shares}")
    open_rows = frame["split"].is_null()
    units = frame.filter(open_rows)["group"].unique(maintain_order=True) if by == "group" else None
    count = int(open_rows.sum()) if units is None else len(units)
    order = np.random.default_rng(seed).permutation(count)
    ends = np.floor(np.cumsum(list(shares.values())) * count + 0.5).astype(int)
    drawn = np.empty(count, dtype=np.int64)
    for code, rows in enumerate(np.split(order, ends[:-1])):
        drawn[rows] = code
    names = pl.Series("drawn", np.array(list(shares))[drawn], dtype=pl.String)
    if units is None:
        split = np.array(frame["split"].to_list(), dtype=object)
        split[open_rows.to_numpy()] = names.to_list()
        return frame.with_columns(pl.Series("split", split.tolist(), dtype=pl.String))
    lookup = pl.DataFrame({"group": units, "drawn": names})
    joined = frame.join(lookup, on="group", how="left", maintain_order="left")
    return joined.with_columns(split=pl.coalesce("split", "drawn")).drop("drawn")
