"""Thresholds that guarantee an accuracy: advice by brute force, exact reasons, and samples of independent rows."""

import re

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from relmap import InputError
from relmap.maps.document import MapDocument
from relmap.routing import thresholds
from relmap.routing.group_tests import BOUND_TOLERANCE, RowGroups, min_groups_to_reject
from relmap.routing.thresholds import (
    MIN_ADVISED_PERCENT,
    SAMPLE_SIZE_FACTORS,
    ReliabilityThresholds,
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
    min_rows_to_reject,
    round_threshold,
    threshold_grid,
)
from tests.maps import make_map_with_held_out
from tests.texts import numbers_in

UNIFORM = np.linspace(0, 1, 101)


def make_map(quantiles: np.ndarray = UNIFORM) -> MapDocument:
    return make_map_with_held_out(quantiles=tuple(quantiles.tolist()))


MAP = make_map()


def find(
    reliability: np.ndarray, correct: np.ndarray, target: float, decision: np.ndarray | None = None, **options: object
) -> ReliabilityThresholds:
    decision = np.zeros(len(reliability), dtype=np.int64) if decision is None else decision
    return find_accuracy_thresholds(MAP, reliability, decision, correct, target=target, **options)


def expected_advice(reliability: np.ndarray, correct: np.ndarray, target: float, confidence: float) -> list[list[str]]:
    """Return the numbers of each line; search all whole percents below the target, and all multiples of the rows."""
    lines = []
    for percent in range(99, 49, -1):
        found = find(reliability, correct, percent / 100, confidence=confidence).overall
        if percent / 100 < target and found.threshold is not None:
            lines.append([f"{len(reliability):,}", f"{percent}%", f"{found.coverage:.1%}"])
            break
    for factor in (2, 3, 4, 6, 8, 12, 16, 24, 32):
        repeated = find(np.tile(reliability, factor), np.tile(correct, factor), target, confidence=confidence)
        if repeated.overall.threshold is not None:
            lines.append([str(factor)])
            break
    return lines


ADVICE_CASES = {  # number of rows, base of the accuracy (base + reliability / 2), target, confidence
    "an accuracy and twice the rows": (300, 0.52, 0.955, 0.95),
    "many times the rows": (60, 0.52, 0.93, 0.8),
    "an accuracy only": (400, 0.3, 0.95, 0.95),
    "a target of a whole percent": (300, 0.48, 0.95, 0.9),
    "neither": (40, 0.05, 0.99, 0.99),
}


@pytest.mark.parametrize(("n_rows", "base", "target", "confidence"), ADVICE_CASES.values(), ids=ADVICE_CASES)
def test_advice_equals_a_search_over_accuracies_and_multiples(n_rows, base, target, confidence, monkeypatch):
    generator = np.random.default_rng(n_rows)
    reliability = generator.random(n_rows)
    correct = generator.random(n_rows) < base + 0.5 * reliability
    found = find(reliability, correct, target, confidence=confidence)
    assert found.overall.threshold is None
    monkeypatch.setattr(thresholds, "_advise", lambda *_: ())  # for speed: the search does not use the advice
    assert [numbers_in(line) for line in found.advice] == expected_advice(reliability, correct, target, confidence)
    assert all("rows" in line for line in found.advice)


def test_the_lowest_advised_accuracy_is_one_half():
    # 51.2% of the rows show an accuracy of at least 50%; 50.2% show only one of 49%, which is too low to be advised
    reliability = np.full(20_000, 0.9)
    assert MIN_ADVISED_PERCENT == 50
    for n_correct, has_advice in ((10_240, True), (10_040, False)):
        correct = np.arange(20_000) < n_correct
        assert find(reliability, correct, 0.49).overall.threshold is not None
        advice = find(reliability, correct, 0.95).advice
        assert [numbers_in(line) for line in advice] == ([["20,000", "50%", "100.0%"]] if has_advice else [])


def test_the_advised_accuracy_can_be_the_next_whole_percent():
    # the p-value of 75 correct rows is 0.955^75 = 0.032 for the target and 0.95^75 = 0.021 for 95%; the threshold is
    # tested at half of the level of 0.05, so only the accuracy of 95% is shown
    reliability = np.full(75, 0.995)
    advice = find(reliability, np.full(75, True), 0.955).advice
    assert [numbers_in(line) for line in advice] == [["75", "95%", "100.0%"], ["2"]]
    assert "highest accuracy" in advice[0]
    assert re.search(r"\b2 times .*rows", advice[1])


