"""Cuts on reliability and drift: by hand, against other people's tests, and their guarantees in simulation."""

import json
import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, ndtri
from scipy.stats import binomtest
from scipy.stats import t as student

from relmap.errors import InputError
from relmap.evaluation.drift import detect_drift, summarize_reference_cells
from relmap.evaluation.sample import EvaluationSample
from relmap.io.rows import PredictedRows
from relmap.maps.document import Cell, MapDocument
from relmap.maps.reliability_map import ScoredDecisions
from relmap.routing.costs import estimate_costs
from relmap.routing.reliability_thresholds import ReliabilityThresholds, ThresholdEstimate, round_threshold
from relmap.routing.thresholds import (
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
    sample_independent_rows,
    threshold_grid,
)
from tests.maps import LABEL_NAMES, METRIC_SETTINGS, make_map, make_map_with_held_out

DRAWS, PAIRS = 400, 300
SHARE, WORST = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])  # rows, and wrong ones at rank 0, of each label
EVENLY = np.linspace(0, 1, 101)
ROWS = {"seed": st.integers(0, 999), "n": st.integers(1, 60) | st.integers(100, 900)}
SHARES = st.sampled_from(["0.05", ".3", "0.5", "0.7", "1", "1.0"])


def with_quantiles(quantiles: np.ndarray) -> MapDocument:
    return make_map_with_held_out(quantiles=tuple(np.maximum.accumulate(quantiles).tolist()))


def at_most(chance: float, times: int) -> float:
    """How often something of at most this chance may be seen."""
    return times * chance + 3 * np.sqrt(times * chance * (1 - chance))


def rows_of(reliability, right, decision=None):
    """Reliability, decision and correct, as the functions take them."""
    r, z = np.array(reliability, dtype=float), np.array(right, dtype=bool)
    return r, np.zeros(len(r), dtype=int) if decision is None else np.array(decision), z


