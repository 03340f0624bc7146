"""Reading of labelled rows, to fit a map on or to evaluate one with.

A map must not be evaluated on scores of rows that it was fitted on. Such rows are recognized, together or one by one,
and get out-of-fold scores: each is scored by the model that was fitted without its fold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from relmap.decisions import FixedDecisions
from relmap.errors import InputError, assignment, option
from relmap.io.columns import (
    FileRows,
    count_labels,
    is_missing,
    reject_missing_labels,
)
from relmap.io.files import Predictions, read_columns, reading_notes, rows_in_file
from relmap.io.hashing import sha256_of_arrays, sha256_of_file
from relmap.io.label_order import check_label_order
from relmap.io.reading import Layout, find_layout, require_column
from relmap.io.rows import describe_doubts, find_two_label_names, read_rows
from relmap.io.signals import GROUP_SIGNALS, Signal, group_signals, read_signals, relevance
from relmap.io.unlabelled import find_omitted_rows
from relmap.maps.document import Fingerprint, MapDocument, TrainingRows
from relmap.maps.folds import FoldSplit, paper_fit_rows, restore_fold_split, split_folds
from relmap.maps.score import FittedMap, ScoredDecisions, score_parts, signal_group_column
from relmap.maps.training_rows import MAX_REPEATED_SHARE, NOT_RECOGNIZED, recognize_rows

DEFAULT_ID_COLUMN = "id"

# Relation of rows to the fit of a map. partly_out_of_fold: some rows are new, the others have out-of-fold scores.
RowOrigin = Literal["new", "held_out", "out_of_fold", "partly_out_of_fold"]


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


class ScoredRows(NamedTuple):
    """Labelled rows, scored by models that were fitted without them.

    Attributes:
        rows: The rows, n of them.
        scored: Confidence and reliability of the rows.
        origin: Relation of the rows to the fit.
        notes: Sentences on how the rows were read and scored.
        fitted: Whether each row was used for the fit, shape (n,), bool.
    """

    rows: FixedDecisions
    scored: ScoredDecisions
    origin: RowOrigin
    notes: list[str]
    fitted: np.ndarray


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


def read_labelled_rows(
    file: Predictions,
    *,
    group: str | None,
    names: tuple[str, ...] | None,
    signals: tuple[str, ...] = (),
    seed: int = 1,
    hold_out: float = 0,
    accept_label_order: bool = False,
) -> LabelledRows:
    """Read labelled rows to fit a map on.

    Args:
        file: The predictions.
        group: Column of the groups; None without groups.
        names: Names of the labels in their order. None if the labels are 0..K-1, or if predictions are given for one of
            two labels; then the names are found in the file.
        signals: Names of columns to use as signals. How they are read is learned from the rows that are not held out.
        seed: Seed of the folds.
        hold_out: Share of the rows to hold out.
        accept_label_order: Do not check whether the labels may be in another order than the columns.

    Returns:
        The rows, their labels and their signals.

    Raises:
        InputError: A column or value cannot be read; the message names the file, the row and the column.
    """
    try:
        layout = find_layout(file.schema.names, str(file.path), labelled=True, group=group, reading=file.reading)
    except InputError as error:
        if names and set(names) <= set(file.schema.names):
            columns = assignment("probabilities", ",".join(names))
            raise InputError(f"{error}. For the columns with the names of the labels give {columns}") from None
        raise
    _check_signal_columns(file, layout, signals)
    id_column = file.reading.id or DEFAULT_ID_COLUMN
    frame, file_rows, notes = _read_columns(file, layout, [*signals, id_column], names)
    if names is None and layout.kind in ("probability", "score"):
        names = find_two_label_names(frame, layout, file_rows)
    stated_n_labels = len(names) if names else None
    if stated_n_labels is None and layout.kind in ("confidence_only", "decision_only"):
        stated_n_labels = count_labels(frame, str(layout.decision), str(layout.label), file_rows)
    rows = read_rows(frame, layout, file_rows, names=names, n_labels=stated_n_labels)
    n_labels = stated_n_labels or rows.n_labels
    if not accept_label_order:
        check_label_order(rows, frame, layout, names, n_labels, str(file.path))
    _check_whole_groups(rows, signals, file_rows)
    fit_rows = split_folds(len(rows), rows.group, seed, hold_out=hold_out).fit_rows if signals else None
    ids = None
    if id_column in frame.columns:
        if file.reading.id is not None:
            ids = _read_ids(frame[id_column], file_rows)
        else:
            ids = _read_default_ids(frame[id_column])
            notes += _describe_repeated_ids(frame[id_column], group)
    fitted_signals, rows = read_signals(signals, frame, rows, n_labels, file_rows, learn_on=fit_rows)
    notes += describe_doubts(rows, layout, names, n_labels)
    return LabelledRows(
        rows=rows,
        n_labels=n_labels,
        signals=fitted_signals,
        notes=notes,
        names=names,
        ids=ids,
        id_column=id_column,
    )


def read_and_score_rows(document: MapDocument, file: Predictions, *, group: str | None) -> ScoredRows:
    """Read labelled rows to evaluate a map on, and score each with a model that was fitted without it.

    Rows that the map was fitted on are recognized in any file or frame. They are omitted if the map has no folds, or if
    rows were held out from the fit and not all given rows are fit rows. Otherwise each fit row is scored by the model
    that was fitted without its fold.

    Args:
        document: The map.
        file: The predictions.
        group: Column of the groups; None for the group column of the map, if the file has it.

    Returns:
        The rows and their scores.

    Raises:
        InputError: A row cannot be read; or all rows are fit rows and the map has no folds; or all fit rows are given
            with other groups; or all fit rows are given in another order or with other labels, and the map cannot
            recognize individual rows.
    """
    group, notes = _find_group_column(document, file, group)
    layout = find_layout(
        file.schema.names, str(file.path), labelled=True, group=group, map_input=document.input, reading=file.reading
    )
    signal_group = signal_group_column(document)
    if signal_group is not None and signal_group not in file.schema.names:
        raise InputError(
            f"{file.path} has no column {signal_group}, from whose groups the map computes group_rank and group_gap; "
            "add it"
        )
    training = document.source.training_rows
    id_column = file.reading.id or (training.id_column if training else None)
    signal_columns = [signal.name for signal in document.signals]
    if signal_group is not None:
        signal_columns.append(signal_group)
    columns = [*signal_columns, id_column, DEFAULT_ID_COLUMN]
    frame, file_rows, file_notes = _read_columns(file, layout, columns, document.label_names)
    notes += file_notes
    if DEFAULT_ID_COLUMN in frame.columns:
        notes += _describe_repeated_ids(frame[DEFAULT_ID_COLUMN], group)
    rows = read_rows(frame, layout, file_rows, names=document.label_names, n_labels=document.n_labels)
    _check_whole_groups(rows, signal_columns, file_rows)
    computed = None
    if signal_group is not None:
        group_names = frame[signal_group].cast(pl.String).to_numpy()
        computed = group_signals(group_names, relevance(rows, document.n_labels))
    _, rows = read_signals(document.signals, frame, rows, document.n_labels, file_rows, computed=computed)
    if _are_all_fit_rows(document, rows, file, group):
        return _score_fit_rows(document, rows, notes, str(file.path))
    ids = frame[id_column].cast(pl.String).to_numpy() if id_column in frame.columns else None
    return _score_single_rows(document, rows, ids, notes, str(file.path))


def score_out_of_fold(document: MapDocument, rows: FixedDecisions, split: FoldSplit) -> ScoredDecisions:
    """Score the labelled rows of a fit with models that were fitted without them.

    Args:
        document: The map.
        rows: All labelled rows that were given to the fit.
        split: Split of these rows. Held-out rows are scored by the map itself.

    Returns:
        Confidence and reliability of each row.
    """
    models = [*_fold_maps(document), FittedMap.from_document(document)]
    return score_parts(rows, zip(models, [*split.folds, split.held_out], strict=True))


def fingerprint_rows(rows: FixedDecisions) -> Fingerprint:
    """Compute the hashes by which a map recognizes all labelled rows of its fit together.

    Args:
        rows: The labelled rows.

    Returns:
        The hashes.
    """
    assert rows.label is not None
    group_hash = None
    if rows.group is not None:
        _, first_row, group_code = np.unique(rows.group, return_index=True, return_inverse=True)
        group_hash = sha256_of_arrays(first_row[group_code])
    first_score = None
    if rows.confidence is not None:
        first_score = rows.confidence
    elif rows.logits is not None:
        first_score = rows.logits[:, 0]
    any_order_hash = None
    if first_score is not None:
        any_order_hash = sha256_of_arrays(np.sort(first_score), np.bincount(rows.label))
    return Fingerprint(rows=sha256_of_arrays(rows.decision, rows.label), groups=group_hash, any_order=any_order_hash)


def hash_predictions(predictions: Predictions) -> str:
    """Return the hex SHA-256 of a file of predictions, or of rows in memory.

    Args:
        predictions: The predictions.
    """
    return getattr(predictions, "sha256", None) or sha256_of_file(predictions.path)


def _check_signal_columns(file: Predictions, layout: Layout, signals: Sequence[str]) -> None:
    if layout.label in signals:
        raise InputError(
            f"{file.path}: the column {layout.label} holds the true labels and cannot be a signal; omit it"
        )
    for signal in sorted(signals):
        if signal not in GROUP_SIGNALS:
            require_column(file.schema.names, str(file.path), "signals", signal)


def _find_group_column(document: MapDocument, file: Predictions, group: str | None) -> tuple[str | None, list[str]]:
    """Return the column of the groups, and notes if it is taken from the map."""
    map_group = document.source.group
    if group is not None or map_group is None:
        return group, []
    if map_group in file.schema.names:
        return map_group, [f"Rows are grouped by {map_group}, as when the map was fitted."]
    return None, [
        f"The map was fitted with rows grouped by {map_group}, a column that {file.path} lacks: its rows are treated "
        "as independent."
    ]


def _read_columns(
    file: Predictions, layout: Layout, optional: Sequence[str | None], names: Sequence[str] | None
) -> FileContent:
    """Read the columns of the layout, and the optional ones that exist; `names` are the names of the labels."""
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
        decision=layout.decision,
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
    if layout.kind in ("probability", "score"):
        return 2
    if len(layout.columns) > 1:
        return len(layout.columns)
    if len(layout.columns) == 1 and isinstance(frame.schema[layout.columns[0]], pl.List | pl.Array):
        first = frame[layout.columns[0]][0]
        return None if first is None else len(first)
    return None


def _check_whole_groups(rows: FixedDecisions, signals: Iterable[str], file_rows: FileRows) -> None:
    """Check that groups are complete if signals are computed from whole groups."""
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


def _describe_repeated_ids(column: pl.Series, group: str | None) -> list[str]:
    """Warn that rows with the same id, such as labels of several annotators, are not independent."""
    if group is not None or column.dtype.is_nested():
        return []
    n_repeated = int((~column.drop_nulls().is_first_distinct()).sum())
    if not n_repeated:
        return []
    return [
        f"{n_repeated:,} of {len(column):,} rows repeat a value of {column.name}, but are treated as independent. If "
        "several rows are one item, such as labels of several annotators, keep one row for each item, or give "
        f"{assignment('group', column.name)}."
    ]


def _are_all_fit_rows(document: MapDocument, rows: FixedDecisions, file: Predictions, group: str | None) -> bool:
    """Return whether the rows are all rows that were given to the fit, in the same order.

    Raises:
        InputError: All fit rows are given with other groups, or in another order or with other labels so that they can
            be recognized neither together nor one by one.
    """
    source = document.source
    stored = source.fingerprint
    without_groups = fingerprint_rows(replace(rows, group=None))  # hashing a million groups takes seconds
    if (
        stored is None
    ):  # maps written by earlier versions have only the hash of the file and the name of the group column
        are_fit_rows = hash_predictions(file) == source.sha256
        has_same_groups = group == source.group
    else:
        are_fit_rows = without_groups.rows == stored.rows
        has_same_groups = are_fit_rows and fingerprint_rows(rows).groups == stored.groups
    if are_fit_rows and not has_same_groups:
        fit_groups = f"groups by {source.group}" if source.group else "no groups"
        raise InputError(f"{file.path} has the rows that the map was fitted on, with {fit_groups}; give the same here")
    if are_fit_rows or stored is None or _recognizes_single_rows(source.training_rows, file):
        return are_fit_rows
    if hash_predictions(file) == source.sha256:
        difference = "but other labels are read, or other rows are omitted"
    elif stored.any_order is not None and without_groups.any_order == stored.any_order:
        difference = "but in another order"
    else:
        return False
    raise InputError(
        f"{file.path} has the rows that the map was fitted on, {difference}; give them as for the fit, or give new rows"
    )


def _recognizes_single_rows(training: TrainingRows | None, file: Predictions) -> bool:
    """Return whether almost all fit rows can be recognized in this file, in any order."""
    if training is None or training.by == "nothing" or training.share < 1 - MAX_REPEATED_SHARE:
        return False
    return training.by == "prediction" or (file.reading.id or training.id_column) in file.schema.names


def _score_fit_rows(document: MapDocument, rows: FixedDecisions, notes: list[str], file: str) -> ScoredRows:
    """Score the rows that were given to the fit.

    If a hold-out was requested, or under the paper's protocol, only rows that no model was fitted on are scored.
    Otherwise each row is scored out of fold.

    Returns:
        The rows that may be used, and their scores.
    """
    split = restore_fold_split(document, rows) if document.folds else None
    if split is not None and not document.source.hold_out:
        notes.append(
            f"{file} has the rows that the map was fitted on: each row is scored by the model that was fitted without "
            "its fold."
        )
        return ScoredRows(
            rows=rows,
            scored=score_out_of_fold(document, rows, split),
            origin="out_of_fold",
            notes=notes,
            fitted=np.isin(np.arange(len(rows)), split.fit_rows),
        )
    if split is not None:
        unused = split.held_out
    else:
        fit_rows = paper_fit_rows(document.source, rows, document.calibrator.fitted)
        unused = np.setdiff1d(np.arange(len(rows)), fit_rows)
    rows = rows.take(unused)
    notes.append(
        f"{file} has the rows that the map was fitted on: only the {len(rows):,} rows that were held out are used."
    )
    return ScoredRows(
        rows=rows,
        scored=FittedMap.from_document(document).score_for_comparison(rows),
        origin="held_out",
        notes=notes,
        fitted=np.zeros(len(rows), dtype=bool),
    )


def _score_single_rows(
    document: MapDocument, rows: FixedDecisions, ids: np.ndarray | None, notes: list[str], file: str
) -> ScoredRows:
    """Score rows that are recognized one by one, since only some of them may be fit rows."""
    training = document.source.training_rows
    reliability_map = FittedMap.from_document(document)
    fold = np.full(len(rows), NOT_RECOGNIZED)
    if training is None:
        notes.append(
            "This map was written by an earlier version, so its individual fit rows cannot be recognized: give rows "
            "that it was not fitted on, or fit it again."
        )
    else:
        fold = recognize_rows(training, rows, ids)
        notes += _recognition_limits(training, ids, file)
    fitted = fold != NOT_RECOGNIZED
    if not fitted.any():
        return ScoredRows(
            rows=rows, scored=reliability_map.score_for_comparison(rows), origin="new", notes=notes, fitted=fitted
        )
    counts = f"{fitted.sum():,} of {len(rows):,} rows were used to fit the map"
    if not document.folds or (document.source.hold_out and not fitted.all()):
        rows = rows.take(~fitted)
        if not len(rows):
            raise InputError(f"{file}: all rows were used to fit the map, which has no folds; give new rows")
        notes.append(f"{counts}: they are omitted.")
        return ScoredRows(
            rows=rows,
            scored=reliability_map.score_for_comparison(rows),
            origin="new",
            notes=notes,
            fitted=np.zeros(len(rows), dtype=bool),
        )
    notes.append(f"{counts}: each of them is scored by the model that was fitted without its fold.")
    models = [*_fold_maps(document), reliability_map]
    members = [fold == k for k in range(len(document.folds))]
    return ScoredRows(
        rows=rows,
        scored=score_parts(rows, zip(models, [*members, ~fitted], strict=True)),
        origin="out_of_fold" if fitted.all() else "partly_out_of_fold",
        notes=notes,
        fitted=fitted,
    )


def _fold_maps(document: MapDocument) -> list[FittedMap]:
    """Return a map for each fold, which was fitted on the other folds."""
    return [FittedMap(fold.calibrator, fold.projection, fold.baseline) for fold in document.folds]


def _recognition_limits(training: TrainingRows, ids: np.ndarray | None, file: str) -> list[str]:
    """State which fit rows cannot be recognized."""
    if training.by == "nothing":
        return [
            "Rows that the map was fitted on cannot be recognized, since their predictions repeat. If these rows are "
            "new, ignore this. Otherwise give new rows, or fit again with a column that identifies rows "
            f"({option('id')})."
        ]
    if training.by == "id" and ids is None:
        return [
            f"Rows that the map was fitted on are recognized by the column {training.id_column}, which {file} lacks: "
            "give new rows, or add the column."
        ]
    if training.share < 1:
        return [f"{1 - training.share:.1%} of the rows that the map was fitted on cannot be recognized."]
    return []
