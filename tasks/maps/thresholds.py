"""Which decisions to use as they are: a cut on reliability, and what is certain of the decisions at or above it.

The guarantees need no model and no large samples, only labelled rows that the map was not fitted on, drawn
independently and like those to come. Rows of one group are not independent: see `one_row_per_group`.

For a target accuracy, Learn then Test (Angelopoulos et al., 2021): each cut of a grid that the map fixed beforehand is
a hypothesis, "too few of the decisions at or above it are correct", with an exact binomial p-value (Clopper and
Pearson, 1934), and the fallback procedure (Wiens, 2003) says which are rejected, from few decisions to all of them.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
from scipy.special import bdtr, betaincinv

from tasks.maps.cuts import Cut, Thresholds
from tasks.maps.document import MapDocument
from tasks.metrics.checks import reject_nan
from tasks.protocol.errors import BadInput

GRAIN = 10**9  # cuts are multiples of 1 / GRAIN, away from where rows tie: engines differ in the last bits of a tie
EVERY = 5  # percent of coverage from one start to the next


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

    Raises
    ------
    BadInput: target or confidence is not in (0, 1), or there is no row.
    """
    _check(reliability, confidence)
    if not 0 < target < 1:
        raise BadInput(f"no cut can guarantee an accuracy of {target}; give one above 0 and below 1, such as 0.95")
    labels, label_of_row, rows_of_label = np.unique(decision, return_inverse=True, return_counts=True)
    able = rows_of_label >= fewest_rows(target, 1 - confidence)
    of_label = (1 - confidence) / max(1, int(able.sum()))
    cuts, shares = _grid(document, target)
    rows, errors = _counts(cuts, reliability, label_of_row, correct)
    p_values = bdtr(errors.astype(np.float64), rows, 1 - target)
    accepted = fallback(p_values, np.outer(np.r_[1 - confidence, of_label * able], shares))
    overall, *of_labels = [
        _best(label, 1 - confidence if label is None else of_label, target, cuts, *counts)
        for label, *counts in zip([None, *labels.tolist()], rows, errors, p_values, accepted, strict=True)
    ]
    return Thresholds(target, None, confidence, overall, tuple(of_labels))


def cut_at_coverage(
    reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, coverage: str, confidence: float = 0.95
) -> Thresholds:
    """The cut that takes `coverage` of these rows, or less where rows tie, and how often such decisions are correct.

    Rows as in `find_cuts`; coverage is a decimal number in (0, 1], as text so that its share of the rows is exact. The
    lower bounds, by Clopper and Pearson, hold at once for all labels, and by itself for all decisions. They are exact:
    the cut depends only on the largest reliability that is left out, and given this and which rows lie above the cut,
    these are independent draws of all that lies there, with ties too. A cut at a row's own reliability lacks this.

    Raises
    ------
    BadInput: coverage is not in (0, 1] or less than a row, confidence is not in (0, 1), or there is no row.
    """
    _check(reliability, confidence)
    if not re.fullmatch(r"0?\.\d{1,15}|1(\.0{1,15})?", coverage) or not Fraction(coverage):
        raise BadInput(f"there is no coverage of {coverage!r}; give one above 0 and at most 1, such as 0.7")
    n = len(reliability)
    left = n - math.floor(Fraction(coverage) * n)
    if left == n:
        raise BadInput(f"a coverage of {coverage} is less than one of {n:,} labelled rows; ask for more, or add rows")
    cut = (math.floor(np.partition(reliability, left - 1)[left - 1] * GRAIN + 1.5) / GRAIN) if left else 0.0
    above = reliability >= cut
    labels, label_of_row, rows_of_label = np.unique(decision, return_inverse=True, return_counts=True)
    automatic, right = (np.bincount(label_of_row[kept], minlength=len(labels)) for kept in (above, above & correct))
    level = (1 - confidence) / max(1, int((automatic > 0).sum()))
    overall = _at(None, cut, n, int(automatic.sum()), int(right.sum()), 1 - confidence)
    each = zip(labels.tolist(), rows_of_label.tolist(), automatic.tolist(), right.tolist(), strict=True)
    of_labels = tuple(_at(label, cut, rows, taken, good, level) for label, rows, taken, good in each)
    return Thresholds(None, coverage, confidence, overall, of_labels)


