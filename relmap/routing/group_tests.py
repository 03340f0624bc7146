"""p-values and lower bounds of rates where the rows of a group are dependent, and groups are independent.

Every row of a group is used. A rate, such as the accuracy of automatic rows, is computed in each group where it is
defined. The p-values of the mean of these rates over groups are computed by betting (Waudby-Smith and Ramdas, 2024,
Estimating means of bounded random variables by betting). They are valid for every number of groups and every
dependence within groups, and need no bound on the size of groups.

The rate of all rows counts large groups more than the mean of rates does. A valid p-value for it would need a bound on
the size of groups. A cluster-robust t-test, which is valid for many groups, is used instead.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy

BETS = np.geomspace(0.1, 0.98, 5)  # sizes of the fixed bets, as shares of the capital that can be lost
MAX_ADAPTIVE_BET = 0.9
START_BET = 0.7  # size of the first adaptive bet
BOUND_TOLERANCE = 1e-4


def betting_p_value(payoff: np.ndarray, max_loss: float) -> float:
    """Return a p-value of the hypothesis that independent payoffs have a mean of at most 0.

    Half of the capital of a bettor is divided equally among fixed bets b, which multiply it by 1 + b * payoff. The
    other half is bet adaptively: the next bet is the sum of the previous payoffs divided by the sum of their squares,
    which approximately maximizes the growth. Few groups with many rows favor adaptive bets, many groups with few rows
    favor fixed bets. Under the hypothesis the capital is a nonnegative supermartingale that starts at 1. By Ville's
    inequality, its maximum exceeds 1/p with a probability of at most p.

    Args:
        payoff: Payoff of each group, at least `-max_loss`, shape (g,), in an order that does not depend on the payoffs.
        max_loss: Largest possible loss, in (0, 1); payoffs are at most `1 - max_loss`.

    Returns:
        The p-value, in (0, 1].

    References:
        Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting, section 4 (capital
        processes) and appendix B (adaptive bets: "aGRAPA").
    """
    if len(payoff) == 0:
        return 1.0
    n_fixed = len(BETS)
    bets = np.empty((n_fixed + 1, len(payoff)))
    bets[:n_fixed] = BETS[:, None] / max_loss
    bets[n_fixed] = _adaptive_bets(payoff, max_loss)
    log_capital = np.cumsum(np.log1p(bets * payoff), axis=1)
    log_capital[:n_fixed] -= math.log(2 * n_fixed)
    log_capital[n_fixed] -= math.log(2)
    largest = log_capital.max(axis=0)
    log_total = largest + np.log(np.exp(log_capital - largest).sum(axis=0))
    return float(np.exp(-max(0.0, log_total.max())))


def _adaptive_bets(payoff: np.ndarray, max_loss: float) -> np.ndarray:
    """Return the bet on each payoff, which depends only on the payoffs before it, shape (g,).

    Before the first payoff, one payoff with the variance of a single row is assumed, and a bet of `START_BET`.
    """
    assumed_square = max_loss * (1 - max_loss)
    first_bet = START_BET / max_loss
    payoffs_before = np.concatenate([[0.0], np.cumsum(payoff)[:-1]])
    squares_before = np.concatenate([[0.0], np.cumsum(payoff**2)[:-1]])
    bets = (payoffs_before + first_bet * assumed_square) / (squares_before + assumed_square)
    return np.asarray(np.clip(bets, 0, MAX_ADAPTIVE_BET / max_loss))


def min_groups_to_reject(target: float, level: float, rate: float = 1.0) -> int:
    """Compute the minimum number of groups that show a rate above a target if every group has the same rate.

    Args:
        target: The rate, in (0, 1).
        level: Level of the test, in (0, 1).
        rate: Rate of every group, above the target; by default, all rows are successful.

    Returns:
        The smallest number of groups whose p-value is at most the level.
    """
    n_groups = 1
    while betting_p_value(np.full(n_groups, rate - target), target) > level:
        n_groups *= 2
    low = n_groups // 2  # too few groups
    while n_groups - low > 1:
        middle = (low + n_groups) // 2
        if betting_p_value(np.full(middle, rate - target), target) > level:
            low = middle
        else:
            n_groups = middle
    return n_groups


def max_rate_to_reject(n_groups: int, level: float) -> float:
    """Compute the largest target that a number of groups exceeds significantly if all rows are successful.

    Args:
        n_groups: Number of groups.
        level: Level of the test, in (0, 1).

    Returns:
        The rate, in [0, 1), rounded down by at most `BOUND_TOLERANCE`.
    """
    return _largest_rejected(lambda target: betting_p_value(np.full(n_groups, 1 - target), target), 1.0, level)


def _largest_rejected(p_value: Callable[[float], float], high: float, level: float) -> float:
    """Return the largest target below `high` whose p-value is at most the level, rounded down; 0 if there is none."""
    low = 0.0
    while high - low > BOUND_TOLERANCE:
        middle = (low + high) / 2
        if p_value(middle) <= level:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Groups of rows, numbered in random order.

    Attributes:
        code: Number of the group of each row, from 0, shape (n,), int.
        weight: Number of rows that each row represents, shape (n,), above 0; None if all are equal.
    """

    code: np.ndarray
    weight: np.ndarray | None = None

    @classmethod
    def from_names(cls, names: np.ndarray, seed: int, weight: np.ndarray | None = None) -> Self:
        """Number the groups in a random order that depends only on their names and the seed.

        Args:
            names: Group of each row, shape (n,).
            seed: Seed of the order.
            weight: Number of rows that each row represents, shape (n,), or None.

        Returns:
            The groups.
        """
        distinct_names, code = np.unique(names, return_inverse=True)
        rank = np.random.default_rng(seed).permutation(len(distinct_names))
        return cls(rank[code], weight)

    @cached_property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.code.max()) + 1

    def take(self, is_selected: np.ndarray) -> "RowGroups":
        """Select rows, whose groups keep their numbers.

        Args:
            is_selected: Whether each row is selected, shape (n,), bool; at least one is.

        Returns:
            The groups of the selected rows.
        """
        return RowGroups(self.code[is_selected], None if self.weight is None else self.weight[is_selected])

    def describe(self) -> str:
        """Describe which accuracy the bounds refer to."""
        used = f"All {len(self.code):,} rows of the {self.n_groups:,} groups are used."
        if self.weight is not None:
            return f"{used} The bounds are for the accuracy of all rows, weighted by their sampling probabilities."
        return f"{used} The bounds are for the mean accuracy of groups and, with many groups, for that of all rows."

    def rates(self, is_counted: np.ndarray, is_successful: np.ndarray) -> "GroupRates":
        """Count the rows of each group.

        Args:
            is_counted: Whether a row is in the denominator of the rate, shape (n,), bool.
            is_successful: Whether a row, if it is in the denominator, is also in the numerator, shape (n,), bool.

        Returns:
            The numbers of rows of the groups where the rate is defined.
        """
        n_counted = self._count(is_counted)
        n_successful = self._count(is_counted & is_successful)
        is_defined = n_counted > 0
        max_weight = None
        if self.weight is not None:
            max_weight = float(self._count(np.full(len(self.code), True)).max())
        return GroupRates(n_counted[is_defined], n_successful[is_defined], max_weight)

    def _count(self, is_member: np.ndarray) -> np.ndarray:
        """Return the number of selected rows of each group, or their total weight, shape (g,)."""
        weight = None if self.weight is None else self.weight[is_member]
        return np.bincount(self.code[is_member], weight, minlength=self.n_groups)


