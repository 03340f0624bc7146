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

from dataclasses import dataclass

import numpy as np

from tasks.projection.device import device_turn
from tasks.projection.exact_problem import Problem, state_problem
from tasks.projection.lattice import LatticeSettings

LEAST_INCREMENT = 1e-6
LARGEST_INCREMENT = 1e3
TOLERANCE = 1e-12  # where Newton stops; rounding allows no less
ROUNDING = 4e-15  # what a height may rise by: near the optimum its last digits say nothing
PASSES = 2000  # over the nodes; a fit takes about ten, and some with hardly any wrong (or right) row many hundreds


@dataclass(frozen=True, eq=False)
class Exact:
    """The optimum of B fits, and what proves it."""

    values: np.ndarray  # (B, K, J) float64, logit of the reliability at each knot
    kkt: np.ndarray  # (B, K) how far a unit gradient step, cut to the box, would move (b, increments) at most
    objective: np.ndarray  # (B,) the lowest value of the stated problem, its ridge included
    ridged: np.ndarray  # (B, K) bool, labels that needed the ridge


def fit_exact(
    confidence: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    n_labels: int,
    settings: LatticeSettings,
    device: str = "cpu",
) -> Exact:
    """Confidence `(B, m)` in [0, 1], decision and correct `(B, m)` or `(m,)`, to the optimal curves of B fits.

    Of `settings` only the knots and the smoothness are read. The order of the rows does not matter, nor does a fit
    feel its neighbours. A label without rows keeps its start.

    On `cpu` the passes over the rows run in NumPy, on any other device of torch there, in float64; all else stays on
    the host. On torch's own CPU (`cpu:0`) the objectives agree to rounding, and so do the values unless hardly any
    smoothness leaves some of them all but free. We have not run it on CUDA; the tests do where there is one.
    """
    confidence = np.asarray(confidence, dtype=np.float64)
    decision, correct = (np.broadcast_to(x, confidence.shape) for x in (decision, correct))
    problem = state_problem(confidence, decision, correct, n_labels, settings)
    fits, knots = len(confidence), settings.knots
    with device_turn(device):
        theta, height, kkt = _descend(problem.on(device))
    return Exact(
        values=np.cumsum(theta, axis=1).reshape(fits, n_labels, knots),
        kkt=kkt.reshape(fits, n_labels),
        objective=height.reshape(fits, n_labels).sum(axis=1),
        ridged=(problem.ridge > 0).reshape(fits, n_labels),
    )


def _descend(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The optimal theta `(P, J)`, its height `(P,)` and KKT residual `(P,)`.

    Bertsekas (1982): a Newton step in the free variables, a scaled gradient step in those held at a bound, both cut
    to the box, and halved until the height falls enough. Each pass over the nodes tries one step of every problem
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
