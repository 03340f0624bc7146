"""Bootstrap intervals and p-values, Holm's correction, and intervals of shares.

Bootstrap intervals and p-values need no normal approximation (Efron and Tibshirani, 1993, chapter 13; Davison and
Hinkley, 1997, section 4.4). Two scores of the same fixed decisions are compared by a paired bootstrap: both scores use
the same resamples, and the difference of the two is computed for each resample.
"""

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import scipy

if TYPE_CHECKING:
    import polars as pl

MAX_UNDEFINED_SHARE = 0.05  # largest share of replicates that may be NaN
TAIL_PROBABILITY = (1 - 0.95) / 2  # below a 95% interval; the same above it
SIGNIFICANCE_LEVEL = 0.05  # familywise, over all changes that are tested together
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

    NaN replicates, such as AUPR-Error of a resample without errors, are omitted. If more than 5% are NaN, the interval
    is NaN, because the other replicates describe only the resamples in which the quantity is defined.

    Args:
        replicates: Shape (R,).

    Returns:
        The interval; NaN also for fewer than two replicates that are not NaN.
    """
    defined = _select_defined(replicates)
    if len(defined) < 2:
        return UNKNOWN_INTERVAL
    low, high = np.quantile(defined, [TAIL_PROBABILITY, 1 - TAIL_PROBABILITY])
    return Interval(float(defined.std(ddof=1)), float(low), float(high))


def two_sided_p(replicates: np.ndarray) -> float:
    """Compute the two-sided bootstrap p-value of the hypothesis that a difference is 0.

    The p-value is min(1, 2 (m + 1) / (R + 1)). R is the number of replicates that are not NaN. Of these, count those
    that are at most 0 and those that are at least 0: m is the smaller count. Except in borderline cases, the p-value is
    below 0.05 if and only if `percentile_interval` excludes 0.

    Args:
        replicates: Replicates of the difference, one-dimensional; NaN is treated as in `percentile_interval`.

    Returns:
        p-value in [2 / (R + 1), 1], never 0; NaN if more than 5% of the replicates are NaN, or without replicates.
    """
    defined = _select_defined(replicates)
    if len(defined) == 0:
        return np.nan
    n_smaller_side = min(np.count_nonzero(defined <= 0), np.count_nonzero(defined >= 0))
    return min(1.0, 2 * (n_smaller_side + 1) / (len(defined) + 1))


def binomial_p_value(n_errors: np.ndarray | int, n_rows: np.ndarray | int, rate: float) -> np.ndarray:
    """Compute exact p-values of the hypotheses that success rates are at most a rate, for independent rows.

    Args:
        n_errors: Numbers of rows without success, of any shape.
        n_rows: Numbers of rows, at least 1, of the same shape.
        rate: The rate, in (0, 1).

    Returns:
        The p-values, of the same shape.
    """
    errors = np.asarray(n_errors, dtype=np.float64)
    return np.asarray(scipy.special.bdtr(errors, np.asarray(n_rows), 1 - rate))


def binomial_lower_bound(n_correct: int, n_errors: int, level: float) -> float:
    """Compute the exact lower confidence bound of a success rate (Clopper and Pearson, 1934), for independent rows.

    Args:
        n_correct: Number of rows with success.
        n_errors: Number of the other rows.
        level: Probability of a bound above the rate, in (0, 1).

    Returns:
        The bound, in [0, 1].
    """
    if n_correct == 0:
        return 0.0
    return float(scipy.special.betaincinv(n_correct, n_errors + 1, level))


def holm_adjust(p_values: np.ndarray) -> np.ndarray:
    """Adjust p-values for multiple testing (Holm, 1979).

    If all hypotheses with an adjusted p-value of at most alpha are rejected, the probability that a true hypothesis is
    among them is at most alpha. This holds for any dependence between the tests.

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
        Lower and upper ends, shape (g,) each. The true proportion is below the lower end with probability at most 2.5%,
        and above the upper end with probability at most 2.5%.
    """
    # betaincinv may return NaN if no row or every row is correct; the lower end is then 0, or the upper end 1
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
    """Compute the effective number of rows of a share: independent rows that give the same variance (Kish, 1965).

    The number is share (1 - share) total^2 / squared_residuals. If the share is 0 or 1, all residuals are 0, and the
    number is total^2 / squared_rows: the number of groups, if they have equal sizes. In any case it is at most
    total^2 / squared_copies, because the copies of a row are not independent.

    Args:
        share: Share of correct rows, in [0, 1]; NaN without rows.
        total: Number of rows, copies included. This array and the following ones have the shape of `share`.
        squared_residuals: Sum over groups of (correct rows - share * rows)^2.
        squared_rows: Sum over groups of (number of rows, copies included)^2.
        squared_copies: Sum over distinct rows of (number of copies)^2.

    Returns:
        Effective number of rows; NaN without rows.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        from_residuals = share * (1 - share) * total**2 / squared_residuals
        from_group_sizes = total**2 / squared_rows
        effective = np.where((share > 0) & (share < 1), from_residuals, from_group_sizes)
        return np.asarray(np.minimum(effective, total**2 / squared_copies))


def wilson_interval(share: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the 95% interval of a share (Wilson, 1927).

    With n rows and the normal quantile z, the ends are

        (share + z^2 / (2 n) ± z sqrt(share (1 - share) / n + z^2 / (4 n^2))) / (1 + z^2 / n).

    Args:
        share: Share of correct rows, in [0, 1].
        rows: Effective number of rows, above 0; same shape.

    Returns:
        Lower and upper ends, in [0, 1]; NaN where an input is NaN.
    """
    z2_per_row = scipy.special.ndtri(1 - TAIL_PROBABILITY) ** 2 / rows
    first_term = share + z2_per_row / 2
    root_term = np.sqrt(z2_per_row * (share * (1 - share) + z2_per_row / 4))
    low = np.clip((first_term - root_term) / (1 + z2_per_row), 0, 1)
    high = np.clip((first_term + root_term) / (1 + z2_per_row), 0, 1)
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
        """p-value of the hypothesis that the number is 0; NaN without replicates."""
        return np.nan if self.replicates is None else two_sided_p(self.replicates)


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


def finite_or_none(number: float) -> float | None:
    """Convert a number for JSON.

    Args:
        number: The number.

    Returns:
        The number as a float; None if it is infinite or NaN.
    """
    return float(number) if np.isfinite(number) else None
