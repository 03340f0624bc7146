"""Assessments of rows that no map was fitted for."""

import numpy as np

from relmap.decisions import FixedDecisions
from relmap.evaluation.assessment import MapAssessment
from relmap.maps.document import MapDocument
from relmap.maps.score import FittedMap
from tests import maps

N_ROWS = 240
MAP = maps.make_map("confidence")
READING_NOTE = "How it was read."


def make_rows(group: str | None = None) -> FixedDecisions:
    return maps.rows_of_frame(maps.make_predictions(N_ROWS), group)


def assess(
    origin: str = "new", document: MapDocument = MAP, rows: FixedDecisions | None = None, n_fitted: int = 0
) -> MapAssessment:
    """Score rows, of which the first `n_fitted` were used for the fit."""
    rows = make_rows() if rows is None else rows
    fitted = np.arange(len(rows)) < n_fitted
    return MapAssessment(document, rows, FittedMap.from_document(document)(rows), origin, [READING_NOTE], fitted)
