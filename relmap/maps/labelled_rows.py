"""Read labelled rows to fit a map on, with their groups, signals and ids."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from relmap.decisions import FixedDecisions
from relmap.errors import InputError, assignment, option
from relmap.io.column_layout import Layout, describe_unread_confidence, find_layout, require_column
from relmap.io.columns import (
    FileRows,
    count_labels,
    find_grade_names,
    is_missing,
    reject_missing_labels,
)
from relmap.io.files import Predictions, read_columns, reading_notes, rows_in_file
from relmap.io.frames import FramePredictions, is_text
from relmap.io.label_order import check_label_order
from relmap.io.rows import describe_doubts, find_two_label_names, read_rows
from relmap.io.signals import GROUP_SIGNALS, Signal, read_signals
from relmap.io.unlabelled import find_omitted_rows
from relmap.maps.folds import split_folds
from relmap.maps.options import FitOptions

DEFAULT_ID_COLUMN = "id"
MAX_ID_CHARACTERS = 64  # mean length of texts, above which they are content rather than ids
GROUP_NAMES = ("query", "query_id", "qid", "group", "group_id", "topic", "session", "session_id")


class LabelledRows(NamedTuple):
    """Labelled rows to fit a map on.

    Attributes:
        rows: The rows.
        n_labels: Number of labels K.
        signals: How each signal is read.
        notes: Sentences on how the file was read.
        names: Names of the labels, in their order; None for 0..K-1.
        ids: Id of each row, shape (n,); None without ids.
        id_column: Name of the column of the ids; `id` by default, even if there is no such column.
    """

    rows: FixedDecisions
    n_labels: int
    signals: tuple[Signal, ...]
    notes: list[str]
    names: tuple[str, ...] | None
    ids: np.ndarray | None
    id_column: str | None


class FileContent(NamedTuple):
    """Columns of a file of labelled predictions.

    Attributes:
        frame: The rows with a label, with the columns that were read.
        file_rows: Positions of the rows in the file, for messages.
        notes: Sentences on how the file was read.
    """

    frame: pl.DataFrame
    file_rows: FileRows
    notes: list[str]


def read_labelled_rows(file: Predictions, options: FitOptions) -> LabelledRows:
    """Read labelled rows to fit a map on.

    Args:
        file: The predictions.
        options: Names of the labels, of the groups and of the signals. Without names, the labels are 0..K-1; if
            predictions are given for one of two labels, the names are found in the file. How signals are read is
            learned from the rows that are not held out, which the seed and the share to hold out determine.

    Returns:
        The rows, their labels and their signals.

    Raises:
        InputError: A column or value cannot be read; the message names the file, the row and the column.
    """
    names = options.labels
    signals = options.signals
    try:
        layout = find_layout(
            file.schema.names, str(file.path), labelled=True, group=options.group, reading=file.reading
        )
    except InputError as error:
        if names and set(names) <= set(file.schema.names):
            columns = assignment("probabilities", ",".join(names))
            raise InputError(f"{error}. For the columns with the names of the labels give {columns}") from None
        raise
    _check_signal_columns(file, layout, signals)
    id_column = file.reading.id or DEFAULT_ID_COLUMN
    possible_groups = [] if options.group else find_possible_groups(file.schema.names, id_column)
    frame, file_rows, notes = read_with_labels(file, layout, [*signals, id_column, *possible_groups], names)
    if names is None and layout.is_of_one_label:
        names = find_two_label_names(frame, layout, file_rows)
    elif names is None and layout.kind == "score":
        names = find_grade_names(frame[str(layout.label)], file_rows)
        if [*names] == [str(label) for label in range(len(names))]:
            names = None
    stated_n_labels = len(names) if names else None
    if stated_n_labels is None and layout.kind in ("confidence_only", "decision_only"):
        stated_n_labels = count_labels(frame, str(layout.decision), str(layout.label), file_rows)
    rows = read_rows(frame, layout, file_rows, names=names, n_labels=stated_n_labels)
    n_labels = stated_n_labels or rows.n_labels
    if not options.accept_label_order:
        is_run = isinstance(file, FramePredictions) and file.is_run
        check_label_order(rows, frame, layout, names, n_labels, str(file.path), is_run=is_run)
    check_whole_groups(rows, signals, file_rows)
    learn_on = None
    if signals:
        learn_on = split_folds(len(rows), rows.group, options.seed, hold_out=options.hold_out).fit_rows
    ids = None
    if id_column in frame.columns:
        if file.reading.id is not None:
            ids = _read_ids(frame[id_column], file_rows)
        else:
            ids = _read_default_ids(frame[id_column])
            notes += describe_repeated_ids(frame[id_column], options.group)
    fitted_signals, rows = read_signals(signals, frame, rows, n_labels, file_rows, learn_on=learn_on)
    notes += describe_doubts(rows, layout, names, n_labels)
    for column in possible_groups:
        notes += describe_possible_groups(frame[column])
    notes += describe_unread_confidence(file.schema.names, layout, signals)
    return LabelledRows(
        rows=rows,
        n_labels=n_labels,
        signals=fitted_signals,
        notes=notes,
        names=names,
        ids=ids,
        id_column=id_column,
    )


def _check_signal_columns(file: Predictions, layout: Layout, signals: Sequence[str]) -> None:
    if layout.label in signals:
        raise InputError(
            f"{file.path}: the column {layout.label} holds the true labels and cannot be a signal; omit it"
        )
    for signal in sorted(signals):
        if signal not in GROUP_SIGNALS:
            require_column(file.schema.names, str(file.path), "signals", signal)


def read_with_labels(
    file: Predictions, layout: Layout, optional: Sequence[str | None], names: Sequence[str] | None
) -> FileContent:
    """Read the rows that have a label.

    Args:
        file: The predictions.
        layout: Names of the columns.
        optional: Further columns, which are read if they exist.
        names: Names of the labels; None for 0..K-1.

    Returns:
        The columns of these rows.

    Raises:
        InputError: There are no rows, or a row has no label and the reading does not allow this.
    """
    existing = [name for name in optional if name is not None and name in file.schema.names]
    frame = read_columns(file, list(dict.fromkeys([*layout.all_columns, *existing])))
    file_rows = rows_in_file(file)
    notes = reading_notes(file)
    if frame.is_empty():
        raise InputError(f"{file.path} has no rows; give a file with labelled rows")
    file_rows.reject_repeated_header(frame)
    label = frame[str(layout.label)]
    if names is None and layout.reading.positive is not None:
        names = (layout.reading.positive,)
    if not layout.reading.drop_unlabelled:
        advice = f"fill it, or omit such rows with {assignment('drop_unlabelled', True)}"
        reject_missing_labels(label, file_rows, names, advice)
        return FileContent(frame, file_rows, notes)
    omitted = find_omitted_rows(
        frame,
        label.name,
        names,
        decisions=[] if layout.decision is None else [layout.decision],
        n_labels=_count_predicted_labels(frame, layout),
        scores=layout.columns,
        words=layout.reading.words,
        are_weighted=layout.weight is not None,
    )
    notes += omitted.notes
    if omitted.is_omitted.any():
        frame = frame.filter(~omitted.is_omitted)
        file_rows = file_rows.without(omitted.is_omitted.to_numpy())
        if frame.is_empty():
            raise InputError(
                f"{file.path} has no value in the column {layout.label}; name the column of the true label with "
                f"{option('label')}"
            )
    return FileContent(frame, file_rows, notes)


def _count_predicted_labels(frame: pl.DataFrame, layout: Layout) -> int | None:
    """Return the number of labels that the predictions of the first row have; None if the columns do not show it."""
    if layout.is_of_one_label:
        return 2
    if layout.kind == "score":
        return len(layout.reading.borders) + 1
    if len(layout.columns) > 1:
        return len(layout.columns)
    if len(layout.columns) == 1 and isinstance(frame.schema[layout.columns[0]], pl.List | pl.Array):
        first = frame[layout.columns[0]][0]
        return None if first is None else len(first)
    return None


def check_whole_groups(rows: FixedDecisions, signals: Iterable[str], file_rows: FileRows) -> None:
    """Check that groups are complete if signals are computed from whole groups.

    Args:
        rows: The rows.
        signals: Names of the signals.
        file_rows: Positions of the rows in the file.

    Raises:
        InputError: Rows of the groups may be missing.
    """
    if set(GROUP_SIGNALS).isdisjoint(signals):
        return
    if rows.weight is not None:
        found = "a sample of rows"
    elif file_rows.row_number is not None:
        found = "rows without a label, which are omitted"
    else:
        return
    raise InputError(
        f"{file_rows.file} has {found}, so groups are incomplete, and group_rank and group_gap cannot be computed; "
        "omit these signals"
    )


def describe_repeated_ids(column: pl.Series, group: str | None) -> list[str]:
    """Warn that rows with the same id, such as labels of several annotators, are not independent.

    Args:
        column: The ids.
        group: Column of the groups; None without groups.

    Returns:
        A sentence; nothing if no id is repeated, or if rows are grouped.
    """
    if group is not None or column.dtype.is_nested():
        return []
    ids = column.drop_nulls()
    n_repeated = len(ids) - ids.n_unique()
    if not n_repeated:
        return []
    return [
        f"{n_repeated:,} of {len(column):,} rows repeat a value of {column.name}, but are treated as independent. If "
        "several rows are one item, such as labels of several annotators, keep one row for each item, or give "
        f"{assignment('group', column.name)}."
    ]


def find_possible_groups(columns: Sequence[str], id_column: str) -> list[str]:
    """Find the first column whose name says that it holds groups, such as queries.

    Args:
        columns: Names of all columns.
        id_column: Column of the ids.

    Returns:
        The name; empty if there is none.
    """
    names = (name for name in columns if name.lower() in GROUP_NAMES and name != id_column)
    return [*islice(names, 1)]


def describe_possible_groups(column: pl.Series) -> list[str]:
    """Note that a column seems to name the groups of rows that depend on each other.

    Args:
        column: A column with the name of such a column.

    Returns:
        A sentence; nothing if all values differ.
    """
    if column.dtype.is_nested() or column.n_unique() == len(column):
        return []
    return [
        f"The column {column.name} has {column.n_unique():,} values in {len(column):,} rows. If rows of the same "
        f"{column.name} depend on each other, intervals are too short and guarantees do not hold without "
        f"{assignment('group', column.name)}."
    ]


def describe_missing_ids(file: Predictions) -> str:
    """Note that a map cannot recognize its fit rows, and name a column that identifies rows.

    Args:
        file: Labelled predictions that repeat, without ids.

    Returns:
        A sentence.
    """
    found = _find_identifying_column(file)
    remedy = f"name a column whose values all differ with {option('id')}" if found is None else ""
    if found is not None:
        remedy = f"give {assignment('id', found)}, whose values all differ"
    return (
        "Predictions repeat, so this map cannot recognize the rows that it was fitted on, such as in a later file with "
        f"old and new rows. To change this, {remedy}."
    )


def _find_identifying_column(file: Predictions) -> str | None:
    """Find the first column of texts or whole numbers whose values all differ and are not row numbers."""
    names: list[str] = file.schema.names
    for name in names:
        kind = file.schema.field(name).type
        if not (pa.types.is_integer(kind) or is_text(kind)):
            continue
        column = read_columns(file, [name])[name]
        if column.dtype == pl.String and column.str.len_chars().sum() > MAX_ID_CHARACTERS * len(column):
            continue
        if _read_default_ids(column) is not None:
            return name
    return None


def _read_ids(column: pl.Series, file_rows: FileRows) -> np.ndarray:
    """Read the ids of a column that an option names, shape (n,); each must occur once."""
    file_rows.reject_missing(column)
    if column.dtype.is_nested():
        raise InputError(
            f"{file_rows.file}: the ids are in {column.name}, which contains lists; name a column of numbers or text"
        )
    file_rows.reject(
        ~column.is_first_distinct(),
        lambda row: (
            f"the id {column[row]} is repeated; keep one row of each id, such as the label of most annotators, or name "
            "a column that differs in each row"
        ),
    )
    return column.cast(pl.String).to_numpy()


def _read_default_ids(column: pl.Series) -> np.ndarray | None:
    """Read a column named id, shape (n,).

    Row numbers are not ids, because different rows have the same numbers in other files.

    Returns:
        The ids as text, shape (n,); None if values are missing, repeat or are consecutive numbers.
    """
    if column.dtype.is_nested() or is_missing(column).any() or column.n_unique() < len(column):
        return None
    numbers = column.cast(pl.String).cast(pl.Int64, strict=False)
    if not numbers.has_nulls():
        value_range = int(numbers.max()) - int(numbers.min())  # type: ignore[arg-type]
        if value_range == len(numbers) - 1:
            return None
    return column.cast(pl.String).to_numpy()
