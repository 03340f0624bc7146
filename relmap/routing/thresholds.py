"""Find or validate thresholds on the reliability, at or above which decisions are used without a review.

The guarantees need neither a model nor large samples, only labelled rows that were not used to fit the map, and that
are independent and from the same distribution as new rows. Rows of one group are dependent: see
`sample_independent_rows`.

For a target accuracy, thresholds are chosen by Learn then Test (Angelopoulos et al., 2021). Each threshold of a grid,
which depends only on the map, is a hypothesis: "the accuracy of the decisions at or above it is below the target". Its
p-value is exact (binomial; Clopper and Pearson, 1934). The fallback procedure (Wiens, 2003) tests the hypotheses in
order, from high thresholds to low ones.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import scipy

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.maps.document import MapDocument
from relmap.metrics.probability import reject_nan
from relmap.routing.reliability_thresholds import ReliabilityThresholds, ThresholdEstimate, round_threshold

START_INTERVAL = 5  # percent of coverage between two starting points of the fallback procedure
SAMPLE_SIZE_FACTORS = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # multiples of the number of rows that the advice considers
MIN_ADVISED_PERCENT = 50  # lowest target accuracy that the advice considers


class IndependentRows(NamedTuple):
    """A sample of independent rows.

    Attributes:
        row_number: Increasing row numbers, shape (m,).
        notes: Sentences on how the rows were sampled.
    """

    row_number: np.ndarray
    notes: list[str]


class ThresholdGrid(NamedTuple):
    """Candidate thresholds in test order.

    Attributes:
        thresholds: Decreasing thresholds, the last one 0, shape (C,).
        level_shares: Share of the error level that each threshold starts with, shape (C,); the sum is 1.
    """

    thresholds: np.ndarray
    level_shares: np.ndarray


def find_accuracy_thresholds(
    document: MapDocument,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    *,
    target: float,
    confidence: float = 0.95,
) -> ReliabilityThresholds:
    """Find the thresholds of largest coverage that guarantee an accuracy.

    The probability that the accuracy of all selected decisions is below the target is at most 1 - confidence. The same
    holds for the probability that the accuracy of any label is below the target: the labels with enough rows share the
    error level 1 - confidence equally. Which labels have enough rows depends only on the decisions. Given the
    decisions, the rows of a label are still independent.

    The guarantee of the chosen threshold is the target. `lower_bound` is the bound of Clopper and Pearson at the level
    at which the threshold was accepted. It can be above the target, but such a bound is valid only for a threshold that
    was chosen beforehand.

    Args:
        document: The map.
        reliability: Reliability of independent labelled rows, shape (n,), in [0, 1].
        decision: Decided labels, shape (n,), int.
        correct: Whether each decision is correct, shape (n,), bool.
        target: Accuracy to guarantee, in (0, 1).
        confidence: Confidence of the guarantee, in (0, 1).

    Returns:
        A threshold for all decisions and for each decided label, or the reason why there is none.

    Raises:
        InputError: `target` or `confidence` is out of range, or there is no row.
    """
    _check_input(reliability, confidence)
    if not 0 < target < 1:
        raise InputError(f"no threshold guarantees an accuracy of {target}; give one above 0 and below 1, such as 0.95")
    grid = threshold_grid(document, target)
    counts = _count_rows(grid.thresholds, reliability, decision, correct)
    has_enough_rows = counts.rows[1:, -1] >= min_rows_to_reject(target, 1 - confidence)
    label_level = (1 - confidence) / max(1, int(has_enough_rows.sum()))
    levels = np.r_[1 - confidence, np.full(len(has_enough_rows), label_level)]
    p_values = scipy.special.bdtr(counts.errors.astype(np.float64), counts.rows, 1 - target)
    accepted_at = reject_in_order(p_values, np.outer(levels * np.r_[True, has_enough_rows], grid.level_shares))
    estimates = []
    for k, label in enumerate(counts.labels):
        search = _ThresholdSearch(
            label=label,
            target=target,
            level=float(levels[k]),
            thresholds=grid.thresholds,
            rows=counts.rows[k],
            errors=counts.errors[k],
            p_values=p_values[k],
            accepted_at=accepted_at[k],
        )
        estimates.append(search.best_estimate())
    overall = estimates[0]
    advice: tuple[str, ...] = ()
    if overall.threshold is None:
        advice = _advise(document, counts.rows[0], counts.errors[0], target, 1 - confidence)
    return ReliabilityThresholds(
        target=target,
        requested_coverage=None,
        confidence=confidence,
        overall=overall,
        labels=tuple(estimates[1:]),
        advice=advice,
    )


def _advise(
    document: MapDocument, rows: np.ndarray, errors: np.ndarray, target: float, level: float
) -> tuple[str, ...]:
    """Suggest a lower accuracy, or more rows, for which there would be a threshold.

    `rows` and `errors` are the numbers of rows and errors at or above each threshold of the grid, shape (C,).

    Returns:
        Sentences.
    """

    def coverage_at(accuracy: float, factor: int) -> float:
        p_values = scipy.special.bdtr(factor * errors.astype(np.float64), factor * rows, 1 - accuracy)
        accepted_at = reject_in_order(p_values, level * threshold_grid(document, accuracy).level_shares)
        return float(rows[accepted_at > 0].max(initial=0) / rows[-1])

    advice = []
    for percent in range(math.ceil(100 * target) - 1, MIN_ADVISED_PERCENT - 1, -1):
        coverage = coverage_at(percent / 100, 1)
        if coverage:
            advice.append(
                f"The highest accuracy with a threshold on these rows is {percent / 100:.0%}, which uses "
                f"{coverage:.1%} of decisions as they are."
            )
            break
    for factor in SAMPLE_SIZE_FACTORS:
        if coverage_at(target, factor):
            advice.append(f"About {factor} times as many rows (or groups) like these would suffice.")
            break
    advice.append(
        "(The binomial bound of the best threshold is not valid here, because that threshold was chosen on these rows.)"
    )
    return tuple(advice)


def find_coverage_threshold(
    reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, coverage: str, confidence: float = 0.95
) -> ReliabilityThresholds:
    """Find the threshold that selects a share of the rows, and bound the accuracy of the selected decisions.

    The lower bounds of Clopper and Pearson hold for all labels simultaneously, and separately for all decisions. They
    are exact: the threshold depends only on the largest reliability that is not selected. Given this reliability and
    the set of rows above the threshold, these rows are independent samples from the distribution above the threshold,
    even if there are ties. This would not be true for a threshold at the reliability of a selected row.

    Args:
        reliability: Reliability of independent labelled rows, shape (n,), in [0, 1].
        decision: Decided labels, shape (n,), int.
        correct: Whether each decision is correct, shape (n,), bool.
        coverage: Maximal share of selected rows, a decimal number in (0, 1]; text, so that the share is exact.
        confidence: Confidence of the lower bounds, in (0, 1).

    Returns:
        The threshold, with accuracy and lower bound of all decisions and of each decided label.

    Raises:
        InputError: `coverage` is out of range or less than one row, `confidence` is out of range, or there is no row.
    """
    _check_input(reliability, confidence)
    if not re.fullmatch(r"0?\.\d{1,15}|1(\.0{1,15})?", coverage) or not Fraction(coverage):
        raise InputError(f"the coverage is {coverage!r}; give a number above 0 and at most 1, such as 0.7")
    n_rows = len(reliability)
    n_reviewed = n_rows - math.floor(Fraction(coverage) * n_rows)
    if n_reviewed == n_rows:
        raise InputError(
            f"a coverage of {coverage} is less than one of {n_rows:,} labelled rows; give a larger one or more rows"
        )
    threshold = 0.0
    if n_reviewed:
        largest_reviewed = np.partition(reliability, n_reviewed - 1)[n_reviewed - 1]
        threshold = round_threshold(largest_reviewed, reliability, up=True)
    counts = _count_rows(np.array([threshold, 0.0]), reliability, decision, correct)
    requirement = "a reliability above the threshold; rows with equal reliability are selected together or not at all"
    estimates = _estimates_at_threshold(counts, threshold, confidence, requirement)
    return ReliabilityThresholds(
        target=None,
        requested_coverage=coverage,
        confidence=confidence,
        overall=estimates[0],
        labels=tuple(estimates[1:]),
    )


def bound_accuracy(
    reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, *, threshold: float, confidence: float = 0.95
) -> ReliabilityThresholds:
    """Bound the accuracy of the decisions at or above a threshold that was chosen without these rows.

    The threshold is fixed before the rows are sampled, so the number of correct rows at or above it is binomial given
    their number, and the lower bounds of Clopper and Pearson (1934) are exact. The bounds of the labels hold
    simultaneously, each at an equal share of the level; separately, the bound for all decisions holds at the whole
    level.

    Args:
        reliability: Reliability of independent labelled rows, shape (n,), in [0, 1].
        decision: Decided labels, shape (n,).
        correct: Whether each decision is correct, shape (n,).
        threshold: Minimum reliability of automatic rows, in [0, 1].
        confidence: Confidence of the lower bounds, in (0, 1).

    Returns:
        Automatic rows, accuracy and lower bound of all decisions and of each decided label. Without automatic rows
        there is no accuracy, and the reason is given.

    Raises:
        InputError: The threshold or the confidence is out of range, or there is no row.
    """
    _check_input(reliability, confidence)
    if not 0 <= threshold <= 1:
        raise InputError(f"the cut is {threshold}; it must be a reliability in [0, 1]")
    counts = _count_rows(np.array([threshold, 0.0]), reliability, decision, correct)
    estimates = _estimates_at_threshold(counts, threshold, confidence, f"a reliability of at least {threshold}")
    return ReliabilityThresholds(
        target=None,
        requested_coverage=None,
        confidence=confidence,
        overall=estimates[0],
        labels=tuple(estimates[1:]),
        chosen_threshold=threshold,
    )


def sample_independent_rows(rows: FixedDecisions, seed: int) -> IndependentRows:
    """Sample rows that are independent and had equal probabilities of being selected.

    The binomial distribution does not allow weights. So rows that were sampled with unequal probabilities are retained
    with a probability proportional to their weight.

    Rows of one group are dependent, so one row of each group is sampled. Without weights, the guarantee then refers to
    a random row of a new group: large groups count as much as small ones. With weights, groups are incomplete, and each
    is retained with a probability proportional to its number of retained rows, so that the guarantee refers to a random
    row.

    Args:
        rows: Labelled rows.
        seed: Seed of the random sample.

    Returns:
        Row numbers and notes.
    """
    generator = np.random.default_rng(seed)  # one generator, so that all samples are independent
    row_number = np.arange(len(rows))
    notes = []
    if rows.weight is not None:
        row_number = np.flatnonzero(generator.random(len(rows)) * rows.weight.max() < rows.weight)
        notes.append(
            f"A random sample of {len(row_number):,} labelled rows is used, to compensate for their unequal sampling "
            "probabilities."
        )
    if rows.group is not None and rows.weight is not None:
        _, group_code, group_sizes = np.unique(rows.group[row_number], return_inverse=True, return_counts=True)
        is_retained = generator.random(len(group_sizes)) * group_sizes.max() < group_sizes
        row_number = row_number[is_retained[group_code]]
    if rows.group is not None:
        shuffled = row_number[generator.permutation(len(row_number))]
        _, first_of_group = np.unique(rows.group[shuffled], return_index=True)
        row_number = np.sort(shuffled[first_of_group])
        notes.append(f"One random row of each group is used, so that rows are independent: {len(row_number):,} rows.")
    return IndependentRows(row_number, notes)


def min_rows_to_reject(target: float, level: float) -> int:
    """Compute the minimum number of rows that show an accuracy above a target if all of them are correct.

    Args:
        target: Accuracy, in (0, 1).
        level: Level of the binomial test, in (0, 1).

    Returns:
        The smallest n with target^n <= level.
    """
    return math.ceil(math.log(level) / math.log(target))


def reject_in_order(p_values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Test hypotheses in order by the fallback procedure (Wiens, 2003).

    Each hypothesis is tested at its own level; if the previous hypothesis was rejected, the level at which it was
    tested is added. The probability of rejecting any true hypothesis is at most the sum of the own levels, for any
    dependence of the p-values.

    Args:
        p_values: p-values, in order along the last axis, shape (..., C).
        levels: Own level of each hypothesis, shape (..., C).

    Returns:
        Level at which each hypothesis was rejected, shape (..., C); 0 where it was not.
    """
    rejected_at = np.zeros_like(levels)
    inherited = np.zeros(levels.shape[:-1])
    for i in range(levels.shape[-1]):
        level = levels[..., i] + inherited
        inherited = np.where(p_values[..., i] <= level, level, 0)
        rejected_at[..., i] = inherited
    return rejected_at


