"""Temperature scaling (Guo et al., 2017): one inverse temperature for all rows and labels."""

import math
from collections.abc import Callable

import numpy as np

from relmap.calibrators.identity import log_softmax
from relmap.serialization import Positive, Value

LOG_BETA_BOUNDS = (-16.0, 16.0)  # far beyond any useful temperature, far within float64
MAX_FINAL_STEP = 1e-9  # of log beta, by Newton's method, after which the error is about its square
MIN_BRACKET = 1e-14
MIN_SCALE = 1e-300


class Temperature(Value, kind="temperature"):
    """`softmax(beta z)`: the order of the labels within a row is kept, the order of the rows is not for K > 2."""

    beta: Positive  # inverse temperature; 1 is the identity

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Map logits `(n, K)` to log-probabilities `(n, K)` float64."""
        return log_softmax(self.beta * np.asarray(logits, dtype=np.float64))


def fit_temperature(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Temperature:  # noqa: ARG001 - exact
    """Map logits `(n, K)` and labels `(n,)` 0..K-1 to the beta that minimises the mean log loss on these rows.

    The loss is convex in beta (not in the temperature), so the optimum is the root of its derivative, and Newton's
    method, kept within a bracket, reaches it. Gradient steps on the temperature, as first published, stop short of an
    optimum that is far from their start, and can even end at a negative temperature.

    Where the derivative has one sign between the bounds, that bound is the answer: the lower one for logits that tell
    nothing or the contrary, the upper one where every row is right. Logits that are equal within each row say
    nothing about beta, which is then 1.
    """
    logits = np.asarray(logits, dtype=np.float64)
    gaps = logits - np.take_along_axis(logits, np.asarray(labels)[:, None], axis=1)  # to the true label's logit
    if not gaps.any():
        return Temperature(1.0)
    top = gaps.max(axis=1)
    below = np.ascontiguousarray((gaps - top[:, None]).T)  # by label: sums over labels are then sums of whole arrays

    def derivatives(log_beta: float) -> tuple[float, float]:
        beta = math.exp(log_beta)
        weight = np.exp(beta * below)
        total = weight.sum(axis=0)
        weight *= below
        mean = weight.sum(axis=0) / total
        weight *= below
        variance = weight.sum(axis=0) / total - mean**2
        return float((mean + top).mean()), beta * float(variance.mean())

    size = max(-float(below.mean()), MIN_SCALE)
    return Temperature(math.exp(_rising_root(derivatives, start=-math.log(size))))


def _rising_root(derivatives: Callable[[float], tuple[float, float]], start: float) -> float:
    """Return where a derivative that rises passes 0 between the bounds, or the bound towards which it never does."""
    low, high = LOG_BETA_BOUNDS
    log_beta, before = min(max(start, low), high), high - low
    while high - low > MIN_BRACKET:
        value, second = derivatives(log_beta)
        further = value <= 0
        low, high = (log_beta, high) if further else (low, log_beta)
        step = -value / second if second > 0 else math.inf
        if abs(step) <= MAX_FINAL_STEP:
            return log_beta + step
        if not (low < log_beta + step < high and abs(step) <= before / 2):  # then the bracket is halved
            end = high if further else low
            if end in LOG_BETA_BOUNDS and derivatives(end)[0] * value >= 0:
                return end
            step = (low + high) / 2 - log_beta
        log_beta, before = log_beta + step, abs(step)
    return log_beta
