"""Who sees which labelled row of a map.

The rows are cut in three equal parts under a seed, and no group falls in two of them: the paper's parted queries and
its leaking temperature are nothing to rely on, and are there for those who ask for the paper's own numbers. The
calibrator is fitted on the first part, the variants on the second; the third chooses between them, and is what the map
is held against later.
"""

from dataclasses import dataclass

import numpy as np

from tasks.calibrators.identity import Identity
from tasks.maps.document import MapDocument
from tasks.predictions.rows import PredictedRows
from tasks.protocol.errors import BadInput
from tasks.protocol.params import ProtocolParams
from tasks.protocol.splits import ValidationParts, rows_by_group, validation_parts

FEWEST_ROWS = 60
CAP = 8000  # rows of each part that are used at most


@dataclass(frozen=True, eq=False)
class Parts:
    """The labelled rows of a map, each part for its one purpose."""

    calibrator_fit: PredictedRows
    projection_fit: PredictedRows
    projection_selection: PredictedRows
    n_labels: int
    seed: int
    paper: ProtocolParams | None = None  # whose parts these are, in place of the tool's own
    temperature_fit: PredictedRows | None = None  # all rows, where the paper's protocol fits a temperature on them

    def fit_rows(self, calibrator: str) -> PredictedRows:
        """What the calibrator of the map is fitted on."""
        leaking = calibrator == "ts" and self.temperature_fit is not None
        return self.temperature_fit if leaking else self.calibrator_fit  # type: ignore[return-value]


def cut(rows: PredictedRows, n_labels: int, seed: int, paper: ProtocolParams | None = None) -> Parts:
    """Cut labelled rows in three under `seed`; by group where there is one, or as the `paper`'s protocol has it.

    Raises
    ------
    BadInput: fewer than 60 rows, one label only, or groups so few that a part is empty.
    """
    assert rows.label is not None
    if len(rows) < FEWEST_ROWS:
        raise BadInput(f"there are {len(rows)} labelled rows; a map needs {FEWEST_ROWS} at least, better 3,000")
    if (rows.label == rows.label[0]).all():
        raise BadInput(f"every label is {rows.label[0]}; a map needs rows of two labels at least")
    numbers = cut_numbers(rows, seed, paper, (CAP, CAP, CAP))
    if not all(map(len, numbers)):
        raise BadInput("there are fewer than three groups, which cannot be cut in three parts; leave --group away")
    fit, projection, selection = (rows.take(part) for part in numbers)
    leaking = paper is not None and paper.temperature_rows == "validation"
    return Parts(fit, projection, selection, n_labels, seed, paper, rows if leaking else None)


def cut_numbers(
    rows: PredictedRows, seed: int, paper: ProtocolParams | None, caps: tuple[int, int, int]
) -> ValidationParts:
    """Row numbers of the three parts: the paper's, or else thirds of so many rows at most.

    The same rows, seed and groups give the same parts on every machine; rows of a group stay in file order.
    """
    if paper is not None:
        return validation_parts(len(rows), seed, paper, rows.group)
    units = None if rows.group is None else rows_by_group(rows.group)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(rows) if units is None else len(units)), 3)
    if units is not None:
        parts = [np.concatenate([np.empty(0, dtype=np.int64), *(units[unit] for unit in part)]) for part in parts]
    return ValidationParts(*(part[:cap] for part, cap in zip(parts, caps, strict=True)))


def not_fitted_on(document: MapDocument, rows: PredictedRows) -> np.ndarray:
    """Numbers, rising, of those `rows`, all that a map was made of, on which neither of its fits was made.

    They have the groups of the fit. Its choice of a variant has seen them, if it was left to `auto`; a temperature of
    the paper's protocol has seen every row, and counts as fitted on calibrator-fit.
    """
    source = document.source
    used = document.projection.rows
    parts = cut_numbers(rows, source.seed, source.protocol, (document.calibrator.rows, used, used))
    unseen = np.ones(len(rows), dtype=bool)
    unseen[parts.projection_fit] = False
    if not isinstance(document.calibrator.fitted, Identity):  # which learns nothing
        unseen[parts.calibrator_fit] = False
    return np.flatnonzero(unseen)
