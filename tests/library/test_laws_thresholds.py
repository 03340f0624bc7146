"""Thresholds by their definitions: which rows a guarantee uses, with weights and groups, and thresholds on a score."""

import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

from relmap import ReliabilityMap
from relmap.io.rows import PredictedRows
from relmap.maps.reliability_map import FittedMap
from relmap.routing.score_thresholds import ScoreThresholds, find_score_thresholds
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
    weight, group = WEIGHT if weighted else None, GROUP if grouped else None
    n = len(GROUP)
    rows = PredictedRows(None, None, np.zeros(n, dtype=int), None, group, None, weight)
    generator, counts, by_hand = np.random.default_rng(1), np.zeros(n), np.zeros(n)
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
    frame = maps.predictions(1200, shift=2.0, seed=3, per_group=3)
    if weighted:
        frame = frame.with_columns(inverse_probability=pl.Series(np.arange(1200) % 3 + 1.0))
    made = ReliabilityMap(variant="label_intercept", seed=4).fit(maps.predictions(150, shift=2.0))
    rows = maps.checked(frame, "group" if grouped else None)
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


def p_value_by_hand(target: float, of: np.ndarray, right: np.ndarray, units: list[np.ndarray], grouped: bool) -> float:
    """Binomial for rows; for groups, one over the largest capital of a bettor on the rates of groups."""
    if not grouped:
        n = int(of.sum())
        return float(binom.cdf(n - int((of & right).sum()), n, 1 - target)) if n else 1.0
    bets = np.geomspace(0.01, 0.98, 24) / target
    capital, most = np.ones(24), 1.0
    for unit in units:
        rows = unit[of[unit]]
        if len(rows):
            capital = capital * (1 + bets * (right[rows].mean() - target))
            most = max(most, capital.mean())
    return 1 / most


def threshold_by_hand(
    metric: str,
    score: np.ndarray,
    positive: np.ndarray,
    groups: np.ndarray | None,
    target: float,
    confidence: float,
    seed: int,
) -> float | None:
    """A quarter of the units fixes candidates and where the level goes; the others test them, one after another."""
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
    accepted, carried = [], 0.0
    for candidate in candidates[::-1] if metric == "precision" else candidates:
        of, right = counted(metric, score, positive, candidate)
        tested = np.isin(np.arange(len(score)), testing)
        level = (1 - confidence) * share[candidate] + carried
        passes = bool(p_value_by_hand(target, of & tested, right, units, groups is not None) <= level)
        carried = level if passes else 0.0
        accepted += [candidate] * passes
    if not accepted:
        return None
    return min(accepted) if metric == "precision" else max(accepted)


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
