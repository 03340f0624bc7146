"""h-calibration (Huang et al., 2025): calibrates the n * K events "label k is true" of n rows together.

The residual of an event with probability p is p - [the label is true]. In calibrated predictions, the residuals of
events with similar probabilities average to 0. The loss is therefore the mean absolute moving average of the residuals,
in the order of the probabilities.

The mapping and its fit follow the code of the authors of MRP. The range of L = -log p is divided into S segments of
width d = 100 / S, and there are S + 1 slopes a_0 .. a_S, which are the same for all labels. In segment m, which starts
at m d,

    L becomes V + a_(m+1) (L - V),  where V = d (a_0 + .. + a_m - 1)

is the cumulative offset; from 100 on, L becomes V. A softmax normalizes the results. V is a mapped value and not the
start of the segment, so the mapping is continuous only where V = m d. With all slopes 1, it is the identity.
"""

from typing import Annotated, NamedTuple

import numpy as np

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.calibrators.optimizers import Adam
from relmap.io.serialization import Axes, Positive, Value

# Residuals are truncated to multiples of 2**-48 and stored as integers. Sums of up to 2**14 of them fit in an int64.
# They are exact, and six times as fast as float sums.
RESIDUAL_UNITS = 2**48
MAX_SURPRISAL = 100.0  # end of the segments of -log p
LOSS_WEIGHT = 1e5  # weight of the loss in the authors' code; with it, epsilon does not affect Adam
MIN_LABEL_ROWS = 2  # labels that fewer rows do not have are not part of the loss
MIN_SLOPE = 1e-12


class HCalibrationSettings(NamedTuple):
    """Settings; the defaults are the settings of the paper's authors.

    Attributes:
        segments: Number of segments S of the mapping.
        window: Number of events in a moving average; an even number is reduced by 1.
        learning_rate: Learning rate of Adam.
        epochs: Maximal number of epochs.
        patience: The fit ends after this number of epochs in a row without a lower loss.
        batch: Maximum number of rows in a step of Adam.
    """

    segments: int = 50
    window: int = 201
    learning_rate: float = 0.005
    epochs: int = 80
    patience: int = 18
    batch: int = 6000


class HCalibration(Value, kind="hcalibration"):
    """`softmax(-f(-log p))` with a piecewise linear f.

    In segment m of -log p, f(x) = V + factors[m] (x - V). The offset V is the width of a segment times
    `first_slope` - 1 + the sum of the factors of the segments before m. From MAX_SURPRISAL on, f is constant.

    The mapping jumps between segments. It therefore changes the order of the label probabilities of a few rows, and may
    change their most probable label.

    Attributes:
        factors: Slope of each of S equal segments of [0, MAX_SURPRISAL], shape (S,).
        first_slope: Slope that only shifts the offsets. None in maps written by earlier versions, whose mapping has no
            offsets: f multiplies -log p by the factor of its segment, and by the last one beyond MAX_SURPRISAL.
    """

    factors: Annotated[np.ndarray, Axes("S", of=Positive)]
    first_slope: Positive | None = None

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        floored = floored_log_softmax(logits)
        if self.first_slope is None:  # earlier versions did not normalize the floored probabilities
            segment = np.minimum(_locate_segment(-floored, len(self.factors)), len(self.factors) - 1)
            return log_softmax(self.factors[segment] * floored)
        surprisal = -log_softmax(floored)
        segment = _locate_segment(surprisal, len(self.factors))
        pieces = Pieces.from_slopes(np.append(self.first_slope, self.factors))
        return log_softmax(-pieces.map(surprisal, segment))


class Pieces(NamedTuple):
    """Linear pieces of the mapping; piece m maps L to offset[m] + slope[m] (L - offset[m]).

    Attributes:
        offset: Offset of each of S segments, and of the range beyond them, shape (S + 1,).
        slope: Slope of each of them; 0 for the last one, shape (S + 1,).
    """

    offset: np.ndarray
    slope: np.ndarray

    @classmethod
    def from_slopes(cls, slopes: np.ndarray) -> "Pieces":
        """Compute the pieces.

        Args:
            slopes: a_0 .. a_S, of which the absolute values count, shape (S + 1,).

        Returns:
            The pieces.
        """
        magnitudes = np.abs(slopes)
        width = MAX_SURPRISAL / (len(slopes) - 1)
        return cls(offset=width * (np.cumsum(magnitudes) - 1), slope=np.append(magnitudes[1:], 0.0))

    def map(self, surprisal: np.ndarray, segment: np.ndarray) -> np.ndarray:
        """Map values of -log p.

        Args:
            surprisal: Values, at least 0, of any shape.
            segment: Segment 0..S of each of them, of the same shape.

        Returns:
            Mapped values, of the same shape.
        """
        offset = self.offset.take(segment)
        return np.asarray(offset + self.slope.take(segment) * (surprisal - offset))


