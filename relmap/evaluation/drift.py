"""Drift test: compares the residuals of new labelled rows with those of the fit rows.

The residual of a row is its correctness (1 or 0) minus its reliability. For fit rows, the reliability is the
out-of-fold prediction; under the paper's protocol, the projection-selection rows replace the fit rows. Rows are divided
into cells by the decided label and by whether the reliability is below the median of that label. Two further cells
contain the most reliable 10% and 30% of the fit rows of all labels, and the new rows that are at least as reliable.

In each cell, the mean residual of the new rows is compared with the mean residual of the fit rows, and not with 0: a
map that is fitted to finitely many rows is always slightly miscalibrated, which a comparison with 0 would report as a
change if there are many new rows. The test detects a change of the accuracy at a given reliability. It does not detect
a change of the label frequencies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from relmap.errors import InputError
from relmap.maps.document import Cell, Half, MapDocument, TopCell
from relmap.maps.held_out import summarize_cells, summarize_top_cell, top_limit
from relmap.metrics.intervals import finite_or_none, holm_adjust
from relmap.metrics.probability import reject_nan
from relmap.metrics.resampling import MIN_BOOTSTRAP_GROUPS

MIN_TEST_ROWS = 20  # a cell is tested if it has this many new rows and this many fit rows
ROUNDING_TOLERANCE = 1e-12  # smaller differences of mean residuals are rounding errors
MAX_LISTED_CELLS = 5
POWER = 0.8  # probability with which a change of `detectable_change` is found
N_ITERATIONS = 20  # to solve for a detectable change
FIT_AGAIN = "Fit a new map on rows like these, without older rows; until then its reliabilities are wrong."


@dataclass(frozen=True)
class CellDrift:
    """New rows of one decided label and one half of its reliabilities, compared with the fit rows.

    Attributes:
        label: The decided label, 0..K-1.
        half: Half of the reliabilities of the label.
        median: Median reliability of the fit rows of the label, which separates the halves.
        rows: Number of new rows.
        mean_reliability: Mean reliability of the new rows.
        accuracy: Accuracy of the new rows.
        expected_accuracy: Accuracy that the new rows would have if their mean residual were that of the fit rows; None
            without fit rows.
        p_value: p-value of no change, adjusted for all tests; None if there are too few rows for a test.
        detectable_change: Change of the accuracy that is found with the probability `POWER`; None without a test.
    """

    label: int
    half: Half
    median: float
    rows: int
    mean_reliability: float
    accuracy: float
    expected_accuracy: float | None
    p_value: float | None
    detectable_change: float | None = None

    def describe_rows(self, names: Sequence[str] | None) -> str:
        """Describe the rows of the cell.

        Args:
            names: Names of the labels; None for their numbers.

        Returns:
            A noun phrase.
        """
        label = names[self.label] if names else self.label
        reliability_range = f"below {self.median:.3g}" if self.half == "lower" else f"{self.median:.3g} and above"
        return f"{label} at reliability {reliability_range}"

    def as_json(self) -> dict[str, str | float | None]:
        """Convert the numbers for JSON."""
        return {
            "label": self.label,
            "half": self.half,
            "median": self.median,
            "rows": self.rows,
            "mean_reliability": self.mean_reliability,
            "correct": self.accuracy,
            "expected": self.expected_accuracy,
            "p": self.p_value,
            "detectable_change": self.detectable_change,
        }


@dataclass(frozen=True)
class TopDrift:
    """New rows that are as reliable as the most reliable fit rows.

    Attributes:
        share: Share of the fit rows that reach the limit.
        limit: Minimum reliability.
        rows: Number of new rows that reach the limit.
        mean_reliability: Mean reliability of these new rows.
        accuracy: Accuracy of these new rows.
        expected_accuracy: Accuracy that they would have if their mean residual were that of the fit rows.
        p_value: p-value of no change, adjusted for all tests; None if there are too few rows for a test.
        detectable_change: Change of the accuracy that is found with the probability `POWER`; None without a test.
    """

    share: float
    limit: float
    rows: int
    mean_reliability: float
    accuracy: float
    expected_accuracy: float
    p_value: float | None
    detectable_change: float | None = None

    def describe_rows(self, _names: Sequence[str] | None) -> str:
        """Describe the rows, as `CellDrift.describe_rows` does."""
        return f"the most reliable {100 * self.share:.0f}%, at reliability {self.limit:.3g} and above"

    def as_json(self) -> dict[str, float | None]:
        """Convert the numbers for JSON."""
        return {
            "share": self.share,
            "limit": self.limit,
            "rows": self.rows,
            "mean_reliability": self.mean_reliability,
            "correct": self.accuracy,
            "expected": self.expected_accuracy,
            "p": self.p_value,
            "detectable_change": self.detectable_change,
        }


@dataclass(frozen=True)
class DriftResult:
    """Result of a drift test.

    Attributes:
        level: Probability of a false alarm if nothing has changed.
        cells: Cells with new rows, by label and half.
        top: Cells of the most reliable rows; empty for maps written by earlier versions.
    """

    level: float
    cells: tuple[CellDrift, ...]
    top: tuple[TopDrift, ...] = ()

    @property
    def changed(self) -> tuple[CellDrift | TopDrift, ...]:
        """Cells with a significant change, by increasing p-value."""
        significant = []
        for cell in self._all_cells:
            if cell.p_value is not None and cell.p_value <= self.level:
                significant.append((cell.p_value, cell))
        return tuple(cell for _, cell in sorted(significant, key=lambda pair: pair[0]))

    @property
    def _all_cells(self) -> tuple[CellDrift | TopDrift, ...]:
        return (*self.cells, *self.top)

    @property
    def holds(self) -> bool:
        """Whether no change was detected; also true if no cell could be tested."""
        return not self.changed

    def as_json(self) -> dict[str, Any]:
        """Convert the result for JSON; the `p` of a cell is None if it could not be tested."""
        return {
            "holds": self.holds,
            "level": self.level,
            "cells": [cell.as_json() for cell in self.cells],
            "top": [cell.as_json() for cell in self.top],
        }

    def describe(self, names: Sequence[str] | None = None) -> list[str]:
        """Describe the result.

        Args:
            names: Names of the labels 0..K-1; None for their numbers.

        Returns:
            Lines for the conclusion, for what was not tested, and for the false alarms, the conclusion first.
        """
        untested = [cell for cell in self._all_cells if cell.p_value is None]
        has_tests = len(untested) < len(self._all_cells)
        if self.changed:
            lines = self._describe_changes(names)
        elif has_tests:
            lines = [self._describe_no_change(n_tested=len(self._all_cells) - len(untested))]
        else:
            lines = ["It is unknown whether the map still holds: no label has enough labelled rows for a test."]
        lines += self.describe_untested(names)
        if has_tests:
            lines.append(
                f"False alarm rate: at most {100 * self.level:g}% for each evaluation. A change of the label "
                "frequencies is not tested, since it does not invalidate the map."
            )
        return lines

    def describe_untested(self, names: Sequence[str] | None = None) -> list[str]:
        """Describe the cells that could not be tested.

        Args:
            names: Names of the labels 0..K-1; None for their numbers.

        Returns:
            A sentence; empty if all were tested.
        """
        untested = [cell for cell in self._all_cells if cell.p_value is None]
        if not untested:
            return []
        listed = "; ".join(cell.describe_rows(names) for cell in untested[:MAX_LISTED_CELLS])
        n_omitted = len(untested) - MAX_LISTED_CELLS
        more = f"; and {n_omitted} more" if n_omitted > 0 else ""
        return [f"Not tested, because there are too few new rows or fit rows: {listed}{more}."]

    def _describe_changes(self, names: Sequence[str] | None) -> list[str]:
        lines = []
        for cell in self.changed[:MAX_LISTED_CELLS]:
            lines.append(
                f"The map no longer holds for {cell.describe_rows(names)}: accuracy {cell.accuracy:.2f} in "
                f"{cell.rows:,} rows, {cell.expected_accuracy:.2f} at the same reliabilities when the map was fitted "
                f"(p-value {cell.p_value:.2g})."
            )
        n_omitted = len(self.changed) - MAX_LISTED_CELLS
        more = f"Further groups of rows for which it does not hold: {n_omitted}. " if n_omitted > 0 else ""
        lines.append(f"{more}{FIT_AGAIN}")
        return lines

    def _describe_no_change(self, n_tested: int) -> str:
        """Describe how many ranges were tested, and which changes the tests find."""
        ranges = "the tested range" if n_tested == 1 else f"the {n_tested} tested ranges of labels and reliabilities"
        answer = f"No change of the accuracy at a given reliability was found in {ranges}"
        changes = [cell.detectable_change for cell in self._all_cells if cell.detectable_change is not None]
        if not changes:
            return f"{answer}."
        points = sorted({max(round(100 * change), 1) for change in (min(changes), max(changes))})
        return (
            f"{answer}. A change by {' to '.join(map(str, points))} percentage points would have been found with a "
            f"probability of {POWER:.0%}."
        )


def detect_drift(
    document: MapDocument,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    group: np.ndarray | None,
    *,
    level: float = 0.01,
) -> DriftResult:
    """Test whether a map still holds on new labelled rows.

    In each cell with enough rows, the mean residuals are compared by a two-sample t-test. Its degrees of freedom are
    the number of groups of the new rows minus one; without groups, the number of new rows minus one. The p-values have
    Holm's correction over all cells.

    Args:
        document: The map.
        reliability: Reliability of the new rows, shape (n,), in [0, 1]. The new rows must be independent of the fit
            rows.
        decision: Decided labels 0..K-1, shape (n,).
        correct: Whether each decision is correct, shape (n,), bool.
        group: Group of each row, shape (n,); None if rows are independent.
        level: Probability of a false alarm, in (0, 1).

    Returns:
        The result of the test.

    Raises:
        InputError: `level` is not in (0, 1), or there is no row.
    """
    reject_nan(reliability, "reliability")
    if not 0 < level < 1:
        raise InputError(f"level is {level}; give a number above 0 and below 1, such as 0.01")
    if len(reliability) == 0:
        raise InputError("there are no labelled rows to test the map with; give predictions with their labels")
    held_out = document.held_out
    comparisons = _compare_cells(document, reliability, decision, correct, group)
    top_comparisons = _compare_top_cells(document, reliability, correct, group)
    all_comparisons: list[_CellComparison | _TopComparison] = [*comparisons, *top_comparisons]
    tests = [_test_cell(comparison, is_grouped=group is not None) for comparison in all_comparisons]
    unadjusted = np.array([np.nan if test is None else test.p_value for test in tests])
    p_values = [finite_or_none(p_value) for p_value in holm_adjust(unadjusted)]
    cell_level = level / max(1, len(tests) - tests.count(None))
    detectable = [None if test is None else test.detectable_change(cell_level) for test in tests]
    cells = []
    for comparison, p_value, change in zip(
        comparisons, p_values[: len(comparisons)], detectable[: len(comparisons)], strict=True
    ):
        cells.append(
            CellDrift(
                label=comparison.new.label,
                half=comparison.new.half,
                median=held_out.halves[comparison.new.label],
                rows=comparison.new.rows,
                mean_reliability=comparison.new.mean_reliability,
                accuracy=comparison.accuracy,
                expected_accuracy=comparison.expected_accuracy,
                p_value=p_value,
                detectable_change=change,
            )
        )
    top = []
    for top_comparison, p_value, change in zip(
        top_comparisons, p_values[len(comparisons) :], detectable[len(comparisons) :], strict=True
    ):
        share = top_comparison.reference.share
        top.append(
            TopDrift(
                share=share,
                limit=top_limit(held_out.quantiles, share),
                rows=top_comparison.new.rows,
                mean_reliability=top_comparison.new.mean_reliability,
                accuracy=top_comparison.accuracy,
                expected_accuracy=top_comparison.expected_accuracy,
                p_value=p_value,
                detectable_change=change,
            )
        )
    return DriftResult(level=level, cells=tuple(cells), top=tuple(top))


class _CellComparison(NamedTuple):
    """Summaries of the new rows and of the fit rows of a cell; `n_groups` is that of the new rows."""

    new: Cell
    n_groups: int
    reference: Cell | None

    @property
    def accuracy(self) -> float:
        return _accuracy(self.new, self.new)

    @property
    def expected_accuracy(self) -> float | None:
        return None if self.reference is None else _accuracy(self.new, self.reference)


class _TopComparison(NamedTuple):
    """Summaries of the most reliable new rows and fit rows; `n_groups` is that of the new rows."""

    new: Cell
    n_groups: int
    reference: TopCell

    @property
    def accuracy(self) -> float:
        return _accuracy(self.new, self.new)

    @property
    def expected_accuracy(self) -> float:
        return _accuracy(self.new, self.reference)


def _accuracy(rows: Cell, reference: Cell | TopCell) -> float:
    """Return the accuracy of rows with the mean residual of a reference, in [0, 1] in spite of rounding."""
    return min(max(rows.mean_reliability + reference.mean_residual, 0.0), 1.0)


class _CellTest(NamedTuple):
    """A t-test of a cell: its p-value, the standard error of the difference of mean residuals, and the new rows."""

    p_value: float
    standard_error: float
    degrees_of_freedom: int
    accuracy: float
    n_new: int

    def detectable_change(self, level: float) -> float:
        """Compute the fall of the accuracy that a test at this level finds with the probability `POWER`.

        With the accuracy p of the new rows, the fall δ is the solution of

            δ = (t_{1 - level / 2} + t_POWER) sqrt(standard_error² + (q (1 - q) - p (1 - p)) / n_new),

        where q = p - δ, or 0.5 if this is larger: less accurate decisions have a larger variance.

        Args:
            level: Level of the test.

        Returns:
            The fall δ, in [0, 1].
        """
        quantiles = float(scipy.special.stdtrit(self.degrees_of_freedom, [1 - level / 2, POWER]).sum())
        change = 0.0
        for _ in range(N_ITERATIONS):
            lower = max(self.accuracy - change, min(self.accuracy, 0.5))
            added_variance = max(lower * (1 - lower) - self.accuracy * (1 - self.accuracy), 0.0)
            change = quantiles * np.sqrt(self.standard_error**2 + added_variance / self.n_new)
        return float(min(change, 1.0))


def _compare_cells(
    document: MapDocument,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    group: np.ndarray | None,
) -> list[_CellComparison]:
    references = {(cell.label, cell.half): cell for cell in document.held_out.cells}
    medians = np.array(document.held_out.halves)
    comparisons = []
    for summary in summarize_cells(medians, reliability, decision, correct, group):
        reference = references.get((summary.cell.label, summary.cell.half))
        comparisons.append(_CellComparison(new=summary.cell, n_groups=summary.n_groups, reference=reference))
    return comparisons


def _compare_top_cells(
    document: MapDocument, reliability: np.ndarray, correct: np.ndarray, group: np.ndarray | None
) -> list[_TopComparison]:
    comparisons = []
    for reference in document.held_out.top:
        limit = top_limit(document.held_out.quantiles, reference.share)
        summary = summarize_top_cell(limit, reliability, correct, group)
        if summary is not None:
            comparisons.append(_TopComparison(new=summary.cell, n_groups=summary.n_groups, reference=reference))
    return comparisons


def _test_cell(comparison: _CellComparison | _TopComparison, *, is_grouped: bool) -> _CellTest | None:
    """Test whether the mean residuals are equal.

    The squared standard error of the difference is computed with a pooled variance and with separate variances, and the
    larger one is used. The pooled variance prevents a false alarm if the new rows have no errors. Separate variances
    prevent one if a cell with a small variance has a few more errors than usual.

    Returns:
        The test; None if there are too few rows or groups.
    """
    reference = comparison.reference
    new = comparison.new
    if reference is None or min(reference.rows, new.rows) < MIN_TEST_ROWS:
        return None
    if is_grouped and comparison.n_groups < MIN_BOOTSTRAP_GROUPS:
        return None
    reference_variance = _residual_variance(reference)
    new_variance = _residual_variance(new)
    pooled_variance = (reference.rows * reference_variance + new.rows * new_variance) / (reference.rows + new.rows)
    squared_standard_error = max(
        pooled_variance / reference.rows + pooled_variance / new.rows,
        reference_variance / reference.rows + new_variance / new.rows,
    )
    standard_error = float(np.sqrt(max(squared_standard_error, 0.0)))
    degrees_of_freedom = comparison.n_groups - 1
    difference = abs(new.mean_residual - reference.mean_residual)
    if difference <= ROUNDING_TOLERANCE:
        p_value = 1.0
    elif standard_error == 0:
        p_value = 0.0
    else:
        p_value = float(2 * scipy.special.stdtr(degrees_of_freedom, -difference / standard_error))
    return _CellTest(p_value, standard_error, degrees_of_freedom, comparison.accuracy, new.rows)


def _residual_variance(cell: Cell | TopCell) -> float:
    """Return the variance of a residual; if all decisions are correct, or all are wrong, at least that of the map.

    In such a cell the residuals vary only with the reliability m, as if no other outcome were possible. A decision that
    is correct with probability m has the variance m (1 - m).
    """
    accuracy = cell.mean_reliability + cell.mean_residual
    has_both_outcomes = ROUNDING_TOLERANCE < accuracy < 1 - ROUNDING_TOLERANCE
    if has_both_outcomes:
        return cell.variance
    return max(cell.variance, cell.mean_reliability * (1 - cell.mean_reliability))
