"""What a map says of the rows of a file, piece by piece, however long it is."""

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa

from relmap.io.files import Predictions, number_batches, rows_in_file
from relmap.io.frames import arrow_to_polars
from relmap.io.output import map_in_order
from relmap.io.ranking import SCORES
from relmap.io.reading import Layout, find_layout
from relmap.io.rows import read_rows, rows_from_array
from relmap.io.signals import GROUP_SIGNALS, group_signals, read_signals, relevance
from relmap.maps.document import MapDocument
from relmap.maps.reliability_map import FittedMap

Progress = Callable[[str, int], None]


def unwatched(_stage: str, _rows: int) -> None:
    """Nobody asked how far it is."""


def grouped_by(document: MapDocument) -> str | None:
    """The column of groups, where a map reads a signal that is computed from whole groups."""
    return document.source.group if any(signal.name in GROUP_SIGNALS for signal in document.signals) else None


def scored_file(document: MapDocument, file: Predictions, progress: Progress) -> tuple[Layout, pl.DataFrame]:
    """How a file of predictions is read, and what the map says of its rows, with the columns of SCORES.

    Raises:
        InputError: a column or row that cannot be read.
    """
    layout = layout_of(document, file)
    return layout, pl.concat([pl.DataFrame(schema=SCORES), *scores_of(document, file, layout, progress)])


def scored_array(document: MapDocument, numbers: np.ndarray, kind: Literal["logits", "probabilities"]) -> pl.DataFrame:
    """Score an array of predictions, as `scored_file` scores a file of them, but without a frame in between.

    Args:
        document: A map that reads logits, and no signals.
        numbers: Array of shape (n, K), float64.
        kind: What the numbers are.

    Returns:
        The scores of each row, with the columns of SCORES.

    Raises:
        InputError: A row that cannot be read.
    """
    rows = rows_from_array(numbers, kind, "X")
    scored = FittedMap.of(document)(rows)
    return pl.DataFrame([rows.decision.astype(np.int32), scored.confidence, scored.logit], schema=SCORES)


def reads_arrays(document: MapDocument) -> bool:
    """Return whether an array of numbers for each label is all that a map reads of a row."""
    return document.input == "logits" and not document.signals


def layout_of(document: MapDocument, file: Predictions) -> Layout:
    """How a file of predictions is read for this map."""
    asked = {"labelled": False, "group": grouped_by(document), "reads": document.input}
    return find_layout(file.schema.names, str(file.path), reading=file.reading, **asked)  # type: ignore[arg-type]


def scores_of(document: MapDocument, file: Predictions, layout: Layout, progress: Progress) -> Iterator[pl.DataFrame]:
    """What the map says of the rows, piece by piece, with the columns of SCORES."""
    reliability_map, computed = FittedMap.of(document), _of_groups(document, file, layout)
    also = [signal.name for signal in document.signals if signal.name in file.schema.names]

    def score(piece: tuple[int, pa.RecordBatch]) -> pl.DataFrame:
        first, batch = piece
        frame, names, at = arrow_to_polars(batch, file.path), document.label_names, rows_in_file(file, first)
        rows = read_rows(frame, layout, at, names=names, n_labels=document.n_labels)
        here = {name: values[first : first + len(rows)] for name, values in computed.items()}
        scored = reliability_map(read_signals(document.signals, frame, rows, document.n_labels, at, computed=here)[1])
        return pl.DataFrame([rows.decision.astype(np.int32), scored.confidence, scored.logit], schema=SCORES)

    for scores in map_in_order(
        score, number_batches(file.batches(list(dict.fromkeys([*layout.read, *also])))), threads=2
    ):
        progress("scored", len(scores))
        yield scores


def _of_groups(document: MapDocument, file: Predictions, layout: Layout) -> dict[str, np.ndarray]:
    """The signals that are computed from whole groups, of all rows of the file; empty where the map reads none."""
    if grouped_by(document) is None:
        return {}
    scores, groups = [], []
    for first, batch in number_batches(file.batches(layout.read)):
        frame, facts = arrow_to_polars(batch, file.path), {"names": document.label_names, "n_labels": document.n_labels}
        rows = read_rows(frame, layout, rows_in_file(file, first), **facts)  # type: ignore[arg-type]
        assert rows.group is not None
        scores.append(relevance(rows, document.n_labels))
        groups.append(rows.group)
    return group_signals(np.concatenate(groups), np.concatenate(scores)) if groups else {}
