"""Recognition of single rows that a map was fitted on, in whatever order and among whatever other rows.

A row is recognized by a salted, truncated BLAKE2b hash of its prediction, or of its id. Hashes of rows of polars are
not used, since they change between versions. The salt is derived from the data, so that the same fit writes the same
map. It makes hashes of different maps incomparable; whoever has a row can test whether it was used.

With 48 bits and 16,000 hashes, one in 17 billion new rows is taken for one of the fit by chance.
"""

import base64
import hashlib
from collections.abc import Sequence

import numpy as np

from relmap.io.rows import MOST_OFF, PredictedRows
from relmap.maps.document import MAX_HASH_CHARACTERS, Source, TrainingRows

HASH_BYTES = 6  # 8 characters of base64
MAX_HASHES = MAX_HASH_CHARACTERS * 3 // 4 // HASH_BYTES
MAX_REPEATED_SHARE = 0.05  # of the rows; as many new rows at most have the prediction of a row of the fit by chance
NOT_RECOGNIZED = -1  # in place of the number of a fold


def hash_training_rows(
    rows: PredictedRows,
    folds: Sequence[np.ndarray],
    source: Source,
    *,
    ids: np.ndarray | None = None,
    id_column: str | None = None,
) -> TrainingRows:
    """Hash the rows of each fold.

    Predictions are hashed unless they repeat, else ids. A prediction that occurs twice is left out, since it does not
    tell its fold.

    Args:
        rows: All labelled rows, n of them.
        folds: Numbers of the rows of each fold.
        source: Where they come from.
        ids: Id of each row, shape (n,), each once; None without.
        id_column: Name of their column.

    Returns:
        The hashes, at most 1 MB.
    """
    salt = hashlib.blake2b(f"{source.sha256} {source.seed}".encode(), digest_size=16).digest()
    fitted = np.concatenate(folds)
    hashes = _hash_predictions(rows.take(fitted), salt)
    _, first, count = np.unique(hashes, return_index=True, return_counts=True)
    once = np.sort(first[count == 1])
    by_id = len(once) < (1 - MAX_REPEATED_SHARE) * len(fitted)
    if by_id and ids is None:
        return TrainingRows(by="nothing", id_column=None, salt=salt.hex(), share=0.0, folds=())
    if by_id:
        hashes, once = _hash_ids(ids[fitted], salt), np.arange(len(fitted))  # type: ignore[index]
    fold = np.repeat(np.arange(len(folds)), [len(part) for part in folds])
    kept = once[np.argsort(hashes[once])][:MAX_HASHES]  # a hash is a random number, so the smallest are a sample
    return TrainingRows(
        by="id" if by_id else "prediction",
        id_column=id_column if by_id else None,
        salt=salt.hex(),
        share=len(kept) / len(fitted),
        folds=tuple(_encode(hashes[kept[fold[kept] == place]]) for place in range(len(folds))),
    )


def recognize_rows(training: TrainingRows, rows: PredictedRows, ids: np.ndarray | None = None) -> np.ndarray:
    """Find the fold in which each row was used.

    Args:
        training: The hashes of a map.
        rows: Rows of the same kind as those of the fit, n of them.
        ids: Id of each row, shape (n,); None without.

    Returns:
        Number of the fold of each row, shape (n,); `NEW` for a row that is not recognized.
    """
    fold = np.full(len(rows), NOT_RECOGNIZED)
    if training.by == "nothing" or (training.by == "id" and ids is None):
        return fold
    salt = bytes.fromhex(training.salt)
    hashes = _hash_predictions(rows, salt) if training.by == "prediction" else _hash_ids(ids, salt)  # type: ignore[arg-type]
    for place, encoded in enumerate(training.folds):
        fold[np.isin(hashes, _decode(encoded))] = place
    return fold


def canonical_predictions(rows: PredictedRows) -> np.ndarray:
    """Return what is hashed of each row: its prediction, the same in whatever file and precision it is written.

    Numbers are rounded to float32, so that a file in single precision has the rows of one in double precision.
    Probabilities, of which the rows hold logarithms, are rounded as probabilities.

    Args:
        rows: The rows, n of them.

    Returns:
        Bits of the numbers, and the decision, shape (n, K + 1), (n, 2) or (n, 1), int32.
    """
    numbers = np.empty((len(rows), 0)) if rows.confidence is None else rows.confidence[:, None]
    if rows.logits is not None:
        with np.errstate(over="ignore"):
            exponentials = np.exp(rows.logits)
        are_probabilities = bool((np.abs(exponentials.sum(axis=1) - 1) <= MOST_OFF).all())
        numbers = exponentials if are_probabilities else rows.logits
    bits = np.ascontiguousarray(numbers + 0.0, dtype="<f4").view("<i4")  # + 0.0 makes -0.0 the same as 0.0
    return np.ascontiguousarray(np.column_stack([bits, rows.decision.astype("<i4")]))


def _hash_predictions(rows: PredictedRows, salt: bytes) -> np.ndarray:
    values = canonical_predictions(rows)
    content, width = values.tobytes(), values.shape[1] * values.itemsize
    return _hash([content[begin : begin + width] for begin in range(0, len(content), width)], salt)


def _hash_ids(ids: np.ndarray, salt: bytes) -> np.ndarray:
    return _hash([str(each).encode() for each in ids], salt)


def _hash(values: Sequence[bytes], salt: bytes) -> np.ndarray:
    digests = b"".join(hashlib.blake2b(value, digest_size=HASH_BYTES, salt=salt).digest() for value in values)
    return _from_bytes(digests)


def _from_bytes(digests: bytes) -> np.ndarray:
    """Return digests as (n,) uint64, their first byte the most significant."""
    wide = np.zeros((len(digests) // HASH_BYTES, 8), dtype=np.uint8)
    wide[:, 8 - HASH_BYTES :] = np.frombuffer(digests, dtype=np.uint8).reshape(-1, HASH_BYTES)
    return wide.view(">u8")[:, 0].astype(np.uint64)


def _encode(hashes: np.ndarray) -> str:
    digests = np.sort(hashes).astype(">u8")[:, None].view(np.uint8)[:, 8 - HASH_BYTES :]
    return base64.b64encode(digests.tobytes()).decode()


def _decode(encoded: str) -> np.ndarray:
    return _from_bytes(base64.b64decode(encoded))
