"""Thresholds by their definitions: which rows a guarantee uses, with weights and groups, and thresholds on a score."""

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
from relmap.errors import InputError
from relmap.io.rows import PredictedRows
from relmap.maps.reliability_map import FittedMap
from relmap.report.figure import LIGHT
from relmap.report.score import precision_recall_svg
from relmap.routing.score_thresholds import ScoreThreshold, ScoreThresholds, find_score_thresholds
from relmap.routing.thresholds import find_accuracy_thresholds, find_coverage_threshold, sample_independent_rows
from tests import maps

BOTH = list(product([False, True], repeat=2))  # weights, groups
SEEDS = 3000
GROUP = np.array([*"abcdefgh", *"bccdddeeeefffffg"])  # the first rows lie in groups in the order of their names
WEIGHT = np.random.default_rng(0).permutation(np.geomspace(1, 6, len(GROUP)))


def kept_by_hand(generator: np.random.Generator, weight: np.ndarray | None, group: np.ndarray | None) -> list[int]:
    """Draw rows by weight; then whole groups by their rows, if rows were drawn; then one row of each group."""
    rows = list(range(len(GROUP)))
    if weight is not None:
        rows = [row for row in rows if generator.random() < weight[row] / weight.max()]
    if group is None:
        return rows
    groups = {name: [row for row in rows if group[row] == name] for name in sorted({*group[rows].tolist()})}
    largest = max(map(len, groups.values()), default=1)
    if weight is not None:
        groups = {name: each for name, each in groups.items() if generator.random() < len(each) / largest}
    return [members[generator.integers(len(members))] for members in groups.values()]


@pytest.mark.parametrize(("weighted", "grouped"), BOTH)
def test_rows_of_a_guarantee_are_drawn_with_the_stated_chances(weighted, grouped):
    weight = WEIGHT if weighted else None
    group = GROUP if grouped else None
    n = len(GROUP)
    rows = PredictedRows(None, None, np.zeros(n, dtype=int), None, group, None, weight)
    generator = np.random.default_rng(1)
    counts = np.zeros(n)
    by_hand = np.zeros(n)
    for seed in range(SEEDS):
        kept, notes = sample_independent_rows(rows, seed)
        assert (np.diff(kept) > 0).all()
        assert len(notes) == weighted + grouped
        counts[kept] += 1
        by_hand[kept_by_hand(generator, weight, group)] += 1
    error = np.sqrt((counts + by_hand + 1) / SEEDS**2)
    assert (np.abs(counts - by_hand) / SEEDS < 4.5 * error).all()
    if not weighted and not grouped:
        assert (counts == SEEDS).all()


@pytest.mark.parametrize(("weighted", "grouped"), BOTH)
def test_a_cut_is_that_of_the_rows_that_are_drawn(weighted, grouped):
    frame = maps.make_predictions(1200, shift=2.0, seed=3, per_group=3)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(np.arange(1200) % 3 + 1.0))
    made = ReliabilityMap(variant="label_intercept", seed=4).fit(maps.make_predictions(150, shift=2.0))
    rows = maps.rows_of_frame(frame, "group" if grouped else None)
    reliability = FittedMap.from_document(made.document_)(rows).reliability
    kept, _ = sample_independent_rows(rows, 4)
    sample = reliability[kept], rows.decision[kept], rows.correct[kept]
    groups = "group" if grouped else None
    answer = made.thresholds(frame, groups=groups, target_accuracy=0.7, confidence=0.8).to_dict()
    assert (
        answer["overall"]
        == find_accuracy_thresholds(made.document_, *sample, target=0.7, confidence=0.8).as_json()["overall"]
    )
    answer = made.thresholds(frame, groups=groups, coverage=0.4, confidence=0.8).to_dict()
    assert answer["labels"] == find_coverage_threshold(*sample, coverage="0.4", confidence=0.8).as_json()["labels"]
    assert len(kept) < 1200 or not (weighted or grouped)


METRICS = ("precision", "recall", "npv")


