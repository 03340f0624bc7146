"""How a map summarizes its fit rows: counts in ranges, by decided label, and the design effect of groups."""

import numpy as np
import pytest

from relmap.decisions import FixedDecisions
from relmap.io.signals import NumberSignal, TextSignal
from relmap.maps.cross_fit import CrossFit
from relmap.maps.score import FittedMap
from relmap.maps.seen import (
    count_codes,
    count_column,
    count_confidences_by_label,
    signal_columns,
    summarize_fit_rows,
)
from tests import maps


def make_number(name: str) -> NumberSignal:
    return NumberSignal(name=name, mean=0.0, deviation=1.0, lowest=-9.0, highest=9.0)


def test_only_frequent_labels_are_counted():
    decision = np.repeat([0, 1, 2], [500, 50, 49])
    confidence = np.linspace(0.4, 1, len(decision))
    counted = count_confidences_by_label(confidence, decision, None, None)
    assert [column.label for column in counted] == [0, 1]
    assert [sum(column.counts) for column in counted] == [500, 50]
    assert count_confidences_by_label(np.full(len(decision), 0.5), decision, None, None) == []
    many = count_confidences_by_label(np.tile(confidence, 30), np.repeat(np.arange(30), len(decision)), None, None)
    assert len(many) == 20


def test_the_design_effect_of_identical_rows_is_their_number():
    code = np.repeat(np.random.default_rng(0).integers(0, 3, 400), 5)
    _, effect = count_codes(code, 3, None, np.repeat(np.arange(400), 5))
    assert effect == pytest.approx(5, rel=0.02)
    _, alone = count_codes(code, 3, None, np.arange(2000))
    assert alone == pytest.approx(1, rel=0.02)


def test_weighted_rows_count_by_their_weight():
    counts, effect = count_codes(np.array([0, 0, 1]), 2, np.array([1.0, 1.0, 2.0]), None)
    assert counts[0] == pytest.approx(counts[1])
    assert sum(counts) == pytest.approx(16 / 6)  # the effective number of rows
    assert effect == 1


def test_limits_lie_between_values():
    seen = count_column("x", np.repeat([0.2, 0.5, 0.9], [10, 70, 20]), None, None)
    assert seen.edges == (0.35, 0.7)
    assert seen.counts == (10, 70, 20)
    constant = count_column("x", np.full(5, 0.3), None, None)
    assert constant.edges == ()
    assert constant.counts == (5,)


def test_a_column_has_ten_ranges_with_about_equal_numbers_of_rows():
    seen = count_column("length", np.arange(100.0)[::-1], None, None)
    assert seen.column == "length"
    assert seen.edges == (8.5, 18.5, 28.5, 38.5, 48.5, 58.5, 68.5, 78.5, 88.5)
    assert seen.counts == pytest.approx((9, *[10] * 8, 11))
    assert (seen.effect, seen.label) == (1, None)
    assert count_column("length", np.arange(100.0), None, None, n_ranges=4).edges == (23.5, 48.5, 73.5)


def test_a_column_counts_by_weight_and_group():
    values = np.array([1.0, 2.0, 1.0, 2.0])
    weight = np.array([1.0, 2.0, 3.0, 4.0])
    group = np.array(["a", "b", "a", "b"])
    seen = count_column("length", values, weight, group)
    assert seen.edges == (1.5,)
    assert (seen.counts, seen.effect) == count_codes(np.array([0, 1, 0, 1]), 2, weight, group)
    assert seen.effect > 1


def test_the_unit_of_the_weights_does_not_matter():
    code = np.array([0, 1, 1, 2])
    weight = np.array([1.0, 2.0, 4.0, 3.0])
    group = np.array(["a", "b", "a", "c"])
    counts, effect = count_codes(code, 3, weight, group)
    for factor in (1e-6, 1e6):
        scaled_counts, scaled_effect = count_codes(code, 3, factor * weight, group)
        assert scaled_counts == pytest.approx(counts)
        assert scaled_effect == pytest.approx(effect)


def test_one_row_counts_once_and_no_row_not_at_all():
    assert count_codes(np.array([1]), 3, None, None) == ((0, 1, 0), 1)
    assert count_codes(np.array([], dtype=np.int64), 2, None, None) == ((0, 0), 1)


def naive_design_effect(code: np.ndarray, weight: np.ndarray, group: np.ndarray) -> float:
    """Divide the variance of each share between groups by that of independent rows; average, with weights 1 - share."""
    n_effective = weight.sum() ** 2 / (weight**2).sum()
    names = sorted(set(group.tolist()))
    weighted_ratios = 0.0
    codes = sorted(set(code.tolist()))
    for number in codes:
        share = weight[code == number].sum() / weight.sum()
        squares = 0.0
        for name in names:
            in_group = group == name
            squares += (weight[in_group & (code == number)].sum() - share * weight[in_group].sum()) ** 2
        variance = squares * len(names) / (len(names) - 1) / weight.sum() ** 2
        weighted_ratios += (1 - share) * variance / (share * (1 - share) / n_effective)
    return weighted_ratios / (len(codes) - 1)


