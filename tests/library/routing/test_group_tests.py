"""p-values and bounds of rates in groups: validity in simulation, naive references and laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from relmap.routing.group_tests import (
    BOUND_TOLERANCE,
    GroupRates,
    RowGroups,
    _t_test,
    betting_p_value,
    max_rate_to_reject,
    min_groups_to_reject,
)

N_SIMULATIONS = 1000
RATE = 0.9


def naive_p_value(payoffs: list[float], max_loss: float) -> float:
    """Follow the capital of each bettor payoff by payoff, with products instead of logarithms."""
    bets = [0.1 * 9.8 ** (i / 4) / max_loss for i in range(5)]
    capitals = [0.1] * 5
    adaptive_capital = 0.5
    assumed_square = max_loss * (1 - max_loss)
    sum_of_payoffs = 0.7 / max_loss * assumed_square
    sum_of_squares = assumed_square
    largest = 1.0
    for payoff in payoffs:
        adaptive_bet = min(max(sum_of_payoffs / sum_of_squares, 0), 0.9 / max_loss)
        adaptive_capital *= 1 + adaptive_bet * payoff
        capitals = [capital * (1 + bet * payoff) for capital, bet in zip(capitals, bets, strict=True)]
        largest = max(largest, adaptive_capital + sum(capitals))
        sum_of_payoffs += payoff
        sum_of_squares += payoff**2
    return 1 / largest


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=40), st.sampled_from([0.2, 0.5, 0.95]))
def test_betting_p_value_follows_the_capital_of_the_bettors(rates, target):
    payoff = np.array(rates) - target
    assert betting_p_value(payoff, target) == pytest.approx(naive_p_value(payoff.tolist(), target), rel=1e-9)


def test_betting_p_value_of_many_groups_does_not_overflow():
    assert betting_p_value(np.full(100_000, 0.5), 0.5) == 0.0
    assert betting_p_value(np.full(100_000, -0.5), 0.5) == 1.0
    assert betting_p_value(np.empty(0), 0.5) == 1.0


def rates_with_mean(name: str, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Simulate rates of groups with a mean of RATE."""
    if name == "one row":
        return (generator.random(shape) < RATE).astype(float)
    if name == "ten rows":
        return generator.binomial(10, RATE, shape) / 10
    if name == "few groups without success":
        return np.where(generator.random(shape) < 0.03, 0.0, RATE / 0.97)
    return generator.beta(0.9, 0.1, shape)


@pytest.mark.parametrize("name", ["one row", "ten rows", "few groups without success", "correlated rows"])
def test_betting_p_value_is_valid_under_the_null(name):
    rates = rates_with_mean(name, np.random.default_rng(0), (N_SIMULATIONS, 80))
    p_values = np.array([betting_p_value(row - RATE, RATE) for row in rates])
    for level in (0.05, 0.2):
        noise = 3 * math.sqrt(level * (1 - level) / N_SIMULATIONS)
        assert (p_values <= level).mean() <= level + noise
    assert (p_values <= 0.5).any()


@pytest.mark.parametrize(("target", "level"), [(0.9, 0.05), (0.99, 0.01), (0.5, 0.3), (0.7, 0.2)])
def test_the_smallest_number_of_groups_is_the_first_that_rejects_without_errors(target, level):
    n_groups = min_groups_to_reject(target, level)
    assert (
        naive_p_value([1 - target] * n_groups, target) <= level < naive_p_value([1 - target] * (n_groups - 1), target)
    )


