"""Choice of the thresholds of a cascade."""

import hashlib
import math
from dataclasses import FrozenInstanceError
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from relmap.cascade import policy as cascade_policy
from relmap.cascade.policy import (
    NEVER,
    TIE_RANGE,
    CascadeChoice,
    CascadeRows,
    Costs,
    Plan,
    Policy,
    accuracy_p_value,
    choose_policy,
    describe_missing_policy,
    find_frontier,
    floor_percent,
    lower_accuracy_bound,
    measure_policy,
    simulate_person,
    tie_breakers,
)
from relmap.errors import InputError
from relmap.routing.group_tests import RowGroups, min_groups_to_reject
from tests.texts import numbers_in

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


def test_a_score_at_its_threshold_decides():
    assert ROWS.deciding_step((0.8, 0.8)).tolist() == [0, 0, 1, 2]
    assert ROWS.deciding_step((0.3,)).tolist() == [0, 0, 0, 1]
    assert ROWS.deciding_step(()).tolist() == [0, 0, 0, 0]


def test_a_row_is_correct_if_the_decision_of_its_step_is():
    assert ROWS.correct_at(np.array([0, 0, 1, 1])).tolist() == [True, False, True, False]
    assert ROWS.correct_at(np.array([2, 1, 0, 0])).tolist() == [True, True, False, True]


def test_costs_add_up_over_the_steps():
    assert COSTS.cumulative.tolist() == [1, 11, 111]
    assert Costs(models=(1.0, 10.0)).cumulative.tolist() == [1, 11]
    assert Costs(models=(1.0,), person=0.0).cumulative.tolist() == [1, 1]
    assert Costs(models=(), person=3.0).cumulative.tolist() == [3]
    assert Costs(models=()).person_accuracy == 1


def test_a_policy_names_its_plan():
    assert measure_policy((0.5, 0.7), ROWS, COSTS).plan == 0
    assert measure_policy((0.5, 0.7), ROWS, COSTS, 3).plan == 3
    assert Policy(thresholds=(), cost=1, accuracy=1, shares=(1,)).plan == 0


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (COSTS, "person"),
        (ROWS, "score"),
        (plan(ROWS), "costs"),
        (measure_policy((0.5, 0.7), ROWS, COSTS), "cost"),
        (CascadeChoice(None, None, ()), "chosen"),
    ],
)
def test_values_never_change(value, field):
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, None)


def test_rows_and_plans_are_equal_to_themselves_alone():
    again = CascadeRows(ROWS.score, ROWS.correct)
    assert len({ROWS, ROWS, again}) == 2
    first, second = plan(ROWS), plan(ROWS)
    assert len({first, first, second}) == 2


# The frontier


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


def decide_top(model: list[int], person: list[int], cost: float = 0.0) -> Plan:
    """Make a plan of a model and a person that costs 1 more; each row has a lower score than the row before it."""
    n_rows = len(model)
    score = np.arange(n_rows, 0, -1)[:, None] / (n_rows + 1)
    return plan(CascadeRows(score, np.array([model, person], dtype=bool).T), costs=Costs(models=(cost,), person=1.0))


