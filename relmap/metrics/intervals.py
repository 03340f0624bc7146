"""What the replicates of a bootstrap say: percentile intervals, p-values, and Holm's correction of these.

All three need no normal approximation (Efron and Tibshirani, 1993, chapter 13; Davison and Hinkley, 1997, section 4.4).
And what can be claimed of two scores of the same fixed decisions. Their bootstrap is paired: both share the resamples,
so the replicates of the change are the changes of the replicates.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy

MAX_UNDEFINED_SHARE = 0.05  # share of replicates that may be NaN
TAIL_PROBABILITY = (1 - 0.95) / 2  # of an interval, at either end
SIGNIFICANCE_LEVEL = 0.05  # of a claim, held over all that are tested together
Sign = Literal[
    "better",
    "worse",
    "not certainly better",
    "better by one metric and worse by another",
    "with no relevant difference",
]
BETTER, WORSE, NOT_CERTAIN, MIXED_SIGNS, NO_DIFFERENCE = get_args(Sign)


class Interval(NamedTuple):
    """Where a quantity lies if test rows are drawn again; all in the unit of the replicates."""

    standard_error: float  # deviation of the replicates, with ddof 1
    low: float
    high: float


UNKNOWN_INTERVAL = Interval(np.nan, np.nan, np.nan)


def percentile_interval(replicates: np.ndarray) -> Interval:
    """Return the percentile interval of replicates `(R,)`, in which 95% of them lie; NaN of fewer than two.

    NaN replicates (AUPR-Error of a resample without errors) are left out. Where they are more than 5%, the interval
    and its error would be those of another quantity, and are NaN.
    """
    defined = _defined(replicates)
    if len(defined) < 2:
        return UNKNOWN_INTERVAL
    low, high = np.quantile(defined, [TAIL_PROBABILITY, 1 - TAIL_PROBABILITY])
    return Interval(float(defined.std(ddof=1)), float(low), float(high))


def two_sided_p(replicates: np.ndarray) -> float:
    """Return the p-value of "the difference is 0" from the replicates `(R,)` of a difference, in [2/(R+1), 1].

    Twice the smaller share of replicates on either side of 0, where one at 0 is on both, and one more is counted on
    each, so that p is never 0. It is below 0.05 about where `interval` leaves out 0.
    NaN replicates are treated as in `interval`.
    """
    defined = _defined(replicates)
    if len(defined) == 0:
        return np.nan
    smaller = min(np.count_nonzero(defined <= 0), np.count_nonzero(defined >= 0))
    return min(1.0, 2 * (smaller + 1) / (len(defined) + 1))


def holm_adjust(p_values: np.ndarray) -> np.ndarray:
    """Map p-values `(m,)` to those adjusted for all of them being tested, `(m,)` in [0, 1] (Holm, 1979).

    Rejecting where an adjusted one is at most a has a chance of at most a to reject any true hypothesis, however the
    tests depend on one another. A NaN is a test that was not made: it stays, and the others do not pay for it.
    """
    adjusted = np.array(p_values, dtype=np.float64)
    made = np.flatnonzero(~np.isnan(adjusted))
    rising = made[np.argsort(adjusted[made], kind="stable")]
    left = np.arange(len(rising), 0, -1)  # hypotheses that were not rejected before
    adjusted[rising] = np.minimum(1, np.maximum.accumulate(adjusted[rising] * left))
    return adjusted


def share_confidence_interval(correct: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the chance of being right lies, low and high `(g,)`, exact for independent rows.

    Of `correct` among `rows`, both `(g,)`; each end is missed in 2.5% of cases at most (Clopper and Pearson, 1934).
    """
    low = np.nan_to_num(scipy.special.betaincinv(correct, rows - correct + 1, TAIL_PROBABILITY), nan=0.0)
    high = np.nan_to_num(scipy.special.betaincinv(correct + 1, rows - correct, 1 - TAIL_PROBABILITY), nan=1.0)
    return low, high


def _defined(replicates: np.ndarray) -> np.ndarray:
    """The replicates that are no NaN; none of them where too many are."""
    defined = replicates[~np.isnan(replicates)]
    too_many = len(replicates) - len(defined) > MAX_UNDEFINED_SHARE * len(replicates)
    return defined[:0] if too_many else defined


class Estimate(NamedTuple):
    """A number of the fixed decisions and its replicates, None or `(R,)`."""

    value: float
    replicates: np.ndarray | None = None

    def __sub__(self, before: "Estimate") -> "Estimate":
        """Return the change from another estimate, whose replicates are of the same resamples."""
        replicates = None
        if self.replicates is not None and before.replicates is not None:
            replicates = self.replicates - before.replicates
        return Estimate(self.value - before.value, replicates)

    @property
    def interval(self) -> Interval:
        """Return where 95% of the replicates lie; NaN without replicates."""
        return UNKNOWN_INTERVAL if self.replicates is None else percentile_interval(self.replicates)

    @property
    def p(self) -> float:
        """Return the p-value of the number being 0; NaN without replicates."""
        return np.nan if self.replicates is None else two_sided_p(self.replicates)


def classify_change(direction: int, low: float | None, high: float | None, p: float | None) -> Sign:
    """Return what may be said of a change: better or worse only where its interval and corrected p exclude no change.

    `direction` is the sign of an improvement. None, or NaN, is what is not known; then nothing is certain.
    """
    if low is None or high is None or p is None or not p < SIGNIFICANCE_LEVEL or not (low > 0 or high < 0):
        return NOT_CERTAIN
    return BETTER if (low > 0) == (direction > 0) else WORSE


def classify_relevant_change(
    direction: int,
    change: float | None,
    low: float | None,
    high: float | None,
    p: float | None,
    smallest: float,
) -> Sign:
    """Return what may be said of a change when a change below `smallest` is too small to matter.

    Args:
        direction: Sign of an improvement, 1 or -1.
        change: The change; None if it is unknown.
        low: Lower end of its 95% interval; None or NaN if it is unknown.
        high: Upper end.
        p: Corrected p-value of no change; None or NaN if it is unknown.
        smallest: Smallest relevant change, 0 or more, in the unit of the change.

    Returns:
        Better or worse if that is certain and the change is relevant. No relevant difference if the change is certain
        but smaller, or if the interval holds no relevant change.
    """
    sign = classify_change(direction, low, high, p)
    if sign == NOT_CERTAIN:
        within = low is not None and high is not None and -smallest < low <= high < smallest
        return NO_DIFFERENCE if within else NOT_CERTAIN
    return sign if change is None or abs(change) >= smallest else NO_DIFFERENCE


def combine_signs(signs: Iterable[Sign]) -> Sign:
    """Return what several signs of the same question say of it together."""
    seen = set(signs)
    if {BETTER, WORSE} <= seen:
        return MIXED_SIGNS
    if seen == {NO_DIFFERENCE}:
        return NO_DIFFERENCE
    return BETTER if BETTER in seen else WORSE if WORSE in seen else NOT_CERTAIN


def format_interval(low: float | None, high: float | None, how: str) -> str:
    """Return a 95% interval as it stands behind its number, each end shown as `how` says; empty where it is unknown."""
    return "" if low is None or high is None else f" (95% interval {low:{how}} to {high:{how}})"


def errors_found_per_1000(errors: Any, kept_errors: Any, reviews: Any) -> Any:
    """Return errors found per 1,000 reviews, if all decisions but those kept are reviewed: numbers or columns."""
    return 1000 * (errors - kept_errors) / reviews
