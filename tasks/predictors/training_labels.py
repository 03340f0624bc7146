"""What the labels of the training rows decide: the weight of a row, and the logit of a label that never occurred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.protocol.errors import BadInput


@dataclass(frozen=True)
class TrainingLabels:
    """The labels that a predictor was fitted on."""

    n_labels: int  # K
    present: tuple[int, ...]  # the P labels that occur in training, ascending
    rows: int
    class_weight: str  # none or balanced

    def logits(self, scores: np.ndarray) -> np.ndarray:
        """Scores of the labels that occur, `(n, P)`, to logits of all labels, `(n, K)` float64.

        Two labels are told apart by one score s, `(n, 1)`, in favour of the second; their logits are -s/2 and +s/2.
        A label that never occurred takes what would be 1/rows of the probability of all others together (one row
        among as many as were seen): low, finite, and never the decision once there are more rows than labels.
        """
        if scores.shape[1] == 1:
            scores = np.hstack([-scores / 2, scores / 2])
        highest = scores.max(axis=1, keepdims=True)
        together = highest + np.log(np.exp(scores - highest).sum(axis=1, keepdims=True))
        logits = np.repeat(together - np.log(self.rows), self.n_labels, axis=1)
        logits[:, list(self.present)] = scores
        return logits


def training_labels(labels: np.ndarray, n_labels: int, class_weight: str) -> TrainingLabels:
    """Labels `(n,)` int in 0..K-1 to what a predictor keeps of them.

    Raises
    ------
    BadInput: fewer than two labels occur, or an unknown class weight.
    """
    if class_weight not in ("none", "balanced"):
        raise BadInput(f"class_weight is {class_weight!r}; it must be 'none' or 'balanced'")
    present = tuple(np.unique(labels).tolist())
    if len(present) < 2:
        found = f"only the label {present[0]}" if present else "no row at all"
        raise BadInput(f"the training rows hold {found}; a predictor needs rows of at least two labels")
    return TrainingLabels(n_labels, present, len(labels), class_weight)


def row_weights(labels: np.ndarray, class_weight: str) -> np.ndarray:
    """Weight of each row, `(n,)`, mean 1: all alike, or (balanced) the same total for every label that occurs."""
    if class_weight == "none":
        return np.ones(len(labels))
    _, code, count = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(len(labels) / (len(count) * count)[code])
