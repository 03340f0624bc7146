"""h-calibration (Huang et al., 2025): all n K events "label k is true" are calibrated together, by their residuals.

Sorted by probability p, the events' residuals p - [true] should average to zero over every short stretch. The loss is
how far they do not; the mapping is a rising curve on -log p, the same for every label.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import log_softmax

from tasks.calibrators.adam import Adam
from tasks.calibrators.residuals import residual_loss
from tasks.metrics.probability import ece

SPAN = 100.0  # of -log p, which the segments cut; beyond it the last slope goes on
SMALLEST_SLOPE = 1e-3  # a slope of 0 would tie labels


@dataclass(frozen=True)
class HCalibrationSettings:
    """As published but for the curve, which is continuous here, its 10 segments, and the number of steps."""

    segments: int = 10
    window: int = 201  # events in a moving average
    clusters: int = 15  # of events with similar probabilities, which count the same
    lloyd_steps: int = 8
    learning_rate: float = 0.005
    steps: int = 600
    patience: int = 20  # steps without a lower calibration error, after which the learning rate is halved
    stop_after: int = 160  # such steps, after which the fit ends
    rows: int = 5000  # that the loss reads: the window is in events, so more would only mean shorter stretches of p


@dataclass(frozen=True, eq=False)
class HCalibration:
    """`softmax(-f(-log p))` with f continuous, piecewise linear and rising: the order within a row is kept.

    The published code starts each segment at the wrong height, which makes jumps that change decisions.
    """

    slopes: np.ndarray  # (S,) float64 > 0, of f on S equal segments of [0, SPAN]; all 1 is the identity

    def __post_init__(self) -> None:
        frozen = np.array(self.slopes, dtype=np.float64)
        frozen.flags.writeable = False
        object.__setattr__(self, "slopes", frozen)

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        surprise = _surprise(logits)
        lefts = _lefts(len(self.slopes))
        heights = np.append(0, np.cumsum(self.slopes[:-1] * np.diff(lefts)))  # of f at the left ends
        segment = np.searchsorted(lefts, surprise, side="right") - 1
        mapped = heights[segment] + self.slopes[segment] * (surprise - lefts[segment])  # rounding keeps the order
        return np.asarray(log_softmax(-mapped, axis=1))


def fit_hcal(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: HCalibrationSettings | None = None
) -> HCalibration:
    """Logits `(n, K)` and labels `(n,)` 0..K-1 to the curve with the lowest calibration error on the way down.

    The objective as published: the loss of the rows whose label is not k, averaged over k. With K = 2 such rows have
    one label only, and the loss is flat before calibration is reached: the curve then corrects too little, as the
    paper's h-cal does on its binary sets and on no other. The seed draws the rows that the loss reads.
    """
    return _fit(logits, labels, tuple(range(np.shape(logits)[1])), seed, settings or HCalibrationSettings())


def fit_hcal_pooled(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: HCalibrationSettings | None = None
) -> HCalibration:
    """`fit_hcal` with one loss over all rows, which leaves no label out and has no such flat place."""
    return _fit(logits, labels, (None,), seed, settings or HCalibrationSettings())


def _fit(
    logits: np.ndarray,
    labels: np.ndarray,
    left_out: tuple[int | None, ...],
    seed: int,
    settings: HCalibrationSettings,
) -> HCalibration:
    """Adam from the identity on the loss of some rows; the curve with the lowest calibration error of all rows."""
    labels = np.asarray(labels)
    correct = labels == np.argmax(logits, axis=1)
    read = np.sort(np.random.default_rng(seed).permutation(len(labels))[: settings.rows])
    loss = partial(
        residual_loss,
        labels=labels[read],
        left_out=left_out,
        window=settings.window,
        clusters=settings.clusters,
        lloyd_steps=settings.lloyd_steps,
    )
    within = _within_segments(_surprise(logits), settings.segments)
    by_label = np.ascontiguousarray(within.swapaxes(1, 2))  # sums over labels are then sums of whole arrays
    within_read = within[:, read].reshape(len(within), -1)
    order = np.arange(within_read.shape[1])
    slopes, adam = np.ones(settings.segments), Adam(settings.learning_rate)
    best, lowest, stale = slopes, np.inf, 0
    for _ in range(settings.steps + 1):
        p = _mapped(slopes, by_label)
        error = ece(p.max(axis=0), correct)
        stale += 1
        if error < lowest * (1 - 1e-4):
            best, lowest, stale = slopes, error, 0
        elif stale == settings.stop_after:
            break
        elif stale % (settings.patience + 1) == 0:
            adam.learning_rate /= 2
        p = np.ascontiguousarray(p.take(read, axis=1).T)
        order = order[np.argsort(p.ravel()[order], kind="stable")]  # quick: it changes little from step to step
        _, slope = loss(p, order=order)
        slope = p * (np.ascontiguousarray((p * slope).T).sum(axis=0)[:, None] - slope)  # in the mapped -log p
        in_slopes = np.zeros(settings.segments)
        in_slopes[: len(within)] = (within_read * slope.ravel()).sum(axis=1)
        slopes = np.maximum(slopes + adam.step(in_slopes), SMALLEST_SLOPE)
    return HCalibration(best)


def _mapped(slopes: np.ndarray, by_label: np.ndarray) -> np.ndarray:
    """Slopes `(S,)` and the surprise in each segment `(S', K, n)` to probabilities `(K, n)`."""
    mapped = np.einsum("s,skn->kn", slopes[: len(by_label)], by_label)
    probabilities = np.exp(mapped.min(axis=0) - mapped)
    probabilities /= probabilities.sum(axis=0)
    return probabilities


def _surprise(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to -log p `(n, K)`, at least 0."""
    return np.asarray(-log_softmax(np.asarray(logits, dtype=np.float64), axis=1))


def _within_segments(surprise: np.ndarray, segments: int) -> np.ndarray:
    """Surprise `(n, K)` to how much of it lies in each segment, `(S', n, K)`, for the S' <= S that hold any."""
    lefts = _lefts(segments)
    used = max(1, int(np.searchsorted(lefts, surprise.max())))
    rights = np.append(lefts[1:], np.inf)
    return np.stack([np.clip(surprise, left, right) - left for left, right in zip(lefts[:used], rights, strict=False)])


def _lefts(segments: int) -> np.ndarray:
    return np.linspace(0, SPAN, segments, endpoint=False)
