"""Simple label-wise variants: a shift, a line or isotonic steps for each label (paper, section 3.5).

Each model is fitted on the rows of one label, sorted by confidence, so that the order of the rows does not matter. The
line (Platt, 1999, on the logit of the confidence) is not part of the paper; it is the simplest alternative to a curve.
The fits do not treat labels with few rows specially; `WithFallbacks` replaces the models of these labels as MRP does.
Within a label, the reliability never falls as the confidence rises, not even by rounding.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
import scipy
from pydantic import Field

from relmap.calibrators.optimizers import newton
from relmap.decisions import CalibratedDecisions
from relmap.io.serialization import Axes, Count, Share, Value
from relmap.metrics.reliability import correctness_log_loss, log_loss_of_logits
from relmap.projection.mrp import Curves, Fallbacks, SharedCurve, interpolate, locate_interval

if TYPE_CHECKING:
    from relmap.projection.rows import FitBatch

# Bound of the absolute shift, which labels with only correct or only wrong rows would reach. It is larger than any
# shift between two probabilities in [1e-6, 1 - 1e-6].
MAX_SHIFT = 30.0
MAX_LOGIT = 40.0  # logits are clipped here before a line is applied; a float64 confidence is 1 from 37 on
PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0)  # weights of the mean squared shift; of equally good ones, the first
MIN_RELIABILITY = 1e-6  # of an isotonic step
RIDGE = 1e-6  # weight of the squared distance of a line to the identity, relative to the mean log loss

Shift = Annotated[float, Field(ge=-MAX_SHIFT, le=MAX_SHIFT)]
Slope = Annotated[float, Field(ge=0, le=1e6)]
Intercept = Annotated[float, Field(ge=-1e6, le=1e6)]
StepArray = Annotated[np.ndarray, Axes("T", of=Share)]


class Intercepts(Value, kind="intercepts"):
    """A shift of the logit for each label: t = logit(confidence) + alpha.

    Different confidences of a label get different reliabilities, except by rounding.

    Attributes:
        alpha: Shift of each label, shape (K,).
    """

    alpha: Annotated[np.ndarray, Axes("K", of=Shift)]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence and label.

        Args:
            decisions: n decisions; logits of the confidence may be infinite.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        return np.asarray(decisions.confidence_logit + self.alpha[decisions.decision])

    def _content_violations(self) -> list[str]:
        outside = np.flatnonzero(~(np.abs(self.alpha) <= MAX_SHIFT))
        return [f"label {label} is shifted by {self.alpha[label]}" for label in outside]


class Lines(Value, kind="lines"):
    """A line in the logit for each label: t = slope * clip(logit(confidence), -farthest, farthest) + intercept.

    Attributes:
        slope: Slope of each label, shape (K,); with 0 all rows of the label tie.
        intercept: Intercept of each label, shape (K,).
        farthest: Largest absolute logit of a confidence that is distinguished.
    """

    slope: Annotated[np.ndarray, Axes("K", of=Slope)]
    intercept: Annotated[np.ndarray, Axes("K", of=Intercept)]
    farthest: Annotated[float, Field(gt=0, le=MAX_LOGIT)] = MAX_LOGIT

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence and label.

        Args:
            decisions: n decisions; logits of the confidence may be infinite.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        clipped = np.clip(decisions.confidence_logit, -self.farthest, self.farthest)
        return np.asarray(self.slope[decisions.decision] * clipped + self.intercept[decisions.decision])

    def _content_violations(self) -> list[str]:
        is_valid = np.isfinite(self.slope) & np.isfinite(self.intercept) & (self.slope >= 0)
        violations = []
        for k in np.flatnonzero(~is_valid):
            violations.append(f"label {k} has slope {self.slope[k]} and intercept {self.intercept[k]}")
        return violations


class Isotonic(Value, kind="isotonic"):
    """For each label, the reliability at thresholds on the confidence, linear between them and constant outside.

    A reliability of exactly 0 or 1, which a fit never returns, has an infinite logit.

    Attributes:
        confidence: Increasing thresholds of each label, K arrays of shape (T,); T differs between labels.
        reliability: Nondecreasing reliability at the thresholds, K arrays of shape (T,).
    """

    confidence: Annotated[tuple[StepArray, ...], Axes("K")]
    reliability: Annotated[tuple[StepArray, ...], Axes("K")]

    def __post_init__(self) -> None:
        for name in ("confidence", "reliability"):
            read_only = tuple(Axes("T").read_only(steps) for steps in getattr(self, name))
            object.__setattr__(self, name, read_only)

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence and label.

        Args:
            decisions: n decisions; logits of the confidence may be infinite.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        confidence = decisions.confidence
        reliability = np.empty(len(decisions.decision))
        for label, (thresholds, values) in enumerate(zip(self.confidence, self.reliability, strict=True)):
            has_label = decisions.decision == label
            if len(thresholds) == 1:
                reliability[has_label] = values[0]
                continue
            clipped = np.clip(confidence[has_label], thresholds[0], thresholds[-1])
            interval, weight = locate_interval(clipped, thresholds)
            reliability[has_label] = interpolate(values[interval], values[interval + 1], weight)
        return np.asarray(scipy.special.logit(reliability))

    def _content_violations(self) -> list[str]:
        violations = []
        for label, (thresholds, values) in enumerate(zip(self.confidence, self.reliability, strict=True)):
            if len(thresholds) != len(values) or not len(thresholds):
                violations.append(f"label {label} has {len(thresholds)} thresholds and {len(values)} values")
            for name, array in (("threshold", thresholds), ("value", values)):
                if not ((array >= 0) & (array <= 1)).all():
                    violations.append(f"label {label} has a {name} outside [0, 1]: {array.tolist()}")
            if not (np.diff(thresholds) > 0).all():
                violations.append(f"the thresholds of label {label} do not increase: {thresholds.tolist()}")
            if (np.diff(values) < 0).any():
                violations.append(f"the reliability of label {label} falls: {values.tolist()}")
        return violations


Labelwise = Intercepts | Lines | Isotonic


class WithFallbacks(Value, kind="labelwise"):
    """A label-wise model in which labels with few rows use the shared curve or the identity.

    Attributes:
        own: Model of the labels with enough rows.
        shared: Curve shared by all labels.
        fallback: Model that each label uses.
        rows: Number of projection-fit rows of each label, shape (K,).
    """

    own: Annotated[Labelwise, Field(discriminator="kind")]
    shared: SharedCurve
    fallback: Fallbacks
    rows: Annotated[np.ndarray, Axes("K", of=Count)]

    def __call__(self, decisions: CalibratedDecisions) -> np.ndarray:
        """Score decisions by confidence and label.

        Args:
            decisions: n decisions.

        Returns:
            Logit of the reliability, shape (n,), float64.
        """
        fallback = np.array(self.fallback)
        uses_shared = (fallback == "shared")[decisions.decision]
        uses_own = (fallback == "none")[decisions.decision]
        fallback_logit = np.where(uses_shared, self.shared(decisions), decisions.confidence_logit)
        return np.where(uses_own, self.own(decisions), fallback_logit)

    def _content_violations(self) -> list[str]:
        own = self.own.violations(len(self.rows))
        shared = [f"shared curve: {violation}" for violation in self.shared.violations()]
        return own + shared


def fit_intercepts(batch: "FitBatch") -> list[Intercepts]:
    """Fit a shift for each label by penalized log loss.

    The penalty is a weight times the mean squared shift. Of the weights in PENALTIES, the one with the lowest log loss
    on the selection rows is chosen, and the largest one of equally good weights. Without selection rows, the weight is
    0; the reliabilities of a label then sum to its number of correct rows. A label without rows is not shifted.

    Args:
        batch: Batch of B fits.

    Returns:
        Shifts of each fit.
    """
    n_rows = len(batch.fit_rows.correct)
    selection = batch.selection_rows
    weights = PENALTIES if selection is not None else PENALTIES[-1:]
    # derivatives of the penalty in a shift are these numbers times the shift, if the log loss is summed over rows
    penalties = [2 * weight * n_rows / batch.n_labels for weight in weights]
    chosen = []
    for fit, rows_by_label in enumerate(batch.rows_by_label):
        candidates = []
        for penalty in penalties:
            alpha = [_fit_shift(rows.confidence_logit, rows.correct, penalty) for rows in rows_by_label]
            candidates.append(Intercepts(np.array(alpha)))
        if selection is None:
            chosen.append(candidates[0])
            continue
        decisions = selection.by_calibrator[fit]
        losses = [correctness_log_loss(shifts(decisions), selection.correct).mean() for shifts in candidates]
        chosen.append(candidates[losses.index(min(losses))])
    return chosen


def fit_isotonic(batch: "FitBatch") -> list[Isotonic]:
    """Fit an isotonic regression of correctness on confidence for each label.

    A label with one distinct confidence gets the share of correct rows as a constant. A label without rows gets the
    identity.

    Args:
        batch: Batch of B fits.

    Returns:
        Thresholds and reliabilities of each fit.
    """
    correct = batch.fit_rows.correct != 0
    label_rows = [np.flatnonzero(batch.fit_rows.decision == label) for label in range(batch.n_labels)]
    fits = []
    for decisions in batch.fit_rows.by_calibrator:
        thresholds = []
        reliabilities = []
        for rows in label_rows:
            confidence = scipy.special.expit(decisions.confidence_logit[rows])
            label_thresholds, label_reliabilities = _fit_steps(confidence, correct[rows])
            thresholds.append(label_thresholds)
            reliabilities.append(label_reliabilities)
        fits.append(Isotonic(tuple(thresholds), tuple(reliabilities)))
    return fits


def fit_platt(batch: "FitBatch") -> list[Lines]:
    """Fit a line for each label.

    The line minimizes the mean log loss of the label's rows plus RIDGE ((slope - 1)² + intercept²) with slope >= 0. The
    minimum is unique and finite for any rows; without rows, it is the identity.

    Args:
        batch: Batch of B fits.

    Returns:
        Lines of each fit.
    """
    fits = []
    for rows_by_label in batch.rows_by_label:
        lines = np.array([_fit_line(rows.confidence_logit, rows.correct) for rows in rows_by_label])
        fits.append(Lines(slope=lines[:, 0], intercept=lines[:, 1]))
    return fits


def add_label_fallbacks(models: Sequence[Labelwise], batch: "FitBatch") -> list[WithFallbacks]:
    """Add the fallbacks of labels with few rows to label-wise models.

    Args:
        models: Model of each of the B fits.
        batch: The batch on which they were fitted.

    Returns:
        The models with fallbacks.
    """
    n_rows = batch.rows_per_label
    with_fallbacks = []
    for model, values in zip(models, batch.fallback_values, strict=True):
        shared = SharedCurve(Curves(batch.knots, values[None], n_rows.sum(keepdims=True), ("none",)))
        with_fallbacks.append(WithFallbacks(model, shared, batch.fallback, n_rows))
    return with_fallbacks


def fit_shifts_with_fallbacks(batch: "FitBatch") -> list[WithFallbacks]:
    """Fit a shift for each label with enough rows.

    Args:
        batch: Batch of B fits.

    Returns:
        Shifts with fallbacks of each fit.
    """
    return add_label_fallbacks(fit_intercepts(batch), batch)


def fit_isotonic_with_fallbacks(batch: "FitBatch") -> list[WithFallbacks]:
    """Fit isotonic steps for each label with enough rows.

    Args:
        batch: Batch of B fits.

    Returns:
        Steps with fallbacks of each fit.
    """
    return add_label_fallbacks(fit_isotonic(batch), batch)


def fit_platt_with_fallbacks(batch: "FitBatch") -> list[WithFallbacks]:
    """Fit a line for each label with enough rows.

    Args:
        batch: Batch of B fits.

    Returns:
        Lines with fallbacks of each fit.
    """
    return add_label_fallbacks(fit_platt(batch), batch)


def _fit_shift(logits: np.ndarray, correct: np.ndarray, penalty: float) -> float:
    """Find the shift of one label's rows by the method of Brent (1973); of equally good shifts, 0 if it is one."""

    def derivative(shift: float) -> float:
        """Compute the derivative of the penalized log loss, which rises with the shift.

        The derivative of the log loss is the sum of the reliabilities minus the number of correct rows. It is computed
        without cancellation.

        Returns:
            The derivative.
        """
        excess_of_wrong = scipy.special.expit(logits[~correct] + shift)  # reliability - 0
        deficit_of_correct = scipy.special.expit(-logits[correct] - shift)  # 1 - reliability
        return float(excess_of_wrong.sum() - deficit_of_correct.sum()) + penalty * shift

    # also without rows, and if all of them are certain and rightly so, which determines no shift
    if derivative(0.0) == 0:
        return 0.0
    if derivative(-MAX_SHIFT) >= 0:
        return -MAX_SHIFT
    if derivative(MAX_SHIFT) <= 0:
        return MAX_SHIFT
    return float(scipy.optimize.brentq(derivative, -MAX_SHIFT, MAX_SHIFT, xtol=1e-15, rtol=1e-15, maxiter=1000))


