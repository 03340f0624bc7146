"""Drift by hand and in simulation."""

import re

import numpy as np
import pytest
from scipy.stats import t as student

from relmap.evaluation.drift import FIT_AGAIN, POWER, CellDrift, _CellTest, detect_drift
from relmap.maps.document import Cell, MapDocument
from relmap.maps.held_out import summarize_reference_cells
from tests.fits import simulate_stream
from tests.maps import LABEL_NAMES, make_map_with_held_out

N_PAIRS = 300


def max_expected_count(chance: float, times: int) -> float:
    """Return three standard errors above the expected number of events with the given probability."""
    return times * chance + 3 * np.sqrt(times * chance * (1 - chance))


def fit_reference(rows) -> MapDocument:
    halves, cells = summarize_reference_cells(*rows, 3)
    return make_map_with_held_out(halves=halves, cells=cells)


@pytest.mark.parametrize("copies", [1, 5])
def test_drift_statistics_equal_a_hand_calculation(copies):
    # 100 fit rows with a mean residual of 0, and 25 new rows with the reliability 0.9. With five copies, there are five
    # times as many rows, and the equal copies of a new row are a group.
    for variance, n_correct, new_variance in ((0.09, 15, 0.25), (0.25, 24, 0.04)):
        separate = variance / 100 + new_variance / 25
        pooled = (100 * variance + 25 * new_variance) / 125 * (1 / 100 + 1 / 25)
        assert (separate > pooled) == (n_correct == 15)
        cell = Cell(
            label=1,
            half="upper",
            rows=100 * copies,
            mean_reliability=0.9,
            mean_residual=0.0,
            variance=variance * copies,
        )
        labels_correct = np.repeat(np.arange(25) < n_correct, copies)
        group = np.repeat(np.arange(25), copies)
        reference = make_map_with_held_out(halves=(0.5,) * 3, cells=(cell,))
        n_rows = 25 * copies
        drifted = detect_drift(
            reference, np.full(n_rows, 0.9), np.ones(n_rows, dtype=int), labels_correct, None if copies == 1 else group
        )
        (new,) = drifted.cells
        difference = abs(0.9 - n_correct / 25)
        assert new.p_value == pytest.approx(2 * student.sf(difference / np.sqrt(max(separate, pooled)), 24))
        assert (new.rows, new.mean_reliability, new.accuracy, new.expected_accuracy) == pytest.approx(
            (n_rows, 0.9, n_correct / 25, 0.9)
        )
        assert drifted.holds == (n_correct == 24)
        if not drifted.holds:
            changed, advice = drifted.describe(LABEL_NAMES)[:2]
            p_value = re.escape(f"(p-value {new.p_value:.2g})")
            assert re.search(rf"partial \D*0\.5 and above: \D*0\.60 \D*{n_rows} rows, 0\.90 \D*{p_value}", changed)
            assert advice == FIT_AGAIN


def test_a_detectable_change_of_the_accuracy_is_found_with_the_stated_power():
    cell = Cell(label=1, half="upper", rows=400, mean_reliability=0.8, mean_residual=0.0, variance=0.16)
    reference = make_map_with_held_out(halves=(0.5,) * 3, cells=(cell,))
    generator = np.random.default_rng(0)

    def draw(accuracy: float) -> CellDrift:
        reference_residual = generator.binomial(400, 0.8) / 400 - 0.8
        document = reference.model_copy(
            update={
                "held_out": reference.held_out.model_copy(
                    update={"cells": (cell.model_copy(update={"mean_residual": reference_residual}),)}
                )
            }
        )
        correct = generator.random(200) < accuracy
        return detect_drift(document, np.full(200, 0.8), np.ones(200, dtype=int), correct, None).cells[0]

    change = np.mean([draw(0.8).detectable_change for _ in range(50)])
    assert 0.05 < change < 0.2
    n_found = sum(draw(0.8 - change).p_value <= 0.01 for _ in range(400))
    assert n_found / 400 == pytest.approx(POWER, abs=0.07)


def test_a_detectable_change_shares_the_level_among_the_tested_cells_only():
    cells = [
        Cell(label=label, half="upper", rows=400, mean_reliability=0.8, mean_residual=0.0, variance=0.16)
        for label in (0, 1)
    ]
    document = make_map_with_held_out(halves=(0.5,) * 3, cells=cells)

    def detectable_changes(n_rows: list[int], level: float) -> list[float | None]:
        decision = np.repeat(np.arange(3), n_rows)
        drifted = detect_drift(
            document, np.full(sum(n_rows), 0.8), decision, np.arange(len(decision)) % 5 > 0, None, level=level
        )
        return [cell.detectable_change for cell in drifted.cells]

    (alone,) = detectable_changes([100, 0, 0], 0.01)
    (stricter,) = detectable_changes([100, 0, 0], 0.005)
    assert alone < stricter
    assert detectable_changes([100, 100, 0], 0.01)[0] == stricter
    assert detectable_changes([100, 5, 0], 0.01) == [alone, None]  # too few rows
    assert detectable_changes([100, 0, 100], 0.01) == [alone, None]  # no fit rows


def test_an_expected_accuracy_is_a_share():
    cell = Cell(label=1, half="upper", rows=400, mean_reliability=0.9, mean_residual=0.02, variance=0.1)
    document = make_map_with_held_out(halves=(0.5,) * 3, cells=(cell,))
    drifted = detect_drift(document, np.full(30, 0.99), np.ones(30, dtype=int), np.ones(30, dtype=bool), None)
    assert drifted.as_json()["cells"][0]["expected"] == 1.0


