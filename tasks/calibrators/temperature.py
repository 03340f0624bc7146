"""Temperature scaling (Guo et al., 2017): one inverse temperature for all rows and labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

LOG_BETA_BOUNDS = (-16.0, 16.0)  # far beyond any useful temperature, far within float64


@dataclass(frozen=True)
class Temperature:
    """`softmax(beta z)`: the order of the labels within a row is kept, the order of the rows is not for K > 2."""

    beta: float  # inverse temperature, > 0; 1 is the identity

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits `(n, K)` to log-probabilities `(n, K)` float64."""
        return np.asarray(log_softmax(self.beta * np.asarray(logits, dtype=np.float64), axis=1))


def fit_temperature(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Temperature:  # noqa: ARG001 - exact
    """Logits `(n, K)` and labels `(n,)` 0..K-1 to the beta that minimises the mean log loss on these rows.

    The loss is convex in beta (not in the temperature), so the optimum is the root of its slope, and a root finder
    reaches it. Gradient steps on the temperature, as first published, stop short of an optimum that is far from
    their start, and can even end at a negative temperature.

    Where the slope has one sign between the bounds, that bound is the answer: the lower one for logits that tell
    nothing or the contrary, the upper one where every row is right. Logits that are equal within each row say
    nothing about beta, which is then 1.
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - takes half a second, and only fits need it

    logits = np.asarray(logits, dtype=np.float64)
    gaps = logits - np.take_along_axis(logits, np.asarray(labels)[:, None], axis=1)  # to the true label's logit
    if not gaps.any():
        return Temperature(1.0)
    top = gaps.max(axis=1)
    below = np.ascontiguousarray((gaps - top[:, None]).T)  # by label: sums over labels are then sums of whole arrays

    def slope(log_beta: float) -> float:
        weight = np.exp(math.exp(log_beta) * below)
        total = weight.sum(axis=0)
        weight *= below
        return float((weight.sum(axis=0) / total + top).mean())

    low, high = LOG_BETA_BOUNDS
    if slope(low) >= 0:
        return Temperature(math.exp(low))
    if slope(high) <= 0:
        return Temperature(math.exp(high))
    return Temperature(math.exp(brentq(slope, low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps)))
