"""The ranking metrics of `reliability`, for many weightings of the same rows at once.

A row of weight w stands for w rows that are tied with one another. The sums of `reliability` run over rows; here
they are closed over tie groups, by harmonic numbers H_x = 1 + 1/2 + .. + 1/x, and only groups with an error add to
them. A group with a rows before it and m rows, k of them errors, covers the places a+1 .. a+m =: b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.metrics.checks import reject_nan
from tasks.metrics.reliability import COVERAGE_TENTHS


@dataclass(frozen=True, eq=False)
class ErrorGroups:
    """n rows from low to high risk, and the G tie groups that hold an error; after them comes an empty one."""

    row: np.ndarray  # (n,) int64, the row at each place
    wrong: np.ndarray  # (e,) int64, the places whose row is wrong
    start: np.ndarray  # (G,) int64, places before the group
    end: np.ndarray  # (G,) int64, places up to its end
    first: np.ndarray  # (G,) int64, wrong rows before the group
    last: np.ndarray  # (G,) int64, wrong rows up to its end


def group_errors(logit: np.ndarray, correct: np.ndarray) -> ErrorGroups:
    """Sort once: reliability logits `(n,)`, infinite ones allowed, and correct `(n,)` bool.

    Neighbouring wrong rows make one group even where they are not tied: no metric tells them apart.

    Raises
    ------
    ValueError: a logit is NaN; the message names the row.
    """
    logit = np.asarray(logit, dtype=np.float64)
    reject_nan(logit, "reliability logit")
    row = np.argsort(-logit, kind="stable")
    ordered, wrong = logit[row], ~np.asarray(correct, dtype=bool)[row]
    before = np.append(0, np.cumsum(wrong))
    start = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    errors, rows = (np.diff(of, append=of_all) for of, of_all in ((before[start], before[-1]), (start, len(row))))
    inside = (errors[1:] == rows[1:]) & (errors[:-1] == rows[:-1])
    start = start[np.append(True, ~inside)]
    end = np.append(start[1:], len(row))
    kept = before[end] > before[start]
    start, end = (np.append(places[kept], len(row)) for places in (start, end))
    return ErrorGroups(row, np.flatnonzero(wrong), start, end, before[start], before[end])


def harmonic_sums(largest: int) -> np.ndarray:
    """For x = 0 .. largest, H_x and the sum of H_0 .. H_{x-1}, which is x (H_x - 1): `(2, largest + 1)`."""
    numbers = np.append(0.0, np.cumsum(1 / np.arange(1, largest + 1)))
    return np.stack([numbers, np.arange(largest + 1) * (numbers - 1)])


def weighted_ranking(groups: ErrorGroups, weights: np.ndarray, harmonic: np.ndarray) -> dict[str, np.ndarray]:
    """Each ranking metric, `(R,)`, under R weightings; the same as that of the rows repeated so often.

    AUPR-Error is NaN where no error has weight.

    Parameters
    ----------
    weights: `(R, n)` integers, at least 0, by place (not by row); each weighting has a positive sum.
    harmonic: `harmonic_sums` of the largest of those sums, or more.
    """
    places = _running(weights)
    before, upto = places.take(groups.start, axis=1), places.take(groups.end, axis=1)
    errors = _running(weights.take(groups.wrong, axis=1))
    errors_before, errors_upto = errors.take(groups.first, axis=1), errors.take(groups.last, axis=1)
    n, n_errors = places[:, -1], errors[:, -1]
    rows, wrong = upto - before, errors_upto - errors_before
    share = wrong / np.maximum(rows, 1)
    # an error at place j counts in the retained error rates from j on, which is H_n - H_{j-1}
    numbers, summed = harmonic
    lost = np.einsum("rg,rg->r", share, summed.take(upto) - summed.take(before))
    # twice the mean place of a group is a + b + 1
    twice_places = np.einsum("rg,rg->r", wrong, before + upto + 1)
    # from the side of high risk the group covers n-b+1 .. n-a
    from_high = n[:, None] - upto, n[:, None] - before
    found = _found(wrong, rows, share, n_errors[:, None] - errors_upto, from_high, numbers)
    return {
        "aupr_error": np.divide(found, n_errors, out=np.full(len(n), np.nan), where=n_errors > 0),
        "aurc": (n_errors * numbers[n] - lost) / n,
        "augrc": (n_errors * (n + 1) - twice_places / 2) / n**2,
        **_selective_accuracies(before, upto, errors_before, share),
    }


def weighted_errors_retained(groups: ErrorGroups, weights: np.ndarray, coverage: np.ndarray) -> np.ndarray:
    """`reliability.errors_retained` at coverages `(c,)` under weights `(R, n)`, as in `weighted_ranking`: `(R, c)`."""
    places, errors = _running(weights), _running(weights.take(groups.wrong, axis=1))
    ends = np.stack([groups.start, groups.end], axis=1).ravel()
    passed = np.stack([groups.first, groups.last], axis=1).ravel()
    n = places[:, -1:]
    found = [
        np.interp(at, place, wrong)
        for at, place, wrong in zip(coverage * n, places.take(ends, axis=1), errors.take(passed, axis=1), strict=True)
    ]
    return np.asarray(np.stack(found) / n)


def _found(
    wrong: np.ndarray,
    rows: np.ndarray,
    share: np.ndarray,
    errors_above: np.ndarray,
    from_high: tuple[np.ndarray, np.ndarray],
    numbers: np.ndarray,
) -> np.ndarray:
    """The sum over groups that `aupr_error` divides by the number of errors, `(R,)`; all else is `(R, G)`.

    With s = (k-1)/(m-1), place j of a group finds k/m * (E + 1 + (j-a-1) s) / j = k/m * (s + (E + 1 - (a+1) s) / j).
    """
    above, down_to = from_high
    others = (wrong - 1) / np.maximum(rows - 1, 1)
    over_place = errors_above + 1 - (above + 1) * others
    by_group = rows * others + over_place * (numbers.take(down_to) - numbers.take(above))
    return np.asarray(np.einsum("rg,rg->r", share, by_group))


def _selective_accuracies(
    before: np.ndarray, upto: np.ndarray, errors_before: np.ndarray, share: np.ndarray
) -> dict[str, np.ndarray]:
    """By coverage, `(R,)`. The group at the border is the first that does not end before it."""
    weighting, groups = np.arange(len(upto)), upto.shape[1]
    n = upto[:, -1]
    # one rising row of keys, so that one search answers for every weighting
    offset = weighting * (n.max() + 1)
    keys = (upto + offset[:, None]).ravel()
    found = {}
    for tenths in COVERAGE_TENTHS:
        retained = np.maximum(1, -(-tenths * n // 10))
        border = np.searchsorted(keys, retained + offset) - weighting * groups
        at = weighting, border
        errors = errors_before[at] + share[at] * np.maximum(retained - before[at], 0)
        found[f"selacc_{tenths}0"] = 1 - errors / retained
    return found


def _running(weights: np.ndarray) -> np.ndarray:
    """`(R, n)` to the sums of the first 0 .. n, `(R, n + 1)` int64."""
    sums = np.zeros((len(weights), weights.shape[1] + 1), dtype=np.int64)
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums
