"""Temperature scaling (Guo et al., 2017): one inverse temperature for all rows and labels."""

import math
from collections.abc import Callable

import numpy as np

from relmap.calibrators.identity import log_softmax
from relmap.io.serialization import Positive, Value

LOG_BETA_BOUNDS = (-16.0, 16.0)  # beyond any useful temperature, and well within float64
MAX_FINAL_STEP = 1e-9  # of log beta; the error after such a Newton step is about its square
MIN_BRACKET = 1e-14
MIN_SCALE = 1e-300


class Temperature(Value, kind="temperature"):
    """`softmax(beta z)`. The order of labels within a row does not change; for K > 2, that of rows can change.

    Attributes:
        beta: Inverse temperature; 1 is the identity.
    """

    beta: Positive

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrate logits.

        Args:
            logits: Shape (n, K).

        Returns:
            Log-probabilities, shape (n, K), float64.
        """
        return log_softmax(self.beta * np.asarray(logits, dtype=np.float64))


def fit_temperature(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Temperature:  # noqa: ARG001 - deterministic
    """Fit the inverse temperature by mean log loss.

    The loss is convex in beta (not in the temperature), so the optimum is the root of its derivative, which Newton's
    method within a bracket finds. Gradient steps on the temperature, as first published, end too early if the optimum
    is far from their start, and can end at a negative temperature.

    If the derivative has the same sign at all values between the bounds, the result is a bound: the lower one if higher
    logits do not make a label more likely, the upper one if every row is correct. If the logits are equal within each
    row, beta is 1.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Unused.

    Returns:
        The fitted calibrator.
    """
    logits = np.asarray(logits, dtype=np.float64)
    gaps = logits - np.take_along_axis(logits, np.asarray(labels)[:, None], axis=1)  # to the logit of the true label
    if not gaps.any():
        return Temperature(1.0)
    largest_gap = gaps.max(axis=1)
    # labels are the first axis, so that sums over labels add whole arrays
    relative_gaps = np.ascontiguousarray((gaps - largest_gap[:, None]).T)

    def derivatives(log_beta: float) -> tuple[float, float]:
        """Return the derivative of the loss in beta, and the derivative of this number in log beta.

        The derivative of the loss is the mean of the gaps, weighted by the probabilities of the labels.
        """
        beta = math.exp(log_beta)
        weight = np.exp(beta * relative_gaps)
        total = weight.sum(axis=0)
        weight *= relative_gaps
        mean = weight.sum(axis=0) / total
        weight *= relative_gaps
        variance = weight.sum(axis=0) / total - mean**2
        return float((mean + largest_gap).mean()), beta * float(variance.mean())

    scale = max(-float(relative_gaps.mean()), MIN_SCALE)
    return Temperature(math.exp(_find_root(derivatives, start=-math.log(scale))))


def fit_bounded_temperature(logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Temperature:
    """Fit the inverse temperature, bounded for rows that are all correct.

    At the bound, the odds of the median row, for the largest logit against the second largest, are 2 n + 2: those of
    one half of an error in the rows.

    Args:
        logits: Shape (n, K).
        labels: True labels 0..K-1, shape (n,).
        seed: Unused.

    Returns:
        The fitted calibrator.
    """
    fitted = fit_temperature(logits, labels, seed=seed)
    largest_two = np.partition(np.asarray(logits, dtype=np.float64), -2, axis=1)[:, -2:]
    median_gap = float(np.median(largest_two[:, 1] - largest_two[:, 0]))
    if median_gap == 0:
        return fitted
    return Temperature(min(fitted.beta, math.log(2 * len(largest_two) + 2) / median_gap))


def _find_root(derivatives: Callable[[float], tuple[float, float]], start: float) -> float:
    """Find the root of an increasing function of log beta by Newton's method within a bracket.

    If a Newton step leaves the bracket or is more than half of the previous step, the bracket is halved instead. If the
    function has the same sign at both LOG_BETA_BOUNDS, the bound where it is closer to 0 is returned.

    Returns:
        The root in log beta, or a bound.
    """
    low, high = LOG_BETA_BOUNDS
    log_beta = min(max(start, low), high)
    previous_step = high - low
    while high - low > MIN_BRACKET:
        value, slope = derivatives(log_beta)
        root_is_above = value <= 0
        if root_is_above:
            low = log_beta
        else:
            high = log_beta
        step = -value / slope if slope > 0 else math.inf
        if abs(step) <= MAX_FINAL_STEP:
            return log_beta + step
        if not (low < log_beta + step < high and abs(step) <= previous_step / 2):
            end = high if root_is_above else low
            if end in LOG_BETA_BOUNDS and derivatives(end)[0] * value >= 0:
                return end
            step = (low + high) / 2 - log_beta
        log_beta = log_beta + step
        previous_step = abs(step)
    return log_beta
