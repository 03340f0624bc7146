"""How well a reliability predicts and ranks correctness (paper, section 4.4), from float64 reliability logits.

A high logit is low risk and retained first. Rows are tied where their logits are equal, exactly; rank by the logit,
since a sigmoid ties rows that the logit tells apart. Under ties the paper's sums depend on the order of the file, so
each metric that ranks is its exact expectation over a random order of the tied rows. That takes no more than the
rows and errors of each tie group, so the order of rows cannot matter, not even by rounding.

Each ranking metric is of many weightings of the same rows at once, be it of the one in which each row counts once: a
row of weight w stands for w rows that are tied with one another. The sums over places are closed over tie groups, by
harmonic numbers H_x = 1 + 1/2 + .. + 1/x, and only groups with an error add to them. A group with a rows before it
and m rows, k of them errors, covers the places a+1 .. a+m =: b. Every metric of no rows is NaN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma

from tasks.metrics.checks import reject_nan
from tasks.protocol.params import METRIC_DEFAULTS

COVERAGE_TENTHS = (1, 5, 7, 9)  # the paper's budgets


@dataclass(frozen=True, eq=False)
class RiskOrder:
    """n rows from low to high risk, and the G tie groups that hold an error; after them comes an empty one."""

    row: np.ndarray  # (n,) int64, the row at each place
    wrong: np.ndarray  # (e,) int64, the places whose row is wrong
    start: np.ndarray  # (G,) int64, places before the group
    end: np.ndarray  # (G,) int64, places up to its end
    first: np.ndarray  # (G,) int64, wrong rows before the group
    last: np.ndarray  # (G,) int64, wrong rows up to its end


def order_by_risk(logit: np.ndarray, correct: np.ndarray) -> RiskOrder:
    """Sort once, in O(n log n): reliability logits `(n,)`, infinite ones allowed, and correct `(n,)` bool.

    Neighbouring wrong rows make one group even where they are not tied: no metric tells them apart.

    Raises:
        ValueError: a logit is NaN; the message names the row.
    """
    logit = np.asarray(logit, dtype=np.float64)
    reject_nan(logit, "reliability logit")
    row = np.argsort(-logit)
    ordered, wrong = logit[row], ~np.asarray(correct, dtype=bool)[row]
    before = np.append(0, np.cumsum(wrong))
    start = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    errors, rows = (np.diff(of, append=of_all) for of, of_all in ((before[start], before[-1]), (start, len(row))))
    inside = (errors[1:] == rows[1:]) & (errors[:-1] == rows[:-1])
    start = start[np.append(True, ~inside)]
    end = np.append(start[1:], len(row))
    kept = before[end] > before[start]
    start, end = (np.append(places[kept], len(row)) for places in (start, end))
    return RiskOrder(row, np.flatnonzero(wrong), start, end, before[start], before[end])


def harmonic_sums(largest: int) -> np.ndarray:
    """Return H_x and the sum of H_0 .. H_{x-1}, which is x (H_x - 1), for x = 0 .. largest: `(2, largest + 1)`."""
    places = np.arange(largest + 1)
    numbers = digamma(places + 1.0) + np.euler_gamma  # as exact for the last as for the first, unlike a running sum
    return np.stack([numbers, places * (numbers - 1)])


def ranking_metrics(
    order: RiskOrder, weights: np.ndarray | None = None, harmonic: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Return each metric that ranks by name, `(R,)`, under R weightings; each is that of the rows repeated so often.

    `aurc`, lower is better: the area under the risk-coverage curve, in [0, 1], as the paper sums it: the mean of the n
    retained error rates at coverages 1/n .. n/n, no point at coverage 0, no trapezoid. A constant reliability has the
    error rate. `augrc`, lower is better, is the generalised one (Traub et al., 2024): the mean over the same coverages
    of the share of all rows that is retained and wrong, which is not dominated by the few rows of lowest risk.
    `aupr_error`, higher is better: the average precision, in [0, 1], of finding the errors by decreasing risk; NaN
    where no error has weight. `selacc_<c>0`: the accuracy of the c tenths of rows of lowest risk, rounded up in whole
    numbers (0.7 * 90 is below 63), and of one row at least; of the tie group at the border, the share that fits in.

    Args:
        order: rows from low to high risk.
        weights: `(R, n)` integers, at least 0, by place (not by row); each weighting has a positive sum. By default
            one weighting, in which each row counts once.
        harmonic: `harmonic_sums` of the largest of those sums, or more; by default it is made here.
    """
    places, errors = _running(order, weights)
    before, upto = places.take(order.start, axis=1), places.take(order.end, axis=1)
    errors_before, errors_upto = errors.take(order.first, axis=1), errors.take(order.last, axis=1)
    n, n_errors = places[:, -1], errors[:, -1]
    rows, wrong = upto - before, errors_upto - errors_before
    share = wrong / np.maximum(rows, 1)
    # an error at place j counts in the retained error rates from j on, which is H_n - H_{j-1}
    numbers, summed = harmonic_sums(int(n.max())) if harmonic is None else harmonic
    lost = np.einsum("rg,rg->r", share, summed.take(upto) - summed.take(before))
    # twice the mean place of a group is a + b + 1
    twice_places = np.einsum("rg,rg->r", wrong, before + upto + 1)
    # from the side of high risk the group covers n-b+1 .. n-a =: a'+1 .. b', behind E errors; with s = (k-1)/(m-1), its
    # place j finds k/m * (E + 1 + (j-a'-1) s) / j = k/m * (s + (E + 1 - (a'+1) s) / j)
    above, down_to = n[:, None] - upto, n[:, None] - before
    others = (wrong - 1) / np.maximum(rows - 1, 1)
    over_place = n_errors[:, None] - errors_upto + 1 - (above + 1) * others
    by_group = rows * others + over_place * (numbers.take(down_to) - numbers.take(above))
    precisions = np.einsum("rg,rg->r", share, by_group)
    with np.errstate(invalid="ignore"):  # 0/0 of no rows is the NaN that is meant
        return {
            "aupr_error": np.divide(precisions, n_errors, out=np.full(len(n), np.nan), where=n_errors > 0),
            "aurc": (n_errors * numbers[n] - lost) / n,
            "augrc": (n_errors * (n + 1) - twice_places / 2) / n**2,
            **_selective_accuracies(before, upto, errors_before, share),
        }