def test_a_found_threshold_has_no_advice():
    assert find(np.full(200, 0.9), np.full(200, True), 0.9).advice == ()
    assert SAMPLE_SIZE_FACTORS == (2, 3, 4, 6, 8, 12, 16, 24, 32)


@pytest.mark.parametrize(("target", "level"), [(0.9, 0.05), (0.99, 0.01), (0.5, 0.3), (0.7, 0.2)])
def test_the_smallest_sample_is_the_first_that_rejects_without_errors(target, level):
    n_rows = min_rows_to_reject(target, level)
    assert target**n_rows <= level < target ** (n_rows - 1)


def test_the_error_level_is_shared_by_the_labels_with_enough_rows():
    # at 90% accuracy and 80% confidence, 16 rows without an error suffice: 0.9^15 = 0.206, 0.9^16 = 0.185; so the
    # labels 1 and 2 have enough rows, and each is tested at half of the level of 0.2, where 22 rows are needed
    decision = np.repeat([0, 1, 2], [15, 16, 60])
    found = find(np.full(91, 0.95), np.full(91, True), 0.9, decision, confidence=0.8)
    label_0, label_1, label_2 = found.labels
    assert re.match("15 rows .*too few; 22 ", label_0.reason)
    assert 0.9**22 <= 0.1 < 0.9**21
    assert re.match("16 rows .*too few; 22 ", label_1.reason)
    assert label_2.threshold is not None
    assert label_2.lower_bound >= 0.9


def test_the_lower_bound_is_at_the_level_at_which_the_threshold_was_accepted():
    reliability = np.full(60, 0.95)
    found = find(reliability, np.full(60, True), 0.9, confidence=0.8).overall
    shares = threshold_grid(MAP, 0.9).level_shares
    # higher thresholds have no rows, so they are not accepted and pass no level on
    first = np.flatnonzero(threshold_grid(MAP, 0.9).thresholds <= 0.95)[0]
    p_value = 0.9**60  # of each threshold from there on, since all rows are above them
    accepted_at = 0.0
    for share in shares[first:]:
        level = accepted_at + 0.2 * share  # the level of an accepted threshold is passed on
        accepted_at = level if level >= p_value else 0.0
    assert found.threshold == 0.0
    assert found.lower_bound == pytest.approx(accepted_at ** (1 / 60))


@pytest.mark.parametrize(
    ("n_errors", "accuracy", "shortfall"),
    [(8, "96.0%", "less than 97%"), (5, "97.5%", "too few rows .*97%")],
)
def test_the_reason_names_the_candidate_with_the_smallest_p_value(n_errors, accuracy, shortfall):
    reliability = np.repeat([0.905, 0.505], [200, 100])
    correct = np.arange(300) < 200 - n_errors
    found = find(reliability, correct, 0.97)
    assert numbers_in(found.overall.reason) == ["0.8999", accuracy, "200", "97%"]
    assert re.search(f"200 rows .*correct, {shortfall}$", found.overall.reason)


def test_a_candidate_with_too_few_rows_is_not_the_best_one():
    # 50 correct rows have the smallest p-value, but 99 rows are needed for an accuracy of 97%
    reliability = np.repeat([0.905, 0.505], [50, 250])
    correct = np.arange(300) < 270
    assert binom.cdf(0, 50, 0.03) < binom.cdf(30, 300, 0.03)
    found = find(reliability, correct, 0.97)
    assert numbers_in(found.overall.reason) == ["0.4999", "90.0%", "300", "97%"]
    assert found.overall.reason.endswith("less than 97%")


def test_rows_below_all_quantiles_of_the_map_count_as_rows_of_the_sample():
    # 99 rows are needed for an accuracy of 97%, and 40 of the 100 are below the lowest quantile of the map, of 0.5
    reliability = np.repeat([0.9, 0.1], [60, 40])
    correct = np.arange(100) < 80
    decision = np.zeros(100, dtype=np.int64)
    found = find_accuracy_thresholds(make_map(np.linspace(0.5, 1, 101)), reliability, decision, correct, target=0.97)
    assert numbers_in(found.overall.reason) == ["0.0", "80.0%", "100", "97%"]


def test_thresholds_of_the_grid_lie_just_below_the_quantiles_and_end_with_0():
    quantiles = np.repeat([0.25, 0.5, 0.75], [21, 60, 20])
    grid = threshold_grid(make_map(quantiles), 0.9)
    expected = [round_threshold(value, quantiles) for value in (0.75, 0.5, 0.25)]
    assert grid.thresholds.tolist() == [*expected, 0.0]
    # 5% of the level starts at every fifth percent of the coverage: at 5, 10 and 15 (threshold 0.75), at 20 to 75
    # (0.5), at 80 to 95 (0.25) and at 100 (0)
    np.testing.assert_allclose(grid.level_shares, [0.15, 0.6, 0.2, 0.05])


