"""Who sees which labelled row of a map: the pipeline's protocol for one seed.

The rows are cut in three under the seed. The calibrator is fitted on the first part, the variants on the second; the
third chooses between them, and is what the map is held against later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.maps.calibrator_forms import IdentityForm
from tasks.maps.document import MapDocument
from tasks.predictions.rows import PredictedRows
from tasks.protocol.errors import BadInput
from tasks.protocol.params import ProtocolParams
from tasks.protocol.splits import validation_parts

FEWEST_ROWS = 60


@dataclass(frozen=True, eq=False)
class Parts:
    """The labelled rows of a map, each part for its one purpose."""

    calibrator_fit: PredictedRows
    projection_fit: PredictedRows
    projection_selection: PredictedRows
    n_labels: int
    seed: int


def cut(rows: PredictedRows, n_labels: int, seed: int, caps: ProtocolParams) -> Parts:
    """Cut labelled rows in three under `seed`, as the pipeline cuts validation rows; by group where there is one.

    Raises
    ------
    BadInput: fewer than 60 rows, one label only, or groups so few that a part is empty.
    """
    assert rows.label is not None
    if len(rows) < FEWEST_ROWS:
        raise BadInput(f"there are {len(rows)} labelled rows; a map needs {FEWEST_ROWS} at least, better 3,000")
    if (rows.label == rows.label[0]).all():
        raise BadInput(f"every label is {rows.label[0]}; a map needs rows of two labels at least")
    numbers = validation_parts(len(rows), seed, **caps.model_dump(), group=rows.group)
    if not all(map(len, numbers)):
        raise BadInput("there are fewer than three groups, which cannot be cut in three parts; leave --group away")
    fit, projection, selection = (rows.take(part) for part in numbers)
    return Parts(fit, projection, selection, n_labels, seed)


def not_fitted_on(document: MapDocument, rows: PredictedRows) -> np.ndarray:
    """Numbers, rising, of those `rows`, all that a map was made of, on which neither of its fits was made.

    They have the groups of the fit. Its choice of a variant has seen them, if it was left to `auto`.
    """
    source = document.source
    caps = {"calibrator_fit_cap": document.calibrator.rows, "projection_cap": document.projection.rows}
    parts = validation_parts(len(rows), source.seed, **caps, group=rows.group)
    unseen = np.ones(len(rows), dtype=bool)
    unseen[parts.projection_fit] = False
    if not isinstance(document.calibrator.fitted, IdentityForm):  # which learns nothing
        unseen[parts.calibrator_fit] = False
    return np.flatnonzero(unseen)
