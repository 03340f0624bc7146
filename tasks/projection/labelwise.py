"""The simple label-wise variants: a shift, a line or isotonic steps for each label (paper, section 3.5).

Each is fitted on one label's rows at a time, in the order of their confidence, so that the order in which they came
does not matter. The line (Platt, 1999, on logit c) is ours: the nearest cheap rival of a curve. The fits leave rare
labels as they are; `WithFallbacks` gives those what they stand on in MRP.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy.special import expit

from tasks.metrics.reliability import nll_correct
from tasks.projection.curves import Fallbacks, SharedCurve
from tasks.projection.label_maps import FARTHEST_LOGIT, FARTHEST_SHIFT, Intercepts, Isotonic, Lines
from tasks.projection.rows import Rows
from tasks.protocol.values import Axes, Count, Value

PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0)  # of the mean squared shift; of equals the first is chosen
SMALLEST = 1e-6  # reliability of an isotonic step
RIDGE = 1e-6  # weight, beside the mean log loss, of the squared distance of a line to the identity
TOLERANCE = 1e-12  # where Newton's method stops, in the slope of that sum
ROUNDING = 4e-15  # what its height may rise by: near the optimum its last digits say nothing
PASSES = 100  # over the rows of a label; a line takes about ten


Labelwise = Intercepts | Lines | Isotonic


@dataclass(frozen=True, eq=False)
class WithFallbacks(Value):
    """A label-wise map, with something to stand on where few rows lie behind a label."""

    kind: Literal["labelwise"] = field(default="labelwise", kw_only=True)
    own: Annotated[Labelwise, Field(discriminator="kind")]
    shared: SharedCurve
    fallback: Fallbacks
    rows: Annotated[np.ndarray, Axes("K", of=Count)]  # projection-fit rows behind each label

    def __call__(
        self,
        confidence_logit: np.ndarray,
        decision: np.ndarray,
        gap: np.ndarray | None = None,  # noqa: ARG002 - the contract
    ) -> np.ndarray:
        """logit of the confidence `(n,)` and decision `(n,)` 0..K-1 to logit of the reliability `(n,)` float64."""
        confidence_logit = np.asarray(confidence_logit, dtype=np.float64)
        kind = np.array(self.fallback)[decision]
        stand_in = np.where(kind == "shared", self.shared(confidence_logit, decision), confidence_logit)
        return np.asarray(np.where(kind == "none", self.own(confidence_logit, decision), stand_in))

    def contradictions(self) -> list[str]:
        """What is wrong with the label-wise map or the shared curve; empty if nothing is."""
        return self.own.violations(len(self.rows)) + [f"shared curve: {found}" for found in self.shared.violations()]


def fit_intercepts(fit: Rows, selection: Rows | None, *, n_labels: int) -> list[Intercepts]:
    """The shifts of B fits, at least log loss plus a penalty times their mean square.

    The penalty is that of `PENALTIES` with the least log loss on the `selection` rows, the larger where two are equal;
    without such rows there is none. Unpenalised, a label's shift makes its reliabilities sum to its right rows; one
    that is always right ends at 12, always wrong at -12. A label without rows is not shifted. The order of the rows
    does not matter.
    """
    chosen = []
    for place, at in enumerate(fit.confidence_logit):
        rows = list(rows_by_label(at, fit.decision, fit.correct, n_labels))
        penalties = PENALTIES if selection is not None else PENALTIES[-1:]
        each = [
            Intercepts(np.array([_shift(*mine, 2 * penalty * len(at) / n_labels) for mine in rows]))
            for penalty in penalties
        ]
        if selection is not None:
            judged = selection.confidence_logit[place], selection.decision
            each.sort(key=lambda one: nll_correct(one(*judged), selection.correct))
        chosen.append(each[0])
    return chosen


def fit_isotonic(
    confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, n_labels: int
) -> list[Isotonic]:
    """logit of the confidence `(B, m)`, decision 0..K-1 and correct `(m,)`, to the thresholds of B fits.

    A label of one confidence gets the mean of its rows, a label without rows the line from (0, 0) to (1, 1). The
    order of the rows does not matter.
    """
    rows = [np.flatnonzero(decision == label) for label in range(n_labels)]
    right = [correct[mine] != 0 for mine in rows]
    thresholds = [
        [_thresholds(expit(at[mine].astype(np.float64)), of_label) for mine, of_label in zip(rows, right, strict=True)]
        for at in confidence_logit
    ]
    return [Isotonic(*(tuple(arrays) for arrays in zip(*labels, strict=True))) for labels in thresholds]


def fit_platt(confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, n_labels: int) -> list[Lines]:
    """logit of the confidence `(B, m)`, decision 0..K-1 and correct `(m,)`, to the lines of B fits.

    A label's line minimises its mean log loss plus 1e-6 ((slope - 1)^2 + intercept^2), slope >= 0: unique and finite
    whatever the rows, and without any the identity. The order of the rows does not matter.
    """
    fits = (rows_by_label(at, decision, correct, n_labels) for at in confidence_logit)
    lines = [np.array([_line(*rows) for rows in labels]) for labels in fits]
    return [Lines(of_fit[:, 0], of_fit[:, 1]) for of_fit in lines]


def rows_by_label(
    confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray, n_labels: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows `(m,)` of each label 0..K-1 in turn: logits `(r,)`, rising, and correct `(r,)` bool."""
    order = np.lexsort((correct, confidence_logit, decision))
    ends = np.searchsorted(decision[order], np.arange(1, n_labels))
    for rows in np.split(order, ends):
        yield confidence_logit[rows].astype(np.float64), correct[rows] != 0


