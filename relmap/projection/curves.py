"""Fitted reliability curves: what a projection is once it is learned. NumPy only, so that reading needs no torch."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import scipy
from pydantic import Field

from relmap.projection.decisions import CalibratedDecisions
from relmap.serialization import Axes, Count, Share, Value

Fallback = Literal["none", "shared", "identity"]
Fallbacks = Annotated[tuple[Fallback, ...], Axes("K")]  # of each label: its own, all labels', reliability = confidence
Logit = Annotated[float, Field(ge=-1000, le=1000)]  # of a reliability; a curve's differences cannot overflow


class Curves(Value, kind="lattice"):
    """One monotone curve for each label, on the logit scale between knots (paper, section 3.4).

    Equal confidences of one label get equal reliabilities, and none falls as the
    confidence rises, to the last bit.
    """

    knots: Annotated[np.ndarray, Axes("J", of=Share)]  # 0 = u_1 < ... < u_J = 1
    values: Annotated[np.ndarray, Axes("K", "J", of=Logit)]  # logit of the reliability at each knot; no row falls
    rows: Annotated[np.ndarray, Axes("K", of=Count)]  # projection-fit rows behind each label
    fallback: Fallbacks

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions to logit of the reliability `(n,)` float64, by confidence and label."""
        confidence_logit, decision = decisions.confidence_logit, decisions.decision
        interval, weight = locate_interval(decisions.confidence, self.knots)
        values, left = self.values.ravel(), decision * len(self.knots) + interval
        reliability_logit = interpolate(values[left], values[left + 1], weight)
        if "identity" not in self.fallback:
            return reliability_logit
        identity = np.array([kind == "identity" for kind in self.fallback])
        return np.asarray(np.where(identity[decision], confidence_logit, reliability_logit))

    def _contradictions(self) -> list[str]:
        wrong = []
        if self.knots[0] != 0 or self.knots[-1] != 1 or not (np.diff(self.knots) > 0).all():
            wrong.append(f"the knots do not rise from 0 to 1: {self.knots.tolist()}")
        for label, knot in np.argwhere(~np.isfinite(self.values)):
            wrong.append(f"label {label} is {self.values[label, knot]} at knot {knot}")
        for label, knot in np.argwhere(self.values[:, 1:] < self.values[:, :-1]):
            before, after = self.values[label, knot : knot + 2]
            wrong.append(f"label {label} falls from {before} at knot {knot} to {after} at knot {knot + 1}")
        return wrong


class SharedCurve(Value, kind="shared"):
    """One curve for every decision."""

    curves: Curves  # K = 1

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions to logit of the reliability `(n,)` float64, by confidence, whatever the label."""
        return self.curves(replace(decisions, decision=np.zeros_like(decisions.decision)))

    def _contradictions(self) -> list[str]:
        return self.curves.violations(1)


class Confidence(Value, kind="confidence"):
    """No projection: the reliability is the calibrated confidence itself."""

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions to logit of the confidence `(n,)` float64."""
        return np.array(decisions.confidence_logit, dtype=np.float64)


def locate_interval(confidence: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidence in [0, 1], any shape, to its interval 0..J-2 and the weight, in [0, 1], of the knot on its right."""
    interval = np.searchsorted(knots[1:-1], confidence, side="right")
    return interval, (confidence - knots[interval]) / np.diff(knots)[interval]


def interpolate(left: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """From `left` to `right >= left` by `weight` in [0, 1]: every rounding keeps the order, and none passes `right`."""
    return np.minimum(left + weight * (right - left), right)  # a weighted mean would do neither


def choose_fallbacks(rows: np.ndarray, least: int) -> tuple[Fallback, ...]:
    """Rows behind each label `(K,)` to what it stands on: fewer than `least` the shared curve, none the identity.

    Where `least` is 0, as in the paper, every label stands on its own, with no row on the start of the fit.
    """
    return tuple("none" if n >= least else "identity" if n == 0 else "shared" for n in rows)


def curves_with_fallbacks(
    knots: np.ndarray, values: np.ndarray, rows: np.ndarray, shared: np.ndarray, least: int
) -> Curves:
    """Curves of fitted `values (K, J)`, with something to stand on where few rows `(K,)` lie behind a label.

    A label with fewer than `least` rows takes `shared (J,)`; a label with none takes the identity (and at its knots
    the logit of the knot, cut to stay finite, so that it can be drawn).
    """
    kinds = choose_fallbacks(rows, least)
    stand_in = {"shared": shared, "identity": scipy.special.logit(np.clip(knots, 1e-6, 1 - 1e-6))}
    chosen = np.stack([stand_in.get(kind, own) for kind, own in zip(kinds, values, strict=True)])
    return Curves(knots, chosen, rows, kinds)
