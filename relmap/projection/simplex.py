"""MRC: change the probabilities of a row so that the largest one is the reliability (paper, section 6).

The probabilities of a row are raised to a power alpha and normalized. The result is uniform for alpha = 0, unchanged
for alpha = 1, and concentrates on the largest label as alpha grows; the order of the labels never changes. With the
gaps D_j = log p_d - log p_j of the other labels and h(alpha) = sum_j exp(-alpha D_j), the probability of the decision d
equals the reliability q if

    log h(alpha) = log((1 - q) / q) = -logit q.

log h is convex and decreasing, so Newton's steps from below increase alpha and never pass the solution.

Some reliabilities cannot be reached:

- For q up to 1/K + 2e-7, alpha is 0, and the row counts as solved.
- q above 1 - 1e-6 is replaced by 1 - 1e-6.
- alpha is at most 512. This is also the result if the m largest labels tie and q is at least 1/m.
- If the decision is not the first of the most probable labels, the row does not change. Only such rows count as
  unsolved.

The rules are those of the authors' code, which searches alpha by bisection.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy

from relmap.metrics.probability import reject_nan

MAX_RELIABILITY_LOGIT = np.log((1 - 1e-6) / 1e-6)  # q = 1 would need an infinite alpha
MAX_ALPHA = 512.0
MIN_EXCESS_OVER_UNIFORM = 2e-7
MAX_GAP = 1e6  # a probability of 0 is replaced by exp(-1e6) times the largest one, so that it can increase
TOLERANCE = 1e-13  # of log h, and so of logit q
MAX_NEWTON_STEPS = 200  # a row takes about five
CHUNK_ROWS = 2**13  # intermediate results of a chunk fit in a cache


@dataclass(frozen=True, eq=False)
class SimplexProjection:
    """Rows of probabilities, each raised to a power and normalized.

    Attributes:
        log_probabilities: Projected rows, shape (n, K), float64.
        alpha: Power of each row in [0, 512], shape (n,), float64; `off_top_alpha` for unsolved rows.
        feasible: Whether q >= 1/K, compared as logit q >= -log(K - 1), shape (n,), bool.
        solved: Whether the decision is the first of the most probable labels, shape (n,), bool; q < 1/K counts as
            solved.
    """

    log_probabilities: np.ndarray
    alpha: np.ndarray
    feasible: np.ndarray
    solved: np.ndarray


def project_simplex(
    log_probabilities: np.ndarray, decision: np.ndarray, reliability_logit: np.ndarray, *, off_top_alpha: float = 1.0
) -> SimplexProjection:
    """Project rows so that the probability of the decision is its reliability.

    Rows are independent: the result of a row is the same, bit for bit, for any other rows and any order.

    Args:
        log_probabilities: Log-probabilities, shape (n, K), K >= 2.
        decision: Decided label 0..K-1, shape (n,).
        reliability_logit: Logit of the reliability, shape (n,).
        off_top_alpha: Power of rows whose decision is not the first of the most probable labels: 1 leaves them
            unchanged, 0 makes them uniform.

    Returns:
        The projected rows.

    Raises:
        ValueError: A log-probability or a logit is NaN, or a row has no finite log-probability; the message names the
            row.
    """
    by_label = np.ascontiguousarray(np.transpose(log_probabilities), dtype=np.float64)
    reject_nan(by_label.T, "log-probability")
    reject_nan(reliability_logit, "reliability")
    n_labels = len(by_label)
    highest = by_label.max(axis=0)
    if not np.isfinite(highest).all():
        raise ValueError(f"row {np.flatnonzero(~np.isfinite(highest))[0]} has no finite log-probability")

    top = by_label.argmax(axis=0)
    on_top = top == decision
    gaps = np.minimum(highest - by_label, MAX_GAP)
    other_gaps = np.where(np.arange(n_labels - 1)[:, None] < top, gaps[:-1], gaps[1:])  # of all labels but `top`
    min_logit = scipy.special.logit(1 / n_labels + MIN_EXCESS_OVER_UNIFORM)
    target = np.minimum(reliability_logit, MAX_RELIABILITY_LOGIT)
    alpha = np.where(on_top, 0.0, off_top_alpha)
    solved_rows = np.flatnonzero(on_top & (target > min_logit))
    for rows in np.split(solved_rows, range(CHUNK_ROWS, len(solved_rows), CHUNK_ROWS)):
        alpha[rows] = _solve_powers(other_gaps[:, rows], target[rows])

    projected = -alpha * gaps - np.log1p(_sum_labels(np.exp(-alpha * other_gaps)))
    # log1p(K - 1) rounds differently; for K = 3 the row would fall into the next bin of the ECE
    projected[:, alpha == 0] = -np.log(n_labels)
    unchanged = ~on_top & (alpha == 1)
    projected[:, unchanged] = by_label[:, unchanged]
    logit_of_uniform = -np.log(n_labels - 1)
    return SimplexProjection(
        log_probabilities=projected.T,
        alpha=alpha,
        feasible=reliability_logit >= logit_of_uniform,
        solved=on_top,
    )


def _solve_powers(gaps: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Solve log h(alpha) = -target by Newton's method from below.

    With D the smallest gap, log h(alpha) = -alpha D + log sum_j exp(-alpha (D_j - D)), which cannot underflow.

    Args:
        gaps: Gaps of the other labels, at least 0, shape (K - 1, r).
        target: Logit of q, at least the logit of 1/K and at most the maximum, shape (r,).

    Returns:
        Powers in [0, MAX_ALPHA], shape (r,).
    """
    alpha = np.zeros(len(target))
    remaining = np.flatnonzero(target > -np.log(len(gaps)))
    gaps = gaps[:, remaining]
    target = target[remaining]
    nearest = gaps.min(axis=0)
    gaps -= nearest
    # the solution if the nearest label were the only other one, which is a lower bound
    power = np.maximum(target, 0) / np.maximum(nearest, MAX_RELIABILITY_LOGIT / MAX_ALPHA)
    for _ in range(MAX_NEWTON_STEPS):
        weight = np.exp(-power * gaps)
        total = _sum_labels(weight)
        excess = np.log(total) - power * nearest + target
        decrease = nearest + _sum_labels(weight * gaps) / total  # minus the derivative of log h
        # rows whose gaps are all 0 divide by 0: their alpha is infinite, and is limited below
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            next_power = power + np.maximum(excess, 0) / decrease
        unsolved = excess > TOLERANCE
        power[unsolved] = np.minimum(next_power[unsolved], MAX_ALPHA)
        unsolved &= next_power < MAX_ALPHA
        n_unsolved = np.count_nonzero(unsolved)
        if n_unsolved == 0:
            break
        if 2 * n_unsolved <= len(remaining):  # removing solved rows saves time only if they are at least half of all
            alpha[remaining] = power
            remaining = remaining[unsolved]
            power = power[unsolved]
            nearest = nearest[unsolved]
            target = target[unsolved]
            gaps = gaps[:, unsolved]
    alpha[remaining] = power
    return alpha


def _sum_labels(terms: np.ndarray) -> np.ndarray:
    """Sum over labels in a fixed order, so that rounding errors of a row do not depend on the other rows."""
    return reduce(np.add, terms)
