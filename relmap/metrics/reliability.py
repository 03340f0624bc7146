"""Metrics of the prediction and ranking of correctness (paper, section 4.4), from float64 reliability logits.

Rows with a high logit have low risk and are retained first. Rows tie if their logits are exactly equal. Logits are
compared instead of reliabilities, because the sigmoid rounds different logits to equal reliabilities. With ties, the
paper's sums depend on the order of rows in the file. Each ranking metric is therefore the expectation of the paper's
sum over a random order of tied rows. It is computed from the numbers of rows and errors of each tie group, so that it
is the same, bit for bit, for any order of rows.

Each ranking metric is computed for R weightings of the same rows at once; a row of weight w counts as w tied rows. The
sums over ranks have closed forms for tie groups, with harmonic numbers H_x = 1 + 1/2 + .. + 1/x, and only groups with
an error contribute. Formulas use these letters: a tie group contains m rows, of which k are errors, and a rows come
before the group. Its ranks are a + 1 to b = a + m. There are n rows. Metrics of no rows are NaN.
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
    """Tie groups that contain an error, by increasing risk, under R weightings; the last group is empty.

    Attributes:
        before: Weight before each group, shape (G, R), float64.
        upto: Weight up to the end of each group, shape (G, R), float64.
        wrong: Weight of the wrong rows of each group, shape (G, R), float64.
    """

    before: np.ndarray
    upto: np.ndarray
    wrong: np.ndarray


class RiskOrder(NamedTuple):
    """Order of n rows by risk, and for G tie groups, the 3 G cells over which the weights of rows are summed.

    The groups are the same as in `TieGroups`. Cell g contains the rows between group g - 1 and group g, cell G + g the
    correct rows of group g, and cell 2 G + g the wrong rows of group g.

    Attributes:
        row: Row numbers by increasing risk, shape (n,), int64.
        cell: Cell of each of these rows, shape (n,), int64.
        groups: Number of groups G.
    """

    row: np.ndarray
    cell: np.ndarray
    groups: int

    def coarsen(self, max_groups: int) -> "RiskOrder":
        """Merge neighboring groups: fewer of them at both ends of the order, where ranks have most weight.

        Args:
            max_groups: Maximal number of groups.

        Returns:
            The same rows in at most `max_groups` groups.
        """
        if self.groups <= max_groups:
            return self
        x = np.linspace(0, 1, max_groups)
        smooth_step = (3 - 2 * x) * x**2  # flat at 0 and 1, so that fewer groups are merged there
        starts_merger = np.zeros(self.groups, dtype=np.int64)
        # the last start is the empty group, which is therefore not merged
        starts_merger[np.rint((self.groups - 1) * smooth_step).astype(np.int64)] = 1
        merged = np.cumsum(starts_merger) - 1
        kind, group = np.divmod(self.cell, self.groups)  # kind 0: between groups, 1: correct, 2: wrong
        kind[(kind == 0) & (starts_merger[group] == 0)] = 1  # rows between merged groups are correct rows of the merger
        n_groups = int(merged[-1]) + 1
        return RiskOrder(self.row, n_groups * kind + merged[group], n_groups)

    def build_tie_groups(self, sums: np.ndarray) -> TieGroups:
        """Build the tie groups from the weights summed over cells.

        Args:
            sums: Sums of weights: whole numbers, at least 0, shape (3 G, R), float64.

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
    # section 2 g of the order contains the rows between group g - 1 and group g, section 2 g + 1 those in group g
    section_ends = np.hstack([groups.before, groups.upto]).ravel().astype(np.int64)
    section = np.repeat(np.arange(2 * n_groups), np.diff(section_ends, prepend=0))
    group, is_in_group = np.divmod(section, 2)
    return RiskOrder(row, n_groups * (is_in_group + wrong) + group, n_groups)