def _fit_steps(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit thresholds and reliabilities, shape (T,) each, to one label's rows, shape (r,) each."""
    if not len(correct):
        return np.array([0.0, 1.0]), np.array([0.0, 1.0])
    # sorting confidences is several times faster than argsort
    distinct, n_rows = np.unique(confidence, return_counts=True)
    distinct_correct, counts = np.unique(confidence[correct], return_counts=True)
    n_correct = np.zeros(len(distinct))
    n_correct[np.searchsorted(distinct, distinct_correct)] = counts
    steps = scipy.optimize.isotonic_regression(n_correct / n_rows, weights=n_rows).x
    is_inner = np.zeros(len(steps), dtype=bool)  # points within a step are redundant
    is_inner[1:-1] = (steps[1:-1] == steps[:-2]) & (steps[1:-1] == steps[2:])
    return distinct[~is_inner], np.clip(steps[~is_inner], MIN_RELIABILITY, 1 - MIN_RELIABILITY)


def _fit_line(logits: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Fit slope and intercept, shape (2,), to one label's rows, shape (r,) each."""
    features = np.stack([np.clip(logits, -MAX_LOGIT, MAX_LOGIT), np.ones(len(logits))])
    line = _minimize_ridged_log_loss(features, correct, np.array([1.0, 0.0]))
    if line[0] >= 0:
        return line
    # the objective is convex, so if its minimum has a negative slope, the constrained minimum has slope 0
    intercept = _minimize_ridged_log_loss(features[1:], correct, np.zeros(1))
    return np.append(0.0, intercept)


def _minimize_ridged_log_loss(features: np.ndarray, correct: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Fit coefficients (F,) of features (F, r) by mean log loss plus RIDGE times the squared distance to `start`."""
    n_rows = max(len(correct), 1)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        # sums instead of matrix products, whose rounding errors depend on the number of threads
        logit = (theta[:, None] * features).sum(axis=0)
        reliability = scipy.special.expit(logit)
        distance = theta - start
        log_loss = log_loss_of_logits(logit, correct).sum()
        value = float(log_loss / n_rows + RIDGE * (distance**2).sum())
        gradient = (features * (reliability - correct)).sum(axis=1) / n_rows + 2 * RIDGE * distance
        variance = reliability * (1 - reliability)
        hessian = (features[:, None] * features * variance).sum(axis=2) / n_rows + 2 * RIDGE * np.eye(len(theta))
        return value, gradient, hessian

    return newton(objective, start, 2 * RIDGE)
