"""SMART (Guo et al., 2025): each row's own temperature, a small network of the margin between its two top logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import expit, log_expit, log_softmax

from tasks.calibrators.adam import Adam
from tasks.calibrators.temperature import Temperature, fit_temperature

LOWEST_TEMPERATURE = 0.1
CENTRES = (np.arange(15) + 0.5) / 15  # of the soft bins
BANDWIDTH = 0.05  # of a soft bin
ROUNDING_OFF = 1e-3  # delta, where the absolute gap of a bin turns into a parabola

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]  # temperature (n,) to the loss and its slope (n,)


@dataclass(frozen=True)
class SmartSettings:
    """As published."""

    hidden: int = 16
    learning_rate: float = 0.005
    epochs: int = 2000
    minimum_rows: int = 100  # ours: fewer take one temperature


@dataclass(frozen=True, eq=False)
class Smart:
    """`softmax(z / T(margin))` with T > 0.1: the order within a row is kept.

    That of the rows is not, not even for K = 2: nothing makes margin / T(margin) rise.
    """

    mean: float  # of the margins it was fitted on
    deviation: float  # theirs; > 0
    parameters: np.ndarray  # (3 H + 1,) float64: hidden weights, hidden biases, output weights, output bias

    def __post_init__(self) -> None:
        frozen = np.array(self.parameters, dtype=np.float64)
        frozen.flags.writeable = False
        object.__setattr__(self, "parameters", frozen)

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        logits = np.asarray(logits, dtype=np.float64)
        temperature, _ = margin_net(self.parameters, (_margin(logits) - self.mean) / self.deviation)
        return np.asarray(log_softmax(logits / temperature[:, None], axis=1))


def fit_smart(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: SmartSettings | None = None
) -> Smart | Temperature:
    """Logits `(n, K)` and labels `(n,)` 0..K-1 to the network of the epoch with the lowest mean log loss.

    The log loss, not the published soft calibration error, which leaves the order of rows to chance (see
    `fit_smart_soft_ece`): the paper's SMART keeps the binary ranking and has the lowest log loss of its calibrators,
    but not a low calibration error, as a network trained so would. Fewer than 100 rows, or margins that are all
    equal, give one temperature.
    """
    logits, labels = _by_margin(logits, labels)
    of_label = logits[np.arange(len(labels)), labels] - logits.max(axis=1)
    objective = partial(log_loss, below=_below_top(logits), of_label=of_label)
    return _fit(logits, labels, objective, seed, settings or SmartSettings())


def fit_smart_soft_ece(
    logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: SmartSettings | None = None
) -> Smart | Temperature:
    """`fit_smart` with the published loss, whose low values say nothing about which rows are the better ones."""
    logits, labels = _by_margin(logits, labels)
    objective = partial(soft_ece, below=_below_top(logits), correct=np.argmax(logits, axis=1) == labels)
    return _fit(logits, labels, objective, seed, settings or SmartSettings())


def _fit(
    logits: np.ndarray, labels: np.ndarray, objective: Objective, seed: int, settings: SmartSettings
) -> Smart | Temperature:
    margin = _margin(logits)
    mean, deviation = float(margin.mean()), float(margin.std())
    if len(margin) < settings.minimum_rows or deviation <= 1e-8 * max(1.0, abs(mean)):
        return fit_temperature(logits, labels, seed=seed)
    standardised = (margin - mean) / deviation
    parameters = _start(settings.hidden, seed)
    best, lowest = parameters, np.inf
    adam = Adam(settings.learning_rate)
    for _ in range(settings.epochs + 1):
        temperature, backwards = margin_net(parameters, standardised)
        loss, slope = objective(temperature)
        if loss < lowest:
            best, lowest = parameters, loss
        parameters = parameters + adam.step(backwards(slope))
    return Smart(mean, deviation, best)


def _start(hidden: int, seed: int) -> np.ndarray:
    """Uniform within 1 / sqrt(inputs of the layer), weights and biases alike: PyTorch's default, which they used."""
    reach = np.repeat([1.0, 1 / np.sqrt(hidden)], [2 * hidden, hidden + 1])
    return np.random.default_rng(seed).uniform(-reach, reach)