def find_tie_groups(logit: np.ndarray, correct: np.ndarray) -> TieGroups:
    """Find the tie groups that contain an error, for rows of weight 1.

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
    # A risk belongs to the group of the previous risk if no correct row has one of the two risks or one between them.
    # Then neither number of correct rows changes.
    starts_group = np.diff([correct_before, correct_upto], prepend=-1).any(axis=0)
    wrong = np.diff(errors_before[starts_group], append=n_errors)
    before = risks.before[starts_group]
    tied_correct = (correct_upto - correct_before)[starts_group]
    upto = before + tied_correct + wrong
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
    risk = np.sort(-logit)  # three times as fast as argsort
    distinct, wrong = np.unique(-logit[~correct], return_counts=True)
    before = np.searchsorted(risk, distinct)
    upto = before + wrong
    # The row at position `upto` has the same risk only if a correct row is tied with the wrong ones. For a position
    # after the last row, "clip" returns the last risk; the search below then finds the same `upto`.
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

    - `aurc`, lower is better: area under the risk-coverage curve in [0, 1], as the paper sums it: the mean of the error
      rates of the retained rows at the n coverages 1/n .. n/n, without a point at coverage 0 and without trapezoids.
      For a constant reliability, it equals the error rate of all rows.
    - `augrc`, lower is better: area under the generalized risk-coverage curve (Traub et al., 2024): the mean, over the
      same coverages, of the number of retained errors divided by n. The few rows of lowest risk influence it less.
    - `aupr_error`, higher is better: average precision in [0, 1] of finding the errors by decreasing risk; NaN if no
      error has weight.
    - `selacc_<c>0`, higher is better: accuracy of the c tenths of the rows with the lowest risk; `count_retained_rows`
      computes their number. If only some rows of a tie group are retained, their error rate is that of the group.

    Args:
        groups: Tie groups under R weightings.
        harmonic: `harmonic_sums(x)` for an x of at least the largest sum of weights; None to compute it.

    Returns:
        Each metric by name, shape (R,).
    """
    if harmonic is None:
        harmonic = harmonic_sums(int(groups.upto[-1].max()))
    harmonic_numbers, summed_harmonic = harmonic
    errors_upto = np.cumsum(groups.wrong, axis=0)
    error_share = _error_share(groups)
    with np.errstate(invalid="ignore"):  # no rows, or no errors, give 0/0, which is NaN as documented
        return {
            "aupr_error": _average_precision(groups, errors_upto, error_share, harmonic_numbers),
            "aurc": _aurc(groups, errors_upto, error_share, harmonic_numbers, summed_harmonic),
            "augrc": _augrc(groups, errors_upto),
            **_selective_accuracies(groups, errors_upto, error_share),
        }


def _error_share(groups: TieGroups) -> np.ndarray:
    """Share k / m of errors in each group, shape (G, R); 0 in an empty group."""
    return np.asarray(groups.wrong / np.maximum(groups.upto - groups.before, 1))


def _aurc(
    groups: TieGroups,
    errors_upto: np.ndarray,
    error_share: np.ndarray,
    harmonic_numbers: np.ndarray,
    summed_harmonic: np.ndarray,
) -> np.ndarray:
    """Area under the risk-coverage curve.

    An error at rank j adds 1/j to the error rate at coverage j/n, 1/(j + 1) to the next one, and so on: in total
    H_n - H_{j-1}. The sum of H_{j-1} over the ranks j of a group is a difference of two values of `summed_harmonic`.

    Returns:
        The area under each weighting, shape (R,).
    """
    n_rows = groups.upto[-1]
    n_errors = errors_upto[-1]
    rank_sums = _take_at(groups.upto, summed_harmonic) - _take_at(groups.before, summed_harmonic)
    error_sum = np.einsum("gr,gr->r", error_share, rank_sums)  # of H_{j-1} over the ranks j of errors
    return np.asarray((n_errors * _take_at(n_rows, harmonic_numbers) - error_sum) / n_rows)


def _augrc(groups: TieGroups, errors_upto: np.ndarray) -> np.ndarray:
    """Area under the generalized risk-coverage curve.

    An error at rank j is retained at n - j + 1 coverages. The mean rank of a group is (a + b + 1) / 2.

    Returns:
        The area under each weighting, shape (R,).
    """
    n_rows = groups.upto[-1]
    n_errors = errors_upto[-1]
    twice_rank_sum = np.einsum("gr,gr->r", groups.wrong, groups.before + groups.upto + 1)
    return np.asarray((n_errors * (n_rows + 1) - twice_rank_sum / 2) / n_rows**2)


def _average_precision(
    groups: TieGroups, errors_upto: np.ndarray, error_share: np.ndarray, harmonic_numbers: np.ndarray
) -> np.ndarray:
    """Average precision of finding errors by decreasing risk.

    By decreasing risk, a group has the ranks a' + 1 = n - b + 1 to b' = n - a, and E errors come before it. A row at
    rank j of the group is an error with probability k/m. Then each other row of the group is an error with probability
    s = (k - 1) / (m - 1), and the expected precision at j is (E + 1 + (j - a' - 1) s) / j. The product of this and k/m
    is summed over j, in the form k/m (s + (E + 1 - (a' + 1) s) / j), of which the first part sums to k s.

    Returns:
        The average precision under each weighting, shape (R,); NaN without errors.
    """
    n_rows = groups.upto[-1]
    n_errors = errors_upto[-1]
    group_rows = groups.upto - groups.before
    rank_before = n_rows - groups.upto
    last_rank = n_rows - groups.before
    other_error_share = (groups.wrong - 1) / np.maximum(group_rows - 1, 1)
    coefficient = n_errors - errors_upto + 1 - (rank_before + 1) * other_error_share
    harmonic_difference = _take_at(last_rank, harmonic_numbers) - _take_at(rank_before, harmonic_numbers)
    precision_sum = np.einsum("gr,gr->r", groups.wrong, other_error_share)
    precision_sum += np.einsum("gr,gr,gr->r", error_share, coefficient, harmonic_difference)
    return np.asarray(precision_sum / n_errors)


