"""The simple label-wise variants: a shift, a line or isotonic steps for each label (paper, section 3.5).

Each is fitted on one label's rows at a time, in the order of their confidence, so that the order in which they came
does not matter. The line (Platt, 1999, on logit c) is ours: the nearest cheap rival of a curve. The fits leave rare
labels as they are; `WithFallbacks` gives those what they stand on in MRP. No map falls within a label as the
confidence rises, to the last bit.
"""

from typing import TYPE_CHECKING, Annotated

import numpy as np
import scipy
from pydantic import Field

from relmap.metrics.reliability import correctness_log_loss
from relmap.optimizers import newton
from relmap.projection.curves import Fallbacks, SharedCurve, interpolate, locate_interval
from relmap.projection.decisions import CalibratedDecisions
from relmap.serialization import Axes, Count, Share, Value

if TYPE_CHECKING:
    from relmap.projection.batch import FitBatch  # imports torch, which whoever reads a map does without

MAX_SHIFT = 12.0  # where a label that is always right, or always wrong, ends
MAX_LOGIT = 40.0  # a line reads no logit beyond: a float64 confidence is 1 from 37 on
PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0)  # of the mean squared shift; of equals the first is chosen
MIN_RELIABILITY = 1e-6  # reliability of an isotonic step
RIDGE = 1e-6  # weight, beside the mean log loss, of the squared distance of a line to the identity

Shift = Annotated[float, Field(ge=-MAX_SHIFT, le=MAX_SHIFT)]
Slope = Annotated[float, Field(ge=0, le=1e6)]
Intercept = Annotated[float, Field(ge=-1e6, le=1e6)]
StepArray = Annotated[np.ndarray, Axes("T", of=Share)]


class Intercepts(Value, kind="intercepts"):
    """A shift of the logit for each label: t = logit c + alpha. No ties but those of c and of rounding."""

    alpha: Annotated[np.ndarray, Axes("K", of=Shift)]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions, with infinite logits of the confidence too, to logit of the reliability `(n,)` float64."""
        return np.asarray(decisions.confidence_logit + self.alpha[decisions.decision])

    def _contradictions(self) -> list[str]:
        outside = np.flatnonzero(~(np.abs(self.alpha) <= MAX_SHIFT))
        return [f"label {label} is shifted by {self.alpha[label]}" for label in outside]


class Lines(Value, kind="lines"):
    """A line in the logit for each label: t = slope * logit c + intercept, logit c cut to [-farthest, farthest]."""

    slope: Annotated[np.ndarray, Axes("K", of=Slope)]  # where it is 0 all rows of the label tie
    intercept: Annotated[np.ndarray, Axes("K", of=Intercept)]
    farthest: Annotated[float, Field(gt=0, le=MAX_LOGIT)] = MAX_LOGIT

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions, with infinite logits of the confidence too, to logit of the reliability `(n,)` float64."""
        within = np.clip(decisions.confidence_logit, -self.farthest, self.farthest)
        return np.asarray(self.slope[decisions.decision] * within + self.intercept[decisions.decision])

    def _contradictions(self) -> list[str]:
        sound = np.isfinite(self.slope) & np.isfinite(self.intercept) & (self.slope >= 0)
        return [f"label {k} has the line {self.slope[k]} l + {self.intercept[k]}" for k in np.flatnonzero(~sound)]


