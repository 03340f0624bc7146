"""Which decisions to use as they are: a cut on reliability, and what is certain of the decisions at or above it.

The guarantees need no model and no large samples, only labelled rows that the map was not fitted on, drawn
independently and like those to come. Rows of one group are not independent: see `independent_rows`.

For a target accuracy, Learn then Test (Angelopoulos et al., 2021): each cut of a grid that the map fixed beforehand is
a hypothesis, "too few of the decisions at or above it are correct", with an exact binomial p-value (Clopper and
Pearson, 1934), and the fallback procedure (Wiens, 2003) says which are rejected, from few decisions to all of them.
"""

import math
import re
from fractions import Fraction

import numpy as np
import scipy

from relmap.errors import InputError
from relmap.io.rows import PredictedRows
from relmap.maps.document import MapDocument
from relmap.metrics.probability import reject_nan
from relmap.routing.cuts import Cut, Thresholds, rounded_cut

EVERY = 5  # percent of coverage from one start to the next
MORE_ROWS = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # times as many, to look for what a target takes


def find_cuts(
    document: MapDocument,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    target: float,
    confidence: float = 0.95,
) -> Thresholds:
    """The cuts of most coverage at or above which decisions are surely correct at a rate of `target` or more.

    Reliability `(n,)` in [0, 1], decision `(n,)` int, correct `(n,)` bool, of labelled rows drawn independently. The
    chance that the overall cut misses the target is at most 1 - confidence; so is the chance that the cut of any label
    does: these are found in the same way, with that chance shared by the labels that have rows enough. (Which these
    are depends on decisions alone, and given those the rows of a label are still independent.)

    The guarantee of the cut that was chosen is the target. `lower_bound` is of Clopper and Pearson, at the level at
    which this cut was accepted; what it has above the target would hold of a cut that was chosen beforehand.

    Raises:
        InputError: target or confidence is not in (0, 1), or there is no row.
    """
    _check(reliability, confidence)
    if not 0 < target < 1:
        raise InputError(f"no cut can guarantee an accuracy of {target}; give one above 0 and below 1, such as 0.95")
    cuts, shares = grid(document, target)
    labels, rows, errors = _counts(cuts, reliability, decision, correct)
    able = rows[1:, -1] >= fewest_rows(target, 1 - confidence)
    levels = np.r_[1 - confidence, np.full(len(able), (1 - confidence) / max(1, int(able.sum())))]
    p_values = scipy.special.bdtr(errors.astype(np.float64), rows, 1 - target)
    accepted = rejected_in_turn(p_values, np.outer(levels * np.r_[True, able], shares))
    overall, *of_labels = [
        _best(label, float(level), target, cuts, *of_cuts)
        for label, level, *of_cuts in zip(labels, levels, rows, errors, p_values, accepted, strict=True)
    ]
    instead = () if overall.cut is not None else _instead(document, rows[0], errors[0], target, 1 - confidence)
    return Thresholds(target, None, confidence, overall, tuple(of_labels), instead)


def _instead(
    document: MapDocument, rows: np.ndarray, errors: np.ndarray, target: float, level: float
) -> tuple[str, ...]:
    """What would have a cut, where so many rows and errors lie at or above each: a lower accuracy, or more rows."""

    def coverage(target: float, times: int = 1) -> float:
        p_values = scipy.special.bdtr(times * errors.astype(np.float64), times * rows, 1 - target)
        accepted = rejected_in_turn(p_values, level * grid(document, target)[1])
        return float(rows[accepted > 0].max(initial=0) / rows[-1])

    lower = [percent / 100 for percent in range(math.ceil(100 * target) - 1, 49, -1)]
    highest = next((accuracy for accuracy in lower if coverage(accuracy)), None)
    times = next((many for many in MORE_ROWS if coverage(target, many)), None)
    lines = ["(A binomial bound at the best of the cuts would be too sure: these rows would have picked that cut.)"]
    if times is not None:
        lines.insert(0, f"It would take about {times} times as many rows (or groups), if they are like these.")
    if highest is not None:
        shown = f"{highest:.0%}, with {coverage(highest):.1%} of decisions used as they are"
        lines.insert(0, f"The highest accuracy for which these rows have a cut is {shown}.")
    return tuple(lines)


