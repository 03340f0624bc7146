"""SMART (Guo et al., 2025): each row's own temperature, a small network of the margin between its two top logits."""

from typing import Annotated, NamedTuple

import numpy as np
import scipy

from relmap.calibrators.identity import floored_log_softmax, log_softmax
from relmap.optimizers import Adam
from relmap.serialization import Axes, Number, Positive, Value

N_HIDDEN = 16  # units of each of two hidden layers
MIN_TEMPERATURE = 0.1
CHUNK_ROWS = 512  # rows of a matrix product: so few are never shared among threads, which cost more than they save


class SmartSettings(NamedTuple):
    """As the paper's authors ran it."""

    learning_rate: float = 0.005
    epochs: int = 120
    patience: int = 28  # epochs without a lower loss, after which the fit ends


class Smart(Value, kind="smart"):
    """`softmax(z / T(margin))` with T > 0.1: the order within a row is kept.

    That of the rows is not, not even for K = 2: nothing makes margin / T(margin) rise.
    """

    mean: Number  # of the margins it was fitted on
    deviation: Positive  # theirs
    parameters: Annotated[np.ndarray, Axes("P")]  # P = H^2 + 4 H + 1 weights and biases, layer by layer

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64."""
        logits = floored_log_softmax(logits)
        x = (_margin(logits) - self.mean) / self.deviation
        raw = [_forward(self.parameters, piece)[2] for piece in np.split(x, range(CHUNK_ROWS, len(x), CHUNK_ROWS))]
        return log_softmax(logits / _temperature(np.concatenate(raw))[:, None])

    def _content_violations(self) -> list[str]:
        count = len(self.parameters)
        whole = count >= 6 and np.sqrt(count + 3) % 1 == 0  # H^2 + 4 H + 1 = (H + 2)^2 - 3
        return [] if whole else [f"the network has {count} parameters, which is not H^2 + 4 H + 1"]


def fit_smart(logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: SmartSettings | None = None) -> Smart:
    """Map logits `(n, K)` and labels `(n,)` 0..K-1 to the network of the epoch with the lowest mean log loss, by Adam.

    The log loss, not the soft calibration error of Guo et al., is what the paper's authors train it with. Each epoch
    is one step on all rows, from a start that the seed draws.
    """
    settings = settings or SmartSettings()
    logits = floored_log_softmax(logits)
    margin = _margin(logits)
    mean, deviation = float(margin.mean()), max(float(margin.std()), 1e-8)
    x = (margin - mean) / deviation
    highest = logits.max(axis=1)
    of_label = np.take_along_axis(logits, np.asarray(labels)[:, None], axis=1)[:, 0] - highest
    below = np.ascontiguousarray((logits - highest[:, None]).T)  # by label: sums over labels are sums of whole arrays
    starts = range(CHUNK_ROWS, len(x), CHUNK_ROWS)
    pieces = list(zip(np.split(x, starts), np.split(below, starts, axis=1), np.split(of_label, starts), strict=True))
    parameters = initial_parameters(seed)
    adam = Adam(settings.learning_rate)
    best, lowest, stale = parameters, np.inf, 0
    for _ in range(settings.epochs + 1):
        losses, gradients = zip(*(_summed_loss(parameters, *piece) for piece in pieces), strict=True)
        loss = sum(losses) / len(x)
        if loss < lowest:
            best, lowest, stale = parameters, loss, 0
        elif (stale := stale + 1) > settings.patience:
            break
        parameters = parameters + adam.step(np.sum(gradients, axis=0) / len(x))
    return Smart(mean, deviation, best)


def _summed_loss(
    parameters: np.ndarray, x: np.ndarray, below: np.ndarray, of_label: np.ndarray
) -> tuple[float, np.ndarray]:
    first, second, raw = _forward(parameters, x)
    temperature = _temperature(raw)
    odds = np.exp(below / temperature)
    total = odds.sum(axis=0)
    loss = float((np.log(total) - of_label / temperature).sum())
    odds *= below
    in_raw = (of_label - odds.sum(axis=0) / total) / temperature**2 * scipy.special.expit(raw)
    _, _, weight_2, _, weight_3, _ = _layers(parameters)
    in_second = np.multiply.outer(weight_3, in_raw)
    in_second *= second > 0
    in_first = weight_2.T @ in_second
    in_first *= first > 0
    gradient = (
        np.einsum("hn,n->h", in_first, x),
        in_first.sum(axis=1),
        (in_second @ first.T).ravel(),
        in_second.sum(axis=1),
        np.einsum("hn,n->h", second, in_raw),
        in_raw.sum(keepdims=True),
    )
    return loss, np.concatenate(gradient)


def initial_parameters(seed: int) -> np.ndarray:
    """Return a start: uniform within 1 / sqrt(inputs of the layer), PyTorch's default, which they used."""
    reach = np.repeat([1.0, 1 / np.sqrt(N_HIDDEN)], [2 * N_HIDDEN, N_HIDDEN**2 + 2 * N_HIDDEN + 1])
    return np.random.default_rng(seed).uniform(-reach, reach)


def _layers(parameters: np.ndarray) -> tuple[np.ndarray, ...]:
    """Weights `(H,)`, biases `(H,)`, weights `(H, H)`, biases `(H,)`, weights `(H,)` and bias `(1,)`, as views."""
    hidden = round(np.sqrt(len(parameters) + 3)) - 2
    ends = np.cumsum([hidden, hidden, hidden**2, hidden, hidden])
    layers = np.split(parameters, ends)
    return *layers[:2], layers[2].reshape(hidden, hidden), *layers[3:]


def _forward(parameters: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised margins `(n,)` to both hidden layers `(H, n)` and the output `(n,)`."""
    weight_1, bias_1, weight_2, bias_2, weight_3, bias_3 = _layers(parameters)
    first = np.multiply.outer(weight_1, x)
    first += bias_1[:, None]
    np.maximum(first, 0, out=first)
    second = weight_2 @ first
    second += bias_2[:, None]
    np.maximum(second, 0, out=second)
    return first, second, weight_3 @ second + bias_3


def _temperature(raw: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(0, raw) + MIN_TEMPERATURE)


def _margin(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to the top one minus the next, `(n,)`."""
    top = second = np.full(len(logits), -np.inf)
    for of_label in logits.T:
        second = np.maximum(second, np.minimum(top, of_label))
        top = np.maximum(top, of_label)
    return np.asarray(top - second)
