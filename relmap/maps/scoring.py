"""Score the rows of a file with a reliability map, in pieces, so that files of any length fit in memory."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from relmap.decisions import FixedDecisions
from relmap.io.files import NumberedBatch, Predictions, number_batches, rows_in_file
from relmap.io.frames import arrow_to_polars
from relmap.io.output import map_in_order
from relmap.io.ranking import SCORES
from relmap.io.reading import Layout, find_layout
from relmap.io.rows import ArrayKind, read_rows, rows_from_array
from relmap.io.signals import GROUP_SIGNALS, group_signals, read_signals, relevance
from relmap.maps.document import MapDocument
from relmap.maps.reliability_map import FittedMap, ScoredDecisions

Progress = Callable[[str, int], None]  # called with the stage and the number of rows of each piece
SCORING_THREADS = 2


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


def score_array(document: MapDocument, numbers: np.ndarray, kind: ArrayKind) -> pl.DataFrame:
    """Score an array of predictions with the same results as `score_file`, but without converting it to a frame.

    Args:
        document: A map that reads logits, and no signals.
        numbers: Array of shape (n, K), float64.
        kind: What the numbers are.

    Returns:
        The scores of each row, with the columns of SCORES.

    Raises:
        InputError: A row cannot be read.
    """
    rows = rows_from_array(numbers, kind, "X")
    return _to_frame(rows, FittedMap.from_document(document)(rows))


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
        file_rows = rows_in_file(file, batch.first)
        rows = read_rows(frame, layout, file_rows, names=document.label_names, n_labels=document.n_labels)
        batch_slice = slice(batch.first, batch.first + len(rows))
        computed = {name: values[batch_slice] for name, values in signals_of_groups.items()}
        with_signals = read_signals(document.signals, frame, rows, document.n_labels, file_rows, computed=computed).rows
        return _to_frame(rows, reliability_map(with_signals))

    for scores in map_in_order(score, number_batches(file.batches(columns)), threads=SCORING_THREADS):
        progress("scored", len(scores))
        yield scores


def _to_frame(rows: FixedDecisions, scored: ScoredDecisions) -> pl.DataFrame:
    """Return scores with the columns of SCORES."""
    return pl.DataFrame([rows.decision.astype(np.int32), scored.confidence, scored.logit], schema=SCORES)


def _compute_group_signals(document: MapDocument, file: Predictions, layout: Layout) -> dict[str, np.ndarray]:
    """Compute the signals of whole groups for all rows of a file; empty if the map reads none."""
    if signal_group_column(document) is None:
        return {}
    scores = []
    groups = []
    for batch in number_batches(file.batches(layout.all_columns)):
        frame = arrow_to_polars(batch.rows, file.path)
        file_rows = rows_in_file(file, batch.first)
        rows = read_rows(frame, layout, file_rows, names=document.label_names, n_labels=document.n_labels)
        assert rows.group is not None
        scores.append(relevance(rows, document.n_labels))
        groups.append(rows.group)
    return group_signals(np.concatenate(groups), np.concatenate(scores)) if groups else {}
