"""The simple label-wise maps once they are fitted: a shift, a line or steps for each label.

None falls within a label as the confidence rises, to the last bit.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy.special import expit, logit

from tasks.projection.curves import place
from tasks.projection.decisions import Decisions
from tasks.protocol.values import Axes, Share, Value

FARTHEST_SHIFT = 12.0  # where a label that is always right, or always wrong, ends
FARTHEST_LOGIT = 40.0  # a line reads no logit beyond: a float64 confidence is 1 from 37 on

Shift = Annotated[float, Field(ge=-FARTHEST_SHIFT, le=FARTHEST_SHIFT)]
Slope = Annotated[float, Field(ge=0, le=1e6)]
Intercept = Annotated[float, Field(ge=-1e6, le=1e6)]
Steps = Annotated[np.ndarray, Axes("T", of=Share)]


@dataclass(frozen=True, eq=False)
class Intercepts(Value):
    """A shift of the logit for each label: t = logit c + alpha. No ties but those of c and of rounding."""

    kind: Literal["intercepts"] = field(default="intercepts", kw_only=True)
    alpha: Annotated[np.ndarray, Axes("K", of=Shift)]

    def __call__(self, decisions: Decisions) -> np.ndarray:
        """n decisions, with infinite logits of the confidence too, to logit of the reliability `(n,)` float64."""
        return np.asarray(decisions.confidence_logit + self.alpha[decisions.decision])

    def contradictions(self) -> list[str]:
        """A sentence for each label whose shift lies outside [-12, 12]."""
        outside = np.flatnonzero(~(np.abs(self.alpha) <= FARTHEST_SHIFT))
        return [f"label {label} is shifted by {self.alpha[label]}" for label in outside]


@dataclass(frozen=True, eq=False)
class Lines(Value):
    """A line in the logit for each label: t = slope * logit c + intercept, with logit c cut to [-40, 40]."""

    kind: Literal["lines"] = field(default="lines", kw_only=True)
    slope: Annotated[np.ndarray, Axes("K", of=Slope)]  # where it is 0 all rows of the label tie
    intercept: Annotated[np.ndarray, Axes("K", of=Intercept)]

    def __call__(self, decisions: Decisions) -> np.ndarray:
        """n decisions, with infinite logits of the confidence too, to logit of the reliability `(n,)` float64."""
        within = np.clip(decisions.confidence_logit, -FARTHEST_LOGIT, FARTHEST_LOGIT)
        return np.asarray(self.slope[decisions.decision] * within + self.intercept[decisions.decision])

    def contradictions(self) -> list[str]:
        """A sentence for each label whose line falls or is not finite."""
        sound = np.isfinite(self.slope) & np.isfinite(self.intercept) & (self.slope >= 0)
        return [f"label {k} has the line {self.slope[k]} l + {self.intercept[k]}" for k in np.flatnonzero(~sound)]


@dataclass(frozen=True, eq=False)
class Isotonic(Value):
    """For each label, thresholds on the confidence, and the reliability between them on straight lines.

    Beyond its outer thresholds a label stays as it is there. A reliability of
    exactly 0 or 1, which a fit never gives, has a logit of -inf or inf.
    """

    kind: Literal["isotonic"] = field(default="isotonic", kw_only=True)
    confidence: Annotated[tuple[Steps, ...], Axes("K")]  # T rising thresholds of each label, T its own
    reliability: Annotated[tuple[Steps, ...], Axes("K")]  # at these thresholds; none falls

    def __post_init__(self) -> None:
        for name in ("confidence", "reliability"):
            object.__setattr__(self, name, tuple(Axes("T").read_only(steps) for steps in getattr(self, name)))

    def __call__(self, decisions: Decisions) -> np.ndarray:
        """n decisions, with infinite logits of the confidence too, to logit of the reliability `(n,)` float64."""
        confidence, reliability = expit(decisions.confidence_logit), np.empty(len(decisions.decision))
        for label, (thresholds, values) in enumerate(zip(self.confidence, self.reliability, strict=True)):
            mine = decisions.decision == label
            if len(thresholds) == 1:
                reliability[mine] = values[0]
                continue
            interval, weight = place(np.clip(confidence[mine], thresholds[0], thresholds[-1]), thresholds)
            left, right = values[interval], values[interval + 1]
            reliability[mine] = np.minimum(left + weight * (right - left), right)  # so, every rounding keeps the order
        return np.asarray(logit(reliability))

    def contradictions(self) -> list[str]:
        """What is wrong with these thresholds, a sentence for each label; empty if nothing is."""
        found = []
        for label, (thresholds, values) in enumerate(zip(self.confidence, self.reliability, strict=True)):
            if len(thresholds) != len(values) or not len(thresholds):
                found.append(f"label {label} has {len(thresholds)} thresholds and {len(values)} values")
            for name, array in (("threshold", thresholds), ("value", values)):
                if not ((array >= 0) & (array <= 1)).all():
                    found.append(f"label {label} has a {name} outside [0, 1]: {array.tolist()}")
            if not (np.diff(thresholds) > 0).all():
                found.append(f"the thresholds of label {label} do not rise: {thresholds.tolist()}")
            if (np.diff(values) < 0).any():
                found.append(f"the reliability of label {label} falls: {values.tolist()}")
        return found
