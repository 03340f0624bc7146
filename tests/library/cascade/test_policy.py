"""Choice of the thresholds of a cascade."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from relmap.cascade.policy import (
    NEVER,
    TIE_RANGE,
    CascadeRows,
    Costs,
    Plan,
    accuracy_p_value,
    choose_policy,
    find_frontier,
    lower_accuracy_bound,
    measure_policy,
    simulate_person,
    tie_breakers,
)
from relmap.errors import InputError
from relmap.routing.group_tests import RowGroups

COSTS = Costs(models=(1.0, 10.0), person=100.0)
# four rows: the scores of two models, and whether each model and a person is right
ROWS = CascadeRows(
    score=np.array([[0.9, 0.6], [0.8, 0.9], [0.3, 0.8], [0.2, 0.4]]),
    correct=np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1], [1, 0, 1]], dtype=bool),
)


def simulate(n_rows: int, n_models: int, seed: int, *, has_person: bool = True) -> CascadeRows:
    generator = np.random.default_rng(seed)
    score = generator.random((n_rows, n_models))
    correct = generator.random((n_rows, n_models)) < score
    if has_person:
        correct = np.column_stack([correct, np.ones(n_rows, dtype=bool)])
    return CascadeRows(score, correct)


def plan(candidates: CascadeRows, tests: CascadeRows | None = None, costs: Costs = COSTS) -> Plan:
    names = tuple("abc"[: len(costs.models)])
    return Plan(names, costs, candidates, candidates if tests is None else tests)


def test_a_policy_by_hand():
    policy = measure_policy((0.5, 0.7), ROWS, COSTS)
    # rows 0 and 1 are decided by the first model (one error), row 2 by the second, row 3 by a person
    assert policy.shares == (0.5, 0.25, 0.25)
    assert policy.accuracy == 0.75
    assert policy.cost == pytest.approx((1 + 1 + 11 + 111) / 4)


def test_without_a_person_the_last_model_decides_what_reaches_it():
    rows = CascadeRows(ROWS.score, ROWS.correct[:, :2])
    policy = measure_policy((NEVER,), rows, Costs(models=(1.0, 10.0)))
    assert policy.shares == (0, 1)
    assert policy.accuracy == 0.75
    assert policy.cost == 11


def naive_frontier(rows: CascadeRows, costs: Costs, values: list[list[float]]) -> set[tuple[float, float]]:
    """Return cost and accuracy of every policy that no other policy beats, by trying all pairs."""
    measured = [measure_policy(thresholds, rows, costs) for thresholds in product(*values)]
    points = {(policy.cost, policy.accuracy) for policy in measured}
    return {
        point
        for point in points
        if not any(other != point and other[0] <= point[0] and other[1] >= point[1] for other in points)
    }


@given(n_rows=st.integers(2, 12), n_models=st.integers(1, 3), seed=st.integers(0, 10**6), has_person=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_frontier_is_that_of_all_policies(n_rows, n_models, seed, has_person):
    rows = simulate(n_rows, n_models, seed, has_person=has_person)
    costs = Costs(models=(1.0, 7.0, 30.0)[:n_models], person=101.0 if has_person else None)
    n_thresholds = n_models if has_person else n_models - 1
    values = []
    for model in range(n_thresholds):
        ordered = np.sort(rows.score[:, model])
        values.append([0.0, *((ordered[:-1] + ordered[1:]) / 2).tolist(), NEVER])
    expected = naive_frontier(rows, costs, values)
    found = {(policy.cost, policy.accuracy) for policy in find_frontier([plan(rows, costs=costs)])}
    np.testing.assert_allclose(sorted(found), sorted(expected))


def test_the_frontier_of_several_plans_is_that_of_all_their_policies():
    both = simulate(300, 2, 4)
    both.correct[:, 0] = False  # asking the first model is a waste
    second = CascadeRows(both.score[:, 1:], both.correct[:, 1:])
    person = CascadeRows(both.score[:, :0], both.correct[:, 2:])
    plans = [
        plan(both),
        plan(second, costs=Costs(models=(10.0,), person=100.0)),
        plan(person, costs=Costs(models=(), person=100.0)),
    ]
    every = [policy for each in plans for policy in find_frontier([each])]
    found = find_frontier(plans)
    assert [policy.plan for policy in found[:2]] == [2, 1]  # a person alone costs less than after a model
    for policy in found:
        assert not any(
            other.cost <= policy.cost
            and other.accuracy >= policy.accuracy
            and (other.cost, other.accuracy) != (policy.cost, policy.accuracy)
            for other in every
        )
    assert found[0].accuracy == 1


@pytest.mark.parametrize("seed", range(5))
def test_large_steps_of_the_cost_are_filled_with_policies_as_accurate_as_the_next(seed):
    plans = [plan(simulate(60, 2, seed))]
    frontier = find_frontier(plans)
    filled = find_frontier(plans, n_steps=50)
    assert [policy for policy in filled if policy in frontier] == frontier
    assert len(frontier) < len(filled) <= len(frontier) + 50
    cost = [policy.cost for policy in filled]
    assert cost == sorted(cost, reverse=True)
    for policy in filled:
        cheaper = next(each for each in frontier if each.cost <= policy.cost)
        assert policy.accuracy >= cheaper.accuracy


def test_the_frontier_is_ordered_from_accurate_to_cheap():
    frontier = find_frontier([plan(simulate(500, 2, 1))])
    accuracy = [policy.accuracy for policy in frontier]
    cost = [policy.cost for policy in frontier]
    assert accuracy == sorted(accuracy, reverse=True)
    assert cost == sorted(cost, reverse=True)
    assert frontier[0].accuracy == 1
    assert frontier[-1].cost == 1


def test_the_chosen_policy_is_the_last_that_passes_its_test():
    candidates, tests = simulate(1000, 2, 1), simulate(1000, 2, 2)
    choice = choose_policy([plan(candidates, tests)], target=0.9)
    passed = []
    for policy in choice.frontier:
        n_correct = round(policy.accuracy * 1000)
        if binom.sf(n_correct - 1, 1000, 0.9) > 0.05:
            break
        passed.append(policy)
    assert choice.chosen == passed[-1]
    assert choice.lower_bound == 0.9
    assert choice.chosen.cost < choice.frontier[0].cost


def test_a_harder_target_costs_no_less():
    candidates, tests = simulate(1000, 2, 1), simulate(1000, 2, 2)
    costs = [choose_policy([plan(candidates, tests)], target=target).chosen.cost for target in (0.8, 0.85, 0.9, 0.95)]
    assert costs == sorted(costs)


def test_a_budget_is_used_for_accuracy():
    candidates, tests = simulate(1000, 2, 1), simulate(1000, 2, 2)
    choice = choose_policy([plan(candidates, tests)], budget=30)
    assert choice.chosen.cost == pytest.approx(30, abs=5)
    assert choice.lower_bound < choice.chosen.accuracy
    richer = choose_policy([plan(candidates, tests)], budget=60)
    assert richer.chosen.accuracy > choice.chosen.accuracy


def test_nothing_is_chosen_below_the_cost_of_the_first_model():
    choice = choose_policy([plan(simulate(100, 2, 1), simulate(100, 2, 2))], budget=0.5)
    assert choice.chosen is None


@pytest.mark.parametrize("arguments", [{}, {"target": 0.9, "budget": 3}])
def test_exactly_one_of_target_and_budget_is_required(arguments):
    with pytest.raises(InputError, match=r"target .*budget"):
        choose_policy([plan(ROWS)], **arguments)


def test_the_target_is_rarely_missed():
    """In at most 5% of draws; 200 draws of a policy at the target exceed 10% with a probability below .001."""
    population = simulate(100_000, 2, 0)
    missed = 0
    for draw in range(200):
        rows = simulate(600, 2, 1000 + draw)
        candidates = CascadeRows(rows.score[:300], rows.correct[:300])
        tests = CascadeRows(rows.score[300:], rows.correct[300:])
        chosen = choose_policy([plan(candidates, tests)], target=0.85).chosen
        missed += chosen is not None and measure_policy(chosen.thresholds, population, COSTS).accuracy < 0.85
    assert missed <= 20


def test_a_bound_and_a_p_value_agree():
    correct = np.arange(100) >= 10
    bound = lower_accuracy_bound(correct, None, 0.05)
    assert accuracy_p_value(correct, None, bound) == pytest.approx(0.05)
    assert lower_accuracy_bound(np.zeros(5, dtype=bool), None, 0.05) == 0


def test_rows_of_one_group_count_less_than_independent_rows():
    correct = np.arange(400) >= 20
    groups = RowGroups.from_names(np.arange(400) // 20, 1)
    assert accuracy_p_value(correct, groups, 0.9) > accuracy_p_value(correct, None, 0.9)
    assert lower_accuracy_bound(correct, groups, 0.05) < lower_accuracy_bound(correct, None, 0.05)


def test_ties_are_broken_by_the_name_of_a_row_alone():
    reliability = np.full((100, 2), 0.7)
    names = [f"row {number}" for number in range(100)]
    broken = reliability + tie_breakers(names, 2, 1)
    assert len(np.unique(broken[:, 0])) == 100
    assert np.abs(broken - reliability).max() <= TIE_RANGE
    order = np.random.default_rng(0).permutation(100)
    assert np.array_equal(reliability + tie_breakers([names[index] for index in order], 2, 1), broken[order])
    assert not np.array_equal(reliability + tie_breakers(names, 2, 2), broken)
    assert np.corrcoef(broken.T)[0, 1] == pytest.approx(0, abs=0.3)


def test_a_simulated_person_has_the_stated_accuracy():
    assert simulate_person(10_000, 0.9, 1).mean() == pytest.approx(0.9, abs=0.01)
    assert simulate_person(10, 1, 1).all()