def threshold_aupr_error(logit: np.ndarray, correct: np.ndarray) -> float:
    """Return the average precision of finding the errors where each tie group is one threshold, as scikit-learn has it.

    Of logits `(n,)` and correct `(n,)` bool. It is below `aupr_error` wherever precision falls along the ranking, and
    the same without ties; NaN without errors.
    """
    level = np.unique(logit, return_inverse=True)[1]
    rows, errors = np.bincount(level), np.bincount(level, weights=~correct)
    precisions = (errors * np.cumsum(errors) / np.cumsum(rows)).sum()
    return float(precisions / errors.sum()) if errors.any() else np.nan


def rows_kept(rows: Any, tenths: int) -> Any:
    """Return how many of so many `rows` the accuracy at `tenths` tenths is of: rounded up, and one at least."""
    return np.maximum(1, -(-tenths * rows // 10))


def errors_retained(order: RiskOrder, coverage: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the errors to expect among the `coverage` `(c,)` of lowest risk, as shares of all rows `(R, c)`.

    Coverages lie in [0, 1]; between two places the line is straight, as it is on average within a tie group. Over
    the coverage it is the risk of what is kept; all errors less it are those that a review of the rest finds. Weights
    are as in `ranking_metrics`.
    """
    places, errors = _running(order, weights)
    ends = np.stack([order.start, order.end], axis=1).ravel()
    passed = np.stack([order.first, order.last], axis=1).ravel()
    n = places[:, -1:]
    retained = [
        np.interp(at, place, wrong)
        for at, place, wrong in zip(coverage * n, places.take(ends, axis=1), errors.take(passed, axis=1), strict=True)
    ]
    with np.errstate(invalid="ignore"):  # 0/0 of no rows is the NaN that is meant
        return np.asarray(np.stack(retained) / n)


def nll_correct(
    logit: np.ndarray, correct: np.ndarray, smallest: float = METRIC_DEFAULTS.smallest_reliability
) -> float:
    """Return the mean log loss of the reliability sigmoid(t) against correct, in nats: `(n,)` logits t and `(n,)` bool.

    A reliability counts as `smallest` at least and 1 - `smallest` at most, as the authors cut it: one wrong row of a
    confidence that rounds to 1 would make the mean infinite, and 13.8 nats say as much.
    """
    losses = nll_correct_of_rows(logit, correct, smallest)
    return float(np.mean(losses)) if len(losses) else np.nan


def nll_correct_of_rows(
    logit: np.ndarray, correct: np.ndarray, smallest: float = METRIC_DEFAULTS.smallest_reliability
) -> np.ndarray:
    """Return what `nll_correct` is the mean of, `(n,)`, above 0 or equal to it.

    Raises:
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


def _selective_accuracies(
    before: np.ndarray, upto: np.ndarray, errors_before: np.ndarray, share: np.ndarray
) -> dict[str, np.ndarray]:
    """By coverage, `(R,)`. The group at the border is the first that does not end before it."""
    weighting, groups = np.arange(len(upto)), upto.shape[1]
    n = upto[:, -1]
    # one rising row of keys, so that one search answers for every weighting
    offset = weighting * (n.max() + 1)
    keys = (upto + offset[:, None]).ravel()
    accuracies = {}
    for tenths in COVERAGE_TENTHS:
        retained = np.minimum(rows_kept(n, tenths), n)  # of no rows, none
        border = np.searchsorted(keys, retained + offset) - weighting * groups
        at = weighting, border
        errors = errors_before[at] + share[at] * np.maximum(retained - before[at], 0)
        accuracies[f"selacc_{tenths}0"] = 1 - errors / retained
    return accuracies


def _running(order: RiskOrder, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The weight of the first 0 .. n places, `(R, n + 1)` int64, and of the first 0 .. e wrong ones, `(R, e + 1)`."""
    if weights is None:
        return np.arange(len(order.row) + 1)[None], np.arange(len(order.wrong) + 1)[None]
    return _sums(weights), _sums(weights.take(order.wrong, axis=1))


def _sums(weights: np.ndarray) -> np.ndarray:
    sums = np.zeros((len(weights), weights.shape[1] + 1), dtype=np.int64)
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums
