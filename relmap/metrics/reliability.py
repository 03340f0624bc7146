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

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy

from relmap.metrics.probability import reject_nan
from relmap.settings import METRIC_DEFAULTS

COVERAGE_TENTHS = (1, 5, 7, 9)  # the paper's budgets


class TieGroups(NamedTuple):
    """G groups of tied rows by rising risk, under R weightings, `(G, R)` float64 each.

    The groups are those that hold an error, and after them an empty one.
    """

    before: np.ndarray  # the weight before each group
    upto: np.ndarray  # up to its end
    wrong: np.ndarray  # of the wrong rows in it


class RiskOrder(NamedTuple):
    """The 3 G cells that n rows are summed over, where G tie groups follow by rising risk.

    Cell g is of the rows between group g and the one before it, cell G + g of the right ones in group g, and cell
    2 G + g of the wrong ones in it. The groups are those of `TieGroups`.
    """

    row: np.ndarray  # (n,) int64, by rising risk
    cell: np.ndarray  # (n,) int64, of each of these
    groups: int  # G

    def coarse(self, most: int) -> "RiskOrder":
        """The same rows in `most` groups at most: neighbours are tied, fewer at both ends, where places weigh most."""
        if self.groups <= most:
            return self
        at = np.linspace(0, 1, most)
        begins = np.zeros(self.groups, dtype=np.int64)
        begins[np.rint((self.groups - 1) * (3 - 2 * at) * at**2).astype(np.int64)] = 1  # the empty group among them
        tied = np.cumsum(begins) - 1
        kind, group = np.divmod(self.cell, self.groups)
        kind[(kind == 0) & (begins[group] == 0)] = 1
        groups = int(tied[-1]) + 1
        return RiskOrder(self.row, groups * kind + tied[group], groups)

    def weighted(self, sums: np.ndarray) -> TieGroups:
        """The groups where the weights summed over the cells are `(3 G, R)` whole numbers, at least 0."""
        between, right, wrong = np.split(sums.astype(np.float64, copy=False), 3)
        rows = right + wrong
        upto = np.cumsum(between + rows, axis=0)
        return TieGroups(upto - rows, upto, wrong)


def order_by_risk(logit: np.ndarray, correct: np.ndarray) -> RiskOrder:
    """Sort the rows, in O(n log n): reliability logits `(n,)`, infinite ones allowed, and correct `(n,)` bool.

    Raises:
        ValueError: a logit is NaN; the message names the row.
    """
    groups = find_tie_groups(logit, correct)
    row = np.argsort(-np.asarray(logit, dtype=np.float64))
    wrong = ~np.asarray(correct, dtype=bool)[row]
    borders, count = np.hstack([groups.before, groups.upto]).ravel().astype(np.int64), len(groups.upto)
    group, within = np.divmod(np.repeat(np.arange(2 * count), np.diff(borders, prepend=0)), 2)
    return RiskOrder(row, count * (within + wrong) + group, count)


def find_tie_groups(logit: np.ndarray, correct: np.ndarray) -> TieGroups:
    """Return the groups of reliability logits `(n,)`, infinite ones allowed, and correct `(n,)` bool, each row once.

    Neighbouring wrong rows make one group even where they are not tied: no metric tells them apart.

    Raises:
        ValueError: a logit is NaN; the message names the row.
    """
    wrong, before, upto = _wrong_by_risk(logit, correct)
    n, errors = len(logit), np.cumsum(wrong)
    right_before, right_upto = before - errors + wrong, upto - errors
    apart = (np.diff(right_before, prepend=-1) != 0) | (np.diff(right_upto, prepend=-1) != 0)
    of_group = np.diff((errors - wrong)[apart], append=wrong.sum())
    groups = before[apart], (before + right_upto - right_before)[apart] + of_group, of_group
    return TieGroups(
        *(np.append(of, last)[:, None].astype(np.float64) for of, last in zip(groups, (n, n, 0), strict=True))
    )


