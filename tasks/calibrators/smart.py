"""SMART (Guo et al., 2025): each row's own temperature, a small network of the margin between its two top logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from scipy.special import expit, log_softmax

from tasks.calibrators.scale import floored
from tasks.protocol.adam import Adam
from tasks.protocol.values import Axes, Number, Positive, Value

HIDDEN = 16  # units of each of two hidden layers
LOWEST_TEMPERATURE = 0.1


@dataclass(frozen=True)
class SmartSettings:
    """As the paper's authors ran it."""

    learning_rate: float = 0.005
    epochs: int = 120
    patience: int = 28  # epochs without a lower loss, after which the fit ends


@dataclass(frozen=True, eq=False)
class Smart(Value):
    """`softmax(z / T(margin))` with T > 0.1: the order within a row is kept.

    That of the rows is not, not even for K = 2: nothing makes margin / T(margin) rise.
    """

    kind: Literal["smart"] = field(default="smart", kw_only=True)
    mean: Number  # of the margins it was fitted on
    deviation: Positive  # theirs
    parameters: Annotated[np.ndarray, Axes("P")]  # P = H^2 + 4 H + 1 weights and biases, layer by layer

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        logits = floored(logits)
        *_, raw = _forward(self.parameters, (_margin(logits) - self.mean) / self.deviation)
        return np.asarray(log_softmax(logits / _temperature(raw)[:, None], axis=1))

    def contradictions(self) -> list[str]:
        """Whether there are as many parameters as a network of H hidden units has."""
        count = len(self.parameters)
        hidden = _hidden_units(count)
        whole = hidden > 0 and hidden**2 + 4 * hidden + 1 == count
        return [] if whole else [f"the network has {count} parameters, which is not H^2 + 4 H + 1"]


def fit_smart(logits: np.ndarray, labels: np.ndarray, *, seed: int, settings: SmartSettings | None = None) -> Smart:
    """Logits `(n, K)` and labels `(n,)` 0..K-1 to the network of the epoch with the lowest mean log loss, by Adam.

    The log loss, not the soft calibration error of Guo et al., is what the paper's authors train it with. Each epoch
    is one step on all rows, from a start that the seed draws.
    """
    settings = settings or SmartSettings()
    logits = floored(logits)
    margin = _margin(logits)
    mean, deviation = float(margin.mean()), float(margin.std())
    deviation = max(deviation, 1e-8)
    x = (margin - mean) / deviation
    of_label = np.take_along_axis(logits, np.asarray(labels)[:, None], axis=1)[:, 0]
    parameters = first_parameters(seed)
    adam = Adam(settings.learning_rate)
    best, lowest, stale = parameters, np.inf, 0
    for _ in range(settings.epochs + 1):
        first, second, raw = _forward(parameters, x)
        temperature = _temperature(raw)
        log_probabilities = log_softmax(logits / temperature[:, None], axis=1)
        loss = -float(np.take_along_axis(log_probabilities, np.asarray(labels)[:, None], axis=1).mean())
        if loss < lowest:
            best, lowest, stale = parameters, loss, 0
        else:
            stale += 1
            if stale > settings.patience:
                break
        expected = (np.exp(log_probabilities) * logits).sum(axis=1)
        slope = (of_label - expected) / temperature**2 * expit(raw) / len(x)
        parameters = parameters + adam.step(_backward(parameters, x, first, second, slope))
    return Smart(mean, deviation, best)


def first_parameters(seed: int) -> np.ndarray:
    """A start: uniform within 1 / sqrt(inputs of the layer), PyTorch's default, which they used."""
    reach = np.repeat([1.0, 1 / np.sqrt(HIDDEN)], [2 * HIDDEN, HIDDEN**2 + 2 * HIDDEN + 1])
    return np.random.default_rng(seed).uniform(-reach, reach)


def _hidden_units(parameters: int) -> int:
    return round(np.sqrt(parameters + 3)) - 2


def _layers(parameters: np.ndarray) -> tuple[np.ndarray, ...]:
    """Weights `(H,)`, biases `(H,)`, weights `(H, H)`, biases `(H,)`, weights `(H,)` and bias `(1,)`, as views."""
    hidden = _hidden_units(len(parameters))
    ends = np.cumsum([hidden, hidden, hidden**2, hidden, hidden])
    one, two, three, four, five, six = np.split(parameters, ends)
    return one, two, three.reshape(hidden, hidden), four, five, six


def _forward(parameters: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised margins `(n,)` to both hidden layers `(n, H)` and the output `(n,)`."""
    weight_1, bias_1, weight_2, bias_2, weight_3, bias_3 = _layers(parameters)
    first = np.maximum(x[:, None] * weight_1 + bias_1, 0)
    second = np.maximum(np.einsum("ni,oi->no", first, weight_2) + bias_2, 0)
    return first, second, second @ weight_3 + bias_3


def _backward(
    parameters: np.ndarray, x: np.ndarray, first: np.ndarray, second: np.ndarray, slope: np.ndarray
) -> np.ndarray:
    """The slope of the loss in the output `(n,)` to that in the parameters."""
    _, _, weight_2, _, weight_3, _ = _layers(parameters)
    in_second = slope[:, None] * weight_3 * (second > 0)
    in_first = np.einsum("no,oi->ni", in_second, weight_2) * (first > 0)
    parts = (
        x @ in_first,
        in_first.sum(axis=0),
        np.einsum("no,ni->oi", in_second, first).ravel(),
        in_second.sum(axis=0),
        slope @ second,
        slope.sum(keepdims=True),
    )
    return np.concatenate(parts)


def _temperature(raw: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(0, raw) + LOWEST_TEMPERATURE)


def _margin(logits: np.ndarray) -> np.ndarray:
    """Logits `(n, K)` to the top one minus the next, `(n,)`."""
    top = np.partition(logits, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])
