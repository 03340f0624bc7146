"""Which rows to label next: drawn with known probabilities, so that what their labels say holds of all rows.

A row is the likelier drawn the less sure the map is of it (the variance of a share is least if chances follow the
deviation of what is counted: Neyman, 1934) and the rarer its decided label is. A part of the rows is drawn evenly, so
that no row stands for too many, and a map that is surer than it should be is found out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import scipy

from relmap.errors import InputError
from relmap.io.columns import listed
from relmap.io.files import notes_on, numbered, opened, suffix_of
from relmap.io.frames import FramePredictions, as_frame
from relmap.io.output import NESTED, check_output, write_beside
from relmap.io.reading import WEIGHT, Reading
from relmap.maps.document import MapDocument
from relmap.maps.scoring import Progress, grouped_by, scored_file
from relmap.options import option

EVENLY = 0.25  # of the rows: no weight is above four times that of rows that are all drawn alike


@dataclass(frozen=True, eq=False)
class ToLabel:
    """What was drawn."""

    rows: int  # of the file
    chance: np.ndarray  # (n,) of each row to be drawn
    reliability: np.ndarray  # (n,)
    drawn: np.ndarray  # row numbers, rising
    decided: np.ndarray  # (K,) drawn rows of each decided label
    column: str  # to fill in
    notes: tuple[str, ...]  # on how the file was read

    def in_words(self, names: Sequence[str]) -> list[str]:
        """How many rows of which labels were drawn, what their labels will tell, and what to do with them."""
        variance = self.reliability * (1 - self.reliability)
        alike = len(self.drawn) / self.rows
        known, evenly = (
            196 * float(np.sqrt((variance * (1 / chance - 1)).sum())) / self.rows for chance in (self.chance, alike)
        )
        of_labels = [f"{name} ({rows:,})" for name, rows in zip(names, self.decided.tolist(), strict=True) if rows]
        return [
            *self.notes,
            f"{len(self.drawn):,} of {self.rows:,} rows are drawn, by decision: {listed(of_labels)}.",
            f"If the map is right, their labels tell the accuracy of all rows to {known:.1f} points to either side; "
            f"as many rows drawn evenly, to {evenly:.1f}. Half of that takes four times the rows.",
            f"Fill in the column {self.column}. Fit, evaluate and thresholds count each row by its {WEIGHT}, and "
            f"evaluate with {option('unlabelled')}, the file they were drawn from, tells the accuracy of all its rows.",
        ]


def label_next(
    document: MapDocument, predictions: Path, out: Path, *, rows: int, seed: int, progress: Progress, reading: Reading
) -> ToLabel:
    """Write `rows` rows of `predictions` to `out`, as they are, with an empty label and their inverse probability.

    The decision is not shown, so that it does not sway who labels; where the file has one, it stays. In a format
    without lists, a list of numbers becomes a column for each.

    Raises:
        InputError: a file, column or row that cannot be read, labels that are there already, or fewer rows than asked.
    """
    file, label = opened(predictions, reading), reading.label or "label"
    if there := [name for name in (label, WEIGHT) if name in file.schema.names]:
        raise InputError(f"{predictions} has the column {there[0]} already; give the rows without labels, and drop it")
    if grouped_by(document):
        raise InputError(
            "the map reads signals of whole groups, which single rows do not hold; fit without them to draw rows"
        )
    layout, scores = scored_file(document, file, progress)
    in_csv = () if suffix_of(out) in NESTED else layout.columns
    lists = [name for name in in_csv if pa.types.is_nested(file.schema.field(name).type)]
    check_output(file, out, split=lists)
    if not 0 < rows <= len(scores):
        raise InputError(
            f"{option('rows')} is {rows:,}, and {predictions} has {len(scores):,} rows; ask for 1 to as many"
        )
    decision, reliability = scores["decision"].to_numpy(), scipy.special.expit(scores["logit"].to_numpy())
    chance = chances(reliability, decision, rows)
    drawn = draw(chance, rows, seed)
    pieces = []
    for first, batch in numbered(file.batches()):
        frame, here = as_frame(batch, predictions), drawn[(drawn >= first) & (drawn < first + len(batch))]
        pieces.append(frame[here - first])
    frame = pl.concat(pieces)
    for name in lists:
        values = frame[name].arr.to_list() if isinstance(frame.schema[name], pl.Array) else frame[name]
        places = [values.list.get(place).alias(f"{name}_{place}") for place in range(document.n_labels)]
        frame = frame.drop(name).hstack(places)
    empty = pl.Series(label, [None] * rows, dtype=pl.String if document.label_names else pl.Int64)
    added = FramePredictions(pl.DataFrame([empty, pl.Series(WEIGHT, 1 / chance[drawn])]), "").table.combine_chunks()
    write_beside(FramePredictions(frame, "", predictions, text=file.text), added.to_batches()[0].slice, out)
    decided = np.bincount(decision[drawn], minlength=document.n_labels)
    return ToLabel(len(scores), chance, reliability, drawn, decided, label, tuple(notes_on(file)))


def chances(reliability: np.ndarray, decision: np.ndarray, rows: int) -> np.ndarray:
    """The chance of each row to be drawn `(n,)`, in (0, 1]; they sum to `rows`.

    Reliability `(n,)` in [0, 1], decision `(n,)` from 0. Apart from what is drawn evenly, chances are in proportion to
    the deviation of a row being correct, over the square root of how many rows have its decision.
    """
    unsure = np.sqrt(reliability * (1 - reliability) / np.bincount(decision)[decision])
    size = EVENLY * unsure.mean() + (1 - EVENLY) * unsure if unsure.any() else np.ones(len(unsure))
    certain = np.zeros(len(size), dtype=bool)
    while True:
        chance = np.where(certain, 1.0, (rows - certain.sum()) * size / size.sum(where=~certain, initial=1e-300))
        if not (more := chance > 1).any():
            return np.asarray(chance)
        certain |= more


def draw(chance: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """`rows` row numbers, rising, each drawn with its `chance (n,)`: systematically, in random order (Madow, 1949)."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(chance))
    at = np.searchsorted(np.cumsum(chance[order]), generator.random() + np.arange(rows), side="right")
    return np.sort(order[np.minimum(at, len(chance) - 1)])
