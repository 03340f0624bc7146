"""Metrics of the prediction and ranking of correctness (paper, section 4.4), from float64 reliability logits.

Rows with a high logit have low risk and are retained first. Rows tie if their logits are exactly equal; the logit is
used because a sigmoid merges different logits. With ties, the paper's sums depend on the order of the file, so each
ranking metric is its exact expectation over a random order of tied rows. The expectation needs only the numbers of rows
and errors of each tie group, so the order of rows cannot change a bit of it.

Each ranking metric is computed for R weightings of the same rows at once; a row of weight w counts as w tied rows. The
sums over ranks have closed forms for tie groups, with harmonic numbers H_x = 1 + 1/2 + .. + 1/x, and only groups with
an error contribute. A group with a rows before it and m rows, k of them errors, has the ranks a + 1 .. a + m =: b.
Metrics of no rows are NaN.
"""

from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import scipy

from relmap.metrics.probability import reject_nan
from relmap.settings import METRIC_DEFAULTS

COVERAGE_TENTHS = (1, 5, 7, 9)  # the paper's budgets
RowCount = TypeVar("RowCount", int, np.ndarray, int | np.ndarray)


class TieGroups(NamedTuple):
    """Tie groups by increasing risk under R weightings: those with an error, then an empty group at the end.

    Attributes:
        before: Weight before each group, shape (G, R), float64.
        upto: Weight up to the end of each group, shape (G, R), float64.
        wrong: Weight of the wrong rows of each group, shape (G, R), float64.
    """

    before: np.ndarray
    upto: np.ndarray
    wrong: np.ndarray


class RiskOrder(NamedTuple):
    """Order of n rows by risk, and the 3 G cells over which their weights are summed, for G tie groups.

    Cell g has the rows between group g - 1 and group g, cell G + g the correct rows of group g, and cell 2 G + g its
    wrong rows. The groups are those of `TieGroups`.

    Attributes:
        row: Row numbers by increasing risk, shape (n,), int64.
        cell: Cell of each of these rows, shape (n,), int64.
        groups: Number of groups G.
    """

    row: np.ndarray
    cell: np.ndarray
    groups: int

    def coarsen(self, max_groups: int) -> "RiskOrder":
        """Merge neighboring groups; fewer at both ends, where ranks have most weight.

        Args:
            max_groups: Maximal number of groups.

        Returns:
            The same rows in at most `max_groups` groups.
        """
        if self.groups <= max_groups:
            return self
        x = np.linspace(0, 1, max_groups)
        smooth_step = (3 - 2 * x) * x**2
        starts_group = np.zeros(self.groups, dtype=np.int64)
        # the last start is that of the empty group
        starts_group[np.rint((self.groups - 1) * smooth_step).astype(np.int64)] = 1
        merged = np.cumsum(starts_group) - 1
        kind, group = np.divmod(self.cell, self.groups)
        kind[(kind == 0) & (starts_group[group] == 0)] = 1  # rows between merged groups are correct rows of the group
        n_groups = int(merged[-1]) + 1
        return RiskOrder(self.row, n_groups * kind + merged[group], n_groups)

    def weighted(self, sums: np.ndarray) -> TieGroups:
        """Build the tie groups from the weights summed over cells.

        Args:
            sums: Whole numbers, at least 0, shape (3 G, R), float64.

        Returns:
            The groups under R weightings.
        """
        between, correct, wrong = np.split(sums, 3)
        rows = correct + wrong
        upto = np.cumsum(between + rows, axis=0)
        return TieGroups(upto - rows, upto, wrong)


def order_by_risk(logit: np.ndarray, correct: np.ndarray) -> RiskOrder:
    """Sort rows by increasing risk.

    Args:
        logit: Logit of the reliability, shape (n,); may be infinite.
        correct: Whether the decision is correct, shape (n,), bool.

    Returns:
        The order of the rows and their cells.

    Raises:
        ValueError: A logit is NaN; the message names the row.
    """
    groups = find_tie_groups(logit, correct)
    n_groups = len(groups.upto)
    row = np.argsort(-np.asarray(logit, dtype=np.float64))
    wrong = ~np.asarray(correct, dtype=bool)[row]
    # the rows alternate between those before a group and those in it
    ends = np.hstack([groups.before, groups.upto]).ravel().astype(np.int64)
    section = np.repeat(np.arange(2 * n_groups), np.diff(ends, prepend=0))
    group, is_in_group = np.divmod(section, 2)
    return RiskOrder(row, n_groups * (is_in_group + wrong) + group, n_groups)


