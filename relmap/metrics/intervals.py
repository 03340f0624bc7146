"""What the replicates of a bootstrap say: percentile intervals, p-values, and Holm's correction of these.

All three need no normal approximation (Efron and Tibshirani, 1993, chapter 13; Davison and Hinkley, 1997, section 4.4).
And what can be claimed of two scores of the same fixed decisions. Their bootstrap is paired: both share the resamples,
so the replicates of the change are the changes of the replicates.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy

MOST_UNDEFINED = 0.05  # share of replicates that may be NaN
OUTSIDE = (1 - 0.95) / 2  # of an interval, at either end
LEVEL = 0.05  # of a claim, held over all that are tested together
Sign = Literal[
    "better",
    "worse",
    "not certainly better",
    "better by one metric and worse by another",
    "with no relevant difference",
]
BETTER, WORSE, NOT_CERTAIN, BOTH, NO_DIFFERENCE = get_args(Sign)


class Interval(NamedTuple):
    """Where a quantity lies if test rows are drawn again; all in the unit of the replicates."""

    standard_error: float  # deviation of the replicates, with ddof 1
    low: float
    high: float


UNKNOWN = Interval(np.nan, np.nan, np.nan)


def interval(replicates: np.ndarray) -> Interval:
    """Return the percentile interval of replicates `(R,)`, in which 95% of them lie; NaN of fewer than two.

    NaN replicates (AUPR-Error of a resample without errors) are left out. Where they are more than 5%, the interval
    and its error would be those of another quantity, and are NaN.
    """
    defined = _defined(replicates)
    if len(defined) < 2:
        return UNKNOWN
    low, high = np.quantile(defined, [OUTSIDE, 1 - OUTSIDE])
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


def holm(p_values: np.ndarray) -> np.ndarray:
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


def interval_of_share(correct: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the chance of being right lies, low and high `(g,)`, exact for independent rows.

    Of `correct` among `rows`, both `(g,)`; each end is missed in 2.5% of cases at most (Clopper and Pearson, 1934).
    """
    low = np.nan_to_num(scipy.special.betaincinv(correct, rows - correct + 1, OUTSIDE), nan=0.0)
    high = np.nan_to_num(scipy.special.betaincinv(correct + 1, rows - correct, 1 - OUTSIDE), nan=1.0)
    return low, high


def effective_rows(
    share: np.ndarray,
    total: np.ndarray,
    squared_residuals: np.ndarray,
    squared_rows: np.ndarray,
    squared_copies: np.ndarray,
) -> np.ndarray:
    """Compute how many independent rows would give a share the variance that it has with these groups (Kish, 1965).

    Where all rows are correct, or all wrong, the residuals are zero, so each group counts as one row. Rows that are
    repeated by their weight count as one row each at most.

    Args:
        share: Share of correct rows, in [0, 1]; NaN without rows.
        total: Number of rows, copies included; same shape, as are the following.
        squared_residuals: Sum over groups of (correct rows - share * rows) squared.
        squared_rows: Sum over groups of their rows squared.
        squared_copies: Sum over rows, without their copies, of the number of copies squared.

    Returns:
        Effective number of rows; NaN without rows.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        by_groups = share * (1 - share) * total**2 / squared_residuals
        as_groups = total**2 / squared_rows
        effective = np.where((share > 0) & (share < 1), by_groups, as_groups)
        return np.asarray(np.minimum(effective, total**2 / squared_copies))


def wilson_interval(share: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the 95% interval of a share (Wilson, 1927).

    Args:
        share: Share of correct rows, in [0, 1].
        rows: Effective number of rows, above 0; same shape.

    Returns:
        Lower and upper ends, in [0, 1]; NaN where an input is NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        z2 = scipy.special.ndtri(1 - OUTSIDE) ** 2 / rows
        middle, half = share + z2 / 2, np.sqrt(z2 * (share * (1 - share) + z2 / 4))
        low = np.clip((middle - half) / (1 + z2), 0, 1)
        high = np.clip((middle + half) / (1 + z2), 0, 1)
    return low, high


def _defined(replicates: np.ndarray) -> np.ndarray:
    """The replicates that are no NaN; none of them where too many are."""
    defined = replicates[~np.isnan(replicates)]
    too_many = len(replicates) - len(defined) > MOST_UNDEFINED * len(replicates)
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
        return UNKNOWN if self.replicates is None else interval(self.replicates)

    @property
    def p(self) -> float:
        """Return the p-value of the number being 0; NaN without replicates."""
        return np.nan if self.replicates is None else two_sided_p(self.replicates)


def sign_of(direction: int, low: float | None, high: float | None, p: float | None) -> Sign:
    """Return what may be said of a change: better or worse only where its interval and corrected p exclude no change.

    `direction` is the sign of an improvement. None, or NaN, is what is not known; then nothing is certain.
    """
    if low is None or high is None or p is None or not p < LEVEL or not (low > 0 or high < 0):
        return NOT_CERTAIN
    return BETTER if (low > 0) == (direction > 0) else WORSE


def relevant_sign(
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
    sign = sign_of(direction, low, high, p)
    if sign == NOT_CERTAIN:
        within = low is not None and high is not None and -smallest < low <= high < smallest
        return NO_DIFFERENCE if within else NOT_CERTAIN
    return sign if change is None or abs(change) >= smallest else NO_DIFFERENCE


def together(signs: Iterable[Sign]) -> Sign:
    """Return what several signs of the same question say of it together."""
    seen = set(signs)
    if {BETTER, WORSE} <= seen:
        return BOTH
    if seen == {NO_DIFFERENCE}:
        return NO_DIFFERENCE
    return BETTER if BETTER in seen else WORSE if WORSE in seen else NOT_CERTAIN


def behind_number(low: float | None, high: float | None, how: str) -> str:
    """Return a 95% interval as it stands behind its number, each end shown as `how` says; empty where it is unknown."""
    return "" if low is None or high is None else f" (95% interval {low:{how}} to {high:{how}})"


def found_per_1000(errors: Any, kept_errors: Any, reviews: Any) -> Any:
    """Return errors found per 1,000 reviews, if all decisions but those kept are reviewed: numbers or columns."""
    return 1000 * (errors - kept_errors) / reviews
