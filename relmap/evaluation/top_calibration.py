"""Calibration of the most reliable rows, measured by the gap: their mean reliability minus their accuracy.

For the most reliable 10% and 30% of the rows, the gap is tested against zero, with Holm's correction. The standard
error is the larger of two: the bootstrap standard error over groups, and the one of independent rows whose
reliabilities are correct. The second one prevents false alarms for rows without errors, whose bootstrap replicates are
all equal.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy

from relmap.evaluation.sample import EvaluationSample
from relmap.metrics.intervals import SIGNIFICANCE_LEVEL, TAIL_PROBABILITY, finite_or_none, format_interval, holm_adjust
from relmap.metrics.reliability import count_retained_rows
from relmap.metrics.resampling import Resamples

TOP_TENTHS = (1, 3)  # shares of the most reliable rows, in tenths
MIN_RELEVANT_GAP = 0.001  # with many rows, even irrelevant gaps are significant


@dataclass(frozen=True)
class TopCalibration:
    """Predicted and actual accuracy of the most reliable rows.

    Attributes:
        share: Share of the most reliable rows among all rows, such as 0.1.
        rows: Number of the most reliable rows, including all that are tied at the limit.
        all_rows: Number of all rows.
        tied: Number of rows that are tied at the limit, if only a fraction of them is in the share; otherwise 0. Always
            0 for rows with sampling weights.
        predicted: Mean reliability of these rows.
        correct: Accuracy of these rows.
        gap: `predicted` minus `correct`; positive if the map overstates the accuracy.
        standard_error: Standard error of the gap. This and the next three are None for fewer than ten groups.
        low: Lower end of the 95% interval of the gap.
        high: Upper end of that interval.
        p_value: p-value of no gap, adjusted for all shares that are tested.
        weighted: Whether the rows have sampling weights, so that the share is one of the weights.
    """

    share: float
    rows: int
    all_rows: int
    tied: int
    predicted: float
    correct: float
    gap: float
    standard_error: float | None
    low: float | None
    high: float | None
    p_value: float | None
    weighted: bool = False

    @property
    def is_miscalibrated(self) -> bool:
        """Whether the gap is significant, and large enough to be relevant."""
        is_significant = self.p_value is not None and self.p_value < SIGNIFICANCE_LEVEL
        return is_significant and abs(self.gap) >= MIN_RELEVANT_GAP

    def describe_rows(self) -> str:
        """Describe the number of rows, and why it is larger than the share, as a phrase."""
        if self.weighted:
            return f"{self.rows:,} of {self.all_rows:,} rows, by their sampling weights"
        if not self.tied:
            return f"{self.rows:,} rows"
        return (
            f"{self.rows:,} of {self.all_rows:,} rows, because {self.tied:,} rows with the same reliability are at the "
            "limit; each of these counts in part"
        )

    def describe(self) -> str:
        """Describe the gap in a sentence, which is a warning if the map is miscalibrated."""
        interval = format_interval(self.low, self.high, "+z.3f")
        numbers = (
            f"most reliable {100 * self.share:.0f}% ({self.describe_rows()}): mean reliability {self.predicted:.3f}, "
            f"accuracy {self.correct:.3f}, difference {self.gap:+z.3f}{interval}."
        )
        if not self.is_miscalibrated:
            return f"The {numbers}"
        direction = "overstates" if self.gap > 0 else "understates"
        return f"Warning: the map {direction} the {numbers} The difference is statistically significant."


def measure_top_calibration(sample: EvaluationSample) -> tuple[TopCalibration, ...]:
    """Compare predicted and actual accuracy of the most reliable 10% and 30% of the rows.

    Rows that are tied at the limit all count with the same fraction, so that the share is exact.

    Args:
        sample: Labelled rows with their reliability; each copy of a weighted row counts as a row.

    Returns:
        One value for each share of the rows.
    """
    unadjusted = [_measure_share(sample, tenths) for tenths in TOP_TENTHS]
    p_values = np.array([np.nan if top.p_value is None else top.p_value for top in unadjusted])
    adjusted = []
    for top, p_value in zip(unadjusted, holm_adjust(p_values), strict=True):
        adjusted.append(replace(top, p_value=finite_or_none(p_value)))
    return tuple(adjusted)


def describe_top_calibration(tops: tuple[TopCalibration, ...]) -> list[str]:
    """Describe each share of the rows in a line, warnings first.

    Args:
        tops: Calibration of each share.

    Returns:
        The lines.
    """
    return [top.describe() for top in sorted(tops, key=lambda top: not top.is_miscalibrated)]


def top_calibration_as_json(tops: tuple[TopCalibration, ...]) -> list[dict[str, float | None]]:
    """Convert the results for JSON.

    Args:
        tops: Calibration of each share.

    Returns:
        Numbers of each share; None if unknown.
    """
    return [
        {
            "share": top.share,
            "rows": top.rows,
            "tied": top.tied,
            "predicted": top.predicted,
            "correct": top.correct,
            "gap": top.gap,
            "standard_error": top.standard_error,
            "low": top.low,
            "high": top.high,
            "p_value": top.p_value,
            "is_miscalibrated": top.is_miscalibrated,
        }
        for top in tops
    ]


class _GapTest(NamedTuple):
    """Standard error, half-width of the 95% interval and p-value of a gap; NaN if unknown."""

    standard_error: float
    half_width: float
    p_value: float


def _measure_share(sample: EvaluationSample, tenths: int) -> TopCalibration:
    """Measure the gap of one share of the rows; the p-value is not adjusted."""
    n_top = int(count_retained_rows(len(sample), tenths))
    membership = _top_membership(sample.logit["reliability"], n_top)
    reliability = sample.probability["reliability"]
    total = membership.sum()
    gap = float((membership * (reliability - sample.correct)).sum() / total)
    test = _test_gap(sample, membership, gap)
    is_weighted = sample.rows.weight is not None
    return TopCalibration(
        share=tenths / 10,
        rows=_count_distinct(sample.row_number[membership > 0]),
        all_rows=len(sample.rows),
        tied=0 if is_weighted else _count_distinct(sample.row_number[(membership > 0) & (membership < 1)]),
        predicted=float((membership * reliability).sum() / total),
        correct=float((membership * sample.correct).sum() / total),
        gap=gap,
        standard_error=finite_or_none(test.standard_error),
        low=finite_or_none(gap - test.half_width),
        high=finite_or_none(gap + test.half_width),
        p_value=finite_or_none(test.p_value),
        weighted=is_weighted,
    )


def _test_gap(sample: EvaluationSample, membership: np.ndarray, gap: float) -> _GapTest:
    """Test a gap against zero by a t-test, whose degrees of freedom are the groups of the top rows minus 1, or 1."""
    if sample.resamples is None:
        return _GapTest(np.nan, np.nan, np.nan)
    residual = membership * (sample.probability["reliability"] - sample.correct)
    standard_error = max(
        _independent_standard_error(sample, membership),
        _bootstrap_standard_error(sample.resamples, residual, membership),
    )
    n_groups = _count_distinct(sample.cluster[membership > 0])
    degrees_of_freedom = max(n_groups - 1, 1)
    half_width = float(scipy.special.stdtrit(degrees_of_freedom, 1 - TAIL_PROBABILITY)) * standard_error
    if standard_error > 0:
        p_value = float(2 * scipy.special.stdtr(degrees_of_freedom, -abs(gap) / standard_error))
    else:
        p_value = 1.0 if gap == 0 else 0.0
    return _GapTest(standard_error, half_width, p_value)


def _count_distinct(numbers: np.ndarray) -> int:
    """Count the distinct values of nonnegative integers, much faster than `np.unique`."""
    return int(np.count_nonzero(np.bincount(numbers)))


def _top_membership(logit: np.ndarray, n_top: int) -> np.ndarray:
    """Return the fraction with which each row counts as one of the `n_top` most reliable, shape (n,), in [0, 1].

    The fractions sum to `n_top`. They are 1 above the limit, 0 below, and equal for all rows that are tied at the
    limit.
    """
    position = len(logit) - n_top
    limit = np.partition(logit, position)[position]
    is_above = logit > limit
    is_tied = logit == limit
    tied_fraction = (n_top - np.count_nonzero(is_above)) / np.count_nonzero(is_tied)
    return np.where(is_above, 1.0, np.where(is_tied, tied_fraction, 0.0))


def _independent_standard_error(sample: EvaluationSample, membership: np.ndarray) -> float:
    """Return the standard error of the gap if rows are independent and their reliabilities are correct.

    The copies of row i are either all correct or all wrong. With the sum m_i of the memberships of its copies and its
    reliability r_i, the variance of the sum of residuals is sum_i m_i² r_i (1 - r_i).
    """
    reliability = sample.probability["reliability"]
    n_rows = len(sample.rows)
    membership_of_row = np.bincount(sample.row_number, membership, n_rows)
    # m_i r_i (1 - r_i) of each row
    weighted_variance_of_row = np.bincount(sample.row_number, membership * reliability * (1 - reliability), n_rows)
    variance_of_sum = float((membership_of_row * weighted_variance_of_row).sum())
    return float(np.sqrt(variance_of_sum) / membership.sum())


def _bootstrap_standard_error(resamples: Resamples, residual: np.ndarray, membership: np.ndarray) -> float:
    """Return the standard deviation of the gap over the resamples that contain some of the most reliable rows.

    It is 0 if there are fewer than two such resamples.
    """
    totals = resamples.sums(membership)[0]
    gaps = resamples.sums(residual)[0][totals > 0] / totals[totals > 0]
    return float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
