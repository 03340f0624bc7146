"""Inference from bootstrap replicates: percentile intervals, p-values, and Holm's correction.

None of them needs a normal approximation (Efron and Tibshirani, 1993, chapter 13; Davison and Hinkley, 1997, section
4.4). Two scores of the same fixed decisions are compared by a paired bootstrap: both use the same resamples, so the
replicates of the change are the changes of the replicates.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
import scipy

if TYPE_CHECKING:
    import polars as pl

MAX_UNDEFINED_SHARE = 0.05  # largest share of replicates that may be NaN
TAIL_PROBABILITY = (1 - 0.95) / 2  # outside either end of a 95% interval
SIGNIFICANCE_LEVEL = 0.05  # familywise, over all changes that are tested together
Sign = Literal[
    "better",
    "worse",
    "with no significant difference",
    "better by one metric and worse by another",
    "with no relevant difference",
]
BETTER: Sign = "better"
WORSE: Sign = "worse"
NOT_CERTAIN: Sign = "with no significant difference"
MIXED_SIGNS: Sign = "better by one metric and worse by another"
NO_DIFFERENCE: Sign = "with no relevant difference"
Numbers = TypeVar("Numbers", float, np.ndarray, "pl.Expr")


class Interval(NamedTuple):
    """Percentile interval of a quantity under resampling of the test rows, in the unit of the replicates.

    Attributes:
        standard_error: Standard deviation of the replicates, with ddof 1.
        low: Lower end of the 95% interval.
        high: Upper end.
    """

    standard_error: float
    low: float
    high: float


UNKNOWN_INTERVAL = Interval(np.nan, np.nan, np.nan)


def percentile_interval(replicates: np.ndarray) -> Interval:
    """Compute the 95% percentile interval.

    NaN replicates, such as AUPR-Error of a resample without errors, are omitted. If more than 5% are omitted, the
    interval is NaN, since it would describe another quantity.

    Args:
        replicates: Shape (R,).

    Returns:
        The interval; NaN for fewer than two replicates.
    """
    defined = _select_defined(replicates)
    if len(defined) < 2:
        return UNKNOWN_INTERVAL
    low, high = np.quantile(defined, [TAIL_PROBABILITY, 1 - TAIL_PROBABILITY])
    return Interval(float(defined.std(ddof=1)), float(low), float(high))


def two_sided_p(replicates: np.ndarray) -> float:
    """Compute the two-sided bootstrap p-value of "the difference is 0".

    With m the smaller number of replicates on either side of 0 (a replicate of 0 counts on both), it is
    min(1, 2 (m + 1) / (R + 1)), and never 0. It is below 0.05 about where `percentile_interval` excludes 0.

    Args:
        replicates: Replicates of the difference, shape (R,); NaN is treated as in `percentile_interval`.

    Returns:
        p-value in [2 / (R + 1), 1]; NaN without replicates.
    """
    defined = _select_defined(replicates)
    if len(defined) == 0:
        return np.nan
    n_smaller_side = min(np.count_nonzero(defined <= 0), np.count_nonzero(defined >= 0))
    return min(1.0, 2 * (n_smaller_side + 1) / (len(defined) + 1))


def holm_adjust(p_values: np.ndarray) -> np.ndarray:
    """Adjust p-values for multiple testing (Holm, 1979).

    Rejecting the hypotheses with an adjusted p-value of at most a rejects a true one with probability at most a,
    however the tests depend on each other.

    Args:
        p_values: Shape (m,); NaN is a test that was not made.

    Returns:
        Adjusted p-values in [0, 1], shape (m,). NaN stays NaN and does not count as a test.
    """
    adjusted = np.array(p_values, dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(adjusted))
    increasing = tested[np.argsort(adjusted[tested])]
    n_remaining = np.arange(len(increasing), 0, -1)  # hypotheses not rejected before
    adjusted[increasing] = np.minimum(1, np.maximum.accumulate(adjusted[increasing] * n_remaining))
    return adjusted


def share_confidence_interval(correct: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the exact 95% interval of a binomial proportion (Clopper and Pearson, 1934).

    Args:
        correct: Numbers of correct rows, shape (g,).
        rows: Numbers of independent rows, shape (g,).

    Returns:
        Lower and upper ends, shape (g,) each; each is missed with probability at most 2.5%.
    """
    low = np.nan_to_num(scipy.special.betaincinv(correct, rows - correct + 1, TAIL_PROBABILITY), nan=0.0)
    high = np.nan_to_num(scipy.special.betaincinv(correct + 1, rows - correct, 1 - TAIL_PROBABILITY), nan=1.0)
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
    z2 = scipy.special.ndtri(1 - TAIL_PROBABILITY) ** 2 / rows
    middle = share + z2 / 2
    half = np.sqrt(z2 * (share * (1 - share) + z2 / 4))
    low = np.clip((middle - half) / (1 + z2), 0, 1)
    high = np.clip((middle + half) / (1 + z2), 0, 1)
    return low, high


