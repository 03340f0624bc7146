"""Cuts on reliability: worked by hand, against other people's binomial tests, and their guarantees in simulation."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from tasks.maps.document import MapDocument
from tasks.maps.thresholds import (
    Cut,
    Thresholds,
    cut_at_coverage,
    find_cuts,
    grid,
    independent_rows,
    rejected_in_turn,
)
from tasks.predictions.rows import PredictedRows
from tasks.protocol.errors import BadInput
from tests.maps import document, held_out

DRAWS = 400
SHARE, WORST = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])  # rows, and wrong ones at rank 0, of each label
EVENLY = np.linspace(0, 1, 101)
LEVELS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.booleans()), min_size=1, max_size=60)
SHARES = st.sampled_from(["0.05", ".3", "0.5", "0.7", "1", "1.0"])


def with_quantiles(quantiles: np.ndarray) -> MapDocument:
    return held_out(quantiles=tuple(np.maximum.accumulate(quantiles).tolist()))


def rows_of(reliability, right, decision=None):
    """Reliability, decision and correct, as the functions take them."""
    r, z = np.array(reliability, dtype=float), np.array(right, dtype=bool)
    return r, np.zeros(len(r), dtype=int) if decision is None else np.array(decision), z


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.1)), min_size=1, max_size=20))
def test_what_is_rejected_in_turn_is_a_loop_over_hypotheses(pairs):
    expected, before = [], 0.0
    for p, own in pairs:
        before = own + before if p <= own + before else 0.0
        expected.append(before)
    p, levels = np.array(pairs).T
    assert rejected_in_turn(np.stack([p, p]), np.stack([levels, levels])).tolist() == [expected] * 2


@settings(deadline=None, max_examples=30)
@given(LEVELS, st.sampled_from([0.5, 0.7, 0.9]), st.sampled_from([0.6, 0.8, 0.95]))
def test_cuts_are_those_of_a_loop_of_binomial_tests(rows, target, confidence):
    level, decision, right = (np.array(column) for column in zip(*rows, strict=True))
    r, _, z = rows_of(level / 20, right)
    doc = with_quantiles(np.round(EVENLY * 20) / 20)  # five quantiles in one place
    thresholds = find_cuts(doc, r, decision, z, target=target, confidence=confidence)
    able = [k for k in set(decision) if target ** np.count_nonzero(decision == k) <= 1 - confidence + 1e-12]
    for cut in (thresholds.overall, *thresholds.labels):
        own = np.full(len(r), True) if cut.label is None else decision == cut.label
        own_level = (1 - confidence) / (1 if cut.label is None else max(1, len(able)))
        best, before = (None, 0.0), 0.0
        for place, share in zip(*grid(doc, target), strict=True):
            kept = z[own & (r >= place)]
            p = binomtest(int(kept.sum()), len(kept), target, alternative="greater").pvalue if len(kept) else 1.0
            before = before + share * own_level
            before = before if p <= before and (cut.label is None or cut.label in able) else 0.0
            best = (place, before) if before else best
        assert cut.cut == best[0]
        assert (cut.why is None) == (cut.cut is not None)
        if cut.cut is not None:
            kept = z[own & (r >= cut.cut)]
            assert (cut.automatic, cut.accuracy) == (len(kept), kept.mean())
            test = binomtest(int(kept.sum()), len(kept), alternative="greater")
            assert cut.lower_bound == pytest.approx(test.proportion_ci(1 - best[1], method="exact").low, abs=1e-9)
            assert cut.lower_bound >= target - 1e-9


@settings(deadline=None, max_examples=30)
@given(LEVELS, SHARES)
def test_a_cut_at_a_coverage_takes_no_more_and_bounds_exactly(rows, coverage):
    level, decision, right = (np.array(column) for column in zip(*rows, strict=True))
    r, _, z = rows_of(level / 20, right)
    most = int(round(float(coverage) * 1000) * len(r) // 1000)
    if most == 0:
        with pytest.raises(BadInput, match="less than one"):
            cut_at_coverage(r, decision, z, coverage=coverage)
        return
    thresholds = cut_at_coverage(r, decision, z, coverage=coverage)
    overall, labels = thresholds.overall, thresholds.labels
    whole = [value for value in np.unique(r) if np.count_nonzero(r >= value) <= most]  # ties are not parted
    assert overall.automatic == (np.count_nonzero(r >= min(whole)) if whole else 0)
    with_rows = [cut for cut in labels if cut.cut is not None]
    assert sum(cut.automatic for cut in labels) == overall.automatic
    for cut in [overall, *with_rows] if overall.automatic else []:
        kept = z[(r >= overall.cut) & ((decision == cut.label) if cut.label is not None else True)]
        level = 0.05 / (1 if cut.label is None else len(with_rows))
        test = binomtest(int(kept.sum()), len(kept), alternative="greater")
        assert cut.lower_bound == pytest.approx(test.proportion_ci(1 - level, method="exact").low, abs=1e-9)


# The guarantee, in simulation: a row of rank 0 to 1 is wrong with WORST * (1 - rank), and the map says something else
WORLDS = {  # what the map says at a rank, and the rank from which it says so much
    "the map is not sure enough": (np.square, np.sqrt),
    "the map is too sure": (np.sqrt, np.square),
    "round numbers": (lambda rank: np.round(rank * 20) / 20, lambda cut: max(np.ceil(cut * 20) - 0.5, 0) / 20),
}


def drawn(says, n, generator):
    """Reliability, decision and correct of `n` rows."""
    decision, rank = generator.choice(3, n, p=SHARE), generator.random(n)
    return says(rank), decision, generator.random(n) < 1 - WORST[decision] * (1 - rank)


def accuracy(rank_of, cut: Cut) -> float:
    """The true accuracy of the decisions at or above a cut."""
    return 1 - (WORST @ SHARE if cut.label is None else WORST[cut.label]) * (1 - rank_of(cut.cut)) / 2


def most_misses(delta: float) -> float:
    return DRAWS * delta + 3 * np.sqrt(DRAWS * delta * (1 - delta))


def misses(thresholds: Thresholds, wrong) -> np.ndarray:
    """Whether there is an overall cut, whether it is `wrong`, and whether that of any label is."""
    labels = [cut for cut in thresholds.labels if cut.cut is not None]
    overall = thresholds.overall.cut is not None
    return np.array([overall, overall and wrong(thresholds.overall), any(map(wrong, labels))])


@pytest.mark.parametrize("name", WORLDS)
def test_the_target_is_missed_no_more_often_than_stated(name):
    generator, delta, target, (says, rank_of) = np.random.default_rng(1), 0.1, 0.9, WORLDS[name]
    doc, counts = with_quantiles(np.quantile(drawn(says, 2000, generator)[0], EVENLY)), np.zeros(3)
    for _ in range(DRAWS):
        thresholds = find_cuts(doc, *drawn(says, 1000, generator), target=target, confidence=1 - delta)
        counts += misses(thresholds, lambda cut: accuracy(rank_of, cut) < target)
    assert (counts[1:] <= most_misses(delta)).all()
    assert counts[0] > 0.9 * DRAWS  # it is not by silence that the target is met


def test_the_target_is_missed_no_more_often_where_every_cut_just_misses_it():
    generator, delta, target = np.random.default_rng(2), 0.1, 0.9
    doc, counts = with_quantiles(EVENLY), np.zeros(3)
    for _ in range(DRAWS):
        decision, right = generator.choice(3, 800, p=SHARE), generator.random(800) < target - 1e-9
        thresholds = find_cuts(doc, generator.random(800), decision, right, target=target, confidence=1 - delta)
        counts += misses(thresholds, lambda _: True)
    assert (counts > 0).all()
    assert (counts <= most_misses(delta)).all()


@pytest.mark.parametrize("name", ["the map is too sure", "round numbers"])
def test_the_bound_at_a_coverage_is_wrong_no_more_often_than_stated(name):
    generator, delta, (says, rank_of), counts = np.random.default_rng(3), 0.1, WORLDS[name], np.zeros(3)
    for _ in range(DRAWS):
        thresholds = cut_at_coverage(*drawn(says, 600, generator), coverage="0.6", confidence=1 - delta)
        counts += misses(thresholds, lambda cut: accuracy(rank_of, cut) < cut.lower_bound)
    assert (counts[1:] <= most_misses(delta)).all()
    assert name == "round numbers" or counts[1] > delta * DRAWS / 3  # the bound is no wider than it has to be


@settings(max_examples=30)
@given(st.lists(st.integers(0, 20), min_size=101, max_size=101), st.sampled_from([0.2, 0.9, 0.999]))
def test_the_grid_shares_the_whole_level_over_falling_cuts(levels, target):
    quantiles = np.sort(levels) / 20
    cuts, shares = grid(with_quantiles(quantiles), target)
    assert (np.diff(cuts) < 0).all()
    assert cuts[-1] == 0
    assert shares.sum() == pytest.approx(1)
    # whoever computes a tied reliability with other roundings is on the same side of the cut
    assert np.abs(cuts[:-1, None] - quantiles).min(initial=1) > 1e-10


def test_half_of_the_level_starts_where_the_map_is_surest_and_half_at_every_twentieth():
    quantiles = np.sqrt(EVENLY)
    cuts, shares = grid(with_quantiles(quantiles), 0.8)
    above = quantiles >= cuts[:, None]
    surest = (np.mean(quantiles * above, axis=1) / above.mean(axis=1) - 0.8) * np.sqrt(above.sum(axis=1) - 1)
    evenly = shares - 0.5 * (np.arange(101) == surest.argmax())
    assert evenly == pytest.approx(0.025 * (np.arange(101) % 5 == 0) * (np.arange(101) > 0))


def test_rows_that_all_tie_cannot_be_parted():
    tied = cut_at_coverage(*rows_of([0.9] * 30, [True] * 30), coverage="0.5")
    assert (tied.overall.cut, tied.overall.automatic) == (None, 0)
    assert "tie" in tied.in_words()[0]
    certain = find_cuts(with_quantiles(np.full(101, 0.9)), *rows_of([0.9] * 300, [True] * 300), target=0.9)
    assert certain.overall.automatic == 300


@pytest.mark.parametrize(
    ("r", "right", "asked", "why"),
    [
        ([0.9] * 20, [True] * 20, {"target": 0.95}, "20 rows are too few; it takes 59 even if all are correct"),
        (np.linspace(0, 1, 500), np.arange(500) % 2, {"target": 0.95}, "less than 95%"),
        (
            np.linspace(0, 1, 100),
            np.arange(100) != 50,
            {"target": 0.985, "confidence": 0.75},
            "not enough to be sure of",
        ),
        ([0.5] * 90, [False] * 90, {"target": 0.95}, "0.0% of 90 rows"),
    ],
)
def test_where_there_is_no_cut_it_is_said_why(r, right, asked, why):
    assert why in find_cuts(with_quantiles(EVENLY), *rows_of(r, right), **asked).overall.why


def test_labels_share_the_chance_of_a_miss():
    generator = np.random.default_rng(1)
    doc, r, right = with_quantiles(EVENLY), generator.random(900), generator.random(900) < 0.97
    decision = np.arange(900) % 3
    for k, cut in enumerate(find_cuts(doc, r, decision, right, target=0.9, confidence=0.94).labels):
        own = decision == k
        alone = find_cuts(doc, r[own], decision[own], right[own], target=0.9, confidence=0.98).overall
        assert cut.cut is not None
        assert (cut.cut, cut.lower_bound) == (alone.cut, pytest.approx(alone.lower_bound))


def test_words_and_json_say_it_plainly():
    generator = np.random.default_rng(0)
    r = generator.random(4000)
    rows = rows_of(r, generator.random(4000) < r**0.05, generator.integers(0, 9, 4000))
    target = find_cuts(with_quantiles(EVENLY), *rows, target=0.95)
    for thresholds in (target, cut_at_coverage(*rows, coverage="0.62")):
        lines = thresholds.in_words([f"name {k}" for k in range(9)])
        assert len(lines) <= 10
        assert "as they are: those with a reliability of at least" in lines[0]
        assert "With 95% confidence at least 9" in lines[1]
        promised = float(re.search(r"at least ([\d.]+)% of such", lines[1])[1])
        assert promised <= 100 * thresholds.overall.lower_bound < promised + 5
        most = sorted(np.argsort(-np.bincount(rows[1]), kind="stable")[:5])
        assert [line.split(":")[0] for line in lines if line.startswith("  name ")] == [f"  name {k}" for k in most]
        assert lines[-1] == "  and 4 more labels"
        assert str(thresholds.overall.cut) in lines[0]  # a cut that is copied is the cut that was tested
        plain = json.loads(json.dumps(thresholds.as_json(), allow_nan=False))
        assert plain["overall"]["cut"] == thresholds.overall.cut
        assert [cut["label"] for cut in plain["labels"]] == list(range(9))


def test_one_row_of_each_group_is_drawn_by_the_seed():
    group = np.array(["b", "a", "b", "c", "a", "b"])
    rows = PredictedRows(None, None, np.zeros(6, dtype=int), None, group)
    draws = [independent_rows(rows, seed)[0] for seed in range(300)]
    assert all(sorted(group[kept]) == ["a", "b", "c"] and (np.diff(kept) > 0).all() for kept in draws)
    assert (independent_rows(rows, 7)[0] == draws[7]).all()
    taken = np.bincount(np.concatenate(draws), minlength=6) / 300
    assert taken == pytest.approx(np.array([1 / 3, 1 / 2, 1 / 3, 1, 1 / 2, 1 / 3]), abs=0.1)


BOTH = {"target": 0.9}, {"coverage": "1"}
REFUSED = [
    *((1, {"target": target}, r"such as 0\.95") for target in (0.0, 1.0, -0.1, np.nan)),
    *((1, how | {"confidence": share}, "confidence") for share in (0.0, 1.0, np.nan) for how in BOTH),
    *((1, {"coverage": text}, r"such as 0\.7") for text in ("0.0", "1.1", "-0.5", "70%", "", "nan", "1e-9", ".")),
    *((0, how, "no labelled row") for how in BOTH),
]


@pytest.mark.parametrize(("rows", "asked", "told"), REFUSED)
def test_what_no_cut_can_be_made_of_is_refused(rows, asked, told):
    some = rows_of([0.5] * rows, [True] * rows)
    with pytest.raises(BadInput, match=told):
        find_cuts(document(), *some, **asked) if "target" in asked else cut_at_coverage(*some, **asked)
