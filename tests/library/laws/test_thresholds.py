"""Thresholds equal their definitions: sampled rows with weights and groups, and thresholds on a score."""

import json
import math
import re
from dataclasses import replace
from itertools import combinations, product
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

from relmap import ReliabilityMap
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.maps.score import FittedMap
from relmap.report.figure import LIGHT
from relmap.report.score import precision_recall_svg
from relmap.routing.group_tests import RowGroups
from relmap.routing.score_thresholds import ScoreThreshold, ScoreThresholds, find_score_thresholds
from relmap.routing.thresholds import (
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
    sample_equally_likely_rows,
)
from tests import maps
from tests.library.routing.test_group_tests import naive_p_value
from tests.texts import assert_matches

BOOLEAN_PAIRS = list(product([False, True], repeat=2))  # weights, groups
N_SEEDS = 3000
GROUPS = np.array([*"abcdefgh", *"bccdddeeeefffffg"])  # the first rows have groups in the order of their names
WEIGHTS = np.random.default_rng(0).permutation(np.geomspace(1, 6, len(GROUPS)))


@pytest.mark.parametrize(("weighted", "grouped"), BOOLEAN_PAIRS)
def test_rows_without_groups_are_sampled_in_proportion_to_their_weight(weighted, grouped):
    n = len(GROUPS)
    rows = FixedDecisions(
        decision=np.zeros(n, dtype=int), group=GROUPS if grouped else None, weight=WEIGHTS if weighted else None
    )
    counts = np.zeros(n)
    for seed in range(N_SEEDS):
        sampled, notes = sample_equally_likely_rows(rows, seed)
        assert (np.diff(sampled) > 0).all()
        assert len(notes) == (weighted and not grouped)
        counts[sampled] += 1
    expected = WEIGHTS / WEIGHTS.max() if weighted and not grouped else np.ones(n)
    standard_error = np.sqrt(expected * (1 - expected) / N_SEEDS)
    assert (np.abs(counts / N_SEEDS - expected) <= 4.5 * standard_error).all()


@pytest.mark.parametrize(("weighted", "grouped"), BOOLEAN_PAIRS)
def test_thresholds_are_found_on_sampled_rows_or_on_all_rows_of_groups(weighted, grouped):
    frame = maps.make_predictions(1200, shift=2.0, seed=3, per_group=3)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(np.arange(1200) % 3 + 1.0))
    model = ReliabilityMap(seed=4).fit(maps.make_predictions(150, shift=2.0))
    rows = maps.rows_of_frame(frame, "group" if grouped else None)
    reliability = FittedMap.from_document(model.document_)(rows).reliability
    sampled, _ = sample_equally_likely_rows(rows, 4)
    sample = reliability[sampled], rows.decision[sampled], rows.correct[sampled]
    names = "group" if grouped else None
    groups = RowGroups.from_names(rows.group, 4, rows.weight) if grouped else None
    options = {"confidence": 0.8, "groups": groups}
    result = model.thresholds(frame, groups=names, target_accuracy=0.7, confidence_level=0.8).to_dict()
    expected = find_accuracy_thresholds(model.document_, *sample, target=0.7, **options).as_json()
    assert result["overall"] == expected["overall"]
    assert result["groups"] == (400 if grouped else None)

    result = model.thresholds(frame, groups=names, coverage=0.4, confidence_level=0.8).to_dict()
    assert result["labels"] == find_coverage_threshold(*sample, coverage="0.4", **options).as_json()["labels"]
    result = model.thresholds(frame, groups=names, cut=0.75, confidence_level=0.8).to_dict()
    assert result["overall"] == bound_accuracy(*sample, threshold=0.75, **options).as_json()["overall"]
    assert (len(sampled) < 1200) == (weighted and not grouped)


METRICS = ("precision", "recall", "npv")