def cut_at_coverage(
    reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, coverage: str, confidence: float = 0.95
) -> Thresholds:
    """The cut that takes `coverage` of these rows, or as few less as its digits allow, and how often they are correct.

    Rows as in `find_cuts`; coverage is a decimal number in (0, 1], as text so that its share of the rows is exact. The
    lower bounds, by Clopper and Pearson, hold at once for all labels, and by itself for all decisions. They are exact:
    the cut depends only on the largest reliability that is left out, and given this and which rows lie above the cut,
    these are independent draws of all that lies there, with ties too. A cut at a row's own reliability lacks this.

    Raises:
        InputError: coverage is not in (0, 1] or less than a row, confidence is not in (0, 1), or there is no row.
    """
    _check(reliability, confidence)
    if not re.fullmatch(r"0?\.\d{1,15}|1(\.0{1,15})?", coverage) or not Fraction(coverage):
        raise InputError(f"there is no coverage of {coverage!r}; give one above 0 and at most 1, such as 0.7")
    n = len(reliability)
    left = n - math.floor(Fraction(coverage) * n)
    if left == n:
        raise InputError(f"a coverage of {coverage} is less than one of {n:,} labelled rows; ask for more, or add rows")
    cut = rounded_cut(np.partition(reliability, left - 1)[left - 1], reliability, up=True) if left else 0.0
    labels, rows, errors = _counts(np.array([cut, 0.0]), reliability, decision, correct)
    automatic, correct_rows = rows[:, 0], rows[:, 0] - errors[:, 0]
    level = (1 - confidence) / max(1, int((automatic[1:] > 0).sum()))
    numbers = zip(labels, rows[:, 1].tolist(), automatic.tolist(), correct_rows.tolist(), strict=True)
    overall, *of_labels = [_at(cut, 1 - confidence if each[0] is None else level, *each) for each in numbers]
    return Thresholds(None, coverage, confidence, overall, tuple(of_labels))


def accuracy_at_cut(
    reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, cut: float, confidence: float = 0.95
) -> Thresholds:
    """Bound the accuracy of the decisions at or above a cut that was chosen without these rows.

    The cut is fixed before the rows are drawn, so the number of correct rows at or above it is binomial given their
    number, and the lower bounds of Clopper and Pearson (1934) are exact. The bound of all decisions holds by itself;
    the bounds of the labels hold together, each at an equal share of the level.

    Args:
        reliability: Reliability of independent labelled rows, shape (n,), in [0, 1].
        decision: Decided labels, shape (n,).
        correct: Whether each decision is correct, shape (n,).
        cut: Minimum reliability of automatic rows, in [0, 1].
        confidence: Confidence of the lower bounds, in (0, 1).

    Returns:
        Automatic rows, accuracy and lower bound of all decisions and of each decided label. Without automatic rows
        there is no accuracy, and the reason is given.

    Raises:
        InputError: The cut or the confidence is out of range, or there is no row.
    """
    _check(reliability, confidence)
    if not 0 <= cut <= 1:
        raise InputError(f"the cut is {cut}; it must be a reliability in [0, 1]")
    labels, rows, errors = _counts(np.array([cut, 0.0]), reliability, decision, correct)
    n_with_rows = int((rows[1:, 0] > 0).sum())
    found = []
    for place, label in enumerate(labels):
        n_rows, automatic = int(rows[place, 1]), int(rows[place, 0])
        level = 1 - confidence if label is None else (1 - confidence) / max(1, n_with_rows)
        if automatic == 0:
            why = f"none of {n_rows:,} labelled rows has a reliability of at least {cut}"
            found.append(Cut(label=label, rows=n_rows, why=why))
        else:
            found.append(_at(cut, level, label, n_rows, automatic, automatic - int(errors[place, 0])))
    return Thresholds(None, None, confidence, found[0], tuple(found[1:]), chosen_cut=cut)


def independent_rows(rows: PredictedRows, seed: int) -> tuple[np.ndarray, list[str]]:
    """Numbers, rising, of rows that are independent and were all as likely to be drawn, and notes in words.

    Rows that were drawn with unequal chances stay with a chance in proportion to the inverse, since binomial tails know
    no weights. Rows of one group stand and fall together: one of each group stays, drawn by `seed`. What is guaranteed
    then speaks of a random row of a new group, so that large groups count no more than small ones; of drawn rows, whose
    groups are not whole, it speaks of a random row: a group stays with a chance in proportion to its rows.
    """
    generator = np.random.default_rng(seed)  # one for all draws, so that these are independent
    kept, notes = np.arange(len(rows)), []
    if rows.weight is not None:
        kept = np.flatnonzero(generator.random(len(rows)) * rows.weight.max() < rows.weight)
        notes.append(f"Of the rows {len(kept):,} are used, drawn so that all rows were as likely to be among them.")
    if rows.group is not None and rows.weight is not None:  # of a group as likely as it has rows
        _, of_group, sizes = np.unique(rows.group[kept], return_inverse=True, return_counts=True)
        kept = kept[(generator.random(len(sizes)) * sizes.max() < sizes)[of_group]]
    if rows.group is not None:
        order = kept[generator.permutation(len(kept))]
        kept = np.sort(order[np.unique(rows.group[order], return_index=True)[1]])
        notes.append(f"One row of each group, drawn at random, so that rows are independent: {len(kept):,} rows.")
    return kept, notes


