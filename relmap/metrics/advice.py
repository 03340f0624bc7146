"""What to do with the fixed decisions of a data set: an answer by intervals, and the numbers that stand beside it.

The stage of one data set, the report of all, and the commands on one's own predictions give both by this code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from relmap.metrics.intervals import (
    BETTER,
    MIXED_SIGNS,
    NO_DIFFERENCE,
    WORSE,
    classify_relevant_change,
    combine_signs,
    format_interval,
)
from relmap.metrics.registry import COMPARED_METRICS, METRICS
from relmap.settings import METRIC_DEFAULTS

USE, MIXED, KEEP, UNKNOWN = "Use the map", "Mixed", "Keep your confidence", "Too little to tell"
SAFE = "The map is safe to use, its gain is not yet certain"
WORSENS = "Worse, so keep your confidence"
KEEP_ANSWERS = (KEEP, WORSENS)  # answers after which the confidence stays
RANKING_METRICS = ("aupr_error", "aurc")
MIN_ADVICE_GROUPS = 30  # resampled, fewer give intervals that are too short
MIN_ERRORS = 10  # or right decisions
RETAINED_TENTHS = 7  # of the decisions, as by selacc_70; the others are reviewed
MAX_REPORTED_LABELS = 1_000_000  # more are not worth a number


Changes = Mapping[str, Mapping[str, float | None]]  # by metric: `change`, `low`, `high` and `p`; None is not known


@dataclass(frozen=True)
class Advice:
    """What to do with the fixed decisions of a data set."""

    answer: str  # USE, MIXED, WORSENS, KEEP or UNKNOWN; of a map SAFE too
    because: str
    then: tuple[str, ...] = ()  # what else to do, in sentences
    undecided: bool = False  # whether more labels could change a KEEP

    def __str__(self) -> str:
        return f"{self.answer}: {self.because}."


def advise(
    changes: Changes,
    *,
    rows: int,
    errors: int,
    groups: int,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Advice:
    """Return what to do, by the `changes` of three metrics: of the one that predicts and the two that rank.

    Nothing is advised where there are fewer than 30 groups, or fewer than 10 wrong or 10 right decisions.

    Args:
        changes: of each of these metrics, by reliability less by confidence: the change, the ends of its 95% interval
            and the p-value of no change, corrected where other data sets are tested too.
        rows: how many decisions there are.
        errors: how many of them are wrong.
        groups: how many groups of rows stand and fall together; as many as rows where each stands by itself.
        smallest: smallest change that matters, in nats for the log loss and in the unit of the ranking metrics.
    """
    if few := describe_insufficient_data(rows, errors, groups):
        return Advice(UNKNOWN, few)
    signs = {
        key: classify_relevant_change(METRICS[key].direction, of["change"], of["low"], of["high"], of["p"], smallest)
        for key, of in ((key, changes[key]) for key in ("nll_correct", *RANKING_METRICS))
    }
    predicts, ranks = signs["nll_correct"], combine_signs(signs[metric] for metric in RANKING_METRICS)
    seen = {predicts, ranks}
    if not seen & {BETTER, WORSE, MIXED_SIGNS}:
        undecided = predicts != NO_DIFFERENCE
        because = "nothing is certain to change" if undecided else "there is no relevant difference"
        return Advice(KEEP, because, undecided=undecided)
    if not seen & {WORSE, MIXED_SIGNS}:
        both = seen == {BETTER}
        return Advice(USE, "it predicts and ranks better" if both else f"it predicts {predicts} and ranks {ranks}")
    because = f"the reliability predicts {predicts} and ranks {ranks}"
    if not seen & {BETTER, MIXED_SIGNS}:
        return Advice(WORSENS, because, ("Or fit again, on rows like these.",))
    by = {WORSE: "the confidence", MIXED_SIGNS: "whichever is better at your own budget"}
    stated, chosen = (by.get(sign, "the reliability") for sign in (predicts, ranks))
    then = f"State {stated} as the probability of being right, and choose what to review by {chosen}."
    return Advice(MIXED, because, (then,))


def advise_map(
    changes: Changes,
    *,
    rows: int,
    errors: int,
    groups: int,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Advice:
    """Return what to do with a map: use it, use it though its gain is uncertain, or keep the confidence.

    Args:
        changes: As in `advise`.
        rows: Number of decisions.
        errors: Number of wrong decisions.
        groups: Number of groups of rows.
        smallest: Smallest relevant change.

    Returns:
        As `advise`, or SAFE, which says how many more labels would decide.
    """
    advice = advise(changes, rows=rows, errors=errors, groups=groups, smallest=smallest)
    if not advice.undecided:
        return advice
    log_loss = changes["nll_correct"]
    change, low, high = (log_loss[name] for name in ("change", "low", "high"))
    if change is None or low is None or high is None:
        return advice
    if change >= smallest:
        return Advice(KEEP, f"the map raises the log loss by {change:.4f} here, which may be chance")
    return Advice(SAFE, format_labels_needed(additional_labels_needed(rows, change, (high - low) / 2, smallest)))


def additional_labels_needed(rows: int, change: float, half_width: float, smallest: float) -> int:
    """Return about how many more labelled rows would tell a change from none.

    Args:
        rows: Number of rows behind the interval.
        change: The change.
        half_width: Half of the width of its 95% interval, in the same unit; it falls with the root of the rows.
        smallest: Smallest relevant change: where the change is smaller, the rows that tell it from this one.

    Returns:
        A number of rows, at least 1.
    """
    return max(1, ceil(min(rows * (half_width / max(abs(change), smallest)) ** 2, 1e15)) - rows)


def format_labels_needed(count: int) -> str:
    """Return a sentence part about the labels that would decide, rounded to two digits."""
    if count > MAX_REPORTED_LABELS:
        return f"even {MAX_REPORTED_LABELS:,} more labels might not decide"
    digits = max(floor(log10(count)) - 1, 0)
    return f"about {round(count, -digits):,} more labels would decide"


def format_change(what: str, change: float, interval: str, smallest: float) -> str:
    """Return a sentence about a change of something that is better when it is lower.

    Args:
        what: Name of what changes, such as "the log loss".
        change: The change.
        interval: The interval in parentheses, with a leading space; empty if it is unknown.
        smallest: Smallest relevant change, at least 0.0001.

    Returns:
        A sentence that says whether it is lowered or raised, without a sign, or that no relevant difference was found.
    """
    if abs(change) < smallest:
        return f"No relevant difference in {what} was found: it changes by less than {smallest:g}{interval}."
    return f"It {'lowers' if change < 0 else 'raises'} {what} by {abs(change):.4f}{interval}."


def rarer_outcome(rows: int, errors: int) -> tuple[int, str]:
    """Return how many decisions are wrong, or right, whichever are fewer, and which of both they are."""
    return min((errors, "wrong"), (rows - errors, "right"))


def describe_insufficient_data(rows: int, errors: int, groups: int) -> str:
    """Return what there is too little of to advise anything, arguments as in `advise`; empty if there is enough."""
    if groups < MIN_ADVICE_GROUPS:
        units = "groups" if groups < rows else "rows"
        return f"there are {groups} {units}, and a difference among fewer than {MIN_ADVICE_GROUPS} may be chance"
    return describe_insufficient_errors(rows, errors)


def describe_insufficient_errors(rows: int, errors: int) -> str:
    """Return whether wrong or right decisions are too few to advise or to choose by; empty if neither are."""
    rarer, which = rarer_outcome(rows, errors)
    if rarer >= MIN_ERRORS:
        return ""
    return f"{rarer} of {rows:,} decisions are {which}, and it takes {MIN_ERRORS} to judge by"


def describe_evidence(
    found: Sequence[float | None],
    changes: Changes,
    smallest: float = METRIC_DEFAULTS.smallest_relevant_change,
) -> Iterator[str]:
    """Yield the numbers behind an advice, in sentences: the `changes`, and before them what reviews find.

    `found` are the errors that 1,000 reviews of the least reliable 30% find, by confidence and by reliability, and the
    ends of the 95% interval of their difference. Changes below `smallest` are only named.
    """
    before, after, low, high = found
    if before is not None and after is not None:
        more = round(after) - round(before)  # of the numbers that are shown
        if more == 0:
            yield (
                f"1,000 reviews of the least reliable 30% find {after:.0f} errors, as many as where the confidence "
                f"chooses{format_interval(low, high, '+z.0f')}."
            )
        else:
            yield (
                f"1,000 reviews of the least reliable 30% find {after:.0f} errors, and {before:.0f} where the "
                f"confidence chooses, a change of {more:+d}{format_interval(low, high, '+z.0f')}."
            )
    names = {metric: METRICS[metric].title for metric in COMPARED_METRICS} | {
        "nll_correct": "the log loss of being right"
    }
    known = {names[metric]: changes[metric] for metric in COMPARED_METRICS if changes[metric]["change"] is not None}
    small = [name for name, of in known.items() if abs(of["change"] or 0.0) < smallest]
    relevant = [
        f"{name} by {of['change']:+.4f}{format_interval(of['low'], of['high'], '+z.4f')}"
        for name, of in known.items()
        if name not in small
    ]
    if relevant:
        yield f"It changes {', '.join(relevant)}."
    if small:
        yield f"There is no relevant difference (below {smallest:g}) in {', '.join(small)}."
