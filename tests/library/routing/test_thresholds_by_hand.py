"""Thresholds on the reliability by hand, by binomial tests and in simulation."""

import json
import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit
from scipy.stats import binomtest

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.drift import detect_drift
from relmap.evaluation.sample import EvaluationSample
from relmap.maps.document import MapDocument
from relmap.maps.held_out import summarize_reference_cells
from relmap.maps.score import ScoredDecisions
from relmap.routing.costs import estimate_costs
from relmap.routing.thresholds import (
    ReliabilityThresholds,
    ThresholdEstimate,
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
    round_threshold,
    threshold_grid,
)
from tests.fits import simulate_stream
from tests.maps import METRIC_SETTINGS, make_map, make_map_with_held_out

N_SIMULATIONS = 400


LABEL_SHARES = np.array([0.5, 0.3, 0.2])  # shares of the rows


MAX_ERROR_RATES = np.array([0.2, 0.3, 0.5])  # error rate of each label at rank 0


UNIFORM_QUANTILES = np.linspace(0, 1, 101)


ROW_STRATEGIES = {"seed": st.integers(0, 999), "n": st.integers(1, 60) | st.integers(100, 900)}


COVERAGES = st.sampled_from(["0.05", ".3", "0.5", "0.7", "1", "1.0"])


def map_with_quantiles(quantiles: np.ndarray) -> MapDocument:
    return make_map_with_held_out(quantiles=tuple(np.maximum.accumulate(quantiles).tolist()))


def max_expected_count(chance: float, times: int) -> float:
    """Return three standard errors above the expected number of events with the given probability."""
    return times * chance + 3 * np.sqrt(times * chance * (1 - chance))


def as_arrays(reliability, correct, decision=None):
    """Return reliability, decision and correct as arrays."""
    decision = np.zeros(len(reliability), dtype=int) if decision is None else np.array(decision)
    return np.array(reliability, dtype=float), decision, np.array(correct, dtype=bool)