def counted(metric: str, score: np.ndarray, positive: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """The rows that a rate is of, and whether each row is right."""
    above = score >= threshold
    return {"precision": (above, positive), "recall": (positive, above), "npv": (~above, ~positive)}[metric]


def p_value_by_hand(
    target: float, of: np.ndarray, right: np.ndarray, units: list[np.ndarray], grouped: bool, times: int = 1
) -> float:
    """Binomial for rows; for groups, one over the largest capital of a bettor on the rates of groups."""
    if not grouped:
        n = times * int(of.sum())
        return float(binom.cdf(n - times * int((of & right).sum()), n, 1 - target)) if n else 1.0
    rates = [right[unit[of[unit]]].mean() for unit in units if of[unit].any()]
    bets = np.geomspace(0.01, 0.98, 24) / target
    capital = np.cumprod(1 + np.outer(np.tile(rates, times) - target, bets), axis=0).mean(axis=1)
    return 1 / capital.max(initial=1.0)


def accepted_by_hand(
    metric: str,
    score: np.ndarray,
    positive: np.ndarray,
    groups: np.ndarray | None,
    target: float,
    confidence: float,
    seed: int,
    rate: float | None = None,
    times: int = 1,
) -> list[float]:
    """A quarter of the units fixes candidates and where the level goes; the others test them, one after another.

    The hypothesis of a test is that the rate is at most the target, or at most another `rate`; each of the other units
    is used several `times`.
    """
    rate = target if rate is None else rate
    names = np.arange(len(score)) if groups is None else groups
    members = [np.flatnonzero(names == name) for name in np.unique(names)]
    order = np.random.default_rng(seed).permutation(len(members))
    n_planning = max(2, round(0.25 * len(members)))
    planning = np.concatenate([members[unit] for unit in order[:n_planning]])
    units = [members[unit] for unit in order[n_planning:]]
    testing = np.concatenate(units)
    quantiles = np.quantile(score[planning], np.linspace(0, 1, 100), method="inverted_cdf")
    candidates = sorted({float(f"{value:.6g}") for value in quantiles})
    share = dict.fromkeys(candidates, 0.0)
    if metric == "recall":
        share[candidates[0]] = 1.0
    else:
        starts = {candidates[int(at)] for at in np.linspace(0, len(candidates) - 1, min(10, len(candidates)))}
        for start in starts:
            share[start] += 0.5 / len(starts)
        evidence = []
        for candidate in candidates:
            of, right = counted(metric, score[planning], positive[planning], candidate)
            n = of.sum()
            evidence.append(((of & right).sum() - target * n) / math.sqrt(n + 1))
        share[candidates[int(np.argmax(evidence))]] += 0.5
    accepted = []
    carried = 0.0
    for candidate in candidates[::-1] if metric == "precision" else candidates:
        of, right = counted(metric, score, positive, candidate)
        tested = np.isin(np.arange(len(score)), testing)
        level = (1 - confidence) * share[candidate] + carried
        p_value = p_value_by_hand(rate, of & tested, right, units, groups is not None, times)
        passes = bool(p_value <= level)
        carried = level if passes else 0.0
        accepted += [candidate] * passes
    return sorted(accepted)


def threshold_by_hand(metric: str, *arguments: object, **named: object) -> float | None:
    """The accepted threshold that covers most rows: the lowest for the precision, the highest for the others."""
    accepted = accepted_by_hand(metric, *arguments, **named)
    if not accepted:
        return None
    return accepted[0] if metric == "precision" else accepted[-1]


def together_by_hand(accepted: dict[str, list[float]]) -> dict[str, float]:
    """The threshold of each metric: precision and recall share one if they can, npv lies at or below the precision."""
    precision, recall, npv = (accepted.get(metric, []) for metric in METRICS)
    chosen = {}
    if precision:
        chosen["precision"] = min(precision)
    if recall:
        chosen["recall"] = max(recall)
    shared = set(precision) & set(recall)
    if shared:
        chosen |= dict.fromkeys(("precision", "recall"), min(shared))
    below = [threshold for threshold in npv if threshold <= chosen.get("precision", math.inf)]
    if below:
        chosen["npv"] = max(below)
    return chosen


def scored_rows(tied: bool, seed: int = 0, n: int = 240) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, whether a row is positive, and groups of one to six rows that err together."""
    generator = np.random.default_rng(seed)
    groups = np.sort(generator.integers(0, n // 3, n))
    score = generator.normal(size=n) * 2
    score = np.round(score) if tied else score
    luck = generator.normal(size=n)[groups]
    return score, score + 0.5 * luck + 0.6 * generator.normal(size=n) > 0, generator.permutation(n)[groups]


@pytest.mark.parametrize(("grouped", "tied"), BOTH)
@pytest.mark.parametrize("metric", METRICS)
def test_a_threshold_on_a_score_is_that_of_a_loop_of_tests(metric, grouped, tied):
    found = set()
    for seed, target in enumerate((0.6, 0.75, 0.85, 0.95)):
        score, positive, groups = scored_rows(tied, seed)
        asked = {"groups": groups if grouped else None, "confidence": 0.8, "seed": seed}
        answer = find_score_thresholds(score, positive, **asked, **{metric: target})
        (only,) = answer.thresholds
        assert only.threshold == threshold_by_hand(metric, score, positive, target=target, **asked)
        assert (answer.rows, answer.positives) == (240, positive.sum())
        assert answer.groups == (len(np.unique(groups)) if grouped else None)
        found.add(only.threshold is not None)
        if only.threshold is None:
            assert only.advice
            continue
        of, right = counted(metric, score, positive, only.threshold)
        units = [np.flatnonzero(groups == name) for name in np.unique(groups)] if grouped else [np.arange(240)]
        assert only.observed == pytest.approx(
            np.mean([right[unit[of[unit]]].mean() for unit in units if of[unit].any()])
        )
        assert only.covered == ((score < only.threshold) if metric == "npv" else (score >= only.threshold)).sum()
    assert True in found


NAMES = {"precision": "precision", "recall": "recall", "npv": "negative predictive value"}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_without_a_threshold_the_advice_is_that_of_a_search_over_targets_and_sizes(metric, grouped):
    score, positive, groups = scored_rows(tied=True, seed=2, n=60)
    number = len(np.unique(groups)) if grouped else 60
    unit = "groups" if grouped else "rows"
    n_without = 0
    for target, confidence in ((0.9, 0.95), (0.985, 0.8), (0.6, 1 - 1e-12)):
        asked = {"groups": groups if grouped else None, "confidence": confidence, "seed": 3}
        (only,) = find_score_thresholds(score, positive, **asked, **{metric: target}).thresholds
        if only.threshold is not None:
            continue

        def is_found(rate: float, times: int, known: dict = asked | {"target": target}) -> bool:
            return bool(accepted_by_hand(metric, score, positive, **known, rate=rate, times=times))

        percents = [percent for percent in range(99, 0, -1) if percent / 100 < target]
        highest = next((percent for percent in percents if is_found(percent / 100, 1)), None)
        times = next((times for times in (2, 3, 4, 6, 8, 12, 16, 24, 32) if is_found(target, times)), None)
        lines = []
        if highest is not None:
            lines.append(f"The highest {NAMES[metric]} for which these rows have a threshold is {highest}%.")
        if times is None:
            lines.append(f"Even 32 times as many {unit} like these would not suffice.")
        else:
            lines.append(f"About {times * number:,} {unit} like these would suffice; there are {number:,}.")
        assert only.advice == tuple(lines)
        n_without += 1
    assert n_without


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("metrics", [METRICS, *combinations(METRICS, 2)], ids=" ".join)
def test_thresholds_for_several_targets_are_chosen_from_those_that_the_tests_accept(metrics, grouped):
    n_shared = 0
    for seed, targets in enumerate(((0.6, 0.6, 0.9), (0.7, 0.8, 0.6), (0.93, 0.9, 0.75), (0.8, 0.5, 0.995))):
        score, positive, groups = scored_rows(tied=seed > 1, seed=seed)
        given = {metric: target for metric, target in zip(METRICS, targets, strict=True) if metric in metrics}
        asked = {"groups": groups if grouped else None, "seed": seed}
        answer = find_score_thresholds(score, positive, **asked, **given, confidence=0.7)
        own = {
            metric: accepted_by_hand(metric, score, positive, target=target, confidence=1 - 0.3 / len(given), **asked)
            for metric, target in given.items()
        }
        chosen = together_by_hand(own)
        thresholds = {each.metric: each.threshold for each in answer.thresholds}
        assert thresholds == dict.fromkeys(given) | chosen
        assert {each.metric: each.target for each in answer.thresholds} == given
        for each in answer.thresholds:
            assert bool(each.advice) == (not own[each.metric])
        low = chosen.get("npv" if "npv" in given else "recall")
        if low is None or "precision" not in chosen:
            assert (answer.review, answer.review_rows) == (None, 0)
            continue
        high = chosen["precision"]
        assert answer.review == (min(low, high), high)
        assert answer.review_rows == sum(low <= each < high for each in score.tolist())
        n_shared += chosen["precision"] == chosen.get("recall")
    assert n_shared or grouped or not {"precision", "recall"} <= set(metrics)


def thresholds_of(answer: ScoreThresholds) -> list:
    return [(each.metric, each.threshold, each.observed) for each in answer.thresholds]


@pytest.mark.parametrize("tied", [False, True])
def test_several_targets_share_the_level_and_neither_order_nor_copies_of_rows_matter(tied):
    targets = {"precision": 0.8, "npv": 0.8, "confidence": 0.8}
    score, positive, groups = scored_rows(tied)
    together = find_score_thresholds(score, positive, groups=groups, **targets)
    for metric, threshold, _ in thresholds_of(together):
        own = threshold_by_hand(metric, score, positive, groups, 0.8, 1 - 0.2 / 2, 1)
        assert threshold == own or (metric == "npv" and own > threshold)  # it lies below that of the precision
    order = np.random.default_rng(3).permutation(len(score))
    twice = np.repeat(order, 2)
    for rows in (order, twice):
        again = find_score_thresholds(score[rows], positive[rows], groups=groups[rows], **targets)
        assert thresholds_of(again) == thresholds_of(together)
        assert again.curve["precision"].to_list() == pytest.approx(together.curve["precision"].to_list())
        assert again.review == together.review
        assert again.review_rows == together.review_rows * len(rows) / len(score)


def test_the_curve_holds_precision_and_recall_at_each_score():
    score, positive, _ = scored_rows(tied=True)
    curve = find_score_thresholds(score, positive, precision=0.6).curve
    assert curve["threshold"].to_list() == sorted(set(score.tolist()), reverse=True)
    for threshold, recall, precision in curve.select("threshold", "recall", "precision").iter_rows():
        above = score >= threshold
        assert (recall, precision) == pytest.approx((above[positive].mean(), positive[above].mean()))


def test_a_curve_of_many_scores_has_400_points_from_the_highest_to_the_lowest_score():
    score = np.random.default_rng(0).permutation(1001) / 8
    answer = find_score_thresholds(score, score > 60, precision=0.5)
    threshold = answer.curve["threshold"].to_numpy()
    assert len(threshold) == len(set(threshold)) == 400
    assert (threshold[0], threshold[-1]) == (score.max(), score.min())
    assert (np.isin(threshold, score) & (np.diff(threshold, prepend=np.inf) < 0)).all()
    assert set(-np.diff(threshold)) == {2 / 8, 3 / 8}
    for n, points in ((400, 400), (401, 400)):
        few = find_score_thresholds(np.arange(float(n)), np.arange(n) > 200, precision=0.5)
        assert len(few.curve) == points


@pytest.mark.parametrize("grouped", [False, True])
def test_eight_rows_or_groups_are_needed(grouped):
    score = np.arange(16) / 3
    positive = np.arange(16) > 7
    groups = np.arange(16) // 2 if grouped else None
    n = 16 if grouped else 8
    half = np.arange(16 - n, 16) if grouped else np.arange(4, 12)
    assert find_score_thresholds(score[half], positive[half], groups=groups, precision=0.5).rows == n
    fewer = half[:-1] if not grouped else half[:-2]
    message = f"^7 labelled {'groups' if grouped else 'rows'} are too few for a threshold; give at least 8$"
    with pytest.raises(InputError, match=message):
        find_score_thresholds(
            score[fewer], positive[fewer], groups=None if groups is None else groups[fewer], precision=0.5
        )


def test_the_answer_in_words_is_that_of_its_numbers():
    facts = {"confidence": 0.95, "rows": 2000, "positives": 900, "curve": pl.DataFrame({"recall": [0.5]})}
    precision = ScoreThreshold(metric="precision", target=0.9, threshold=2.5, covered=1500, observed=0.923)
    npv = ScoreThreshold(metric="npv", target=0.985, threshold=-1.25, covered=250, observed=1.0)
    recall = ScoreThreshold(metric="recall", target=0.8, threshold=None, advice=("More rows.", "Or fewer."))
    alone = ScoreThresholds(groups=None, thresholds=(precision,), review=None, review_rows=0, **facts)
    first = (
        "Threshold 2.5 for a precision of 90%: 1,500 of 2,000 labelled rows (75.0%) are at or above it. "
        "Observed precision: 92.3%."
    )
    assert alone.describe() == [
        first,
        "With 95% confidence at least 90% of the rows at or above it are positive, if new rows are independent "
        "and from the same distribution.",
    ]
    all_three = ScoreThresholds(
        groups=1200, thresholds=(precision, recall, npv), review=(-1.25, 2.5), review_rows=250, **facts
    )
    assert all_three.describe() == [
        first,
        "No threshold for a recall of 80%.",
        "More rows.",
        "Or fewer.",
        "Threshold -1.25 for a negative predictive value of 98.5%: 250 of 2,000 labelled rows (12.5%) are below it. "
        "Observed negative predictive value: 100.0%.",
        "With 95% confidence all of these hold: at least 90% of the rows at or above it are positive; at least 98.5% "
        "of the rows below it are negative, if new groups are independent and from the same distribution.",
        "All rows of the 1,200 groups are used. A rate is the mean of the rates of groups (macro average), so large "
        "groups count as much as small groups. Groups where a rate is undefined do not count in it.",
        "Review scores from -1.25 to below 2.5: 250 of 2,000 labelled rows (12.5%). Treat lower scores as negative and "
        "higher scores as positive.",
    ]
    without = ScoreThresholds(groups=None, thresholds=(recall,), review=(2.5, 2.5), review_rows=0, **facts)
    assert without.describe() == [
        "No threshold for a recall of 80%.",
        "More rows.",
        "Or fewer.",
        "No row needs a review: 2.5 separates negative from positive rows.",
    ]
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


ROWS = {"score": np.arange(8.0), "positive": np.arange(8) > 3, "precision": 0.5}
REFUSED = {
    "no target": ({"precision": None}, "give a target: a precision, a recall or an npv"),
    "a target of 1": ({"recall": 1.0}, "recall is 1.0; give a number above 0 and below 1"),
    "a target of 0": ({"npv": 0.0}, "npv is 0.0; give a number above 0 and below 1"),
    "a confidence of 1": ({"confidence": 1.0}, "confidence is 1.0; give"),
    "a confidence of 0": ({"confidence": 0.0}, "confidence is 0.0; give"),
    "a score of two axes": (
        {"score": np.ones((2, 4)), "positive": np.ones((2, 4), bool)},
        r"they are \(2, 4\) and",
    ),
    "fewer labels": ({"positive": np.arange(7) > 3}, r"they are \(8,\) and \(7,\)"),
    "labels as numbers": ({"positive": np.arange(8) % 2}, "positive bool"),
    "fewer groups": ({"groups": np.arange(7)}, r"groups must have the shape of score, \(8,\); it is \(7,\)"),
    "a score of infinity": ({"score": np.r_[np.inf, np.arange(7.0)]}, "not finite"),
    "positive rows alone": ({"positive": np.ones(8, bool)}, "all rows are of one kind"),
    "negative rows alone": ({"positive": np.zeros(8, bool)}, "all rows are of one kind"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_arrays_and_targets_that_cannot_be_used_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        find_score_thresholds(**ROWS | changes)


def numbers_of(text: str) -> np.ndarray:
    """The pairs of numbers in an attribute of SVG, shape (n, 2)."""
    return np.array(re.findall(r"-?[\d.]+(?:e-?\d+)?", text), dtype=float).reshape(-1, 2)


def test_the_figure_draws_the_curve_and_a_point_of_its_own_at_each_threshold():
    score, positive, _ = scored_rows(tied=False)
    targets = {"precision": 0.9, "recall": 0.85, "npv": 0.7}
    answer = find_score_thresholds(score, positive, confidence=0.8, **targets)
    found = [each for each in answer.thresholds if each.threshold is not None]
    assert len({each.threshold for each in found}) > 1
    without = replace(found[0], metric="recall", threshold=None)
    drawn = ElementTree.fromstring(precision_recall_svg(replace(answer, thresholds=(*found, without))))
    marks = {each.get("class"): each for each in drawn.iter() if "role-mark" in (each.get("class") or "")}
    (line,) = next(group for name, group in marks.items() if name.startswith("mark-line"))
    curve = answer.curve.sort("threshold")
    expected = np.column_stack([480 * curve["recall"].to_numpy(), 300 - 300 * curve["precision"].to_numpy()])
    np.testing.assert_allclose(numbers_of(line.get("d")), expected, atol=0.01)
    assert line.get("stroke") == LIGHT["mrp"]
    points = list(next(group for name, group in marks.items() if name.startswith("mark-symbol")))
    colours = {each.get("fill") for each in points}
    assert len(colours) == len(points) == len(found)
    assert colours <= {LIGHT[name] for name in ("isotonic", "platt", "other")}
    places = sorted(numbers_of(each.get("transform"))[0].tolist() for each in points)
    at = [((score >= each.threshold)[positive].mean(), positive[score >= each.threshold].mean()) for each in found]
    np.testing.assert_allclose(
        places, sorted([480 * recall, 300 - 300 * precision] for recall, precision in at), atol=4
    )
    texts = {each.text for each in drawn.iter() if each.tag.endswith("text")}
    legend = {f"{NAMES[each.metric]} at least {100 * each.target:g}%: {each.threshold:g}" for each in answer.thresholds}
    assert legend | {"Threshold for", "Precision and recall by score", "recall", "precision", "100%"} <= texts
