"""Recognize the fit rows of a map, and score labelled rows by models that were fitted without them.

A map must not be evaluated on scores of rows that it was fitted on. Such rows are recognized, all together or one by
one, and get out-of-fold scores: each is scored by the model that was fitted without its fold.

A single row is recognized by a salted, truncated BLAKE2b hash of its prediction, or of its id. The row hashes of polars
are not used, since they change between versions. The salt is derived from the data, so the same fit writes the same
map. Hashes of different maps cannot be compared, but anybody who has a row can test whether it was used. A map has at
most 125,000 hashes of 48 bits, so a new row is wrongly recognized with a probability of at most 1 in 2 billion.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from relmap.decisions import FixedDecisions
from relmap.errors import InputError, option
from relmap.io.column_layout import find_layout
from relmap.io.files import Predictions
from relmap.io.hashing import sha256_of_arrays, sha256_of_file
from relmap.io.rows import MAX_SUM_ERROR, read_rows
from relmap.io.signals import group_signals, read_signals, relevance
from relmap.maps.document import MAX_HASH_CHARACTERS, Fingerprint, MapDocument, Source, TrainingRows
from relmap.maps.folds import FoldSplit, paper_fit_rows, restore_fold_split
from relmap.maps.labelled_rows import (
    DEFAULT_ID_COLUMN,
    check_whole_groups,
    describe_repeated_ids,
    read_with_labels,
)
from relmap.maps.score import (
    FittedMap,
    ScoredDecisions,
    find_group_column,
    score_parts,
    signal_group_column,
)

HASH_BYTES = 6  # 8 characters of base64
MAX_HASHES = MAX_HASH_CHARACTERS * 3 // 4 // HASH_BYTES
MAX_REPEATED_SHARE = 0.05  # of the fit rows; with more, new rows would often have the prediction of a fit row too
NOT_RECOGNIZED = -1  # in place of the fold of a row

# Relation of rows to the fit of a map. partly_out_of_fold: some rows are new, the others have out-of-fold scores.
RowOrigin = Literal["new", "held_out", "out_of_fold", "partly_out_of_fold"]


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
    group, notes = find_group_column(document, file, group, without="its rows are treated as independent")
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
    frame, file_rows, file_notes = read_with_labels(file, layout, columns, document.label_names)
    file_rows = file_rows._replace(has_map_labels=True)
    notes += file_notes
    if DEFAULT_ID_COLUMN in frame.columns:
        notes += describe_repeated_ids(frame[DEFAULT_ID_COLUMN], group)
    rows = read_rows(frame, layout, file_rows, names=document.label_names, n_labels=document.n_labels)
    check_whole_groups(rows, signal_columns, file_rows)
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


def hash_training_rows(
    rows: FixedDecisions,
    folds: Sequence[np.ndarray],
    source: Source,
    *,
    ids: np.ndarray | None = None,
    id_column: str | None = None,
) -> TrainingRows:
    """Hash the rows of each fold.

    Predictions are hashed if at most 5% of the rows share theirs with another row; these rows are omitted, since a
    shared prediction may be in several folds. Otherwise ids are hashed, or nothing if there are no ids.

    Args:
        rows: All labelled rows, n of them.
        folds: Positions of the rows of each fold.
        source: Origin of the rows. The SHA-256 of the file and the seed of the fit determine the salt.
        ids: Unique id of each row, shape (n,); None without ids.
        id_column: Name of the column of the ids.

    Returns:
        The hashes, at most 1 MB.
    """
    salt = hashlib.blake2b(f"{source.sha256} {source.seed}".encode(), digest_size=16).digest()
    fit_rows = np.concatenate(folds)
    hashes = _hash_predictions(rows.take(fit_rows), salt)
    _, first, count = np.unique(hashes, return_index=True, return_counts=True)
    candidates = first[count == 1]
    hashed_column = None
    if len(candidates) < (1 - MAX_REPEATED_SHARE) * len(fit_rows):
        if ids is None:
            return TrainingRows(by="nothing", id_column=None, salt=salt.hex(), share=0.0, folds=())
        hashes = _hash_ids(ids[fit_rows], salt)
        candidates = np.arange(len(fit_rows))
        hashed_column = id_column
        by: Literal["prediction", "id"] = "id"
    else:
        by = "prediction"
    # hashes are random numbers, so the rows with the smallest ones are a random sample
    stored = candidates[np.argsort(hashes[candidates])][:MAX_HASHES]
    fold = np.repeat(np.arange(len(folds)), [len(part) for part in folds])
    return TrainingRows(
        by=by,
        id_column=hashed_column,
        salt=salt.hex(),
        share=len(stored) / len(fit_rows),
        folds=tuple(_encode(hashes[stored[fold[stored] == k]]) for k in range(len(folds))),
    )


def recognize_rows(training: TrainingRows, rows: FixedDecisions, ids: np.ndarray | None = None) -> np.ndarray:
    """Recognize the fit rows of a map among n rows, and find the fold of each.

    Args:
        training: The hashes of the fit rows.
        rows: n rows, with predictions of the same kind as the fit rows, such as logits.
        ids: Id of each row, shape (n,); None without ids.

    Returns:
        Number of the fold of each recognized row, `NOT_RECOGNIZED` for the other rows; shape (n,).
    """
    fold = np.full(len(rows), NOT_RECOGNIZED)
    if training.by == "nothing" or (training.by == "id" and ids is None):
        return fold
    salt = bytes.fromhex(training.salt)
    if training.by == "id":
        assert ids is not None  # checked above
        hashes = _hash_ids(ids, salt)
    else:
        hashes = _hash_predictions(rows, salt)
    known_by_fold = [_decode(encoded) for encoded in training.folds]
    known = np.concatenate([np.empty(0, dtype=np.uint64), *known_by_fold])
    if not len(known):
        return fold
    order = np.argsort(known, kind="stable")
    known = known[order]
    known_fold = np.repeat(np.arange(len(known_by_fold)), [len(part) for part in known_by_fold])[order]
    nearest = np.searchsorted(known, hashes, side="right") - 1  # the last known hash that is not larger
    is_known = known[nearest] == hashes
    fold[is_known] = known_fold[nearest[is_known]]
    return fold


def canonical_predictions(rows: FixedDecisions) -> np.ndarray:
    """Convert the prediction of each row to the integers that are hashed.

    The integers do not depend on the file format and precision: numbers are rounded to float32, and then their bits are
    read as integers. Logits that are logarithms of probabilities are converted to probabilities before they are
    rounded.

    Args:
        rows: The rows, n of them.

    Returns:
        The numbers and then the decision, int32: shape (n, K + 1) for K logits, (n, 2) for a confidence, (n, 1) for a
        decision only.
    """
    numbers = np.empty((len(rows), 0)) if rows.confidence is None else rows.confidence[:, None]
    if rows.logits is not None:
        with np.errstate(over="ignore"):
            exponentials = np.exp(rows.logits)
        are_probabilities = bool((np.abs(exponentials.sum(axis=1) - 1) <= MAX_SUM_ERROR).all())
        numbers = exponentials if are_probabilities else rows.logits
    bits = np.ascontiguousarray(numbers + 0.0, dtype="<f4").view("<i4")  # + 0.0 makes -0.0 the same as 0.0
    return np.ascontiguousarray(np.column_stack([bits, rows.decision.astype("<i4")]))


def _hash_predictions(rows: FixedDecisions, salt: bytes) -> np.ndarray:
    values = canonical_predictions(rows)
    bytes_of_row = values.view(f"V{values.shape[1] * values.itemsize}")[:, 0]
    return _hash(bytes_of_row.tolist(), salt)


def _hash_ids(ids: np.ndarray, salt: bytes) -> np.ndarray:
    return _hash([str(value).encode() for value in ids], salt)


def _hash(values: Sequence[bytes], salt: bytes) -> np.ndarray:
    empty = hashlib.blake2b(digest_size=HASH_BYTES, salt=salt)
    digests = []
    for value in values:
        hasher = empty.copy()  # twice as fast as a new one
        hasher.update(value)
        digests.append(hasher.digest())
    return _from_bytes(b"".join(digests))


def _from_bytes(digests: bytes) -> np.ndarray:
    """Convert digests to integers, shape (n,), uint64; the first byte of a digest is the most significant one."""
    wide = np.zeros((len(digests) // HASH_BYTES, 8), dtype=np.uint8)
    wide[:, 8 - HASH_BYTES :] = np.frombuffer(digests, dtype=np.uint8).reshape(-1, HASH_BYTES)
    return wide.view(">u8")[:, 0].astype(np.uint64)


def _encode(hashes: np.ndarray) -> str:
    digests = np.sort(hashes).astype(">u8")[:, None].view(np.uint8)[:, 8 - HASH_BYTES :]
    return base64.b64encode(digests.tobytes()).decode()


def _decode(encoded: str) -> np.ndarray:
    return _from_bytes(base64.b64decode(encoded))
