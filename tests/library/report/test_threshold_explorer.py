"""Threshold explorer of the report page: its counts and intervals equal loops over rows, and its JSON is small."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit
from scipy.stats import binomtest, norm

from relmap.decisions import FixedDecisions
from relmap.evaluation.evaluate import evaluate_map
from relmap.evaluation.sample import EvaluationSample
from relmap.maps.score import ScoredDecisions
from relmap.report import threshold_explorer
from relmap.report.threshold_explorer import (
    MAX_CELLS,
    MAX_THRESHOLDS,
    ThresholdExplorer,
    ThresholdResults,
    _ClusteredRows,
    choose_thresholds,
)
from tests import maps

MAX_JSON_BYTES = 700_000
LABEL_NAMES = ("bad", "fair", "good")
KINDS = st.sampled_from(["plain", "groups", "weights", "groups and weights"])


def make_sample(seed: int, n: int, kind: str = "plain", n_labels: int = 3, *, tied: bool = False) -> EvaluationSample:
    """Simulate rows with a reliability, in steps of 0.05 if `tied`; no decision is label 1."""
    generator = np.random.default_rng(seed)
    reliability = generator.uniform(0.02, 0.98, n)
    reliability = np.round(20 * reliability) / 20 if tied else reliability
    decision = generator.choice([label for label in range(n_labels) if label != 1], n)
    correct = generator.random(n) < reliability
    label = np.where(correct, decision, (decision + 1) % n_labels)
    group = np.array([f"group {number}" for number in generator.integers(0, max(1, n // 4), n)])
    weight = generator.uniform(0.5, 4, n)
    rows = FixedDecisions(
        decision=decision,
        confidence=reliability,
        label=label,
        group=group if "groups" in kind else None,
        weight=weight if "weights" in kind else None,
    )
    with np.errstate(divide="ignore"):
        return EvaluationSample.from_rows(rows, ScoredDecisions(reliability, logit(reliability)), maps.METRIC_SETTINGS)


def naive_interval(correct: list[bool], cluster: list[int], row: list[int]) -> tuple[float, float]:
    """Compute Wilson's interval of the accuracy, with the effective number of rows; loop over clusters.

    Args:
        correct: Whether each copy of a row is correct. Rows are repeated by their weight.
        cluster: Cluster of each copy.
        row: Row of each copy.

    Returns:
        Lower and upper end; NaN for fewer than ten clusters.
    """
    if len(set(cluster)) < 10:
        return np.nan, np.nan
    n = len(correct)
    share = float(np.mean(correct))
    squared_residuals = []
    squared_sizes = []
    for name in set(cluster):
        cluster_correct = [is_correct for is_correct, other in zip(correct, cluster, strict=True) if other == name]
        squared_residuals.append((sum(cluster_correct) - share * len(cluster_correct)) ** 2)
        squared_sizes.append(len(cluster_correct) ** 2)
    if share in (0, 1):
        effective_by_clusters = n**2 / sum(squared_sizes)
    elif sum(squared_residuals) < 1e-12:  # all clusters have the same accuracy
        effective_by_clusters = np.inf
    else:
        effective_by_clusters = share * (1 - share) * n**2 / sum(squared_residuals)
    effective_by_copies = n**2 / sum(row.count(number) ** 2 for number in set(row))
    effective = min(effective_by_copies, effective_by_clusters)
    z = norm.ppf(0.975)
    center = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
    half_width = z / (1 + z**2 / effective) * np.sqrt(share * (1 - share) / effective + z**2 / (4 * effective**2))
    return center - half_width, center + half_width


def assert_equals_loop(results: ThresholdResults, sample: EvaluationSample, thresholds: np.ndarray) -> None:
    """Compare every number of all decisions, or of the decisions for one label, with a loop over the copies of rows."""
    has_label = np.array([results.label is None or decision == results.label for decision in sample.rows.decision])
    assert results.n_rows == has_label.sum()
    assert results.total == has_label[sample.row_number].sum()
    for index, threshold in enumerate(thresholds):
        row_is_automatic = has_label & (sample.scored.reliability >= threshold)
        copy_is_automatic = row_is_automatic[sample.row_number]
        assert results.automatic_rows[index] == row_is_automatic.sum()
        assert results.automatic[index] == copy_is_automatic.sum()
        assert results.correct[index] == sample.correct[copy_is_automatic].sum()
        expected = naive_interval(
            correct=sample.correct[copy_is_automatic].tolist(),
            cluster=sample.cluster[copy_is_automatic].tolist(),
            row=sample.row_number[copy_is_automatic].tolist(),
        )
        np.testing.assert_allclose([results.low[index], results.high[index]], expected, atol=1e-7)


def select_thresholds(results: ThresholdResults, positions: np.ndarray) -> ThresholdResults:
    """Return the results at some of the thresholds."""
    return replace(
        results,
        automatic_rows=results.automatic_rows[positions],
        automatic=results.automatic[positions],
        correct=results.correct[positions],
        low=results.low[positions],
        high=results.high[positions],
    )


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 60), KINDS, st.booleans())
def test_explorer_numbers_equal_a_loop_over_rows(seed, n, kind, tied):
    sample = make_sample(seed, n, kind, tied=tied)
    explorer = ThresholdExplorer.from_sample(sample, 0.5)
    positions = np.linspace(0, len(explorer.thresholds) - 1, 25).astype(int)  # the loop is slow
    for results in (explorer.overall, *explorer.labels):
        assert_equals_loop(select_thresholds(results, positions), sample, explorer.thresholds[positions])

    assert [results.label for results in explorer.labels] == sorted(set(sample.rows.decision.tolist()))
    assert explorer.weighted == ("weights" in kind)


def test_intervals_of_independent_rows_equal_wilson_intervals():
    explorer = ThresholdExplorer.from_sample(make_sample(1, 500), 0.5)
    for index in range(0, len(explorer.thresholds), 7):
        automatic = int(explorer.overall.automatic[index])
        correct = int(explorer.overall.correct[index])
        if automatic < 10:
            assert np.isnan(explorer.overall.low[index])
            continue
        expected = binomtest(correct, automatic).proportion_ci(method="wilson")
        assert explorer.overall.low[index] == pytest.approx(expected.low)
        assert explorer.overall.high[index] == pytest.approx(expected.high)


def test_group_without_errors_counts_as_one_row():
    n_groups = 20
    rows_of_group = 5
    reliability = np.full(100, 0.9)
    decision = np.zeros(100, dtype=np.int64)
    group = np.repeat([f"g{number:02}" for number in range(n_groups)], rows_of_group)
    rows = FixedDecisions(decision=decision, confidence=reliability, label=decision, group=group)
    explorer = ThresholdExplorer.from_sample(
        EvaluationSample.from_rows(rows, ScoredDecisions(reliability, logit(reliability)), maps.METRIC_SETTINGS), 0.5
    )
    expected = binomtest(n_groups, n_groups).proportion_ci(method="wilson")

    assert explorer.overall.low[0] == pytest.approx(expected.low)
    assert explorer.overall.high[0] == 1


@pytest.mark.parametrize("kind", ["plain", "groups", "weights", "groups and weights"])
def test_accuracy_of_all_rows_equals_the_evaluation(kind):
    sample = make_sample(2, 400, kind)
    explorer = ThresholdExplorer.from_sample(sample, 0.5)
    evaluation = evaluate_map(maps.make_map(), sample)
    by_label = [(results, evaluation["labels"][results.label]["correct"]) for results in explorer.labels]
    for results, expected in [(explorer.overall, evaluation["accuracy"]), *by_label]:
        # the first threshold is 0, so all rows are automatic
        accuracy = results.correct[0] / results.automatic[0]
        assert accuracy == pytest.approx(expected["value"])
        assert (results.low[0], results.high[0]) == pytest.approx((expected["low"], expected["high"]))


@given(
    st.lists(st.floats(0, 1) | st.sampled_from([0.5, 0.9, 1.0, 0.0]), min_size=1, max_size=80),
    st.sampled_from([50, 1000]),
)
@settings(deadline=None, max_examples=60)
def test_thresholds_increase_from_0_to_1_include_the_given_one_and_avoid_ties(values, n_max):
    reliability = np.array(values)
    thresholds = choose_thresholds(reliability, n_max, 0.625)
    assert len(thresholds) <= n_max
    assert (np.diff(thresholds) > 0).all()
    assert (thresholds[0], thresholds[-1]) == (0, 1)
    assert 0.625 in thresholds

    # 0, 1 and the given threshold may equal a reliability; all others are at least 1e-9 away from any, up to rounding
    others = np.array([value for value in thresholds if value not in (0, 0.625, 1)])
    assert (np.abs(reliability[:, None] - others) > 4e-10).all()


def test_thresholds_separate_all_distinct_reliabilities_of_few_rows():
    reliability = make_sample(3, 300).scored.reliability
    thresholds = choose_thresholds(reliability, MAX_THRESHOLDS, 0.5)
    automatic = {int((reliability >= threshold).sum()) for threshold in thresholds}

    assert automatic == set(range(301))


def test_thresholds_of_many_rows_are_evenly_spaced_by_rows():
    reliability = np.random.default_rng(0).beta(20, 2, 50_000)
    thresholds = choose_thresholds(reliability, MAX_THRESHOLDS, 0.5)
    assert 900 < len(thresholds) <= MAX_THRESHOLDS

    automatic = np.array([(reliability >= threshold).sum() for threshold in thresholds])
    rows_between_thresholds = -np.diff(automatic)
    n_even = 890  # a little below 899: 1,000 thresholds without 0, 1 and 99 hundredths, which are not spaced by rows
    assert rows_between_thresholds.max() < 2 * 50_000 / n_even
    assert set((np.arange(1, 100) / 100).tolist()) <= set(thresholds.tolist())


@pytest.mark.parametrize(("n_rows", "n_labels"), [(20_000, 3), (20_000, 19), (20_000, 300)])
def test_json_is_small_and_contains_only_aggregates(n_rows, n_labels):
    sample = make_sample(4, n_rows, "groups", n_labels)
    explorer = ThresholdExplorer.from_sample(sample, 0.5)
    text = explorer.to_json(tuple(f"label {label}" for label in range(n_labels)))
    assert len(text.encode()) < MAX_JSON_BYTES

    content = json.loads(text)
    assert set(content) == {"thresholds", "initial", "weighted", "lines"}

    n_thresholds = len(content["thresholds"])
    assert n_thresholds <= MAX_THRESHOLDS
    assert n_thresholds * len(content["lines"]) <= MAX_CELLS

    for line in content["lines"]:
        columns = {name: value for name, value in line.items() if isinstance(value, list)}
        assert set(columns) == {"automatic", "correct", "low", "high"}
        assert {len(value) for value in columns.values()} == {n_thresholds}
    assert "group" not in text


def test_label_names_are_escaped_in_json_and_restored():
    names = ("</script><b>\"'&", "never decided", "<!--\u2028")
    text = ThresholdExplorer.from_sample(make_sample(5, 50), 0.5).to_json(names)

    assert "<" not in text
    assert [line["name"] for line in json.loads(text)["lines"]] == ["All decisions", names[0], names[2]]


def test_weighted_lines_include_the_counts_of_labelled_rows():
    sample = make_sample(6, 80, "weights")
    content = json.loads(ThresholdExplorer.from_sample(sample, 0.5).to_json(LABEL_NAMES))
    line = content["lines"][0]

    assert content["weighted"]
    assert (line["rows"], line["automatic_rows"][0]) == (80, 80)
    assert line["automatic"][0] == line["total"] == len(sample)


def test_initial_threshold_selects_the_rows_of_the_given_threshold():
    reliability = make_sample(7, 200).scored.reliability
    for threshold in (0.6371, 0.5, 0.0, 1.0, float(reliability[3]), float(reliability.max())):
        explorer = ThresholdExplorer.from_sample(make_sample(7, 200), threshold)
        initial_threshold = explorer.thresholds[explorer.initial]
        assert explorer.overall.automatic[explorer.initial] == (reliability >= threshold).sum()
        has_few_digits = round(threshold, 4) == threshold
        is_unchanged = initial_threshold == threshold
        assert is_unchanged == has_few_digits
        assert len(str(initial_threshold)) <= 8


def test_thresholds_lie_between_neighboring_levels_with_as_few_digits_as_possible():
    """Levels are the distinct reliabilities."""
    reliability = np.array([0.31, 0.4567, 0.4561, 0.31, 0.9, 0.90000001])
    assert choose_thresholds(reliability, 50, 0.625).tolist() == [0.0, 0.4, 0.4562, 0.5, 0.625, 0.900000001, 1.0]


def test_levels_that_are_too_close_are_not_separated():
    reliability = np.array([0.2, 0.7, 0.7 + 1.5e-9, 0.9])
    assert choose_thresholds(reliability, 50, 0.5).tolist() == [0.0, 0.3, 0.5, 0.8, 1.0]


@pytest.mark.parametrize(("n_max", "has_hundredths"), [(198, False), (199, True)])
def test_hundredths_are_included_if_all_99_are_less_than_half_of_the_thresholds(n_max, has_hundredths):
    thresholds = choose_thresholds(np.array([0.25, 0.503, 0.7500000005]), n_max, 0.125)
    expected = {0.0, 0.125, 0.3, 0.6, 1.0}
    if has_hundredths:
        hundredths = {number / 100 for number in range(1, 100)}
        hundredths_that_are_reliabilities = {0.25, 0.75}
        expected |= hundredths - hundredths_that_are_reliabilities
    assert thresholds.tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("n_max", "chosen_levels"),
    [(13, range(10)), (12, [0, 1, 2, 3, 4, 6, 7, 8, 9]), (8, [0, 2, 4, 7, 9]), (5, [0, 9])],
)
def test_levels_are_chosen_evenly_by_the_number_of_rows(n_max, chosen_levels):
    """Level k is k / 10 + 0.05; the threshold below it is k / 10, and 0 for the lowest level."""
    reliability = np.arange(10) / 10 + 0.05
    thresholds = choose_thresholds(reliability[::-1], n_max, 0.333)
    below_chosen_levels = {level / 10 for level in chosen_levels}
    assert thresholds.tolist() == sorted(below_chosen_levels | {0.0, 1.0, 0.333})


# At most MAX_THRESHOLDS, MAX_CELLS // (n_labels + 1 line of all decisions), but at least MIN_THRESHOLDS
@pytest.mark.parametrize(("n_labels", "n_max"), [(18, 1000), (20, 952), (1200, 20)])
def test_the_number_of_thresholds_depends_on_the_number_of_decided_labels(n_labels, n_max, monkeypatch):
    requested = []

    def choose(reliability: np.ndarray, n_thresholds: int, threshold: float) -> np.ndarray:
        requested.append((len(reliability), n_thresholds, threshold))
        return np.array([0.0, threshold, 1.0])

    monkeypatch.setattr(threshold_explorer, "choose_thresholds", choose)
    decision = np.arange(n_labels)
    reliability = np.full(n_labels, 0.75)
    rows = FixedDecisions(decision=decision, confidence=reliability, label=decision)
    scored = ScoredDecisions(reliability, logit(reliability))
    explorer = ThresholdExplorer.from_sample(EvaluationSample.from_rows(rows, scored, maps.METRIC_SETTINGS), 0.5)
    assert requested == [(n_labels, n_max, 0.5)]
    assert len(explorer.labels) == n_labels
    assert explorer.initial == 1


def test_intervals_in_json_have_four_digits_or_are_missing():
    explorer = ThresholdExplorer.from_sample(make_sample(8, 40), 0.5)
    line = json.loads(explorer.to_json(LABEL_NAMES))["lines"][0]
    for name in ("low", "high"):
        ends = getattr(explorer.overall, name)
        assert line[name] == [None if np.isnan(end) else round(end, 4) for end in ends.tolist()]
        assert None in line[name]
        assert any(end != round(end, 3) for end in line[name] if end is not None)


def test_lines_in_json_have_the_numbers_of_their_label():
    explorer = ThresholdExplorer.from_sample(make_sample(9, 30, "weights"), 0.625)
    content = json.loads(explorer.to_json(LABEL_NAMES))
    assert content["thresholds"] == explorer.thresholds.tolist()
    assert content["initial"] == explorer.initial
    results = (explorer.overall, *explorer.labels)
    for line, expected in zip(content["lines"], results, strict=True):
        assert line["rows"] == expected.n_rows
        assert line["total"] == expected.total
        for name in ("automatic", "correct", "automatic_rows"):
            assert line[name] == getattr(expected, name).tolist()
    assert [line["name"] for line in content["lines"]] == ["All decisions", "bad", "good"]


def test_all_levels_are_separated_if_they_fit_however_many_rows_they_have():
    reliability = np.repeat([0.05, 0.15, 0.25, 0.35], [1, 90, 1, 1])
    assert choose_thresholds(reliability, 7, 0.5).tolist() == [0.0, 0.1, 0.2, 0.3, 0.5, 1.0]
    assert choose_thresholds(reliability, 6, 0.5).tolist() == [0.0, 0.1, 0.3, 0.5, 1.0]


def test_results_at_thresholds_are_immutable_and_compared_by_identity():
    sample = make_sample(3, 20)
    explorer = ThresholdExplorer.from_sample(sample, 0.5)
    rows = _ClusteredRows.from_sample(sample)
    for value, name in ((explorer, "initial"), (explorer.overall, "total"), (rows, "copies")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)
        assert len({value, replace(value)}) == 2


def explorer_of(reliability: list[float], threshold: float) -> ThresholdExplorer:
    """Aggregate correct decisions for one label."""
    values = np.array(reliability)
    label = np.zeros(len(values), dtype=np.int64)
    rows = FixedDecisions(decision=label, confidence=values, label=label)
    sample = EvaluationSample.from_rows(rows, ScoredDecisions(values, logit(values)))
    return ThresholdExplorer.from_sample(sample, threshold)


@pytest.mark.parametrize(
    ("threshold", "initial"),
    [(0.512345, 0.3), (0.712345, 0.8), (0.123456, 0.123456), (0.987654, 0.987654), (0.5123, 0.5123)],
)
def test_a_threshold_between_reliabilities_is_shortened(threshold, initial):
    explorer = explorer_of([0.2, 0.7, 0.9], threshold)
    assert explorer.thresholds[explorer.initial] == initial


def test_hundredths_just_above_a_reliability_are_omitted():
    thresholds = choose_thresholds(np.array([0.1 - 5e-10, 0.3 - 5e-10, 0.503]), 1000, 0.125)
    omitted = {number / 100 for number in range(1, 100)} - set(thresholds.tolist())
    assert omitted == {0.1, 0.3}


def test_levels_without_a_number_of_nine_decimal_places_between_them_are_not_separated():
    reliability = np.array([0.2, 0.7000000005, 0.7000000029, 0.9])
    assert choose_thresholds(reliability, 50, 0.5).tolist() == [0.0, 0.3, 0.5, 0.8, 1.0]


def test_groups_of_some_rows_are_found_whatever_the_number_of_the_first():
    """Rows of the groups b and c have their own label; a comes before them."""
    group = np.array(["a", "a", "b", "b", "c", "c"])
    decision = np.array([0, 0, 1, 1, 1, 1])
    values = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    rows = FixedDecisions(decision=decision, confidence=values, label=decision, group=group)
    sample = EvaluationSample.from_rows(rows, ScoredDecisions(values, logit(values)), maps.METRIC_SETTINGS)
    explorer = ThresholdExplorer.from_sample(sample, 0.5)
    for results in explorer.labels:
        assert_equals_loop(results, sample, explorer.thresholds)
