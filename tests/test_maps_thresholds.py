"""Cuts on reliability: worked by hand, against other people's binomial tests, and their guarantees in simulation."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binomtest

from tasks.maps.document import MapDocument
from tasks.maps.thresholds import (
    Thresholds,
    _grid,
    cut_at_coverage,
    fallback,
    fewest_rows,
    find_cuts,
    one_row_per_group,
)
from tasks.protocol.errors import BadInput
from tests.maps import document, held_out

DRAWS = 1000
SHARE = np.array([0.5, 0.3, 0.2])
SHIFT = np.array([0.8, 0.0, -0.8])
EVENLY = np.linspace(0, 1, 101)
LEVELS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.booleans()), min_size=1, max_size=60)
SHARES = st.sampled_from(["0.05", ".3", "0.5", "0.7", "1", "1.0"])


def with_quantiles(quantiles: np.ndarray) -> MapDocument:
    return held_out(quantiles=tuple(np.maximum.accumulate(quantiles).tolist()))


def rows_of(reliability, right, decision=None):
    """Reliability, decision and correct, as the functions take them."""
    r, z = np.array(reliability, dtype=float), np.array(right, dtype=bool)
    return r, np.zeros(len(r), dtype=int) if decision is None else np.array(decision), z


# By hand


def test_all_rows_meet_the_target_and_no_cut_is_needed():
    found = find_cuts(with_quantiles(EVENLY), *rows_of(np.linspace(0.05, 0.95, 200), [True] * 200), target=0.9)
    assert (found.overall.cut, found.overall.coverage, found.overall.accuracy) == (0, 1, 1)
    # the last cut inherits what all before it were accepted with; of the even starts, those of few rows were not
    assert 0.9 < found.overall.lower_bound < 0.05 ** (1 / 200)
    assert "100.0% of decisions" in found.in_words()[0]


def test_errors_below_a_reliability_put_the_cut_above_them():
    r = np.linspace(0, 1, 2001)
    found = find_cuts(with_quantiles(EVENLY), *rows_of(r, r >= 0.5), target=0.95).overall
    assert 0.45 < found.cut < 0.5
    assert found.automatic == np.count_nonzero(r >= found.cut)
    assert found.accuracy == np.mean(r[r >= found.cut] >= 0.5)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.1)), min_size=1, max_size=20))
def test_fallback_is_a_loop_over_hypotheses(pairs):
    expected, before = [], 0.0
    for p, own in pairs:
        before = own + before if p <= own + before else 0.0
        expected.append(before)
    p, levels = np.array(pairs).T
    assert fallback(p, levels).tolist() == expected
    assert fallback(np.stack([p, p]), np.stack([levels, levels])).tolist() == [expected] * 2


@pytest.mark.parametrize(("target", "level"), [(0.95, 0.05), (0.9, 0.0025), (0.5, 0.3)])
def test_fewest_rows_are_those_that_a_binomial_test_needs(target, level):
    n = fewest_rows(target, level)
    assert binomtest(n, n, target, alternative="greater").pvalue <= level
    assert binomtest(n - 1, n - 1, target, alternative="greater").pvalue > level


# Against an independent reference


@settings(deadline=None, max_examples=50)
@given(LEVELS, st.sampled_from([0.5, 0.7, 0.9]), st.sampled_from([0.6, 0.8, 0.95]))
def test_cuts_are_those_of_a_loop_of_binomial_tests(rows, target, confidence):
    level, decision, right = (np.array(column) for column in zip(*rows, strict=True))
    r, _, z = rows_of(level / 20, right)
    doc = with_quantiles(np.round(EVENLY * 20) / 20)  # five quantiles in one place
    found = find_cuts(doc, r, decision, z, target=target, confidence=confidence)
    able = [k for k in set(decision) if target ** np.count_nonzero(decision == k) <= 1 - confidence + 1e-12]
    for one in (found.overall, *found.labels):
        own = np.full(len(r), True) if one.label is None else decision == one.label
        own_level = (1 - confidence) / (1 if one.label is None else max(1, len(able)))
        best, before = (None, 0.0), 0.0
        for cut, share in zip(*_grid(doc, target), strict=True):
            kept = z[own & (r >= cut)]
            p = binomtest(int(kept.sum()), len(kept), target, alternative="greater").pvalue if len(kept) else 1.0
            before = before + share * own_level
            before = before if p <= before and (one.label is None or one.label in able) else 0.0
            best = (cut, before) if before else best
        assert one.cut == best[0]
        assert (one.why is None) == (one.cut is not None)
        if one.cut is not None:
            kept = z[own & (r >= one.cut)]
            assert (one.automatic, one.accuracy) == (len(kept), kept.mean())
            test = binomtest(int(kept.sum()), len(kept), alternative="greater")
            assert one.lower_bound == pytest.approx(test.proportion_ci(1 - best[1], method="exact").low, abs=1e-9)
            assert one.lower_bound >= target - 1e-9


@settings(deadline=None, max_examples=50)
@given(LEVELS, SHARES)
def test_a_cut_at_a_coverage_takes_no_more_and_bounds_exactly(rows, coverage):
    level, decision, right = (np.array(column) for column in zip(*rows, strict=True))
    r, _, z = rows_of(level / 20, right)
    most = int(round(float(coverage) * 1000) * len(r) // 1000)
    if most == 0:
        with pytest.raises(BadInput, match="less than one"):
            cut_at_coverage(r, decision, z, coverage=coverage)
        return
    found = cut_at_coverage(r, decision, z, coverage=coverage)
    whole = [value for value in np.unique(r) if np.count_nonzero(r >= value) <= most]  # ties are not parted
    assert found.overall.automatic == (np.count_nonzero(r >= min(whole)) if whole else 0)
    with_rows = [one for one in found.labels if one.cut is not None]
    assert sum(one.automatic for one in found.labels) == found.overall.automatic
    for one in [found.overall, *with_rows] if found.overall.automatic else []:
        kept = z[(r >= found.overall.cut) & ((decision == one.label) if one.label is not None else True)]
        level = 0.05 / (1 if one.label is None else len(with_rows))
        test = binomtest(int(kept.sum()), len(kept), alternative="greater")
        assert one.lower_bound == pytest.approx(test.proportion_ci(1 - level, method="exact").low, abs=1e-9)


# The guarantee, in simulation: what is true is known, and the map says something else


def true_accuracy(rank: np.ndarray, label: np.ndarray | int) -> np.ndarray:
    return expit(5.1 * rank - 0.2 + SHIFT[label])


WORLDS = {
    "the map is right": lambda p: p,
    "the map is too sure": lambda p: expit(logit(p) / 2 + 1.2),
    "round numbers": lambda p: np.round(p * 20) / 20,
}


class World:
    """Rows of known accuracy, and the true accuracy of all that lies at or above a cut."""

    def __init__(self, says, true=true_accuracy):
        rank = (np.arange(20_000) + 0.5) / 20_000
        self.says, self.true = says, true
        self.of_label = [self._ranked(rank, k) for k in range(3)]

    def _ranked(self, rank, label):
        accuracy = self.true(rank, label)
        reliability = self.says(accuracy)
        order = np.argsort(-reliability, kind="stable")
        return -reliability[order], np.r_[0, np.cumsum(accuracy[order])]

    def above(self, cut: float, label: int | None = None) -> float:
        labels = range(3) if label is None else [label]
        places = [np.searchsorted(self.of_label[k][0], -cut, side="right") for k in labels]
        mass = sum(SHARE[k] * place for k, place in zip(labels, places, strict=True))
        right = sum(SHARE[k] * self.of_label[k][1][place] for k, place in zip(labels, places, strict=True))
        return right / mass if mass else 1.0

    def document(self, generator) -> MapDocument:
        return with_quantiles(np.quantile(self.rows(2000, generator)[0], EVENLY))

    def rows(self, n, generator):
        decision = generator.choice(3, n, p=SHARE)
        accuracy = self.true(generator.random(n), decision)
        return self.says(accuracy), decision, generator.random(n) < accuracy


def most_misses(delta: float) -> float:
    return DRAWS * delta + 3 * np.sqrt(DRAWS * delta * (1 - delta))


def misses(found: Thresholds, wrong) -> np.ndarray:
    """Whether there is an overall cut, whether it is `wrong`, and whether that of any label is."""
    labels = [cut for cut in found.labels if cut.cut is not None]
    overall = found.overall.cut is not None
    return np.array([overall, overall and wrong(found.overall), any(map(wrong, labels))])


@pytest.mark.parametrize("name", WORLDS)
def test_the_target_is_missed_no_more_often_than_stated(name):
    generator, delta, target, world = np.random.default_rng(1), 0.1, 0.9, World(WORLDS[name])
    doc, counts = world.document(generator), np.zeros(3)
    for draw in range(DRAWS):
        rows = world.rows(500 + draw % 2 * 500, generator)
        found = find_cuts(doc, *rows, target=target, confidence=1 - delta)
        counts += misses(found, lambda cut: world.above(cut.cut, cut.label) < target)
    assert (counts[1:] <= most_misses(delta)).all()
    assert counts[0] > 0.9 * DRAWS  # it is not by silence that the target is met


def test_the_target_is_missed_no_more_often_where_every_cut_just_misses_it():
    generator, delta, target = np.random.default_rng(2), 0.1, 0.9
    doc, counts = with_quantiles(EVENLY), np.zeros(3)
    for _ in range(DRAWS):
        decision = generator.choice(3, 800, p=SHARE)
        right = generator.random(800) < target - 1e-9
        found = find_cuts(doc, generator.random(800), decision, right, target=target, confidence=1 - delta)
        counts += misses(found, lambda _: True)
    assert (counts > 0).all()
    assert (counts <= most_misses(delta)).all()


@pytest.mark.parametrize("name", ["the map is right", "round numbers"])
def test_the_bound_at_a_coverage_is_wrong_no_more_often_than_stated(name):
    generator, delta, world = np.random.default_rng(3), 0.1, World(WORLDS[name])
    counts = np.zeros(3)
    for _ in range(DRAWS):
        found = cut_at_coverage(*world.rows(600, generator), coverage="0.6", confidence=1 - delta)
        counts += misses(found, lambda cut: world.above(cut.cut, cut.label) < cut.lower_bound)
    assert (counts[1:] <= most_misses(delta)).all()
    assert name == "round numbers" or counts[1] > delta * DRAWS / 3  # the bound is no wider than it has to be


# The grid, ties, words and bad input


@given(st.lists(st.integers(0, 20), min_size=101, max_size=101), st.sampled_from([0.2, 0.9, 0.999]))
def test_the_grid_shares_the_whole_level_over_falling_cuts(levels, target):
    quantiles = np.sort(levels) / 20
    cuts, shares = _grid(with_quantiles(quantiles), target)
    assert (np.diff(cuts) < 0).all()
    assert cuts[-1] == 0
    assert shares.sum() == pytest.approx(1)
    # whoever computes a tied reliability with other roundings is on the same side of the cut
    assert np.abs(cuts[:-1, None] - quantiles).min(initial=1) > 1e-10


def test_half_of_the_level_starts_where_the_map_is_surest_and_half_at_every_twentieth():
    quantiles = np.sqrt(EVENLY)
    cuts, shares = _grid(with_quantiles(quantiles), 0.8)
    above = quantiles >= cuts[:, None]
    surest = (np.mean(quantiles * above, axis=1) / above.mean(axis=1) - 0.8) * np.sqrt(above.sum(axis=1) - 1)
    evenly = shares - 0.5 * (np.arange(101) == surest.argmax())
    assert evenly == pytest.approx(0.025 * (np.arange(101) % 5 == 0) * (np.arange(101) > 0))


def test_the_cut_does_not_depend_on_the_order_of_rows():
    generator = np.random.default_rng(0)
    rows = World(WORLDS["round numbers"]).rows(900, generator)
    shuffled = generator.permutation(900)
    again = [column[shuffled] for column in rows]
    doc = with_quantiles(EVENLY)
    assert find_cuts(doc, *rows, target=0.9) == find_cuts(doc, *again, target=0.9)
    assert cut_at_coverage(*rows, coverage="0.5") == cut_at_coverage(*again, coverage="0.5")


def test_rows_that_all_tie_cannot_be_parted():
    found = cut_at_coverage(*rows_of([0.9] * 30, [True] * 30), coverage="0.5")
    assert found.overall.cut is None
    assert found.overall.automatic == 0
    assert "tie" in found.in_words()[0]
    certain = find_cuts(with_quantiles(np.full(101, 0.9)), *rows_of([0.9] * 300, [True] * 300), target=0.9)
    assert certain.overall.automatic == 300


def test_where_there_is_no_cut_it_is_said_why():
    doc = with_quantiles(EVENLY)
    few = find_cuts(doc, *rows_of([0.9] * 20, [True] * 20), target=0.95)
    assert few.overall.why == "20 rows are too few; it takes 59 even if all are correct"
    wrong = find_cuts(doc, *rows_of(np.linspace(0, 1, 500), np.arange(500) % 2), target=0.95)
    assert "less than 95%" in wrong.overall.why
    close = find_cuts(doc, *rows_of(np.linspace(0, 1, 100), np.arange(100) != 50), target=0.985, confidence=0.75)
    assert "not enough to be sure of 98.5%" in close.overall.why
    hopeless = find_cuts(doc, *rows_of([0.5] * 90, [False] * 90), target=0.95)
    assert "0.0% of 90 rows" in hopeless.overall.why


def test_labels_of_few_rows_take_nothing_from_the_others():
    r, right = np.linspace(0, 1, 400), np.arange(400) % 97 > 0
    alone = find_cuts(with_quantiles(EVENLY), *rows_of(r, right), target=0.95).labels[0]
    rare = rows_of([*r, 0.5, 0.6], [*right, True, False], [*[0] * 400, 1, 2])
    found = find_cuts(with_quantiles(EVENLY), *rare, target=0.95)
    assert found.labels[0] == alone
    assert [one.cut for one in found.labels[1:]] == [None, None]


def test_labels_share_the_chance_of_a_miss():
    generator = np.random.default_rng(1)
    doc, r, right = with_quantiles(EVENLY), generator.random(900), generator.random(900) < 0.97
    decision = np.arange(900) % 3
    together = find_cuts(doc, r, decision, right, target=0.9, confidence=0.94).labels
    for k, one in enumerate(together):
        own = decision == k
        assert one.cut is not None
        alone = find_cuts(doc, r[own], decision[own], right[own], target=0.9, confidence=0.98)
        assert (one.cut, one.lower_bound) == (alone.labels[0].cut, pytest.approx(alone.labels[0].lower_bound))
        assert one.lower_bound == pytest.approx(alone.overall.lower_bound)


def test_words_and_json_say_it_plainly():
    generator = np.random.default_rng(0)
    r = generator.random(4000)
    rows = rows_of(r, generator.random(4000) < r**0.05, generator.integers(0, 9, 4000))
    for found in (
        find_cuts(with_quantiles(EVENLY), *rows, target=0.95),
        cut_at_coverage(*rows, coverage="0.62"),
    ):
        lines = found.in_words([f"name {k}" for k in range(9)])
        assert len(lines) <= 10
        assert "as they are: those with a reliability of at least" in lines[0]
        assert "With 95% confidence at least 9" in lines[1]
        promised = float(re.search(r"at least ([\d.]+)% of such", lines[1])[1])
        assert promised <= 100 * found.overall.lower_bound < promised + 5
        most = sorted(np.argsort(-np.bincount(rows[1]), kind="stable")[:5])
        assert [line.split(":")[0] for line in lines if line.startswith("  name ")] == [f"  name {k}" for k in most]
        assert lines[-1] == "  and 4 more labels"
        assert str(found.overall.cut) in lines[0]  # a cut that is copied is the cut that was tested
        plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
        assert plain["overall"]["cut"] == found.overall.cut
        assert [one["label"] for one in plain["labels"]] == list(range(9))


def test_one_row_of_each_group_is_drawn_by_the_seed():
    group = np.array(["b", "a", "b", "c", "a", "b"])
    draws = [one_row_per_group(group, seed) for seed in range(300)]
    assert all(sorted(group[rows]) == ["a", "b", "c"] and (np.diff(rows) > 0).all() for rows in draws)
    assert (one_row_per_group(group, 7) == draws[7]).all()
    taken = np.bincount(np.concatenate(draws), minlength=6) / 300
    assert taken == pytest.approx(np.array([1 / 3, 1 / 2, 1 / 3, 1, 1 / 2, 1 / 3]), abs=0.1)


TARGET, COVERAGE = {"target": 0.9}, {"coverage": "1"}
REFUSED = [
    *((1, {"target": target}, r"such as 0\.95") for target in (0.0, 1.0, 95.0, -0.1, np.nan)),
    *(
        (1, how | {"confidence": share}, "confidence")
        for share in (0.0, 1.0, 95.0, np.nan)
        for how in (TARGET, COVERAGE)
    ),
    *(
        (1, {"coverage": text}, r"such as 0\.7")
        for text in ("0", "0.0", "1.1", "-0.5", "70%", "", "nan", "1e-9", ".", "2")
    ),
    *((0, how, "no labelled row") for how in (TARGET, COVERAGE)),
]


@pytest.mark.parametrize(("rows", "asked", "told"), REFUSED)
def test_what_no_cut_can_be_made_of_is_refused(rows, asked, told):
    some = rows_of([0.5] * rows, [True] * rows)
    with pytest.raises(BadInput, match=told):
        find_cuts(document(), *some, **asked) if "target" in asked else cut_at_coverage(*some, **asked)
