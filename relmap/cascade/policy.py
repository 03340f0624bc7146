"""Thresholds of a cascade: which model, or a person, decides each row, at the least expected cost.

A cascade asks its models in order, cheapest first. A model decides a row if the reliability of its decision reaches the
threshold of its step; otherwise the row goes on to the next model, and from the last model to a person. A model that
does not pay is left out, so there is a plan for each choice of models. `choose_policy` finds plan and thresholds by
Pareto testing (Laufer-Goldshtein et al., 2023, Efficiently controlling multiple risks with Pareto testing). Rows that
the maps were fitted on give the candidates: thresholds of any plan for which no others are both cheaper and more
accurate, and some between two of these whose costs differ much. The candidates are then tested on rows that neither
the maps nor the candidates have seen, in the order of their estimated accuracy, the most accurate first, until one
fails. This controls the probability of choosing thresholds that miss the target, without a correction for the number
of candidates.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from relmap.errors import InputError
from relmap.metrics.intervals import binomial_lower_bound, binomial_p_value
from relmap.routing.group_tests import RowGroups, max_rate_to_reject, min_groups_to_reject

TIE_RANGE = 1e-9  # of reliability, within which rows are ordered at random
MAX_CANDIDATES = 20_000  # combinations of thresholds that are tried
MAX_TESTED = 200  # candidates of the frontier that are tested at most
N_STEPS = 50  # of the cost, in each of which a candidate is tested where possible
NEVER = 2.0  # threshold of a model that decides no row: above every reliability


@dataclass(frozen=True)
class Costs:
    """Costs of a row at each step, and who decides in the end.

    Attributes:
        models: Cost of each model for one row, in the order of the cascade, at least 0.
        person: Cost of a person for one row, at least 0; None if the last model decides every row that reaches it.
        person_accuracy: Share of decisions of a person that are correct, in (0, 1].
    """

    models: tuple[float, ...]
    person: float | None = None
    person_accuracy: float = 1.0

    @property
    def cumulative(self) -> np.ndarray:
        """Total cost of a row that each step decides, shape (number of steps,)."""
        costs = list(self.models)
        if self.person is not None:
            costs.append(self.person)
        return np.cumsum(costs)


@dataclass(frozen=True, eq=False)
class CascadeRows:
    """Labelled rows with the scores of all models, without ties.

    Attributes:
        score: Reliability, or another score, of the decision of each model, shape (n, number of models).
        correct: Whether the decision of each step is correct, shape (n, number of steps), bool. A person is the last
            step.
        groups: Groups of dependent rows; None if rows are independent.
    """

    score: np.ndarray
    correct: np.ndarray
    groups: RowGroups | None = None

    def deciding_step(self, thresholds: Sequence[float]) -> np.ndarray:
        """Return the number of the step that decides each row, shape (n,)."""
        if not len(thresholds):
            return np.zeros(len(self.score), dtype=np.int64)
        decides = self.score[:, : len(thresholds)] >= np.asarray(thresholds)
        first = decides.argmax(axis=1)
        last = len(thresholds)
        return np.asarray(np.where(decides.any(axis=1), first, last))

    def correct_at(self, step: np.ndarray) -> np.ndarray:
        """Return whether the decision of the given step of each row is correct, shape (n,)."""
        return np.asarray(self.correct[np.arange(len(step)), step])


@dataclass(frozen=True, eq=False)
class Plan:
    """Models that are asked, and what is known of the rows if these are asked.

    Attributes:
        models: Names of the models, in the order of the cascade; empty if a person decides every row.
        costs: Costs of the steps.
        candidates: Rows to find candidates on. The maps may have been fitted on them.
        tests: Rows to test candidates on, which no map has seen. They are the same rows in every plan.
    """

    models: tuple[str, ...]
    costs: Costs
    candidates: CascadeRows
    tests: CascadeRows


@dataclass(frozen=True)
class Policy:
    """Thresholds, with their cost and accuracy on some rows.

    Attributes:
        thresholds: Minimum reliability of each step that can pass a row on.
        cost: Mean cost of a row.
        accuracy: Share of final decisions that are correct.
        shares: Share of the rows that each step decides.
        plan: Number of the plan that the thresholds belong to.
    """

    thresholds: tuple[float, ...]
    cost: float
    accuracy: float
    shares: tuple[float, ...]
    plan: int = 0


def tie_breakers(names: Sequence[object], n_models: int, seed: int) -> np.ndarray:
    """Draw a small number for each row and model, which orders rows with the same reliability at random.

    Without these, judges that state no confidence would allow a few thresholds only.

    Args:
        names: Name of each row, n of them, such as an id or its number. The numbers depend on nothing else.
        n_models: Number of models.
        seed: Seed of the order.

    Returns:
        Numbers in [0, `TIE_RANGE`) to add to the reliabilities, shape (n, number of models).
    """
    uniform = np.empty((len(names), n_models))
    key = str(seed).encode()
    for row, name in enumerate(names):
        digest = hashlib.blake2b(str(name).encode(), key=key, digest_size=8 * n_models).digest()
        uniform[row] = np.frombuffer(digest, dtype="<u8")
    return TIE_RANGE * uniform / 2.0**64


def measure_policy(thresholds: Sequence[float], rows: CascadeRows, costs: Costs, plan: int = 0) -> Policy:
    """Measure the cost and the accuracy of thresholds.

    Args:
        thresholds: Minimum reliability of each step that can pass a row on.
        rows: Labelled rows.
        costs: Costs of the steps.
        plan: Number of the plan that the thresholds belong to.

    Returns:
        The thresholds with their cost and accuracy.
    """
    step = rows.deciding_step(thresholds)
    n_steps = rows.correct.shape[1]
    shares = np.bincount(step, minlength=n_steps) / len(step)
    return Policy(
        thresholds=tuple(float(threshold) for threshold in thresholds),
        cost=float(shares @ costs.cumulative),
        accuracy=float(rows.correct_at(step).mean()),
        shares=tuple(shares.tolist()),
        plan=plan,
    )


def find_frontier(plans: Sequence[Plan], n_steps: int | None = None) -> list[Policy]:
    """Find plans and thresholds for which no others are both cheaper and at least as accurate.

    Accuracies on few rows are equal or ordered by chance, so there may be large steps of the cost on the frontier. With
    `n_steps`, there are further policies in these, which are as accurate as the next cheaper one. On other rows, the
    more expensive ones are mostly more accurate.

    Args:
        plans: The plans.
        n_steps: Number of equal steps of the cost, each of which has a policy where possible; None for the frontier.

    Returns:
        At most `MAX_TESTED` policies of the frontier, measured on the rows for candidates, the most accurate and
        expensive first, and at most `n_steps` others.
    """
    scanned = [_scan_plan(plan) for plan in plans]
    cost = np.concatenate([scan.cost for scan in scanned])
    accuracy = np.concatenate([scan.accuracy for scan in scanned])
    first = np.cumsum([0, *(len(scan.cost) for scan in scanned)])
    chosen = _undominated(cost, accuracy)
    if len(chosen) > MAX_TESTED:
        chosen = chosen[np.linspace(0, len(chosen) - 1, MAX_TESTED).round().astype(int)]
    if n_steps is not None:
        chosen = _fill_steps(chosen, cost, accuracy, n_steps)
    policies = []
    for index in chosen:
        number = int(np.searchsorted(first, index, side="right")) - 1
        plan = plans[number]
        thresholds = scanned[number].thresholds[index - first[number]]
        policies.append(measure_policy(thresholds, plan.candidates, plan.costs, number))
    return policies


def _fill_steps(frontier: np.ndarray, cost: np.ndarray, accuracy: np.ndarray, n_steps: int) -> np.ndarray:
    """Add policies between those of a frontier, as accurate as the next cheaper one; return their numbers."""
    width = (cost[frontier[0]] - cost[frontier[-1]]) / n_steps
    filled = [frontier[0]]
    for cheaper in frontier[1:]:
        alike = np.flatnonzero((accuracy >= accuracy[cheaper]) & (cost > cost[cheaper]))
        while cost[filled[-1]] - cost[cheaper] >= 2 * width:
            is_next = cost[alike] <= cost[filled[-1]] - width
            if not is_next.any():
                break
            possible = alike[is_next]
            filled.append(possible[np.argmax(cost[possible])])
        filled.append(cheaper)
    return np.array(filled)


class _Scan(NamedTuple):
    """Combinations of thresholds of one plan, P of them, with their costs and accuracies."""

    thresholds: list[tuple[float, ...]]
    cost: np.ndarray
    accuracy: np.ndarray


def _scan_plan(plan: Plan) -> _Scan:
    """Try combinations of thresholds on the rows for candidates."""
    rows = plan.candidates
    costs = plan.costs
    n_thresholds = len(costs.cumulative) - 1
    if n_thresholds == 0:
        only = measure_policy((), rows, costs)
        return _Scan([()], np.array([only.cost]), np.array([only.accuracy]))
    n_values = int(MAX_CANDIDATES ** (1 / n_thresholds))
    values = [_candidate_thresholds(rows.score[:, model], n_values) for model in range(n_thresholds)]
    last_step = _LastStep.from_rows(rows, costs, values[-1])
    scanned = [last_step.scan(first) for first in product(*values[:-1])]
    cost = np.array([costs_of_first for costs_of_first, _ in scanned]).ravel()
    accuracy = np.array([accuracies for _, accuracies in scanned]).ravel()
    return _Scan(list(product(*values)), cost, accuracy)


def _undominated(cost: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """Return the numbers of the policies that no other one beats, the most accurate and expensive first."""
    order = np.lexsort((-accuracy, cost))  # by cost; of equally expensive ones, the most accurate first
    best_before = np.r_[-np.inf, np.maximum.accumulate(accuracy[order])[:-1]]
    return np.asarray(order[accuracy[order] > best_before][::-1])


class _LastStep(NamedTuple):
    """Rows in the order of their score at the last step with a threshold, to try all of its thresholds at once.

    Attributes:
        rows: The rows.
        costs: Costs of the steps.
        order: Row numbers by increasing score at this step, shape (n,).
        position: Number of rows below each threshold of this step, shape (number of thresholds,).
    """

    rows: CascadeRows
    costs: Costs
    order: np.ndarray
    position: np.ndarray

    @classmethod
    def from_rows(cls, rows: CascadeRows, costs: Costs, thresholds: Sequence[float]) -> "_LastStep":
        """Sort the rows."""
        score = rows.score[:, len(costs.cumulative) - 2]
        order = np.argsort(score, kind="stable")
        return cls(rows, costs, order, np.searchsorted(score[order], thresholds))

    def scan(self, first: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean cost and the accuracy with each threshold of this step, given those of the steps before."""
        here = len(first)
        step = self.rows.deciding_step(first)
        reaches = (step == here)[self.order]
        early = step[step < here]
        early_correct = self.rows.correct_at(step)[step < here].sum()
        reached_below = np.r_[0, np.cumsum(reaches)]
        correct_here = np.r_[0, np.cumsum(reaches & self.rows.correct[self.order, here])]
        correct_next = np.r_[0, np.cumsum(reaches & self.rows.correct[self.order, here + 1])]
        n_next = reached_below[self.position]
        n_here = reached_below[-1] - n_next
        cumulative = self.costs.cumulative
        cost = cumulative[early].sum() + n_here * cumulative[here] + n_next * cumulative[here + 1]
        correct = early_correct + correct_here[-1] - correct_here[self.position] + correct_next[self.position]
        return cost / len(step), correct / len(step)


