"""Score rows, arrays and files with a fitted reliability map; files in pieces, so that any length fits in memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import polars as pl
import scipy

from relmap.calibrators.identity import Constant, Identity
from relmap.calibrators.spline import Spline
from relmap.decisions import CalibratedDecisions, FixedDecisions, confidence_logit
from relmap.io.column_layout import Layout, find_layout
from relmap.io.files import NumberedBatch, Predictions, number_batches, rows_in_file
from relmap.io.frames import arrow_to_polars
from relmap.io.output import map_in_order
from relmap.io.ranking import SCORES
from relmap.io.rows import ArrayKind, read_rows, rows_from_array
from relmap.io.signals import GROUP_SIGNALS, group_signals, read_signals, relevance
from relmap.maps.document import Calibrator, MapDocument, Variant
from relmap.projection.mrp import Confidence

CHUNK_ROWS = 2**15  # scored together, so that intermediate results fit in a cache
SCORING_THREADS = 2


@dataclass(frozen=True, eq=False)
class ScoredDecisions:
    """Scores of n fixed decisions.

    Attributes:
        confidence: Calibrated confidence, shape (n,), float64, in [0, 1].
        logit: Logit of the reliability, shape (n,), float64; may be infinite. Decisions are ranked by it.
    """

    confidence: np.ndarray
    logit: np.ndarray

    @property
    def reliability(self) -> np.ndarray:
        """Probability that each decision is correct, shape (n,), float64, in [0, 1]."""
        return np.asarray(scipy.special.expit(self.logit))

    def take(self, rows: np.ndarray) -> "ScoredDecisions":
        """Select rows.

        Args:
            rows: Row numbers, shape (m,), or a mask.

        Returns:
            The selected rows, in that order.
        """
        return ScoredDecisions(confidence=self.confidence[rows], logit=self.logit[rows])


@dataclass(frozen=True, eq=False)
class FittedMap:
    """Fitted models of a reliability map.

    Attributes:
        calibrator: Calibrator of the confidence.
        projection: Model of the reliability.
        baseline: Calibrator of the confidence that the map is compared with; None if it is `calibrator`.
    """

    calibrator: Calibrator
    projection: Variant = field(default_factory=Confidence)
    baseline: Calibrator | None = None

    @classmethod
    def from_document(cls, document: MapDocument) -> "FittedMap":
        """Create a map from the models of a document.

        Args:
            document: Content of `map.json`.

        Returns:
            The fitted map.
        """
        baseline = None if document.baseline is None else document.baseline.fitted
        return cls(document.calibrator.fitted, document.projection.fitted, baseline)

    def __call__(self, rows: FixedDecisions) -> ScoredDecisions:
        """Score rows.

        The logit of the confidence is computed from the confidence after it was rounded to float64. Projections that
        read only decision and confidence therefore give the same reliability if they are applied to the written
        columns, also in SQL.

        Args:
            rows: n validated rows.

        Returns:
            Confidence and reliability.
        """
        confidences = [np.empty(0)]
        logits = [np.empty(0)]
        for chunk in _chunks(rows):
            confidence = calibrated_confidence(self.calibrator, chunk)
            decisions = CalibratedDecisions(
                confidence_logit=scipy.special.logit(confidence),
                decision=chunk.decision,
                logits=chunk.logits,
                signals=chunk.signals,
            )
            confidences.append(confidence)
            logits.append(np.asarray(self.projection(decisions)))
        return ScoredDecisions(confidence=np.concatenate(confidences), logit=np.concatenate(logits))

    def score_for_comparison(self, rows: FixedDecisions) -> ScoredDecisions:
        """Score rows, with the confidence that the map is compared with.

        Args:
            rows: n validated rows.

        Returns:
            Confidence under the baseline, and reliability.
        """

        def score(chunk: FixedDecisions) -> ScoredDecisions:
            scored = self(chunk)
            if self.baseline is None:
                return scored
            return replace(scored, confidence=calibrated_confidence(self.baseline, chunk))

        confidences = [np.empty(0)]
        logits = [np.empty(0)]
        for scored in map_in_order(score, _chunks(rows), threads=SCORING_THREADS):
            confidences.append(scored.confidence)
            logits.append(scored.logit)
        return ScoredDecisions(confidence=np.concatenate(confidences), logit=np.concatenate(logits))


def _chunks(rows: FixedDecisions) -> Iterator[FixedDecisions]:
    """Yield consecutive rows that are scored together."""
    for start in range(0, len(rows), CHUNK_ROWS):
        yield rows.take(slice(start, start + CHUNK_ROWS))


def score_parts(rows: FixedDecisions, parts: Iterable[tuple[FittedMap, np.ndarray]]) -> ScoredDecisions:
    """Score rows for a comparison with several maps, each part of the rows with one of them.

    If the rows have only decisions, their confidence is the mean of the constants of the maps. The constants themselves
    would rank the rows by fold, and wrongly: a fold with more errors raises the constant of its own rows.

    Args:
        rows: n validated rows.
        parts: Maps, each with the numbers of its rows, or a mask of shape (n,). Together they contain every row.

    Returns:
        Confidence under the baseline, and reliability, of all rows.
    """
    confidence = np.empty(len(rows))
    logit = np.empty(len(rows))
    is_constant = True
    for reliability_map, part in parts:
        scored = reliability_map.score_for_comparison(rows.take(part))
        confidence[part] = scored.confidence
        logit[part] = scored.logit
        is_constant = is_constant and isinstance(reliability_map.calibrator, Constant)
    if is_constant and len(rows):
        confidence[:] = confidence.mean()
    return ScoredDecisions(confidence=confidence, logit=logit)


def calibrated_confidence(calibrator: Calibrator, rows: FixedDecisions) -> np.ndarray:
    """Compute the calibrated confidence of the fixed decisions.

    Args:
        calibrator: A fitted calibrator; the identity returns a given confidence without rounding.
        rows: n validated rows.

    Returns:
        Shape (n,), float64, in [0, 1].
    """
    if rows.confidence is not None and isinstance(calibrator, Identity):
        return rows.confidence
    return np.asarray(scipy.special.expit(calibrated_logit(calibrator, rows)))


def calibrated_logit(calibrator: Calibrator, rows: FixedDecisions) -> np.ndarray:
    """Compute the logit of the calibrated confidence of the fixed decisions.

    Args:
        calibrator: A fitted calibrator.
        rows: n validated rows.

    Returns:
        Shape (n,), float64; may be infinite.
    """
    if isinstance(calibrator, Constant):
        return np.full(len(rows), scipy.special.logit(calibrator.share))
    if rows.logits is None:
        assert rows.confidence is not None
        assert isinstance(calibrator, Identity | Spline)
        confidence = rows.confidence
        if isinstance(calibrator, Spline):
            confidence = calibrator.calibrate_confidence(confidence)
        return np.asarray(scipy.special.logit(confidence))
    # with columns that are contiguous in memory, calibrators sum over labels a third faster
    column_major_logits = np.asfortranarray(rows.logits)
    return confidence_logit(calibrator(column_major_logits), rows.decision)


Progress = Callable[[str, int], None]  # called with the stage and the number of rows of each piece


def ignore_progress(_stage: str, _rows: int) -> None:
    """Ignore the progress.

    Args:
        _stage: Name of the stage.
        _rows: Number of rows of the piece.
    """


def signal_group_column(document: MapDocument) -> str | None:
    """Return the column of groups that the signals of a map need.

    Args:
        document: The map.

    Returns:
        The name of the column; None if no signal is computed from whole groups.
    """
    needs_groups = any(signal.name in GROUP_SIGNALS for signal in document.signals)
    return document.source.group if needs_groups else None


def find_group_column(
    document: MapDocument, file: Predictions, group: str | None, *, without: str
) -> tuple[str | None, list[str]]:
    """Find the column of the groups of a file.

    Args:
        document: The map.
        file: The predictions.
        group: The column that the user named; None for the group column of the map, if the file has it.
        without: How the rows are treated if the file lacks the group column of the map.

    Returns:
        The column, or None; and notes for the user, if the column is that of the map.
    """
    map_group = document.source.group
    if group is not None or map_group is None:
        return group, []
    if map_group in file.schema.names:
        return map_group, [f"Rows are grouped by {map_group}, as when the map was fitted."]
    return None, [f"The map was fitted with rows grouped by {map_group}, a column that {file.path} lacks: {without}."]


class ScoredFile(NamedTuple):
    """Scores of all rows of a file.

    Attributes:
        layout: How the file was read.
        scores: One row for each row of the file, with the columns of SCORES.
    """

    layout: Layout
    scores: pl.DataFrame


def score_file(document: MapDocument, file: Predictions, progress: Progress) -> ScoredFile:
    """Score all rows of a file.

    Args:
        document: The map.
        file: The predictions.
        progress: Called with the stage and the number of rows of each piece.

    Returns:
        The layout of the file and the scores.

    Raises:
        InputError: A column or row cannot be read.
    """
    layout = find_map_layout(document, file)
    scores = pl.concat([pl.DataFrame(schema=SCORES), *score_in_pieces(document, file, layout, progress)])
    return ScoredFile(layout, scores)


class RowScores(NamedTuple):
    """Scores of n rows in memory.

    Attributes:
        decision: Decided label 0..K-1, shape (n,), int64.
        confidence: Calibrated confidence, shape (n,), float64, in [0, 1].
        logit: Logit of the reliability, shape (n,), float64; may be infinite.
    """

    decision: np.ndarray
    confidence: np.ndarray
    logit: np.ndarray

    @classmethod
    def from_frame(cls, scores: pl.DataFrame) -> "RowScores":
        """Return the columns of SCORES as arrays.

        Args:
            scores: Frame with these columns.
        """
        return cls(*(scores[name].to_numpy() for name in SCORES))

    def to_frame(self) -> pl.DataFrame:
        """Return a frame with the columns of SCORES."""
        return pl.DataFrame([self.decision.astype(np.int32), self.confidence, self.logit], schema=SCORES)


def score_array(document: MapDocument, numbers: np.ndarray, kind: ArrayKind) -> RowScores:
    """Score an array of predictions with the same results as `score_file`, but without converting it to a frame.

    Args:
        document: A map that reads logits, and no signals.
        numbers: Array of shape (n, K), float64.
        kind: What the numbers are.

    Returns:
        The scores of each row.

    Raises:
        InputError: A row cannot be read.
    """
    rows = rows_from_array(numbers, kind, "X")
    scored = FittedMap.from_document(document)(rows)
    return RowScores(rows.decision, scored.confidence, scored.logit)


def reads_only_logits(document: MapDocument) -> bool:
    """Return whether a map reads only logits, so that it can score arrays.

    Args:
        document: The map.
    """
    return document.input == "logits" and not document.signals


def find_map_layout(document: MapDocument, file: Predictions) -> Layout:
    """Find the columns that a map reads from unlabelled predictions.

    Args:
        document: The map.
        file: The predictions.

    Returns:
        The layout.

    Raises:
        InputError: A column is missing.
    """
    return find_layout(
        file.schema.names,
        str(file.path),
        labelled=False,
        group=signal_group_column(document),
        map_input=document.input,
        reading=file.reading,
    )


def score_in_pieces(
    document: MapDocument, file: Predictions, layout: Layout, progress: Progress
) -> Iterator[pl.DataFrame]:
    """Score the rows of a file in pieces.

    Args:
        document: The map.
        file: The predictions.
        layout: How the file is read.
        progress: Called with the stage and the number of rows of each piece.

    Yields:
        Scores of consecutive rows, with the columns of SCORES.

    Raises:
        InputError: A row cannot be read.
    """
    reliability_map = FittedMap.from_document(document)
    signals_of_groups = _compute_group_signals(document, file, layout)
    signal_columns = [signal.name for signal in document.signals if signal.name in file.schema.names]
    columns = list(dict.fromkeys([*layout.all_columns, *signal_columns]))

    def score(batch: NumberedBatch) -> pl.DataFrame:
        frame = arrow_to_polars(batch.rows, file.path)
        file_rows = rows_in_file(file, batch.first)._replace(has_map_labels=True)
        rows = read_rows(frame, layout, file_rows, names=document.label_names, n_labels=document.n_labels)
        batch_slice = slice(batch.first, batch.first + len(rows))
        computed = {name: values[batch_slice] for name, values in signals_of_groups.items()}
        with_signals = read_signals(document.signals, frame, rows, document.n_labels, file_rows, computed=computed).rows
        scored = reliability_map(with_signals)
        return RowScores(rows.decision, scored.confidence, scored.logit).to_frame()

    for scores in map_in_order(score, number_batches(file.batches(columns)), threads=SCORING_THREADS):
        progress("scored", len(scores))
        yield scores


def _compute_group_signals(document: MapDocument, file: Predictions, layout: Layout) -> dict[str, np.ndarray]:
    """Compute the signals of whole groups for all rows of a file; empty if the map reads none."""
    if signal_group_column(document) is None:
        return {}
    scores = []
    groups = []
    for batch in number_batches(file.batches(layout.all_columns)):
        frame = arrow_to_polars(batch.rows, file.path)
        file_rows = rows_in_file(file, batch.first)._replace(has_map_labels=True)
        rows = read_rows(frame, layout, file_rows, names=document.label_names, n_labels=document.n_labels)
        assert rows.group is not None
        scores.append(relevance(rows, document.n_labels))
        groups.append(rows.group)
    return group_signals(np.concatenate(groups), np.concatenate(scores)) if groups else {}