def test_the_design_effect_compares_shares_between_groups_with_independent_rows():
    generator = np.random.default_rng(5)
    group = np.repeat(np.arange(12), generator.integers(1, 9, 12))
    code = np.where(generator.random(len(group)) < 0.7, group % 3, generator.integers(0, 3, len(group)))
    code[code == 2] = 3  # no row has the code 2
    weight = generator.uniform(0.5, 3, len(group))
    counts, effect = count_codes(code, 5, weight, group)
    assert effect == pytest.approx(naive_design_effect(code, weight, group))
    assert effect > 1.5
    assert (counts[2], counts[4]) == (0, 0)


@pytest.mark.parametrize(
    ("code", "group", "effect"),
    [
        # two groups of two rows: both shares are 1/2, with residuals 1 and -1 instead of variances of independent rows
        ([0, 0, 1, 1], ["a", "a", "b", "b"], 4),
        ([0, 1, 0, 1], ["a", "a", "b", "b"], 1),  # shares do not differ: the effect is at least 1
        ([0, 1, 1], ["a", "a", "a"], 3),  # one group counts as one row
        ([1, 1, 1], ["a", "b", "c"], 1),  # a single code has no variance
    ],
)
def test_the_design_effect_of_few_groups(code, group, effect):
    counts, found = count_codes(np.array(code), 2, None, np.array(group))
    assert found == pytest.approx(effect)
    assert sum(counts) == len(code)


def test_the_most_frequent_labels_are_counted_in_the_order_of_their_numbers():
    """The labels 0 and 2 are the least frequent of 22."""
    n_rows = np.arange(22) + 60
    n_rows[[0, 2]] = (55, 50)
    decision = np.repeat(np.arange(22), n_rows)
    confidence = np.tile(np.linspace(0.2, 0.9, 7), len(decision))[: len(decision)]
    counted = count_confidences_by_label(confidence, decision, None, None)
    assert [column.label for column in counted] == [1, *range(3, 22)]


def test_the_confidences_of_a_label_are_counted_in_five_ranges_with_their_weights_and_groups():
    decision = np.tile([0, 1, 1], 60)
    confidence = np.linspace(0.3, 0.9, 180)
    weight = np.linspace(1, 2, 180)
    group = np.arange(180) // 4
    counted = count_confidences_by_label(confidence, decision, weight, group)
    for label, column in enumerate(counted):
        rows = decision == label
        alone = count_column("confidence", confidence[rows], weight[rows], group[rows], n_ranges=5)
        assert column == alone.model_copy(update={"label": label})
        assert len(column.edges) == 4


def test_numeric_signals_are_found_between_the_values_of_texts():
    values = np.arange(12.0).reshape(2, 6)
    signals = [make_number("first"), TextSignal(name="source", values=("a", "b", "c")), make_number("second")]
    columns = signal_columns([*signals, make_number("third")], values)
    assert {name: column.tolist() for name, column in columns.items()} == {
        "first": [0, 6],
        "second": [4, 10],
        "third": [5, 11],
    }
    assert signal_columns([], None) == {}


def make_fit(**columns: np.ndarray) -> CrossFit:
    """Make a fit whose map changes the confidences of six rows."""
    decision = np.array([0, 0, 0, 1, 1, 0])
    rows = FixedDecisions(decision=decision, confidence=np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8]), **columns)
    document = maps.make_map("label_intercept", confidence_only=True)
    return CrossFit(
        deployed=FittedMap.from_document(document),
        folds=(),
        rows=rows,
        fold=np.zeros(6, dtype=np.int64),
        n_calibrator_rows=6,
        projection_decisions=decision,
    )


def test_a_summary_counts_decisions_scores_and_signals_and_the_automatic_rows():
    fit = make_fit(signals=np.arange(6.0)[:, None])
    scored = fit.deployed(fit.rows)
    threshold = float(np.sort(scored.reliability)[4])  # two of six rows reach it
    seen = summarize_fit_rows(fit, [make_number("length")], 3, threshold)
    assert [column.column for column in seen.columns] == ["decision", "confidence", "reliability", "length"]
    decision, confidence, reliability, _ = seen.columns
    assert (decision.edges, decision.counts, decision.effect) == ((), (4, 2, 0), 1)
    assert confidence == count_column("confidence", scored.confidence, None, None)
    assert reliability == count_column("reliability", scored.reliability, None, None)
    assert seen.groups is None
    assert seen.automatic == pytest.approx(2 / 6)


def test_a_summary_uses_weights_and_groups():
    weight = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    fit = make_fit(weight=weight, group=np.array(["a", "a", "b", "b", "b", "c"]))
    reliability = fit.deployed(fit.rows).reliability
    seen = summarize_fit_rows(fit, [], 2, float(np.sort(reliability)[3]))
    assert seen.groups == 3
    assert seen.automatic == pytest.approx(weight[np.argsort(reliability)[3:]].sum() / 8)
    assert seen.columns[0].counts == pytest.approx((5 / 8 * 64 / 12, 3 / 8 * 64 / 12))
    assert seen.columns[0].effect == count_codes(fit.rows.decision, 2, weight, fit.rows.group)[1]


def test_a_summary_counts_the_confidences_of_frequent_labels():
    fit = make_fit()
    many = fit.rows.take(np.tile(np.arange(6), 15))
    seen = summarize_fit_rows(
        CrossFit(fit.deployed, (), many, np.zeros(90, dtype=np.int64), 90, many.decision), [], 2, 0.5
    )
    assert [(column.column, column.label) for column in seen.columns[3:]] == [("confidence", 0)]