def levelled(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reliability in steps of a twentieth, decision and correct of `n` rows; a surer one is right more often."""
    generator = np.random.default_rng(seed)
    r = generator.integers(0, 21, n) / 20
    return r, generator.choice(3, n, p=SHARE), generator.random(n) < 1 - (1 - r) * generator.random()


@settings(deadline=None, max_examples=30)
@given(**ROWS, target=st.sampled_from([0.5, 0.7, 0.9]), confidence=st.sampled_from([0.6, 0.8, 0.95]))
def test_cuts_are_those_of_a_loop_of_binomial_tests(seed, n, target, confidence):
    r, decision, z = levelled(seed, n)
    doc = with_quantiles(np.round(EVENLY * 20) / 20)  # five quantiles in one place
    thresholds = find_accuracy_thresholds(doc, r, decision, z, target=target, confidence=confidence)
    able = [k for k in set(decision) if target ** np.count_nonzero(decision == k) <= 1 - confidence + 1e-12]
    for cut in (thresholds.overall, *thresholds.labels):
        own = np.full(len(r), True) if cut.label is None else decision == cut.label
        own_level = (1 - confidence) / (1 if cut.label is None else max(1, len(able)))
        best, before = (None, 0.0), 0.0
        for place, share in zip(*threshold_grid(doc, target), strict=True):
            kept = z[own & (r >= place)]
            p = binomtest(int(kept.sum()), len(kept), target, alternative="greater").pvalue if len(kept) else 1.0
            before = before + share * own_level
            before = before if p <= before and (cut.label is None or cut.label in able) else 0.0
            best = (place, before) if before else best
        assert cut.threshold == best[0]
        assert (cut.reason is None) == (cut.threshold is not None)
        if cut.threshold is not None:
            kept = z[own & (r >= cut.threshold)]
            assert (cut.n_automatic, cut.accuracy) == (len(kept), kept.mean())
            test = binomtest(int(kept.sum()), len(kept), alternative="greater")
            assert cut.lower_bound == pytest.approx(test.proportion_ci(1 - best[1], method="exact").low, abs=1e-9)
            assert cut.lower_bound >= target - 1e-9


@settings(deadline=None, max_examples=30)
@given(**ROWS, coverage=SHARES)
def test_a_cut_at_a_coverage_takes_no_more_and_bounds_exactly(seed, n, coverage):
    r, decision, z = levelled(seed, n)
    most = int(round(float(coverage) * 1000) * len(r) // 1000)
    if most == 0:
        with pytest.raises(InputError, match="less than one"):
            find_coverage_threshold(r, decision, z, coverage=coverage)
        return
    thresholds = find_coverage_threshold(r, decision, z, coverage=coverage)
    overall, labels = thresholds.overall, thresholds.labels
    whole = [value for value in np.unique(r) if np.count_nonzero(r >= value) <= most]  # ties are not parted
    assert overall.n_automatic == (np.count_nonzero(r >= min(whole)) if whole else 0)
    with_rows = [cut for cut in labels if cut.threshold is not None]
    assert sum(cut.n_automatic for cut in labels) == overall.n_automatic
    for cut in [overall, *with_rows] if overall.n_automatic else []:
        kept = z[(r >= overall.threshold) & ((decision == cut.label) if cut.label is not None else True)]
        level = 0.05 / (1 if cut.label is None else len(with_rows))
        test = binomtest(int(kept.sum()), len(kept), alternative="greater")
        assert cut.lower_bound == pytest.approx(test.proportion_ci(1 - level, method="exact").low, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(**ROWS, cut=st.sampled_from([0.0, 0.3, 0.5, 0.8123, 1.0]))
def test_a_chosen_cut_has_the_bounds_of_binomial_tests_with_a_shared_level_for_labels(seed, n, cut):
    r, decision, z = levelled(seed, n)
    validated = bound_accuracy(r, decision, z, threshold=cut)
    assert [each.label for each in validated.labels] == sorted(set(decision.tolist()))
    n_bounds = len({label for label, value in zip(decision.tolist(), r, strict=True) if value >= cut})
    for each in (validated.overall, *validated.labels):
        own = np.full(n, True) if each.label is None else decision == each.label
        automatic = z[own & (r >= cut)]
        assert (each.n_rows, each.n_automatic) == (np.count_nonzero(own), len(automatic))
        if not len(automatic):
            assert (each.threshold, each.accuracy, each.lower_bound) == (None, None, None)
            assert f"none of {each.n_rows:,} labelled rows" in each.reason
            continue
        level = 0.05 / (1 if each.label is None else n_bounds)
        test = binomtest(int(automatic.sum()), len(automatic), alternative="greater")
        assert (each.threshold, each.accuracy) == (cut, pytest.approx(automatic.mean()))
        assert each.lower_bound == pytest.approx(test.proportion_ci(1 - level, method="exact").low, abs=1e-9)


def test_a_chosen_cut_is_described_with_what_is_known_of_it():
    r, decision, z = levelled(0, 900)
    lines = bound_accuracy(r, decision, z, threshold=0.8).describe(["a", "b", "c"])
    assert "those with a reliability of at least 0.8 (" in lines[0]
    assert lines[1].startswith("With 95% confidence, at least ")
    assert lines[2] == "The same threshold for each label; with 95% confidence, all of these hold together:"
    unknown = bound_accuracy(r * 0.9, decision, z, threshold=0.95).describe(["a", "b", "c"])
    assert unknown[0] == (
        "The accuracy at the threshold 0.95 is unknown: none of 900 labelled rows has a reliability of at least 0.95."
    )
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="must be a reliability"):
            bound_accuracy(r, decision, z, threshold=wrong)


# The guarantee, in simulation: a row of rank 0 to 1 is wrong with WORST * (1 - rank), and the map says something else
WORLDS = {  # what the map says at a rank, and the rank from which it says so much
    "the map is not sure enough": (np.square, np.sqrt),
    "the map is too sure": (np.sqrt, np.square),
    "round numbers": (lambda rank: np.round(rank * 20) / 20, lambda cut: max(np.ceil(cut * 20) - 0.5, 0) / 20),
}


def ranked_rows(says, n, generator):
    """Reliability, decision and correct of `n` rows."""
    decision, rank = generator.choice(3, n, p=SHARE), generator.random(n)
    return says(rank), decision, generator.random(n) < 1 - WORST[decision] * (1 - rank)


def accuracy(rank_of, cut: ThresholdEstimate) -> float:
    """The true accuracy of the decisions at or above a cut."""
    return 1 - (WORST @ SHARE if cut.label is None else WORST[cut.label]) * (1 - rank_of(cut.threshold)) / 2


def misses(thresholds: ReliabilityThresholds, wrong) -> np.ndarray:
    """Whether there is an overall cut, whether it is `wrong`, and whether that of any label is."""
    labels = [cut for cut in thresholds.labels if cut.threshold is not None]
    overall = thresholds.overall.threshold is not None
    return np.array([overall, overall and wrong(thresholds.overall), any(map(wrong, labels))])


@pytest.mark.parametrize("name", WORLDS)
def test_the_target_is_missed_no_more_often_than_stated(name):
    generator, delta, target, (says, rank_of) = np.random.default_rng(1), 0.1, 0.9, WORLDS[name]
    doc, counts = with_quantiles(np.quantile(ranked_rows(says, 2000, generator)[0], EVENLY)), np.zeros(3)
    for _ in range(DRAWS):
        thresholds = find_accuracy_thresholds(
            doc, *ranked_rows(says, 1000, generator), target=target, confidence=1 - delta
        )
        counts += misses(thresholds, lambda cut: accuracy(rank_of, cut) < target)
    assert (counts[1:] <= at_most(delta, DRAWS)).all()
    assert counts[0] > 0.9 * DRAWS  # it is not by silence that the target is met


def test_the_target_is_missed_no_more_often_where_every_cut_just_misses_it():
    generator, delta, target = np.random.default_rng(2), 0.1, 0.9
    doc, counts = with_quantiles(EVENLY), np.zeros(3)
    for _ in range(DRAWS):
        decision, right = generator.choice(3, 800, p=SHARE), generator.random(800) < target - 1e-9
        thresholds = find_accuracy_thresholds(
            doc, generator.random(800), decision, right, target=target, confidence=1 - delta
        )
        counts += misses(thresholds, lambda _: True)
    assert (counts > 0).all()
    assert (counts <= at_most(delta, DRAWS)).all()


@pytest.mark.parametrize("name", ["the map is too sure", "round numbers"])
def test_the_bound_at_a_coverage_is_wrong_no_more_often_than_stated(name):
    generator, delta, (says, rank_of), counts = np.random.default_rng(3), 0.1, WORLDS[name], np.zeros(3)
    for _ in range(DRAWS):
        thresholds = find_coverage_threshold(*ranked_rows(says, 600, generator), coverage="0.6", confidence=1 - delta)
        counts += misses(thresholds, lambda cut: accuracy(rank_of, cut) < cut.lower_bound)
    assert (counts[1:] <= at_most(delta, DRAWS)).all()
    assert name == "round numbers" or counts[1] > delta * DRAWS / 3  # the bound is no wider than it has to be


def test_the_bound_of_a_chosen_cut_is_wrong_no_more_often_than_stated():
    generator, delta, counts = np.random.default_rng(4), 0.1, np.zeros(3)
    says, rank_of = WORLDS["the map is too sure"]
    for _ in range(DRAWS):
        validated = bound_accuracy(*ranked_rows(says, 600, generator), threshold=0.7, confidence=1 - delta)
        counts += misses(validated, lambda cut: accuracy(rank_of, cut) < cut.lower_bound)
    assert (counts[1:] <= at_most(delta, DRAWS)).all()
    assert counts[1] > delta * DRAWS / 3  # the bound is no wider than it has to be


@settings(max_examples=30)
@given(st.lists(st.integers(0, 20), min_size=101, max_size=101), st.sampled_from([0.2, 0.9, 0.999]))
def test_the_grid_shares_the_whole_level_over_falling_cuts(levels, target):
    quantiles = np.sort(levels) / 20
    cuts, shares = threshold_grid(with_quantiles(quantiles), target)
    assert (np.diff(cuts) < 0).all()
    assert cuts[-1] == 0
    assert shares.sum() == pytest.approx(1)
    # whoever computes a tied reliability with other roundings is on the same side of the cut
    assert np.abs(cuts[:-1, None] - quantiles).min(initial=1) > 1e-10


SOME = st.floats(0, 1) | st.sampled_from([0.85, 0.9999, 1e-6, 0.5 + 1e-9, 1 - 1e-8])


@settings(max_examples=60)
@given(SOME, st.lists(SOME, max_size=5), st.booleans())
def test_a_cut_has_four_digits_or_as_many_as_it_takes_and_is_on_the_side_that_was_asked_for(beside, seen, up):
    cut = round_threshold(beside, np.array([*seen, beside]), up=up)
    assert (cut > beside) if up else (cut < beside or cut == 0)
    assert cut == round(cut, 9)
    if 0.01 < beside < 0.99 and not any(abs(value - cut) < 2e-4 for value in seen):
        assert cut == round(cut, 4)
        assert abs(cut - beside) < 1.1e-4


def test_half_of_the_level_starts_where_the_map_is_surest_and_half_at_every_twentieth():
    quantiles = np.sqrt(EVENLY)
    cuts, shares = threshold_grid(with_quantiles(quantiles), 0.8)
    above = quantiles >= cuts[:, None]
    surest = (np.mean(quantiles * above, axis=1) / above.mean(axis=1) - 0.8) * np.sqrt(above.sum(axis=1) - 1)
    evenly = shares - 0.5 * (np.arange(101) == surest.argmax())
    assert evenly == pytest.approx(0.025 * (np.arange(101) % 5 == 0) * (np.arange(101) > 0))


@pytest.mark.parametrize(
    ("r", "right", "asked", "why"),
    [
        ([0.9] * 20, [True] * 20, {"target": 0.95}, "20 rows are too few; 59 are needed even if all are correct"),
        (np.linspace(0, 1, 500), np.arange(500) % 2, {"target": 0.95}, "less than 95%"),
        (EVENLY, np.arange(101) != 50, {"target": 0.985, "confidence": 0.75}, "too few rows to guarantee"),
        ([0.5] * 90, [False] * 90, {"target": 0.95}, "0.0% of 90 rows"),
    ],
)
def test_where_there_is_no_cut_it_is_said_why(r, right, asked, why):
    assert why in find_accuracy_thresholds(with_quantiles(EVENLY), *rows_of(r, right), **asked).overall.reason


@pytest.mark.parametrize("seed", range(3))
def test_where_there_is_no_cut_a_lower_accuracy_and_more_rows_have_one(seed):
    r = np.random.default_rng(seed).random(300)
    document, right = with_quantiles(EVENLY), np.random.default_rng(seed + 9).random(300) < 0.6 + 0.39 * r
    missed = find_accuracy_thresholds(document, *rows_of(r, right), target=0.95)
    highest, rows, beware = missed.advice
    assert missed.describe()[1:4] == [highest, rows, beware]
    percent, times = (int(re.search(r"(\d+)(%| times)", line)[1]) for line in (highest, rows))
    for target, cut in ((percent / 100, True), ((percent + 1) / 100, False)):
        assert (
            find_accuracy_thresholds(document, *rows_of(r, right), target=target).overall.threshold is not None
        ) == cut
    assert (
        find_accuracy_thresholds(
            document, *rows_of(np.tile(r, times), np.tile(right, times)), target=0.95
        ).overall.threshold
        is not None
    )


def test_words_and_json_say_it_plainly():
    generator = np.random.default_rng(0)
    r = generator.random(4000)
    rows = rows_of(r, generator.random(4000) < r**0.05, generator.integers(0, 9, 4000))
    target = find_accuracy_thresholds(with_quantiles(EVENLY), *rows, target=0.95)
    for thresholds in (target, find_coverage_threshold(*rows, coverage="0.62")):
        lines = thresholds.describe([f"name {k}" for k in range(9)])
        assert len(lines) <= 10
        assert "as they are: those with a reliability of at least" in lines[0]
        assert "With 95% confidence, at least 9" in lines[1]
        promised = float(re.search(r"at least ([\d.]+)% of such", lines[1])[1])
        assert promised <= 100 * thresholds.overall.lower_bound < promised + 5
        most = sorted(np.argsort(-np.bincount(rows[1]), kind="stable")[:5])
        assert [line.split(":")[0] for line in lines if line.startswith("  name ")] == [f"  name {k}" for k in most]
        assert lines[-1] == "  and 4 more labels"
        assert str(thresholds.overall.threshold) in lines[0]  # a cut that is copied is the cut that was tested
        plain = json.loads(json.dumps(thresholds.as_json(), allow_nan=False))
        assert plain["overall"]["cut"] == thresholds.overall.threshold
        assert [cut["label"] for cut in plain["labels"]] == list(range(9))


@pytest.mark.parametrize(
    ("error", "review", "cut"),
    [(5, 1, 0.8), (3, 1, 0.6667), (1, 2, 0.0), (1, 1e-5, 0.99999), (9, 0, 1.0), (1e12, 1, 1.0)],
)
def test_the_cut_of_least_cost_is_where_a_review_costs_as_much_as_the_errors(error, review, cut):
    reliability, decision, right = levelled(0, 900)
    rows = PredictedRows(None, reliability, decision, np.where(right, decision, decision + 1), None)
    said = ScoredDecisions(reliability, logit(reliability))
    estimate = estimate_costs(EvaluationSample.from_rows(rows, said, METRIC_SETTINGS), error, review)
    expected, found = estimate.as_json(), estimate.overall
    cost = np.where(said.reliability >= cut, error * ~right, review).mean()
    assert (found.threshold, expected["cost"]["value"]) == (cut, pytest.approx(cost))
    assert estimate.describe()[0].startswith("Use" if found.n_automatic else "Review all: none of 900 labelled")
    for numbers, value in zip(expected["beside"].values(), (review, error * (~right).mean(), cost), strict=True):
        beside = [numbers[name]["value"] for name in ("cost", "change")]
        assert beside == pytest.approx([value, cost - value])
    wrong = estimate_costs(EvaluationSample.from_rows(replace(rows, label=decision + 1), said, METRIC_SETTINGS), 5, 1)
    assert "Warning: reviewing all is significantly cheaper" in wrong.describe()[1]


def test_one_row_of_each_group_is_drawn_by_the_seed():
    group = np.array(["b", "a", "b", "c", "a", "b"])
    rows = PredictedRows(None, None, np.zeros(6, dtype=int), None, group)
    draws = [sample_independent_rows(rows, seed)[0] for seed in range(300)]
    assert all(sorted(group[kept]) == ["a", "b", "c"] and (np.diff(kept) > 0).all() for kept in draws)
    assert (sample_independent_rows(rows, 7)[0] == draws[7]).all()
    taken = np.bincount(np.concatenate(draws), minlength=6) / 300
    assert taken == pytest.approx(np.array([1 / 3, 1 / 2, 1 / 3, 1, 1 / 2, 1 / 3]), abs=0.1)


def fitted_on(rows) -> MapDocument:
    halves, cells = summarize_reference_cells(*rows, 3)
    return make_map_with_held_out(halves=halves, cells=cells)


def drawn(generator, n, *, per_group=1, worse=0.0, centre=2.5):
    """Reliability, decision, correct and group; the map is a bit wrong, rows of a group err together."""
    decision = generator.integers(0, 3, n)
    logit = centre + 1.5 * generator.normal(size=n)
    right = expit(0.9 * logit + 0.1 * (decision - 1)) - worse * (decision == 1)
    group = np.arange(n) // per_group
    luck = np.sqrt(0.3) * generator.normal(size=n)[group] + np.sqrt(0.7) * generator.normal(size=n)
    return expit(logit), decision, luck < ndtri(np.maximum(right, 0)), None if per_group == 1 else group


@pytest.mark.parametrize("times", [1, 5])
def test_drift_by_hand(times):
    # 100 held-out rows of residual 0, and 25 new ones that say 0.9; or each of them, which is a group, five times
    for variance, correct, of_new in ((0.09, 15, 0.25), (0.25, 24, 0.04)):
        separate, pooled = variance / 100 + of_new / 25, (100 * variance + 25 * of_new) / 125 * (1 / 100 + 1 / 25)
        assert (separate > pooled) == (correct == 15)
        cell = Cell(
            label=1, half="upper", rows=100 * times, mean_reliability=0.9, mean_residual=0.0, variance=variance * times
        )
        right, group = np.repeat(np.arange(25) < correct, times), np.repeat(np.arange(25), times)
        made, n = make_map_with_held_out(halves=(0.5,) * 3, cells=(cell,)), 25 * times
        drifted = detect_drift(made, np.full(n, 0.9), np.ones(n, dtype=int), right, None if times == 1 else group)
        (new,) = drifted.cells
        difference = abs(0.9 - correct / 25)
        assert new.p_value == pytest.approx(2 * student.sf(difference / np.sqrt(max(separate, pooled)), 24))
        assert (new.rows, new.mean_reliability, new.accuracy, new.expected_accuracy) == pytest.approx(
            (n, 0.9, correct / 25, 0.9)
        )
        assert drifted.holds == (correct == 24)
        assert drifted.holds or drifted.describe(LABEL_NAMES)[:2] == [
            f"The map no longer holds for partial at reliability 0.5 and above: mean reliability 0.90, accuracy "
            f"0.60 ({n} rows, 0.90 expected, p-value {new.p_value:.2g}).",
            "Fit it again.",
        ]


@pytest.mark.parametrize(("says", "right", "p"), [(0.9, True, 1.0), (0.95, False, 0.0), (1.0, True, 1.0)])
def test_rows_without_variance_are_judged_exactly(says, right, p):
    r, d, all_right = np.full(30, says), np.zeros(30, dtype=int), np.full(30, True)
    drifted = detect_drift(fitted_on((r, d, all_right, None)), r[:21], d[:21], np.full(21, right), None)
    assert [cell.p_value for cell in drifted.cells] == [p]


def test_one_error_after_none_is_no_alarm():
    r, d = np.full(1000, 0.98), np.zeros(1000, dtype=int)
    assert detect_drift(fitted_on((r, d, r > 0, None)), r[:50], d[:50], np.arange(50) > 0, None, level=0.05).holds


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 99), st.integers(1, 900), st.sampled_from([None, 9, 14, 40]), st.booleans())
def test_cells_are_those_of_a_loop_over_groups(seed, n, groups, tied):
    generator = np.random.default_rng(seed)
    r, d, z, _ = drawn(generator, n)
    r = np.round(r, 1) if tied else r
    group = np.arange(n) if groups is None else generator.integers(0, groups, n)
    halves, cells = summarize_reference_cells(r, d, z, None if groups is None else group, 3)
    expected = []
    for label, half in product(range(3), ("lower", "upper")):
        of_label = r[d == label]
        assert halves[label] == (np.median(of_label) if len(of_label) else 0.5)
        kept = (d == label) & ((r < halves[label]) if half == "lower" else (r >= halves[label]))
        names = set(group[kept].tolist())
        if names and (groups is None or len(names) >= 10):
            residual = z[kept] - r[kept]
            sums = [(residual[group[kept] == name] - residual.mean()).sum() for name in names]
            variance = np.sum(np.square(sums)) / kept.sum() * len(names) / max(1, len(names) - 1)
            expected.append(((label, half, kept.sum()), (r[kept].mean(), residual.mean(), variance)))
    assert [(cell.label, cell.half, cell.rows) for cell in cells] == [facts for facts, _ in expected]
    numbers = [(cell.mean_reliability, cell.mean_residual, cell.variance) for cell in cells]
    np.testing.assert_allclose(np.array(numbers), np.array([means for _, means in expected]), atol=1e-12)


@pytest.mark.parametrize("per_group", [1, 10])
def test_an_unchanged_stream_raises_no_more_alarms_than_stated(per_group):
    generator, level, alarms = np.random.default_rng(per_group), 0.05, 0
    for pair in range(PAIRS):
        doc = fitted_on(drawn(generator, 2000, per_group=per_group))
        new = drawn(generator, (500, 1000, 500, 2000, 1000, 5000)[pair % 6], per_group=per_group)
        alarms += not detect_drift(doc, *new, level=level).holds
    assert 0 < alarms <= at_most(level, PAIRS)  # the test can speak


@pytest.mark.parametrize(("per_group", "level"), [(1, 0.01), (10, 0.05)])
def test_ten_points_less_on_one_label_are_found(per_group, level):
    generator, noticed, wrong = np.random.default_rng(0), 0, 0
    for _ in range(60):
        doc = fitted_on(drawn(generator, 2000, per_group=per_group))
        new = drawn(generator, 2000, per_group=per_group, worse=0.1)
        labels = {cell.label for cell in detect_drift(doc, *new, level=level).changed}
        noticed += 1 in labels
        wrong += bool(labels - {1})
    assert noticed >= 54
    assert wrong <= at_most(level, 60)


def test_a_map_that_was_a_bit_wrong_from_the_start_raises_none_with_many_rows():
    generator = np.random.default_rng(4)
    doc, new = fitted_on(drawn(generator, 3000, worse=0.08)), drawn(generator, 100_000, worse=0.08)
    assert detect_drift(doc, *new).holds
    exact = [cell.model_copy(update={"mean_residual": 0.0}) for cell in doc.held_out.cells]
    assert not detect_drift(
        make_map_with_held_out(halves=doc.held_out.halves, cells=exact), *new
    ).holds  # held against 0 it would


def test_what_could_not_be_tested_is_said():
    generator = np.random.default_rng(8)
    doc = fitted_on(drawn(generator, 2000))
    r, d, z, _ = drawn(generator, 900)
    rare = tuple(cell.model_copy(update={"rows": 19}) for cell in doc.held_out.cells)
    few, every = make_map_with_held_out(halves=doc.held_out.halves, cells=rare), slice(None)
    nine_of_a_label, nine_groups = (d != 2) | (np.cumsum(d == 2) <= 9), np.arange(900) // 100
    for made, rows, group, tested, first in (
        (doc, nine_of_a_label, None, [0, 0, 1, 1], "The map still holds"),
        (doc, slice(15), None, [], "It is unknown"),
        (few, every, None, [], "It is unknown"),
        (doc, every, nine_groups, [], "It is unknown"),
    ):
        drifted = detect_drift(made, r[rows], d[rows], z[rows], group)
        words = drifted.describe(LABEL_NAMES)
        assert drifted.holds
        assert [cell.label for cell in drifted.cells if cell.p_value is not None] == tested
        assert words[0].startswith(first)
        if tested:
            assert words[1].count("exact at reliability") == 2
            assert "at most 1% for each evaluation" in words[-1]


ASKED = {"target": 0.9}, {"target": 0.9, "confidence": 1.0}, {"coverage": "1"}, {"level": 0.01}
REFUSED = [
    *((1, {"level": level}, r"such as 0\.01") for level in (0.0, 1.0, 5.0, np.nan)),
    *((0, asked, "a confidence of 1.0" if "confidence" in asked else "no labelled row") for asked in ASKED),
]


@pytest.mark.parametrize(("rows", "asked", "message"), REFUSED)
def test_what_neither_a_cut_nor_a_test_can_be_made_of_is_refused(rows, asked, message):
    some, made = rows_of([0.5] * rows, [True] * rows), make_map()
    judge = {
        "target": partial(find_accuracy_thresholds, made),
        "coverage": find_coverage_threshold,
        "level": partial(detect_drift, made, group=None),
    }
    assert rows or summarize_reference_cells(*some, None, 3) == ((0.5, 0.5, 0.5), ())
    with pytest.raises(InputError, match=message):
        judge[next(iter(asked))](*some, **asked)


@pytest.mark.parametrize("per_group", [1, 10])
def test_neither_the_order_of_rows_nor_the_names_of_groups_matter(per_group):
    generator = np.random.default_rng(6)
    rows = r, d, z, group = drawn(generator, 1500, per_group=per_group)
    order = generator.permutation(1500)
    again = tuple(None if column is None else column[order] for column in rows)
    assert summarize_reference_cells(*rows, 3) == summarize_reference_cells(*again, 3)
    doc = fitted_on(drawn(generator, 800, per_group=per_group))
    assert detect_drift(doc, *rows) == detect_drift(doc, *again)
    names = None if group is None else np.array([f"q{number}" for number in group])
    before, after = ([cell.p_value for cell in detect_drift(doc, r, d, z, each).cells] for each in (group, names))
    assert before == pytest.approx(after)
