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
from relmap.routing.reliability_thresholds import MAX_THRESHOLD_DECIMALS, MIN_THRESHOLD_DECIMALS, TIE_TOLERANCE

MAX_THRESHOLDS = 1000
MAX_CELLS = 20_000  # thresholds times lines of the table, which bounds the size of the page
MIN_THRESHOLDS = 20  # however many labels there are
HUNDREDTHS = np.arange(1, 100) / 100  # thresholds that users type
INTERVAL_DIGITS = 4


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
        automatic: The same with copies, shape (T,).
        correct: How many of `automatic` are correct, shape (T,).
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
        thresholds: Rising thresholds from 0 to 1, shape (T,), T at most `MAX_THRESHOLDS`. Only 0 and 1 may equal the
            reliability of a row.
        initial: Index of the threshold that is shown first. It has the same automatic rows as the given one.
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
            threshold: Threshold to show first.

        Returns:
            The results, overall and for each decided label.
        """
        reliability = sample.scored.reliability
        decided = np.unique(sample.rows.decision)
        n_thresholds = max(MIN_THRESHOLDS, min(MAX_THRESHOLDS, MAX_CELLS // (len(decided) + 1)))
        first = _with_few_digits(threshold, np.unique(reliability))
        thresholds = choose_thresholds(reliability, n_thresholds, first)
        rows = _ClusteredRows.from_sample(sample)
        everything = np.arange(len(reliability))
        by_label = [np.flatnonzero(sample.rows.decision == label) for label in decided]
        return cls(
            thresholds=thresholds,
            initial=int(np.searchsorted(thresholds, first)),
            overall=rows.results(None, everything, thresholds),
            labels=tuple(
                rows.results(int(label), members, thresholds) for label, members in zip(decided, by_label, strict=True)
            ),
            weighted=sample.rows.weight is not None,
        )

    def to_json(self, label_names: tuple[str, ...]) -> str:
        """Write the results as JSON for the script of the page.

        Args:
            label_names: Names of the labels, index = label.

        Returns:
            JSON without the character `<`, so that it cannot end the script element that holds it.
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
    """Choose thresholds that separate rows, evenly by the number of rows.

    0, 1 and the given threshold are always included. Hundredths are added if they are less than half of `n_max`,
    except those that equal the reliability of a row: other engines may compute it with another last bit. The other
    thresholds are numbers with few digits, each just below the reliability of a row.

    Args:
        reliability: Reliability of the rows, shape (n,), in [0, 1].
        n_max: Maximum number of thresholds.
        threshold: A threshold to include, in [0, 1].

    Returns:
        Rising thresholds, at most `n_max`.
    """
    levels = np.unique(reliability)
    fixed = [0.0, 1.0, threshold]
    if 2 * len(HUNDREDTHS) < n_max:
        fixed += HUNDREDTHS[_distance_to_nearest(levels, HUNDREDTHS) > TIE_TOLERANCE].tolist()
    thresholds = set(fixed)
    n_levels = n_max - len(thresholds)
    chosen = levels
    if len(levels) > n_levels:
        ranks = np.round(np.linspace(0, len(reliability) - 1, n_levels)).astype(np.int64)
        chosen = np.unique(np.sort(reliability)[ranks])
    for index in np.searchsorted(levels, chosen):
        if index == 0:  # below the lowest level is the threshold 0
            continue
        found = _shortest_between(float(levels[index - 1]), float(levels[index]))
        if found is not None:
            thresholds.add(found)
    return np.array(sorted(thresholds))


def _with_few_digits(threshold: float, levels: np.ndarray) -> float:
    """Return a threshold with the same automatic rows, with as few digits as possible if it has more than four."""
    index = int(np.searchsorted(levels, threshold))
    if round(threshold, MIN_THRESHOLD_DECIMALS) == threshold or index in (0, len(levels)):
        return threshold
    found = _shortest_between(float(levels[index - 1]), float(levels[index]))
    return threshold if found is None else found


