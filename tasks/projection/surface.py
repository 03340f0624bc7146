"""Label-wise 2D: reliability as a surface of confidence and decision gap (paper, section 3.5).

The paper leaves open the knots of the gap, the smoothness in two directions and the clipping. Ours: knots at
quantiles of each fit's gaps; the same rho times the mean squared second difference along the confidence plus that
along the gap, each counted in steps from knot to knot (so that a surface that ignores the gap costs what its curve
does, and the best surface is no worse a fit than the best curve); probabilities cut to [1e-6, 1 - 1e-6].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from tasks.projection.cone import SurfaceProblem, bending_matrix, corner_weights, lowest_surface
from tasks.projection.curves import Fallback, fallbacks, place
from tasks.projection.lattice import LatticeSettings

GAP_KNOTS = 8


@dataclass(frozen=True, eq=False)
class Surfaces:
    """One surface for each label, bilinear on the logit scale, that falls along neither confidence nor gap.

    Its arrays are read-only copies. Beyond the outer gap knots a surface stays as it is there. At one label
    and gap, reliability never falls as the confidence rises, to the last bit; along the gap, up to rounding.
    """

    knots: np.ndarray  # (J,) float64, 0 = u_1 < ... < u_J = 1
    gap_knots: np.ndarray  # (G,) float64, rising, G >= 2
    values: np.ndarray  # (K, J, G) float64, logit of the reliability
    rows: np.ndarray  # (K,) int64, projection-fit rows behind each label
    fallback: tuple[Fallback, ...]  # of each label: its own surface, the shared curve, or reliability = confidence
    excess: np.ndarray  # (K,) float64, proven bound on the label's objective above the lowest; 0 for a fallback

    def __post_init__(self) -> None:
        for name in ("knots", "gap_knots", "values", "rows", "excess"):
            frozen = np.array(getattr(self, name), dtype=np.int64 if name == "rows" else np.float64)
            frozen.flags.writeable = False
            object.__setattr__(self, name, frozen)

    def __call__(self, confidence_logit: np.ndarray, decision: np.ndarray, gap: np.ndarray | None = None) -> np.ndarray:
        """logit of the confidence, decision and gap, `(n,)` each, to logit of the reliability `(n,)` float64."""
        if gap is None:
            raise ValueError("a surface needs the gap beside the confidence")
        below, up = place(_within(gap, self.gap_knots), self.gap_knots)
        at_knots = _between(self.values[decision, :, below], self.values[decision, :, below + 1], up[:, None])
        at_knots = np.maximum.accumulate(at_knots, axis=1)  # rounding alone could make a curve of c fall
        interval, weight = place(expit(confidence_logit), self.knots)
        row = np.arange(len(interval))
        reliability_logit = _between(at_knots[row, interval], at_knots[row, interval + 1], weight)
        identity = np.array([kind == "identity" for kind in self.fallback])
        return np.asarray(np.where(identity[decision], confidence_logit, reliability_logit))

    def violations(self) -> list[str]:
        """What is wrong with these surfaces, a sentence for each place; empty if nothing is."""
        found = []
        if self.knots[0] != 0 or self.knots[-1] != 1 or not (np.diff(self.knots) > 0).all():
            found.append(f"the knots do not rise from 0 to 1: {self.knots.tolist()}")
        if len(self.gap_knots) < 2 or not (np.diff(self.gap_knots) > 0).all():
            found.append(f"the gap knots do not rise: {self.gap_knots.tolist()}")
        for label, i, j in np.argwhere(~np.isfinite(self.values)):
            found.append(f"label {label} is {self.values[label, i, j]} at knot {i}, gap knot {j}")
        for axis, name in ((1, "confidence"), (2, "gap")):
            for label, i, j in np.argwhere(np.diff(self.values, axis=axis) < 0):
                found.append(f"label {label} falls along the {name} after knot {i}, gap knot {j}")
        unproven = np.flatnonzero(~(self.excess <= 1e-6))
        return found + [f"label {k} may lie {self.excess[k]} above its lowest objective" for k in unproven]


def decision_gap(log_probabilities: np.ndarray, logits: np.ndarray, decision: np.ndarray) -> np.ndarray:
    """The gap g: logit of the decision's probability less that of the runner-up, `(n, K)`, `(n, K)`, `(n,)` to `(n,)`.

    The runner-up is the first best other label of the uncalibrated `logits`, whatever the calibrator made of it; so
    the gap of a calibrator that moves the decision from the top can be negative. For K = 2 it is 2 logit c.
    """
    row = np.arange(len(decision))
    others = np.array(logits, dtype=np.float64)
    others[row, decision] = -np.inf
    runner_up = others.argmax(axis=1)
    both = np.clip(log_probabilities[row, [decision, runner_up]], np.log(1e-6), np.log1p(-1e-6))
    chosen, other = both - np.log(-np.expm1(both))
    return np.asarray(chosen - other)


def fit_surfaces(
    confidence: np.ndarray,
    gap: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    n_labels: int,
    settings: LatticeSettings,
    shared: np.ndarray,
    knots: np.ndarray | None = None,
) -> list[Surfaces]:
    """Confidence in [0, 1] and gap `(B, m)`, decision and correct `(m,)`, to the surfaces of B fits.

    `knots (B, J)` are where the confidence is read, uniform by default, and where `shared (B, J)` has its values. A
    label with fewer than `settings.minimum_rows` rows takes that curve, whatever the gap; one with none the identity.
    The same rows in any order give the same bits.
    """
    return [
        _fit(c, g, decision, np.asarray(correct, dtype=np.float64), n_labels, settings, curve, places)
        for c, g, curve, places in zip(
            confidence, gap, shared, [settings.places] * len(gap) if knots is None else knots, strict=True
        )
    ]


def _fit(
    confidence: np.ndarray,
    gap: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    n_labels: int,
    settings: LatticeSettings,
    shared: np.ndarray,
    knots: np.ndarray,
) -> Surfaces:
    gap_knots = _gap_knots(gap)
    shape = (len(knots), len(gap_knots))
    bending = settings.smoothness / n_labels * bending_matrix(shape)
    rows = np.bincount(decision, minlength=n_labels)
    kinds = fallbacks(rows, settings.minimum_rows)
    identity = logit(np.clip(knots, 1e-6, 1 - 1e-6))
    values, excess = np.empty((n_labels, *shape)), np.zeros(n_labels)
    for label, kind in enumerate(kinds):
        if kind != "none":
            values[label] = (shared if kind == "shared" else identity)[:, None]
            continue
        mine = np.flatnonzero(decision == label)
        mine = mine[np.lexsort((correct[mine], gap[mine], confidence[mine]))]
        places = place(confidence[mine], knots), place(_within(gap[mine], gap_knots), gap_knots)
        hats = corner_weights(*places, shape)
        problem = SurfaceProblem(shape, hats, correct[mine], 1 / len(confidence), bending)
        values[label], excess[label] = lowest_surface(problem, _start(correct[mine], shape))
    return Surfaces(knots, gap_knots, values, rows, tuple(kinds), excess)


def _gap_knots(gap: np.ndarray) -> np.ndarray:
    """Eight quantiles of the gaps, the lowest moved to 0 if it lies above; those that coincide to 1e-6 are one."""
    quantiles = np.quantile(gap, np.linspace(0, 1, GAP_KNOTS)) if len(gap) else np.zeros(1)
    quantiles[0] = min(quantiles[0], 0)
    rising = np.unique(np.round(quantiles, 6))
    return rising if len(rising) > 1 else rising[0] + np.array([0.0, 1.0])


def _start(correct: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The label's base rate on a gentle slope along both axes, `(I, G)`, clear of every constraint."""
    first, second = (np.linspace(-0.5, 0.5, size) for size in shape)
    base = np.log((correct.sum() + 1) / (len(correct) - correct.sum() + 1))
    return np.asarray(np.clip(base, -10, 10) + first[:, None] + second)


def _within(gap: np.ndarray, knots: np.ndarray) -> np.ndarray:
    return np.clip(gap, knots[0], knots[-1])


def _between(left: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """From `left` to `right >= left` by `weight` in [0, 1]: written so, every rounding keeps the order."""
    return np.minimum(left + weight * (right - left), right)
