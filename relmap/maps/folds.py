"""Split of labelled rows into folds.

Rows, or whole groups of rows, are assigned to folds at random under a seed. Models are fitted on all folds but one and
evaluated on the remaining one, so every row of a fold has an out-of-fold prediction. The deployed model is fitted on
all folds. Rows can also be held out from every fit. The protocol of the paper has its own split in
`relmap.projection.rows`.
"""

from dataclasses import dataclass

import numpy as np

from relmap.calibrators.identity import Identity
from relmap.decisions import FixedDecisions
from relmap.errors import InputError, option
from relmap.maps.document import Calibrator, MapDocument, Source
from relmap.projection.rows import expand_units, group_row_numbers, split_validation

N_FOLDS = 5
MAX_FIT_ROWS = 16_000  # more rows hardly improve a fit, so they are held out


@dataclass(frozen=True, eq=False)
class FoldSplit:
    """Row numbers of the folds and of the held-out rows.

    Attributes:
        folds: Row numbers of each fold.
        held_out: Increasing numbers of the rows that no model is fitted on.
    """

    folds: tuple[np.ndarray, ...]
    held_out: np.ndarray

    @property
    def fit_rows(self) -> np.ndarray:
        """Numbers of the rows of all folds, fold by fold."""
        return np.concatenate(self.folds)


def split_folds(
    n_rows: int,
    group: np.ndarray | None,
    seed: int,
    *,
    n_folds: int = N_FOLDS,
    hold_out: float = 0,
    max_fit_rows: int = MAX_FIT_ROWS,
) -> FoldSplit:
    """Split rows, or whole groups of rows, into folds and held-out rows.

    The same rows, groups and seed give the same split on every machine. If all rows belong to one group, the rows are
    split.

    Args:
        n_rows: Number of rows n.
        group: Group of each row, shape (n,); None if rows are independent.
        seed: Seed of the random order.
        n_folds: Number of folds; reduced to the number of groups if there are fewer.
        hold_out: Share of the rows, or of the groups, to hold out, in [0, 1).
        max_fit_rows: Maximum number of rows in all folds; the others are held out. The first two groups are used
            regardless of their size.

    Returns:
        The split.
    """
    units = None if group is None else group_row_numbers(group)
    if units is not None and len(units) == 1:
        units = None  # rows of a single group cannot be evaluated on other groups
    n_units = n_rows if units is None else len(units)
    order = np.random.default_rng(seed).permutation(n_units)
    n_held_out = round(hold_out * n_units)
    held_out = order[:n_held_out]
    remaining = order[n_held_out:]
    sizes = np.ones(len(remaining)) if units is None else np.array([len(units[unit]) for unit in remaining])
    exceeds_maximum = np.cumsum(sizes) > max_fit_rows
    exceeds_maximum[:2] = False  # one very large group must leave two groups to fit on
    fitted = remaining[~exceeds_maximum]
    folds = np.array_split(fitted, min(n_folds, len(fitted)))
    unused = np.concatenate([held_out, remaining[exceeds_maximum]])
    *fold_rows, unused_rows = expand_units([*folds, unused], units)
    return FoldSplit(folds=tuple(fold_rows), held_out=np.sort(unused_rows))


def restore_fold_split(document: MapDocument, rows: FixedDecisions) -> FoldSplit:
    """Reproduce the split that a map was fitted with.

    Args:
        document: The map.
        rows: All labelled fit rows, in the same order and with the same groups.

    Returns:
        The split.
    """
    return split_folds(
        len(rows),
        rows.group,
        document.source.seed,
        n_folds=len(document.folds),
        hold_out=document.source.hold_out,
        max_fit_rows=document.projection.rows,
    )


def check_fit_rows(rows: FixedDecisions, split: FoldSplit, hold_out: float) -> None:
    """Check that rows can be held out as requested, and that there are rows to fit on.

    Args:
        rows: All labelled rows.
        split: Their split into folds.
        hold_out: Share of the rows to hold out.

    Raises:
        InputError: No row is held out although `hold_out` is above 0; or there are fewer than two rows to fit on.
    """
    if hold_out and not len(split.held_out):
        raise InputError(
            f"a hold-out of {hold_out:g} of {len(rows):,} rows, or of their groups, is less than one row or group; "
            f"increase {option('hold_out')}"
        )
    if len(split.folds) < 2:
        raise InputError(f"there are {len(split.fit_rows)} labelled rows to fit on; label more: 1,000 are good")


def paper_fit_rows(source: Source, rows: FixedDecisions, calibrator: Calibrator) -> np.ndarray:
    """Find the rows that a map was fitted on under the paper's protocol.

    Args:
        source: Seed and parts of the protocol.
        rows: All labelled rows.
        calibrator: The fitted calibrator. Calibrators are assumed to be fitted on the calibrator-fit rows, even though
            a temperature may be fitted on all validation rows.

    Returns:
        Increasing row numbers.
    """
    assert source.protocol is not None
    parts = split_validation(len(rows), source.seed, source.protocol, rows.group)
    if isinstance(calibrator, Identity):
        return np.sort(parts.projection_fit)
    return np.sort(np.concatenate([parts.calibrator_fit, parts.projection_fit]))