class TrainingEvents(NamedTuple):
    """Events of n rows.

    Attributes:
        surprisal: -log p of each event, shape (n, K).
        segment: Segment of each event, shape (n, K), int64.
        labels: True labels 0..K-1, shape (n,).
    """

    surprisal: np.ndarray
    segment: np.ndarray
    labels: np.ndarray

    def select(self, rows: np.ndarray) -> "TrainingEvents":
        """Select rows.

        Args:
            rows: Row numbers, shape (m,).

        Returns:
            The events of these rows.
        """
        return TrainingEvents(self.surprisal.take(rows, axis=0), self.segment.take(rows, axis=0), self.labels[rows])


def fit_hcal(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: HCalibrationSettings | None = None
) -> HCalibration:
    """Fit the slopes by Adam and return those of the epoch with the lowest loss on all rows.

    For each label k, the loss uses the events of the rows whose true label is not k: it sorts them by probability, and
    takes the mean absolute moving average of their residuals. A window that extends beyond the first or the last event
    is filled with zeros, also if there are fewer events than the window has. The loss is the mean over the labels k
    that at least two rows do not have. The start, at which all slopes are 1, is not a candidate.

    With K = 2, the rows whose label is not k all have the other label. If the labels are imbalanced, the loss is then
    not lowest for calibrated predictions, and the fit may make calibration worse. In the paper, h-cal corrects too
    little on the binary data sets, and only on these.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Seed of the batches, if there are several.
        settings: Settings of the fit; None for the defaults.

    Returns:
        The fitted calibrator.
    """
    settings = settings or HCalibrationSettings()
    log_p = log_softmax(floored_log_softmax(logits))
    surprisal = np.ascontiguousarray(-log_p)  # events are read row by row
    events = TrainingEvents(surprisal, _locate_segment(surprisal, settings.segments), np.asarray(labels))
    n_rows = len(events.labels)
    generator = np.random.default_rng(seed)
    adam = Adam(settings.learning_rate)
    slopes = np.ones(settings.segments + 1)
    best = slopes
    lowest_loss = np.inf
    n_stale_epochs = 0
    one_batch = n_rows <= settings.batch
    for epoch in range(settings.epochs + 1):  # the loss after an epoch is computed with the gradient of the next one
        loss, gradient = _mapping_loss(slopes, events, settings.window, with_gradient=one_batch)
        if epoch > 0 and loss < lowest_loss:
            best = slopes
            lowest_loss = loss
            n_stale_epochs = 0
        elif epoch > 0:
            n_stale_epochs += 1
            if n_stale_epochs == settings.patience:
                break
        if one_batch:
            slopes = slopes + adam.step(gradient)
            continue
        order = generator.permutation(n_rows)
        for rows in np.split(order, range(settings.batch, n_rows, settings.batch)):
            _, gradient = _mapping_loss(slopes, events.select(rows), settings.window)
            slopes = slopes + adam.step(gradient)
    first_slope, *factors = np.maximum(np.abs(best), MIN_SLOPE)
    return HCalibration(np.array(factors), float(first_slope))


def _mapping_loss(
    slopes: np.ndarray, events: TrainingEvents, window: int, *, with_gradient: bool = True
) -> tuple[float, np.ndarray]:
    """Return the weighted loss of a mapping and its gradient (S + 1,) in the slopes; zeros unless `with_gradient`."""
    pieces = Pieces.from_slopes(slopes)
    mapped = pieces.map(events.surprisal, events.segment)
    by_label = np.ascontiguousarray(mapped.T)  # shape (K, n): sums over labels then add whole arrays
    shifted = by_label.min(axis=0) - by_label
    # do not divide exponentials: their other rounding changes the order of events, and after many steps the slopes
    p = np.ascontiguousarray(np.exp(shifted - np.log(np.exp(shifted).sum(axis=0))).T)
    loss, p_gradient = _residual_loss(p, events.labels, window, with_gradient=with_gradient)
    if not with_gradient:
        return LOSS_WEIGHT * loss, np.zeros_like(slopes)
    # p = softmax(-mapped)
    mapped_gradient = p * (np.einsum("nk,nk->n", p, p_gradient)[:, None] - p_gradient)
    return LOSS_WEIGHT * loss, LOSS_WEIGHT * _slope_gradient(slopes, pieces, events, mapped_gradient)