@pytest.mark.parametrize(
    ("value", "correct", "p_value"),
    [
        (0.9, True, 1.0),
        (1.0, True, 1.0),
        (1.0, False, 0.0),
        # the residuals are 0.05 and -0.95, and a decision that is correct with probability 0.95 has the variance 0.0475
        (0.95, False, 2 * student.sf(1 / np.sqrt(0.0475 / 30 + 0.0475 / 21), 20)),
    ],
)
def test_drift_p_value_of_decisions_that_are_all_correct_or_all_wrong(value, correct, p_value):
    reliability = np.full(30, value)
    decision = np.zeros(30, dtype=int)
    all_right = np.full(30, True)
    drifted = detect_drift(
        fit_reference((reliability, decision, all_right, None)),
        reliability[:21],
        decision[:21],
        np.full(21, correct),
        None,
    )
    assert [cell.p_value for cell in drifted.cells] == [pytest.approx(p_value, abs=1e-300, rel=1e-9)]


def test_first_error_raises_no_drift_alarm():
    reliability = np.full(1000, 0.98)
    decision = np.zeros(1000, dtype=int)
    assert detect_drift(
        fit_reference((reliability, decision, reliability > 0, None)),
        reliability[:50],
        decision[:50],
        np.arange(50) > 0,
        None,
        level=0.05,
    ).holds


@pytest.mark.parametrize("per_group", [1, 10])
def test_drift_false_alarm_rate_is_at_most_its_level(per_group):
    generator = np.random.default_rng(per_group)
    level = 0.05
    alarms = 0
    for pair in range(N_PAIRS):
        reference = fit_reference(simulate_stream(generator, 2000, per_group=per_group))
        new = simulate_stream(generator, (500, 1000, 500, 2000, 1000, 5000)[pair % 6], per_group=per_group)
        alarms += not detect_drift(reference, *new, level=level).holds
    assert 0 < alarms <= max_expected_count(level, N_PAIRS)  # without any alarm, the limit would not be tested


@pytest.mark.parametrize(("per_group", "level"), [(1, 0.01), (10, 0.05)])
def test_drift_detects_ten_points_less_accuracy_of_one_label(per_group, level):
    generator = np.random.default_rng(0)
    n_detected = 0
    n_false = 0
    for _ in range(60):
        reference = fit_reference(simulate_stream(generator, 2000, per_group=per_group))
        new = simulate_stream(generator, 2000, per_group=per_group, accuracy_loss=0.1)
        labels = {cell.label for cell in detect_drift(reference, *new, level=level).changed}
        n_detected += 1 in labels
        n_false += bool(labels - {1})
    assert n_detected >= 54
    assert n_false <= max_expected_count(level, 60)


def test_miscalibration_at_fit_time_is_not_reported_as_drift():
    generator = np.random.default_rng(4)
    reference = fit_reference(simulate_stream(generator, 3000, accuracy_loss=0.08))
    new = simulate_stream(generator, 100_000, accuracy_loss=0.08)
    assert detect_drift(reference, *new).holds
    exact = [cell.model_copy(update={"mean_residual": 0.0}) for cell in reference.held_out.cells]
    map_without_miscalibration = make_map_with_held_out(halves=reference.held_out.halves, cells=exact)
    assert not detect_drift(map_without_miscalibration, *new).holds


def test_untested_cells_are_reported():
    generator = np.random.default_rng(8)
    reference = fit_reference(simulate_stream(generator, 2000))
    reliability, decision, correct, _ = simulate_stream(generator, 900)
    small_cells = tuple(cell.model_copy(update={"rows": 19}) for cell in reference.held_out.cells)
    small_reference = make_map_with_held_out(halves=reference.held_out.halves, cells=small_cells)
    all_rows = slice(None)
    nine_of_a_label = (decision != 2) | (np.cumsum(decision == 2) <= 9)
    nine_groups = np.arange(900) // 100

    for document, rows, group, tested, first in (
        (
            reference,
            nine_of_a_label,
            None,
            [0, 0, 1, 1],
            r"No change \D*4 ",
        ),
        (reference, slice(15), None, [], "It is unknown"),
        (small_reference, all_rows, None, [], "It is unknown"),
        (reference, all_rows, nine_groups, [], "It is unknown"),
    ):
        drifted = detect_drift(document, reliability[rows], decision[rows], correct[rows], group)
        lines = drifted.describe(LABEL_NAMES)
        assert drifted.holds
        assert [cell.label for cell in drifted.cells if cell.p_value is not None] == tested
        assert re.match(first, lines[0])
        if tested:
            assert lines[1].count("exact at reliability") == 2
            assert re.match(r"False alarm\D* 1% ", lines[-1])


@pytest.mark.parametrize("per_group", [1, 10])
def test_drift_ignores_row_order_and_group_names(per_group):
    generator = np.random.default_rng(6)
    rows = simulate_stream(generator, 1500, per_group=per_group)
    reliability, decision, correct, group = rows
    order = generator.permutation(1500)
    shuffled = tuple(None if column is None else column[order] for column in rows)

    assert summarize_reference_cells(*rows, 3) == summarize_reference_cells(*shuffled, 3)

    reference = fit_reference(simulate_stream(generator, 800, per_group=per_group))
    assert detect_drift(reference, *rows) == detect_drift(reference, *shuffled)

    names = None if group is None else np.array([f"q{number}" for number in group])
    p_values = [cell.p_value for cell in detect_drift(reference, reliability, decision, correct, group).cells]
    p_values_renamed = [cell.p_value for cell in detect_drift(reference, reliability, decision, correct, names).cells]

    assert p_values == pytest.approx(p_values_renamed)


def test_no_fall_of_an_accuracy_is_larger_than_one():
    uncertain = _CellTest(p_value=1.0, standard_error=0.9, degrees_of_freedom=5, accuracy=0.9, n_new=10)
    assert uncertain.detectable_change(0.05) == 1.0