class Isotonic(Value, kind="isotonic"):
    """For each label, thresholds on the confidence, and the reliability between them on straight lines.

    Beyond its outer thresholds a label stays as it is there. A reliability of
    exactly 0 or 1, which a fit never gives, has a logit of -inf or inf.
    """

    confidence: Annotated[tuple[StepArray, ...], Axes("K")]  # T rising thresholds of each label, T its own
    reliability: Annotated[tuple[StepArray, ...], Axes("K")]  # at these thresholds; none falls

    def __post_init__(self) -> None:
        for name in ("confidence", "reliability"):
            object.__setattr__(self, name, tuple(Axes("T").read_only(steps) for steps in getattr(self, name)))

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions, with infinite logits of the confidence too, to logit of the reliability `(n,)` float64."""
        confidence, reliability = decisions.confidence, np.empty(len(decisions.decision))
        for label, (thresholds, values) in enumerate(zip(self.confidence, self.reliability, strict=True)):
            mine = decisions.decision == label
            if len(thresholds) == 1:
                reliability[mine] = values[0]
                continue
            interval, weight = locate_interval(np.clip(confidence[mine], thresholds[0], thresholds[-1]), thresholds)
            reliability[mine] = interpolate(values[interval], values[interval + 1], weight)
        return np.asarray(scipy.special.logit(reliability))

    def _contradictions(self) -> list[str]:
        wrong = []
        for label, (thresholds, values) in enumerate(zip(self.confidence, self.reliability, strict=True)):
            if len(thresholds) != len(values) or not len(thresholds):
                wrong.append(f"label {label} has {len(thresholds)} thresholds and {len(values)} values")
            for name, array in (("threshold", thresholds), ("value", values)):
                if not ((array >= 0) & (array <= 1)).all():
                    wrong.append(f"label {label} has a {name} outside [0, 1]: {array.tolist()}")
            if not (np.diff(thresholds) > 0).all():
                wrong.append(f"the thresholds of label {label} do not rise: {thresholds.tolist()}")
            if (np.diff(values) < 0).any():
                wrong.append(f"the reliability of label {label} falls: {values.tolist()}")
        return wrong


Labelwise = Intercepts | Lines | Isotonic


class WithFallbacks(Value, kind="labelwise"):
    """A label-wise map, with something to stand on where few rows lie behind a label."""

    own: Annotated[Labelwise, Field(discriminator="kind")]
    shared: SharedCurve
    fallback: Fallbacks
    rows: Annotated[np.ndarray, Axes("K", of=Count)]  # projection-fit rows behind each label

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """n decisions to logit of the reliability `(n,)` float64, by confidence and label."""
        reliability_logit = self.own(decisions)
        if {*self.fallback} <= {"none"}:
            return reliability_logit
        kinds = np.array(self.fallback)
        shared, own = ((kinds == kind)[decisions.decision] for kind in ("shared", "none"))
        stand_in = np.where(shared, self.shared(decisions), decisions.confidence_logit)
        return np.asarray(np.where(own, reliability_logit, stand_in))

    def _contradictions(self) -> list[str]:
        return self.own.violations(len(self.rows)) + [f"shared curve: {what}" for what in self.shared.violations()]


def fit_intercepts(batch: "FitBatch") -> list[Intercepts]:
    """The shifts of B fits, at least log loss plus a penalty times their mean square.

    The penalty is that of `PENALTIES` with the least log loss on the selection rows, the larger where two are equal;
    without such rows there is none. Unpenalised, a label's shift makes its reliabilities sum to its correct rows; one
    that is always correct ends at 12, always wrong at -12. A label without rows is not shifted. The order of the rows
    does not matter.
    """
    chosen, judge = [], batch.selection
    penalties = [
        2 * penalty * len(batch.fit.correct) / batch.n_labels for penalty in PENALTIES[-1 if judge is None else 0 :]
    ]
    for fit, rows in enumerate(batch.by_label):
        each = [Intercepts(np.array([_shift(*mine, penalty) for mine in rows])) for penalty in penalties]
        if judge is not None:
            each.sort(key=lambda shifts: correctness_log_loss(shifts(judge.under[fit]), judge.correct).mean())
        chosen.append(each[0])
    return chosen


def fit_isotonic(batch: "FitBatch") -> list[Isotonic]:
    """The thresholds of B fits.

    A label of one confidence gets the mean of its rows, a label without rows the line from (0, 0) to (1, 1). The
    order of the rows does not matter.
    """
    rows = [np.flatnonzero(batch.fit.decision == label) for label in range(batch.n_labels)]
    z, correct = [under.confidence_logit for under in batch.fit.under], batch.fit.correct != 0
    fits = ([_thresholds(scipy.special.expit(of_fit[mine]), correct[mine]) for mine in rows] for of_fit in z)
    return [Isotonic(*zip(*labels, strict=True)) for labels in fits]


def fit_platt(batch: "FitBatch") -> list[Lines]:
    """The lines of B fits.

    A label's line minimises its mean log loss plus 1e-6 ((slope - 1)^2 + intercept^2), slope >= 0: unique and finite
    whatever the rows, and without any the identity. The order of the rows does not matter.
    """
    return [Lines(*np.array([_line(*mine) for mine in rows]).T) for rows in batch.by_label]


def _shift(logits: np.ndarray, correct: np.ndarray, penalty: float) -> float:
    """Logits `(r,)` and `correct (r,)` of a label's rows to the shift, by Brent's method (1973)."""
    if not len(correct):
        return 0.0

    def excess(shift: float) -> float:
        """Of the reliabilities over the correct rows, summed without cancellation; it rises with the shift."""
        missing, present = scipy.special.expit(-logits[correct] - shift), scipy.special.expit(logits[~correct] + shift)
        return float(present.sum() - missing.sum()) + penalty * shift

    if excess(-MAX_SHIFT) >= 0:
        return -MAX_SHIFT
    if excess(MAX_SHIFT) <= 0:
        return MAX_SHIFT
    return float(scipy.optimize.brentq(excess, -MAX_SHIFT, MAX_SHIFT, xtol=1e-15, rtol=1e-15, maxiter=1000))


def _thresholds(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and `correct` of a label's rows `(r,)` to its thresholds and the reliabilities there."""
    if not len(correct):
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    # values are sorted, and not rows, which takes several times as long
    places, rows = np.unique(confidence, return_counts=True)
    places_of_correct, counts = np.unique(confidence[correct], return_counts=True)
    n_correct = np.zeros(len(places))
    n_correct[np.searchsorted(places, places_of_correct)] = counts
    steps = scipy.optimize.isotonic_regression(n_correct / rows, weights=rows).x
    inner = np.r_[False, (steps[1:-1] == steps[:-2]) & (steps[1:-1] == steps[2:]), False][: len(steps)]
    return places[~inner], np.clip(steps[~inner], MIN_RELIABILITY, 1 - MIN_RELIABILITY)