def _wrong_by_risk(logit: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The wrong rows of each risk that has any `(g,)`, and how many rows have less risk, and no more, `(g,)` each."""
    logit, correct = np.asarray(logit, dtype=np.float64), np.asarray(correct, dtype=bool)
    reject_nan(logit, "reliability logit")
    # values are sorted, and not rows, which takes three times as long
    risk, (distinct, wrong) = np.sort(-logit), np.unique(-logit[~correct], return_counts=True)
    before = np.searchsorted(risk, distinct)
    upto = before + wrong
    tied = risk.take(upto, mode="clip") == distinct  # with right rows too
    upto[tied] = np.searchsorted(risk, distinct[tied], side="right")
    return wrong, before, upto


@lru_cache(maxsize=1)  # all scores of a data set have as many rows
def harmonic_sums(largest: int) -> np.ndarray:
    """Return H_x and the sum of H_0 .. H_{x-1}, which is x (H_x - 1), for x = 0 .. largest: `(2, largest + 1)`."""
    places = np.arange(largest + 1)
    # as exact for the last as for the first, unlike a running sum
    numbers = scipy.special.digamma(places + 1.0) + np.euler_gamma
    sums = np.stack([numbers, places * (numbers - 1)])
    sums.flags.writeable = False
    return sums


def ranking_metrics(groups: TieGroups, harmonic: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Return each metric that ranks by name, `(R,)`, under R weightings; each is that of the rows repeated so often.

    `aurc`, lower is better: the area under the risk-coverage curve, in [0, 1], as the paper sums it: the mean of the n
    retained error rates at coverages 1/n .. n/n, no point at coverage 0, no trapezoid. A constant reliability has the
    error rate. `augrc`, lower is better, is the generalised one (Traub et al., 2024): the mean over the same coverages
    of the share of all rows that is retained and wrong, which is not dominated by the few rows of lowest risk.
    `aupr_error`, higher is better: the average precision, in [0, 1], of finding the errors by decreasing risk; NaN
    where no error has weight. `selacc_<c>0`: the accuracy of the c tenths of rows of lowest risk, rounded up in whole
    numbers (0.7 * 90 is below 63), and of one row at least; of the tie group at the border, the share that fits in.

    `harmonic` are the `harmonic_sums` of the largest sum of weights, or more.
    """
    before, upto, wrong = groups
    rows = upto - before
    errors = np.cumsum(wrong, axis=0)
    n, n_errors = upto[-1], errors[-1]
    share = wrong / np.maximum(rows, 1)
    # an error at place j counts in the retained error rates from j on, which is H_n - H_{j-1}
    numbers, summed = harmonic_sums(int(n.max())) if harmonic is None else harmonic
    lost = np.einsum("gr,gr->r", share, _at(upto, summed) - _at(before, summed))
    # twice the mean place of a group is a + b + 1
    twice_places = np.einsum("gr,gr->r", wrong, before + upto + 1)
    # from the side of high risk the group covers n-b+1 .. n-a =: a'+1 .. b', behind E errors; with s = (k-1)/(m-1), its
    # place j finds k/m * (E + 1 + (j-a'-1) s) / j = k/m * (s + (E + 1 - (a'+1) s) / j)
    above, down_to = n - upto, n - before
    others = (wrong - 1) / np.maximum(rows - 1, 1)
    over_place = n_errors - errors + 1 - (above + 1) * others
    by_group = rows * others + over_place * (_at(down_to, numbers) - _at(above, numbers))
    precisions, accuracies = np.einsum("gr,gr->r", share, by_group), {}
    with np.errstate(invalid="ignore"):  # 0/0 of no rows is the NaN that is meant
        for tenths in COVERAGE_TENTHS:
            retained = np.minimum(count_retained_rows(n, tenths), n)  # of no rows, none
            at = np.count_nonzero(upto < retained, axis=0), np.arange(len(n))  # the first that does not end before
            passed = (errors - wrong)[at] + share[at] * np.maximum(retained - before[at], 0)
            accuracies[f"selacc_{tenths}0"] = 1 - passed / retained
        return {
            "aupr_error": np.divide(precisions, n_errors, out=np.full(len(n), np.nan), where=n_errors > 0),
            "aurc": (n_errors * _at(n, numbers) - lost) / n,
            "augrc": (n_errors * (n + 1) - twice_places / 2) / n**2,
            **accuracies,
        }


def average_precision_by_threshold(logit: np.ndarray, correct: np.ndarray) -> float:
    """Return the average precision of finding the errors where each tie group is one threshold, as scikit-learn has it.

    Of logits `(n,)` and correct `(n,)` bool. It is below `aupr_error` wherever precision falls along the ranking, and
    the same without ties; NaN without errors.
    """
    wrong, before, _ = _wrong_by_risk(logit, correct)
    errors = wrong.sum()
    at_least = np.cumsum(wrong[::-1])[::-1]  # errors in a group and after it
    precisions = wrong * at_least / (len(logit) - before)
    return float(precisions.sum() / errors) if errors else np.nan


def count_retained_rows(rows: Any, tenths: int) -> Any:
    """Return how many of so many `rows` the accuracy at `tenths` tenths is of: rounded up, and one at least."""
    return np.maximum(1, -(-tenths * rows // 10))


def expected_retained_errors(groups: TieGroups, coverage: np.ndarray) -> np.ndarray:
    """Return the errors to expect among the `coverage` `(c,)` of lowest risk, as shares of all rows `(R, c)`.

    Coverages lie in [0, 1]; between two places the line is straight, as it is on average within a tie group. Over
    the coverage it is the risk of what is kept; all errors less it are those that a review of the rest finds. Sums
    are as in `ranking_metrics`.
    """
    before, upto, wrong = groups
    errors = np.cumsum(wrong, axis=0)
    ends, passed = (np.hstack([of.T for of in both]) for both in ((before, upto), (errors - wrong, errors)))
    n, rising = upto[-1][:, None], np.arange(2 * len(upto)).reshape(2, -1).T.ravel()
    known = zip(coverage * n, ends[:, rising], passed[:, rising], strict=True)
    retained = [np.interp(at, place, of_place) for at, place, of_place in known]
    with np.errstate(invalid="ignore"):  # 0/0 of no rows is the NaN that is meant
        return np.asarray(np.stack(retained) / n)


def correctness_log_loss(
    logit: np.ndarray, correct: np.ndarray, smallest: float = METRIC_DEFAULTS.smallest_reliability
) -> np.ndarray:
    """Return the log loss of the reliability sigmoid(t), `(n,)` at least 0, in nats: `(n,)` logits t and `(n,)` bool.

    A reliability counts as `smallest` at least and 1 - `smallest` at most, as the authors cut it: one wrong row of a
    confidence that rounds to 1 would make the mean infinite, and 13.8 nats say as much.

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


def _at(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values.take(places.astype(np.intp))