def threshold_grid(document: MapDocument, target: float) -> ThresholdGrid:
    """Build the candidate thresholds of a map from the quantiles of its out-of-fold reliability.

    Half of the error level starts at the threshold whose expected accuracy under the map exceeds the target by the most
    standard errors, and half is divided equally among thresholds at every 5% of coverage. If no expected accuracy
    exceeds the target, the whole level is divided among the latter.

    Args:
        document: The map.
        target: Accuracy to guarantee, in (0, 1).

    Returns:
        Decreasing thresholds, and the share of the error level that starts at each.
    """
    quantiles = np.array(document.held_out.quantiles)[::-1]
    percent = np.arange(len(quantiles))
    is_start = (percent > 0) & (percent % START_INTERVAL == 0)
    shares = np.where(is_start, START_INTERVAL / 100, 0)
    evidence = (np.cumsum(quantiles) / (percent + 1) - target) * np.sqrt(percent)
    if evidence.max() > 0:
        shares = (shares + (percent == evidence.argmax())) / 2
    rounded = [round_threshold(quantile, quantiles) for quantile in quantiles[:-1]]
    increasing, position = np.unique(np.array([*rounded, 0.0]), return_inverse=True)
    return ThresholdGrid(thresholds=increasing[::-1], level_shares=np.bincount(position, weights=shares)[::-1])


