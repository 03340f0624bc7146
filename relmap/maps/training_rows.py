"""Recognize individual fit rows of a map in files with other rows or another order.

A row is recognized by a salted, truncated BLAKE2b hash of its prediction, or of its id. The row hashes of polars are
not used, since they change between versions. The salt is derived from the data, so the same fit writes the same map.
Hashes of different maps cannot be compared, but anybody who has a row can test whether it was used.

A map has at most 125,000 hashes of 48 bits, so a new row is wrongly recognized with a probability of at most 1 in 2
billion.
"""

import base64
import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from relmap.decisions import FixedDecisions
from relmap.io.rows import MAX_SUM_ERROR
from relmap.maps.document import MAX_HASH_CHARACTERS, Source, TrainingRows

HASH_BYTES = 6  # 8 characters of base64
MAX_HASHES = MAX_HASH_CHARACTERS * 3 // 4 // HASH_BYTES
MAX_REPEATED_SHARE = 0.05  # of the fit rows; with more, new rows would often have the prediction of a fit row too
NOT_RECOGNIZED = -1  # in place of the fold of a row


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
    for k, encoded in enumerate(training.folds):
        fold[np.isin(hashes, _decode(encoded))] = k
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
    content = values.tobytes()
    row_bytes = values.shape[1] * values.itemsize
    return _hash([content[begin : begin + row_bytes] for begin in range(0, len(content), row_bytes)], salt)


def _hash_ids(ids: np.ndarray, salt: bytes) -> np.ndarray:
    return _hash([str(value).encode() for value in ids], salt)


def _hash(values: Sequence[bytes], salt: bytes) -> np.ndarray:
    digests = b"".join(hashlib.blake2b(value, digest_size=HASH_BYTES, salt=salt).digest() for value in values)
    return _from_bytes(digests)


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
