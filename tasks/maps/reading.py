"""Files of predictions to checked rows, for those who need all rows at once."""

from pathlib import Path
from typing import NamedTuple

import polars as pl

from tasks.maps.document import MapDocument
from tasks.maps.labelled import not_fitted_on
from tasks.predictions.files import Predictions, columns_of, opened
from tasks.predictions.rows import Layout, PredictedRows, checked_rows, find_layout, labels_in
from tasks.protocol.errors import BadInput
from tasks.provenance.hashing import sha256_of_file


def read_to_fit(predictions: Path, *, group: str | None, names: tuple[str, ...] | None) -> tuple[PredictedRows, int]:
    """Labelled rows and K; BadInput names the file, the row and the column of a mistake."""
    frame, layout = _read(opened(predictions), group, stated=None)
    n_labels = len(names) if names else None
    if n_labels is None and layout.kind == "stated":
        n_labels = labels_in(frame, ["decision", "label"], str(predictions))
    rows = checked_rows(frame, layout, str(predictions), names=names, n_labels=n_labels)
    return rows, n_labels or rows.n_labels


class Unseen(NamedTuple):
    """Labelled rows on which a map was not fitted."""

    rows: PredictedRows
    new: bool  # no part of the file that the map was made of
    notes: list[str]  # what was left out, in words


def read_to_judge(document: MapDocument, predictions: Path, *, group: str | None) -> Unseen:
    """Labelled rows to hold a map against.

    The file that the map was made of is known by its SHA-256, whatever its name: of it, only those rows are taken
    that neither fit has seen.
    """
    source, file, notes = document.source, opened(predictions), []
    same = sha256_of_file(predictions) == source.sha256
    if group is None and source.group is not None:
        group = source.group if source.group in file.schema.names else None
        kept = f"Rows of one {group} go together, as in the fit."
        lost = (
            f"The map was fitted with rows of one {source.group} together, a column that {predictions} lacks: "
            "its rows are taken as independent."
        )
        notes = [kept if group else lost]
    if same and group != source.group:
        together = f"--group {source.group}" if source.group else "no --group"
        raise BadInput(f"{predictions} is what the map was fitted on, with {together}; say the same here")
    frame, layout = _read(file, group, stated=document.input == "stated")
    rows = checked_rows(frame, layout, str(predictions), names=document.label_names, n_labels=document.n_labels)
    if not same:
        return Unseen(rows, True, notes)
    unseen = not_fitted_on(document, rows)
    told = f"{predictions} is what the map was fitted on: only the {len(unseen):,} rows that no fit has seen are used."
    if document.choice.asked == "auto":
        told += f" The choice of the variant has seen {document.held_out.rows:,} of them, so what holds is not strict."
    return Unseen(rows.take(unseen), False, [*notes, told])


def _read(file: Predictions, group: str | None, *, stated: bool | None) -> tuple[pl.DataFrame, Layout]:
    layout = find_layout(file.schema.names, str(file.path), labelled=True, group=group, stated=stated)
    frame = columns_of(file, layout.read)
    if frame.is_empty():
        raise BadInput(f"{file.path} has no rows")
    return frame, layout