def margin_net(parameters: np.ndarray, margin: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Parameters `(3 H + 1,)` and standardised margin `(n,)` to the temperature `(n,)`, above 0.1.

    With it comes the way back: a loss's slope in the temperature `(n,)` to its slope in the parameters. A rectifier
    of one number is off on one side of its kink, so between kinks the network is a line, and 16 units cost no more
    than one.
    """
    weight, bias, output = np.split(parameters[:-1], 3)
    kinks = -bias / weight
    order = np.argsort(kinks)
    segment = np.searchsorted(kinks[order], margin)
    on = (np.arange(len(kinks) + 1) > np.argsort(order)[:, None]) == (weight >= 0)[:, None]  # (H, H + 1): in a segment
    raw = ((output * weight) @ on)[segment] * margin + ((output * bias) @ on + parameters[-1])[segment]

    def backwards(slope: np.ndarray) -> np.ndarray:
        slope = slope * expit(raw)
        first = on @ np.bincount(segment, slope * margin, minlength=on.shape[1])
        zeroth = on @ np.bincount(segment, slope, minlength=on.shape[1])
        return np.concatenate([output * first, output * zeroth, weight * first + bias * zeroth, [slope.sum()]])

    return LOWEST_TEMPERATURE - log_expit(-raw), backwards


def log_loss(temperature: np.ndarray, *, below: np.ndarray, of_label: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean log loss and its slope `(n,)` in the temperature `(n,)`.

    `below (K - 1, n)` are the other logits minus the row's top one, `of_label (n,)` is that of the true label.
    """
    total, mean_below = _totals(temperature, below)
    loss = np.log(total) - of_label / temperature
    return float(loss.mean()), (of_label - mean_below) / temperature**2 / len(temperature)


def soft_ece(temperature: np.ndarray, *, below: np.ndarray, correct: np.ndarray) -> tuple[float, np.ndarray]:
    """Calibration error over 15 soft bins and its slope `(n,)` in the temperature `(n,)`.

    Each row belongs to every bin, by normalised Gaussian weights of its confidence. A bin counts by its weight, with
    sqrt(gap^2 + delta^2) of its mean confidence minus mean `correct (n,)`. `below (K - 1, n)` as in `log_loss`.
    """
    total, mean_below = _totals(temperature, below)
    confidence = 1 / total
    # Gaussian weights at even distances are powers of one number times constants, up to a factor of the row
    power = np.exp(confidence * (CENTRES[1] - CENTRES[0]) / BANDWIDTH**2)
    weight = np.multiply.accumulate(np.broadcast_to(power, (len(CENTRES), len(power))), axis=0)
    weight *= np.exp(-(CENTRES**2) / (2 * BANDWIDTH**2))[:, None]
    weight /= weight.sum(axis=0)
    residual = confidence - correct
    mass = weight.mean(axis=1)
    gap = np.einsum("bn,n->b", weight, residual) / len(residual) / mass
    size = np.sqrt(gap**2 + ROUNDING_OFF**2)
    tilt = gap / size  # slope of the size in the gap
    rest = size - gap * tilt
    centre, by_tilt, by_rest, tilt_moment, rest_moment = (
        np.stack([CENTRES, tilt, rest, CENTRES * tilt, CENTRES * rest]) @ weight
    )
    moved = (tilt_moment - centre * by_tilt) * residual + rest_moment - centre * by_rest  # by the weights' moving
    in_confidence = (by_tilt + moved / BANDWIDTH**2) / len(residual)
    return float((mass * size).sum()), in_confidence * confidence * mean_below / temperature**2


def _totals(temperature: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1 / confidence `(n,)`, and the mean `(n,)` of 0 for the top label and `below (K - 1, n)` under softmax."""
    weight = below / temperature
    np.exp(weight, out=weight)
    total = 1 + weight.sum(axis=0)
    weight *= below
    return total, weight.sum(axis=0) / total


def _by_margin(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits `(n, K)` and labels `(n,)` in the order of the margin, so that looking up its segment is quick."""
    logits = np.asarray(logits, dtype=np.float64)
    order = np.argsort(_margin(logits), kind="stable")
    return logits[order], np.asarray(labels)[order]


def _below_top(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to `(K - 1, n)`: all but the top one of each row, minus that; at most 0."""
    ordered = np.sort(logits, axis=1)
    return np.ascontiguousarray((ordered[:, :-1] - ordered[:, -1:]).T)


def _margin(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to the top one minus the next, `(n,)`."""
    top = np.partition(logits, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])
