"""Summary of the out-of-fold predictions that a map stores: the reference of the drift test, and thresholds.

The residual of a row is its correctness (1 or 0) minus its reliability. Rows are divided into cells by the decided
label and by whether the reliability is below the median of that label. Two further cells contain the most reliable 10%
and 30% of the rows of all labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from relmap.decisions import number_groups
from relmap.maps.cross_fit import CrossFit
from relmap.maps.document import Cell, Half, HeldOut, TopCell
from relmap.metrics.intervals import finite_or_none
from relmap.metrics.probability import reject_nan
from relmap.metrics.resampling import BOOTSTRAP_SEED, MIN_BOOTSTRAP_GROUPS
from relmap.metrics.spread import LabelCells
from relmap.settings import MetricParams

DEFAULT_COVERAGE = 0.7  # share of the rows that are used automatically by default
MIN_DEFAULT_THRESHOLD = 0.5  # below, a decision is more likely wrong than right
N_QUANTILES = 101  # of the reliability, from 0% to 100%
HALVES: tuple[Half, Half] = ("lower", "upper")
TOP_SHARES = (0.1, 0.3)  # a cell for each: the most reliable 10% and 30% of the fit rows


def summarize_out_of_fold_rows(fit: CrossFit, n_labels: int, params: MetricParams) -> HeldOut:
    """Summarize the out-of-fold predictions, as a reference for the drift test and for thresholds.

    Args:
        fit: Out-of-fold predictions.
        n_labels: Number of labels K.
        params: Settings of the metrics.

    Returns:
        Label spread, quantiles of the reliability, and mean residuals by cell.
    """
    rows = fit.rows
    scored = fit.scored
    reliability = scored.reliability
    label_cells = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct, params)
    halves, reference_cells = summarize_reference_cells(reliability, rows.decision, rows.correct, rows.group, n_labels)
    quantiles = tuple(np.quantile(reliability, np.linspace(0, 1, N_QUANTILES)).tolist())
    return HeldOut(
        rows=len(rows),
        label_spread=finite_or_none(label_cells.spread()),
        label_spread_shuffled=finite_or_none(label_cells.shuffled_quantile(BOOTSTRAP_SEED)),
        quantiles=quantiles,
        halves=halves,
        cells=reference_cells,
        top=summarize_top_cells(reliability, rows.correct, rows.group, quantiles),
    )


def compute_default_threshold(fit: CrossFit) -> float:
    """Compute the reliability that 70% of the rows reach, at least 0.5.

    Args:
        fit: Out-of-fold predictions.

    Returns:
        The threshold, in [0.5, 1].
    """
    rows = fit.rows
    reliability = fit.scored.reliability
    if rows.kind == "decision_only":
        # Reliabilities have few distinct values. Those of the fold models differ slightly from those of the deployed
        # map, so that an out-of-fold threshold could exclude all rows of a label.
        reliability = fit.deployed(rows).reliability
    threshold = np.quantile(reliability, 1 - DEFAULT_COVERAGE, weights=rows.weight, method="inverted_cdf")
    return max(float(threshold), MIN_DEFAULT_THRESHOLD)


def accuracy_of_cells(cells: Sequence[Cell]) -> float | None:
    """Compute the accuracy of the rows of cells.

    Args:
        cells: Summaries of rows that are in one cell each.

    Returns:
        The share of correct rows, in [0, 1]; None without rows.
    """
    n_rows = sum(cell.rows for cell in cells)
    if not n_rows:
        return None
    return sum(cell.rows * (cell.mean_reliability + cell.mean_residual) for cell in cells) / n_rows


class CellSummary(NamedTuple):
    """Summary of the rows of a cell, and their number of groups; without groups, their number."""

    cell: Cell
    n_groups: int


def summarize_reference_cells(
    reliability: np.ndarray, decision: np.ndarray, correct: np.ndarray, group: np.ndarray | None, n_labels: int
) -> tuple[tuple[float, ...], tuple[Cell, ...]]:
    """Summarize the residuals of fit rows by label and half, as the reference that a map stores for `detect_drift`.

    Args:
        reliability: Out-of-fold reliability of each fit row, shape (n,), in [0, 1].
        decision: Decided labels 0..K-1, shape (n,).
        correct: Whether each decision is correct, shape (n,), bool.
        group: Group of each row, shape (n,); None if rows are independent.
        n_labels: Number of labels K.

    Returns:
        Median reliability of each label, 0.5 for labels without rows; and the cells that have rows. If rows have
        groups, cells with fewer than ten groups are omitted, since they cannot be tested.
    """
    reject_nan(reliability, "reliability")
    medians = np.full(n_labels, 0.5)
    for label in np.unique(decision):
        medians[label] = np.median(reliability[decision == label])
    summaries = summarize_cells(medians, reliability, decision, correct, group)
    cells = []
    for summary in summaries:
        if group is None or summary.n_groups >= MIN_BOOTSTRAP_GROUPS:
            cells.append(summary.cell)
    return tuple(medians.tolist()), tuple(cells)


def summarize_top_cells(
    reliability: np.ndarray, correct: np.ndarray, group: np.ndarray | None, quantiles: Sequence[float]
) -> tuple[TopCell, ...]:
    """Summarize the residuals of the most reliable fit rows, as the reference that a map stores for `detect_drift`.

    Args:
        reliability: Out-of-fold reliability of each fit row, shape (n,).
        correct: Whether each decision is correct, shape (n,), bool.
        group: Group of each row, shape (n,), or None.
        quantiles: The 101 quantiles of the reliability that the map stores.

    Returns:
        A summary for each share in `TOP_SHARES`. If rows have groups, shares with fewer than ten groups are omitted.
    """
    cells = []
    for share in TOP_SHARES:
        summary = summarize_top_cell(top_limit(quantiles, share), reliability, correct, group)
        if summary is None or (group is not None and summary.n_groups < MIN_BOOTSTRAP_GROUPS):
            continue
        cells.append(
            TopCell(
                share=share,
                rows=summary.cell.rows,
                mean_reliability=summary.cell.mean_reliability,
                mean_residual=summary.cell.mean_residual,
                variance=summary.cell.variance,
            )
        )
    return tuple(cells)


def top_limit(quantiles: Sequence[float], share: float) -> float:
    """Return the minimum reliability of the most reliable share of the fit rows."""
    return quantiles[round(100 * (1 - share))]


def summarize_top_cell(
    limit: float, reliability: np.ndarray, correct: np.ndarray, group: np.ndarray | None
) -> CellSummary | None:
    """Summarize the rows whose reliability reaches a limit, as the upper half of a single label; None without any."""
    reaches_limit = reliability >= limit
    summaries = summarize_cells(
        medians=np.array([limit]),
        reliability=reliability[reaches_limit],
        decision=np.zeros(np.count_nonzero(reaches_limit), dtype=np.int64),
        correct=correct[reaches_limit],
        group=None if group is None else group[reaches_limit],
    )
    return summaries[0] if summaries else None


def summarize_cells(
    medians: np.ndarray,
    reliability: np.ndarray,
    decision: np.ndarray,
    correct: np.ndarray,
    group: np.ndarray | None,
) -> list[CellSummary]:
    """Compute mean and variance of the residuals in each cell that has rows.

    For a cell with n rows, G groups, and residuals e_i with the mean m, the variance is
    1 / n * G / (G - 1) * sum over groups g of (sum_{i in g} (e_i - m))². Divided by n, it is the cluster-robust
    variance of the mean residual (Liang and Zeger, 1986). Without groups, each row is a group.

    Returns:
        A summary for each cell that has rows, by label and half.
    """
    if len(decision) == 0:
        return []
    cell_number = 2 * decision + (reliability >= medians[decision])
    residual = correct - reliability
    group_code = np.arange(len(cell_number))
    cell_and_group = cell_number
    if group is not None:
        group_code = number_groups(group)
        cell_and_group = cell_number * (group_code.max() + 1) + group_code
    key = 2 * cell_and_group + correct
    key = key.astype(np.min_scalar_type(key.max()))  # numbers below 2**16 are sorted several times as fast
    # Rows with the same key and reliability are equal, so sums in this order do not depend on the order of the rows.
    order = np.argsort(reliability)
    order = order[np.argsort(key[order], kind="stable")]
    cell_number = cell_number[order]
    residual = residual[order]
    group_code = group_code[order]
    cell_numbers, first_row, n_rows = np.unique(cell_number, return_index=True, return_counts=True)
    mean_residual = np.add.reduceat(residual, first_row) / n_rows
    mean_reliability = np.add.reduceat(reliability[order], first_row) / n_rows
    # rows of a group that are in two cells are a group in each
    begins_group = np.r_[True, (np.diff(cell_number) != 0) | (np.diff(group_code) != 0)]
    first_row_of_group = np.flatnonzero(begins_group)
    group_sums = np.add.reduceat(residual - np.repeat(mean_residual, n_rows), first_row_of_group)
    first_group = np.searchsorted(first_row_of_group, first_row)
    n_groups = np.diff(np.r_[first_group, len(first_row_of_group)])
    small_sample_factor = n_groups / np.maximum(n_groups - 1, 1)
    variance = np.add.reduceat(group_sums**2, first_group) / n_rows * small_sample_factor
    summaries = []
    for k, number in enumerate(cell_numbers.tolist()):
        cell = Cell(
            label=number // 2,
            half=HALVES[number % 2],
            rows=n_rows[k].item(),
            mean_reliability=mean_reliability[k].item(),
            mean_residual=mean_residual[k].item(),
            variance=variance[k].item(),
        )
        summaries.append(CellSummary(cell=cell, n_groups=int(n_groups[k])))
    return summaries
