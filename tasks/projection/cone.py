"""The surface of smallest log loss that falls along neither axis, by a primal-dual interior-point method.

Its values `(I, G)` on a grid range over the whole cone a[i+1, j] >= a[i, j], a[i, j+1] >= a[i, j] (sums and products
of monotone curves reach only a part of it) within -12 <= a <= 12: about as far as 400 Adam steps of 0.03 come, so
that a label which is always right, or always wrong, has an optimum too. Every increment stays above 0, and where
neither rows nor smoothness decide, the values settle amid their constraints.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

FARTHEST = 12.0
TOLERANCE = 1e-8  # how far above the lowest height a surface may stay
ITERATIONS = 200  # a fit takes about twenty


@dataclass(frozen=True, eq=False)
class SurfaceProblem:
    """One surface's share of the objective: scale * sum of log loss + a' bending a, over flattened values a."""

    shape: tuple[int, int]  # I, G
    hats: csr_array  # (n, IG) weights of the four corners around each row
    correct: np.ndarray  # (n,) float64
    scale: float
    bending: np.ndarray  # (IG, IG)

    def height(self, values: np.ndarray) -> float:
        """Values `(I, G)` to what is minimised."""
        a = values.ravel()
        t = self.hats @ a
        return float(self.scale * (np.logaddexp(0, t) - self.correct * t).sum() + a @ self.bending @ a)

    def slope(self, a: np.ndarray) -> np.ndarray:
        """Slope `(IG,)` of the height at `a (IG,)`."""
        residual = expit(self.hats @ a) - self.correct
        return np.asarray(self.scale * (self.hats.T @ residual) + 2 * self.bending @ a)


def corner_weights(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], shape: tuple[int, int]
) -> csr_array:
    """The place of n rows on each axis (interval and weight, `(n,)` each) to their bilinear weights `(n, IG)`."""
    (i, right), (j, above) = first, second
    corner = np.stack([(i + x) * shape[1] + j + y for x in (0, 1) for y in (0, 1)], axis=1)
    weight = np.stack([u * v for u in (1 - right, right) for v in (1 - above, above)], axis=1)
    return csr_array((weight.ravel(), corner.ravel(), np.arange(0, 4 * len(i) + 1, 4)), (len(i), shape[0] * shape[1]))


def bending_matrix(shape: tuple[int, int]) -> np.ndarray:
    """The matrix `(IG, IG)` of the mean squared second difference along the first axis plus that along the second.

    For a surface that does not vary along the second axis this is what the paper charges the curve.
    """
    first, second = (np.diff(np.eye(size), n=2, axis=0) for size in shape)
    along = np.kron(first, np.eye(shape[1])), np.kron(np.eye(shape[0]), second)
    return np.asarray(sum(bends.T @ bends / max(len(bends), 1) for bends in along))


def lowest_surface(problem: SurfaceProblem, start: np.ndarray) -> tuple[np.ndarray, float]:
    """From `start (I, G)`, strictly within the constraints, to the optimal values and a bound on their excess.

    The method is Boyd and Vandenberghe's (2004, section 11.7). With multipliers >= 0 and slack = A a - b, convexity
    bounds the excess of a over the optimum by slack' multipliers + 24 |slope - A' multipliers|, sizes summed: a proof
    that does not depend on how a was found.
    """
    bounds, limits = _constraints(problem.shape)
    pairs = _pairs(problem.hats)
    a = start.ravel().astype(np.float64)
    slack = bounds @ a - limits
    multipliers = 1e-2 * problem.scale * max(len(problem.correct), 1) / slack
    for _ in range(ITERATIONS):
        slope = problem.slope(a)
        excess = slack @ multipliers + 2 * FARTHEST * np.abs(slope - bounds.T @ multipliers).sum()
        if excess <= TOLERANCE:
            break
        centre = slack @ multipliers / (10 * len(slack))
        q = expit(problem.hats @ a)
        curvature = (problem.scale * (pairs @ (q * (1 - q)))).reshape(len(a), len(a)) + 2 * problem.bending
        system = curvature + (bounds.T * (multipliers / slack)) @ bounds
        step = np.linalg.solve(system, bounds.T @ (centre / slack) - slope)
        a, multipliers = _search(problem, bounds, limits, a, multipliers, step, centre)
        slack = bounds @ a - limits
    return a.reshape(problem.shape), float(excess)


def _search(
    problem: SurfaceProblem,
    bounds: np.ndarray,
    limits: np.ndarray,
    a: np.ndarray,
    multipliers: np.ndarray,
    step: np.ndarray,
    centre: float,
) -> tuple[np.ndarray, np.ndarray]:
    """As far along the step as slack and multipliers stay above 0 and the distance from the central path falls."""
    slack, slack_step = bounds @ a - limits, bounds @ step
    multipliers_step = (centre - multipliers * slack_step) / slack - multipliers

    def distance(a: np.ndarray, multipliers: np.ndarray) -> float:
        stationary = problem.slope(a) - bounds.T @ multipliers
        return float(np.hypot(np.linalg.norm(stationary), np.linalg.norm(multipliers * (bounds @ a - limits) - centre)))

    shrinking = np.concatenate([slack_step / slack, multipliers_step / multipliers]).min()
    size, before = min(1.0, 0.99 / max(-shrinking, 1e-300)), distance(a, multipliers)
    while distance(a + size * step, multipliers + size * multipliers_step) > (1 - 0.01 * size) * before and size > 1e-9:
        size /= 2
    return a + size * step, multipliers + size * multipliers_step


def _constraints(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """A `(C, IG)` and b `(C,)` of A a >= b: no fall along either axis, the lowest and the highest value."""
    first, second = (np.diff(np.eye(size), axis=0) for size in shape)
    ends = np.zeros((2, shape[0] * shape[1]))
    ends[0, 0], ends[1, -1] = 1, -1
    bounds = np.concatenate([np.kron(first, np.eye(shape[1])), np.kron(np.eye(shape[0]), second), ends])
    return bounds, np.r_[np.zeros(len(bounds) - 2), -FARTHEST, -FARTHEST]


def _pairs(hats: csr_array) -> csr_array:
    """What turns the weight of each row into the flattened curvature, `((IG)^2, n)`."""
    rows, size = hats.shape
    weight, corner = hats.data.reshape(rows, 4), hats.indices.reshape(rows, 4).astype(np.int64)
    products = (weight[:, :, None] * weight[:, None, :]).ravel()
    places = (corner[:, :, None] * size + corner[:, None, :]).ravel()
    return csr_array((products, (places, np.repeat(np.arange(rows), 16))), (size * size, rows))