def _candidate_thresholds(score: np.ndarray, n_values: int) -> list[float]:
    """Return 0, thresholds between scores at equal distances of rank, and a threshold that no score reaches."""
    ordered = np.sort(score)
    between = np.unique((ordered[:-1] + ordered[1:]) / 2)
    if len(between) > n_values - 2:
        ranks = np.linspace(0, len(between) - 1, n_values)[1:-1]
        between = between[np.unique(ranks.round().astype(int))]
    return [0.0, *between.tolist(), NEVER]


def accuracy_p_value(correct: np.ndarray, groups: RowGroups | None, target: float) -> float:
    """Compute a p-value of the hypothesis that the accuracy is at most a target.

    Args:
        correct: Whether each decision is correct, shape (n,), bool.
        groups: Groups of dependent rows; None for an exact binomial test of independent rows.
        target: The accuracy, in (0, 1).

    Returns:
        The p-value.
    """
    if groups is not None:
        return groups.rates(np.ones(len(correct), dtype=bool), correct).p_value(target)
    return float(binomial_p_value((~correct).sum(), len(correct), target))


def lower_accuracy_bound(correct: np.ndarray, groups: RowGroups | None, level: float) -> float:
    """Compute a lower confidence bound of an accuracy.

    Args:
        correct: Whether each decision is correct, shape (n,), bool.
        groups: Groups of dependent rows; None for the bound of Clopper and Pearson.
        level: Probability of a bound above the accuracy, such as 0.05.

    Returns:
        The bound, in [0, 1].
    """
    if groups is not None:
        return groups.rates(np.ones(len(correct), dtype=bool), correct).lower_bound(level)
    n_correct = int(correct.sum())
    return binomial_lower_bound(n_correct, len(correct) - n_correct, level)


