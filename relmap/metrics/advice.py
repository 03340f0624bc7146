"""What to do with the fixed decisions of a data set: an answer by intervals, and the numbers that stand beside it.

The stage of one data set, the report of all, and the commands on one's own predictions give both by this code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relmap.metrics.intervals import BETTER, NOT_CERTAIN, WORSE, behind_number, sign_of, together
from relmap.metrics.registry import COMPARED, METRICS

USE, MIXED, KEEP, UNKNOWN = "Use the reliability", "Mixed", "Keep your confidence", "Too little to tell"
WORSENS = "Worse, so keep your confidence"
RANKS = ("aupr_error", "aurc")
FEW_GROUPS = 30  # resampled, fewer give intervals that are too short
FEWEST_ERRORS = 10  # or right decisions
KEPT_TENTHS = 7  # of the decisions, as by selacc_70; the others are reviewed


Changes = Mapping[str, Mapping[str, float | None]]  # by metric: `change`, `low`, `high` and `p`; None is not known


@dataclass(frozen=True)
class Advice:
    """What to do with the fixed decisions of a data set."""

    answer: str  # USE, MIXED, WORSENS, KEEP or UNKNOWN
    because: str
    then: tuple[str, ...] = ()  # what else to do, in sentences

    def __str__(self) -> str:
        return f"{self.answer}: {self.because}."


def advise(changes: Changes, *, rows: int, errors: int, groups: int) -> Advice:
    """Return what to do, by the `changes` of three metrics: of the one that predicts and the two that rank.

    Nothing is advised where there are fewer than 30 groups, or fewer than 10 wrong or 10 right decisions.

    Args:
        changes: of each of these metrics, by reliability less by confidence: the ends of its 95% interval and the
            p-value of no change, corrected where other data sets are tested too.
        rows: how many decisions there are.
        errors: how many of them are wrong.
        groups: how many groups of rows stand and fall together; as many as rows where each stands by itself.
    """
    if few := too_few(rows, errors, groups):
        return Advice(UNKNOWN, few)
    ends = {key: [changes[key][name] for name in ("low", "high", "p")] for key in ("nll_correct", *RANKS)}
    signs = {key: sign_of(METRICS[key].direction, *of) for key, of in ends.items()}
    predicts, ranks = signs["nll_correct"], together(signs[metric] for metric in RANKS)
    if predicts == ranks == BETTER:
        return Advice(USE, "it predicts and ranks better")
    if predicts == ranks == NOT_CERTAIN:
        return Advice(KEEP, "nothing is certain to change")
    because = f"the reliability predicts {predicts} and ranks {ranks}"
    if {predicts, ranks} <= {WORSE, NOT_CERTAIN}:
        return Advice(WORSENS, because, ("Or fit again, on rows like these.",))
    by = {WORSE: "the confidence", BETTER: "the reliability", NOT_CERTAIN: "the reliability"}
    review = by.get(ranks, "whichever is better at your own budget")
    then = f"State {by[predicts]} as the probability of being right, and choose what to review by {review}."
    return Advice(MIXED, because, (then,))


def rarer_of(rows: int, errors: int) -> tuple[int, str]:
    """Return how many decisions are wrong, or right, whichever are fewer, and which of both they are."""
    return min((errors, "wrong"), (rows - errors, "right"))


def too_few(rows: int, errors: int, groups: int) -> str:
    """Return what there is too little of to advise anything, arguments as in `advise`; empty if there is enough."""
    if groups < FEW_GROUPS:
        units = "groups" if groups < rows else "rows"
        return f"there are {groups} {units}, and a difference among fewer than {FEW_GROUPS} may be chance"
    return too_few_errors(rows, errors)


def too_few_errors(rows: int, errors: int) -> str:
    """Return whether wrong or right decisions are too few to advise or to choose by; empty if neither are."""
    rarer, which = rarer_of(rows, errors)
    if rarer >= FEWEST_ERRORS:
        return ""
    return f"{rarer} of {rows:,} decisions are {which}, and it takes {FEWEST_ERRORS} to judge by"


def behind(found: Sequence[float | None], changes: Changes) -> Iterator[str]:
    """Yield the numbers behind an advice, in sentences: the `changes`, and before them what reviews find.

    `found` are the errors that 1,000 reviews of the least reliable 30% find, by confidence and by reliability, and the
    ends of the 95% interval of their difference.
    """
    before, after, low, high = found
    if before is not None and after is not None:
        yield (
            f"1,000 reviews of the least reliable 30% find {after:.0f} errors, and {before:.0f} where the confidence "
            f"chooses, a change of {after - before:+z.0f}{behind_number(low, high, '+.0f')}."
        )
    names = {metric: METRICS[metric].title for metric in COMPARED} | {"nll_correct": "the log loss of being right"}
    known = {names[metric]: changes[metric] for metric in COMPARED if changes[metric]["change"] is not None}
    said = [
        f"{name} by {of['change']:+z.4f}{behind_number(of['low'], of['high'], '+.4f')}" for name, of in known.items()
    ]
    yield f"It changes {', '.join(said)}."
