"""Quality of class probabilities (paper, section 4.4): accuracy, calibration error, log loss, Brier score.

Projections change neither probabilities nor decisions, so these metrics belong to a calibrator, not to a variant.
Metrics of no rows are NaN. NaN inputs are rejected, so that they cannot be mistaken for undefined metrics.
"""

from functools import reduce

import numpy as np

from relmap.settings import METRIC_DEFAULTS

N_BINS = METRIC_DEFAULTS.ece_bins
MIN_PROBABILITY = METRIC_DEFAULTS.smallest_probability  # limits the log loss of a row to 27.6 nats


def accuracy(decision: np.ndarray, labels: np.ndarray) -> float:
    """Compute the share of correct decisions.

    Args:
        decision: Decided labels, shape (n,).
        labels: True labels, shape (n,).

    Returns:
        Accuracy in [0, 1]; NaN without rows.
    """
    return float(np.mean(decision == labels)) if len(labels) else np.nan


def ece(confidence: np.ndarray, correct: np.ndarray, bins: int = N_BINS) -> float:
    """Compute the expected calibration error (Guo et al., 2017).

    It is the sum over bins of (share of rows) * |mean confidence - mean correct|.

    Args:
        confidence: Confidence in [0, 1], shape (n,).
        correct: Whether the decision is correct, shape (n,), bool.
        bins: Number of bins, as in `confidence_bins`.

    Returns:
        Error in [0, 1]; NaN without rows.

    Raises:
        ValueError: A confidence is NaN or outside [0, 1]; the message names the row.
    """
    confidence = np.asarray(confidence, dtype=np.float64)
    bin_of_row = confidence_bins(confidence, bins)
    if len(bin_of_row) == 0:
        return np.nan
    weighted_gaps = np.bincount(bin_of_row, weights=confidence - correct)  # rows * (mean confidence - mean correct)
    return float(np.abs(weighted_gaps).sum() / len(confidence))


def confidence_bins(confidence: np.ndarray, bins: int = N_BINS) -> np.ndarray:
    """Assign confidences to bins of equal width.

    As in the authors' code, bin i is [i / bins, (i + 1) / bins) with float64 edges, and a confidence of 1 is in the
    last bin. Confidences are compared with the edges, because `bins * confidence` may round to the next integer. This
    matters: with 15 bins, the confidence 1/K of equally probable labels is an edge for K = 3 and 5.

    Args:
        confidence: Confidence in [0, 1], shape (n,).
        bins: Number of bins.

    Returns:
        Bin 0..bins-1 of each row, shape (n,), int64.

    Raises:
        ValueError: A confidence is NaN or outside [0, 1]; the message names the row.
    """
    is_valid = (confidence >= 0) & (confidence <= 1 + 1e-9)  # exp of a log-probability may round above 1
    if not is_valid.all():
        row = int(np.flatnonzero(~is_valid)[0])
        raise ValueError(f"the confidence of row {row} is {confidence[row]}, not in [0, 1]")
    # a rounded guess, corrected by comparison with the edges, is several times faster than a search among the edges
    edges = np.append(np.arange(bins) / bins, np.inf)
    bin_of_row = (bins * confidence).astype(np.int64)
    bin_of_row -= confidence < edges.take(bin_of_row)
    bin_of_row += confidence >= edges.take(bin_of_row + 1)
    return bin_of_row


def top_label(log_probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the probability and the correctness of the most probable label of each row, the first of equals.

    Args:
        log_probabilities: Shape (n, K).
        labels: True labels, shape (n,).

    Returns:
        Probability of the most probable label, and whether it is the true one; shape (n,) each.

    Raises:
        ValueError: A log-probability is NaN; the message names the row.
    """
    reject_nan(log_probabilities, "log-probability")
    highest = log_probabilities[:, 0].copy()
    top = np.zeros(len(labels), dtype=np.int64)
    for label, column in enumerate(log_probabilities.T):  # argmax along rows takes several times as long
        top[column > highest] = label
        np.maximum(highest, column, out=highest)
    return np.exp(highest), top == labels


def log_loss_per_row(
    log_probabilities: np.ndarray, labels: np.ndarray, smallest: float = MIN_PROBABILITY
) -> np.ndarray:
    """Compute -log p of the true label.

    Args:
        log_probabilities: Shape (n, K).
        labels: True labels, shape (n,).
        smallest: Lower bound of p; with 0, one true label of probability 0 makes the mean infinite.

    Returns:
        Log loss of each row in nats, at least 0, shape (n,).

    Raises:
        ValueError: A log-probability is NaN; the message names the row.
    """
    reject_nan(log_probabilities, "log-probability")
    label_log_p = log_probabilities[np.arange(len(labels)), labels]
    min_log_p = np.log(smallest) if smallest > 0 else -np.inf
    return np.asarray(-np.maximum(label_log_p, min_log_p))


def brier_score_per_row(log_probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the squared error of the probabilities, summed over labels (Brier, 1950).

    Some libraries divide this sum by K. For two labels, others use only one of them, which halves the sum.

    Args:
        log_probabilities: Shape (n, K).
        labels: True labels, shape (n,).

    Returns:
        Brier score of each row in [0, 2], shape (n,).

    Raises:
        ValueError: A log-probability is NaN; the message names the row.
    """
    reject_nan(log_probabilities, "log-probability")
    y_true = np.asarray(labels)
    squared_errors = [np.square(np.exp(column) - (y_true == label)) for label, column in enumerate(log_probabilities.T)]
    return np.asarray(reduce(np.add, squared_errors))


def reject_nan(values: np.ndarray, name: str) -> None:
    """Reject NaN values.

    Args:
        values: Shape (n,) or (n, K).
        name: Name of the values in the message.

    Raises:
        ValueError: A value is NaN; the message names the first such row.
    """
    is_nan = np.isnan(values)
    if is_nan.any():
        raise ValueError(f"the {name} of row {np.argwhere(is_nan)[0, 0]} is NaN")