@dataclass(frozen=True)
class CascadeChoice:
    """The chosen thresholds and the alternatives, all measured on rows that were used for nothing else.

    Attributes:
        chosen: The chosen policy; None if no candidate reaches the target.
        lower_bound: Lower confidence bound of its accuracy; the target, if there is one.
        frontier: Candidates, the most accurate first.
    """

    chosen: Policy | None
    lower_bound: float | None
    frontier: tuple[Policy, ...]


def choose_policy(
    plans: Sequence[Plan], *, target: float | None = None, budget: float | None = None, level: float = 0.05
) -> CascadeChoice:
    """Choose the cheapest thresholds that reach a target accuracy, or the most accurate ones within a budget.

    Args:
        plans: Models that may be asked, with their rows.
        target: Accuracy of the final decisions, in (0, 1). The probability of choosing thresholds with a lower accuracy
            is at most `level`.
        budget: Mean cost of a row. The thresholds are chosen on the candidates' rows, so the cost of new rows is near
            the budget and may exceed it slightly.
        level: Probability of a wrong statement, in (0, 1).

    Returns:
        The choice.

    Raises:
        InputError: None or both of target and budget are given.
    """
    if (target is None) == (budget is None):
        raise InputError("give either a target accuracy or a budget")
    frontier = find_frontier(plans, N_STEPS if budget is None else None)
    measured = []
    correct = []
    for policy in frontier:
        plan = plans[policy.plan]
        measured.append(measure_policy(policy.thresholds, plan.tests, plan.costs, policy.plan))
        correct.append(plan.tests.correct_at(plan.tests.deciding_step(policy.thresholds)))
    groups = plans[0].tests.groups
    chosen: int | None = None
    lower_bound = target
    if target is not None:
        for index, correct_decisions in enumerate(correct):
            if accuracy_p_value(correct_decisions, groups, target) > level:
                break
            chosen = index
    else:
        assert budget is not None
        affordable = [index for index, policy in enumerate(frontier) if policy.cost <= budget]
        if affordable:
            chosen = affordable[0]
            lower_bound = lower_accuracy_bound(correct[chosen], groups, level)
    if chosen is None:
        return CascadeChoice(None, None, tuple(measured))
    return CascadeChoice(measured[chosen], lower_bound, tuple(measured))


