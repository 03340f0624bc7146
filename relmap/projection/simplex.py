"""MRC: MRP's reliability as the top of a probability vector, along the row's power path (paper, section 6).

Raised to a power alpha and normalised, a row goes from uniform (0) through itself (1) towards its largest label, and
no two labels change places. With gaps D_j = log p_d - log p_j of the other labels and h(alpha) = sum of
exp(-alpha D_j), the reliability q is reached where log h(alpha) = log((1 - q) / q) = -logit q. As log h is convex and
falls, Newton's steps from below only rise and never pass the solution.

What the path cannot reach: q below 1/K counts as 1/K + 1e-7, as the authors have it, and as solved. Ours: q counts as
1 - 1e-6 at most; alpha ends at 1e4, which is also where a row ends whose q >= 1/m lies beyond a tie of m labels at its
top; a row whose decision is not on top stays as it is, and is the only one that is not solved.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy

from relmap.metrics.probability import reject_nan

MAX_RELIABILITY_LOGIT = np.log((1 - 1e-6) / 1e-6)  # q = 1 would need an infinite alpha
MAX_ALPHA = 1e4
MIN_EXCESS_OVER_UNIFORM = 1e-7  # above 1/K
MAX_GAP = 1e6  # a probability of exactly 0 counts as exp(-1e6) of the largest, or it could never rise again
TOLERANCE = 1e-13  # of log h, hence of logit q
MAX_NEWTON_STEPS = 200  # a row takes about five
CHUNK_ROWS = 2**13  # rows: what is computed on the way fits in a cache


@dataclass(frozen=True, eq=False)
class SimplexProjection:
    """Rows moved along their power paths, and how each ended."""

    log_probabilities: np.ndarray  # (n, K) float64
    alpha: np.ndarray  # (n,) float64 in [0, 1e4]; `off_top_alpha` where the decision is not on top
    feasible: np.ndarray  # (n,) bool, q >= 1/K, compared as logit q >= -log(K - 1), wherever the decision stands
    solved: np.ndarray  # (n,) bool, the decision is a maximiser, before as after; q < 1/K may be


def project_simplex(
    log_probabilities: np.ndarray, decision: np.ndarray, reliability_logit: np.ndarray, *, off_top_alpha: float = 1.0
) -> SimplexProjection:
    """Log-probabilities `(n, K)`, K >= 2, decision `(n,)` 0..K-1 and logit of the reliability `(n,)` to MRC's rows.

    A row is solved on its own: its bits depend neither on the other rows nor on their order. Where the decision is
    not a maximiser of its row, alpha is `off_top_alpha`: 1 leaves the row untouched, 0 makes it uniform.

    Raises:
        ValueError: a log-probability or a logit is NaN, or a row has no finite log-probability; it names the row.
    """
    by_label = np.ascontiguousarray(np.transpose(log_probabilities), dtype=np.float64)
    reliability_logit = np.asarray(reliability_logit, dtype=np.float64)
    reject_nan(by_label.T, "log-probability")
    reject_nan(reliability_logit, "reliability")
    labels, count = by_label.shape
    highest = by_label.max(axis=0)
    if not np.isfinite(highest).all():
        raise ValueError(f"row {np.flatnonzero(~np.isfinite(highest))[0]} has no finite log-probability")

    on_top = by_label[decision, np.arange(count)] == highest
    top = np.where(on_top, decision, by_label.argmax(axis=0))
    gaps = np.minimum(highest - by_label, MAX_GAP)
    others = np.where(np.arange(labels - 1)[:, None] < top, gaps[:-1], gaps[1:])
    uniform = -np.log(labels - 1)  # logit of 1/K
    least = scipy.special.logit(1 / labels + MIN_EXCESS_OVER_UNIFORM)
    alpha = np.full(count, float(off_top_alpha))
    solved = np.flatnonzero(on_top)
    for rows in np.split(solved, range(CHUNK_ROWS, len(solved), CHUNK_ROWS)):
        alpha[rows] = _powers(others[:, rows], np.clip(reliability_logit[rows], least, MAX_RELIABILITY_LOGIT))

    moved = -alpha * gaps - np.log1p(_over_labels(np.exp(-alpha * others)))
    moved[:, alpha == 0] = -np.log(labels)  # log1p(K - 1) rounds otherwise, and for K = 3 to the next bin of the ECE
    unmoved = ~on_top & (alpha == 1)
    moved[:, unmoved] = by_label[:, unmoved]
    return SimplexProjection(moved.T, alpha, reliability_logit >= uniform, on_top)


def _powers(gaps: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Gaps `(K - 1, r)` >= 0 and logit of q `(r,)`, from that of 1/K to the cap, to alpha `(r,)` in [0, 1e4]."""
    alpha = np.zeros(len(target))
    going = np.flatnonzero(target > -np.log(len(gaps)))
    gaps, target = gaps[:, going], target[going]
    nearest = gaps.min(axis=0)
    gaps -= nearest
    # where the others have no weight it is the nearest gap's; with them it is more
    power = np.maximum(target, 0) / np.maximum(nearest, MAX_RELIABILITY_LOGIT / MAX_ALPHA)
    for _ in range(MAX_NEWTON_STEPS):
        weight = np.exp(-power * gaps)  # the largest is 1: nothing underflows but what may
        total = _over_labels(weight)
        lacking = np.log(total) - power * nearest + target
        fall = nearest + _over_labels(weight * gaps) / total
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # no gap is left: alpha would be infinite
            further = power + np.maximum(lacking, 0) / fall
        unsolved = lacking > TOLERANCE
        power[unsolved] = np.minimum(further[unsolved], MAX_ALPHA)
        unsolved &= further < MAX_ALPHA
        left = np.count_nonzero(unsolved)
        if not left:
            break
        if 2 * left <= len(going):  # the others come along, unmoved, until they are half of all
            alpha[going] = power
            going, power, nearest, target = (of[unsolved] for of in (going, power, nearest, target))
            gaps = gaps[:, unsolved]
    alpha[going] = power
    return alpha


def _over_labels(terms: np.ndarray) -> np.ndarray:
    """The sum over the labels, one after the other, so that a row alone has the bits that it has among others."""
    return reduce(np.add, terms)