def _shift(logits: np.ndarray, right: np.ndarray, penalty: float) -> float:
    """Logits `(r,)` and `right (r,)` of a label's rows to the shift, by Brent's method (1973)."""
    from scipy.optimize import brentq  # noqa: PLC0415 - takes half a second, and only fits need it

    if not len(right):
        return 0.0

    def excess(shift: float) -> float:
        """Of the reliabilities over the right rows, summed without cancellation; it rises with the shift."""
        return float(expit(logits[~right] + shift).sum() - expit(-logits[right] - shift).sum()) + penalty * shift

    if excess(-FARTHEST_SHIFT) >= 0:
        return -FARTHEST_SHIFT
    if excess(FARTHEST_SHIFT) <= 0:
        return FARTHEST_SHIFT
    return float(brentq(excess, -FARTHEST_SHIFT, FARTHEST_SHIFT, xtol=1e-15, rtol=1e-15, maxiter=1000))


def _thresholds(confidence: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and `right` of a label's rows `(r,)` to its thresholds and the reliabilities there."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - takes half a second, and only fits need it

    if not len(right):
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    # values are sorted, and not rows, which takes several times as long
    places, rows = np.unique(confidence, return_counts=True)
    places_of_right, counts = np.unique(confidence[np.flatnonzero(right)], return_counts=True)
    n_right = np.zeros(len(places))
    n_right[np.searchsorted(places, places_of_right)] = counts
    steps = isotonic_regression(n_right / rows, weights=rows).x
    inner = np.r_[False, (steps[1:-1] == steps[:-2]) & (steps[1:-1] == steps[2:]), False][: len(steps)]
    return places[~inner], np.clip(steps[~inner], SMALLEST, 1 - SMALLEST)


def _line(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Rising logits `(r,)` and `right (r,)` to slope and intercept `(2,)`.

    The sum is convex: where its lowest point has a slope below 0, the lowest with slope >= 0 has slope 0.
    """
    x = np.stack([np.clip(logits, -FARTHEST_LOGIT, FARTHEST_LOGIT), np.ones(len(logits))])
    line = _newton(x, right, np.array([1.0, 0.0]))
    return line if line[0] >= 0 else np.r_[0.0, _newton(x[1:], right, np.zeros(1))]


def _newton(x: np.ndarray, right: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Features `(f, r)` and `right (r,)` to the coefficients `(f,)` of least ridged log loss; the ridge is to `start`.

    Newton's method, each step halved until the height falls enough.
    """
    count = max(len(right), 1)

    def height(theta: np.ndarray) -> float:
        t = (theta[:, None] * x).sum(axis=0)
        return float(np.logaddexp(0, np.where(right, -t, t)).sum() / count + RIDGE * ((theta - start) ** 2).sum())

    theta = start
    for _ in range(PASSES):
        q = expit((theta[:, None] * x).sum(axis=0))
        slope = (x * (q - right)).sum(axis=1) / count + 2 * RIDGE * (theta - start)
        if np.abs(slope).max() <= TOLERANCE:
            break
        # sums, not matrix products: the bits of those depend on how many threads there are
        curvature = (x[:, None] * x * (q * (1 - q))).sum(axis=2) / count + 2 * RIDGE * np.eye(len(theta))
        step, size, before = np.linalg.solve(curvature, slope), 1.0, height(theta)
        while height(theta - size * step) > before - 1e-4 * size * (slope @ step) + ROUNDING and size > 1e-9:
            size /= 2
        theta = theta - size * step
    return theta