@dataclass(frozen=True, eq=False)
class _RowCounts:
    """Numbers of rows and errors at or above each of C decreasing thresholds.

    Attributes:
        labels: None for all decisions, then the L decided labels.
        rows: Shape (L + 1, C), int64.
        errors: Shape (L + 1, C), int64.
    """

    labels: list[int | None]
    rows: np.ndarray
    errors: np.ndarray


def _count_rows(
    thresholds: np.ndarray, reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray
) -> _RowCounts:
    """Count rows and errors at or above each threshold; the last threshold is 0."""
    labels, label_code = np.unique(decision, return_inverse=True)
    n_thresholds = len(thresholds)
    # index of the first, highest threshold that each row reaches
    threshold_index = n_thresholds - np.searchsorted(thresholds[::-1], reliability, side="right")
    cell = label_code * n_thresholds + threshold_index
    return _RowCounts(
        labels=[None, *labels.tolist()],
        rows=_cumulative_counts(cell, len(labels), n_thresholds),
        errors=_cumulative_counts(cell[~correct], len(labels), n_thresholds),
    )


def _cumulative_counts(cell: np.ndarray, n_labels: int, n_thresholds: int) -> np.ndarray:
    """Count the rows at or above each threshold, for all labels and for each label.

    Args:
        cell: Label * n_thresholds + index of the first threshold that the row reaches, shape (n,).
        n_labels: Number of labels.
        n_thresholds: Number of decreasing thresholds.

    Returns:
        Shape (n_labels + 1, n_thresholds); the first row is for all labels.
    """
    counts = np.bincount(cell, minlength=n_labels * n_thresholds).reshape(n_labels, n_thresholds)
    return np.asarray(np.concatenate([counts.sum(axis=0, keepdims=True), counts]).cumsum(axis=1))