def _select_defined(replicates: np.ndarray) -> np.ndarray:
    """Select the replicates that are not NaN; none if more than MAX_UNDEFINED_SHARE are NaN."""
    defined: np.ndarray = replicates[~np.isnan(replicates)]
    n_undefined = len(replicates) - len(defined)
    if n_undefined > MAX_UNDEFINED_SHARE * len(replicates):
        return defined[:0]
    return defined


class Estimate(NamedTuple):
    """A number with its bootstrap replicates.

    Attributes:
        value: The number for all rows.
        replicates: Its replicates, shape (R,); None without a bootstrap.
    """

    value: float
    replicates: np.ndarray | None = None

    def __sub__(self, before: "Estimate") -> "Estimate":
        """Subtract another estimate whose replicates are of the same resamples."""
        replicates = None
        if self.replicates is not None and before.replicates is not None:
            replicates = self.replicates - before.replicates
        return Estimate(self.value - before.value, replicates)

    @property
    def interval(self) -> Interval:
        """95% percentile interval; NaN without replicates."""
        return UNKNOWN_INTERVAL if self.replicates is None else percentile_interval(self.replicates)

    @property
    def p_value(self) -> float:
        """p-value of "the number is 0"; NaN without replicates."""
        return np.nan if self.replicates is None else two_sided_p(self.replicates)


def classify_change(direction: int, low: float | None, high: float | None, p: float | None) -> Sign:
    """Classify a change as better, worse or not certain.

    Args:
        direction: Sign of an improvement, 1 or -1.
        low: Lower end of its 95% interval; None or NaN if unknown.
        high: Upper end.
        p: Corrected p-value of no change; None or NaN if unknown.

    Returns:
        Better or worse if both the interval and the p-value exclude no change, else not certain.
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
    """Classify a change when changes below `smallest` are irrelevant.

    Args:
        direction: Sign of an improvement, 1 or -1.
        change: The change; None if it is unknown.
        low: Lower end of its 95% interval; None or NaN if it is unknown.
        high: Upper end.
        p: Corrected p-value of no change; None or NaN if it is unknown.
        smallest: Smallest relevant change, 0 or more, in the unit of the change.

    Returns:
        Better or worse if that is certain and the change is relevant. No relevant difference if the change is certain
        but smaller, or if the interval contains no relevant change. Otherwise not certain.
    """
    sign = classify_change(direction, low, high, p)
    if sign == NOT_CERTAIN:
        within = low is not None and high is not None and -smallest < low <= high < smallest
        return NO_DIFFERENCE if within else NOT_CERTAIN
    return sign if change is None or abs(change) >= smallest else NO_DIFFERENCE


def combine_signs(signs: Iterable[Sign]) -> Sign:
    """Combine the signs of several metrics of the same property.

    Args:
        signs: Sign of each metric.

    Returns:
        Mixed if some are better and others worse; no relevant difference if all are; otherwise better or worse if one
        is, else not certain.
    """
    distinct = set(signs)
    if {BETTER, WORSE} <= distinct:
        return MIXED_SIGNS
    if distinct == {NO_DIFFERENCE}:
        return NO_DIFFERENCE
    if BETTER in distinct:
        return BETTER
    if WORSE in distinct:
        return WORSE
    return NOT_CERTAIN


def format_interval(low: float | None, high: float | None, number_format: str) -> str:
    """Format a 95% interval to follow its number.

    Args:
        low: Lower end; None if unknown.
        high: Upper end.
        number_format: Format specification of both ends, such as "+z.4f".

    Returns:
        The interval in parentheses with a leading space; empty if it is unknown.
    """
    if low is None or high is None:
        return ""
    return f" (95% interval {low:{number_format}} to {high:{number_format}})"


def errors_found_per_1000(errors: Numbers, retained_errors: Numbers | float, reviews: Numbers) -> Numbers:
    """Compute the errors found per 1,000 reviews if all decisions but the retained ones are reviewed.

    Args:
        errors: Number of errors among all decisions.
        retained_errors: Number of errors among the retained decisions.
        reviews: Number of reviewed decisions.

    Returns:
        Errors found per 1,000 reviews.
    """
    found: Numbers = 1000 * (errors - retained_errors) / reviews
    return found
