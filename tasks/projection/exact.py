"""MRP's lattice at its convex optimum: the published problem, solved by a projected Newton method to a certificate.

The problem separates over labels (all share the 1/m and the rho / (K (J - 2)) of the paper's objective), so B fits of
K labels are B * K problems in J variables, descended side by side. Each is solved in the coordinates (b, increments),
where the paper's monotonicity is a box: b is free, each increment lies in [1e-6, 1000].

The least increment leaves no flat piece, hence no ties that the confidence would have told apart; the largest keeps
finite the labels whose confidences all but coincide. A label for which some threshold on the confidence parts all
wrong rows from all right ones (only wrong, only right or no rows among them) has no unique minimum: there, and
everywhere if rho is 0, 1e-6 times the squared distance to the base-rate start is added. All else is the objective as
published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tasks.projection.curves import place
from tasks.projection.lattice import LatticeSettings

LEAST_INCREMENT = 1e-6
LARGEST_INCREMENT = 1e3
RIDGE = 1e-6
TOLERANCE = 1e-12  # where Newton stops; rounding allows no less
ROUNDING = 4e-15  # what a height may rise by: near the optimum its last digits say nothing
PASSES = 200  # over the rows; a fit takes about ten


@dataclass(frozen=True, eq=False)
class Exact:
    """The optimum of B fits, and what proves it."""

    values: np.ndarray  # (B, K, J) float64, logit of the reliability at each knot
    kkt: np.ndarray  # (B, K) how far a unit gradient step, cut to the box, would move (b, increments) at most
    objective: np.ndarray  # (B,) the lowest value of the stated problem, its ridge included
    ridged: np.ndarray  # (B, K) bool, labels that needed the ridge


def fit_exact(
    confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, n_labels: int, settings: LatticeSettings
) -> Exact:
    """Confidence `(B, m)` in [0, 1], decision and correct `(B, m)` or `(m,)`, to the optimal curves of B fits.

    Of `settings` only the knots and the smoothness are read. The order of the rows does not matter, nor does a fit
    feel its neighbours. A label without rows keeps its start.
    """
    confidence = np.asarray(confidence, dtype=np.float64)
    decision, correct = (np.broadcast_to(x, confidence.shape) for x in (decision, correct))
    problem = _problem(confidence, decision, correct, n_labels, settings)
    fits, knots = len(confidence), settings.knots
    theta, height, kkt = _descend(problem)
    return Exact(
        values=np.cumsum(theta, axis=1).reshape(fits, n_labels, knots),
        kkt=kkt.reshape(fits, n_labels),
        objective=height.reshape(fits, n_labels).sum(axis=1),
        ridged=(problem.ridge > 0).reshape(fits, n_labels),
    )


@dataclass(frozen=True, eq=False)
class _Problem:
    """P problems in J variables: rows in the order of their cells (problem, interval), and a quadratic."""

    cell: np.ndarray  # (C,) the cells that have rows, ascending
    lengths: np.ndarray  # (C,) rows of each
    weight: np.ndarray  # (R,) weight of the knot to the right of each row
    scale: float  # 1 / m
    hits: np.ndarray  # (P, J) sum over the right rows of their weights at the knots
    start: np.ndarray  # (P, J) values
    bending: float  # weight of the sum of the squared second differences
    ridge: np.ndarray  # (P,) weight of the squared distance to the start

    def only(self, kept: np.ndarray) -> _Problem:
        """The problems `kept (P,)` bool, in their order."""
        intervals = self.start.shape[1] - 1
        owner = self.cell // intervals
        stays = kept[owner]
        renumbered = (np.cumsum(kept) - 1)[owner] * intervals + self.cell % intervals
        rows = np.repeat(stays, self.lengths)
        parts = {"hits": self.hits[kept], "start": self.start[kept], "ridge": self.ridge[kept]}
        return replace(self, cell=renumbered[stays], lengths=self.lengths[stays], weight=self.weight[rows], **parts)

    def derivatives(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`theta (P, J)`, b and increments, to the height `(P,)`, its slope `(P, J)` and curvature `(P, J, J)`.

        No sum runs over more than one problem, so that none feels its neighbours.
        """
        values = np.cumsum(theta, axis=1)
        softplus, probability, variance = self._moments(values)
        off, bend = values - self.start, np.diff(values, n=2, axis=1)
        height = self.scale * (softplus - (self.hits * values).sum(axis=1))
        height += self.bending * (bend**2).sum(axis=1) + self.ridge * (off**2).sum(axis=1)

        slope = -self.hits
        slope[:, :-1] += probability[0] - probability[1]
        slope[:, 1:] += probability[1]
        slope = self.scale * slope + 2 * self.ridge[:, None] * off
        for shift, factor in enumerate((1, -2, 1)):
            slope[:, shift : shift + bend.shape[1]] += 2 * self.bending * factor * bend

        knots = values.shape[1]
        second = np.diff(np.eye(knots), n=2, axis=0)
        curvature = 2 * self.bending * second.T @ second + 2 * self.ridge[:, None, None] * np.eye(knots)
        left, right = np.arange(knots - 1), np.arange(1, knots)
        curvature[:, left, left] += self.scale * (variance[0] - 2 * variance[1] + variance[2])
        curvature[:, right, right] += self.scale * variance[2]
        curvature[:, left, right] += self.scale * (variance[1] - variance[2])
        curvature[:, right, left] = curvature[:, left, right]
        return height, _above(slope, 1), _above(_above(curvature, 1), 2)

    def _moments(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of softplus(t) `(P,)`; by cell, of q w^r `(2, P, J - 1)`, r < 2, and q(1-q) w^r `(3, P, J - 1)`, r < 3.

        t is the logit of a row's reliability q, and w the weight of the knot on its right.
        """
        shape = (len(values), values.shape[1] - 1)
        left, rise = values[:, :-1].ravel()[self.cell], np.diff(values, axis=1).ravel()[self.cell]
        t = np.repeat(rise, self.lengths)
        t *= self.weight
        t += np.repeat(left, self.lengths)
        tail = np.exp(-np.abs(t))
        softplus = np.maximum(t, 0) + np.log1p(tail)
        probability = np.where(t >= 0, 1, tail) / (1 + tail)
        variance = tail / (1 + tail) ** 2
        by_weight = [softplus, probability, probability * self.weight, variance, variance * self.weight]
        by_weight.append(by_weight[-1] * self.weight)
        starts = np.cumsum(self.lengths) - self.lengths
        sums = np.zeros((len(by_weight), shape[0] * shape[1]))
        for total, terms in zip(sums, by_weight, strict=True):
            if len(starts):
                total[self.cell] = np.add.reduceat(terms, starts)
        sums = sums.reshape(-1, *shape)
        return sums[0].sum(axis=1), sums[1:3], sums[3:]


def _above(array: np.ndarray, axis: int) -> np.ndarray:
    """Sums over each index and all after it: by the chain rule, the slope in the increments from that in the values."""
    return np.flip(np.cumsum(np.flip(array, axis), axis), axis)


def _problem(
    confidence: np.ndarray, decision: np.ndarray, correct: np.ndarray, n_labels: int, settings: LatticeSettings
) -> _Problem:
    """Sort the rows `(B, m)` into cells and state the B * K problems."""
    (fits, count), knots = confidence.shape, settings.places
    problems, intervals = fits * n_labels, len(knots) - 1
    order = np.lexsort((correct, confidence, decision), axis=1)
    confidence, decision, correct = (np.take_along_axis(x, order, axis=1) for x in (confidence, decision, correct))
    owner = (decision + n_labels * np.arange(fits)[:, None]).ravel()
    right = correct.ravel() != 0
    interval, weight = (x.ravel() for x in place(confidence, knots))
    lengths = np.bincount(owner * intervals + interval, minlength=problems * intervals)
    cell = np.flatnonzero(lengths)

    at = owner * len(knots) + interval
    hits = np.bincount(at, right * (1 - weight), problems * len(knots))
    hits += np.bincount(at + 1, right * weight, problems * len(knots))

    total, hit = np.bincount(owner, minlength=problems), np.bincount(owner, right, problems)
    highest_wrong, lowest_right = np.full(problems, -np.inf), np.full(problems, np.inf)
    np.maximum.at(highest_wrong, owner[~right], confidence.ravel()[~right])
    np.minimum.at(lowest_right, owner[right], confidence.ravel()[right])
    return _Problem(
        cell=cell,
        lengths=lengths[cell],
        weight=weight,
        scale=1 / max(count, 1),
        hits=hits.reshape(problems, len(knots)).astype(np.float64),  # bincount counts in int where nothing is
        # the start of the published fit: the base rate, on a line of slope 1.4 that crosses it at c = 5/7
        start=np.log((hit + 1) / (total - hit + 1))[:, None] + 1.4 * (knots - 5 / 7),
        bending=settings.smoothness / (n_labels * (len(knots) - 2)),
        ridge=RIDGE * ((highest_wrong <= lowest_right) | (settings.smoothness == 0)),
    )


def _descend(problem: _Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The optimal theta `(P, J)`, its height `(P,)` and KKT residual `(P,)`.

    Bertsekas (1982): a Newton step in the free variables, a scaled gradient step in those held at a bound, both cut
    to the box, and halved until the height falls enough. Each pass over the rows tries one step of every problem
    that is not yet done.
    """
    theta = np.diff(problem.start, axis=1, prepend=0)
    lowest, highest = np.full_like(theta[0], LEAST_INCREMENT), np.full_like(theta[0], LARGEST_INCREMENT)
    lowest[0], highest[0] = -np.inf, np.inf
    theta = np.clip(theta, lowest, highest)
    height, slope, curvature = problem.derivatives(theta)
    kkt = _residual(theta, slope, lowest, highest)
    step = _step(theta, slope, curvature, kkt, lowest, highest)
    size, alive = np.ones_like(height), np.arange(len(theta))
    for _ in range(PASSES):
        going = (kkt[alive] > TOLERANCE) & (size[alive] > 1e-12)
        if not going.all():
            problem, alive = problem.only(going), alive[going]
        if not len(alive):
            break
        trial = np.clip(theta[alive] + size[alive, None] * step[alive], lowest, highest)
        trial_height, trial_slope, trial_curvature = problem.derivatives(trial)
        expected = (slope[alive] * (theta[alive] - trial)).sum(axis=1)
        taken = trial_height <= height[alive] - 1e-4 * np.maximum(expected, 0) + ROUNDING
        size[alive[~taken]] /= 2
        now = alive[taken]
        theta[now], height[now], slope[now] = trial[taken], trial_height[taken], trial_slope[taken]
        kkt[now] = _residual(theta[now], slope[now], lowest, highest)
        step[now] = _step(theta[now], slope[now], trial_curvature[taken], kkt[now], lowest, highest)
        size[now] = 1
    return theta, height, kkt


def _residual(theta: np.ndarray, slope: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """The largest part of the slope that the box does not take up, `(P,)`; 0 exactly at an optimum."""
    return np.asarray(np.abs(theta - np.clip(theta - slope, lowest, highest)).max(axis=1))


def _step(
    theta: np.ndarray,
    slope: np.ndarray,
    curvature: np.ndarray,
    kkt: np.ndarray,
    lowest: np.ndarray,
    highest: np.ndarray,
) -> np.ndarray:
    """The Newton step `(P, J)`, in which a variable near a bound that its slope pushes against goes its own way."""
    near = np.minimum(kkt, 1e-3)[:, None]
    held = ((theta <= lowest + near) & (slope > 0)) | ((theta >= highest - near) & (slope < 0))
    both_free = ~held[:, :, None] & ~held[:, None, :]
    diagonal = np.arange(theta.shape[1])
    own = curvature[:, diagonal, diagonal]
    curvature = np.where(both_free, curvature, 0)
    curvature[:, diagonal, diagonal] = own + 1e-14  # never singular, where confidences all but coincide
    return np.asarray(-np.linalg.solve(curvature, slope[..., None])[..., 0])