@dataclass(frozen=True, eq=False)
class _ThresholdSearch:
    """Test results of the decisions of one label, or of all decisions, at C thresholds.

    Attributes:
        label: The decided label; None for all.
        target: Accuracy to guarantee.
        level: Error level of the label.
        thresholds: Decreasing thresholds, shape (C,).
        rows: Number of rows at or above each threshold, shape (C,).
        errors: Number of errors among these rows, shape (C,).
        p_values: p-value of each threshold, shape (C,).
        accepted_at: Level at which each threshold was accepted, shape (C,); 0 where it was not.
    """

    label: int | None
    target: float
    level: float
    thresholds: np.ndarray
    rows: np.ndarray
    errors: np.ndarray
    p_values: np.ndarray
    accepted_at: np.ndarray

    def best_estimate(self) -> ThresholdEstimate:
        """Return the accepted threshold of largest coverage, or the reason why there is none."""
        if not self.accepted_at.any():
            return ThresholdEstimate(label=self.label, n_rows=int(self.rows[-1]), reason=self._reason())
        best = np.flatnonzero(self.accepted_at)[-1]
        return _estimate_accuracy(
            label=self.label,
            threshold=float(self.thresholds[best]),
            level=float(self.accepted_at[best]),
            n_rows=int(self.rows[-1]),
            n_automatic=int(self.rows[best]),
            n_correct=int(self.rows[best] - self.errors[best]),
        )

    def _reason(self) -> str:
        """Explain why no threshold was accepted."""
        n_rows = int(self.rows[-1])
        n_needed = min_rows_to_reject(self.target, self.level)
        if n_rows < n_needed:
            return f"{n_rows:,} rows are too few; {n_needed:,} are needed even if all are correct"
        closest = int(np.where(self.rows >= n_needed, self.p_values, np.inf).argmin())
        accuracy = 1 - self.errors[closest] / self.rows[closest]
        shortfall = "less than" if accuracy < self.target else "too few rows to guarantee"
        return (
            f"the best candidate is a reliability of at least {self.thresholds[closest]}, where {accuracy:.1%} of "
            f"{self.rows[closest]:,} rows are correct, {shortfall} {100 * self.target:g}%"
        )