def rate_rows(metric: str, score: np.ndarray, positive: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows a rate counts, and which rows are correct."""
    is_above = score >= threshold
    return {"precision": (is_above, positive), "recall": (positive, is_above), "npv": (~is_above, ~positive)}[metric]


def expected_p_value(
    target: float,
    is_counted: np.ndarray,
    is_correct: np.ndarray,
    units: list[np.ndarray],
    grouped: bool,
    repetitions: int = 1,
) -> float:
    """Return the binomial p-value for rows, or the betting p-value of the mean rate of groups."""
    if not grouped:
        n = repetitions * int(is_counted.sum())
        return float(binom.cdf(n - repetitions * int((is_counted & is_correct).sum()), n, 1 - target)) if n else 1.0
    rates = [is_correct[unit[is_counted[unit]]].mean() for unit in units if is_counted[unit].any()]
    return naive_p_value((np.tile(rates, repetitions) - target).tolist(), target)


def expected_accepted(
    metric: str,
    score: np.ndarray,
    positive: np.ndarray,
    groups: np.ndarray | None,
    target: float,
    confidence_level: float,
    seed: int,
    repetitions: int = 1,
) -> list[float]:
    """Return the accepted thresholds of fixed-sequence tests.

    A quarter of the units selects the candidates and the allocation of the level; the other units test them in order.
    The null hypothesis is that the rate is at most the target. Each unit is used `repetitions` times.
    """
    group_names = np.arange(len(score)) if groups is None else groups
    members = [np.flatnonzero(group_names == name) for name in np.unique(group_names)]
    order = np.random.default_rng(seed).permutation(len(members))
    n_planning = max(2, round(0.25 * len(members)))
    planning = np.concatenate([members[unit] for unit in order[:n_planning]])
    units = [members[unit] for unit in order[n_planning:]]
    testing = np.concatenate(units)
    quantiles = np.quantile(score[planning], np.linspace(0, 1, 100), method="inverted_cdf")
    candidates = sorted({float(f"{value:.6g}") for value in quantiles})
    level_share = dict.fromkeys(candidates, 0.0)
    if metric == "recall":
        level_share[candidates[0]] = 1.0
    else:
        starts = {
            candidates[int(position)] for position in np.linspace(0, len(candidates) - 1, min(10, len(candidates)))
        }
        for start in starts:
            level_share[start] += 0.5 / len(starts)
        evidence = []
        for candidate in candidates:
            is_counted, is_correct = rate_rows(metric, score[planning], positive[planning], candidate)
            n = is_counted.sum()
            evidence.append(
                repetitions * ((is_counted & is_correct).sum() - target * n) / math.sqrt(repetitions * n + 1)
            )
        level_share[candidates[int(np.argmax(evidence))]] += 0.5
    accepted = []
    carried_level = 0.0
    for candidate in candidates[::-1] if metric == "precision" else candidates:
        is_counted, is_correct = rate_rows(metric, score, positive, candidate)
        tested = np.isin(np.arange(len(score)), testing)
        level = (1 - confidence_level) * level_share[candidate] + carried_level
        p_value = expected_p_value(target, is_counted & tested, is_correct, units, groups is not None, repetitions)
        if p_value <= level:
            accepted.append(candidate)
            carried_level = level
        else:
            carried_level = 0.0
    return sorted(accepted)


def expected_threshold(metric: str, *arguments: object, **named: object) -> float | None:
    """Return the accepted threshold that covers the most rows: the lowest for precision, otherwise the highest."""
    accepted = expected_accepted(metric, *arguments, **named)
    if not accepted:
        return None
    return accepted[0] if metric == "precision" else accepted[-1]


def expected_joint_thresholds(accepted: dict[str, list[float]]) -> dict[str, float]:
    """Choose a threshold per metric: precision and recall share one if possible; the one of npv is not higher."""
    precision = accepted.get("precision", [])
    recall = accepted.get("recall", [])
    npv = accepted.get("npv", [])
    chosen = {}
    if precision:
        chosen["precision"] = min(precision)
    if recall:
        chosen["recall"] = max(recall)
    shared = set(precision) & set(recall)
    if shared:
        chosen |= dict.fromkeys(("precision", "recall"), min(shared))
    npv_candidates = [threshold for threshold in npv if threshold <= chosen.get("precision", math.inf)]
    if npv_candidates:
        chosen["npv"] = max(npv_candidates)
    return chosen


def simulate_scored_rows(tied: bool, seed: int = 0, n: int = 240) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate scores, labels, and groups of one to six rows with correlated errors."""
    generator = np.random.default_rng(seed)
    groups = np.sort(generator.integers(0, n // 3, n))
    score = generator.normal(size=n) * 2
    score = np.round(score) if tied else score
    group_effect = generator.normal(size=n)[groups]
    return score, score + 0.5 * group_effect + 0.6 * generator.normal(size=n) > 0, generator.permutation(n)[groups]


@pytest.mark.parametrize(("grouped", "tied"), BOOLEAN_PAIRS)
@pytest.mark.parametrize("metric", METRICS)
def test_score_threshold_equals_sequential_tests(metric, grouped, tied):
    is_found = set()
    for seed, target in enumerate((0.6, 0.75, 0.85, 0.95)):
        score, positive, groups = simulate_scored_rows(tied, seed)
        options = {"groups": groups if grouped else None, "confidence_level": 0.8, "seed": seed}
        result = find_score_thresholds(score, positive, **options, **{metric: target})
        (score_threshold,) = result.thresholds
        assert score_threshold.threshold == expected_threshold(metric, score, positive, target=target, **options)
        assert (result.rows, result.positives) == (240, positive.sum())
        assert result.groups == (len(np.unique(groups)) if grouped else None)
        is_found.add(score_threshold.threshold is not None)
        if score_threshold.threshold is None:
            assert score_threshold.advice
            continue
        is_counted, is_correct = rate_rows(metric, score, positive, score_threshold.threshold)
        units = [np.flatnonzero(groups == name) for name in np.unique(groups)] if grouped else [np.arange(240)]
        assert score_threshold.observed == pytest.approx(
            np.mean([is_correct[unit[is_counted[unit]]].mean() for unit in units if is_counted[unit].any()])
        )
        assert (
            score_threshold.covered
            == ((score < score_threshold.threshold) if metric == "npv" else (score >= score_threshold.threshold)).sum()
        )
    assert True in is_found


STANDARD_ERRORS_MATTER = [  # metric, target, seed, rows, whether rows are grouped
    ("precision", 0.8, 1, 240, False),
    ("precision", 0.8, 2, 60, False),
    ("npv", 0.7, 3, 120, True),
]


@pytest.mark.parametrize(("metric", "target", "seed", "n_rows", "grouped"), STANDARD_ERRORS_MATTER)
def test_half_of_the_level_starts_at_the_score_with_the_most_standard_errors(metric, target, seed, n_rows, grouped):
    score, positive, groups = simulate_scored_rows(tied=False, seed=seed, n=n_rows)
    groups = groups if grouped else None
    result = find_score_thresholds(score, positive, groups=groups, confidence_level=0.8, seed=seed, **{metric: target})
    expected = expected_threshold(metric, score, positive, groups, target, 0.8, seed)
    assert expected is not None
    assert result.thresholds[0].threshold == expected


METRIC_NAMES = {"precision": "precision", "recall": "recall", "npv": "negative predictive value"}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_advice_equals_a_search_over_targets_and_sample_sizes(metric, grouped):
    score, positive, groups = simulate_scored_rows(tied=True, seed=2, n=60)
    n_units = len(np.unique(groups)) if grouped else 60
    unit = "groups" if grouped else "rows"
    n_without_threshold = 0
    for target, confidence in ((0.9, 0.95), (0.985, 0.8), (0.6, 1 - 1e-12)):
        options = {"groups": groups if grouped else None, "confidence_level": confidence, "seed": 3}
        (score_threshold,) = find_score_thresholds(score, positive, **options, **{metric: target}).thresholds
        if score_threshold.threshold is not None:
            continue

        def is_found(rate: float, repetitions: int, test_options: dict = options) -> bool:
            found = expected_accepted(metric, score, positive, target=rate, **test_options, repetitions=repetitions)
            return bool(found)

        highest = next((percent for percent in range(99, 0, -1) if is_found(percent / 100, 1)), None)
        repetitions = next(
            (repetitions for repetitions in (2, 3, 4, 6, 8, 12, 16, 24, 32) if is_found(target, repetitions)), None
        )
        lines = []
        if highest is not None:
            lines.append(f"highest {METRIC_NAMES[metric]} .* {highest}%")
        if repetitions is None:
            lines.append(f"32 times .*{unit} .*not suffice")
        else:
            n_repeated = repetitions * n_units
            lines.append(rf" {n_repeated:,} {unit} .*suffice; .* {n_units:,}\.")
        assert_matches(score_threshold.advice, lines)
        n_without_threshold += 1
    assert n_without_threshold


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("metrics", [METRICS, *combinations(METRICS, 2)], ids=" ".join)
def test_joint_thresholds_are_chosen_from_the_accepted_ones(metrics, grouped):
    n_shared = 0
    for seed, targets in enumerate(((0.6, 0.6, 0.9), (0.7, 0.8, 0.6), (0.93, 0.9, 0.75), (0.8, 0.5, 0.995))):
        score, positive, groups = simulate_scored_rows(tied=seed > 1, seed=seed)
        target_of_metric = {
            metric: target for metric, target in zip(METRICS, targets, strict=True) if metric in metrics
        }
        options = {"groups": groups if grouped else None, "seed": seed}
        result = find_score_thresholds(score, positive, **options, **target_of_metric, confidence_level=0.7)
        accepted = {
            metric: expected_accepted(
                metric, score, positive, target=target, confidence_level=1 - 0.3 / len(target_of_metric), **options
            )
            for metric, target in target_of_metric.items()
        }
        chosen = expected_joint_thresholds(accepted)
        thresholds = {item.metric: item.threshold for item in result.thresholds}
        assert thresholds == dict.fromkeys(target_of_metric) | chosen
        assert {item.metric: item.target for item in result.thresholds} == target_of_metric
        for item in result.thresholds:
            assert bool(item.advice) == (not accepted[item.metric])
        low = chosen.get("npv" if "npv" in target_of_metric else "recall")
        if low is None or "precision" not in chosen:
            assert (result.review, result.review_rows) == (None, 0)
            continue
        high = chosen["precision"]
        assert result.review == (min(low, high), high)
        assert result.review_rows == sum(low <= item < high for item in score.tolist())
        n_shared += chosen["precision"] == chosen.get("recall")
    if not grouped and {"precision", "recall"} <= set(metrics):
        assert n_shared


def threshold_summary(result: ScoreThresholds) -> list:
    return [(item.metric, item.threshold, item.observed) for item in result.thresholds]


@pytest.mark.parametrize("tied", [False, True])
def test_joint_thresholds_share_the_level_and_do_not_depend_on_order_or_copies(tied):
    targets = {"precision": 0.8, "npv": 0.8, "confidence_level": 0.8}
    score, positive, groups = simulate_scored_rows(tied)
    joint = find_score_thresholds(score, positive, groups=groups, **targets)
    for metric, threshold, _ in threshold_summary(joint):
        expected = expected_threshold(metric, score, positive, groups, 0.8, 1 - 0.2 / 2, 1)
        # the threshold of npv is limited to the threshold of precision
        assert threshold == expected or (metric == "npv" and expected > threshold)
    order = np.random.default_rng(3).permutation(len(score))
    doubled = np.repeat(order, 2)
    for rows in (order, doubled):
        repeated = find_score_thresholds(score[rows], positive[rows], groups=groups[rows], **targets)
        assert threshold_summary(repeated) == threshold_summary(joint)
        assert repeated.curve["precision"].to_list() == pytest.approx(joint.curve["precision"].to_list())
        assert repeated.review == joint.review
        assert repeated.review_rows == joint.review_rows * len(rows) / len(score)


def test_curve_has_precision_and_recall_at_each_score():
    score, positive, _ = simulate_scored_rows(tied=True)
    curve = find_score_thresholds(score, positive, precision=0.6).curve
    assert curve["threshold"].to_list() == sorted(set(score.tolist()), reverse=True)

    for threshold, recall, precision in curve.select("threshold", "recall", "precision").iter_rows():
        above = score >= threshold
        assert (recall, precision) == pytest.approx((above[positive].mean(), positive[above].mean()))


def test_curve_of_many_scores_has_400_points():
    score = np.random.default_rng(0).permutation(1001) / 8
    result = find_score_thresholds(score, score > 60, precision=0.5)
    threshold = result.curve["threshold"].to_numpy()
    assert len(threshold) == len(set(threshold)) == 400
    assert (threshold[0], threshold[-1]) == (score.max(), score.min())
    assert (np.isin(threshold, score) & (np.diff(threshold, prepend=np.inf) < 0)).all()
    assert set(-np.diff(threshold)) == {2 / 8, 3 / 8}  # every second or third score

    for n, points in ((400, 400), (401, 400)):
        smaller_result = find_score_thresholds(np.arange(float(n)), np.arange(n) > 200, precision=0.5)
        assert len(smaller_result.curve) == points


@pytest.mark.parametrize("grouped", [False, True])
def test_score_thresholds_need_eight_rows_or_groups(grouped):
    score = np.arange(16) / 3
    positive = np.arange(16) > 7
    groups = np.arange(16) // 2 if grouped else None
    selected_rows = np.arange(16) if grouped else np.arange(4, 12)  # eight groups, or eight rows
    enough = find_score_thresholds(score[selected_rows], positive[selected_rows], groups=groups, precision=0.5)
    assert enough.rows == len(selected_rows)

    fewer = selected_rows[:-2] if grouped else selected_rows[:-1]
    message = f"^7 labelled {'groups' if grouped else 'rows'} .* 8$"
    with pytest.raises(InputError, match=message):
        find_score_thresholds(
            score[fewer], positive[fewer], groups=None if groups is None else groups[fewer], precision=0.5
        )


def test_description_and_json_of_score_thresholds():
    common_fields = {"confidence": 0.95, "rows": 2000, "positives": 900, "curve": pl.DataFrame({"recall": [0.5]})}
    precision = ScoreThreshold(metric="precision", target=0.9, threshold=2.5, covered=1500, observed=0.923)
    npv = ScoreThreshold(metric="npv", target=0.985, threshold=-1.25, covered=250, observed=1.0)
    recall = ScoreThreshold(metric="recall", target=0.8, threshold=None, advice=("More rows.", "Or fewer."))
    precision_only = ScoreThresholds(groups=None, thresholds=(precision,), review=None, review_rows=0, **common_fields)
    of_precision = r"^Threshold 2\.5 .*precision .*90%: 1,500 of 2,000 rows \(75\.0%\) .*above.*precision: 92\.3%\.$"
    of_recall = r"^No threshold .*recall .*80%\.$"
    assert_matches(
        precision_only.describe(),
        [of_precision, r"95% confidence at least 90% .*at or above 2\.5 .*positive, .*new rows"],
    )

    all_three = ScoreThresholds(
        groups=1200, thresholds=(precision, recall, npv), review=(-1.25, 2.5), review_rows=250, **common_fields
    )
    rate_of_groups = (
        r"^300 .*1,200 groups .*900 .*--seed .*macro average.* above .*precision\..* positive .*recall\..* below "
        r".*negative predictive value\.$"
    )
    expected = [
        of_precision,
        of_recall,
        r"^More rows\.$",
        r"^Or fewer\.$",
        r"^Threshold -1\.25 .*negative predictive value .*98\.5%: 250 of 2,000 rows \(12\.5%\) .*below.*: 100\.0%\.$",
        r"95% confidence all .*90% .*at or above 2\.5 .*positive; .*98\.5% .*below -1\.25 .*negative, .*new groups",
        rate_of_groups,
        r"-1\.25 .*below 2\.5: 250 of 2,000 rows \(12\.5%\).*lower .*negative .*higher .*positive",
    ]
    assert_matches(all_three.describe(), expected)

    without_precision = ScoreThresholds(
        groups=None, thresholds=(recall,), review=(2.5, 2.5), review_rows=0, **common_fields
    )
    no_review = r"^No row .*review: 2\.5 .*negative .*positive"
    assert_matches(without_precision.describe(), [of_recall, r"^More rows\.$", r"^Or fewer\.$", no_review])
    assert json.loads(json.dumps(all_three.to_dict())) == {
        "confidence": 0.95,
        "rows": 2000,
        "groups": 1200,
        "positives": 900,
        "thresholds": [
            {"metric": "precision", "target": 0.9, "threshold": 2.5, "covered": 1500, "observed": 0.923, "advice": []},
            {
                "metric": "recall",
                "target": 0.8,
                "threshold": None,
                "covered": 0,
                "observed": None,
                "advice": ["More rows.", "Or fewer."],
            },
            {"metric": "npv", "target": 0.985, "threshold": -1.25, "covered": 250, "observed": 1.0, "advice": []},
        ],
        "review": [-1.25, 2.5],
        "review_rows": 250,
        "curve": {"recall": [0.5]},
    }


VALID_ARGUMENTS = {"score": np.arange(8.0), "positive": np.arange(8) > 3, "precision": 0.5}
INVALID_ARGUMENTS = {
    "no target": ({"precision": None}, "target: .*precision.*recall.*npv"),
    "a target of 1": ({"recall": 1.0}, r"recall .*1\.0; .*above 0 .*below 1"),
    "a target of 0": ({"npv": 0.0}, r"npv .*0\.0; .*above 0 .*below 1"),
    "a confidence level of 1": ({"confidence_level": 1.0}, r"confidence_level is 1\.0;"),
    "a confidence level of 0": ({"confidence_level": 0.0}, r"confidence_level is 0\.0;"),
    "a score of two axes": (
        {"score": np.ones((2, 4)), "positive": np.ones((2, 4), bool)},
        r"they are \(2, 4\) and",
    ),
    "fewer labels": ({"positive": np.arange(7) > 3}, r"they are \(8,\) and \(7,\)"),
    "labels as numbers": ({"positive": np.arange(8) % 2}, "positive bool"),
    "fewer groups": ({"groups": np.arange(7)}, r"groups .*shape of score, \(8,\); .*\(7,\)"),
    "a score of infinity": ({"score": np.r_[np.inf, np.arange(7.0)]}, "not finite"),
    "positive rows alone": ({"positive": np.ones(8, bool)}, "one kind"),
    "negative rows alone": ({"positive": np.zeros(8, bool)}, "one kind"),
}


@pytest.mark.parametrize(("changes", "message"), INVALID_ARGUMENTS.values(), ids=INVALID_ARGUMENTS)
def test_invalid_arrays_and_targets_are_rejected(changes, message):
    with pytest.raises(InputError, match=message):
        find_score_thresholds(**VALID_ARGUMENTS | changes)


def number_pairs(text: str) -> np.ndarray:
    """Return the pairs of numbers in an attribute of SVG, shape (n, 2)."""
    return np.array(re.findall(r"-?[\d.]+(?:e-?\d+)?", text), dtype=float).reshape(-1, 2)


def test_figure_draws_the_curve_and_one_point_per_threshold():
    score, positive, _ = simulate_scored_rows(tied=False)
    targets = {"precision": 0.9, "recall": 0.85, "npv": 0.7}
    result = find_score_thresholds(score, positive, confidence_level=0.8, **targets)
    with_threshold = [item for item in result.thresholds if item.threshold is not None]
    assert len({item.threshold for item in with_threshold}) > 1

    without_threshold = replace(with_threshold[0], metric="recall", threshold=None)
    svg = ElementTree.fromstring(precision_recall_svg(replace(result, thresholds=(*with_threshold, without_threshold))))
    marks = {item.get("class"): item for item in svg.iter() if "role-mark" in (item.get("class") or "")}
    (line,) = next(group for name, group in marks.items() if name.startswith("mark-line"))
    curve = result.curve.sort("threshold")
    expected = np.column_stack([480 * curve["recall"].to_numpy(), 300 - 300 * curve["precision"].to_numpy()])
    np.testing.assert_allclose(number_pairs(line.get("d")), expected, atol=0.01)
    assert line.get("stroke") == LIGHT["mrp"]

    points = list(next(group for name, group in marks.items() if name.startswith("mark-symbol")))
    colors = {item.get("fill") for item in points}
    assert len(colors) == len(points) == len(with_threshold)
    assert colors <= {LIGHT[name] for name in ("isotonic", "platt", "other")}

    positions = sorted(number_pairs(item.get("transform"))[0].tolist() for item in points)
    expected_points = [
        ((score >= item.threshold)[positive].mean(), positive[score >= item.threshold].mean())
        for item in with_threshold
    ]
    np.testing.assert_allclose(
        positions, sorted([480 * recall, 300 - 300 * precision] for recall, precision in expected_points), atol=4
    )

    texts = {item.text for item in svg.iter() if item.tag.endswith("text")}
    assert any(text.startswith("Precision and recall") for text in texts if text)
    legend = {
        f"{METRIC_NAMES[item.metric]} at least {100 * item.target:g}%: {item.threshold:g}" for item in result.thresholds
    }
    assert legend | {"Threshold for", "recall", "precision", "100%"} <= texts
