"""One comparison of two scores on the same fixed decisions: before, after, the change, and what can be claimed of it.

Replicates are of one paired bootstrap: both scores share the resamples, so the replicates of the change are the
changes of the replicates.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tasks.metrics.intervals import UNKNOWN, Interval, interval, two_sided_p

LEVEL = 0.05  # of a claim, held over all that are tested together

Sign = Literal["better", "worse", "not certainly better", "better by one metric and worse by another"]
BETTER: Sign = "better"
WORSE: Sign = "worse"
NOT_CERTAIN: Sign = "not certainly better"
BOTH: Sign = "better by one metric and worse by another"


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number of the fixed decisions and its replicates, None or `(R,)`."""

    value: float
    replicates: np.ndarray | None = None

    @property
    def interval(self) -> Interval:
        """Return where 95% of the replicates lie; NaN without replicates."""
        return UNKNOWN if self.replicates is None else interval(self.replicates)

    @property
    def p(self) -> float:
        """Return the p-value of the number being 0; NaN without replicates."""
        return np.nan if self.replicates is None else two_sided_p(self.replicates)


class Comparison(NamedTuple):
    """One number under two scores of the same fixed decisions."""

    before: Estimate
    after: Estimate

    @property
    def change(self) -> Estimate:
        """Return after minus before, paired."""
        drawn = self.after.replicates, self.before.replicates
        replicates = None if drawn[0] is None or drawn[1] is None else drawn[0] - drawn[1]
        return Estimate(self.after.value - self.before.value, replicates)


def sign_of(direction: int, low: float | None, high: float | None, p: float | None) -> Sign:
    """Return what may be said of a change: better or worse only where its interval and corrected p exclude no change.

    `direction` is the sign of an improvement. None, or NaN, is what is not known; then nothing is certain.
    """
    if low is None or high is None or p is None or not p < LEVEL or not (low > 0 or high < 0):
        return NOT_CERTAIN
    return BETTER if (low > 0) == (direction > 0) else WORSE


def together(signs: Iterable[Sign]) -> Sign:
    """Return what several signs of the same question say of it together."""
    seen = set(signs)
    if {BETTER, WORSE} <= seen:
        return BOTH
    return BETTER if BETTER in seen else WORSE if WORSE in seen else NOT_CERTAIN


def found_per_1000(errors: Any, kept_errors: Any, reviews: Any) -> Any:
    """Return errors found per 1,000 reviews, if all decisions but those kept are reviewed: numbers or columns."""
    return 1000 * (errors - kept_errors) / reviews