class GroupRates(NamedTuple):
    """Rates of groups where they are defined.

    Attributes:
        counted: Number of rows in the denominator of the rate, or their total weight, shape (g,), above 0.
        successful: Number of these rows that are in the numerator, or their total weight, shape (g,).
        max_weight: Largest total weight of a group. None if rows have no weights; each group then counts as much as
            every other.
    """

    counted: np.ndarray
    successful: np.ndarray
    max_weight: float | None = None

    def p_value(self, target: float, factor: int = 1) -> float:
        """Compute a p-value of the hypothesis that the rate is at most a target.

        The rate is the mean of the rates of groups, tested by betting, and also the rate of all rows, tested by a
        cluster-robust t-test. The result is the larger one of the two p-values. Rows with weights are incomplete
        groups, so both tests are then of the weighted rate of all rows.

        Args:
            target: The rate, in (0, 1).
            factor: How often the groups are repeated.

        Returns:
            The p-value.
        """
        if len(self.counted) == 0:
            return 1.0
        excess = self.successful - target * self.counted
        p_value_of_rows = _t_test(np.tile(excess, factor))
        if p_value_of_rows == 1:
            return 1.0
        payoff = self.successful / self.counted - target
        if self.max_weight is not None:
            payoff = payoff * self.counted / self.max_weight
        return max(betting_p_value(np.tile(payoff, factor), target), p_value_of_rows)

    def lower_bound(self, level: float) -> float:
        """Compute the lower bound of the rate at a level: the largest target with a p-value of at most the level.

        Args:
            level: Error level, in (0, 1).

        Returns:
            The bound, in [0, 1]; 0 if no target is rejected.
        """
        return _largest_rejected(self.p_value, float(self.successful.sum() / self.counted.sum()), level)


def _t_test(values: np.ndarray) -> float:
    """Return the one-sided p-value of a t-test of the hypothesis that the mean is at most 0."""
    mean = float(values.mean())
    if len(values) < 2 or mean <= 0:
        return 1.0
    standard_error = float(values.std(ddof=1)) / math.sqrt(len(values))
    if standard_error == 0:
        return 0.0
    return float(scipy.special.stdtr(len(values) - 1, -mean / standard_error))