def simulate_levels(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate reliability in steps of 0.05, decision and correct of `n` rows; accuracy rises with reliability."""
    generator = np.random.default_rng(seed)
    reliability = generator.integers(0, 21, n) / 20
    return (
        reliability,
        generator.choice(3, n, p=LABEL_SHARES),
        generator.random(n) < 1 - (1 - reliability) * generator.random(),
    )


@settings(deadline=None, max_examples=30)
@given(**ROW_STRATEGIES, target=st.sampled_from([0.5, 0.7, 0.9]), confidence=st.sampled_from([0.6, 0.8, 0.95]))
def test_accuracy_thresholds_equal_a_loop_of_binomial_tests(seed, n, target, confidence):
    reliability, decision, correct = simulate_levels(seed, n)
    reference = map_with_quantiles(np.round(UNIFORM_QUANTILES * 20) / 20)  # five equal quantiles
    thresholds = find_accuracy_thresholds(
        reference, reliability, decision, correct, target=target, confidence=confidence
    )
    testable = [k for k in set(decision) if target ** np.count_nonzero(decision == k) <= 1 - confidence + 1e-12]
    for estimate in (thresholds.overall, *thresholds.labels):
        of_label = np.full(len(reliability), True) if estimate.label is None else decision == estimate.label
        own_level = (1 - confidence) / (1 if estimate.label is None else max(1, len(testable)))
        is_testable = estimate.label is None or estimate.label in testable
        lowest_accepted = None
        accepted_at = 0.0
        level = 0.0
        for threshold, share in zip(*threshold_grid(reference, target), strict=True):
            selected = correct[of_label & (reliability >= threshold)]
            p_value = 1.0
            if len(selected):
                p_value = binomtest(int(selected.sum()), len(selected), target, alternative="greater").pvalue
            level += share * own_level
            if not is_testable or p_value > level:
                level = 0.0  # only an accepted threshold passes its level on
            if level:
                lowest_accepted = threshold
                accepted_at = level
        assert estimate.threshold == lowest_accepted
        assert (estimate.reason is None) == (estimate.threshold is not None)
        if estimate.threshold is not None:
            selected = correct[of_label & (reliability >= estimate.threshold)]
            assert (estimate.n_automatic, estimate.accuracy) == (len(selected), selected.mean())
            test = binomtest(int(selected.sum()), len(selected), alternative="greater")
            assert estimate.lower_bound == pytest.approx(
                test.proportion_ci(1 - accepted_at, method="exact").low, abs=1e-9
            )
            assert estimate.lower_bound >= target - 1e-9


@settings(deadline=None, max_examples=30)
@given(**ROW_STRATEGIES, coverage=COVERAGES)
def test_coverage_threshold_selects_at_most_the_coverage_with_exact_bounds(seed, n, coverage):
    reliability, decision, correct = simulate_levels(seed, n)
    n_max = int(round(float(coverage) * 1000) * len(reliability) // 1000)
    if n_max == 0:
        with pytest.raises(InputError, match="less than one"):
            find_coverage_threshold(reliability, decision, correct, coverage=coverage)
        return

    thresholds = find_coverage_threshold(reliability, decision, correct, coverage=coverage)
    overall = thresholds.overall
    labels = thresholds.labels
    # ties are not split
    reachable = [value for value in np.unique(reliability) if np.count_nonzero(reliability >= value) <= n_max]

    assert overall.n_automatic == (np.count_nonzero(reliability >= min(reachable)) if reachable else 0)

    with_rows = [estimate for estimate in labels if estimate.threshold is not None]
    assert sum(estimate.n_automatic for estimate in labels) == overall.n_automatic
    for estimate in [overall, *with_rows] if overall.n_automatic else []:
        selected = correct[
            (reliability >= overall.threshold) & ((decision == estimate.label) if estimate.label is not None else True)
        ]
        level = 0.05 / (1 if estimate.label is None else len(with_rows))
        test = binomtest(int(selected.sum()), len(selected), alternative="greater")
        assert estimate.lower_bound == pytest.approx(test.proportion_ci(1 - level, method="exact").low, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(**ROW_STRATEGIES, threshold=st.sampled_from([0.0, 0.3, 0.5, 0.8123, 1.0]))
def test_given_threshold_has_binomial_bounds_with_a_level_shared_by_labels(seed, n, threshold):
    reliability, decision, correct = simulate_levels(seed, n)
    validated = bound_accuracy(reliability, decision, correct, threshold=threshold)
    assert [estimate.label for estimate in validated.labels] == sorted(set(decision.tolist()))
    n_bounds = len({label for label, value in zip(decision.tolist(), reliability, strict=True) if value >= threshold})
    for estimate in (validated.overall, *validated.labels):
        of_label = np.full(n, True) if estimate.label is None else decision == estimate.label
        automatic = correct[of_label & (reliability >= threshold)]
        assert (estimate.n_rows, estimate.n_automatic) == (np.count_nonzero(of_label), len(automatic))
        if not len(automatic):
            assert (estimate.threshold, estimate.accuracy, estimate.lower_bound) == (None, None, None)
            assert f"none of {estimate.n_rows:,} " in estimate.reason
            continue
        level = 0.05 / (1 if estimate.label is None else n_bounds)
        test = binomtest(int(automatic.sum()), len(automatic), alternative="greater")
        assert (estimate.threshold, estimate.accuracy) == (threshold, pytest.approx(automatic.mean()))
        assert estimate.lower_bound == pytest.approx(test.proportion_ci(1 - level, method="exact").low, abs=1e-9)


def test_given_threshold_is_described_with_its_bound_or_as_unknown():
    reliability, decision, correct = simulate_levels(0, 900)
    lines = bound_accuracy(reliability, decision, correct, threshold=0.8).describe(["a", "b", "c"])
    assert re.search(r"reliability .* 0\.8 \(", lines[0])
    assert re.match(r"With 95% confidence, .*\d% ", lines[1])
    assert re.match(r"The same threshold .*95% .*together", lines[2])

    unknown = bound_accuracy(reliability * 0.9, decision, correct, threshold=0.95).describe(["a", "b", "c"])
    assert re.fullmatch(r"The accuracy .* 0\.95 .*unknown: none of 900 .* 0\.95\.", unknown[0])
    for invalid in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match=rf"cut is {invalid}; .*\[0, 1\]$"):
            bound_accuracy(reliability, decision, correct, threshold=invalid)


# A row of rank 0 to 1 is wrong with probability MAX_ERROR_RATES * (1 - rank); the map predicts something else.
SCENARIOS = {  # rank -> predicted reliability, threshold -> lowest rank whose predicted reliability reaches it
    "the map is not sure enough": (np.square, np.sqrt),
    "the map is too sure": (np.sqrt, np.square),
    "round numbers": (lambda rank: np.round(rank * 20) / 20, lambda cut: max(np.ceil(cut * 20) - 0.5, 0) / 20),
}


def simulate_ranked_rows(reliability_of_rank, n, generator):
    """Simulate reliability, decision and correct of `n` rows."""
    decision = generator.choice(3, n, p=LABEL_SHARES)
    rank = generator.random(n)
    return reliability_of_rank(rank), decision, generator.random(n) < 1 - MAX_ERROR_RATES[decision] * (1 - rank)


def true_accuracy(rank_of, estimate: ThresholdEstimate) -> float:
    """Return the true accuracy of the decisions at or above a threshold."""
    max_error_rate = MAX_ERROR_RATES @ LABEL_SHARES if estimate.label is None else MAX_ERROR_RATES[estimate.label]
    return 1 - max_error_rate * (1 - rank_of(estimate.threshold)) / 2


def count_misses(thresholds: ReliabilityThresholds, is_wrong) -> np.ndarray:
    """Return whether the overall threshold exists, whether it is wrong, and whether any label threshold is wrong."""
    labels = [estimate for estimate in thresholds.labels if estimate.threshold is not None]
    overall = thresholds.overall.threshold is not None
    return np.array([overall, overall and is_wrong(thresholds.overall), any(map(is_wrong, labels))])


@pytest.mark.parametrize("name", SCENARIOS)
def test_accuracy_target_is_missed_no_more_often_than_stated(name):
    generator = np.random.default_rng(1)
    delta = 0.1
    target = 0.9
    reliability_of_rank, rank_of = SCENARIOS[name]
    reference = map_with_quantiles(
        np.quantile(simulate_ranked_rows(reliability_of_rank, 2000, generator)[0], UNIFORM_QUANTILES)
    )
    n_missed = np.zeros(3)
    for _ in range(N_SIMULATIONS):
        thresholds = find_accuracy_thresholds(
            reference, *simulate_ranked_rows(reliability_of_rank, 1000, generator), target=target, confidence=1 - delta
        )
        n_missed += count_misses(thresholds, lambda estimate: true_accuracy(rank_of, estimate) < target)

    assert (n_missed[1:] <= max_expected_count(delta, N_SIMULATIONS)).all()
    assert n_missed[0] > 0.9 * N_SIMULATIONS  # thresholds are found, not withheld


def test_accuracy_target_holds_where_every_threshold_just_misses_it():
    generator = np.random.default_rng(2)
    delta = 0.1
    target = 0.9
    reference = map_with_quantiles(UNIFORM_QUANTILES)
    n_missed = np.zeros(3)
    for _ in range(N_SIMULATIONS):
        decision = generator.choice(3, 800, p=LABEL_SHARES)
        correct = generator.random(800) < target - 1e-9
        thresholds = find_accuracy_thresholds(
            reference, generator.random(800), decision, correct, target=target, confidence=1 - delta
        )
        n_missed += count_misses(thresholds, lambda _: True)

    assert (n_missed > 0).all()
    assert (n_missed <= max_expected_count(delta, N_SIMULATIONS)).all()


@pytest.mark.parametrize("name", ["the map is too sure", "round numbers"])
def test_coverage_bound_is_wrong_no_more_often_than_stated(name):
    generator = np.random.default_rng(3)
    delta = 0.1
    reliability_of_rank, rank_of = SCENARIOS[name]
    n_missed = np.zeros(3)
    for _ in range(N_SIMULATIONS):
        thresholds = find_coverage_threshold(
            *simulate_ranked_rows(reliability_of_rank, 600, generator), coverage="0.6", confidence=1 - delta
        )
        n_missed += count_misses(thresholds, lambda estimate: true_accuracy(rank_of, estimate) < estimate.lower_bound)

    assert (n_missed[1:] <= max_expected_count(delta, N_SIMULATIONS)).all()
    if name != "round numbers":
        assert n_missed[1] > delta * N_SIMULATIONS / 3  # the bound is no wider than it has to be


def test_bound_of_a_given_threshold_is_wrong_no_more_often_than_stated():
    generator = np.random.default_rng(4)
    delta = 0.1
    n_missed = np.zeros(3)
    reliability_of_rank, rank_of = SCENARIOS["the map is too sure"]
    for _ in range(N_SIMULATIONS):
        validated = bound_accuracy(
            *simulate_ranked_rows(reliability_of_rank, 600, generator), threshold=0.7, confidence=1 - delta
        )
        n_missed += count_misses(validated, lambda estimate: true_accuracy(rank_of, estimate) < estimate.lower_bound)

    assert (n_missed[1:] <= max_expected_count(delta, N_SIMULATIONS)).all()
    assert n_missed[1] > delta * N_SIMULATIONS / 3  # the bound is no wider than it has to be


@settings(max_examples=30)
@given(st.lists(st.integers(0, 20), min_size=101, max_size=101), st.sampled_from([0.2, 0.9, 0.999]))
def test_threshold_grid_distributes_the_whole_level_over_falling_thresholds(twentieths, target):
    quantiles = np.sort(twentieths) / 20
    grid, shares = threshold_grid(map_with_quantiles(quantiles), target)
    assert (np.diff(grid) < 0).all()
    assert grid[-1] == 0
    assert shares.sum() == pytest.approx(1)
    # thresholds are far enough from quantiles that rounding errors of an equal reliability do not matter
    assert np.abs(grid[:-1, None] - quantiles).min(initial=1) > 1e-10


RELIABILITIES = st.floats(0, 1) | st.sampled_from([0.85, 0.9999, 1e-6, 0.5 + 1e-9, 1 - 1e-8])


@settings(max_examples=60)
@given(RELIABILITIES, st.lists(RELIABILITIES, max_size=5), st.booleans())
def test_rounded_threshold_is_short_and_on_the_requested_side(reliability, others, up):
    threshold = round_threshold(reliability, np.array([*others, reliability]), up=up)
    assert (threshold > reliability) if up else (threshold < reliability or threshold == 0)
    assert threshold == round(threshold, 9)
    if 0.01 < reliability < 0.99 and not any(abs(value - threshold) < 2e-4 for value in others):
        assert threshold == round(threshold, 4)
        assert abs(threshold - reliability) < 1.1e-4


def test_threshold_grid_gives_half_of_the_level_to_the_threshold_with_the_most_evidence():
    quantiles = np.sqrt(UNIFORM_QUANTILES)
    grid, shares = threshold_grid(map_with_quantiles(quantiles), 0.8)
    above = quantiles >= grid[:, None]
    evidence = (np.mean(quantiles * above, axis=1) / above.mean(axis=1) - 0.8) * np.sqrt(above.sum(axis=1) - 1)
    remaining = shares - 0.5 * (np.arange(101) == evidence.argmax())
    # the other half: 2.5% at every fifth percent of the coverage
    assert remaining == pytest.approx(0.025 * (np.arange(101) % 5 == 0) * (np.arange(101) > 0))


@pytest.mark.parametrize(
    ("reliability", "correct", "options", "reason"),
    [
        ([0.9] * 20, [True] * 20, {"target": 0.95}, "20 rows .*too few; 59 "),
        (np.linspace(0, 1, 500), np.arange(500) % 2, {"target": 0.95}, "less than 95%"),
        (UNIFORM_QUANTILES, np.arange(101) != 50, {"target": 0.985, "confidence": 0.75}, r"too few rows .*98\.5%"),
        ([0.5] * 90, [False] * 90, {"target": 0.95}, r" 0\.0% of 90 rows"),
    ],
)
def test_missing_threshold_has_a_reason(reliability, correct, options, reason):
    document = map_with_quantiles(UNIFORM_QUANTILES)
    thresholds = find_accuracy_thresholds(document, *as_arrays(reliability, correct), **options)
    assert re.search(reason, thresholds.overall.reason)


@pytest.mark.parametrize("seed", range(3))
def test_advice_for_a_missing_threshold_holds(seed):
    reliability = np.random.default_rng(seed).random(300)
    document = map_with_quantiles(UNIFORM_QUANTILES)
    correct = np.random.default_rng(seed + 9).random(300) < 0.6 + 0.39 * reliability
    missed = find_accuracy_thresholds(document, *as_arrays(reliability, correct), target=0.95)
    highest_accuracy, more_rows = missed.advice

    assert missed.describe()[1:3] == [highest_accuracy, more_rows]

    percent = int(re.search(r"(\d+)%", highest_accuracy)[1])
    times = int(re.search(r"(\d+) times", more_rows)[1])
    for target, reachable in ((percent / 100, True), ((percent + 1) / 100, False)):
        assert (
            find_accuracy_thresholds(document, *as_arrays(reliability, correct), target=target).overall.threshold
            is not None
        ) == reachable
    assert (
        find_accuracy_thresholds(
            document, *as_arrays(np.tile(reliability, times), np.tile(correct, times)), target=0.95
        ).overall.threshold
        is not None
    )


def test_threshold_description_and_json_agree():
    generator = np.random.default_rng(0)
    reliability = generator.random(4000)
    rows = as_arrays(reliability, generator.random(4000) < reliability**0.05, generator.integers(0, 9, 4000))
    target = find_accuracy_thresholds(map_with_quantiles(UNIFORM_QUANTILES), *rows, target=0.95)
    for thresholds in (target, find_coverage_threshold(*rows, coverage="0.62")):
        lines = thresholds.describe([f"name {k}" for k in range(9)])
        assert len(lines) <= 10
        assert re.match(
            f"Use {thresholds.overall.coverage:.1%} .*reliability .* {thresholds.overall.threshold} ", lines[0]
        )
        stated = float(re.match(r"With 95% confidence, at least (9[\d.]*)% ", lines[1])[1])
        assert stated <= 100 * thresholds.overall.lower_bound < stated + 5
        largest_labels = sorted(np.argsort(-np.bincount(rows[1]), kind="stable")[:5])
        assert [line.split(":")[0] for line in lines if line.startswith("  name ")] == [
            f"  name {k}" for k in largest_labels
        ]
        assert lines[-1] == "  labels not shown: 4"
        assert str(thresholds.overall.threshold) in lines[0]  # a cut that is copied is the cut that was tested
        content = json.loads(json.dumps(thresholds.as_json(), allow_nan=False))
        assert content["overall"]["cut"] == thresholds.overall.threshold
        assert [estimate["label"] for estimate in content["labels"]] == list(range(9))


@pytest.mark.parametrize(
    ("error", "review", "threshold"),
    [(5, 1, 0.8), (3, 1, 0.6667), (1, 2, 0.0), (1, 1e-5, 0.99999), (9, 0, 1.0), (1e12, 1, 1.0)],
)
def test_least_cost_threshold_balances_review_and_error_costs(error, review, threshold):
    reliability, decision, correct = simulate_levels(0, 900)
    rows = FixedDecisions(decision=decision, confidence=reliability, label=np.where(correct, decision, decision + 1))
    scored = ScoredDecisions(reliability, logit(reliability))
    estimate = estimate_costs(EvaluationSample.from_rows(rows, scored, METRIC_SETTINGS), error, review)
    content = estimate.as_json()
    overall = estimate.overall
    cost = np.where(scored.reliability >= threshold, error * ~correct, review).mean()

    assert (overall.threshold, content["cost"]["value"]) == (threshold, pytest.approx(cost))
    assert re.match("Use " if overall.n_automatic else "Review all: none of 900 ", estimate.describe()[0])
    for numbers, value in zip(content["alternatives"].values(), (review, error * (~correct).mean(), cost), strict=True):
        shown = [numbers[name]["value"] for name in ("cost", "change")]
        assert shown == pytest.approx([value, cost - value])

    all_wrong = estimate_costs(
        EvaluationSample.from_rows(replace(rows, label=decision + 1), scored, METRIC_SETTINGS), 5, 1
    )
    assert re.match("Warning: reviewing all .*cheaper", all_wrong.describe()[1])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 99), st.integers(1, 900), st.sampled_from([None, 9, 14, 40]), st.booleans())
def test_reference_cells_equal_a_loop_over_groups(seed, n, n_groups, tied):
    generator = np.random.default_rng(seed)
    reliability, decision, correct, _ = simulate_stream(generator, n)
    reliability = np.round(reliability, 1) if tied else reliability
    group = np.arange(n) if n_groups is None else generator.integers(0, n_groups, n)
    halves, cells = summarize_reference_cells(reliability, decision, correct, None if n_groups is None else group, 3)
    expected = []

    for label, half in product(range(3), ("lower", "upper")):
        of_label = reliability[decision == label]
        assert halves[label] == (np.median(of_label) if len(of_label) else 0.5)
        in_cell = (decision == label) & (
            (reliability < halves[label]) if half == "lower" else (reliability >= halves[label])
        )
        groups_in_cell = set(group[in_cell].tolist())
        if groups_in_cell and (n_groups is None or len(groups_in_cell) >= 10):
            residual = correct[in_cell] - reliability[in_cell]
            sums = [(residual[group[in_cell] == name] - residual.mean()).sum() for name in groups_in_cell]
            variance = np.sum(np.square(sums)) / in_cell.sum() * len(groups_in_cell) / max(1, len(groups_in_cell) - 1)
            expected.append(((label, half, in_cell.sum()), (reliability[in_cell].mean(), residual.mean(), variance)))
    assert [(cell.label, cell.half, cell.rows) for cell in cells] == [facts for facts, _ in expected]

    numbers = [(cell.mean_reliability, cell.mean_residual, cell.variance) for cell in cells]
    np.testing.assert_allclose(np.array(numbers), np.array([means for _, means in expected]), atol=1e-12)


REQUESTS = {"target": 0.9}, {"target": 0.9, "confidence": 1.0}, {"coverage": "1"}, {"level": 0.01}


INVALID_REQUESTS = [  # number of rows; options, of which the first determines the function; message
    *((1, {"level": level}, r"such as 0\.01") for level in (0.0, 1.0, 5.0, np.nan)),
    *((0, options, "the confidence is 1.0" if "confidence" in options else "no labelled row") for options in REQUESTS),
]


@pytest.mark.parametrize(("n_rows", "options", "message"), INVALID_REQUESTS)
def test_missing_rows_and_invalid_levels_are_rejected(n_rows, options, message):
    arrays = as_arrays([0.5] * n_rows, [True] * n_rows)
    reference = make_map()
    functions = {
        "target": partial(find_accuracy_thresholds, reference),
        "coverage": find_coverage_threshold,
        "level": partial(detect_drift, reference, group=None),
    }
    if n_rows == 0:
        assert summarize_reference_cells(*arrays, None, 3) == ((0.5, 0.5, 0.5), ())
    with pytest.raises(InputError, match=message):
        functions[next(iter(options))](*arrays, **options)