def find_tie_groups(logit: np.ndarray, correct: np.ndarray) -> TieGroups:
    """Find the tie groups of rows of weight 1.

    Neighboring wrong rows are one group even if they are not tied, because no metric depends on their order.

    Args:
        logit: Logit of the reliability, shape (n,); may be infinite.
        correct: Whether the decision is correct, shape (n,), bool.

    Returns:
        The groups under one weighting, R = 1.

    Raises:
        ValueError: A logit is NaN; the message names the row.
    """
    risks = _count_wrong_by_risk(logit, correct)
    n_rows = len(logit)
    n_errors = risks.wrong.sum()
    errors_upto = np.cumsum(risks.wrong)
    errors_before = errors_upto - risks.wrong
    correct_before = risks.before - errors_before
    correct_upto = risks.upto - errors_upto
    # two risks without correct rows in or between them have the same numbers of correct rows before and up to them
    starts_group = np.diff([correct_before, correct_upto], prepend=-1).any(axis=0)
    wrong = np.diff(errors_before[starts_group], append=n_errors)
    before = risks.before[starts_group]
    upto = (risks.before + correct_upto - correct_before)[starts_group] + wrong
    return TieGroups(
        before=_as_column(before, last=n_rows),
        upto=_as_column(upto, last=n_rows),
        wrong=_as_column(wrong, last=0),
    )


def _as_column(values: np.ndarray, last: int) -> np.ndarray:
    """Append the value of the empty group and convert to shape (G, 1), float64."""
    return np.append(values, last)[:, None].astype(np.float64)


class WrongByRisk(NamedTuple):
    """Distinct risks of wrong rows, increasing.

    Attributes:
        wrong: Number of wrong rows with each risk, shape (g,).
        before: Number of rows with less risk, shape (g,).
        upto: Number of rows with at most this risk, shape (g,).
    """

    wrong: np.ndarray
    before: np.ndarray
    upto: np.ndarray


def _count_wrong_by_risk(logit: np.ndarray, correct: np.ndarray) -> WrongByRisk:
    logit = np.asarray(logit, dtype=np.float64)
    correct = np.asarray(correct, dtype=bool)
    reject_nan(logit, "reliability logit")
    # sorting values is three times as fast as sorting rows
    risk = np.sort(-logit)
    distinct, wrong = np.unique(-logit[~correct], return_counts=True)
    before = np.searchsorted(risk, distinct)
    upto = before + wrong
    has_tied_correct = risk.take(upto, mode="clip") == distinct
    upto[has_tied_correct] = np.searchsorted(risk, distinct[has_tied_correct], side="right")
    return WrongByRisk(wrong, before, upto)


@lru_cache(maxsize=1)  # all scores of a data set have the same number of rows
def harmonic_sums(largest: int) -> np.ndarray:
    """Compute harmonic numbers and their sums.

    Args:
        largest: Largest number x.

    Returns:
        H_x, and the sum of H_0 .. H_{x-1}, which is x (H_x - 1), for x = 0 .. largest; shape (2, largest + 1).
    """
    x = np.arange(largest + 1)
    # digamma is equally accurate for all x; a running sum is not
    harmonic = scipy.special.digamma(x + 1.0) + np.euler_gamma
    sums = np.stack([harmonic, x * (harmonic - 1)])
    sums.flags.writeable = False
    return sums