def _distance_to_nearest(levels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the distance of each value to the nearest of the rising levels."""
    right = np.clip(np.searchsorted(levels, values), 0, len(levels) - 1)
    left = np.maximum(right - 1, 0)
    return np.asarray(np.minimum(np.abs(levels[right] - values), np.abs(levels[left] - values)))


def _shortest_between(low: float, high: float) -> float | None:
    """Find the number with the fewest digits between two levels, equal to neither; None if they are too close."""
    for digits in range(1, MAX_THRESHOLD_DECIMALS + 1):
        grain = 10**digits
        number: float = math.ceil((low + TIE_TOLERANCE) * grain) / grain
        if number <= high - TIE_TOLERANCE:
            return number
    return None


@dataclass(frozen=True, eq=False)
class _ClusteredRows:
    """Labelled rows, each once; all arrays have shape (n,)."""

    reliability: np.ndarray
    correct: np.ndarray  # bool
    copies: np.ndarray  # number of rows that each represents, int64
    cluster: np.ndarray  # number of its group, or its own number

    @classmethod
    def from_sample(cls, sample: EvaluationSample) -> "_ClusteredRows":
        """Collect the copies of each row."""
        n_rows = len(sample.rows)
        first_copy = np.searchsorted(sample.row_number, np.arange(n_rows))
        return cls(
            reliability=sample.scored.reliability,
            correct=sample.rows.correct,
            copies=np.bincount(sample.row_number, minlength=n_rows),
            cluster=sample.cluster[first_copy],
        )

    def results(self, label: int | None, members: np.ndarray, thresholds: np.ndarray) -> ThresholdResults:
        """Aggregate rows at each threshold.

        Rows enter in falling order of their reliability, and all sums are cumulative. With r and c the rows and correct
        rows of a group so far, the squared residuals are sum (c - share r)^2 = sum c^2 - 2 share sum c r + share^2 sum
        r^2, so that one pass gives them at every threshold.

        Args:
            label: Decided label of the rows; None for all.
            members: Indices of the rows.
            thresholds: Rising thresholds, shape (T,).

        Returns:
            Counts, and intervals of the accuracy.
        """
        order = members[np.argsort(-self.reliability[members])]
        copies = self.copies[order]
        correct = copies * self.correct[order]
        rows_before = _sum_before(copies, self.cluster[order])
        correct_before = _sum_before(correct, self.cluster[order])
        # rows at or above a threshold are the first ones of `order`
        n_used = np.searchsorted(-self.reliability[order], -thresholds, side="right")

        automatic = _cumulative(copies)[n_used]
        n_correct = _cumulative(correct)[n_used]
        squared_rows = _cumulative(2 * copies * rows_before + copies**2)[n_used]
        squared_correct = _cumulative(2 * correct * correct_before + correct**2)[n_used]
        products = _cumulative(copies * correct_before + correct * rows_before + copies * correct)[n_used]
        n_clusters = _cumulative(rows_before == 0)[n_used]
        with np.errstate(invalid="ignore"):
            share = n_correct / automatic
        residuals = squared_correct - 2 * share * products + share**2 * squared_rows
        effective = effective_rows(
            share,
            automatic,
            squared_residuals=np.maximum(residuals, 0),  # rounding can make it negative
            squared_rows=squared_rows,
            squared_copies=_cumulative(copies**2)[n_used],
        )
        low, high = wilson_interval(share, effective)
        enough = n_clusters >= MIN_BOOTSTRAP_GROUPS
        return ThresholdResults(
            label=label,
            n_rows=len(members),
            total=int(copies.sum()),
            automatic_rows=n_used,
            automatic=automatic,
            correct=n_correct,
            low=np.where(enough, low, np.nan),
            high=np.where(enough, high, np.nan),
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
    return [None if math.isnan(value) else round(value, INTERVAL_DIGITS) for value in values.tolist()]