def _selective_accuracies(groups: TieGroups, errors_upto: np.ndarray, error_share: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy of the retained rows at each coverage of COVERAGE_TENTHS, by name."""
    n_rows = groups.upto[-1]
    errors_before = errors_upto - groups.wrong
    accuracies = {}
    for tenths in COVERAGE_TENTHS:
        n_retained = np.minimum(count_retained_rows(n_rows, tenths), n_rows)  # 0 if there are no rows
        first_not_before = np.count_nonzero(groups.upto < n_retained, axis=0)
        boundary_group = (first_not_before, np.arange(len(n_rows)))
        # negative if the boundary is between groups; then no row of the group is retained
        retained_of_group = np.maximum(n_retained - groups.before[boundary_group], 0)
        retained_errors = errors_before[boundary_group] + error_share[boundary_group] * retained_of_group
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
    errors_of_at_least_this_risk = np.cumsum(risks.wrong[::-1])[::-1]
    rows_of_at_least_this_risk = len(logit) - risks.before
    weighted_precision = risks.wrong * errors_of_at_least_this_risk / rows_of_at_least_this_risk
    return float(weighted_precision.sum() / n_errors) if n_errors else np.nan


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
    """Compute the expected number of errors among the rows of lowest risk, as a share of all rows.

    Between two whole numbers of rows it is interpolated linearly. Divided by the coverage, it is the error rate of the
    retained rows. Subtracted from the share of all errors, it is the share of errors that a review of the other rows
    finds.

    Args:
        groups: Tie groups under R weightings.
        coverage: Coverages in [0, 1], shape (c,).

    Returns:
        Expected errors as shares of all rows, shape (R, c); NaN without rows.
    """
    errors_upto = np.cumsum(groups.wrong, axis=0)
    errors_before = errors_upto - groups.wrong
    n_rows = groups.upto[-1][:, None]
    # points (rank, errors) at the beginning and the end of each group, in the order of rank
    n_groups = len(groups.upto)
    alternating = np.arange(2 * n_groups).reshape(2, n_groups).T.ravel()
    ranks = np.hstack([groups.before.T, groups.upto.T])[:, alternating]
    errors_at_ranks = np.hstack([errors_before.T, errors_upto.T])[:, alternating]
    retained = []
    for n_retained, rank, errors_at_rank in zip(coverage * n_rows, ranks, errors_at_ranks, strict=True):
        retained.append(np.interp(n_retained, rank, errors_at_rank))
    with np.errstate(invalid="ignore"):  # no rows give 0/0, which is NaN as documented
        return np.asarray(np.stack(retained) / n_rows)


def log_loss_of_logits(logit: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Compute the log loss of the reliability sigmoid(logit) for the correctness of each row, without a bound.

    Args:
        logit: Logit of the reliability, shape (n,).
        correct: Whether the decision is correct, shape (n,), bool.

    Returns:
        Log loss of each row in nats, at least 0, shape (n,).
    """
    return np.asarray(np.logaddexp(0, np.where(correct, -logit, logit)))


def correctness_log_loss(
    logit: np.ndarray, correct: np.ndarray, smallest: float = METRIC_DEFAULTS.smallest_reliability
) -> np.ndarray:
    """Compute the log loss of the bounded reliability sigmoid(logit) for the correctness of each row.

    As in the authors' code, the reliability is clipped to [smallest, 1 - smallest]. Otherwise one wrong row with
    reliability 1 would make the mean infinite. With the default of `smallest`, its log loss is 13.8 nats.

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
    signed_logit = np.where(correct, -logit, logit)
    np.clip(signed_logit, -max_logit, max_logit, out=signed_logit)
    # as `log_loss_of_logits`, whose np.logaddexp takes five times as long
    loss: np.ndarray = np.log1p(np.exp(-np.abs(signed_logit)))
    loss += np.maximum(signed_logit, 0)
    return loss


def _take_at(positions: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Take values at positions that are whole numbers stored as floats."""
    return values.take(positions.astype(np.intp), mode="clip")  # twice as fast as with a check of the positions
