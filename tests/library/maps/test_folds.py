"""Folds contain whole groups of permuted rows; limits of the split and messages of its check."""

from dataclasses import replace

import numpy as np
import pytest

from relmap.calibrators.identity import Identity
from relmap.calibrators.temperature import Temperature
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.maps.folds import (
    MAX_FIT_ROWS,
    N_FOLDS,
    FoldSplit,
    check_fit_rows,
    paper_fit_rows,
    restore_fold_split,
    split_folds,
)
from relmap.projection.rows import split_validation
from tests import maps


def expected_split(
    units: list[list[int]], seed: int, n_folds: int, hold_out: float, max_fit_rows: int
) -> tuple[list[list[int]], list[int]]:
    """Split units of rows by their definition, one unit after another."""
    order = np.random.default_rng(seed).permutation(len(units)).tolist()
    n_held_out = round(hold_out * len(units))
    held_out = [row for unit in order[:n_held_out] for row in units[unit]]
    used = []
    n_rows = 0
    for position, unit in enumerate(order[n_held_out:]):
        n_rows += len(units[unit])
        if n_rows <= max_fit_rows or position < 2:  # two folds need two units
            used.append(unit)
        else:
            held_out.extend(units[unit])
    n_folds = min(n_folds, len(used))
    folds = []
    for part in np.array_split(used, n_folds):
        folds.append([row for unit in part.tolist() for row in units[unit]])
    return folds, sorted(held_out)


@pytest.mark.parametrize("hold_out", [0, 0.3, 0.55])
@pytest.mark.parametrize("max_fit_rows", [7, 16, 17, 40, 1000])
@pytest.mark.parametrize("n_folds", [2, 5, 30])
def test_split_equals_its_definition(n_folds, max_fit_rows, hold_out):
    sizes = [5, 1, 3, 9, 2, 7, 4, 6, 1, 2]
    codes = np.repeat(np.arange(10), sizes)
    codes = np.random.default_rng(0).permutation(codes)
    first_rows = [int(np.flatnonzero(codes == code)[0]) for code in range(10)]
    groups = [np.flatnonzero(codes == code).tolist() for code in np.argsort(first_rows)]
    rows = [[row] for row in range(40)]
    names = np.array([f"g{code}" for code in codes])
    for group, units in ((names, groups), (None, rows)):
        split = split_folds(40, group, 6, n_folds=n_folds, hold_out=hold_out, max_fit_rows=max_fit_rows)
        folds, held_out = expected_split(units, 6, n_folds, hold_out, max_fit_rows)
        assert [fold.tolist() for fold in split.folds] == folds
        assert split.held_out.tolist() == held_out
        assert sorted([*split.fit_rows.tolist(), *held_out]) == list(range(40))


def test_split_has_five_folds_of_at_most_16000_rows_by_default():
    split = split_folds(16_003, None, 1)
    assert (N_FOLDS, MAX_FIT_ROWS) == (5, 16_000)
    assert [len(fold) for fold in split.folds] == [3200] * 5
    assert len(split.held_out) == 3
    order = np.random.default_rng(1).permutation(16_003)
    np.testing.assert_array_equal(split.fit_rows, order[:16_000])


@pytest.mark.parametrize("grouped", [False, True])
def test_restored_split_equals_the_split_of_the_fit(grouped):
    rows = maps.rows_of_frame(maps.make_predictions(90, per_group=4), "group" if grouped else None)
    split = split_folds(90, rows.group, 8, n_folds=3, hold_out=0.2, max_fit_rows=60)
    document = maps.make_map()
    document = document.model_copy(
        update={
            "folds": (None,) * 3,
            "source": maps.SOURCE.model_copy(update={"seed": 8, "hold_out": 0.2}),
            "projection": document.projection.model_copy(update={"rows": len(split.fit_rows)}),
        }
    )
    restored = restore_fold_split(document, rows)
    assert [fold.tolist() for fold in restored.folds] == [fold.tolist() for fold in split.folds]
    assert restored.held_out.tolist() == split.held_out.tolist()


def make_labelled_rows(label: np.ndarray) -> FixedDecisions:
    return FixedDecisions(decision=np.zeros(len(label), dtype=np.int64), label=label)


def split_of(n_fitted: int, n_rows: int, n_folds: int = 5) -> FoldSplit:
    """Return a split whose folds have the first rows."""
    return FoldSplit(tuple(np.array_split(np.arange(n_fitted), n_folds)), np.arange(n_fitted, n_rows))


def test_rows_of_a_single_group_are_split():
    one_group = split_folds(12, np.full(12, "g"), 6, hold_out=0.25)
    rows = split_folds(12, None, 6, hold_out=0.25)
    assert [fold.tolist() for fold in one_group.folds] == [fold.tolist() for fold in rows.folds]
    assert one_group.held_out.tolist() == rows.held_out.tolist()


@pytest.mark.parametrize(
    ("n_fitted", "n_rows", "n_folds", "hold_out"), [(2, 2, 2, 0), (60, 1061, 2, 0.9), (60, 61, 5, 0.01)]
)
def test_two_rows_of_one_label_are_enough(n_fitted, n_rows, n_folds, hold_out):
    check_fit_rows(make_labelled_rows(np.zeros(n_rows, dtype=np.int64)), split_of(n_fitted, n_rows, n_folds), hold_out)


@pytest.mark.parametrize(
    ("label", "split", "hold_out", "message"),
    [
        (np.arange(1), split_of(1, 1, n_folds=1), 0, " 1 labelled rows .*1,000 "),
        (
            np.arange(1060),
            split_of(1060, 1060),
            0.0004,
            r"hold-out of 0\.0004 of 1,060 rows.*--hold-out$",
        ),
    ],
)
def test_too_few_rows_are_rejected(label, split, hold_out, message):
    with pytest.raises(InputError, match=message):
        check_fit_rows(make_labelled_rows(label), split, hold_out)


@pytest.mark.parametrize("split_by", ["row", "group"])
def test_fit_rows_of_the_paper_protocol_are_the_sorted_rows_of_the_parts_that_were_fitted_on(split_by):
    protocol = maps.SETTINGS.protocol.model_copy(update={"split": split_by})
    source = maps.SOURCE.model_copy(update={"seed": 5, "protocol": protocol})
    rows = replace(make_labelled_rows(np.arange(120) % 3), group=np.array([f"q{row % 40}" for row in range(120)]))
    calibrator_fit, projection_fit, _ = split_validation(120, 5, protocol, rows.group)
    # without a calibrator only the projection is fitted
    assert paper_fit_rows(source, rows, Identity()).tolist() == sorted(projection_fit.tolist())
    both = sorted([*calibrator_fit.tolist(), *projection_fit.tolist()])
    assert paper_fit_rows(source, rows, Temperature(2.0)).tolist() == both