def describe_missing_policy(
    choice: CascadeChoice, plans: Sequence[Plan], *, target: float | None, level: float, hold_out: float
) -> str:
    """Explain why no thresholds were chosen, and what would help.

    Args:
        choice: A choice without thresholds.
        plans: The plans that it was made from.
        target: The target accuracy; None with a budget.
        level: Probability of a wrong statement.
        hold_out: Share of the groups that test the thresholds.

    Returns:
        A sentence.
    """
    if target is None:
        cheapest = min(policy.cost for policy in choice.frontier)
        return f"the cheapest way costs {cheapest:.4g}, which exceeds the budget; raise the budget"
    tests = plans[0].tests
    unit = "rows"
    if tests.groups is not None:
        unit = "groups"
        n_groups = tests.groups.n_groups
        if n_groups < min_groups_to_reject(target, level):
            shown = max_rate_to_reject(n_groups, level)
            # enough groups if half of the errors that the target allows are made
            needed = math.ceil(min_groups_to_reject(target, level, rate=(1 + target) / 2) / hold_out)
            return (
                f"{n_groups} groups test the thresholds, which shows an accuracy of at most {floor_percent(shown)}, "
                f"even if all decisions are right; to show {100 * target:.4g}%, label about "
                f"{math.ceil(needed / 10) * 10:,} groups in all, or choose a target below {floor_percent(shown)}"
            )
    n_units = len(tests.score) if tests.groups is None else tests.groups.n_groups
    best = choice.frontier[0]
    advice = f"label more {unit}, or lower the target"
    if plans[0].costs.person is None:
        advice = f"give the cost of a person, {advice}"
    return (
        f"the most accurate way reaches {best.accuracy:.1%} on {n_units:,} {unit}, which does not show "
        f"{100 * target:.6g}% with {100 * (1 - level):.6g}% confidence; {advice}"
    )


def simulate_person(n_rows: int, accuracy: float, seed: int) -> np.ndarray:
    """Simulate whether a person decides each row correctly, shape (n,), bool."""
    return np.random.default_rng(seed).random(n_rows) < accuracy


def floor_percent(share: float) -> str:
    """Format a lower bound in percent, rounded down.

    Args:
        share: The bound, in [0, 1].

    Returns:
        Such as 89.9%.
    """
    return f"{math.floor(1000 * share + 1e-9) / 10:g}%"
