"""Recognize the rows that a classifier was fitted on, by digests of their inputs."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from relmap.io.frames import HASHED_COLUMNS, is_frame, to_polars

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from relmap.io.frames import InputData

DIGEST_BYTES = 16


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """Rows that a classifier was fitted on, with an out-of-fold prediction for each.

    Attributes:
        row_by_digest: Digest of the input of a training row -> number of the row; the last one for equal inputs.
        predicted: Out-of-fold predictions, shape (n, K).
    """

    row_by_digest: Mapping[bytes, int]
    predicted: np.ndarray

    @classmethod
    def from_inputs(cls, X: "InputData", predicted: np.ndarray) -> "TrainingInputs | None":
        """Store the inputs of a fit.

        Args:
            X: The inputs, n rows.
            predicted: Out-of-fold predictions of the same rows, shape (n, K).

        Returns:
            The rows; None if the inputs are neither a frame, an array of numbers, a sparse matrix nor texts.
        """
        digests = digest_rows(X)
        if digests is None:
            return None
        return cls({digest: row for row, digest in enumerate(digests)}, predicted)

    def out_of_fold(self, X: "InputData", predicted: np.ndarray) -> np.ndarray:
        """Replace predictions of training rows with out-of-fold predictions.

        Args:
            X: Inputs, m rows.
            predicted: Predictions of the classifier, shape (m, K).

        Returns:
            Out-of-fold predictions for training rows, and the given predictions for other rows, shape (m, K).
        """
        digests = digest_rows(X) or []
        training_row = np.array([self.row_by_digest.get(digest, -1) for digest in digests], dtype=np.int64)
        is_training_row = training_row >= 0
        if not is_training_row.any():
            return predicted
        return np.where(is_training_row[:, None], self.predicted[training_row], predicted)


def digest_rows(X: "InputData") -> list[bytes] | None:
    """Digest each row of the inputs of a classifier.

    Args:
        X: A frame, an array of numbers, a sparse matrix, or a sequence of texts.

    Returns:
        A digest of each row; None for other inputs.
    """
    rows = _rows_as_bytes(X)
    if rows is None:
        return None
    return [hashlib.blake2b(row, digest_size=DIGEST_BYTES).digest() for row in rows]


def _rows_as_bytes(X: "InputData") -> list[bytes] | None:
    if is_frame(X):
        return to_polars(X, None).select(HASHED_COLUMNS).write_ndjson().encode().splitlines()
    if hasattr(X, "tocsr"):
        return _sparse_rows_as_bytes(X.tocsr())
    if isinstance(X, Sequence | np.ndarray) and len(X) and all(isinstance(text, str) for text in X):
        return [str(text).encode() for text in X]
    try:
        numbers = np.ascontiguousarray(X, dtype="<f8")
    except (TypeError, ValueError):
        return None
    return [row.tobytes() for row in numbers]


def _sparse_rows_as_bytes(matrix: "csr_array") -> list[bytes]:
    rows = []
    for begin, end in pairwise(matrix.indptr.tolist()):
        indices = np.asarray(matrix.indices[begin:end], "<i8")
        values = np.asarray(matrix.data[begin:end], "<f8")
        rows.append(indices.tobytes() + values.tobytes())
    return rows
