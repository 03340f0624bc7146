"""The search for a better order of labels equals a search over all orders; its limits, cases and messages."""

import re
from dataclasses import replace
from itertools import permutations
from math import exp, factorial, log

import numpy as np
import polars as pl
import pytest

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io.column_layout import Layout, Reading, find_layout
from relmap.io.label_order import (
    MIN_ACCURACY_GAIN,
    SIGNIFICANCE_LEVEL,
    BetterAssignment,
    _are_codes,
    _columns_to_check,
    _log_n_tests,
    _log_p_value,
    _remove_marginal_gain,
    check_label_order,
    find_better_assignment,
)


def log_p_value(gain: np.ndarray, group: np.ndarray) -> float:
    """Bound the log p-value of a positive sum of groups of gains with symmetric signs (Efron, 1969)."""
    sums = [gain[group == name].sum() for name in np.unique(group)]
    total = sum(sums)
    return -(total**2) / (2 * sum(value**2 for value in sums)) if total > 0 else 0.0


def expected_assignment(
    column: np.ndarray, label: np.ndarray, n_labels: int, weight: np.ndarray, group: np.ndarray
) -> BetterAssignment | None:
    """Try all orders of the labels."""
    share = weight / weight.sum()

    def accuracy_of(order: tuple[int, ...]) -> float:
        return float(share[np.array(order)[column] == label].sum())

    given = tuple(range(n_labels))
    best = max(permutations(given), key=accuracy_of)
    if accuracy_of(best) - accuracy_of(given) < 0.05:
        return None

    def gain_of(column_of_row: int, label_of_row: int) -> int:
        return int(best[column_of_row] == label_of_row) - int(column_of_row == label_of_row)

    gain = np.array([gain_of(*pair) for pair in zip(column, label, strict=True)], dtype=float)
    # The shares of the columns and of the labels alone explain a part of the gain: its mean for independent columns
    # and labels
    mean_for_column = np.zeros(n_labels)
    mean_for_label = np.zeros(n_labels)
    for value in range(n_labels):
        mean_for_column[value] = share @ [gain_of(value, other) for other in label]
        mean_for_label[value] = share @ [gain_of(other, value) for other in column]
    overall_mean = share @ mean_for_column[column]
    unexplained_gain = gain - mean_for_column[column] - mean_for_label[label] + overall_mean
    n_moved = sum(first != second for first, second in zip(best, given, strict=True))
    # Bonferroni: orders that move as many labels, times the possible numbers of moved labels
    n_orders = factorial(n_labels) / factorial(n_labels - n_moved) * n_labels
    for values in (gain, unexplained_gain):
        if log_p_value(values * weight, group) + log(n_orders) > log(0.001):
            return None
    return BetterAssignment(best, accuracy_of(given), accuracy_of(best))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_labels", [2, 3, 4])
def test_better_order_equals_a_search_over_all_orders(n_labels, weighted, grouped):
    """The gains of many examples are near the limits, so that an ignored weight or group would change some results."""
    n_found = 0
    for seed in range(60):
        generator = np.random.default_rng([seed, n_labels])
        n_rows = int(generator.integers(60, 140))
        column = generator.choice(n_labels, n_rows, p=generator.dirichlet(np.full(n_labels, 5.0)))
        label = np.where(generator.random(n_rows) < generator.uniform(0.5, 1), (column + 1) % n_labels, column)
        weight = generator.uniform(0.2, 3, n_rows) if weighted else np.ones(n_rows)
        group = generator.integers(0, n_rows, n_rows) if grouped else np.arange(n_rows)
        found = find_better_assignment(
            column, label, n_labels, weight=weight if weighted else None, groups=group if grouped else None
        )
        expected = expected_assignment(column, label, n_labels, weight, group)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            n_found += 1
            assert found.label_of_column == expected.label_of_column
            assert found.accuracy == pytest.approx(expected.accuracy)
            assert found.better_accuracy == pytest.approx(expected.better_accuracy)
    assert 5 < n_found < 55


