"""Groups of rows, and the parts of the validation rows."""

import numpy as np
import pytest

from relmap.decisions import ProtocolDecisions
from relmap.projection.rows import (
    ValidationRows,
    expand_units,
    group_row_numbers,
    select_validation_rows,
    split_validation,
)
from relmap.settings import ProtocolParams


def make_rows(*numbers: int) -> ProtocolDecisions:
    """Make rows whose logits contain their numbers."""
    first_logit = np.array(numbers, dtype=np.float64)
    return ProtocolDecisions(
        decision=np.zeros(len(numbers), dtype=np.int64),
        logits=np.stack([first_logit, first_logit - 1], axis=1),
        label=np.zeros(len(numbers), dtype=np.int64),
        group=first_logit.astype(str),
    )


def row_numbers(rows: ProtocolDecisions) -> list[int]:
    return rows.logits[:, 0].astype(int).tolist()


def make_validation_rows() -> ValidationRows:
    return ValidationRows(
        seed=7,
        temperature_fit=make_rows(1, 2, 3),
        calibrator_fit=make_rows(10, 11, 12),
        projection_fit=make_rows(20, 21, 22, 23),
        projection_selection=make_rows(30),
    )


def test_rows_of_a_group_are_in_the_order_of_the_first_row_of_their_group():
    rows = group_row_numbers(np.array(["m", "z", "a", "z", "m", "z", "a", "b"]))
    assert [numbers.tolist() for numbers in rows] == [[0, 4], [1, 3, 5], [2, 6], [7]]


def test_numbers_of_units_become_row_numbers():
    units = [np.array([0, 4]), np.array([1, 3, 5]), np.array([2])]
    parts = [np.array([2, 0]), np.array([], dtype=np.int64), np.array([1])]
    expanded = expand_units(parts, units)
    assert [rows.tolist() for rows in expanded] == [[2, 0, 4], [], [1, 3, 5]]
    assert {rows.dtype for rows in expanded} == {np.dtype(np.int64)}
    assert [rows.tolist() for rows in expand_units(parts, None)] == [[2, 0], [], [1]]


def test_fit_rows_alternate_in_pairs():
    rows = make_validation_rows()
    alternating = rows.interleaved_fit_rows
    assert row_numbers(alternating.calibrator_fit) == [10, 20, 11, 21, 12, 22]
    assert alternating._replace(calibrator_fit=rows.calibrator_fit) == rows

    exchanged = rows._replace(calibrator_fit=rows.projection_fit, projection_fit=rows.calibrator_fit)
    assert row_numbers(exchanged.interleaved_fit_rows.calibrator_fit) == [20, 10, 21, 11, 22, 12]


@pytest.mark.parametrize(("n_rows", "expected"), [(1, (1, 1)), (3, (3, 3)), (4, (3, 4))])
def test_only_fit_rows_are_limited(n_rows, expected):
    rows = make_validation_rows()
    limited = rows.limit_fit_rows(n_rows)
    assert row_numbers(limited.calibrator_fit) == [10, 11, 12][: expected[0]]
    assert row_numbers(limited.projection_fit) == [20, 21, 22, 23][: expected[1]]
    assert limited.seed == 7
    assert limited.temperature_fit is rows.temperature_fit
    assert limited.projection_selection is rows.projection_selection


@pytest.mark.parametrize("split", ["row", "group"])
@pytest.mark.parametrize("temperature_rows", ["validation", "calibrator_fit"])
def test_validation_rows_are_selected_by_the_split(split, temperature_rows):
    params = ProtocolParams(parts=(0.4, 0.35, 0.25), projection_cap=5, temperature_rows=temperature_rows, split=split)
    group = np.arange(40) // 2
    validation = make_rows(*group)
    parts = split_validation(40, 3, params, group)
    rows = select_validation_rows(validation, 3, params)

    assert [len(part) for part in parts] == [16, 5, 5]
    assert rows.seed == 3
    assert row_numbers(rows.calibrator_fit) == group[parts[0]].tolist()
    assert row_numbers(rows.projection_fit) == group[parts[1]].tolist()
    assert row_numbers(rows.projection_selection) == group[parts[2]].tolist()
    expected = validation if temperature_rows == "validation" else rows.calibrator_fit
    assert rows.temperature_fit is expected
    assert rows.rows_for_calibrator("ts") is expected
    assert rows.rows_for_calibrator("vector") is rows.calibrator_fit


def test_groups_are_permuted_like_rows():
    params = ProtocolParams(parts=(0.5, 0.3, 0.2), projection_cap=100, temperature_rows="validation", split="group")
    group = np.array([*"cabacbdedefghij"])
    units = group_row_numbers(group)
    of_units = split_validation(len(units), 2, params)

    of_rows = split_validation(len(group), 2, params, group)

    for unit_numbers, row_numbers in zip(of_units, of_rows, strict=True):
        assert row_numbers.tolist() == np.concatenate([units[unit] for unit in unit_numbers]).tolist()
    assert [len(part) for part in of_units] == [5, 3, 2]

    by_row = params.model_copy(update={"split": "row"})
    assert [len(part) for part in split_validation(len(group), 2, by_row, group)] == [8, 4, 3]
    assert [len(part) for part in split_validation(len(group), 2, params, None)] == [8, 4, 3]


@pytest.mark.parametrize(("cap", "n_rows"), [(10, 10), (9, 9)])
def test_a_part_at_the_cap_is_not_reduced(cap, n_rows):
    params = ProtocolParams(parts=(0.5, 0.25, 0.25), projection_cap=cap, temperature_rows="validation", split="row")
    uncapped = split_validation(40, 1, params.model_copy(update={"projection_cap": 20}))
    capped = split_validation(40, 1, params)
    for part, all_rows in zip(capped[1:], uncapped[1:], strict=True):
        assert len(set(part)) == len(part) == n_rows
        assert (part.tolist() == all_rows.tolist()) == (n_rows == 10)


def test_parts_are_drawn_with_the_seeds_of_the_authors_code():
    params = ProtocolParams(parts=(0.5, 0.3, 0.2), projection_cap=4, temperature_rows="validation", split="row")
    seed = 2026 + 3 * 1009  # base seed and step of the authors; the parts add 11 and 23
    order = np.random.default_rng(seed).permutation(31)
    fit = np.random.default_rng(seed + 11).choice(order[16:25], 4, replace=False)
    selection = np.random.default_rng(seed + 23).choice(order[25:], 4, replace=False)
    found = split_validation(31, 3, params)
    assert [part.tolist() for part in found] == [order[:16].tolist(), sorted(fit), sorted(selection)]