def ranking_metrics(groups: TieGroups, harmonic: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Compute each ranking metric under R weightings.

    - `aurc`, lower is better: area under the risk-coverage curve in [0, 1], as the paper sums it: the mean of the n
      retained error rates at coverages 1/n .. n/n, without a point at coverage 0 and without trapezoids. A constant
      reliability has the error rate.
    - `augrc`, lower is better: the generalized one (Traub et al., 2024): the mean over the same coverages of the share
      of all rows that is retained and wrong, which the few rows of lowest risk do not dominate.
    - `aupr_error`, higher is better: average precision in [0, 1] of finding the errors by decreasing risk; NaN if no
      error has weight.
    - `selacc_<c>0`, higher is better: accuracy of the c tenths of rows of lowest risk, as in `count_retained_rows`; of
      the tie group at the boundary, the share that fits.

    Args:
        groups: Tie groups under R weightings.
        harmonic: `harmonic_sums` of at least the largest sum of weights; None to compute them.

    Returns:
        Each metric by name, shape (R,).
    """
    if harmonic is None:
        harmonic = harmonic_sums(int(groups.upto[-1].max()))
    numbers, summed_numbers = harmonic
    errors = np.cumsum(groups.wrong, axis=0)
    with np.errstate(invalid="ignore"):  # no rows, or no errors, give 0/0, which is NaN as documented
        return {
            "aupr_error": _average_precision(groups, errors, numbers),
            "aurc": _aurc(groups, errors, numbers, summed_numbers),
            "augrc": _augrc(groups, errors),
            **_selective_accuracies(groups, errors),
        }


def _error_share(groups: TieGroups) -> np.ndarray:
    """Share k / m of errors in each group, shape (G, R); 0 in an empty group."""
    return np.asarray(groups.wrong / np.maximum(groups.upto - groups.before, 1))


def _aurc(groups: TieGroups, errors: np.ndarray, numbers: np.ndarray, summed_numbers: np.ndarray) -> np.ndarray:
    """Area under the risk-coverage curve.

    An error at rank j counts in the retained error rates from j on, that is H_n - H_{j-1} times. Summed over the ranks
    of a group, the terms H_{j-1} are differences of `summed_numbers`.

    Returns:
        The area for each column of the errors, shape (R,).
    """
    n_rows = groups.upto[-1]
    n_errors = errors[-1]
    summed = _take_at(groups.upto, summed_numbers) - _take_at(groups.before, summed_numbers)
    not_counted = np.einsum("gr,gr->r", _error_share(groups), summed)
    return np.asarray((n_errors * _take_at(n_rows, numbers) - not_counted) / n_rows)


def _augrc(groups: TieGroups, errors: np.ndarray) -> np.ndarray:
    """Area under the generalized risk-coverage curve; the mean rank of a group is (a + b + 1) / 2."""
    n_rows = groups.upto[-1]
    n_errors = errors[-1]
    twice_rank_sum = np.einsum("gr,gr->r", groups.wrong, groups.before + groups.upto + 1)
    return np.asarray((n_errors * (n_rows + 1) - twice_rank_sum / 2) / n_rows**2)


def _average_precision(groups: TieGroups, errors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Average precision of finding errors by decreasing risk.

    Counted from high risk, a group has the ranks n - b + 1 .. n - a =: a' + 1 .. b', after E errors. With
    s = (k - 1) / (m - 1), its rank j finds k/m (E + 1 + (j - a' - 1) s) / j = k/m (s + (E + 1 - (a' + 1) s) / j).

    Returns:
        The average precision for each column of the errors, shape (R,); NaN without errors.
    """
    n_rows = groups.upto[-1]
    n_errors = errors[-1]
    group_rows = groups.upto - groups.before
    rank_before = n_rows - groups.upto
    last_rank = n_rows - groups.before
    other_error_share = (groups.wrong - 1) / np.maximum(group_rows - 1, 1)
    coefficient = n_errors - errors + 1 - (rank_before + 1) * other_error_share
    harmonic_difference = _take_at(last_rank, numbers) - _take_at(rank_before, numbers)
    precision_sums = group_rows * other_error_share + coefficient * harmonic_difference
    precision_sum = np.einsum("gr,gr->r", _error_share(groups), precision_sums)
    return np.asarray(precision_sum / n_errors)


def _selective_accuracies(groups: TieGroups, errors: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy of the retained rows at each coverage of COVERAGE_TENTHS, by name."""
    n_rows = groups.upto[-1]
    errors_before = errors - groups.wrong
    share = _error_share(groups)
    accuracies = {}
    for tenths in COVERAGE_TENTHS:
        n_retained = np.minimum(count_retained_rows(n_rows, tenths), n_rows)  # 0 of no rows
        first_not_before = np.count_nonzero(groups.upto < n_retained, axis=0)
        boundary_group = (first_not_before, np.arange(len(n_rows)))
        rows_of_boundary_group = np.maximum(n_retained - groups.before[boundary_group], 0)
        retained_errors = errors_before[boundary_group] + share[boundary_group] * rows_of_boundary_group
        accuracies[f"selacc_{tenths}0"] = np.asarray(1 - retained_errors / n_retained)
    return accuracies


def average_precision_by_threshold(logit: np.ndarray, correct: np.ndarray) -> float:
    """Compute the average precision of finding the errors with one threshold per tie group, as scikit-learn does.

    It is below `aupr_error` where precision falls along the ranking, and equal to it without ties.

    Args:
        logit: Logit of the reliability, shape (n,); may be infinite.
        correct: Whether the decision is correct, shape (n,), bool.

    Returns:
        Average precision in [0, 1]; NaN without errors.

    Raises:
        ValueError: A logit is NaN; the message names the row.
    """
    risks = _count_wrong_by_risk(logit, correct)
    n_errors = risks.wrong.sum()
    errors_from_group_on = np.cumsum(risks.wrong[::-1])[::-1]
    precisions = risks.wrong * errors_from_group_on / (len(logit) - risks.before)
    return float(precisions.sum() / n_errors) if n_errors else np.nan


def count_retained_rows(rows: RowCount, tenths: int) -> RowCount:
    """Count the rows retained at a coverage, rounded up in integers (0.7 * 90 is below 63 in floats) and at least 1.

    Args:
        rows: Numbers of rows, int or any shape.
        tenths: Coverage in tenths.

    Returns:
        Numbers of retained rows, of the same type.
    """
    retained: RowCount = np.maximum(1, -(-tenths * rows // 10))
    return retained


def expected_retained_errors(groups: TieGroups, coverage: np.ndarray) -> np.ndarray:
    """Compute the expected errors among the rows of lowest risk.

    It is linear between two ranks, as the expectation is within a tie group. Divided by the coverage, it is the risk of
    the retained rows; all errors minus it are found by a review of the other rows.

    Args:
        groups: Tie groups under R weightings.
        coverage: Coverages in [0, 1], shape (c,).

    Returns:
        Expected errors as shares of all rows, shape (R, c); NaN without rows.
    """
    errors = np.cumsum(groups.wrong, axis=0)
    errors_before = errors - groups.wrong
    n_rows = groups.upto[-1][:, None]
    # points (rank, errors) at the beginning and the end of each group, in the order of rank
    n_groups = len(groups.upto)
    alternating = np.arange(2 * n_groups).reshape(2, n_groups).T.ravel()
    ranks = np.hstack([groups.before.T, groups.upto.T])[:, alternating]
    errors_at_ranks = np.hstack([errors_before.T, errors.T])[:, alternating]
    retained = []
    for n_retained, rank, errors_at_rank in zip(coverage * n_rows, ranks, errors_at_ranks, strict=True):
        retained.append(np.interp(n_retained, rank, errors_at_rank))
    with np.errstate(invalid="ignore"):  # no rows, or no errors, give 0/0, which is NaN as documented
        return np.asarray(np.stack(retained) / n_rows)


def correctness_log_loss(
    logit: np.ndarray, correct: np.ndarray, smallest: float = METRIC_DEFAULTS.smallest_reliability
) -> np.ndarray:
    """Compute the log loss of the reliability sigmoid(logit) for the correctness of each row.

    As in the authors' code the reliability is clipped to [smallest, 1 - smallest]. Otherwise one wrong row with a
    confidence that rounds to 1 would make the mean infinite; with the default it costs 13.8 nats.

    Args:
        logit: Logit of the reliability, shape (n,); may be infinite.
        correct: Whether the decision is correct, shape (n,), bool.
        smallest: Smallest reliability, in (0, 1/2).

    Returns:
        Log loss of each row in nats, at least 0, shape (n,).

    Raises:
        ValueError: A logit is NaN (the message names the row), or `smallest` is outside (0, 1/2).
    """
    if not 0 < smallest < 0.5:
        raise ValueError(f"smallest is {smallest}; it must lie between 0 and 1/2")
    logit = np.asarray(logit, dtype=np.float64)
    reject_nan(logit, "reliability logit")
    max_logit = np.log1p(-smallest) - np.log(smallest)
    signed = np.where(correct, -logit, logit)
    np.clip(signed, -max_logit, max_logit, out=signed)
    # softplus of the signed logit; np.logaddexp computes the same but takes five times as long
    loss: np.ndarray = np.log1p(np.exp(-np.abs(signed)))
    loss += np.maximum(signed, 0)
    return loss


def _take_at(positions: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Take values at positions that are whole numbers stored as floats."""
    return values.take(positions.astype(np.intp))