def _estimates_at_threshold(
    counts: _RowCounts, threshold: float, confidence: float, requirement: str
) -> list[ThresholdEstimate]:
    """Estimate the accuracy at a threshold, for all decisions and for each label.

    Args:
        counts: Numbers of rows and errors at this threshold, and at 0.
        threshold: The threshold.
        confidence: Confidence of the lower bounds; the labels with automatic rows share the error level equally.
        requirement: End of the reason if there are no automatic rows: "none of the labelled rows has ...".

    Returns:
        An estimate for all decisions, then one for each label.
    """
    n_labels_with_rows = int((counts.rows[1:, 0] > 0).sum())
    label_level = (1 - confidence) / max(1, n_labels_with_rows)
    estimates = []
    for k, label in enumerate(counts.labels):
        n_rows = int(counts.rows[k, 1])
        n_automatic = int(counts.rows[k, 0])
        if n_automatic == 0:
            reason = f"none of {n_rows:,} labelled rows has {requirement}"
            estimates.append(ThresholdEstimate(label=label, n_rows=n_rows, reason=reason))
            continue
        estimates.append(
            _estimate_accuracy(
                label=label,
                threshold=threshold,
                level=1 - confidence if label is None else label_level,
                n_rows=n_rows,
                n_automatic=n_automatic,
                n_correct=n_automatic - int(counts.errors[k, 0]),
            )
        )
    return estimates


def _estimate_accuracy(
    *, label: int | None, threshold: float, level: float, n_rows: int, n_automatic: int, n_correct: int
) -> ThresholdEstimate:
    """Estimate the accuracy of automatic rows, with the lower bound of Clopper and Pearson."""
    lower_bound = 0.0
    if n_correct:
        lower_bound = float(scipy.special.betaincinv(n_correct, n_automatic - n_correct + 1, level))
    return ThresholdEstimate(
        label=label,
        threshold=threshold,
        n_rows=n_rows,
        n_automatic=n_automatic,
        accuracy=n_correct / n_automatic,
        lower_bound=lower_bound,
    )


def _check_input(reliability: np.ndarray, confidence: float) -> None:
    reject_nan(reliability, "reliability")
    if not 0 < confidence < 1:
        raise InputError(f"the confidence is {confidence}; give a number above 0 and below 1, such as 0.95")
    if len(reliability) == 0:
        raise InputError("there are no labelled rows to find a threshold with; give predictions with their labels")
