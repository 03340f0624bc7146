"""How well a reliability predicts and ranks correctness (paper, section 4.4), from float64 reliability logits.

A high logit is low risk and retained first. Rows are tied where their logits are equal, exactly; rank by the logit,
since a sigmoid ties rows that the logit tells apart. Under ties the paper's sums depend on the order of the file, so
each metric that ranks is its exact expectation over a random order of the tied rows. That takes no more than the
rows and errors of each tie group, so the order of rows cannot matter, not even by rounding.
Every metric of no rows is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tasks.metrics.checks import reject_nan
from tasks.protocol.params import METRIC_DEFAULTS

COVERAGE_TENTHS = (1, 5, 7, 9)  # the paper's budgets

Ties = Literal["expected", "threshold"]


@dataclass(frozen=True)
class RiskOrder:
    """`n` rows from low to high risk, as G groups of tied rows."""

    rows: np.ndarray  # (G,) int64, rows in each group, at least 1
    errors: np.ndarray  # (G,) int64, those whose decision is wrong

    def __len__(self) -> int:
        return int(self.rows.sum())

    @cached_property
    def expected_errors(self) -> np.ndarray:
        """`(n,)`: the errors to expect among the 1, 2, .. n rows of lowest risk."""
        before = np.cumsum(self.errors) - self.errors
        expected = np.repeat(self.errors, self.rows) * _places(self.rows)
        expected /= np.repeat(self.rows, self.rows)
        expected += np.repeat(before, self.rows)
        return expected


def order_by_risk(logit: np.ndarray, correct: np.ndarray) -> RiskOrder:
    """Sort once, in O(n log n): reliability logits `(n,)`, infinite ones allowed, and correct `(n,)` bool.

    What is sorted is the logits alone, all of them and those of errors: which row stands where is not asked, and
    would take several times as long.

    Raises
    ------
    ValueError: a logit is NaN; the message names the row.
    """
    logit = np.asarray(logit, dtype=np.float64)
    reject_nan(logit, "reliability logit")
    wrong = np.flatnonzero(~np.asarray(correct, dtype=bool))
    levels, rows = np.unique(-logit, return_counts=True)
    levels_of_errors, counts = np.unique(-logit[wrong], return_counts=True)
    errors = np.zeros_like(rows)
    errors[np.searchsorted(levels, levels_of_errors)] = counts
    return RiskOrder(rows=rows, errors=errors)


def aurc(order: RiskOrder) -> float:
    """Area under the risk-coverage curve, in [0, 1], lower is better: the mean of the n retained error rates.

    As the paper sums it: coverages 1/n .. n/n, no point at coverage 0, no trapezoid. A constant reliability has
    the error rate.
    """
    return _mean(order.expected_errors / np.arange(1.0, len(order) + 1))


def augrc(order: RiskOrder) -> float:
    """Area under the generalised risk-coverage curve, lower is better (Traub et al., 2024).

    The mean over the same coverages of the share of all n rows that is retained and wrong: unlike `aurc` it is not
    dominated by the few rows of lowest risk.
    """
    return _mean(order.expected_errors / max(len(order), 1))


def aupr_error(order: RiskOrder, ties: Ties = "expected") -> float:
    """Average precision of finding the errors by decreasing risk, in [0, 1], higher is better; NaN without errors.

    Place r of a tie group of m rows and k errors, with E errors at higher risk and j rows up to this place, holds an
    error with probability k/m, and then (r-1)(k-1)/(m-1) of the places before it in the group do too, which gives
    k/m * (E + 1 + (r-1)(k-1)/(m-1)) / j. Scikit-learn's average precision takes a tie group as one `threshold`
    instead, which is lower wherever precision falls along the ranking; without ties the two are the same.

    Raises
    ------
    ValueError: `ties` is neither.
    """
    if ties not in ("expected", "threshold"):
        raise ValueError(f"ties is {ties!r}; it must be 'expected' or 'threshold'")
    n_errors = order.errors.sum()
    if n_errors == 0:
        return np.nan
    rows, errors = order.rows[::-1], order.errors[::-1]
    if ties == "threshold":
        return float((errors * np.cumsum(errors) / np.cumsum(rows)).sum() / n_errors)
    # a group without errors adds nothing
    kept = np.flatnonzero(errors)
    start, before = ((np.cumsum(counts) - counts)[kept] for counts in (rows, errors))
    rows, errors = rows[kept], errors[kept]
    place = _places(rows)
    found = np.repeat((errors - 1) / np.maximum(rows - 1, 1), rows) * (place - 1)
    found += np.repeat(before + 1, rows)
    found *= np.repeat(errors / rows, rows)
    found /= place + np.repeat(start, rows)
    return float(found.sum() / n_errors)


def selective_accuracy(order: RiskOrder, tenths: int) -> float:
    """Accuracy of the `tenths` (0..10) tenths of rows of lowest risk, rounded up, and of one row at least.

    Of the tie group at the border, the share that fits in is retained. The count is in integers: 0.7 * 90 is below 63.
    """
    if len(order) == 0:
        return np.nan
    retained = max(1, -(-tenths * len(order) // 10))
    return float(1 - order.expected_errors[retained - 1] / retained)


def errors_retained(order: RiskOrder, coverage: np.ndarray) -> np.ndarray:
    """The errors to expect among the `coverage` share of lowest risk, as a share of all rows: `(c,)` to `(c,)`.

    Coverages lie in [0, 1]; between two places the line is straight, as it is on average within a tie group. Over
    the coverage it is the risk of what is kept; all errors less it are those that a review of the rest finds.
    """
    n = len(order)
    if n == 0:
        return np.full(len(coverage), np.nan)
    place, errors = (np.append(0, np.cumsum(counts)) for counts in (order.rows, order.errors))
    return np.asarray(np.interp(np.asarray(coverage) * n, place, errors) / n)


def nll_correct(
    logit: np.ndarray, correct: np.ndarray, smallest: float = METRIC_DEFAULTS.smallest_reliability
) -> float:
    """Mean log loss of the reliability sigmoid(t) against correct, in nats: `(n,)` logits t and `(n,)` bool.

    A reliability counts as `smallest` at least and 1 - `smallest` at most, as the authors cut it: one wrong row of a
    confidence that rounds to 1 would make the mean infinite, and 13.8 nats say as much.
    """
    return _mean(nll_correct_of_rows(logit, correct, smallest))


def nll_correct_of_rows(
    logit: np.ndarray, correct: np.ndarray, smallest: float = METRIC_DEFAULTS.smallest_reliability
) -> np.ndarray:
    """What `nll_correct` is the mean of, `(n,)`, above 0 or equal to it.

    Raises
    ------
    ValueError: a logit is NaN, and the message names the row; or `smallest` is not above 0 and below 1/2.
    """
    if not 0 < smallest < 0.5:
        raise ValueError(f"smallest is {smallest}; it must lie between 0 and 1/2")
    logit = np.asarray(logit, dtype=np.float64)
    reject_nan(logit, "reliability logit")
    certain = np.log1p(-smallest) - np.log(smallest)
    signed = logit * (1 - 2.0 * np.asarray(correct, dtype=bool))
    np.clip(signed, -certain, certain, out=signed)
    # the softplus of `signed`; np.logaddexp says the same, but takes five times as long
    loss: np.ndarray = np.log1p(np.exp(-np.abs(signed)))
    loss += np.maximum(signed, 0)
    return loss


def ranking_metrics(logit: np.ndarray, correct: np.ndarray, ties: Ties = "expected") -> dict[str, float]:
    """Every metric that ranks by name, from one sort: logits `(n,)` and correct `(n,)` bool.

    `ties` is the reading of AUPR-Error alone.
    """
    order = order_by_risk(logit, correct)
    return {
        "aupr_error": aupr_error(order, ties),
        "aurc": aurc(order),
        "augrc": augrc(order),
        **{f"selacc_{tenths}0": selective_accuracy(order, tenths) for tenths in COVERAGE_TENTHS},
    }


def _places(rows: np.ndarray) -> np.ndarray:
    """For each of the n places, its place 1..m within its group, float64."""
    start = np.cumsum(rows) - rows
    return np.arange(1.0, rows.sum() + 1) - np.repeat(start, rows)


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else np.nan