def _slope_gradient(
    slopes: np.ndarray, pieces: Pieces, events: TrainingEvents, mapped_gradient: np.ndarray
) -> np.ndarray:
    """Convert the gradient in the mapped values (n, K) to the gradient in the slopes, shape (S + 1,).

    The derivative of a mapped value in the slope of its piece is L - V, and in its offset V it is 1 - slope. Slope a_j
    is the slope of piece j - 1, and is part of the offsets of pieces j and above.

    Returns:
        The gradient in the slopes.
    """
    n_pieces = len(slopes)
    segment = events.segment.ravel()
    sums = np.bincount(segment, mapped_gradient.ravel(), n_pieces)
    surprisal_sums = np.bincount(segment, (mapped_gradient * events.surprisal).ravel(), n_pieces)
    piece_slope_gradient = surprisal_sums - pieces.offset * sums
    offset_gradient = (1 - pieces.slope) * sums
    width = MAX_SURPRISAL / (n_pieces - 1)
    gradient = width * offset_gradient[::-1].cumsum()[::-1]
    gradient[1:] += piece_slope_gradient[:-1]
    return np.asarray(np.sign(slopes) * gradient)


def _locate_segment(surprisal: np.ndarray, n_segments: int) -> np.ndarray:
    """Return the segment of each value; a left edge belongs to its segment, and values beyond the last one get S."""
    segment = (surprisal * (n_segments / MAX_SURPRISAL)).astype(np.int64)
    return np.asarray(np.minimum(segment, n_segments))


def _residual_loss(p: np.ndarray, labels: np.ndarray, window: int, *, with_gradient: bool) -> tuple[float, np.ndarray]:
    """Return the loss of probabilities (n, K), and its gradient (n, K); zeros unless `with_gradient`."""
    n_rows, n_labels = p.shape
    order = _stable_argsort(p.ravel())
    residual = RESIDUAL_UNITS * p
    residual[np.arange(n_rows), labels] -= RESIDUAL_UNITS
    sorted_residual = residual.astype(np.int64).take(order)
    sorted_label = np.repeat(labels.astype(np.int32), n_labels)[order]  # true label of the event's row
    half_window = (window - 1) // 2
    window_length = 2 * half_window + 1
    losses = []
    sorted_gradient = np.zeros(len(order))
    for excluded_label in range(n_labels):
        events = np.flatnonzero(sorted_label != excluded_label)
        if len(events) < MIN_LABEL_ROWS * n_labels:
            continue
        total = _moving_sum(sorted_residual[events], half_window)
        losses.append(np.abs(total).mean() / window_length)
        if with_gradient:
            sorted_gradient[events] += _moving_sum(np.sign(total), half_window) / (window_length * len(events))
    if not losses:
        return 0.0, np.zeros_like(p)
    gradient = np.zeros(len(order))
    gradient[order] = sorted_gradient / len(losses)
    return float(np.mean(losses)) / RESIDUAL_UNITS, gradient.reshape(p.shape)


def _stable_argsort(values: np.ndarray) -> np.ndarray:
    """Sort nonnegative values (N,) stably, eight times as fast as NumPy's argsort.

    Nonnegative floats have the same order as the integers with the same bits. In these integers, the lowest bits are
    replaced by the position in `values`, so that sorting them also sorts the positions. Values that differ only in the
    replaced bits are sorted by a second pass.

    Returns:
        Positions in sorted order, shape (N,).
    """
    position_mask = (1 << len(values).bit_length()) - 1
    keys = values.view(np.int64) & ~position_mask | np.arange(len(values))
    keys.sort()
    order = keys & position_mask
    return np.asarray(order[np.argsort(values[order], kind="stable")])


def _moving_sum(values: np.ndarray, half_window: int) -> np.ndarray:
    """Sum each of the values (N,) with up to `half_window` values on either side, (N,)."""
    # the matrix of this linear function is symmetric, so that the function also propagates gradients
    n_values = len(values)
    cumulative = np.empty(n_values + 2 * half_window + 1, dtype=np.int64)
    cumulative[: half_window + 1] = 0
    # cumulative sums may overflow; their differences are still exact, since integers wrap around modulo 2**64
    np.cumsum(values, out=cumulative[half_window + 1 : half_window + 1 + n_values])
    cumulative[half_window + n_values :] = cumulative[half_window + n_values]
    return np.asarray(cumulative[2 * half_window + 1 :] - cumulative[:n_values])
