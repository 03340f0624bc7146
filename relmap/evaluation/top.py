"""Calibration of the most reliable rows, which users act on: the predicted reliability minus the share of correct rows.

A gap is tested against no gap, for each share of the rows, with Holm's correction. Its standard error is the larger of
two: that of the bootstrap over groups, and that of independent rows whose reliabilities are right. So a top without
errors, which no resample changes, gives no false alarm.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy

from relmap.evaluation.evaluate import JudgedDecisions, plain
from relmap.metrics.intervals import SIGNIFICANCE_LEVEL, TAIL_PROBABILITY, format_interval, holm_adjust
from relmap.metrics.reliability import count_retained_rows
from relmap.metrics.resampling import Resamples
from relmap.settings import METRIC_DEFAULTS

TOP_TENTHS = (1, 3)  # of the rows, the most reliable ones
SMALLEST_RELEVANT_GAP = METRIC_DEFAULTS.smallest_relevant_change  # with many rows, smaller ones can be significant


@dataclass(frozen=True)
class TopCalibration:
    """Predicted and actual accuracy of the most reliable rows.

    Attributes:
        share: Share of the rows, such as 0.1.
        rows: Number of these rows.
        predicted: Their mean reliability.
        correct: Share of correct decisions among them.
        gap: `predicted` minus `correct`; positive where the map overstates them.
        standard_error: Of the gap; None with fewer than ten groups, as are the next three.
        low: Lower end of the 95% interval of the gap.
        high: Upper end of that interval.
        p_value: Of no gap, adjusted for all shares that are tested.
    """

    share: float
    rows: int
    predicted: float
    correct: float
    gap: float
    standard_error: float | None
    low: float | None
    high: float | None
    p_value: float | None

    @property
    def is_off(self) -> bool:
        """Whether the gap is larger than chance explains, and large enough to be relevant."""
        is_significant = self.p_value is not None and self.p_value < SIGNIFICANCE_LEVEL
        return is_significant and abs(self.gap) >= SMALLEST_RELEVANT_GAP

    def in_words(self) -> str:
        """Describe the gap in a sentence."""
        between = format_interval(self.low, self.high, "+z.3f")
        sentence = (
            f"most reliable {100 * self.share:.0f}% ({self.rows:,} rows): mean reliability {self.predicted:.3f}, "
            f"{self.correct:.3f} are correct, difference {self.gap:+z.3f}{between}."
        )
        if not self.is_off:
            return f"The {sentence}"
        direction = "overstates" if self.gap > 0 else "understates"
        return f"Warning: the map {direction} the {sentence} That is more than chance explains."


def calibration_at_top(judged: JudgedDecisions) -> tuple[TopCalibration, ...]:
    """Compare predicted and actual accuracy of the most reliable 10% and 30% of the rows.

    Of rows that are tied at the limit, each counts with the share of them that fits in.

    Args:
        judged: Rows with their reliability. Rows with weights are there as often as they count.

    Returns:
        One value for each share of the rows.
    """
    found = [_top(judged, tenths) for tenths in TOP_TENTHS]
    adjusted = holm_adjust(np.array([np.nan if top.p_value is None else top.p_value for top in found]))
    return tuple(replace(top, p_value=plain(p_value)) for top, p_value in zip(found, adjusted, strict=True))


def top_in_words(tops: tuple[TopCalibration, ...]) -> list[str]:
    """Return a line for each share, those of gaps beyond chance first."""
    return [top.in_words() for top in sorted(tops, key=lambda top: not top.is_off)]


def warnings_in_words(tops: tuple[TopCalibration, ...]) -> list[str]:
    """Return the lines of gaps beyond chance."""
    return [top.in_words() for top in tops if top.is_off]


def top_as_json(tops: tuple[TopCalibration, ...]) -> list[dict[str, Any]]:
    """Return plain numbers."""
    return [asdict(top) | {"off": top.is_off} for top in tops]


def _top(judged: JudgedDecisions, tenths: int) -> TopCalibration:
    """Measure one share of the rows; the p-value is not adjusted."""
    part = _membership(judged.logit["reliability"], int(count_retained_rows(len(judged), tenths)))
    reliability = judged.probability["reliability"]
    residual = part * (reliability - judged.correct)
    total = part.sum()
    gap = float(residual.sum() / total)
    error = half = p_value = np.nan
    if judged.draws is not None:
        variance = part * reliability * (1 - reliability)
        independent = _variance_of_sum(judged, part, variance)
        error = max(float(np.sqrt(independent) / total), _bootstrap_error(judged.draws, residual, part))
        degrees = len(np.unique(judged.cluster[part > 0])) - 1
        half = float(scipy.special.stdtrit(max(degrees, 1), 1 - TAIL_PROBABILITY)) * error
        p_value = float(2 * scipy.special.stdtr(max(degrees, 1), -abs(gap) / error)) if error > 0 else float(gap == 0)
    return TopCalibration(
        share=tenths / 10,
        rows=len(np.unique(judged.at[part > 0])),
        predicted=float((part * reliability).sum() / total),
        correct=float((part * judged.correct).sum() / total),
        gap=gap,
        standard_error=plain(error),
        low=plain(gap - half),
        high=plain(gap + half),
        p_value=plain(p_value),
    )


def _membership(logit: np.ndarray, n_top: int) -> np.ndarray:
    """Return the share of each row that belongs to the `n_top` most reliable rows, shape (n,), in [0, 1]."""
    limit = np.partition(logit, len(logit) - n_top)[len(logit) - n_top]
    above, tied = logit > limit, logit == limit
    fitting = (n_top - np.count_nonzero(above)) / np.count_nonzero(tied)
    return np.where(above, 1.0, np.where(tied, fitting, 0.0))


def _variance_of_sum(judged: JudgedDecisions, part: np.ndarray, variance: np.ndarray) -> float:
    """Return the variance of the sum of residuals of independent rows; all copies of a row are right or wrong."""
    n_rows = len(judged.rows)
    of_copies = np.bincount(judged.at, part, n_rows)
    of_row = np.bincount(judged.at, variance, n_rows)
    return float((of_copies * of_row).sum())


def _bootstrap_error(draws: Resamples, residual: np.ndarray, part: np.ndarray) -> float:
    """Return the standard deviation of the gap over resamples of groups; 0 where fewer than two hold top rows."""
    totals = draws.sums(part)[0]
    gaps = draws.sums(residual)[0][totals > 0] / totals[totals > 0]
    return float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0