def one_row_per_group(group: np.ndarray, seed: int) -> np.ndarray:
    """The number of one row of each group `(n,)`, drawn by `seed`, rising.

    Rows of one group stand and fall together, and the guarantees need independent rows. Those that this keeps are
    independent where groups are; what is guaranteed then speaks of a random row of a new group, so that large groups
    count no more than small ones.
    """
    order = np.random.default_rng(seed).permutation(len(group))
    return np.sort(order[np.unique(group[order], return_index=True)[1]])


def fewest_rows(target: float, level: float) -> int:
    """With fewer rows, all of them correct, an accuracy below `target` is not rejected at `level`; both in (0, 1)."""
    return math.ceil(math.log(level) / math.log(target))


def fallback(p_values: np.ndarray, levels: np.ndarray) -> np.ndarray:
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


def _grid(document: MapDocument, target: float) -> tuple[np.ndarray, np.ndarray]:
    """The cuts, falling to 0, and their shares of the level: half at one start, half at every 5% of coverage.

    The one start is where, if the map is right, the accuracy lies most standard errors above the target.
    """
    quantiles = np.array(document.held_out.quantiles)[::-1]
    percent = np.arange(len(quantiles))
    shares = np.where((percent > 0) & (percent % EVERY == 0), EVERY / 100, 0)
    evidence = (np.cumsum(quantiles) / (percent + 1) - target) * np.sqrt(percent)
    if evidence.max() > 0:
        shares = (shares + (percent == evidence.argmax())) / 2
    cuts = np.maximum(np.floor(quantiles * GRAIN - 0.5) / GRAIN, 0) * (percent < percent[-1])
    rising, place = np.unique(cuts, return_inverse=True)
    return rising[::-1], np.bincount(place, weights=shares)[::-1]


def _counts(
    cuts: np.ndarray, reliability: np.ndarray, label: np.ndarray, correct: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and errors, at or above each cut: of all labels, then of each label `(n,)` 0..K-1; `(K + 1, C)` int64."""
    place = len(cuts) - np.searchsorted(cuts[::-1], reliability, side="right")
    shape = int(label.max()) + 1, len(cuts)
    cell = label * len(cuts) + place
    counts = [np.bincount(kept, minlength=shape[0] * shape[1]).reshape(shape) for kept in (cell, cell[~correct])]
    rows, errors = (np.concatenate([each.sum(axis=0, keepdims=True), each]).cumsum(axis=1) for each in counts)
    return rows, errors


def _best(
    label: int | None,
    level: float,
    target: float,
    cuts: np.ndarray,
    rows: np.ndarray,
    errors: np.ndarray,
    p_values: np.ndarray,
    accepted: np.ndarray,
) -> Cut:
    """The accepted cut of most coverage, or why there is none."""
    n = int(rows[-1])
    if accepted.any():
        best = int(np.flatnonzero(accepted)[-1])
        return _at(label, float(cuts[best]), n, int(rows[best]), int(rows[best] - errors[best]), float(accepted[best]))
    if n < (needed := fewest_rows(target, level)):
        return Cut(
            label, None, n, 0, None, None, f"{n:,} rows are too few; it takes {needed:,} even if all are correct"
        )
    near = int(np.where(rows >= needed, p_values, np.inf).argmin())
    accuracy = 1 - errors[near] / rows[near]
    short = "less than" if accuracy < target else "not enough to be sure of"
    why = f"at best, at a reliability of at least {cuts[near]}, {accuracy:.1%} of {rows[near]:,} rows are correct, "
    return Cut(label, None, n, 0, None, None, f"{why}{short} {100 * target:g}%")


def _at(label: int | None, cut: float, rows: int, automatic: int, right: int, level: float) -> Cut:
    """What is known of decisions at or above a cut."""
    if automatic == 0:
        return Cut(label, None, rows, 0, None, None, f"none of {rows:,} rows lies above, perhaps because they tie")
    bound = float(betaincinv(right, automatic - right + 1, level)) if right else 0.0
    return Cut(label, cut, rows, automatic, right / automatic, bound, None)


def _check(reliability: np.ndarray, confidence: float) -> None:
    reject_nan(reliability, "reliability")
    if not 0 < confidence < 1:
        raise BadInput(f"a confidence of {confidence} is not above 0 and below 1; give one such as 0.95")
    if len(reliability) == 0:
        raise BadInput("there is no labelled row to find a cut with; give predictions with their labels")