@pytest.mark.parametrize(("n_swapped", "is_found"), [(524, False), (525, True)])
def test_a_better_order_needs_an_accuracy_higher_by_five_points(n_swapped, is_found):
    """525 of 1,000 rows match the swapped order and 475 the given one: 5 points."""
    column = np.arange(1000) % 2
    label = np.where(np.arange(1000) < n_swapped, 1 - column, column)
    repeated_rows = np.repeat(np.arange(1000), 30)  # so that any gain is significant
    found = find_better_assignment(column[repeated_rows], label[repeated_rows], 2)
    assert (MIN_ACCURACY_GAIN, SIGNIFICANCE_LEVEL) == (0.05, 0.001)
    assert (found is not None) == is_found


@pytest.mark.parametrize(("n_rows", "is_found"), [(16, False), (17, True)])
def test_a_better_order_needs_a_significant_gain(n_rows, is_found):
    """All n rows match the swapped order, so the p-value is exp(-n / 2) * 4: below 0.001 from n = 17 on."""
    column = np.arange(n_rows) % 2
    assert (exp(-n_rows / 2) * 4 <= 0.001) == is_found
    assert (find_better_assignment(column, 1 - column, 2) is not None) == is_found


def test_gain_beyond_shares_has_mean_zero_for_independent_columns_and_labels():
    confusion = np.array([[0.1, 0.25], [0.05, 0.6]])
    column_shares = np.array([0.35, 0.65])
    label_shares = np.array([0.15, 0.85])
    gain = np.array([[-1.0, 1.0], [2.0, -3.0]])
    mean_for_column = np.array([-1 * 0.15 + 1 * 0.85, 2 * 0.15 - 3 * 0.85])
    mean_for_label = np.array([-1 * 0.35 + 2 * 0.65, 1 * 0.35 - 3 * 0.65])
    overall_mean = column_shares @ mean_for_column
    expected = gain - mean_for_column[:, None] - mean_for_label + overall_mean
    np.testing.assert_allclose(_remove_marginal_gain(gain, confusion), expected)
    assert column_shares @ expected @ label_shares == pytest.approx(0)


def test_log_p_value_uses_the_sum_of_each_group():
    gain = np.array([1.0, 0.5, -0.25, 2.0])
    assert _log_p_value(gain, None) == pytest.approx(-(3.25**2) / (2 * (1 + 0.25 + 0.0625 + 4)))
    groups = np.array(["b", "a", "b", "a"])
    assert _log_p_value(gain, groups) == pytest.approx(-(3.25**2) / (2 * (0.75**2 + 2.5**2)))
    assert _log_p_value(-gain, None) == 0
    assert _log_p_value(np.array([1.0, -1.0]), None) == 0
    assert _log_p_value(np.zeros(2), None) == 0
    assert _log_p_value(np.array([0.5]), None) == pytest.approx(-0.5)


def test_number_of_orders_that_move_the_same_number_of_columns():
    # sequences of the moved columns, times the number of labels
    assert _log_n_tests(5, 2) == pytest.approx(log(5 * 4 * 5))
    assert _log_n_tests(4, 3) == pytest.approx(log(4 * 3 * 2 * 4))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], True),
        ([0.5, 1.0], True),
        (["0", "12"], True),
        ([" 3 ", "4.0"], True),
        (["4.00", "123456789"], True),
        (["1234567890"], False),
        (["4.5"], False),
        (["4."], False),
        (["x1"], False),
        (["1x"], False),
        (["-1"], False),
        (["1", "no"], False),
    ],
)
def test_labels_are_numbers_if_all_are_whole_numbers_of_at_most_nine_digits(values, expected):
    assert _are_codes(pl.Series("label", values)) is expected


LOGITS = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])
WITH_LOGITS = FixedDecisions(decision=np.array([1, 1]), label=np.array([0, 2]), logits=LOGITS)
WITHOUT_LOGITS = replace(WITH_LOGITS, logits=None)


def layout_of(frame: pl.DataFrame, reading: Reading | None = None) -> Layout:
    if reading is None:
        return find_layout(frame.columns, "rows.csv", labelled=True)
    return find_layout(frame.columns, "rows.csv", labelled=True, reading=reading)


def test_order_of_logits_is_checked_by_the_largest_one():
    with_decision = pl.DataFrame({"logits": LOGITS.tolist(), "decision": [1, 1], "label": [0, 2]})
    for frame, expected in ((with_decision, [0, 2]), (with_decision.drop("decision"), [1, 1])):
        column = _columns_to_check(WITH_LOGITS, frame, layout_of(frame), None)
        assert column is not None
        assert column.tolist() == expected


