"""The two losses of SMART (Guo et al., 2025), of several fits at once, with their slopes in the temperature.

The rows of the fits follow one another: `rows (B,)` are their numbers, each above 0, and N is their sum.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

CENTRES = (np.arange(15) + 0.5) / 15  # of the soft bins
BANDWIDTH = 0.05  # of a soft bin
ROUNDING_OFF = 1e-3  # delta, where the absolute gap of a bin turns into a parabola

PEAKS = np.exp(-(CENTRES**2) / (2 * BANDWIDTH**2))[:, None]  # the Gaussian weights of a confidence of 0


def log_loss(
    temperature: np.ndarray, *, below: np.ndarray, of_label: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean log loss of each fit `(B,)` and its slope `(N,)` in the temperature `(N,)`.

    `below (K - 1, N)` are the other logits minus the row's top one, `of_label (N,)` is that of the true label.
    """
    inverse = 1 / temperature
    total, mean_below = _totals(inverse, below)
    loss = np.log(total)
    loss -= of_label * inverse
    slope = of_label - mean_below
    slope *= inverse
    slope *= inverse
    slope /= rows.repeat(rows)
    return np.add.reduceat(loss, rows.cumsum() - rows) / rows, slope


def soft_ece(
    temperature: np.ndarray, *, below: np.ndarray, correct: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Calibration error of each fit `(B,)` over 15 soft bins and its slope `(N,)` in the temperature `(N,)`.

    Each row belongs to every bin, by normalised Gaussian weights of its confidence. A bin counts by its weight, with
    sqrt(gap^2 + delta^2) of its mean confidence minus mean `correct (N,)`. `below (K - 1, N)` as in `log_loss`.
    """
    inverse = 1 / temperature
    total, mean_below = _totals(inverse, below)
    confidence = 1 / total
    losses, slope = np.empty(len(rows)), np.empty(len(confidence))
    for fit, (first, last) in enumerate(pairwise([0, *rows.cumsum().tolist()])):
        losses[fit], slope[first:last] = _of_one_fit(confidence[first:last], correct[first:last])
    return losses, slope * confidence * mean_below * inverse**2


def _of_one_fit(confidence: np.ndarray, correct: np.ndarray) -> tuple[float, np.ndarray]:
    """Confidence and correct `(n,)` of a fit to its loss and the slope `(n,)` in the confidence."""
    weight, residual = _bin_weights(confidence), confidence - correct
    mass = weight @ np.full(len(residual), 1 / len(residual))
    gap = weight @ residual / len(residual) / mass
    size = np.sqrt(gap**2 + ROUNDING_OFF**2)
    tilt = gap / size  # slope of the size in the gap
    rest = size - gap * tilt
    centre, by_tilt, by_rest, tilt_moment, rest_moment = (
        np.stack([CENTRES, tilt, rest, CENTRES * tilt, CENTRES * rest]) @ weight
    )
    moved = (tilt_moment - centre * by_tilt) * residual + rest_moment - centre * by_rest  # by the weights' moving
    return float((mass * size).sum()), (by_tilt + moved / BANDWIDTH**2) / len(residual)


def _bin_weights(confidence: np.ndarray) -> np.ndarray:
    """Confidence `(n,)` to its weights in the bins `(15, n)`, which sum to 1."""
    # Gaussian weights at even distances are powers of one number times constants, up to a factor of the row
    power = np.exp(confidence * ((CENTRES[1] - CENTRES[0]) / BANDWIDTH**2))
    weight = np.empty((len(CENTRES), len(power)))
    weight[0] = power
    for lower, upper in pairwise(weight):
        np.multiply(lower, power, out=upper)
    weight *= PEAKS
    weight /= weight.sum(axis=0)
    return weight


def _totals(inverse: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 / confidence `(N,)`, and the mean `(N,)` of 0 for the top label and `below (K - 1, N)` under softmax."""
    weight = below * inverse
    np.exp(weight, out=weight)
    total = weight.sum(axis=0)
    total += 1
    weight *= below
    return total, weight.sum(axis=0) / total
