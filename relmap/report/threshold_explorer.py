"""Aggregated results at many thresholds, for the interactive part of the report page.

The page embeds counts and intervals at no more than `MAX_THRESHOLDS` thresholds, and no row.
"""

import json
import math
from dataclasses import dataclass

import numpy as np

from relmap.evaluation.sample import EvaluationSample
from relmap.metrics.intervals import effective_rows, wilson_interval
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS
from relmap.routing.thresholds import MAX_THRESHOLD_DECIMALS, MIN_THRESHOLD_DECIMALS, TIE_TOLERANCE

MAX_THRESHOLDS = 1000
MAX_CELLS = 20_000  # thresholds times lines of the table, which bounds the size of the page
MIN_THRESHOLDS = 20  # also if the number of labels makes the table exceed MAX_CELLS
HUNDREDTHS = np.arange(1, 100) / 100  # thresholds that users are likely to type
INTERVAL_DECIMALS = 4


@dataclass(frozen=True, eq=False)
class ThresholdResults:
    """Automatic rows at each of T thresholds: of all decisions, or of the decisions for one label.

    Rows with a sampling weight are repeated: `total`, `automatic` and `correct` count these copies. Without weights
    they count rows.

    Attributes:
        label: The decided label; None for all decisions.
        n_rows: Number of labelled rows.
        total: Number of rows, copies included.
        automatic_rows: Number of labelled rows at or above each threshold, shape (T,).
        automatic: Number of rows at or above each threshold, copies included, shape (T,).
        correct: Number of these rows that are correct, copies included, shape (T,).
        low: Lower end of the pointwise 95% interval of the accuracy, shape (T,); NaN for fewer than ten groups.
        high: Upper end, shape (T,).
    """

    label: int | None
    n_rows: int
    total: int
    automatic_rows: np.ndarray
    automatic: np.ndarray
    correct: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class ThresholdExplorer:
    """Results at thresholds on the reliability.

    Attributes:
        thresholds: Increasing thresholds from 0 to 1, shape (T,), T at most `MAX_THRESHOLDS`. Only 0, 1 and the
            threshold that is shown first may equal the reliability of a row.
        initial: Index of the threshold that is shown first.
        overall: Results of all decisions.
        labels: Results of each decided label.
        weighted: Whether rows have sampling weights.
    """

    thresholds: np.ndarray
    initial: int
    overall: ThresholdResults
    labels: tuple[ThresholdResults, ...]
    weighted: bool

    @classmethod
    def from_sample(cls, sample: EvaluationSample, threshold: float) -> "ThresholdExplorer":
        """Aggregate rows at thresholds.

        Args:
            sample: Labelled rows, each scored by a model that was fitted without it.
            threshold: Threshold to show first. It is replaced with a threshold of fewer decimal places that selects the
                same rows, if it has many.

        Returns:
            The results, overall and for each decided label.
        """
        reliability = sample.scored.reliability
        decided_labels = np.unique(sample.rows.decision)
        n_thresholds = max(MIN_THRESHOLDS, min(MAX_THRESHOLDS, MAX_CELLS // (len(decided_labels) + 1)))
        initial_threshold = _with_few_decimals(threshold, np.unique(reliability))
        thresholds = choose_thresholds(reliability, n_thresholds, initial_threshold)
        rows = _ClusteredRows.from_sample(sample)
        results_by_label = []
        for label in decided_labels:
            rows_of_label = np.flatnonzero(sample.rows.decision == label)
            results_by_label.append(rows.aggregate(int(label), rows_of_label, thresholds))
        return cls(
            thresholds=thresholds,
            initial=int(np.searchsorted(thresholds, initial_threshold)),
            overall=rows.aggregate(None, np.arange(len(reliability)), thresholds),
            labels=tuple(results_by_label),
            weighted=sample.rows.weight is not None,
        )

    def to_json(self, label_names: tuple[str, ...]) -> str:
        """Write the results as JSON for the script of the page.

        Args:
            label_names: Names of the labels 0..K-1.

        Returns:
            JSON in which the character `<` is escaped, so that no `</script` in a name ends the script element.
        """
        lines = [self._line("All decisions", self.overall)]
        lines += [self._line(label_names[result.label or 0], result) for result in self.labels]
        content = {
            "thresholds": self.thresholds.tolist(),
            "initial": self.initial,
            "weighted": self.weighted,
            "lines": lines,
        }
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.replace("<", "\\u003c")

    def _line(self, name: str, results: ThresholdResults) -> dict[str, object]:
        line: dict[str, object] = {
            "name": name,
            "rows": results.n_rows,
            "total": results.total,
            "automatic": results.automatic.tolist(),
            "correct": results.correct.tolist(),
            "low": _rounded(results.low),
            "high": _rounded(results.high),
        }
        if self.weighted:
            line["automatic_rows"] = results.automatic_rows.tolist()
        return line


def choose_thresholds(reliability: np.ndarray, n_max: int, threshold: float) -> np.ndarray:
    """Choose thresholds for the page, most of them evenly spaced by the number of rows.

    0, 1 and the given threshold are always included. If `n_max` is more than twice the number of hundredths, the
    hundredths 0.01 to 0.99 are included, except those that equal the reliability of a row, since the last bits of a
    reliability depend on the software that computes it. The other thresholds are numbers with few decimal places, each
    between a reliability and the next lower one.

    Args:
        reliability: Reliability of the rows, shape (n,), in [0, 1].
        n_max: Maximum number of thresholds.
        threshold: A threshold to include, in [0, 1].

    Returns:
        Increasing thresholds, at most `n_max`.
    """
    levels = np.unique(reliability)
    always_included = [0.0, 1.0, threshold]
    if 2 * len(HUNDREDTHS) < n_max:
        always_included += HUNDREDTHS[_distance_to_nearest(levels, HUNDREDTHS) > TIE_TOLERANCE].tolist()
    thresholds = set(always_included)
    n_remaining = n_max - len(thresholds)
    chosen_levels = levels
    if len(levels) > n_remaining:
        ranks = np.round(np.linspace(0, len(reliability) - 1, n_remaining)).astype(np.int64)
        chosen_levels = np.unique(np.sort(reliability)[ranks])
    for index in np.searchsorted(levels, chosen_levels):
        if index == 0:  # the threshold 0 is below the lowest level
            continue
        found = _shortest_between(float(levels[index - 1]), float(levels[index]))
        if found is not None:
            thresholds.add(found)
    return np.array(sorted(thresholds))


def _with_few_decimals(threshold: float, levels: np.ndarray) -> float:
    """Shorten a threshold of more than four decimal places, if possible, to one that selects the same rows."""
    index = int(np.searchsorted(levels, threshold))
    if round(threshold, MIN_THRESHOLD_DECIMALS) == threshold or index in (0, len(levels)):
        return threshold
    found = _shortest_between(float(levels[index - 1]), float(levels[index]))
    return threshold if found is None else found


def _distance_to_nearest(levels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the distance of each value to the nearest of the increasing levels."""
    right = np.clip(np.searchsorted(levels, values), 0, len(levels) - 1)
    left = np.maximum(right - 1, 0)
    return np.asarray(np.minimum(np.abs(levels[right] - values), np.abs(levels[left] - values)))


def _shortest_between(low: float, high: float) -> float | None:
    """Find the number with the fewest decimal places between two levels; None if the levels are too close."""
    for n_decimals in range(1, MAX_THRESHOLD_DECIMALS + 1):
        scale = 10**n_decimals
        number: float = math.ceil((low + TIE_TOLERANCE) * scale) / scale
        if number <= high - TIE_TOLERANCE:
            return number
    return None


@dataclass(frozen=True, eq=False)
class _ClusteredRows:
    """Labelled rows, each once; all arrays have shape (n,)."""

    reliability: np.ndarray
    correct: np.ndarray  # bool
    copies: np.ndarray  # number of copies of each row, int64
    cluster: np.ndarray  # number of the group of each row; without groups, number of the row

    @classmethod
    def from_sample(cls, sample: EvaluationSample) -> "_ClusteredRows":
        """Count the copies of each row."""
        n_rows = len(sample.rows)
        first_copy = np.searchsorted(sample.row_number, np.arange(n_rows))
        return cls(
            reliability=sample.scored.reliability,
            correct=sample.rows.correct,
            copies=np.bincount(sample.row_number, minlength=n_rows),
            cluster=sample.cluster[first_copy],
        )

    def aggregate(self, label: int | None, members: np.ndarray, thresholds: np.ndarray) -> ThresholdResults:
        """Aggregate rows at each threshold.

        Rows are sorted by decreasing reliability, so that cumulative sums give the results at all thresholds. Let r and
        c be the numbers of rows and of correct rows of a group at or above a threshold, and s the share of correct
        rows. The sum over groups of squared residuals, sum (c - s r)^2, is sum c^2 - 2 s sum c r + s^2 sum r^2; the
        three sums on the right are cumulative sums over rows.

        Args:
            label: Decided label of the rows; None for all.
            members: Indices of the rows.
            thresholds: Increasing thresholds, shape (T,).

        Returns:
            Counts, and intervals of the accuracy.
        """
        order = members[np.argsort(-self.reliability[members])]
        copies = self.copies[order]
        correct = copies * self.correct[order]
        rows_before = _sum_before(copies, self.cluster[order])
        correct_before = _sum_before(correct, self.cluster[order])
        # the rows at or above a threshold are the first n_automatic ones of `order`
        n_automatic = np.searchsorted(-self.reliability[order], -thresholds, side="right")

        automatic = _cumulative(copies)[n_automatic]
        n_correct = _cumulative(correct)[n_automatic]
        squared_rows = _cumulative(2 * copies * rows_before + copies**2)[n_automatic]
        squared_correct = _cumulative(2 * correct * correct_before + correct**2)[n_automatic]
        products = _cumulative(copies * correct_before + correct * rows_before + copies * correct)[n_automatic]
        n_clusters = _cumulative(rows_before == 0)[n_automatic]
        with np.errstate(invalid="ignore"):
            share = n_correct / automatic
        squared_residuals = squared_correct - 2 * share * products + share**2 * squared_rows
        effective = effective_rows(
            share,
            automatic,
            squared_residuals=np.maximum(squared_residuals, 0),  # rounding can make them negative
            squared_rows=squared_rows,
            squared_copies=_cumulative(copies**2)[n_automatic],
        )
        low, high = wilson_interval(share, effective)
        has_enough_groups = n_clusters >= MIN_BOOTSTRAP_GROUPS
        return ThresholdResults(
            label=label,
            n_rows=len(members),
            total=int(copies.sum()),
            automatic_rows=n_automatic,
            automatic=automatic,
            correct=n_correct,
            low=np.where(has_enough_groups, low, np.nan),
            high=np.where(has_enough_groups, high, np.nan),
        )


def _cumulative(values: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, ..., n values, shape (n + 1,)."""
    return np.concatenate([[0], np.cumsum(values)])


def _sum_before(values: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return the sum of the earlier values of the same cluster, shape (n,)."""
    order = np.argsort(cluster, kind="stable")
    before = _cumulative(values[order])[:-1]
    starts = np.flatnonzero(np.diff(cluster[order], prepend=-1))
    lengths = np.diff(np.append(starts, len(order)))
    sums = np.empty_like(before)
    sums[order] = before - np.repeat(before[starts], lengths)
    return sums


def _rounded(values: np.ndarray) -> list[float | None]:
    """Return numbers for JSON; None where they are undefined."""
    return [None if math.isnan(value) else round(value, INTERVAL_DECIMALS) for value in values.tolist()]
