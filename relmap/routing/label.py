"""Sample rows to label with known probabilities, so that estimates from their labels are valid for all rows.

Rows with an uncertain decision or a rare decided label are sampled with larger probabilities. The variance of an
estimated share is least if the probability of a row is proportional to the standard deviation of its contribution
(Neyman, 1934). A part of each probability is the same for all rows. This bounds the weights, and includes rows with
high reliability, so that a map is detected whose reliability is too high.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import scipy

from relmap.errors import InputError, option
from relmap.io.column_layout import WEIGHT_COLUMN, require_column
from relmap.io.columns import join_names
from relmap.io.files import (
    Predictions,
    format_suffix,
    number_batches,
    read_columns,
    reading_notes,
)
from relmap.io.frames import FramePredictions, arrow_to_polars
from relmap.io.output import NESTED_FORMATS, check_output, write_with_columns
from relmap.io.unlabelled import find_unlabelled
from relmap.maps.document import MapDocument
from relmap.maps.score import Progress, score_file, signal_group_column

UNIFORM_SHARE = 0.25  # share of uniform sampling, so that weights are at most four times those of a uniform sample
MISTYPED = 0.8  # similarity of a name to that of a column, from which it is a mistyped one
NORMAL_QUANTILE = 1.96  # of a 95% interval


@dataclass(frozen=True, eq=False)
class LabelSample:
    """Rows that were sampled to be labelled.

    Attributes:
        n_rows: Number n of rows without a label.
        probability: Probability that each row is sampled, shape (n,).
        reliability: Reliability of each row, shape (n,).
        sampled_reliability: Reliability of each sampled row, shape (m,).
        row_number: Increasing numbers of the sampled rows, shape (m,).
        decision_counts: Number of sampled rows of each decided label, shape (K,).
        label_column: Name of the column to fill in.
        prediction_columns: Names of the columns that the map read, as in the input.
        notes: Sentences on how the file was read.
    """

    n_rows: int
    probability: np.ndarray
    reliability: np.ndarray
    sampled_reliability: np.ndarray
    row_number: np.ndarray
    decision_counts: np.ndarray
    label_column: str
    prediction_columns: tuple[str, ...]
    notes: tuple[str, ...]

    def describe(self, names: Sequence[str], threshold: float) -> list[str]:
        """Describe the sample, the precision of estimates from it, and the next step.

        Args:
            names: Names of the labels 0..K-1.
            threshold: Default threshold of the map.

        Returns:
            Sentences.
        """
        n_sampled = len(self.row_number)
        half_width = self._half_width(self.probability)
        uniform_half_width = self._half_width(n_sampled / self.n_rows)
        is_automatic = self.reliability >= threshold
        n_automatic = int((self.sampled_reliability >= threshold).sum())
        labels_with_counts = []
        for name, count in zip(names, self.decision_counts.tolist(), strict=True):
            if count:
                labels_with_counts.append(f"{name} ({count:,})")
        return [
            *self.notes,
            f"{n_sampled:,} of {self.n_rows:,} rows are sampled, by decision: {join_names(labels_with_counts)}. "
            f"{n_automatic:,} of them reach the default threshold of the map ({threshold:.4g}), as "
            f"{is_automatic.mean():.1%} of all do; label more rows if these are too few to test the automatic "
            "decisions.",
            f"If the map holds, their labels estimate the accuracy of all rows to ±{half_width:.1f} percentage points "
            f"(a uniform sample of this size: ±{uniform_half_width:.1f}); if rows come in groups, the error is larger. "
            "To halve the error, label four times as many rows.",
            f"Fill in the column {self.label_column}. Hide {join_names(self.prediction_columns)} from the person who "
            f"labels. `fit`, `evaluate` and `thresholds` of a map weight each row by its {WEIGHT_COLUMN}; thresholds "
            f"on a score refuse such rows. To estimate the accuracy of all rows, evaluate with {option('unlabelled')} "
            "and the file that these rows were sampled from.",
        ]

    def _half_width(self, probability: np.ndarray | float) -> float:
        """Return half the width of a 95% interval of the accuracy, in percentage points."""
        variance = self.reliability * (1 - self.reliability)
        standard_error = float(np.sqrt((variance * (1 / probability - 1)).sum()))
        return 100 * NORMAL_QUANTILE * standard_error / self.n_rows


def sample_rows_to_label(
    document: MapDocument, file: Predictions, out: Path, *, rows: int, seed: int, progress: Progress
) -> LabelSample:
    """Write a sample of the rows without a label, with an empty label and the inverse of their sampling probability.

    No decision is added, since it could influence the person who labels; a decision in the file remains. If the format
    of `out` has no lists, a column of lists is replaced with one column for each number.

    Args:
        document: The map.
        file: Unlabelled predictions, with the names and units of their columns.
        out: File to write.
        rows: Number of rows to sample.
        seed: Seed of the random sample.
        progress: Called with the stage and the number of rows that are done.

    Returns:
        The sample.

    Raises:
        InputError: A file, column or row cannot be read, the rows have weights, or there are fewer rows without a label
            than `rows`.
    """
    label = file.reading.label or "label"
    _check_no_weights(file)
    if signal_group_column(document):
        raise InputError(
            "the map reads signals of whole groups, but a sample of rows does not have whole groups; fit a map without "
            "these signals to sample rows"
        )
    layout, scores = score_file(document, file, progress)
    list_columns = []
    if format_suffix(out) not in NESTED_FORMATS:
        list_columns = [name for name in layout.columns if pa.types.is_nested(file.schema.field(name).type)]
    check_output(file, out, split=list_columns)
    notes = [*reading_notes(file)]
    unlabelled = np.arange(len(scores))
    if label in file.schema.names:
        is_unlabelled = find_unlabelled(
            read_columns(file, [label]), label, document.label_names, n_labels=document.n_labels
        )
        unlabelled = np.flatnonzero(is_unlabelled.to_numpy())
        notes.append(f"{len(scores) - len(unlabelled):,} of {len(scores):,} rows have a label and are skipped.")
    elif file.reading.label is not None:
        if difflib.get_close_matches(label.lower(), [name.lower() for name in file.schema.names], cutoff=MISTYPED):
            require_column(file.schema.names, str(file.path), "label", label)
        notes.append(f"{file.path} has no column {label}, so all its rows count as rows without a label.")
    n_rows = len(unlabelled)
    if not n_rows:
        raise InputError(f"{file.path} has no row without a label; give rows to label")
    if not 0 < rows <= n_rows:
        raise InputError(
            f"{option('rows')} is {rows:,}, and {file.path} has {n_rows:,} rows without a label; give a number from "
            f"1 to {n_rows}"
        )
    decision = scores["decision"].to_numpy()[unlabelled]
    reliability = scipy.special.expit(scores["logit"].to_numpy()[unlabelled])
    probability = sampling_probabilities(reliability, decision, rows)
    sampled = sample_systematically(probability, rows, seed)
    row_number = unlabelled[sampled]
    frame = _select_rows(file, row_number)
    if label in frame.columns:
        frame = frame.drop(label)  # it is empty in these rows
    frame = _split_lists(frame, list_columns, document.n_labels)
    added_columns = pl.DataFrame(
        [
            pl.Series(label, [None] * rows, dtype=pl.String if document.label_names else pl.Int64),
            pl.Series(WEIGHT_COLUMN, 1 / probability[sampled]),
        ]
    )
    added = FramePredictions(added_columns, "").table.combine_chunks().to_batches()[0]
    write_with_columns(FramePredictions(frame, "", file.path, text=file.text), added.slice, out)
    return LabelSample(
        n_rows=n_rows,
        probability=probability,
        reliability=reliability,
        sampled_reliability=reliability[sampled],
        row_number=row_number,
        decision_counts=np.bincount(decision[sampled], minlength=document.n_labels),
        label_column=label,
        prediction_columns=tuple(dict.fromkeys(layout.all_columns)),
        notes=tuple(notes),
    )


def _check_no_weights(file: Predictions) -> None:
    """Check that the file does not have the column of weights that is added."""
    if WEIGHT_COLUMN in file.schema.names:
        raise InputError(
            f"{file.path} already has the column {WEIGHT_COLUMN}, which label adds; give the rows without this column"
        )


def _select_rows(file: Predictions, row_number: np.ndarray) -> pl.DataFrame:
    """Read the rows with the given numbers, which are increasing."""
    pieces = []
    for first, batch in number_batches(file.batches()):
        is_in_batch = (row_number >= first) & (row_number < first + len(batch))
        pieces.append(arrow_to_polars(batch, file.path)[row_number[is_in_batch] - first])
    return pl.concat(pieces)


def _split_lists(frame: pl.DataFrame, columns: Sequence[str], n_labels: int) -> pl.DataFrame:
    """Replace each column of lists of K numbers with K columns at the end of the frame."""
    for name in columns:
        values = frame[name]
        if isinstance(values.dtype, pl.Array):
            values = values.arr.to_list()
        numbers = [values.list.get(label).alias(f"{name}_{label}") for label in range(n_labels)]
        frame = frame.drop(name).hstack(numbers)
    return frame


def sampling_probabilities(reliability: np.ndarray, decision: np.ndarray, rows: int) -> np.ndarray:
    """Compute the probability that each row is sampled.

    Apart from the uniform part, probabilities are proportional to sqrt(r (1 - r) / m), where r is the reliability and m
    the number of rows with the same decision. Probabilities above 1 are set to 1, and the others are increased.

    Args:
        reliability: Reliability of each row, shape (n,), in [0, 1].
        decision: Decided label of each row, from 0, shape (n,).
        rows: Number of rows to sample, at most n.

    Returns:
        Probabilities, shape (n,), in (0, 1]; their sum is `rows`.
    """
    deviation = np.sqrt(reliability * (1 - reliability) / np.bincount(decision)[decision])
    relative_probability = np.ones(len(deviation))
    if deviation.any():
        relative_probability = UNIFORM_SHARE * deviation.mean() + (1 - UNIFORM_SHARE) * deviation
    is_certain = np.zeros(len(deviation), dtype=bool)
    while True:
        total = relative_probability.sum(where=~is_certain, initial=1e-300)  # above 0 even if all rows are certain
        proportional = (rows - is_certain.sum()) * relative_probability / total
        probability = np.where(is_certain, 1.0, proportional)
        exceeds_one = probability > 1
        if not exceeds_one.any():
            return np.asarray(probability)
        is_certain |= exceeds_one


def sample_systematically(probability: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """Sample rows with given probabilities, systematically in random order (Madow, 1949).

    Args:
        probability: Probability of each row, shape (n,); the sum is `rows`.
        rows: Number of rows to sample.
        seed: Seed of the random numbers.

    Returns:
        Increasing row numbers, shape (rows,).
    """
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(probability))
    positions = generator.random() + np.arange(rows)
    selected = np.searchsorted(np.cumsum(probability[order]), positions, side="right")
    return np.sort(order[np.minimum(selected, len(probability) - 1)])