def test_half_of_the_level_starts_at_the_threshold_with_the_most_evidence():
    quantiles = np.repeat([0.25, 0.5, 0.75], [21, 60, 20])
    grid = threshold_grid(make_map(quantiles), 0.6)
    # the evidence is (mean of the highest quantiles - target) * sqrt(percent of coverage); its maximum is
    # (0.75 - 0.6) * sqrt(19) = 0.654, at the last of the 20 quantiles of 0.75; so half of the level starts there
    np.testing.assert_allclose(grid.level_shares, [0.075 + 0.5, 0.3, 0.1, 0.025])


@pytest.mark.parametrize("target", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_invalid_targets_are_rejected(target):
    with pytest.raises(InputError, match=rf"accuracy.* {re.escape(str(target))};.* 0 .*below 1,.* 0\.95$"):
        find(np.full(9, 0.5), np.full(9, True), target)


FUNCTIONS = {
    "accuracy": lambda *arrays, confidence: find_accuracy_thresholds(MAP, *arrays, target=0.5, confidence=confidence),
    "coverage": lambda *arrays, confidence: find_coverage_threshold(*arrays, coverage="1", confidence=confidence),
    "bound": lambda *arrays, confidence: bound_accuracy(*arrays, threshold=0.5, confidence=confidence),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan")])
def test_invalid_confidences_missing_rows_and_nan_are_rejected(name, confidence):
    decision = np.zeros(3, dtype=np.int64)
    correct = np.full(3, True)
    message = rf"confidence.* {re.escape(str(confidence))};.* 0 .*below 1,.* 0\.95$"
    with pytest.raises(InputError, match=message):
        FUNCTIONS[name](np.full(3, 0.9), decision, correct, confidence=confidence)

    with pytest.raises(InputError, match="no labelled rows"):
        FUNCTIONS[name](np.empty(0), decision[:0], correct[:0], confidence=0.5)
    with pytest.raises(ValueError, match="reliability"):
        FUNCTIONS[name](np.array([0.5, np.nan, 0.5]), decision, correct, confidence=0.5)


@pytest.mark.parametrize("coverage", ["0", "0.0", "1.1", "2", "-0.5", "70%", "", "0." + "1" * 16, "1e-1", "00.5", "1."])
def test_invalid_coverages_are_rejected(coverage):
    with pytest.raises(InputError, match=rf"coverage.* {re.escape(repr(coverage))};.* 0 .*most 1,.* 0\.7$"):
        find_coverage_threshold(np.full(9, 0.5), np.zeros(9, dtype=np.int64), np.full(9, True), coverage=coverage)


RELIABILITY = np.array([0.9, 0.3, 0.8, 0.8, 0.6, 0.7, 0.5, 0.2, 0.4, 0.1])
DECISION = np.array([0, 0, 1, 1, 0, 1, 2, 2, 0, 0])
CORRECT = np.array([True, False, True, False, True, True, True, False, True, False])


@pytest.mark.parametrize(
    ("coverage", "n_automatic", "threshold"),
    [
        ("0.1", 1, 0.8001),
        ("0.2", 1, 0.8001),  # the tie at 0.8 is not split
        ("0.3", 3, 0.7001),
        ("0.39", 3, 0.7001),
        (".4", 4, 0.6001),
        ("0.9", 9, 0.1001),
        ("1", 10, 0.0),
        ("1.000", 10, 0.0),
    ],
)
def test_a_coverage_selects_rows_above_the_largest_reviewed_reliability(coverage, n_automatic, threshold):
    found = find_coverage_threshold(RELIABILITY, DECISION, CORRECT, coverage=coverage, confidence=0.9)
    assert (found.overall.threshold, found.overall.n_automatic, found.overall.n_rows) == (threshold, n_automatic, 10)
    assert (found.requested_coverage, found.target, found.chosen_threshold) == (coverage, None, None)
    assert found.confidence == 0.9
    assert [(estimate.label, estimate.n_rows) for estimate in found.labels] == [(0, 5), (1, 3), (2, 2)]
    for label, estimate in enumerate(found.labels):
        selected = (label == DECISION) & (threshold < RELIABILITY)
        assert estimate.n_automatic == selected.sum()
        if not selected.any():
            assert re.match(f"none of {estimate.n_rows} .*above the threshold; .*equal reliability", estimate.reason)


def test_a_coverage_of_less_than_one_row_is_rejected():
    with pytest.raises(InputError, match=r"coverage.* 0\.0999 .* 10 labelled"):
        find_coverage_threshold(RELIABILITY, DECISION, CORRECT, coverage="0.0999")


ROWS_PER_GROUP = 10


def simulate_groups(n_groups: int, seed: int, max_error_rate: float = 0.2) -> tuple[np.ndarray, np.ndarray, RowGroups]:
    """Simulate reliability and correctness, and groups whose errors are correlated."""
    generator = np.random.default_rng(seed)
    reliability = generator.random((n_groups, ROWS_PER_GROUP))
    noise = generator.normal(size=(n_groups, 1)) + generator.normal(size=reliability.shape)
    correct = noise / np.sqrt(2) < ndtri(1 - max_error_rate * (1 - reliability))
    return reliability.ravel(), correct.ravel(), RowGroups(np.repeat(np.arange(n_groups), ROWS_PER_GROUP))


def test_every_row_of_groups_is_used_and_finds_more_than_one_row_of_each():
    n_found = 0
    n_found_on_one_row = 0
    one_row = np.arange(150) * ROWS_PER_GROUP
    for seed in range(5):
        reliability, correct, groups = simulate_groups(150, seed)
        found = find(reliability, correct, 0.9, groups=groups)
        assert (found.n_groups, found.overall.n_rows) == (150, 1500)
        if found.overall.threshold is not None:
            n_found += 1
            assert found.overall.lower_bound >= 0.9 - BOUND_TOLERANCE
        n_found_on_one_row += find(reliability[one_row], correct[one_row], 0.9).overall.threshold is not None
    assert n_found > n_found_on_one_row + 1


def test_accuracy_target_of_groups_is_missed_no_more_often_than_stated():
    target = 0.9
    n_missed = 0
    n_found = 0
    for seed in range(25):
        reliability, correct, groups = simulate_groups(100, seed)
        threshold = find(reliability, correct, target, groups=groups, confidence=0.8).overall.threshold
        n_found += threshold is not None
        # the error rate of rows at or above t is 0.2 * (1 - t) / 2
        n_missed += threshold is not None and 0.1 * (1 - threshold) > 1 - target + 1e-9
        bound = bound_accuracy(
            reliability, np.zeros(1000, dtype=np.int64), correct, threshold=0.5, confidence=0.8, groups=groups
        )
        n_missed += bound.overall.lower_bound > 0.95
    assert n_found > 12
    assert n_missed <= 10 + 3 * 2.8  # 50 statements, each wrong with a probability of at most 0.2


def test_labels_of_groups_share_the_level_of_all_labels_of_the_map():
    reliability = np.full(1200, 0.95)
    decision = np.arange(1200) % 2
    groups = RowGroups(np.arange(1200) // 10)
    found = find(reliability, np.full(1200, True), 0.9, decision, groups=groups)
    level = 0.05 / MAP.n_labels
    for estimate in found.labels:
        rates = groups.rates(decision == estimate.label, np.full(1200, True))
        assert estimate.threshold == 0.0
        assert rates.lower_bound(level / 2) <= estimate.lower_bound <= rates.lower_bound(level)


def test_reasons_and_advice_name_groups():
    groups = RowGroups(np.arange(300) // 10)
    found = find(np.full(300, 0.95), np.full(300, True), 0.95, groups=groups)
    n_needed = min_groups_to_reject(0.95, 0.05)
    assert re.match(f"30 groups .*too few; {n_needed} ", found.overall.reason)
    assert any(re.search(r"\b6 times .*groups", line) for line in found.advice)
    assert any(re.search(r" 30 groups, .*highest accuracy .* 8\d*%", line) for line in found.advice)

    groups = RowGroups(np.arange(1000) // 10)
    found = find(np.full(1000, 0.95), np.arange(1000) % 20 > 0, 0.949, groups=groups)
    assert re.search(r" 95\.0% of 1,000 rows .*too few groups .*94\.9%$", found.overall.reason)


def test_a_coverage_of_groups_is_a_share_of_all_rows():
    reliability, correct, groups = simulate_groups(60, seed=2)
    decision = np.zeros(600, dtype=np.int64)
    found = find_coverage_threshold(reliability, decision, correct, coverage="0.35", groups=groups)
    assert found.overall.n_automatic == 210
    rates = groups.rates(reliability >= found.overall.threshold, correct)
    assert found.overall.lower_bound == rates.lower_bound(1 - 0.95)
