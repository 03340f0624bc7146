"""Quality of the class probabilities (paper, section 4.4): accuracy, calibration error, log loss, Brier score.

No projection changes a probability or a decision, so these belong to a calibrator, not to a variant.
Every metric of no rows is NaN; a NaN that comes in is refused, for it must not look like a metric that is undefined.
"""

from functools import reduce

import numpy as np

from relmap.settings import METRIC_DEFAULTS

N_BINS = METRIC_DEFAULTS.ece_bins
MIN_PROBABILITY = METRIC_DEFAULTS.smallest_probability  # one impossible label may cost 27.6 nats at most


def accuracy(decision: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose decision `(n,)` is the true label `(n,)`, in [0, 1]."""
    return float(np.mean(decision == labels)) if len(labels) else np.nan


def ece(confidence: np.ndarray, correct: np.ndarray, bins: int = N_BINS) -> float:
    """Return the expected calibration error, in [0, 1], of confidence `(n,)` in [0, 1] against correct `(n,)` bool.

    Sum over bins of (share of rows) * |mean confidence - mean correct| (Guo et al., 2017), over `confidence_bins`.

    Raises:
        ValueError: a confidence is NaN or outside [0, 1]; the message names the row.
    """
    confidence = np.asarray(confidence, dtype=np.float64)
    bin_of_row = confidence_bins(confidence, bins)
    if len(bin_of_row) == 0:
        return np.nan
    gaps = np.bincount(bin_of_row, weights=confidence - correct)  # a bin's rows * (mean confidence - mean correct)
    return float(np.abs(gaps).sum() / len(confidence))


def confidence_bins(confidence: np.ndarray, bins: int = N_BINS) -> np.ndarray:
    """Map confidence `(n,)` in [0, 1] to its bin `(n,)` int64, 0..bins-1, where 0 is the lowest.

    Bins are of equal width and closed on the left, as the authors' are: bin i is [i/bins, (i+1)/bins) with float64
    edges, and a confidence of 1 joins the last. Decided by comparing, since `bins * c` may round over an integer. The
    rule matters: a uniform row has confidence 1/K, which is an edge for K = 3 and 5.

    Raises:
        ValueError: a confidence is NaN or outside [0, 1]; the message names the row.
    """
    confidence = np.asarray(confidence, dtype=np.float64)
    inside = (confidence >= 0) & (confidence <= 1 + 1e-9)  # exp of a log-probability may round above 1
    if not inside.all():
        at = int(np.flatnonzero(~inside)[0])
        raise ValueError(f"the confidence of row {at} is {confidence[at]}, not in [0, 1]")
    # a guess, then compared with the edges themselves: to search among these takes several times as long
    edges = np.append(np.arange(bins) / bins, np.inf)
    bin_of_row = np.minimum((bins * confidence).astype(np.int64), bins - 1)
    bin_of_row -= confidence < edges.take(bin_of_row)
    bin_of_row += confidence >= edges.take(bin_of_row + 1)
    return bin_of_row


def top_label(log_probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability `(n,)` of each row's top label, the first among equals, and whether it is the true one."""
    reject_nan(log_probabilities, "log-probability")
    highest, top = log_probabilities[:, 0].copy(), np.zeros(len(labels), dtype=np.int64)
    for label, of_label in enumerate(log_probabilities.T):  # argmax along rows takes several times as long
        top[of_label > highest] = label
        np.maximum(highest, of_label, out=highest)
    return np.exp(highest), top == labels


def log_loss_per_row(
    log_probabilities: np.ndarray, labels: np.ndarray, smallest: float = MIN_PROBABILITY
) -> np.ndarray:
    """Return -log p of the true label, in nats: `(n,)`, at least 0; p counts as `smallest` at least.

    Without a floor (`smallest` 0) one impossible label makes the mean, the NLL, infinite.
    """
    reject_nan(log_probabilities, "log-probability")
    of_label = log_probabilities[np.arange(len(labels)), labels]
    return np.asarray(-np.maximum(of_label, np.log(smallest) if smallest > 0 else -np.inf))


def brier_score_per_row(log_probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the squared error of the probabilities, `(n,)` in [0, 2], summed over labels; its mean is Brier's (1950).

    Some libraries average over labels too, or take one of two labels: that is 1/K, or half, of this.
    """
    reject_nan(log_probabilities, "log-probability")
    true = np.asarray(labels)
    errors = (np.exp(of_label) - (true == label) for label, of_label in enumerate(log_probabilities.T))
    return np.asarray(reduce(np.add, map(np.square, errors)))


def reject_nan(values: np.ndarray, name: str) -> None:
    """Raise ValueError with the first row of `values`, `(n,)` or `(n, K)`, that holds a NaN."""
    bad = np.isnan(values)
    if bad.any():
        raise ValueError(f"the {name} of row {np.argwhere(bad)[0, 0]} is NaN")