def _line(logits: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Rising logits `(r,)` and `correct (r,)` to slope and intercept `(2,)`."""
    x = np.stack([np.clip(logits, -MAX_LOGIT, MAX_LOGIT), np.ones(len(logits))])
    line = _fitted_line(x, correct, np.array([1.0, 0.0]))
    # the sum is convex: where its lowest point has a slope below 0, the lowest with slope >= 0 has slope 0
    return line if line[0] >= 0 else np.r_[0.0, _fitted_line(x[1:], correct, np.zeros(1))]


def _fitted_line(x: np.ndarray, correct: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Features `(f, r)` and `correct (r,)` to the coefficients `(f,)` of least log loss, with a ridge to `start`."""
    count = max(len(correct), 1)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        # sums, not matrix products: the bits of those depend on how many threads there are
        t = (theta[:, None] * x).sum(axis=0)
        q, off = scipy.special.expit(t), theta - start
        value = float(np.logaddexp(0, np.where(correct, -t, t)).sum() / count + RIDGE * (off**2).sum())
        gradient = (x * (q - correct)).sum(axis=1) / count + 2 * RIDGE * off
        hessian = (x[:, None] * x * (q * (1 - q))).sum(axis=2) / count + 2 * RIDGE * np.eye(len(theta))
        return value, gradient, hessian

    return newton(objective, start, 2 * RIDGE)