@pytest.mark.parametrize(("n_rows", "n_policies"), [(198, 199), (199, 200), (200, 200), (398, 200)])
def test_a_long_frontier_is_thinned_evenly(n_rows, n_policies):
    wrong = decide_top([0] * n_rows, [1] * n_rows)  # every row that the model decides costs accuracy
    frontier = find_frontier([wrong])
    assert len(frontier) == n_policies
    n_by_person = np.array([policy.cost * n_rows for policy in frontier])
    assert n_by_person[0] == n_rows
    assert n_by_person[-1] == 0
    assert set(np.diff(n_by_person).round()) <= {-math.ceil(n_rows / 199), -max(1, n_rows // 199)}


@pytest.mark.parametrize(("n_rows", "n_values"), [(6, 7), (7, 7), (11, 7), (10, 5), (4, 2)])
def test_few_candidates_are_at_equal_distances_of_rank(n_rows, n_values, monkeypatch):
    wrong = decide_top([0] * n_rows, [1] * n_rows)
    monkeypatch.setattr(cascade_policy, "MAX_CANDIDATES", n_values)
    found = [round(policy.cost * n_rows) for policy in find_frontier([wrong])]
    below = np.arange(1, n_rows)  # rows below each threshold between two scores
    if len(below) > n_values - 2:
        ranks = (len(below) - 1) * np.arange(1, n_values - 1) / (n_values - 1)
        below = np.unique(below[ranks.round().astype(int)])
    assert found == [n_rows, *below[::-1].tolist(), 0]


@pytest.mark.parametrize(("n_models", "n_values"), [(1, 64), (2, 8), (3, 4)])
def test_several_thresholds_share_the_number_of_candidates(n_models, n_values, monkeypatch):
    monkeypatch.setattr(cascade_policy, "MAX_CANDIDATES", 64.001)  # the root of 64 is rounded to less than 4
    rows = simulate(100, n_models, 1)
    costs = Costs(models=(1.0, 2.0, 4.0)[:n_models], person=8.0)
    found = set()
    for seed in range(20):
        rows.correct[:] = np.random.default_rng(seed).random(rows.correct.shape) < 0.5
        frontier = find_frontier([plan(rows, costs=costs)])
        found |= {policy.thresholds for policy in frontier}
    for thresholds in zip(*found, strict=True):
        assert n_values / 2 < len(set(thresholds)) <= n_values


TWO_POINTS = decide_top([0, 1, 1, 1, 1, 1, 1, 1], [1] * 8)  # the model decides no row, or all but for one error
THREE_POINTS = decide_top([0, 1, 1, 1, 0, 1, 1, 1], [1] * 8)
DIP = decide_top([0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0])  # worse in between than at the ends


@pytest.mark.parametrize(
    ("rows", "n_steps", "cost"),
    [
        (THREE_POINTS, None, [1, 0.5, 0]),
        (THREE_POINTS, 4, [1, 0.75, 0.5, 0.25, 0]),
        (THREE_POINTS, 3, [1, 0.5, 0]),
        (TWO_POINTS, None, [1, 0]),
        (TWO_POINTS, 1, [1, 0]),
        (TWO_POINTS, 2, [1, 0.5, 0]),
        (TWO_POINTS, 3, [1, 0.625, 0]),  # 0.625 is less than two steps above the next
        (TWO_POINTS, 4, [1, 0.75, 0.5, 0.25, 0]),
        (TWO_POINTS, 8, [1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0]),
        (TWO_POINTS, 80, [1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0]),
        (DIP, None, [1, 0]),
        (DIP, 4, [1, 0]),
        (DIP, 8, [1, 0.875, 0]),
    ],
)
def test_steps_of_the_cost_are_filled_by_hand(rows, n_steps, cost):
    assert [policy.cost for policy in find_frontier([rows], n_steps)] == cost
    higher = decide_top(*rows.candidates.correct.T.tolist(), cost=2.0)
    assert [policy.cost - 2 for policy in find_frontier([higher], n_steps)] == cost


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


def test_no_policy_after_a_failed_test_is_chosen():
    """The tests of a person, and of the model for all rows, pass; that of the policy between them fails."""
    fit_rows = CascadeRows(np.array([[0.9], [0.1]]), np.array([[0, 1], [0, 1]], dtype=bool))
    is_high = np.arange(100) < 20
    model = ~is_high
    person = np.arange(100) < 80
    test_rows = CascadeRows(np.where(is_high, 0.9, 0.1)[:, None], np.column_stack([model, person]))
    costs = Costs(models=(1.0,), person=100.0)
    choice = choose_policy([plan(fit_rows, test_rows, costs)], target=0.65)
    assert [policy.accuracy for policy in choice.frontier] == [0.8, 0.6, 0.8]
    assert choice.chosen == choice.frontier[0]


def test_a_p_value_at_the_level_passes():
    rows = CascadeRows(np.zeros((50, 0)), np.ones((50, 1), dtype=bool))
    person = plan(rows, costs=Costs(models=(), person=1.0))
    p_value = accuracy_p_value(rows.correct[:, 0], None, 0.9)
    assert choose_policy([person], target=0.9, level=p_value).chosen is not None
    refused = choose_policy([person], target=0.9, level=np.nextafter(p_value, 0))
    assert refused.chosen is None
    assert refused.lower_bound is None
    assert [policy.accuracy for policy in refused.frontier] == [1]


@pytest.mark.parametrize(("n_correct", "is_chosen"), [(58, False), (59, True)])
def test_the_default_level_is_five_percent(n_correct, is_chosen):
    rows = CascadeRows(np.zeros((n_correct, 0)), np.ones((n_correct, 1), dtype=bool))
    choice = choose_policy([plan(rows, costs=Costs(models=(), person=1.0))], target=0.95)
    assert (choice.chosen is not None) == is_chosen  # 0.95 ** 59 = 0.0485


def test_groups_of_the_test_rows_are_used():
    rows = CascadeRows(np.zeros((400, 0)), np.arange(400)[:, None] >= 10)
    grouped = CascadeRows(rows.score, rows.correct, RowGroups.from_names(np.arange(400) // 40, 1))
    costs = Costs(models=(), person=1.0)
    assert choose_policy([plan(rows, costs=costs)], target=0.9).chosen is not None
    assert choose_policy([plan(rows, grouped, costs)], target=0.9).chosen is None
    with_groups = choose_policy([plan(rows, grouped, costs)], budget=1)
    assert with_groups.lower_bound < choose_policy([plan(rows, costs=costs)], budget=1).lower_bound


def test_steps_of_the_cost_are_filled_for_a_target_only():
    plans = [plan(simulate(100, 2, 1))]
    assert list(choose_policy(plans, target=0.5).frontier) == find_frontier(plans, 50)
    assert list(choose_policy(plans, budget=30).frontier) == find_frontier(plans)


def test_a_budget_may_be_used_up():
    candidates, tests = simulate(60, 2, 1), simulate(60, 2, 2)
    frontier = find_frontier([plan(candidates)])
    measured = [measure_policy(policy.thresholds, tests, COSTS) for policy in frontier]
    for index in (0, 3, len(frontier) - 1):
        cost = frontier[index].cost
        choice = choose_policy([plan(candidates, tests)], budget=cost)
        assert choice.chosen == measured[index]
        assert choice.frontier == tuple(measured)
    assert choose_policy([plan(candidates, tests)], budget=np.nextafter(cost, 0)).chosen is None


def test_the_bound_within_a_budget_is_that_of_the_test_rows():
    rows = CascadeRows(np.zeros((50, 0)), np.ones((50, 1), dtype=bool))
    person = plan(rows, costs=Costs(models=(), person=1.0))
    assert choose_policy([person], budget=1).lower_bound == pytest.approx(0.05 ** (1 / 50))
    assert choose_policy([person], budget=1, level=0.2).lower_bound == pytest.approx(0.2 ** (1 / 50))


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


def test_ties_of_a_saved_cascade_are_broken_as_when_it_was_fitted():
    hashed = hashlib.blake2b(b"row 1", key=b"7", digest_size=16).digest()
    expected = [1e-9 * int.from_bytes(part, "little") / 2**64 for part in (hashed[:8], hashed[8:])]
    np.testing.assert_allclose(tie_breakers(["row 1"], 2, 7), [expected], rtol=1e-12)
    assert np.array_equal(tie_breakers([12], 2, 1), tie_breakers(["12"], 2, 1))


def test_numbers_that_break_ties_fill_their_range():
    numbers = tie_breakers(range(2000), 1, 1)
    assert numbers.shape == (2000, 1)
    assert 0 <= numbers.min() < 0.01e-9
    assert 0.99e-9 < numbers.max() < 1e-9


def test_a_simulated_person_has_the_stated_accuracy():
    assert simulate_person(10_000, 0.9, 1).mean() == pytest.approx(0.9, abs=0.01)
    assert simulate_person(10, 1, 1).all()
    half = simulate_person(1000, 0.5, 1)
    assert np.array_equal(half, simulate_person(1000, 0.5, 1))
    assert not np.array_equal(half, simulate_person(1000, 0.5, 2))


# Descriptions


def test_exact_bounds_without_errors():
    correct = np.ones(50, dtype=bool)
    assert lower_accuracy_bound(correct, None, 0.05) == pytest.approx(0.05 ** (1 / 50))
    assert accuracy_p_value(correct, None, 0.9) == pytest.approx(0.9**50)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.8999, "89.9%"), (0.9, "90%"), (0.29, "29%"), (0.9009, "90%"), (0.9999, "99.9%"), (1, "100%"), (0, "0%")],
)
def test_a_bound_is_rounded_down(share, text):
    assert floor_percent(share) == text


def test_the_cheapest_way_is_named_if_it_exceeds_the_budget():
    plans = [plan(simulate(100, 2, 1))]
    choice = choose_policy(plans, budget=0.5)
    sentence = describe_missing_policy(choice, plans, target=None, level=0.05, hold_out=0.5)
    assert numbers_in(sentence) == ["1"]
    assert "budget" in sentence


def missing_policy(rows: CascadeRows, target: float, *, level: float = 0.05, hold_out: float = 0.5, **costs) -> str:
    """Describe why no thresholds reach a target, where a model or a person decides all rows."""
    plans = [plan(rows, costs=Costs(**({"models": (), "person": 1.0} | costs)))]
    choice = choose_policy(plans, target=target, level=level)
    assert choice.chosen is None
    return describe_missing_policy(choice, plans, target=target, level=level, hold_out=hold_out)


def test_the_most_accurate_way_is_named_if_its_test_fails():
    rows = CascadeRows(np.zeros((1600, 1)), np.arange(1600)[:, None] >= 200)
    sentence = missing_policy(rows, 0.875)
    assert numbers_in(sentence) == ["87.5%", "1,600", "87.5%", "95%"]
    assert "label more rows" in sentence
    assert "person" not in sentence
    assert "cost of a person" in missing_policy(rows, 0.875, models=(1.0,), person=None)
    assert numbers_in(missing_policy(rows, 0.9999, level=0.005))[2:] == ["99.99%", "99.5%"]


def test_the_most_accurate_of_several_ways_is_named():
    rows = simulate(400, 1, 1)
    plans = [plan(rows, costs=Costs(models=(1.0,), person=10.0))]
    choice = choose_policy(plans, target=0.9999)
    sentence = describe_missing_policy(choice, plans, target=0.9999, level=0.05, hold_out=0.5)
    assert numbers_in(sentence)[0] == "100.0%"


def perfect_groups(n_groups: int) -> CascadeRows:
    """Make groups of two rows, in which a person errs nowhere."""
    groups = RowGroups.from_names(np.arange(2 * n_groups) // 2, 1)
    return CascadeRows(np.zeros((2 * n_groups, 0)), np.ones((2 * n_groups, 1), dtype=bool), groups)


@pytest.mark.parametrize(("level", "hold_out"), [(0.05, 0.5), (0.2, 0.3)])
@pytest.mark.parametrize("target", [0.9, 0.995])
def test_too_few_groups_are_described_by_what_they_show(target, level, hold_out):
    needed_for_test = min_groups_to_reject(target, level)
    n_groups = needed_for_test - 1
    sentence = missing_policy(perfect_groups(n_groups), target, level=level, hold_out=hold_out)
    found, shown, stated_target, in_all, below = numbers_in(sentence)
    assert int(found) == n_groups
    assert shown == below
    share = float(shown.removesuffix("%")) / 100
    assert min_groups_to_reject(share, level) <= n_groups < min_groups_to_reject(share + 0.002, level)
    assert stated_target == f"{100 * target:g}%"
    groups_in_all = int(in_all.replace(",", ""))
    assert groups_in_all % 10 == 0
    # in the test, half of the errors that the target allows may be made
    enough = min_groups_to_reject(target, level, rate=1 - (1 - target) / 2)
    assert (groups_in_all - 10) * hold_out < enough <= groups_in_all * hold_out


def test_enough_groups_with_errors_are_described_by_their_accuracy():
    n_groups = min_groups_to_reject(0.9, 0.05)
    rows = perfect_groups(n_groups)
    rows.correct[:2] = False
    sentence = missing_policy(rows, 0.9)
    assert numbers_in(sentence)[1:] == [str(n_groups), "90%", "95%"]
    assert "label more groups" in sentence
