"""The drift test equals loops over cells; minimum numbers of rows and groups, and the sentences."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from relmap.evaluation.drift import FIT_AGAIN, CellDrift, DriftResult, TopDrift, detect_drift
from relmap.maps.document import Cell, MapDocument, TopCell
from relmap.maps.held_out import summarize_reference_cells, summarize_top_cells
from tests.maps import LABEL_NAMES, make_map_with_held_out
from tests.texts import assert_matches

QUANTILES = tuple(np.linspace(0, 1, 101).tolist())
HALVES = (0.5, 0.625, 0.75)  # reliability between the lower and the upper half of each label
SHARES = (0.1, 0.3)  # of the most reliable rows


def make_rows(n_rows: int, n_groups: int | None, seed: int) -> dict[str, np.ndarray | None]:
    """Simulate rows whose accuracy is far from their reliability; groups have unequal sizes."""
    generator = np.random.default_rng(seed)
    group = None if n_groups is None else np.floor(n_groups * generator.random(n_rows) ** 2).astype(np.int64)
    return {
        "reliability": generator.random(n_rows) ** 0.5,
        "decision": generator.integers(0, 3, n_rows),
        "correct": generator.random(n_rows) < 0.6,
        "group": group,
    }


def residual_statistics(rows: dict, selected: np.ndarray) -> dict[str, float]:
    """Compute rows, groups, means and the variance of the residuals of some rows, with a loop over groups."""
    reliability = rows["reliability"][selected]
    residual = rows["correct"][selected] - reliability
    n_rows = len(residual)
    group = np.arange(n_rows) if rows["group"] is None else rows["group"][selected]
    sums = [(residual[group == name] - residual.mean()).sum() for name in set(group.tolist())]
    n_groups = len(sums)
    return {
        "rows": n_rows,
        "groups": n_groups,
        "mean_reliability": reliability.mean(),
        "mean_residual": residual.mean(),
        "variance": np.sum(np.square(sums)) / n_rows * n_groups / max(n_groups - 1, 1),
    }


def variance_of_outcomes(cell: dict[str, float]) -> float:
    """Return the variance of the residuals, and of correct or wrong decisions only at least that of the reliability."""
    mean_reliability = cell["mean_reliability"]
    if 0 < round(mean_reliability + cell["mean_residual"], 10) < 1:
        return cell["variance"]
    return max(cell["variance"], mean_reliability * (1 - mean_reliability))


def expected_p_value(new: dict[str, float], reference: Cell | TopCell | None, is_grouped: bool) -> float:
    if reference is None or min(new["rows"], reference.rows) < 20 or (is_grouped and new["groups"] < 10):
        return np.nan
    old_variance = variance_of_outcomes(reference.model_dump())
    new_variance = variance_of_outcomes(new)
    pooled = (reference.rows * old_variance + new["rows"] * new_variance) / (reference.rows + new["rows"])
    squared_errors = [
        pooled * (1 / reference.rows + 1 / new["rows"]),
        old_variance / reference.rows + new_variance / new["rows"],
    ]
    difference = abs(new["mean_residual"] - reference.mean_residual)
    return 2 * student.sf(difference / np.sqrt(max(squared_errors)), new["groups"] - 1)


def adjust_by_holm(p_values: list[float]) -> list[float | None]:
    """Multiply the smallest p-value by the number of tests, the next one by one less, and so on."""
    # tests that were not performed, with NaN, come last
    order = sorted(range(len(p_values)), key=lambda index: (np.isnan(p_values[index]), p_values[index]))
    n_tests = sum(not np.isnan(p_value) for p_value in p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order[:n_tests]):
        largest = max(largest, min(1.0, (n_tests - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def make_reference() -> MapDocument:
    """Make a map with unequal reference cells; label 2 has no lower half."""
    cells = []
    for number, (label, half) in enumerate([(0, "lower"), (0, "upper"), (1, "lower"), (1, "upper"), (2, "upper")]):
        cells.append(
            Cell(
                label=label,
                half=half,
                rows=30 + 10 * number,
                mean_reliability=0.5,
                mean_residual=0.1 - 0.05 * number,
                variance=0.15 + 0.05 * number,
            )
        )
    top = []
    for share in SHARES:
        top.append(
            TopCell(share=share, rows=int(200 * share), mean_reliability=0.9, mean_residual=-share, variance=0.2)
        )
    return make_map_with_held_out(halves=HALVES, cells=tuple(cells), top=tuple(top), quantiles=QUANTILES)


@pytest.mark.parametrize("n_groups", [None, 25, 60])
@pytest.mark.parametrize("n_rows", [90, 400])
def test_each_cell_is_tested_as_defined(n_rows, n_groups):
    document = make_reference()
    rows = make_rows(n_rows, n_groups, seed=n_rows)
    references = {(cell.label, cell.half): cell for cell in document.held_out.cells}
    expected_cells = []
    p_values = []
    for label, limit in enumerate(HALVES):
        for half in ("lower", "upper"):
            is_upper = rows["reliability"] >= limit
            new = residual_statistics(rows, (rows["decision"] == label) & (is_upper == (half == "upper")))
            reference = references.get((label, half))
            p_values.append(expected_p_value(new, reference, n_groups is not None))
            expected_cells.append((label, half, limit, new, reference))
    expected_tops = []
    for cell in document.held_out.top:
        limit = 1 - cell.share
        new = residual_statistics(rows, rows["reliability"] >= round(limit, 2))
        p_values.append(expected_p_value(new, cell, n_groups is not None))
        expected_tops.append((cell.share, limit, new, cell))
    adjusted = adjust_by_holm(p_values)

    result = detect_drift(document, **rows)

    for found, (label, half, median, new, reference) in zip(result.cells, expected_cells, strict=True):
        assert (found.label, found.half, found.median, found.rows) == (label, half, median, new["rows"])
        assert_means_equal(found, new, reference)
    for found, (share, limit, new, reference) in zip(result.top, expected_tops, strict=True):
        assert (found.share, found.limit, found.rows) == (share, pytest.approx(limit), new["rows"])
        assert_means_equal(found, new, reference)
    assert [cell.p_value for cell in (*result.cells, *result.top)] == [
        None if p_value is None else pytest.approx(p_value) for p_value in adjusted
    ]
    assert any(p_value is not None and p_value < 1 for p_value in adjusted)


def assert_means_equal(found: CellDrift | TopDrift, new: dict, reference: Cell | TopCell | None) -> None:
    assert found.mean_reliability == pytest.approx(new["mean_reliability"])
    assert found.accuracy == pytest.approx(new["mean_reliability"] + new["mean_residual"])
    if reference is None:
        assert found.expected_accuracy is None
    else:
        assert found.expected_accuracy == pytest.approx(new["mean_reliability"] + reference.mean_residual)


@pytest.mark.parametrize(("n_new", "n_fit", "is_tested"), [(20, 20, True), (19, 20, False), (20, 19, False)])
def test_a_test_needs_twenty_new_rows_and_twenty_fit_rows(n_new, n_fit, is_tested):
    cell = Cell(label=0, half="upper", rows=n_fit, mean_reliability=0.8, mean_residual=0.0, variance=0.1)
    document = make_map_with_held_out(halves=(0.5,) * 3, cells=(cell,))
    decision = np.zeros(n_new, dtype=np.int64)
    result = detect_drift(document, np.full(n_new, 0.8), decision, np.arange(n_new) % 3 > 0, None)
    assert (result.cells[0].p_value is not None) == is_tested


@pytest.mark.parametrize(("n_groups", "is_tested"), [(10, True), (9, False)])
def test_a_test_of_grouped_rows_needs_ten_groups(n_groups, is_tested):
    document = make_reference()
    group = np.arange(100) % n_groups
    reliability = np.full(100, 0.95)
    decision = np.ones(100, dtype=np.int64)
    correct = np.arange(100) % 3 > 0
    result = detect_drift(document, reliability, decision, correct, group)
    # the upper half of label 1, and the two shares of the most reliable rows
    assert [cell.p_value is not None for cell in (*result.cells, *result.top)] == [is_tested] * 3

    _, cells = summarize_reference_cells(reliability, decision, correct, group, 3)
    top = summarize_top_cells(reliability, correct, group, QUANTILES)
    assert (len(cells), len(top)) == ((1, 2) if is_tested else (0, 0))


def test_fit_rows_are_summarized_at_the_quantiles_of_their_shares():
    rows = make_rows(300, 40, seed=1)
    quantiles = np.quantile(rows["reliability"], np.linspace(0, 1, 101))
    cells = summarize_top_cells(rows["reliability"], rows["correct"], rows["group"], quantiles.tolist())
    for cell, share, limit in zip(cells, SHARES, (quantiles[90], quantiles[70]), strict=True):
        expected = residual_statistics(rows, rows["reliability"] >= limit)
        assert (cell.share, cell.rows) == (share, expected["rows"])
        for name in ("mean_reliability", "mean_residual", "variance"):
            assert getattr(cell, name) == pytest.approx(expected[name])


def test_shares_that_no_row_reaches_are_omitted():
    reliability = np.full(30, 0.75)
    correct = np.arange(30) % 2 == 0
    (cell,) = summarize_top_cells(reliability, correct, None, QUANTILES)
    assert cell.share == 0.3
    result = detect_drift(make_reference(), reliability, np.zeros(30, dtype=np.int64), correct, None)
    assert [top.share for top in result.top] == [0.3]


def test_differences_within_rounding_errors_are_ignored():
    is_correct = np.arange(30) % 2 == 0
    rows = (is_correct.astype(float), np.zeros(30, dtype=np.int64), is_correct, None)  # all residuals are 0
    for mean_residual, p_value in ((5e-13, 1), (2e-12, 0)):
        cell = Cell(label=0, half="upper", rows=50, mean_reliability=0.5, mean_residual=mean_residual, variance=0.0)
        document = make_map_with_held_out(halves=(0.0,) * 3, cells=(cell,))
        assert detect_drift(document, *rows).cells[0].p_value == p_value


@pytest.mark.parametrize("n_correct", [30, 29, 1, 0])
@pytest.mark.parametrize("reference_residual", [0.25, 0.24, -0.75])  # all correct, 99% correct, and all wrong
@pytest.mark.parametrize("reference_variance", [0.0, 0.05, 0.2])
def test_a_cell_of_one_outcome_has_at_least_the_variance_of_its_reliability(
    n_correct, reference_residual, reference_variance
):
    cell = Cell(
        label=0,
        half="upper",
        rows=50,
        mean_reliability=0.75,
        mean_residual=reference_residual,
        variance=reference_variance,
    )
    document = make_map_with_held_out(halves=(0.5,) * 3, cells=(cell,))
    reliability = np.linspace(0.5, 0.9, 30)
    correct = np.arange(30) < n_correct
    result = detect_drift(document, reliability, np.zeros(30, dtype=np.int64), correct, None)
    residual = correct - reliability
    old_variance = reference_variance
    if reference_residual != 0.24:
        old_variance = max(reference_variance, 0.75 * 0.25)
    new_variance = residual.var(ddof=1)
    if n_correct in (0, 30):
        new_variance = max(new_variance, 0.7 * 0.3)  # the mean reliability is 0.7
    pooled = (50 * old_variance + 30 * new_variance) / 80 * (1 / 50 + 1 / 30)
    separate = old_variance / 50 + new_variance / 30
    difference = abs(residual.mean() - reference_residual)
    expected = 2 * student.sf(difference / np.sqrt(max(pooled, separate)), 29)
    assert result.cells[0].p_value == pytest.approx(expected, rel=1e-9)


def test_an_undefined_reliability_is_rejected():
    reliability = np.array([0.5, np.nan])
    correct = np.array([True, False])
    decision = np.zeros(2, dtype=np.int64)
    for call in (
        lambda: detect_drift(make_reference(), reliability, decision, correct, None),
        lambda: summarize_reference_cells(reliability, decision, correct, None, 3),
    ):
        with pytest.raises(ValueError, match="reliability"):
            call()


LOWER = CellDrift(
    label=1,
    half="lower",
    median=0.62549,
    rows=1234,
    mean_reliability=0.375,
    accuracy=0.5,
    expected_accuracy=0.4,
    p_value=0.004,
)
UPPER = replace(LOWER, half="upper", rows=20, p_value=0.00251)
TOP = TopDrift(
    share=0.3, limit=0.8754, rows=90, mean_reliability=0.9, accuracy=0.7, expected_accuracy=0.88, p_value=0.0034
)
# patterns of lines
FALSE_ALARMS = r"^False alarm\D* 1% .*label frequencies"
LOWER_CHANGED = r"no longer holds \D*partial \D*below 0\.625: \D*0\.50 \D*1,234 rows, 0\.40 \D*\(p-value 0\.004\)"


def test_changes_are_described_by_increasing_p_value():
    result = DriftResult(level=0.01, cells=(LOWER, UPPER), top=(TOP,))
    assert result.changed == (UPPER, TOP, LOWER)
    assert not result.holds
    expected = [
        r"no longer holds .*partial \D*0\.625 and above: \D*0\.50 \D*20 rows, 0\.40 \D*\(p-value 0\.0025\)",
        r"no longer holds .*most reliable 30%\D*0\.875 and above: \D*0\.70 \D*90 rows, 0\.88 \D*\(p-value 0\.0034\)",
        LOWER_CHANGED,
        f"^{FIT_AGAIN}$",
        FALSE_ALARMS,
    ]
    assert_matches(result.describe(LABEL_NAMES), expected)
    assert result.describe()[2] == result.describe(LABEL_NAMES)[2].replace("partial", "1")


@pytest.mark.parametrize(("level", "changed"), [(0.004, (LOWER,)), (0.0039, ())])
def test_a_change_is_significant_up_to_the_level(level, changed):
    result = DriftResult(level=level, cells=(LOWER, replace(UPPER, p_value=0.5)))
    assert result.changed == changed
    assert result.holds == (not changed)
    assert result.as_json()["holds"] == (not changed)


@pytest.mark.parametrize(
    ("n_changed", "last"),
    [
        (5, f"^{FIT_AGAIN}$"),
        (6, rf"^Further \D*: 1\. {FIT_AGAIN}$"),
        (8, rf"^Further \D*: 3\. {FIT_AGAIN}$"),
    ],
)
def test_at_most_five_changes_are_listed(n_changed, last):
    lines = DriftResult(level=0.01, cells=(LOWER,) * n_changed).describe(LABEL_NAMES)
    assert_matches(lines, [*[LOWER_CHANGED] * 5, last, FALSE_ALARMS])


@pytest.mark.parametrize(("n_untested", "more"), [(1, ""), (5, ""), (6, "; and 1 more"), (9, "; and 4 more")])
def test_at_most_five_untested_cells_are_listed(n_untested, more):
    untested = (replace(LOWER, p_value=None),) * n_untested
    listed = "; ".join([LOWER.describe_rows(LABEL_NAMES)] * min(n_untested, 5))
    not_tested = f"^Not tested.*few.*: {re.escape(listed + more)}.$"
    without_tests = DriftResult(level=0.01, cells=untested)
    assert_matches(without_tests.describe(LABEL_NAMES), ["unknown .*no label", not_tested])
    assert without_tests.holds
    with_test = DriftResult(level=0.01, cells=untested, top=(replace(TOP, p_value=0.5),))
    assert_matches(with_test.describe(LABEL_NAMES), ["^No change .*tested range", not_tested, FALSE_ALARMS])


def test_the_level_of_false_alarms_is_stated():
    assert re.match(r"False alarm\D* 1\.25% ", DriftResult(level=0.0125, cells=(LOWER,)).describe()[-1])


def test_results_are_converted_for_json():
    result = DriftResult(level=0.01, cells=(LOWER,), top=(replace(TOP, p_value=None),))
    assert result.as_json() == {
        "holds": False,
        "level": 0.01,
        "cells": [
            {
                "label": 1,
                "half": "lower",
                "median": 0.62549,
                "rows": 1234,
                "mean_reliability": 0.375,
                "correct": 0.5,
                "expected": 0.4,
                "p": 0.004,
                "detectable_change": None,
            }
        ],
        "top": [
            {
                "share": 0.3,
                "limit": 0.8754,
                "rows": 90,
                "mean_reliability": 0.9,
                "correct": 0.7,
                "expected": 0.88,
                "p": None,
                "detectable_change": None,
            }
        ],
    }
