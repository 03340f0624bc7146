"""Inputs of a classifier, recognized row by row."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from relmap.io.frames import HASHED, frame_of, is_frame


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """Rows that a classifier was fitted on, with what it predicts of each when fitted without it.

    Attributes:
        row_of: Number of the training row by the digest of its input.
        predicted: Out-of-fold predictions, shape (n, K).
    """

    row_of: Mapping[bytes, int]
    predicted: np.ndarray

    @classmethod
    def of(cls, X: Any, predicted: np.ndarray) -> "TrainingInputs | None":
        """Remember the inputs of a fit.

        Args:
            X: The inputs, n rows.
            predicted: Out-of-fold predictions of the same rows, shape (n, K).

        Returns:
            The rows; None if the inputs are neither a frame, an array of numbers, a sparse matrix nor texts.
        """
        digests = digests_of(X)
        return None if digests is None else cls({digest: row for row, digest in enumerate(digests)}, predicted)

    def out_of_fold(self, X: Any, predicted: np.ndarray) -> np.ndarray:
        """Replace predictions of training rows with out-of-fold predictions.

        Args:
            X: Inputs, m rows.
            predicted: What the classifier predicts of them, shape (m, K).

        Returns:
            Predictions by classifiers that have not seen the row, shape (m, K).
        """
        training_row = np.array([self.row_of.get(digest, -1) for digest in digests_of(X) or ()], dtype=np.int64)
        if not (training_row >= 0).any():
            return predicted
        return np.where((training_row >= 0)[:, None], self.predicted[training_row], predicted)


def digests_of(X: Any) -> list[bytes] | None:
    """Digest each row of the inputs of a classifier.

    Args:
        X: A frame, an array of numbers, a sparse matrix, or a sequence of texts.

    Returns:
        A digest of each row; None for other inputs.
    """
    if is_frame(X):
        rows = frame_of(X, None).select(HASHED).write_ndjson().encode().splitlines()
    elif hasattr(X, "tocsr"):
        matrix = X.tocsr()
        ends = matrix.indptr.tolist()
        parts = [(matrix.indices[a:b], matrix.data[a:b]) for a, b in pairwise(ends)]
        rows = [np.asarray(at, "<i8").tobytes() + np.asarray(of, "<f8").tobytes() for at, of in parts]
    elif isinstance(X, Sequence | np.ndarray) and len(X) and all(isinstance(each, str) for each in X):
        rows = [each.encode() for each in X]
    else:
        try:
            numbers = np.ascontiguousarray(X, dtype="<f8")
        except (TypeError, ValueError):
            return None
        rows = [each.tobytes() for each in numbers]
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]
