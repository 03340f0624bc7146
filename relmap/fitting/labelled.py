"""The labelled rows of a map: how they are read, and which fit sees which.

Rows are dealt into folds under a seed, and no group falls in two of them. Everything is fitted on all folds but one,
and read on that one: so every row is fitted on, and every row is judged by fits that have not seen it. What is deployed
is fitted on all folds. A part may be kept aside, which no fit sees at all. Who asks for the paper's own numbers gets
its parts instead, with its parted queries and its leaking temperature.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from relmap.calibrators.identity import Identity
from relmap.errors import InputError
from relmap.fitting.label_order import check_label_order
from relmap.fitting.training_rows import MAX_REPEATED_SHARE, NEW, recognize
from relmap.hashing import sha256_of_arrays, sha256_of_file
from relmap.io.columns import FileRows, is_missing, labels_in, unlabelled
from relmap.io.files import Predictions, columns_of, notes_on, rows_of
from relmap.io.reading import Layout, find_layout
from relmap.io.rows import PredictedRows, checked_rows, names_of_two_labels, questions
from relmap.io.signals import COMPUTED, Signal, group_signals, read_signals, relevance
from relmap.maps.document import Calibrator, Fingerprint, MapDocument, Source, TrainingRows
from relmap.maps.reliability_map import FittedMap, Scored, scored_in_parts
from relmap.maps.scoring import grouped_by
from relmap.options import assignment, option
from relmap.splits import expand_units, group_row_numbers, split_validation

FEWEST_ROWS = 60
CAP = 16_000  # rows that are fitted on at most; more gain hardly anything, and are kept aside
FOLDS = 5

# how the fits of a map know the rows that it is compared with; partly: some are new, the others are scored out of fold
Seen = Literal["new", "kept_aside", "out_of_fold", "partly"]
ID_COLUMN = "id"  # is used without being named


@dataclass(frozen=True, eq=False)
class Division:
    """Row numbers: those of each fold, and those that no fit sees."""

    folds: tuple[np.ndarray, ...]
    kept_aside: np.ndarray

    @property
    def fitted(self) -> np.ndarray:
        """The rows of all folds."""
        return np.concatenate(self.folds)

    def training(self, fold: int) -> np.ndarray:
        """The rows of all folds but one."""
        return np.concatenate([rows for place, rows in enumerate(self.folds) if place != fold])


class RowsToFit(NamedTuple):
    """Labelled rows to fit a map on.

    Attributes:
        rows: The rows.
        n_labels: K.
        signals: How each signal is read.
        notes: How the file was read, a sentence each.
        names: Names of the labels, in their order; None for 0..K-1.
        ids: What identifies each row, shape (n,); None without.
        id_column: Name of the column of the ids.
    """

    rows: PredictedRows
    n_labels: int
    signals: tuple[Signal, ...]
    notes: list[str]
    names: tuple[str, ...] | None
    ids: np.ndarray | None
    id_column: str | None


class RowsToEvaluate(NamedTuple):
    """Labelled rows, scored by models that have not seen them.

    Attributes:
        rows: The rows, n of them.
        scored: Their confidence and reliability.
        seen: How the fits of the map know them.
        notes: How they were read and scored, a sentence each.
        fitted: Whether a row was used for the fit, shape (n,), bool.
    """

    rows: PredictedRows
    scored: Scored
    seen: Seen
    notes: list[str]
    fitted: np.ndarray


def divide(
    n: int, group: np.ndarray | None, seed: int, *, folds: int = FOLDS, hold_out: float = 0, cap: int = CAP
) -> Division:
    """Deal `n` rows, or whole groups `(n,)`, into `folds` under `seed`, a share `hold_out` and all beyond `cap` aside.

    The same rows, seed and groups give the same parts on every machine. There are fewer folds where there are fewer
    groups.
    """
    units = None if group is None else group_row_numbers(group)
    order = np.random.default_rng(seed).permutation(n if units is None else len(units))
    aside, rest = np.split(order, [round(hold_out * len(order))])
    beyond = np.cumsum(np.ones(len(rest)) if units is None else [len(units[unit]) for unit in rest]) > cap
    beyond[:2] = False  # the largest group there is must not leave nothing to fit on
    parts = [*np.array_split(rest[~beyond], min(folds, len(rest[~beyond]))), np.concatenate([aside, rest[beyond]])]
    rows = expand_units(parts, units)
    return Division(tuple(rows[:-1]), np.sort(rows[-1]))


def check_enough(rows: PredictedRows, division: Division, hold_out: float) -> None:
    """Raise InputError where rows, groups or labels are too few to fit a map on."""
    assert rows.label is not None
    fitted = division.fitted
    if hold_out and not len(division.kept_aside):
        raise InputError(
            f"a hold-out of {hold_out:g} of {len(rows):,} rows, or of their groups, keeps none aside; give more with "
            f"{option('hold_out')}"
        )
    if len(fitted) < FEWEST_ROWS:
        raise InputError(
            f"there are {len(fitted)} labelled rows to fit on; label more: a map needs {FEWEST_ROWS}, better 1,000"
        )
    label = rows.label[fitted]
    if (label == label[0]).all():
        raise InputError(f"every label is {label[0]}; a map needs rows of two labels at least; label more")
    if len(division.folds) < 2:
        raise InputError("all rows to fit on are of one group, so none can test a fit on others; omit the groups")


def read_to_fit(
    file: Predictions,
    *,
    group: str | None,
    names: tuple[str, ...] | None,
    signals: tuple[str, ...] = (),
    seed: int = 1,
    hold_out: float = 0,
    accept_label_order: bool = False,
) -> RowsToFit:
    """Read labelled rows to fit a map on.

    Args:
        file: The predictions.
        group: Column of the groups; None without.
        names: Names of the labels in their order; None for 0..K-1, or for two names of which one is given as positive.
        signals: Names of columns to use as signals. How they are read is learned on the rows that are not held out.
        seed: Seed of the folds.
        hold_out: Share of the rows to hold out.
        accept_label_order: Accept names in an order that matches the labels worse than another one.

    Returns:
        The rows, and what is known of their labels and signals.

    Raises:
        InputError: The message names the file, the row and the column of a mistake.
    """
    predictions = file.path
    layout = find_layout(file.schema.names, str(predictions), labelled=True, group=group, reading=file.reading)
    if layout.label in signals:
        raise InputError(
            f"{predictions}: the column {layout.label} is no signal, since it holds the truth; leave it out"
        )
    if unknown := set(signals) - {*COMPUTED, *file.schema.names}:
        there = ", ".join(file.schema.names)
        raise InputError(f"{predictions} has no column {min(unknown)}, which signals names; it has {there}")
    columns, id_column = file.schema.names, file.reading.id or ID_COLUMN
    if file.reading.id is not None and id_column not in columns:
        raise InputError(
            f"{predictions} has no column {id_column}, which {option('id')} names; it has {', '.join(columns)}"
        )
    also = [name for name in (*signals, id_column) if name in columns]
    frame, at, notes = _read(file, layout, also)
    if names is None and layout.kind in ("probability", "score"):
        names = names_of_two_labels(frame, layout, at)
    n_labels = len(names) if names else None
    if n_labels is None and layout.kind in ("confidence_only", "decision_only"):
        n_labels = labels_in(frame, [str(layout.decision), str(layout.label)], at)
    rows = checked_rows(frame, layout, at, names=names, n_labels=n_labels)
    n_labels = n_labels or rows.n_labels
    if not accept_label_order:
        check_label_order(rows, frame, layout, names, n_labels, str(predictions))
    _refuse_parts_of_groups(rows, signals, at)
    fitted = divide(len(rows), rows.group, seed, hold_out=hold_out).fitted if signals else None
    ids = None
    if id_column in frame.columns:
        ids = _ids_of(frame[id_column], at) if file.reading.id is not None else _ids_if_any(frame[id_column])
    known, rows = read_signals(signals, frame, rows, n_labels, at, learn_on=fitted)
    return RowsToFit(rows, n_labels, known, notes + questions(rows, layout, names, n_labels), names, ids, id_column)


def read_to_judge(document: MapDocument, file: Predictions, *, group: str | None) -> RowsToEvaluate:
    """Read labelled rows to evaluate a map on, and score each with a model that has not seen it.

    Rows that the map was fitted on are recognized in whatever file or frame they are. If the map has held-out rows, the
    fitted ones are left out; else the model of their fold scores them.

    Args:
        document: The map.
        file: The predictions.
        group: Column of the groups; None for that of the map, if the file has it.

    Returns:
        The rows and their scores.

    Raises:
        InputError: A row cannot be read; or all rows of the fit are given with other groups; or with other labels or in
            another order, and the map cannot recognize single rows.
    """
    source, predictions, notes = document.source, file.path, []
    if group is None and source.group is not None:
        together = f"The map was fitted with rows of one {source.group} together"
        notes = [f"{together}, a column that {predictions} lacks: its rows are taken as independent."]
        if source.group in file.schema.names:
            group, notes = source.group, [f"Rows of one {source.group} go together, as in the fit."]
    layout = find_layout(
        file.schema.names, str(file.path), labelled=True, group=group, reads=document.input, reading=file.reading
    )
    by, n_labels = grouped_by(document), document.n_labels
    if by is not None and by not in file.schema.names:
        raise InputError(f"{predictions} has no column {by}, by which the map computes group_rank and group_gap")
    also = [signal.name for signal in document.signals] + ([by] if by else [])
    training = source.training_rows
    id_column = file.reading.id or (training.id_column if training else None)
    columns = [name for name in (*also, id_column) if name is not None and name in file.schema.names]
    frame, at, notes_of_file = _read(file, layout, columns)
    notes += notes_of_file
    rows = checked_rows(frame, layout, at, names=document.label_names, n_labels=n_labels)
    _refuse_parts_of_groups(rows, also, at)
    computed = group_signals(frame[by].cast(pl.String).to_numpy(), relevance(rows, n_labels)) if by else None
    rows = read_signals(document.signals, frame, rows, n_labels, at, computed=computed)[1]
    reliability_map, made_of = FittedMap.of(document), f"{predictions} is what the map was fitted on"
    if not _is_fitted_on(document, rows, file, group):
        ids = frame[id_column].cast(pl.String).to_numpy() if id_column in frame.columns else None
        return _score_single_rows(document, rows, ids, notes, str(predictions))
    division = division_of(document, rows) if document.folds else None
    if division is None or source.hold_out:
        if division is not None:
            unseen = division.kept_aside
        else:
            fitted = seen_in_the_paper(source, rows, document.calibrator.fitted)
            unseen = np.setdiff1d(np.arange(len(rows)), fitted)
        rows = rows.take(unseen)
        notes.append(f"{made_of}: only the {len(rows):,} rows that no fit has seen are used.")
        return RowsToEvaluate(rows, reliability_map(rows), "kept_aside", notes, np.zeros(len(rows), dtype=bool))
    notes.append(f"{made_of}: each row is judged by a fit on the other folds, so that none has seen it.")
    fitted = np.isin(np.arange(len(rows)), division.fitted)
    return RowsToEvaluate(rows, out_of_fold(document, rows, division), "out_of_fold", notes, fitted)


def _score_single_rows(
    document: MapDocument, rows: PredictedRows, ids: np.ndarray | None, notes: list[str], file: str
) -> RowsToEvaluate:
    """Score rows that are not all rows of the fit in their order, but may be some of them."""
    training, reliability_map = document.source.training_rows, FittedMap.of(document)
    fold = np.full(len(rows), NEW)
    if training is None:
        notes.append(
            "This map was written by an earlier version, so single rows of its fit cannot be recognized: give rows "
            "that it has not seen, or fit it again."
        )
    else:
        fold = recognize(training, rows, ids)
        notes += _recognition_limits(training, ids, file)
    fitted = fold != NEW
    many = f"{fitted.sum():,} of {len(rows):,} rows were used to fit the map"
    if not fitted.any():
        return RowsToEvaluate(rows, reliability_map(rows), "new", notes, fitted)
    if not document.folds or (document.source.hold_out and not fitted.all()):
        rows = rows.take(~fitted)
        if not len(rows):
            raise InputError(f"{file}: all rows were used to fit the map, which has no folds; give rows that are new")
        notes.append(f"{many}: they are left out.")
        return RowsToEvaluate(rows, reliability_map(rows), "new", notes, np.zeros(len(rows), dtype=bool))
    notes.append(f"{many}: each of them is scored by the model that was fitted without its fold.")
    models = [*_fold_maps(document), reliability_map]
    parts = [*(fold == place for place in range(len(document.folds))), ~fitted]
    scored = scored_in_parts(rows, zip(models, parts, strict=True))
    return RowsToEvaluate(rows, scored, "out_of_fold" if fitted.all() else "partly", notes, fitted)


def _fold_maps(document: MapDocument) -> list[FittedMap]:
    """Return the map that was fitted without each fold."""
    return [FittedMap(fold.calibrator, fold.projection, fold.correction) for fold in document.folds]


def _recognition_limits(training: TrainingRows, ids: np.ndarray | None, file: str) -> list[str]:
    """State which rows of the fit cannot be recognized."""
    if training.by == "nothing":
        return [
            "Rows of the fit cannot be recognized, since their predictions repeat: give rows that it has not seen, or "
            f"fit again with a column that identifies rows ({option('id')})."
        ]
    if training.by == "id" and ids is None:
        return [
            f"Rows of the fit are recognized by the column {training.id_column}, which {file} lacks: give rows that "
            "the fit has not seen."
        ]
    if training.share < 1:
        return [f"Of the rows of the fit {1 - training.share:.1%} cannot be recognized."]
    return []


def _ids_of(column: pl.Series, at: FileRows) -> np.ndarray:
    """Read ids `(n,)` that are asked for; InputError names the row of a missing or repeated one."""
    at.refuse_missing(column)
    if column.dtype.is_nested():
        raise InputError(
            f"{at.file}: the ids are in {column.name}, which holds lists; name a column of numbers or text"
        )
    at.refuse(~column.is_first_distinct(), lambda row: f"the id {column[row]} is there twice; name a column of ids")
    return column.cast(pl.String).to_numpy()


def _ids_if_any(column: pl.Series) -> np.ndarray | None:
    """Read a column named id `(n,)`, unless it repeats or numbers the rows: other files have such numbers too."""
    if column.dtype.is_nested() or is_missing(column).any() or column.n_unique() < len(column):
        return None
    whole = column.cast(pl.String).cast(pl.Int64, strict=False)
    if not whole.has_nulls() and int(whole.max()) - int(whole.min()) == len(whole) - 1:  # type: ignore[arg-type]
        return None
    return column.cast(pl.String).to_numpy()


def fingerprint(rows: PredictedRows) -> Fingerprint:
    """By what a map knows the labelled rows again that it was made of."""
    assert rows.label is not None
    of_groups = any_order = None
    if rows.group is not None:
        _, first, of = np.unique(rows.group, return_index=True, return_inverse=True)
        of_groups = sha256_of_arrays(first[of])
    said = rows.logits if rows.confidence is None else rows.confidence[:, None]
    if said is not None:
        any_order = sha256_of_arrays(np.sort(said[:, 0]), np.bincount(rows.label))
    return Fingerprint(rows=sha256_of_arrays(rows.decision, rows.label), groups=of_groups, any_order=any_order)


def _is_fitted_on(document: MapDocument, rows: PredictedRows, file: Predictions, group: str | None) -> bool:
    """Whether a map was made of just these rows; InputError where it was made of the same, taken otherwise."""
    source, known = document.source, document.source.fingerprint
    mine = fingerprint(replace(rows, group=None))  # to number a million groups takes seconds
    made_of = f"{file.path} is what the map was fitted on"
    if known is None:  # a map of before knows its file, and what the column of the groups is called
        fitted = sha256_of(file) == source.sha256
        alike = group == source.group
    else:
        fitted = mine.rows == known.rows
        alike = not fitted or fingerprint(rows).groups == known.groups
    if fitted and not alike:
        together = f"groups by {source.group}" if source.group else "no groups"
        raise InputError(f"{made_of}, with {together}; say the same here")
    if fitted or known is None or _recognizes_single_rows(source.training_rows, file):
        return fitted
    if sha256_of(file) == source.sha256:
        how = "with another truth or other rows left away"
    elif known.any_order is not None and mine.any_order == known.any_order:
        how = "in another order"
    else:
        return False
    raise InputError(f"{made_of}, {how}; give the rows as the fit had them, or rows that it has not seen")


def _recognizes_single_rows(training: TrainingRows | None, file: Predictions) -> bool:
    """Whether almost every row of the fit is recognized in this file, so that it may have any order."""
    if training is None or training.by == "nothing" or training.share < 1 - MAX_REPEATED_SHARE:
        return False
    return training.by == "prediction" or (file.reading.id or training.id_column) in file.schema.names


def sha256_of(predictions: Predictions) -> str:
    """Hex SHA-256 of a file of predictions, or of rows in memory."""
    return getattr(predictions, "sha256", None) or sha256_of_file(predictions.path)


def division_of(document: MapDocument, rows: PredictedRows) -> Division:
    """How all `rows` that a map was made of were dealt, with their groups of then."""
    source, cap = document.source, document.projection.rows
    folds, hold_out = len(document.folds), source.hold_out
    return divide(len(rows), rows.group, source.seed, folds=folds, hold_out=hold_out, cap=cap)


def out_of_fold(document: MapDocument, rows: PredictedRows, division: Division) -> Scored:
    """What the fits of a map say of rows they have not seen: of each fold its own, of what is kept aside the map."""
    maps = [*_fold_maps(document), FittedMap.of(document)]
    return scored_in_parts(rows, zip(maps, (*division.folds, division.kept_aside), strict=True))


def seen_in_the_paper(source: Source, rows: PredictedRows, calibrator: Calibrator) -> np.ndarray:
    """Return the rows that a fit under the paper's protocol has seen.

    Args:
        source: Seed and parts of the protocol.
        rows: All labelled rows.
        calibrator: The fitted calibrator. A temperature counts as fitted on the rows for calibrators alone.

    Returns:
        Numbers of the rows, rising.
    """
    assert source.protocol is not None
    parts = split_validation(len(rows), source.seed, source.protocol, rows.group)
    learns_nothing = isinstance(calibrator, Identity)
    return np.sort(np.concatenate(parts[1:2] if learns_nothing else parts[:2]))


def _refuse_parts_of_groups(rows: PredictedRows, signals: Iterable[str], at: FileRows) -> None:
    if set(COMPUTED).isdisjoint(signals):
        return
    for parted, what in ((rows.weight, "drawn rows"), (at.kept, "rows without a label, which are left away")):
        if parted is not None:
            raise InputError(
                f"{at.file} holds {what}, not whole groups, so it has no group_rank and group_gap; leave these out"
            )


def _read(file: Predictions, layout: Layout, also: list[str]) -> tuple[pl.DataFrame, FileRows, list[str]]:
    """The columns that are read, which rows of the file they are, and notes in words."""
    frame, at, notes = columns_of(file, list(dict.fromkeys([*layout.read, *also]))), rows_of(file), notes_on(file)
    if frame.is_empty():
        raise InputError(f"{file.path} has no rows; give a file with labelled rows")
    label = frame[str(layout.label)]
    if not layout.reading.drop_unlabelled:
        at.refuse_missing(label, f"fill it, or omit such rows with {assignment('drop_unlabelled', True)}")
    elif (missing := unlabelled(label)).any():
        notes.append(f"{missing.sum():,} of {len(frame):,} rows have no label and are left away.")
        frame, at = frame.filter(~missing), at.without(missing)
        if frame.is_empty():
            raise InputError(
                f"{file.path} has no rows with a {layout.label}; name the column of the truth with {option('label')}"
            )
    return frame, at, notes