@pytest.mark.parametrize(
    ("decision", "label", "names", "is_checked"),
    [
        ([1, 1], ["x", "z"], ("x", "y", "z"), True),
        (["1", "1.0"], ["x", "z"], ("x", "y", "z"), True),
        (["y", "y"], ["x", "z"], ("x", "y", "z"), False),
        ([1, 1], [0, 2], ("x", "y", "z"), False),
        ([1, 1], ["x", "z"], None, False),
        ([1, 1], ["x", "z"], ("x", "1", "z"), False),
    ],
)
def test_order_of_decisions_is_checked_for_numbers_with_named_labels(decision, label, names, is_checked):
    frame = pl.DataFrame({"decision": decision, "label": label})
    column = _columns_to_check(WITHOUT_LOGITS, frame, layout_of(frame), names)
    assert (column is not None) == is_checked
    if column is not None:
        assert column.tolist() == [1, 1]


def rows_in_another_order(n_labels: int, order: list[int]) -> FixedDecisions:
    """Make 100 rows, of which 90 match another order of the labels and 10 the given one."""
    decision = np.arange(100) % n_labels
    label = np.where(np.arange(100) < 10, decision, np.array(order)[decision])
    return FixedDecisions(decision=decision, label=label, logits=np.eye(n_labels)[decision])


def message_of(
    rows: FixedDecisions, frame: pl.DataFrame, names: tuple[str, ...] | None, reading: Reading | None = None
) -> str:
    with pytest.raises(InputError) as error:
        check_label_order(rows, frame, layout_of(frame, reading), names, rows.n_labels, "rows.csv")
    return str(error.value)


@pytest.mark.parametrize(
    ("names", "labels", "given", "better", "change"),
    [
        (None, "codes", "0, 1, 2", "1, 2, 0", "--labels 1,2,0"),
        (("a", "b", "c"), "names", "a, b, c", "b, c, a", "--labels b,c,a"),
        (("a", "b", "c"), "codes", "a, b, c", "b, c, a", "renumber .*"),
    ],
)
def test_message_about_another_order_has_both_accuracies_and_a_remedy(names, labels, given, better, change):
    rows = rows_in_another_order(3, [1, 2, 0])
    shown = rows.label if labels == "codes" else np.array(["a", "b", "c"])[rows.label]
    frame = pl.DataFrame({"logits": rows.logits.tolist(), "label": shown})
    expected = rf"rows\.csv: .*\({given}\) 10\.0% .*; .*order {better} 90\.0% .* {change}; .*--accept-label-order"
    assert re.fullmatch(expected, message_of(rows, frame, names))


@pytest.mark.parametrize(
    ("reading", "kind", "other"),
    [
        (Reading(probability="p", positive="yes"), "probability", "no"),
        (Reading(probability="p", positive="no"), "probability", "yes"),
        (Reading(score="p", border=0.5, positive="yes"), "score", "no"),
    ],
)
def test_message_about_the_other_of_two_labels_names_it(reading, kind, other):
    rows = rows_in_another_order(2, [1, 0])
    frame = pl.DataFrame({"p": rows.logits[:, 1], "label": np.array(["no", "yes"])[rows.label]})
    expected = rf"rows\.csv: p .*{kind} .*: .*90\.0% .*10\.0%\. .*--positive {other}; .*--accept-label-order"
    assert re.fullmatch(expected, message_of(rows, frame, ("no", "yes"), reading))


def test_check_uses_weights_and_groups():
    rows = rows_in_another_order(3, [1, 2, 0])
    frame = pl.DataFrame({"logits": rows.logits.tolist(), "label": rows.label})
    layout = layout_of(frame)
    with pytest.raises(InputError, match="another order"):
        check_label_order(rows, frame, layout, None, 3, "rows.csv")
    mostly_correct = replace(rows, weight=np.where(np.arange(100) < 10, 100.0, 1.0))
    check_label_order(mostly_correct, frame, layout, None, 3, "rows.csv")
    one_group = replace(rows, group=np.full(100, "q"))
    check_label_order(one_group, frame, layout, None, 3, "rows.csv")