def fewest_rows(target: float, level: float) -> int:
    """With fewer rows, all of them correct, an accuracy below `target` is not rejected at `level`; both in (0, 1)."""
    return math.ceil(math.log(level) / math.log(target))


def rejected_in_turn(p_values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Hypotheses in order along the last axis to the levels at which they are rejected, 0 where they are not.

    Each is tested at its own level plus that of the one before it, if that was rejected. The chance to reject any true
    one is at most the sum of `levels`, however the p-values depend on one another (Wiens, 2003).
    """
    rejected = np.zeros_like(levels)
    carried = np.zeros(levels.shape[:-1])
    for i in range(levels.shape[-1]):
        level = levels[..., i] + carried
        carried = rejected[..., i] = np.where(p_values[..., i] <= level, level, 0)
    return rejected


def grid(document: MapDocument, target: float) -> tuple[np.ndarray, np.ndarray]:
    """The cuts, falling to 0, and their shares of the level: half at one start, half at every 5% of coverage.

    The one start is where, if the map is right, the accuracy lies most standard errors above the target.
    """
    quantiles = np.array(document.held_out.quantiles)[::-1]
    percent = np.arange(len(quantiles))
    shares = np.where((percent > 0) & (percent % EVERY == 0), EVERY / 100, 0)
    evidence = (np.cumsum(quantiles) / (percent + 1) - target) * np.sqrt(percent)
    if evidence.max() > 0:
        shares = (shares + (percent == evidence.argmax())) / 2
    cuts = np.array([*(rounded_cut(quantile, quantiles) for quantile in quantiles[:-1]), 0.0])
    rising, place = np.unique(cuts, return_inverse=True)
    return rising[::-1], np.bincount(place, weights=shares)[::-1]


def _counts(
    cuts: np.ndarray, reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray
) -> tuple[list[int | None], np.ndarray, np.ndarray]:
    """The decided labels after None, for all of them; rows, and errors, at or above each cut `(labels, C)` int64.

    The cuts `(C,)` fall to 0.
    """
    labels, label = np.unique(decision, return_inverse=True)
    shape = len(labels), len(cuts)
    cell = label * len(cuts) + len(cuts) - np.searchsorted(cuts[::-1], reliability, side="right")
    counts = [np.bincount(kept, minlength=shape[0] * shape[1]).reshape(shape) for kept in (cell, cell[~correct])]
    rows, errors = (np.concatenate([each.sum(axis=0, keepdims=True), each]).cumsum(axis=1) for each in counts)
    return [None, *labels.tolist()], rows, errors


def _best(label: int | None, level: float, target: float, cuts: np.ndarray, *of_cuts: np.ndarray) -> Cut:
    """The accepted cut of most coverage, or why there is none, from what is known `of_cuts`, arrays `(C,)` each."""
    rows, errors, p_values, accepted = of_cuts
    n = int(rows[-1])
    if accepted.any():
        best = np.flatnonzero(accepted)[-1]
        correct = int(rows[best] - errors[best])
        return _at(float(cuts[best]), float(accepted[best]), label, n, int(rows[best]), correct)
    if n < (needed := fewest_rows(target, level)):
        return Cut(label=label, rows=n, why=f"{n:,} rows are too few; it takes {needed:,} even if all are correct")
    near = int(np.where(rows >= needed, p_values, np.inf).argmin())
    accuracy = 1 - errors[near] / rows[near]
    short = "less than" if accuracy < target else "not enough to be sure of"
    why = f"at best, at a reliability of at least {cuts[near]}, {accuracy:.1%} of {rows[near]:,} rows are correct, "
    return Cut(label=label, rows=n, why=f"{why}{short} {100 * target:g}%")


def _at(cut: float, level: float, label: int | None, rows: int, automatic: int, correct: int) -> Cut:
    """What is known of decisions at or above a cut."""
    if automatic == 0:
        return Cut(label=label, rows=rows, why=f"none of {rows:,} rows lies above, perhaps because they tie")
    bound = float(scipy.special.betaincinv(correct, automatic - correct + 1, level)) if correct else 0.0
    accuracy = correct / automatic
    return Cut(label=label, cut=cut, rows=rows, automatic=automatic, accuracy=accuracy, lower_bound=bound)


def _check(reliability: np.ndarray, confidence: float) -> None:
    reject_nan(reliability, "reliability")
    if not 0 < confidence < 1:
        raise InputError(f"a confidence of {confidence} is not above 0 and below 1; give one such as 0.95")
    if len(reliability) == 0:
        raise InputError("there is no labelled row to find a cut with; give predictions with their labels")
