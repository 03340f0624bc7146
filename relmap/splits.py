"""Splits of the validation rows of one protocol seed into the parts that calibrators and projections are fitted on."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relmap.decisions import ProtocolDecisions
from relmap.settings import ProtocolParams

BASE_SEED = 2026  # seeds of the authors' code
SEED_FACTOR = 1009
PROJECTION_FIT_SEED = 11
PROJECTION_SELECTION_SEED = 23


class ValidationRows(NamedTuple):
    """Validation rows of one protocol seed, by purpose.

    Attributes:
        seed: Protocol seed.
        temperature_fit: Rows on which TS is fitted; in the paper all validation rows, so that the temperature leaks
            information on the other parts.
        calibrator_fit: Rows on which the other calibrators are fitted.
        projection_fit: Rows on which the projections are fitted.
        projection_selection: Rows that choose the penalty of label-wise shifts.
    """

    seed: int
    temperature_fit: ProtocolDecisions
    calibrator_fit: ProtocolDecisions
    projection_fit: ProtocolDecisions
    projection_selection: ProtocolDecisions

    def rows_for_calibrator(self, calibrator: str) -> ProtocolDecisions:
        """Return the rows on which a calibrator is fitted.

        Args:
            calibrator: Key of the calibrator.

        Returns:
            `temperature_fit` for "ts", else `calibrator_fit`.
        """
        return self.temperature_fit if calibrator == "ts" else self.calibrator_fit

    @property
    def interleaved_fit_rows(self) -> "ValidationRows":
        """Rows whose `calibrator_fit` alternates between as many calibrator-fit rows as projection-fit rows."""
        n_pairs = min(len(self.calibrator_fit), len(self.projection_fit))
        pairs = slice(n_pairs)
        combined = ProtocolDecisions.concatenate([self.calibrator_fit.take(pairs), self.projection_fit.take(pairs)])
        alternating_order = np.arange(2 * n_pairs).reshape(2, n_pairs).T.ravel()
        return self._replace(calibrator_fit=combined.take(alternating_order))

    def limit_fit_rows(self, n_rows: int) -> "ValidationRows":
        """Limit the calibrator-fit and the projection-fit rows.

        Args:
            n_rows: Maximum number of calibrator-fit rows, and of projection-fit rows; the first rows are retained.

        Returns:
            The limited rows.
        """
        return self._replace(
            calibrator_fit=self.calibrator_fit.take(slice(n_rows)),
            projection_fit=self.projection_fit.take(slice(n_rows)),
        )


def group_row_numbers(group: np.ndarray) -> list[np.ndarray]:
    """List the row numbers of each group.

    Args:
        group: Group of each row, shape (n,).

    Returns:
        Increasing row numbers of each group. Groups are in the order of their first rows, and not of their names.
    """
    _, first_row, name_code = np.unique(group, return_index=True, return_inverse=True)
    rank_of_code = np.argsort(np.argsort(first_row))
    code = rank_of_code[name_code]
    rows_by_code = np.argsort(code, kind="stable")
    return np.split(rows_by_code, np.cumsum(np.bincount(code))[:-1])


def expand_units(parts: Sequence[np.ndarray], units: Sequence[np.ndarray] | None) -> list[np.ndarray]:
    """Convert numbers of units to row numbers.

    Args:
        parts: Numbers of the units of each part; a unit is a row or a group of rows.
        units: Row numbers of each unit; None if units are rows.

    Returns:
        Row numbers of each part.
    """
    if units is None:
        return list(parts)
    no_rows = np.empty(0, dtype=np.int64)
    expanded = []
    for part in parts:
        rows = [units[unit] for unit in part]
        expanded.append(np.concatenate([no_rows, *rows]))
    return expanded


class ValidationParts(NamedTuple):
    """Row numbers of the disjoint parts of the validation rows.

    Attributes:
        calibrator_fit: Rows that calibrators are fitted on.
        projection_fit: Rows that projections are fitted on.
        projection_selection: Rows that the epoch or the penalty of a projection is selected on.
    """

    calibrator_fit: np.ndarray
    projection_fit: np.ndarray
    projection_selection: np.ndarray


def split_validation(n: int, seed: int, params: ProtocolParams, group: np.ndarray | None = None) -> ValidationParts:
    """Split validation rows into calibrator-fit, projection-fit and projection-selection rows.

    Rows are permuted and split as in the code of the paper's authors, so that each row is in the same part as there.
    The size of the first part is rounded half to even. The second part has its share of the rows that then remain,
    rounded half to even, and the third part has all others. If a projection part has more rows than the cap, a random
    sample of them is retained, in increasing order. With `params.split` "group" the groups are permuted instead of the
    rows, and no group is in two parts.

    Args:
        n: Number of rows.
        seed: Protocol seed.
        params: Shares, cap and kind of the split.
        group: Group of each row, shape (n,).

    Returns:
        The three parts.
    """
    base_seed = BASE_SEED + SEED_FACTOR * seed
    units = group_row_numbers(group) if params.split == "group" and group is not None else None
    n_units = n if units is None else len(units)
    order = np.random.default_rng(base_seed).permutation(n_units)
    first_end = round(params.parts[0] * n_units)
    share_of_rest = params.parts[1] / (params.parts[1] + params.parts[2])
    n_rest = n_units - first_end
    second_end = first_end + max(0, min(round(share_of_rest * n_rest), n_rest - 1))
    parts = ValidationParts(*expand_units(np.split(order, [first_end, second_end]), units))
    cap = params.projection_cap
    return ValidationParts(
        calibrator_fit=parts.calibrator_fit,
        projection_fit=_cap_rows(parts.projection_fit, cap, base_seed + PROJECTION_FIT_SEED),
        projection_selection=_cap_rows(parts.projection_selection, cap, base_seed + PROJECTION_SELECTION_SEED),
    )


def _cap_rows(rows: np.ndarray, cap: int, seed: int) -> np.ndarray:
    """Reduce rows to a random sample in file order if there are more than `cap`."""
    if len(rows) <= cap:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, cap, replace=False))


def select_validation_rows(validation: ProtocolDecisions, seed: int, params: ProtocolParams) -> ValidationRows:
    """Split validation rows under a protocol seed.

    Args:
        validation: n validation rows.
        seed: Protocol seed.
        params: Settings of the protocol.

    Returns:
        The rows by purpose.
    """
    parts = split_validation(len(validation), seed, params, validation.group)
    calibrator_fit = validation.take(parts.calibrator_fit)
    return ValidationRows(
        seed=seed,
        temperature_fit=validation if params.temperature_rows == "validation" else calibrator_fit,
        calibrator_fit=calibrator_fit,
        projection_fit=validation.take(parts.projection_fit),
        projection_selection=validation.take(parts.projection_selection),
    )
