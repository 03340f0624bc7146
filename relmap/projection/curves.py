"""Fitted reliability curves.

This module does not import torch, so that maps can be read without it.
"""

from dataclasses import replace
from typing import Annotated, Literal, Protocol

import numpy as np
import scipy
from pydantic import Field

from relmap.projection.decisions import CalibratedDecisions
from relmap.serialization import Axes, Count, Share, Value

# Model that a label uses: "none" for its own model, "shared" for the model shared by all labels, "identity" for
# reliability = confidence
Fallback = Literal["none", "shared", "identity"]
Fallbacks = Annotated[tuple[Fallback, ...], Axes("K")]
Logit = Annotated[float, Field(ge=-1000, le=1000)]  # bounded, so that differences of a curve cannot overflow


class ReliabilityModel(Protocol):
    """A fitted variant: maps decisions to the logit of their reliability."""

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Return the logit of the reliability, shape (n,), float64."""

    def violations(self, n_labels: int | None = None) -> list[str]:
        """Return one sentence for each way in which the model is invalid."""


class Curves(Value, kind="lattice"):
    """One monotone curve for each label; the logit of the reliability is linear between knots (paper, section 3.4).

    Equal confidences of one label get equal reliabilities. The reliability never falls as the confidence rises, not
    even by rounding.

    Attributes:
        knots: Confidences of the knots, 0 = u_1 < ... < u_J = 1, shape (J,).
        values: Logit of the reliability at each knot, nondecreasing in each row, shape (K, J).
        rows: Number of projection-fit rows of each label, shape (K,).
        fallback: Model that each label uses.
    """

    knots: Annotated[np.ndarray, Axes("J", of=Share)]
    values: Annotated[np.ndarray, Axes("K", "J", of=Logit)]
    rows: Annotated[np.ndarray, Axes("K", of=Count)]
    fallback: Fallbacks

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence and label.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        interval, weight = locate_interval(decisions.confidence, self.knots)
        values = self.values.ravel()
        left = decisions.decision * len(self.knots) + interval
        reliability_logit = interpolate(values[left], values[left + 1], weight)
        if "identity" not in self.fallback:
            return reliability_logit
        uses_identity = np.array([kind == "identity" for kind in self.fallback])
        return np.where(uses_identity[decisions.decision], decisions.confidence_logit, reliability_logit)

    def _content_violations(self) -> list[str]:
        violations = []
        if self.knots[0] != 0 or self.knots[-1] != 1 or not (np.diff(self.knots) > 0).all():
            violations.append(f"the knots do not increase from 0 to 1: {self.knots.tolist()}")
        for label, knot in np.argwhere(~np.isfinite(self.values)):
            violations.append(f"the curve of label {label} has the value {self.values[label, knot]} at knot {knot}")
        for label, knot in np.argwhere(self.values[:, 1:] < self.values[:, :-1]):
            before = self.values[label, knot]
            after = self.values[label, knot + 1]
            violations.append(
                f"the curve of label {label} falls from {before} at knot {knot} to {after} at knot {knot + 1}"
            )
        return violations


class SharedCurve(Value, kind="shared"):
    """One curve for all labels.

    Attributes:
        curves: The curve, as `Curves` with K = 1.
    """

    curves: Curves

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence, independently of their label.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        return self.curves(replace(decisions, decision=np.zeros_like(decisions.decision)))

    def _content_violations(self) -> list[str]:
        return self.curves.violations(1)


class Confidence(Value, kind="confidence"):
    """No projection: the reliability is the calibrated confidence."""

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Return the confidence as the reliability.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the confidence, shape (n,), float64.
        """
        return np.array(decisions.confidence_logit, dtype=np.float64)


def locate_interval(confidence: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the interval between knots in which each confidence lies.

    Args:
        confidence: Values in [knots[0], knots[-1]], any shape.
        knots: Strictly increasing knots, shape (J,).

    Returns:
        Index 0..J-2 of the interval, and the weight in [0, 1] of its right knot; both of the shape of `confidence`.
    """
    interval = np.searchsorted(knots[1:-1], confidence, side="right")
    weight = (confidence - knots[interval]) / np.diff(knots)[interval]
    return interval, weight


def interpolate(left: np.ndarray, right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Interpolate linearly, such that rounding cannot make the result fall as the weight rises.

    Args:
        left: Values at weight 0.
        right: Values at weight 1, at least `left`.
        weight: Weights in [0, 1], of the same shape.

    Returns:
        Interpolated values, nondecreasing in the weight and at most `right`.
    """
    # a weighted mean of both ends can fall by rounding as the weight rises, and can exceed the right end
    return np.asarray(np.minimum(left + weight * (right - left), right))


def choose_fallbacks(rows: np.ndarray, minimum_rows: int) -> tuple[Fallback, ...]:
    """Choose the model that each label uses.

    Args:
        rows: Number of rows of each label, shape (K,).
        minimum_rows: Labels with fewer rows use the shared curve, labels without rows the identity. With 0, as in the
            paper, every label uses its own model.

    Returns:
        Model of each of the K labels.
    """
    chosen: list[Fallback] = []
    for n_rows in rows:
        if n_rows >= minimum_rows:
            chosen.append("none")
        elif n_rows == 0:
            chosen.append("identity")
        else:
            chosen.append("shared")
    return tuple(chosen)


def build_curves_with_fallbacks(
    knots: np.ndarray, values: np.ndarray, rows: np.ndarray, shared: np.ndarray, minimum_rows: int
) -> Curves:
    """Build curves in which labels with few rows use the shared curve or the identity.

    Args:
        knots: Knots in [0, 1], shape (J,).
        values: Fitted logits at the knots, shape (K, J).
        rows: Number of rows of each label, shape (K,).
        shared: Logits of the shared curve at the knots, shape (J,).
        minimum_rows: As in `choose_fallbacks`.

    Returns:
        The curves. A label that uses the identity has the clipped logits of the knots as its values, for plots.
    """
    fallback = choose_fallbacks(rows, minimum_rows)
    identity = scipy.special.logit(np.clip(knots, 1e-6, 1 - 1e-6))
    values_by_kind = {"shared": shared, "identity": identity}
    chosen = [values_by_kind.get(kind, own) for kind, own in zip(fallback, values, strict=True)]
    return Curves(knots, np.stack(chosen), rows, fallback)
