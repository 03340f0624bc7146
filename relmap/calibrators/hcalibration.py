"""h-calibration (Huang et al., 2025): all n K events "label k is true" are calibrated together, by their residuals.

Sorted by probability p, the events' residuals p - [true] should average to zero over every short stretch. The loss is
how far they do not; the mapping multiplies -log p by a factor for each of its segments, the same for every label.
"""

from typing import Annotated, NamedTuple

import numpy as np

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.optimizers import Adam
from relmap.serialization import Axes, Positive, Value

RESIDUAL_UNITS = (
    2**48
)  # parts of 1 that residuals are counted in: 2**14 whole numbers add up exactly, in a sixth of the time
MAX_SURPRISAL = 100.0  # of -log p, which the segments cut; beyond it the last factor goes on


class HCalibrationSettings(NamedTuple):
    """As the paper's authors ran it."""

    segments: int = 50
    window: int = 201  # events in a moving average
    learning_rate: float = 0.005
    epochs: int = 80
    patience: int = 18  # epochs without a lower loss, after which the fit ends
    batch: int = 6000  # rows of a step


class HCalibration(Value, kind="hcalibration"):
    """`softmax(-f(-log p))` with f proportional within each segment.

    It jumps where two segments meet, as the published mapping does; so a few rows lose their order, and their
    decision the top.
    """

    factors: Annotated[np.ndarray, Axes("S", of=Positive)]  # on S equal segments of [0, SPAN]; all 1 is the identity

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64."""
        surprise = -floored_log_softmax(logits)
        return log_softmax(-self.factors[_segment(surprise, len(self.factors))] * surprise)


def fit_hcal(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: HCalibrationSettings | None = None
) -> HCalibration:
    """Map logits `(n, K)` and labels `(n,)` 0..K-1 to the factors of the epoch with the lowest loss on all rows (Adam).

    The objective as published: the mean absolute moving average of the residuals of all events, sorted by probability,
    of the rows whose label is not k, averaged over the k that leave rows. The window is at most a fifth of the events.
    With K = 2 such rows have one label only, and the loss is flat before calibration is reached: the mapping then
    corrects too little, as the paper's h-cal does on its binary sets and on no other. Adam moves the logarithms of the
    factors, from 0. The seed draws the batches, where there are several. The authors' weight of the loss, 1e5, is
    nothing that Adam would feel.
    """
    settings, labels = settings or HCalibrationSettings(), np.asarray(labels)
    surprise = np.ascontiguousarray(-floored_log_softmax(logits))  # its events are read row by row
    segment = _segment(surprise, settings.segments)
    generator = np.random.default_rng(seed)
    log_factors, adam = np.zeros(settings.segments), Adam(settings.learning_rate)
    best, lowest, stale = log_factors, np.inf, 0
    in_one = len(labels) <= settings.batch
    for _ in range(settings.epochs + 1):
        loss, gradient = _mapped_loss(log_factors, surprise, segment, labels, settings.window, slope=in_one)
        if loss < lowest:
            best, lowest, stale = log_factors, loss, 0
        elif (stale := stale + 1) > settings.patience:
            break
        if in_one:
            log_factors = log_factors + adam.step(gradient)
            continue
        order = generator.permutation(len(labels))
        for rows in np.split(order, range(settings.batch, len(order), settings.batch)):
            drawn = surprise.take(rows, axis=0), segment.take(rows, axis=0), labels[rows]
            _, gradient = _mapped_loss(log_factors, *drawn, settings.window)
            log_factors = log_factors + adam.step(gradient)
    return HCalibration(np.exp(best))


def _mapped_loss(
    log_factors: np.ndarray,
    surprise: np.ndarray,
    segment: np.ndarray,
    labels: np.ndarray,
    window: int,
    slope: bool = True,
) -> tuple[float, np.ndarray]:
    """Return the loss of a mapping of `surprise (n, K)` in `segment (n, K)`, and its slope `(S,)`, or zeros."""
    mapped = np.exp(log_factors).take(segment) * surprise
    by_label = np.ascontiguousarray(mapped.T)  # sums over labels are then sums of whole arrays
    by_label = by_label.min(axis=0) - by_label
    # not a quotient of exponentials: what rounds otherwise is sorted otherwise, and that shows after many steps
    p = np.ascontiguousarray(np.exp(by_label - np.log(np.exp(by_label).sum(axis=0))).T)
    loss, gradient = _residual_loss(p, labels, window, slope)
    if not slope:
        return loss, np.zeros_like(log_factors)
    gradient = p * (np.einsum("nk,nk->n", p, gradient)[:, None] - gradient)  # in the mapped -log p
    return loss, np.bincount(segment.ravel(), (gradient * mapped).ravel(), len(log_factors))


def _segment(surprise: np.ndarray, segments: int) -> np.ndarray:
    return np.minimum((surprise * (segments / MAX_SURPRISAL)).astype(np.int64), segments - 1)


def _residual_loss(p: np.ndarray, labels: np.ndarray, window: int, slope: bool = True) -> tuple[float, np.ndarray]:
    n_labels, order = p.shape[1], _order(p.ravel())
    residual = RESIDUAL_UNITS * p
    residual[np.arange(len(p)), labels] -= RESIDUAL_UNITS
    residual = residual.astype(np.int64).take(order)
    label = np.repeat(labels.astype(np.int32), n_labels)[order]  # of the event's row
    losses, (by_rank, unsorted) = [], np.zeros((2, len(order)))
    for without in range(n_labels):
        kept = np.flatnonzero(label != without)
        if len(kept):
            # the published clusters of similar probabilities, which count the same, change nothing that can be seen
            half = (max(1, min(window, len(kept) // 5)) - 1) // 2
            total = _moving_sum(residual[kept], half)
            losses.append(np.abs(total).mean() / (2 * half + 1))
            if slope:
                by_rank[kept] += _moving_sum(np.sign(total), half) / ((2 * half + 1) * len(kept))
    unsorted[order] = by_rank / len(losses)
    return float(np.mean(losses)) / RESIDUAL_UNITS, unsorted.reshape(p.shape)


def _order(values: np.ndarray) -> np.ndarray:
    """Values `(N,)`, none negative, to their stable order, which NumPy's own sort takes eight times as long to find."""
    places = (1 << len(values).bit_length()) - 1
    keys = values.view(np.int64) & ~places | np.arange(len(values))  # whose lowest bits give way to where it stands
    keys.sort()
    order = keys & places
    return order[np.argsort(values[order], kind="stable")]  # sorted but for values that differ in those bits alone


def _moving_sum(values: np.ndarray, half: int) -> np.ndarray:
    """Map values `(N,)` to the sums `(N,)` of each and `half` on either side: symmetric, so its own gradient."""
    total = np.empty(len(values) + 2 * half + 1, dtype=np.int64)
    total[: half + 1] = 0
    np.cumsum(values, out=total[half + 1 : half + 1 + len(values)])
    total[half + 1 + len(values) :] = total[half + len(values)]
    return total[2 * half + 1 :] - total[: len(values)]
