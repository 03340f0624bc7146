"""The labelled rows of a map: how they are read, and who sees which.

The rows are cut in three equal parts under a seed, and no group falls in two of them: the paper's parted queries and
its leaking temperature are nothing to rely on, and are there for those who ask for the paper's own numbers. The
calibrator is fitted on the first part, the variants on the second; the third chooses between them, and is what the map
is held against later.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tasks.calibrators.identity import Identity
from tasks.maps.document import MapDocument
from tasks.predictions.files import Predictions, columns_of, opened
from tasks.predictions.rows import Layout, PredictedRows, checked_rows, find_layout, labels_in
from tasks.protocol.errors import BadInput
from tasks.protocol.params import ProtocolParams
from tasks.protocol.splits import ValidationParts, rows_by_group, validation_parts
from tasks.provenance.hashing import sha256_of_file

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
    source, used = document.source, document.projection.rows
    parts = cut_numbers(rows, source.seed, source.protocol, (document.calibrator.rows, used, used))
    unseen = np.ones(len(rows), dtype=bool)
    unseen[parts.projection_fit] = False
    if not isinstance(document.calibrator.fitted, Identity):  # which learns nothing
        unseen[parts.calibrator_fit] = False
    return np.flatnonzero(unseen)


def read_to_fit(predictions: Path, *, group: str | None, names: tuple[str, ...] | None) -> tuple[PredictedRows, int]:
    """Labelled rows and K; BadInput names the file, the row and the column of a mistake."""
    frame, layout = _read(opened(predictions), group, confidence_only=None)
    n_labels = len(names) if names else None
    if n_labels is None and layout.kind == "confidence_only":
        n_labels = labels_in(frame, ["decision", "label"], str(predictions))
    rows = checked_rows(frame, layout, str(predictions), names=names, n_labels=n_labels)
    return rows, n_labels or rows.n_labels


def read_to_judge(
    document: MapDocument, predictions: Path, *, group: str | None
) -> tuple[PredictedRows, bool, list[str]]:
    """Labelled rows to hold a map against, whether they are of another file than the map, and notes in words.

    The file that the map was made of is known by its SHA-256, whatever its name: of it, only those rows are taken
    that neither fit has seen.
    """
    source, file, notes = document.source, opened(predictions), []
    same = sha256_of_file(predictions) == source.sha256
    if group is None and source.group is not None:
        together = f"The map was fitted with rows of one {source.group} together"
        notes = [f"{together}, a column that {predictions} lacks: its rows are taken as independent."]
        if source.group in file.schema.names:
            group, notes = source.group, [f"Rows of one {source.group} go together, as in the fit."]
    if same and group != source.group:
        together = f"--group {source.group}" if source.group else "no --group"
        raise BadInput(f"{predictions} is what the map was fitted on, with {together}; say the same here")
    frame, layout = _read(file, group, confidence_only=document.input == "confidence_only")
    rows = checked_rows(frame, layout, str(predictions), names=document.label_names, n_labels=document.n_labels)
    if not same:
        return rows, True, notes
    unseen = not_fitted_on(document, rows)
    note = f"{predictions} is what the map was fitted on: only the {len(unseen):,} rows that no fit has seen are used."
    if document.choice.asked == "auto":
        note += f" The choice of the variant has seen {document.held_out.rows:,} of them, so what holds is not strict."
    return rows.take(unseen), False, [*notes, note]


def _read(file: Predictions, group: str | None, *, confidence_only: bool | None) -> tuple[pl.DataFrame, Layout]:
    layout = find_layout(file.schema.names, str(file.path), labelled=True, group=group, confidence_only=confidence_only)
    frame = columns_of(file, layout.read)
    if frame.is_empty():
        raise BadInput(f"{file.path} has no rows")
    return frame, layout
