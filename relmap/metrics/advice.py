"""Recommendation for the fixed decisions of a data set, based on intervals, and the numbers that support it.

The pipeline's stages and report and the commands on a user's own predictions all use this module.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import NamedTuple

from relmap.metrics.intervals import (
    BETTER,
    MIXED_SIGNS,
    NO_RELEVANT_DIFFERENCE,
    WORSE,
    Sign,
    classify_relevant_change,
    combine_signs,
    format_interval,
)
from relmap.metrics.registry import COMPARED_METRICS, METRICS
from relmap.settings import METRIC_DEFAULTS

USE = "Use the map"
MIXED = "Mixed"
KEEP = "Keep your confidence"
UNKNOWN = "Too few labelled rows for a recommendation"
SAFE = "The map is safe to use, but its gain is not yet certain"
WORSENS = "Worse, so keep your confidence"
KEEP_ANSWERS = (KEEP, WORSENS)  # answers that recommend the confidence
RANKING_METRICS = ("aupr_error", "aurc")
MIN_ADVICE_GROUPS = 30  # bootstrap intervals of fewer groups are too short
MIN_ERRORS = 10  # minimum number of wrong decisions, and minimum number of correct decisions
RETAINED_TENTHS = 7  # share of decisions that are not reviewed, in tenths, as in selacc_70
MAX_REPORTED_ROWS = 1_000_000  # larger numbers of additional labelled rows are not reported


# Metric -> its numbers: `change`, the ends `low` and `high` of its 95% interval, and the p-value `p`; None if unknown
Changes = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class Advice:
    """Recommendation for the fixed decisions of a data set.

    Attributes:
        answer: USE, MIXED, WORSENS, KEEP or UNKNOWN; for a map also SAFE.
        reason: Reason of the answer, as a clause.
        next_steps: Further recommendations, as sentences.
        is_undecided: Whether more labelled rows could change KEEP.
    """

    answer: str
    reason: str
    next_steps: tuple[str, ...] = ()
    is_undecided: bool = False

    def __str__(self) -> str:
        return f"{self.answer}: {self.reason}."


def advise(
    changes: Changes,
    *,
    rows: int,
    errors: int,
    groups: int,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Advice:
    """Recommend the reliability or the confidence, by one metric of prediction and two of ranking.

    Nothing is recommended for fewer than 30 groups, or fewer than 10 wrong or 10 correct decisions.

    Args:
        changes: For `nll_correct` and RANKING_METRICS, the change (reliability minus confidence), its 95% interval, and
            the p-value of no change, corrected if several data sets are tested.
        rows: Number of decisions.
        errors: Number of wrong decisions.
        groups: Number of groups of dependent rows; the number of rows if they are independent.
        smallest: Smallest relevant change, in nats for the log loss and in the unit of the ranking metrics.

    Returns:
        The recommendation with its reason.
    """
    insufficient = describe_insufficient_data(rows, errors, groups)
    if insufficient:
        return Advice(UNKNOWN, insufficient)
    prediction_sign = _classify(changes, "nll_correct", smallest)
    ranking_sign = combine_signs([_classify(changes, metric, smallest) for metric in RANKING_METRICS])
    signs = {prediction_sign, ranking_sign}
    is_better = BETTER in signs or MIXED_SIGNS in signs  # by at least one metric
    is_worse = WORSE in signs or MIXED_SIGNS in signs
    if not is_better and not is_worse:
        if prediction_sign == NO_RELEVANT_DIFFERENCE:
            return Advice(KEEP, "there is no relevant difference")
        return Advice(KEEP, "no change is significant", is_undecided=True)
    if not is_worse:
        reason = f"it predicts {prediction_sign} and ranks {ranking_sign}"
        if signs == {BETTER}:
            reason = "it predicts and ranks better"
        return Advice(USE, reason)
    reason = f"the reliability predicts {prediction_sign} and ranks {ranking_sign}"
    if not is_better:
        return Advice(WORSENS, reason, ("Alternatively, fit again on rows like these.",))
    score_by_sign = {WORSE: "the confidence", MIXED_SIGNS: "whichever is better at your own budget"}
    for_probability = score_by_sign.get(prediction_sign, "the reliability")
    for_review = score_by_sign.get(ranking_sign, "the reliability")
    next_step = f"State {for_probability} as the probability of a correct decision, and rank reviews by {for_review}."
    return Advice(MIXED, reason, (next_step,))


def _classify(changes: Changes, metric: str, smallest: float) -> Sign:
    change = changes[metric]
    return classify_relevant_change(
        METRICS[metric].direction, change["change"], change["low"], change["high"], change["p"], smallest
    )


def advise_map(
    changes: Changes,
    *,
    rows: int,
    errors: int,
    groups: int,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Advice:
    """Recommend to use a map, to use it although its gain is uncertain, or to keep the confidence.

    Args:
        changes: As in `advise`.
        rows: Number of decisions.
        errors: Number of wrong decisions.
        groups: Number of groups of rows.
        smallest: Smallest relevant change.

    Returns:
        The recommendation of `advise`. If it is an undecided KEEP, and the change of the log loss is below the smallest
        relevant one: SAFE, with the number of labelled rows that would suffice.
    """
    advice = advise(changes, rows=rows, errors=errors, groups=groups, smallest=smallest)
    if not advice.is_undecided:
        return advice
    log_loss = changes["nll_correct"]
    change = log_loss["change"]
    low = log_loss["low"]
    high = log_loss["high"]
    if change is None or low is None or high is None:
        return advice
    if change >= smallest:
        return Advice(KEEP, f"the map raises the log loss by {change:.4f} here, which may be chance")
    return Advice(SAFE, format_rows_needed(additional_rows_needed(rows, change, (high - low) / 2, smallest)))


def additional_rows_needed(rows: int, change: float, half_width: float, smallest: float) -> int:
    """Estimate how many more labelled rows would distinguish a change from no change.

    Args:
        rows: Number of rows on which the interval is based.
        change: The change.
        half_width: Half of the width of its 95% interval, in the same unit; it is proportional to 1 / sqrt(rows).
        smallest: Smallest relevant change; it is used in place of a change that is smaller.

    Returns:
        Number of rows, at least 1.
    """
    relative_width = half_width / max(abs(change), smallest)
    required_rows = ceil(min(rows * relative_width**2, 1e15))  # ceil fails for infinity
    return max(1, required_rows - rows)


def format_rows_needed(count: int) -> str:
    """Format the number of labelled rows that would distinguish a change from no change.

    Args:
        count: Number of labelled rows, at least 1.

    Returns:
        A clause with the number rounded to two digits.
    """
    if count > MAX_REPORTED_ROWS:
        return f"even {MAX_REPORTED_ROWS:,} more labelled rows might not suffice"
    digits = floor(log10(count)) - 1
    return f"about {round(count, -digits):,} more labelled rows would suffice"


def format_change(quantity: str, change: float, interval: str, smallest: float) -> str:
    """Format the change of a quantity that is better when it is lower.

    Args:
        quantity: Name of the quantity, such as "the log loss".
        change: The change.
        interval: The interval in parentheses, with a leading space; empty if it is unknown.
        smallest: Smallest relevant change, at least 0.0001.

    Returns:
        A sentence: the map lowers or raises the quantity, or no relevant difference was found.
    """
    if abs(change) < smallest:
        return f"No relevant difference in {quantity} was found: it changes by less than {smallest:g}{interval}."
    verb = "lowers" if change < 0 else "raises"
    return f"It {verb} {quantity} by {abs(change):.4f}{interval}."


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


def describe_insufficient_data(rows: int, errors: int, groups: int) -> str:
    """Explain why there is too little data for a recommendation.

    Args:
        rows: Number of decisions.
        errors: Number of wrong decisions.
        groups: Number of groups of dependent rows.

    Returns:
        A clause; empty if there is enough data.
    """
    if groups < MIN_ADVICE_GROUPS:
        units = "groups" if groups < rows else "rows"
        return f"there are {groups} {units}; with fewer than {MIN_ADVICE_GROUPS}, a difference may be chance"
    return describe_insufficient_errors(rows, errors)


def describe_insufficient_errors(rows: int, errors: int) -> str:
    """Explain why there are too few wrong or correct decisions for a recommendation or a choice of model.

    Args:
        rows: Number of decisions.
        errors: Number of wrong decisions.

    Returns:
        A clause; empty if there are enough of both.
    """
    count, outcome = rarer_outcome(rows, errors)
    if count >= MIN_ERRORS:
        return ""
    return f"{count} of {rows:,} decisions are {outcome}, and at least {MIN_ERRORS} are needed"


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


def describe_evidence(
    found: ErrorsFound,
    changes: Changes,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Iterator[str]:
    """Describe the numbers that support a recommendation.

    Args:
        found: Errors found by reviews.
        changes: Change of each compared metric.
        smallest: Smallest relevant change; smaller ones are listed without their numbers.

    Yields:
        Sentences: the errors found, the relevant changes, and the metrics without a relevant change.
    """
    if found.by_confidence is not None and found.by_reliability is not None:
        interval = format_interval(found.low, found.high, "+z.0f")
        yield _describe_errors_found(found.by_confidence, found.by_reliability, interval)
    relevant = []
    irrelevant = []
    for metric in COMPARED_METRICS:
        change = changes[metric]
        if change["change"] is None:
            continue
        name = METRICS[metric].title
        if metric == "nll_correct":
            name = f"the {name}"
        if abs(change["change"]) < smallest:
            irrelevant.append(name)
        else:
            interval = format_interval(change["low"], change["high"], "+z.4f")
            relevant.append(f"{name} by {change['change']:+.4f}{interval}")
    if relevant:
        yield f"It changes {', '.join(relevant)}."
    if irrelevant:
        yield f"There is no relevant difference (below {smallest:g}) in {', '.join(irrelevant)}."


def _describe_errors_found(by_confidence: float, by_reliability: float, interval: str) -> str:
    reviews = f"1,000 reviews of the least reliable 30% find {by_reliability:.0f} errors"
    difference = round(by_reliability) - round(by_confidence)  # of the rounded numbers, as shown
    if difference == 0:
        return f"{reviews}, as many as 1,000 reviews of the least confident 30%{interval}."
    return (
        f"{reviews}; 1,000 reviews of the least confident 30% find {by_confidence:.0f}. "
        f"The change is {difference:+d}{interval}."
    )
