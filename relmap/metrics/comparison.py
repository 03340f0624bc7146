"""Comparison of the reliability with the confidence in one of three words, and the numbers that support it.

The pipeline's report and the commands on a user's own predictions use this module. A comparison describes what was
measured; it never decides what a map contains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from relmap.metrics.intervals import format_interval
from relmap.metrics.registry import COMPARED_METRICS, METRICS

BETTER = "better"
NO_DIFFERENCE = "no measurable difference"
WORSE = "worse"
RETAINED_TENTHS = 7  # share of decisions that are not reviewed, in tenths, as in selacc_70
FEW_UNITS = 100  # with fewer rows, or groups, of one kind, a result is called uncertain


def compare_interval(low: float | None, high: float | None, *, direction: int = -1) -> str:
    """Describe a change in one of three words.

    Args:
        low: Lower end of the 95% interval of the change; None or NaN if unknown.
        high: Upper end.
        direction: Sign of an improvement, 1 or -1.

    Returns:
        BETTER or WORSE if the interval excludes zero, else NO_DIFFERENCE.
    """
    is_decrease = high is not None and high < 0
    is_increase = low is not None and low > 0
    if is_decrease:
        return BETTER if direction < 0 else WORSE
    if is_increase:
        return WORSE if direction < 0 else BETTER
    return NO_DIFFERENCE


@dataclass(frozen=True)
class Comparison:
    """Change of the log loss from the confidence to the reliability.

    Attributes:
        change: Log loss of the reliability minus that of the confidence, in nats; negative is better. None if unknown.
        low: Lower end of the 95% interval of the change; None if there are too few groups for an interval.
        high: Upper end.
    """

    change: float | None
    low: float | None
    high: float | None

    @property
    def word(self) -> str:
        """BETTER if the interval is below zero, WORSE if it is above zero, else NO_DIFFERENCE."""
        return compare_interval(self.low, self.high)

    def describe(self, baseline: str, where: str, model: str = "the map") -> str:
        """Describe the comparison.

        Args:
            baseline: Name of the confidence that the map is compared with.
            where: Phrase that names the rows, such as "out of fold on 1,000 rows".
            model: Name of the model of the reliability.

        Returns:
            A sentence that begins with the word.
        """
        beginnings = {
            BETTER: f"Better than {baseline}",
            NO_DIFFERENCE: f"No measurable difference from {baseline}",
            WORSE: f"Worse than {baseline}",
        }
        beginning = beginnings[self.word]
        if self.change is None:
            return f"{beginning}: there are too few rows {where} to compare the log loss."
        interval = format_interval(self.low, self.high, "+z.4f") or " (too few groups for an interval)"
        return f"{beginning}: {model} changes the log loss by {self.change:+z.4f}{interval}, {where}."


def describe_metrics(changes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """List the change of each compared metric with its interval.

    Args:
        changes: Metric -> `change`, `low` and `high`; None if unknown. Metrics without a known change are omitted.

    Returns:
        A sentence; empty if no change is known.
    """
    descriptions = []
    for metric in COMPARED_METRICS:
        numbers = changes.get(metric)
        if numbers is not None and numbers["change"] is not None:
            interval = format_interval(numbers["low"], numbers["high"], "+z.4f")
            descriptions.append(f"{METRICS[metric].title} {numbers['change']:+z.4f}{interval}")
    return [f"Changes from the confidence to the reliability: {', '.join(descriptions)}."] if descriptions else []


def describe_uncertainty(rows: int, errors: int, groups: int) -> str:
    """Describe why a comparison is uncertain.

    Args:
        rows: Number of decisions.
        errors: Number of wrong decisions.
        groups: Number of groups of dependent rows; the number of rows if they are independent.

    Returns:
        A sentence; empty if there are at least FEW_UNITS groups, wrong decisions and correct decisions.
    """
    reasons = []
    if groups < min(rows, FEW_UNITS):
        reasons.append(f"the rows belong to only {groups:,} groups")
    elif rows < FEW_UNITS:
        reasons.append(f"there are only {rows:,} rows")
    count, outcome = rarer_outcome(rows, errors)
    if count < FEW_UNITS:
        reasons.append(f"only {count:,} of {rows:,} decisions are {outcome}")
    if not reasons:
        return ""
    return f"Uncertain: {' and '.join(reasons)}; more labelled rows make this more precise."


def rarer_outcome(rows: int, errors: int) -> tuple[int, str]:
    """Find the rarer of wrong and correct decisions.

    Args:
        rows: Number of decisions.
        errors: Number of wrong decisions.

    Returns:
        Number of decisions of the rarer kind, and "wrong" or "correct".
    """
    n_correct = rows - errors
    return (errors, "wrong") if errors < n_correct else (n_correct, "correct")


class ErrorsFound(NamedTuple):
    """Errors found by 1,000 reviews of the 30% of the decisions with the lowest confidence or reliability.

    Unknown numbers are None.

    Attributes:
        by_confidence: Errors found in the 30% with the lowest confidence.
        by_reliability: Errors found in the 30% with the lowest reliability.
        low: Lower end of the 95% interval of the difference, `by_reliability` minus `by_confidence`.
        high: Upper end.
    """

    by_confidence: float | None
    by_reliability: float | None
    low: float | None
    high: float | None

    def describe(self) -> list[str]:
        """Describe both numbers and their difference.

        Returns:
            A sentence; empty if a number is unknown.
        """
        if self.by_confidence is None or self.by_reliability is None:
            return []
        interval = format_interval(self.low, self.high, "+z.0f")
        reviews = f"1,000 reviews of the least reliable 30% find {self.by_reliability:.0f} errors"
        difference = round(self.by_reliability) - round(self.by_confidence)  # of the rounded numbers, as shown
        if difference == 0:
            return [f"{reviews}, as many as 1,000 reviews of the least confident 30%{interval}."]
        return [
            f"{reviews}; 1,000 reviews of the least confident 30% find {self.by_confidence:.0f} "
            f"({difference:+d}{interval.replace(' (', ', ', 1) if interval else ')'}."
        ]
