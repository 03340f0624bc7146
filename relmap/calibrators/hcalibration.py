"""h-calibration (Huang et al., 2025): calibrates the n * K events "label k is true" of n rows together.

The residual of an event with probability p is p - [the label is true]. In calibrated predictions, the residuals of
events with similar probabilities average to 0. The loss is therefore the mean absolute moving average of the residuals,
in the order of the probabilities. The range of -log p is divided into segments. The mapping multiplies -log p by the
factor of its segment, and normalizes the results by a softmax. The factors are the same for all labels.
"""

from typing import Annotated, NamedTuple

import numpy as np

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.optimizers import Adam
from relmap.serialization import Axes, Positive, Value

# Residuals are truncated to multiples of 2**-48 and stored as integers. Sums of up to 2**14 of them fit in an int64.
# They are exact, and six times as fast as float sums.
RESIDUAL_UNITS = 2**48
MAX_SURPRISAL = 100.0  # end of the segments of -log p; the last factor applies beyond it


class HCalibrationSettings(NamedTuple):
    """Settings; the defaults are the settings of the paper's authors.

    Attributes:
        segments: Number of segments S of the mapping.
        window: Number of events in a moving average.
        learning_rate: Learning rate of Adam.
        epochs: Maximal number of epochs.
        patience: The fit ends after more than this number of epochs without a lower loss.
        batch: Maximum number of rows in a step of Adam.
    """

    segments: int = 50
    window: int = 201
    learning_rate: float = 0.005
    epochs: int = 80
    patience: int = 18
    batch: int = 6000


class HCalibration(Value, kind="hcalibration"):
    """`softmax(-f(-log p))`, where f multiplies -log p by the factor of its segment.

    As published, the mapping jumps between segments. It therefore changes the order of the label probabilities of a few
    rows, and may change their most probable label.

    Attributes:
        factors: Factor of each of S equal segments of [0, MAX_SURPRISAL], shape (S,); all 1 is the identity.
    """

    factors: Annotated[np.ndarray, Axes("S", of=Positive)]

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        surprisal = -floored_log_softmax(logits)
        factors = self.factors[_locate_segment(surprisal, len(self.factors))]
        return log_softmax(-factors * surprisal)


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
    """Fit the factors by Adam and return those of the epoch with the lowest loss on all rows.

    The objective is as published. For each label k, it uses the events of the rows whose true label is not k: it sorts
    them by probability, and takes the mean absolute moving average of their residuals, in a window of at most a fifth
    of these events. The loss is the mean over the labels k that have such rows.

    With K = 2, the rows whose label is not k all have the other label. If the labels are imbalanced, the loss is then
    not lowest for calibrated predictions, and the fitted factors may not calibrate. In the paper, h-cal corrects too
    little on the binary data sets, and only on these.

    The authors multiply the loss by 1e5. This is omitted here, because Adam does not depend on the scale of the loss.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Seed of the batches, if there are several.
        settings: Settings of the fit; None for the defaults.

    Returns:
        The fitted calibrator.
    """
    settings = settings or HCalibrationSettings()
    surprisal = np.ascontiguousarray(-floored_log_softmax(logits))  # events are read row by row
    events = TrainingEvents(surprisal, _locate_segment(surprisal, settings.segments), np.asarray(labels))
    n_rows = len(events.labels)
    generator = np.random.default_rng(seed)
    adam = Adam(settings.learning_rate)
    log_factors = np.zeros(settings.segments)
    best = log_factors
    lowest_loss = np.inf
    n_stale_epochs = 0
    one_batch = n_rows <= settings.batch
    for _ in range(settings.epochs + 1):
        loss, gradient = _mapping_loss(log_factors, events, settings.window, with_gradient=one_batch)
        if loss < lowest_loss:
            best = log_factors
            lowest_loss = loss
            n_stale_epochs = 0
        else:
            n_stale_epochs += 1
            if n_stale_epochs > settings.patience:
                break
        if one_batch:
            log_factors = log_factors + adam.step(gradient)
            continue
        order = generator.permutation(n_rows)
        for rows in np.split(order, range(settings.batch, n_rows, settings.batch)):
            _, gradient = _mapping_loss(log_factors, events.select(rows), settings.window)
            log_factors = log_factors + adam.step(gradient)
    return HCalibration(np.exp(best))


def _mapping_loss(
    log_factors: np.ndarray, events: TrainingEvents, window: int, *, with_gradient: bool = True
) -> tuple[float, np.ndarray]:
    """Return the loss of a mapping and its gradient (S,) in the log factors; zeros unless `with_gradient`."""
    mapped = np.exp(log_factors).take(events.segment) * events.surprisal
    by_label = np.ascontiguousarray(mapped.T)  # shape (K, n): sums over labels then add whole arrays
    shifted = by_label.min(axis=0) - by_label
    # do not divide exponentials: their other rounding changes the order of events, and after many steps the factors
    p = np.ascontiguousarray(np.exp(shifted - np.log(np.exp(shifted).sum(axis=0))).T)
    loss, p_gradient = _residual_loss(p, events.labels, window, with_gradient=with_gradient)
    if not with_gradient:
        return loss, np.zeros_like(log_factors)
    # p = softmax(-mapped), and the derivative of `mapped` in the log factor of its segment is `mapped`
    mapped_gradient = p * (np.einsum("nk,nk->n", p, p_gradient)[:, None] - p_gradient)
    gradient = np.bincount(events.segment.ravel(), (mapped_gradient * mapped).ravel(), len(log_factors))
    return loss, gradient


def _locate_segment(surprisal: np.ndarray, n_segments: int) -> np.ndarray:
    segment = (surprisal * (n_segments / MAX_SURPRISAL)).astype(np.int64)
    return np.asarray(np.minimum(segment, n_segments - 1))


def _residual_loss(p: np.ndarray, labels: np.ndarray, window: int, *, with_gradient: bool) -> tuple[float, np.ndarray]:
    """Return the loss of probabilities (n, K), and its gradient (n, K); zeros unless `with_gradient`."""
    n_rows, n_labels = p.shape
    order = _stable_argsort(p.ravel())
    residual = RESIDUAL_UNITS * p
    residual[np.arange(n_rows), labels] -= RESIDUAL_UNITS
    sorted_residual = residual.astype(np.int64).take(order)
    sorted_label = np.repeat(labels.astype(np.int32), n_labels)[order]  # true label of the event's row
    losses = []
    sorted_gradient = np.zeros(len(order))
    for excluded_label in range(n_labels):
        events = np.flatnonzero(sorted_label != excluded_label)
        if len(events) == 0:
            continue
        # the published loss also gives equal weight to clusters of events with similar probabilities; this has no
        # visible effect
        half_window = (max(1, min(window, len(events) // 5)) - 1) // 2
        window_length = 2 * half_window + 1
        total = _moving_sum(sorted_residual[events], half_window)
        losses.append(np.abs(total).mean() / window_length)
        if with_gradient:
            sorted_gradient[events] += _moving_sum(np.sign(total), half_window) / (window_length * len(events))
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