def simulate_rows(n_groups: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate names of groups of one to nine rows, and which rows are counted and successful."""
    generator = np.random.default_rng(seed)
    names = np.repeat([f"g{i}" for i in range(n_groups)], generator.integers(1, 10, n_groups))
    return names, generator.random(len(names)) < 0.6, generator.random(len(names)) < 0.97


def test_rates_count_the_rows_of_each_group_in_random_order():
    names, is_counted, is_successful = simulate_rows(40)
    groups = RowGroups.from_names(names, seed=3)
    order = np.random.default_rng(3).permutation(40)
    sorted_names = sorted(set(names))
    rates = groups.rates(is_counted, is_successful)
    expected = []
    for rank in range(40):
        members = names == sorted_names[int(np.flatnonzero(order == rank)[0])]
        if (members & is_counted).any():
            expected.append([(members & is_counted).sum(), (members & is_counted & is_successful).sum()])
    assert np.column_stack([rates.counted, rates.successful]).tolist() == expected
    assert (groups.n_groups, rates.max_weight) == (40, None)
    shuffled = np.random.default_rng(1).permutation(len(names))
    again = RowGroups.from_names(names[shuffled], seed=3).rates(is_counted[shuffled], is_successful[shuffled])
    np.testing.assert_array_equal(again.counted, rates.counted)


@pytest.mark.parametrize("seed", range(4))
def test_the_p_value_is_the_larger_one_of_groups_and_rows(seed):
    names, is_counted, is_successful = simulate_rows(60, seed)
    rates = RowGroups.from_names(names, seed).rates(is_counted, is_successful)
    of_groups = naive_p_value((rates.successful / rates.counted - 0.9).tolist(), 0.9)
    of_rows = ttest_1samp(rates.successful - 0.9 * rates.counted, 0, alternative="greater").pvalue
    assert rates.p_value(0.9) == pytest.approx(max(of_groups, of_rows))


def test_copies_of_all_rows_and_equal_weights_of_equal_groups_change_nothing():
    names, is_counted, is_successful = simulate_rows(60)
    p_value = RowGroups.from_names(names, 1).rates(is_counted, is_successful).p_value(0.9)
    copied = RowGroups.from_names(np.repeat(names, 3), 1).rates(np.repeat(is_counted, 3), np.repeat(is_successful, 3))
    assert copied.p_value(0.9) == pytest.approx(p_value)

    equal_groups = np.repeat(np.arange(60), 5)
    all_rows = np.full(300, True)
    is_successful = np.random.default_rng(0).random(300) < 0.97
    expected = RowGroups.from_names(equal_groups, 1).rates(all_rows, is_successful)
    weighted = RowGroups.from_names(equal_groups, 1, np.full(300, 2.5)).rates(all_rows, is_successful)
    assert weighted.p_value(0.9) == pytest.approx(expected.p_value(0.9))
    assert weighted.p_value(0.9, 2) < weighted.p_value(0.9) < 1


def test_weights_define_the_rate_of_all_rows():
    # groups of weight 3 are wrong and groups of weight 1 are correct: the mean over groups is 0.9, that of rows 0.75
    correct = np.arange(200) % 10 > 0
    groups = RowGroups(np.arange(200), np.where(correct, 1.0, 3.0))
    weighted = groups.rates(np.full(200, True), correct)
    assert weighted.p_value(0.75) == 1.0
    assert weighted.lower_bound(0.05) < 0.75
    assert RowGroups(np.arange(200)).rates(np.full(200, True), correct).lower_bound(0.05) > 0.75


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("level", [0.05, 0.01])
def test_the_lower_bound_is_the_largest_rejected_rate(seed, level):
    names, is_counted, is_successful = simulate_rows(80, seed)
    rates = RowGroups.from_names(names, seed).rates(is_counted, is_successful)
    bound = rates.lower_bound(level)
    targets = np.linspace(0.3, 0.99, 100)
    is_rejected = np.array([rates.p_value(target) <= level for target in targets])
    assert (is_rejected == (targets <= bound + BOUND_TOLERANCE)).all()
    assert rates.p_value(bound) <= level < rates.p_value(bound + 2 * BOUND_TOLERANCE)


@pytest.mark.parametrize(("n_groups", "level"), [(4, 0.3), (30, 0.05), (200, 0.01)])
def test_the_bound_of_groups_without_errors_is_the_largest_rate_that_they_can_exceed(n_groups, level):
    rows_of_group = np.full(n_groups, 3)
    assert GroupRates(rows_of_group, rows_of_group).lower_bound(level) == max_rate_to_reject(n_groups, level) > 0


def test_a_rate_without_groups_or_with_one_has_no_bound():
    nothing = GroupRates(np.empty(0), np.empty(0))
    assert nothing.p_value(0.5) == 1.0
    one = GroupRates(np.array([4.0]), np.array([4.0]))
    assert (one.p_value(0.5), one.lower_bound(0.05)) == (1.0, 0.0)


def test_the_t_test_is_that_of_scipy_and_0_without_variation():
    values = np.array([0.4, -0.1, 0.3, 0.2, -0.2])
    assert _t_test(values) == pytest.approx(ttest_1samp(values, 0, alternative="greater").pvalue, rel=1e-12)
    assert _t_test(np.array([0.5, 0.5])) == 0.0
    assert _t_test(-values) == 1.0
