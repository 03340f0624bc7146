"""The rows of a file of predictions, checked: what cannot be read is refused by file and row."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import polars as pl

from relmap.decisions import decide
from relmap.errors import InputError
from relmap.io.columns import (
    FileRows,
    advise_names,
    are_whole_numbers,
    label_codes,
    label_of,
    listed,
    lists_of_numbers,
    names_in,
    numbers,
    shares,
)
from relmap.io.reading import Layout, Reading
from relmap.options import assignment, assignments, labels_to_paste, option

SMALLEST_PROBABILITY = 1e-12  # what a probability of 0 counts as: its logarithm is finite
LARGEST_LOGIT = 1e12  # far beyond any model's, far below where a calibrator would overflow
ROUNDED = 0.005  # a probability of two digits is off by so much at most
MOST_OFF = 0.05  # from 1, of the sum of a row of probabilities
MOST_COPIES = 10**6  # of all rows together, where that leaves ten of each


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """`n` checked rows; all arrays share the rows."""

    logits: np.ndarray | None  # (n, K) float64 finite; log-probabilities where those were given; None if only stated
    confidence: np.ndarray | None  # (n,) float64 in [0, 1]: the stated confidence, where there are no logits
    decision: np.ndarray  # (n,) int64, the fixed decision, 0..K-1
    label: np.ndarray | None  # (n,) int64, the truth, 0..K-1
    group: np.ndarray | None  # (n,) str
    signals: np.ndarray | None = None  # (n, S) float64, what else is known of each row
    weight: np.ndarray | None = None  # (n,) float64 above 0, how many rows each stands for; None where all are alike

    def __len__(self) -> int:
        return len(self.decision)

    @property
    def n_labels(self) -> int:
        """K, as the logits have it."""
        assert self.logits is not None
        return int(self.logits.shape[1])

    @property
    def correct(self) -> np.ndarray:
        """The event Z, `(n,)` bool."""
        assert self.label is not None
        return np.asarray(self.decision == self.label)

    @property
    def kind(self) -> Literal["logits", "confidence_only", "decision_only"]:
        """What a map of these rows reads beside the decision."""
        if self.logits is None:
            return "decision_only" if self.confidence is None else "confidence_only"
        return "logits"

    @property
    def copies(self) -> np.ndarray:
        """Numbers of rows `(m,)`, rising, each as often as its weight says, in whole numbers of a common unit."""
        if self.weight is None:
            return np.arange(len(self))
        times = self.weight / self.weight.mean() * np.clip(MOST_COPIES / len(self), 10, 100) + 1e-9
        times = np.floor(times + np.random.default_rng(0).random(len(self)))  # right on the average
        return np.repeat(np.arange(len(self)), np.maximum(times, 1).astype(np.int64))

    def take(self, rows: np.ndarray | slice) -> "PredictedRows":
        """The same value for `rows` (int or bool index, or a slice) only, in that order."""
        return PredictedRows(*(None if part is None else part[rows] for part in vars(self).values()))  # type: ignore[arg-type]


def checked_rows(
    frame: pl.DataFrame,
    layout: Layout,
    rows: FileRows,
    *,
    names: Sequence[str] | None = None,
    n_labels: int | None = None,
) -> PredictedRows:
    """The checked rows of `frame`, which are `rows` of their file.

    `names` are those of the labels, index = label, and `n_labels` is K; for a confidence alone one must be known.

    Raises:
        InputError: the file, the row and the column, what was found and what to do.
    """
    n_labels = len(names) if names else n_labels
    file, logits, confidence_only = rows.file, None, None
    if layout.kind == "confidence_only":
        confidence_only = shares(frame[layout.columns[0]], rows, layout.reading)
    elif layout.kind != "decision_only":
        of_two = layout.kind in ("probability", "score")
        logits = _of_two_labels(frame, layout, rows, names) if of_two else _matrix(frame, layout, rows)
        if layout.kind == "probabilities":
            logits = _log_probabilities(logits, rows)
        if n_labels is not None and logits.shape[1] != n_labels:
            what = f"the {layout.kind} of one of two labels" if of_two else f"{logits.shape[1]} {layout.kind} a row"
            raise InputError(f"{file} has {what}, where there are {n_labels} labels; give one number for each")
        n_labels = logits.shape[1]
    assert n_labels is not None
    advice = partial(_advise_names, frame, layout, n_labels)
    decision, label = (
        None if name is None else label_codes(frame[name], rows, names=names, n_labels=n_labels, advice=advice)
        for name in (layout.decision, layout.label)
    )
    if decision is None:
        assert logits is not None
        decision = decide(logits)
        if layout.kind == "score":  # on the border the other label is decided, whichever comes first
            decision[logits[:, 0] == logits[:, 1]] = 1 - positive_label(layout.reading, names)
    group = None
    if layout.group is not None:
        groups = frame[layout.group]
        rows.refuse_missing(groups)
        if groups.dtype.is_nested():
            raise InputError(
                f"{file}: the groups are in {layout.group}, which holds lists; name a column of numbers or text"
            )
        group = groups.cast(pl.String).to_numpy()
    weight = None
    if layout.weight is not None:
        weight = numbers(frame[layout.weight], rows)
        wrong = ~((weight > 0) & (weight <= LARGEST_LOGIT))
        what = "it must be above 0, as one over the probability with which the row was drawn, and no larger than 1e12"
        rows.refuse(wrong, lambda row: f"{layout.weight} is {weight[row]}; {what}")
    return PredictedRows(logits, confidence_only, decision, label, group, None, weight)


def names_of_two_labels(frame: pl.DataFrame, layout: Layout, rows: FileRows) -> tuple[str, str] | None:
    """Return the names of two labels, of which a column gives the probability or the score of one.

    Args:
        frame: The labelled rows.
        layout: How they are read, with a probability or a score.
        rows: Where they are in their file.

    Returns:
        The other label, then the one that the column speaks of; None if the labels are 0 and 1, or false and true, or
        if the column speaks of the larger of two numbers.

    Raises:
        InputError: The label that the column speaks of is not named, or the rows have other labels.
    """
    names, positive, column = (
        names_in(frame, [layout.decision, layout.label]),
        layout.reading.positive,
        layout.columns[0],
    )
    if all(label_of(name, None) in (0, 1) for name in names):
        return None
    place = f"{rows.file}: {column} is the {layout.kind} of one of two labels"
    if len(names) != 2:
        raise InputError(f"{place}, and {layout.label} has {len(names)} ({listed(names)}); keep rows of two labels")
    if positive is None:
        if are_whole_numbers(names):
            return None
        either = " or ".join(assignment("positive", name) for name in names)
        raise InputError(f"{place}, {names[0]} and {names[1]}; say of which: {either}")
    code = label_of(positive, names)
    if code is None:
        raise InputError(f"{option('positive')} is {positive!r}; the labels are {listed(names)}")
    return (names[1], names[0]) if code == 0 else (names[0], names[1])


def _advise_names(frame: pl.DataFrame, layout: Layout, n_labels: int) -> str:
    by_position = layout.columns if layout.kind in ("logits", "probabilities") else ()
    return advise_names(frame, [layout.decision, layout.label], n_labels, by_position)


def _matrix(frame: pl.DataFrame, layout: Layout, rows: FileRows) -> np.ndarray:
    """The numbers of each row, `(n, K)` float64, none so large that a calibrator could overflow."""
    if len(layout.columns) > 1:
        matrix = np.column_stack([numbers(frame[name], rows) for name in layout.columns])
    else:
        matrix = lists_of_numbers(frame[layout.columns[0]], rows)
    return _finite(matrix, layout.kind, rows)


def rows_of_array(numbers: np.ndarray, kind: Literal["logits", "probabilities"], place: str) -> PredictedRows:
    """Check an array of predictions without labels; the decision is the first largest number of a row.

    Args:
        numbers: Array of shape (n, K), float64.
        kind: What the numbers are.
        place: Name of the array in messages.

    Returns:
        The rows.

    Raises:
        InputError: The first row that cannot be read.
    """
    rows = FileRows(place)
    logits = _finite(numbers, kind, rows)
    if kind == "probabilities":
        logits = _log_probabilities(logits, rows)
    return PredictedRows(logits=logits, confidence=None, decision=decide(logits), label=None, group=None)


def _finite(matrix: np.ndarray, kind: str, rows: FileRows) -> np.ndarray:
    """Check that all numbers `(n, K)` are finite, and return them with rows that are contiguous in memory."""
    wrong = ~(np.abs(matrix) <= LARGEST_LOGIT)  # NaN too

    def what(row: int) -> str:
        label = int(wrong[row].argmax())
        return f"{kind} {label} is {matrix[row, label]}; every one must be finite, within {LARGEST_LOGIT:g}"

    rows.refuse(wrong.any(axis=1), what)
    return np.ascontiguousarray(matrix)


def _of_two_labels(frame: pl.DataFrame, layout: Layout, rows: FileRows, names: Sequence[str] | None) -> np.ndarray:
    """The logits `(n, 2)` of two labels, of which a column gives the probability of one, or its score."""
    column, reading = frame[layout.columns[0]], layout.reading
    if layout.kind == "score":
        distance = numbers(column, rows) - (reading.border or 0)
        rows.refuse(
            ~(np.abs(distance) <= LARGEST_LOGIT),
            lambda row: f"{column.name} is {column[row]}; it must be finite, within {LARGEST_LOGIT:g}",
        )
        logits = np.column_stack([np.zeros(len(distance)), distance])
    else:
        share = shares(column, rows, reading)
        logits = np.log(np.maximum(np.column_stack([1 - share, share]), SMALLEST_PROBABILITY))
    return logits if positive_label(reading, names) else np.ascontiguousarray(logits[:, ::-1])


def positive_label(reading: Reading, names: Sequence[str] | None) -> int:
    """Return the label of two, 0 or 1, that a probability or a score speaks of.

    Args:
        reading: Options of the file, of which `positive` names the label.
        names: Names of the two labels; None for 0 and 1.

    Returns:
        The label; 1 if none is named.

    Raises:
        InputError: There is no label of that name.
    """
    place = 1 if reading.positive is None else label_of(reading.positive, names)
    if place not in (0, 1):
        raise InputError(f"{option('positive')} is {reading.positive!r}; the labels are {listed(names or ('0', '1'))}")
    return place


def _log_probabilities(probabilities: np.ndarray, rows: FileRows) -> np.ndarray:
    """The logarithms of probabilities `(n, K)`; InputError names the first row that are none."""
    total = probabilities.sum(axis=1)
    tolerance = min(MOST_OFF, ROUNDED * probabilities.shape[1]) + 1e-9
    rows.refuse(
        (np.abs(total - 1) > tolerance) | (probabilities < 0).any(axis=1),
        lambda row: (
            f"the probabilities {probabilities[row].tolist()} sum to {total[row]:.6g}; they must lie in [0, 1] and sum "
            f"to 1, within {tolerance:.2g} for rounding; are these logits?"
        ),
    )
    return np.log(np.maximum(probabilities, SMALLEST_PROBABILITY))


def questions(rows: PredictedRows, layout: Layout, names: Sequence[str] | None, n_labels: int) -> list[str]:
    """What is doubtful in how rows were read, a sentence each, with the option that reads them otherwise."""
    shown, column = names or [str(label) for label in range(n_labels)], layout.columns[0] if layout.columns else ""
    asked = []
    if rows.confidence is not None and (low := rows.confidence < 1 / n_labels - ROUNDED).any():
        question = f"In {low.sum():,} of {len(rows):,} rows {column} is below 1/{n_labels}, less than a guess"
        positive = shown[rows.decision[rows.confidence.argmax()]]
        how = (
            f"Then read it with {assignments({'probability': column, 'positive': positive})}."
            if n_labels == 2
            else "Then give the probability of the decided label, or those of all labels."
        )
        asked.append(f"{question}: is this the probability of a fixed label? {how}")
    assert rows.label is not None
    if rows.logits is None and names is None and rows.decision.all() and rows.label.all():
        asked.append(
            f"No row has the label 0. If the labels are 1 to {n_labels - 1}, name them: "
            f"{labels_to_paste([str(label) for label in range(1, n_labels)])}"
        )
    if layout.kind == "logits":
        assert rows.logits is not None
        if (rows.logits >= 0).all() and (np.abs(rows.logits.sum(axis=1) - 1) <= MOST_OFF).all():
            name = column if len(layout.columns) == 1 else column.removesuffix("_0")
            asked.append(
                f"Every row of {name} sums to 1: these look like probabilities. Then read them with "
                f"{assignment('probabilities', name)}."
            )
    return asked
