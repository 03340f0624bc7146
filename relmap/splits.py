"""Who sees which row: train, validation, test of a data set; the three validation parts of a protocol seed."""

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from relmap.decisions import FixedDecisions
from relmap.settings import ProtocolParams


class ValidationRows(NamedTuple):
    """The validation rows of one protocol seed, each part for its one purpose."""

    seed: int
    temperature_fit: FixedDecisions  # what TS is fitted on: all validation rows in the paper, a leak of one number
    calibrator_fit: FixedDecisions
    projection_fit: FixedDecisions
    projection_selection: FixedDecisions

    def fit_rows(self, calibrator: str) -> FixedDecisions:
        """What a calibrator of the tables is fitted on."""
        return self.temperature_fit if calibrator == "ts" else self.calibrator_fit

    @property
    def on_both(self) -> "ValidationRows":
        """Calibrator-fit and projection-fit rows in turn, as many of each, in place of calibrator-fit."""
        fits = self.calibrator_fit, self.projection_fit
        pairs, names = min(map(len, fits)), [field.name for field in fields(FixedDecisions)]
        both = {name: np.concatenate([getattr(fit, name)[:pairs] for fit in fits]) for name in names}
        in_turn = np.arange(2 * pairs).reshape(2, -1).T.ravel()
        return self._replace(calibrator_fit=FixedDecisions(**both).take(in_turn))

    def first(self, rows: int) -> "ValidationRows":
        """The same with so many of the first rows to fit on, at most."""
        return self._replace(
            calibrator_fit=self.calibrator_fit.take(slice(rows)), projection_fit=self.projection_fit.take(slice(rows))
        )


def group_row_numbers(group: np.ndarray) -> list[np.ndarray]:
    """Groups `(n,)` to the rising row numbers of each, groups in the order of their first row: names do not matter."""
    _, first, code = np.unique(group, return_index=True, return_inverse=True)
    code = np.argsort(np.argsort(first))[code]
    return np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])


def expand_units(parts: Sequence[np.ndarray], units: Sequence[np.ndarray] | None) -> list[np.ndarray]:
    """Return the row numbers of each of `parts`, which are numbers of `units`, or of rows themselves (None)."""
    if units is None:
        return list(parts)
    return [np.concatenate([np.empty(0, dtype=np.int64), *(units[unit] for unit in part)]) for part in parts]


def split_validation(n: int, seed: int, params: ProtocolParams, group: np.ndarray | None = None) -> list[np.ndarray]:
    """Return the rows for calibrator-fit, projection-fit and projection-selection, of `n` under protocol seed `seed`.

    They are permuted and cut as the paper's authors do: the first share is rounded, halves to the even number, the
    second rounded down, the third is what is left; so their numbers come out row by row. One of the last two that is
    over its cap is drawn down without replacement and then in file order. The parts are disjoint. With `params.split`
    `group` the groups `(n,)` are permuted in place of the rows and none falls in two parts.
    """
    base = 2026 + 1009 * seed
    units = group_row_numbers(group) if params.split == "group" and group is not None else None
    order = np.random.default_rng(base).permutation(n if units is None else len(units))
    first = round(params.parts[0] * len(order))
    parts = expand_units(np.split(order, [first, first + int(params.parts[1] * len(order))]), units)
    for place, offset in ((1, 11), (2, 23)):
        if len(parts[place]) > params.projection_cap:
            generator = np.random.default_rng(base + offset)
            parts[place] = np.sort(generator.choice(parts[place], params.projection_cap, replace=False))
    return parts


def select_validation_rows(validation: FixedDecisions, seed: int, params: ProtocolParams) -> ValidationRows:
    """Cut the validation rows under protocol seed `seed`."""
    parts = split_validation(len(validation), seed, params, validation.group)
    fit, *projection = (validation.take(rows) for rows in parts)
    return ValidationRows(seed, validation if params.temperature_rows == "validation" else fit, fit, *projection)
