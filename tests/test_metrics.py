"""Metrics of probabilities and of reliability, against hand-worked sums and other people's implementations."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from scipy.stats import binned_statistic
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss

from tasks.metrics.probability import (
    accuracy,
    brier_of_rows,
    confidence_bins,
    ece,
    nll_of_rows,
    top_of_rows,
)
from tasks.metrics.registry import Probabilities, metrics_of, of_reliability
from tasks.metrics.reliability import errors_retained, nll_correct, nll_correct_of_rows, order_by_risk
from tasks.protocol.params import METRIC_DEFAULTS, MetricParams


def nll(log_p: np.ndarray, labels: np.ndarray, smallest: float = 1e-12) -> float:
    return float(nll_of_rows(log_p, labels, smallest).mean())


def brier(log_p: np.ndarray, labels: np.ndarray) -> float:
    return float(brier_of_rows(log_p, labels).mean())


def top_ece(log_p: np.ndarray, labels: np.ndarray) -> float:
    return ece(*top_of_rows(log_p, labels))


KEYS = ["nll_correct", "aupr_error", "aurc", "augrc", "selacc_10", "selacc_50", "selacc_70", "selacc_90"]


def naive(correct: np.ndarray) -> dict[str, float]:
    """The paper's sums, written as they stand there, for rows from low to high risk and no ties."""
    n, wrong = len(correct), [1 - int(z) for z in correct]
    high_risk_first = wrong[::-1]
    found = {
        "aupr_error": sum(w * sum(high_risk_first[: j + 1]) / (j + 1) for j, w in enumerate(high_risk_first))
        / sum(wrong)
        if any(wrong)
        else np.nan,
        "aurc": sum(sum(wrong[:j]) / j for j in range(1, n + 1)) / n,
        "augrc": sum(sum(wrong[:j]) for j in range(1, n + 1)) / n**2,
    }
    for tenths in (1, 5, 7, 9):
        retained = max(1, -(-tenths * n // 10))
        found[f"selacc_{tenths}0"] = 1 - sum(wrong[:retained]) / retained
    return found


def retained(t: np.ndarray, correct: np.ndarray, coverage: np.ndarray) -> np.ndarray:
    return errors_retained(order_by_risk(t, correct), coverage)[0]


def scored(n: int, seed: int = 0, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Reliability logits, of so many levels if given, and correctness drawn from them."""
    generator = np.random.default_rng(seed)
    t = generator.normal(size=n)
    if levels is not None:
        t = np.round(t * levels / 6) * 6 / levels
    return t, generator.random(n) < expit(t)


# Probabilities


def test_probability_metrics_by_hand():
    # labels 0 1 2 2; on top 0 1 1 2: 3 of 4
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    labels = np.array([0, 1, 2, 2])
    log_p = np.log(p)
    assert accuracy(np.array([0, 1, 1, 2]), labels) == 0.75
    # -log of .5 .8 .2 .7
    assert nll(log_p, labels) == pytest.approx(-np.log(0.5 * 0.8 * 0.2 * 0.7) / 4)
    # (.25+.09+.04) + (.01+.04+.01) + (.04+.36+.64) + (.01+.04+.09) = 1.62
    assert brier(log_p, labels) == pytest.approx(1.62 / 4)
    # each top .5 .8 .6 .7 alone in its bin: (.5 + .2 + .6 + .3) / 4
    assert top_ece(log_p, labels) == pytest.approx(0.4)


def test_ece_by_hand():
    # bins of 1/2: (0, .5] holds .2 right and .4 wrong, |.3 - .5|; (.5, 1] holds .9 right and .7 right, |.8 - 1|
    assert ece(np.array([0.2, 0.9, 0.4, 0.7]), np.array([1, 1, 0, 1], dtype=bool), bins=2) == pytest.approx(0.2)


def test_ece_equals_binned_means_away_from_edges():
    generator = np.random.default_rng(0)
    confidence = generator.random(5000)
    correct = generator.random(5000) < confidence**2
    counts = np.histogram(confidence, 15, (0, 1))[0]
    means = [binned_statistic(confidence, x, "mean", 15, (0, 1)).statistic for x in (confidence, correct * 1.0)]
    assert ece(confidence, correct) == pytest.approx(counts @ np.abs(means[0] - means[1]) / 5000, abs=1e-14)


def test_confidences_of_0_and_1_are_counted():
    assert ece(np.array([0.0]), np.array([True])) == 1
    assert ece(np.array([1.0]), np.array([False])) == 1
    # 0 shares the first bin: (0 + .06) - 1 right
    assert ece(np.array([0.0, 0.06]), np.array([True, False])) == pytest.approx(0.94 / 2)
    # 1 shares the last bin: rows at 1 are neither dropped nor a bin of their own
    assert ece(np.array([1.0, 0.95]), np.array([False, True])) == pytest.approx(0.95 / 2)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1])
def test_a_confidence_that_is_none_is_named(bad):
    with pytest.raises(ValueError, match="row 1 "):
        ece(np.array([0.5, bad, 0.5]), np.ones(3, dtype=bool))


def test_probability_metrics_name_the_row_of_a_nan():
    log_p = log_softmax(np.zeros((4, 3)), axis=1)
    log_p[2, 1] = np.nan
    for metric in (top_ece, nll, brier):
        with pytest.raises(ValueError, match="row 2 "):
            metric(log_p, np.zeros(4, dtype=int))


def test_top_ece_takes_the_first_of_equals():
    log_p = log_softmax(np.zeros((4, 3)), axis=1)
    assert top_ece(log_p, np.zeros(4, dtype=int)) == pytest.approx(2 / 3)  # all right at 1/3
    assert top_ece(log_p, np.full(4, 2)) == pytest.approx(1 / 3)  # all wrong


def test_the_floor_of_nll_is_a_choice():
    with np.errstate(divide="ignore"):
        log_p = np.log(np.array([[1.0, 0.0], [0.5, 0.5]]))
    assert nll(log_p, np.array([1, 0]), smallest=1e-3) == pytest.approx((-np.log(1e-3) + np.log(2)) / 2)
    assert nll(log_p, np.array([1, 0]), smallest=0) == np.inf
    assert nll(log_p, np.array([0, 0]), smallest=0) == nll(log_p, np.array([0, 0]))


def test_an_unknown_reading_is_an_error():
    t, correct = scored(10)
    with pytest.raises(ValueError, match="'file'"):
        MetricParams(ties="file")
    for smallest in (0, 0.5, np.nan):
        with pytest.raises(ValueError, match="smallest"):
            nll_correct(t, correct, smallest)


def test_probability_metrics_agree_with_scikit_learn(decisions):
    log_p = log_softmax(decisions.logits, axis=1)
    assert nll(log_p, decisions.labels) == pytest.approx(log_loss(decisions.labels, np.exp(log_p)), abs=1e-12)
    reference = brier_score_loss(decisions.labels, np.exp(log_p), labels=range(3), scale_by_half=False)
    assert brier(log_p, decisions.labels) == pytest.approx(reference, abs=1e-12)
    confidence = np.exp(log_p.max(axis=1))
    assert top_ece(log_p, decisions.labels) == ece(confidence, decisions.correct)


def test_two_labels_make_the_metrics_meet():
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(500, 2)) * 3
    labels = generator.integers(0, 2, 500)
    log_p, decision = log_softmax(logits, axis=1), logits.argmax(axis=1)
    correct = decision == labels
    confidence = np.exp(log_p.max(axis=1))
    logit_of_correct = np.abs(logits[:, 0] - logits[:, 1])
    assert nll(log_p, labels) == pytest.approx(nll_correct(logit_of_correct, correct, smallest=1e-12), abs=1e-9)
    assert brier(log_p, labels) == pytest.approx(2 * np.mean((confidence - correct) ** 2), abs=1e-12)


def test_metrics_of_no_rows_are_nan():
    none, empty = np.empty(0), np.empty((0, 3))
    labels, correct = np.empty(0, dtype=int), np.empty(0, dtype=bool)
    values = [accuracy(labels, labels), ece(none, correct), *of_reliability(none, correct).values()]
    probabilities = Probabilities(correct, METRIC_DEFAULTS, None, labels, empty, labels)
    values += [metric.function(probabilities) for metric in metrics_of(Probabilities)]
    values += retained(none, correct, np.array([0.2, 1.0])).tolist()
    assert np.isnan(values).all()


# Reliability


def test_ties_by_hand():
    # low to high risk: two tied rows, one wrong; then one right
    t, correct = np.array([1.0, 1.0, 0.0]), np.array([True, False, True])
    assert retained(t, correct, np.arange(4) / 3) == pytest.approx(np.array([0, 0.5, 1, 1]) / 3)
    found = of_reliability(t, correct)
    assert found["aurc"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3)
    # from high risk the right row comes first, then the wrong one at place 2 or 3
    assert found["aupr_error"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    # 1 of 3 retained is half of the tied pair
    assert found["selacc_10"] == 0.5


def place_by_place(t: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    """AURC, AUGRC and AUPR-Error as sums over all places, each with the numbers of its tie group."""
    n, n_errors = len(t), np.count_nonzero(~correct)

    def by_place(sign: int) -> tuple[np.ndarray, ...]:
        _, of_row, m = np.unique(sign * t, return_inverse=True, return_counts=True)
        k, group = np.bincount(of_row[~correct], minlength=len(m)), np.repeat(np.arange(len(m)), m)
        place = np.arange(1, n + 1) - (np.cumsum(m) - m)[group]
        return place, m[group], k[group], (np.cumsum(k) - k)[group]

    place, m, k, before = by_place(-1)
    errors = before + place * k / m
    place, m, k, before = by_place(1)
    found = k / m * (before + 1 + (place - 1) * (k - 1) / np.maximum(m - 1, 1)) / np.arange(1, n + 1)
    precision = found.sum() / n_errors if n_errors else np.nan
    return {"aurc": np.mean(errors / np.arange(1, n + 1)), "augrc": np.mean(errors / n), "aupr_error": precision}


SCORES = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 5e-324, 2.0, np.nextafter(2.0, 3), np.inf])


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=60))
def test_sums_over_tie_groups_are_sums_over_places(rows):
    t, correct = np.array([score for score, _ in rows]), np.array([right for _, right in rows])
    found, expected = of_reliability(t, correct), place_by_place(t, correct)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-13, nan_ok=True)


@pytest.mark.parametrize(
    ("t", "correct"),
    [scored(50_000), scored(50_000, levels=300), (-np.arange(30_000.0) // 3, np.arange(30_000) >= 2)],
    ids=["untied", "tied", "two errors of lowest risk"],
)
def test_sums_over_tie_groups_are_sums_over_places_of_many_rows_too(t, correct):
    found, expected = of_reliability(t, correct), place_by_place(t, correct)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12, rel=1e-9)


def test_all_ranking_metrics_share_one_sort(monkeypatch):
    sorts, argsort = [], np.argsort

    def counting(values: np.ndarray, **asked: str) -> np.ndarray:
        sorts.append(len(values))
        return argsort(values, **asked)

    for name in ("unique", "sort", "lexsort", "partition", "argpartition"):
        monkeypatch.setattr(np, name, lambda *_, **__: pytest.fail("one sort is enough"))
    monkeypatch.setattr(np, "argsort", counting)
    t, correct = scored(500)
    of_reliability(t, correct)
    ece(expit(t), correct)  # bins of equal width need none
    assert sorts == [500]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_ties_are_the_mean_over_every_order_of_the_tied_rows(rows):
    t, correct = np.array([score for score, _ in rows], dtype=float), np.array([right for _, right in rows])
    every = []
    for shuffled in permutations(range(len(rows))):  # a stable sort of every file order is every tie order
        file_order = np.array(shuffled)
        every.append(naive(correct[file_order][np.argsort(-t[file_order], kind="stable")]))
    found = of_reliability(t, correct)
    for name in every[0]:
        assert found[name] == pytest.approx(np.mean([one[name] for one in every]), abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_untied_rows_give_the_sums_of_the_paper(seed):
    t, correct = scored(1237, seed)
    found, expected = of_reliability(t, correct), naive(correct[np.argsort(-t)])
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-10)
    assert found["aupr_error"] == pytest.approx(average_precision_score(~correct, -t), abs=1e-10)
    assert found["nll_correct"] == pytest.approx(log_loss(correct, expit(t)), abs=1e-10)


@pytest.mark.parametrize("levels", [None, 2, 9])
def test_one_threshold_for_a_tie_group_is_the_reading_of_scikit_learn(levels):
    t, correct = scored(700, levels=levels)
    found = of_reliability(t, correct, MetricParams(ties="threshold"))
    assert found.pop("aupr_error") == pytest.approx(average_precision_score(~correct, -t), abs=1e-12)
    expected = of_reliability(t, correct)
    assert found == {name: expected[name] for name in found}  # and of no other metric
    gained = expected["aupr_error"] - average_precision_score(~correct, -t)
    assert gained > 0.01 if levels else gained == pytest.approx(0, abs=1e-12)
    all_right = of_reliability(t, np.full(700, True), MetricParams(ties="threshold"))
    assert np.isnan(all_right["aupr_error"])


def test_the_order_of_rows_changes_no_bit():
    t, correct = scored(3000, levels=20)
    t[:40], t[40:80] = np.inf, -np.inf
    order = np.random.default_rng(2).permutation(3000)
    one, other = of_reliability(t, correct), of_reliability(t[order], correct[order])
    assert one.pop("nll_correct") == pytest.approx(other.pop("nll_correct"), abs=1e-12)
    assert one == other
    here, there = (retained(t[rows], correct[rows], np.arange(1, 101) / 100) for rows in (slice(None), order))
    assert (here == there).all()


def test_an_increasing_map_of_the_logit_changes_no_rank():
    t, correct = scored(1000)
    one, other = (of_reliability(logit, correct) for logit in (t, 0.1 * t - 3))
    assert {name for name in one if one[name] != other[name]} == {"nll_correct"}


def test_logits_rank_where_probabilities_saturate():
    t = np.array([18.0, 17.5, 40.0, 41.0])
    correct = np.array([True, False, False, True])
    assert len(set(expit(t.astype(np.float32)))) == 1
    assert of_reliability(t, correct)["aurc"] == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)


def test_a_constant_reliability_has_the_error_rate():
    correct = scored(1000)[1]
    rate, found = 1 - correct.mean(), of_reliability(np.zeros(1000), correct)
    assert found["aurc"] == pytest.approx(rate, abs=1e-12)
    assert found["augrc"] == pytest.approx(rate * 1001 / 2000, abs=1e-12)
    assert [found[name] for name in KEYS[4:]] == pytest.approx([1 - rate] * 4)
    assert found["aupr_error"] == pytest.approx(rate, abs=0.01)


def test_all_right_and_all_wrong():
    t = scored(50)[0]
    right, wrong = (of_reliability(t, np.full(50, z)) for z in (True, False))
    assert np.isnan(right.pop("aupr_error"))
    assert [right[key] for key in right if key != "nll_correct"] == [0, 0, 1, 1, 1, 1]
    assert [wrong[key] for key in KEYS[1:]] == pytest.approx([1, 1, 51 / 100, 0, 0, 0, 0])


def test_a_perfect_order_is_best_and_its_reverse_worst():
    correct = scored(200)[1]
    best, other, worst = (of_reliability(t, correct) for t in (1.0 * correct, scored(200, 5)[0], -1.0 * correct))
    for metric in ("aurc", "augrc"):
        assert best[metric] < other[metric] < worst[metric]
    assert best["aupr_error"] == pytest.approx(1)
    assert best["aupr_error"] > other["aupr_error"] > worst["aupr_error"]


def test_errors_retained_by_hand():
    # right alone, then a tie of a wrong and a right row, then wrong alone
    t, correct = np.array([2.0, 1.0, 1.0, 0.0]), np.array([True, False, True, False])
    found = retained(t, correct, np.array([0, 1 / 4, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1]))
    assert found == pytest.approx(np.array([0, 0, 0.5, 0.75, 1, 1.5, 2]) / 4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([-np.inf, 0.0, 1.0, np.inf]), st.booleans()), min_size=1, max_size=30))
def test_the_errors_retained_at_every_place_make_the_areas(rows):
    t, correct = np.array([score for score, _ in rows]), np.array([right for _, right in rows])
    n, found = len(rows), of_reliability(t, correct)
    at = retained(t, correct, np.arange(n + 1) / n)
    assert at[[0, -1]] == pytest.approx([0, 1 - correct.mean()])
    assert found["augrc"] == pytest.approx(at[1:].mean(), abs=1e-12)
    assert found["aurc"] == pytest.approx((at[1:] / (np.arange(1, n + 1) / n)).mean(), abs=1e-12)


@pytest.mark.parametrize("smallest", [1e-3, 1e-6, 1e-12])
def test_what_an_infinite_logit_counts_as_is_a_choice(smallest):
    t = np.array([np.inf, -np.inf, np.inf, -np.inf, 50.0])
    correct = np.array([True, False, False, True, False])
    losses = nll_correct_of_rows(t, correct, smallest)
    assert losses[:2] == pytest.approx(-np.log1p(-smallest), rel=1e-9)
    assert losses[2:4] == pytest.approx(-np.log(smallest))
    assert losses[4] == pytest.approx(min(50, -np.log(smallest)))
    assert of_reliability(t, correct, MetricParams(smallest_reliability=smallest))["nll_correct"] == losses.mean()


def test_infinite_logits_rank_and_tie():
    correct = np.array([True, True, False, False])
    found = of_reliability(np.array([np.inf, 3.0, np.inf, -np.inf]), correct, MetricParams(smallest_reliability=0.4))
    assert found == of_reliability(np.array([5.0, 3.0, 5.0, -5.0]), correct, MetricParams(smallest_reliability=0.4))


def test_a_nan_logit_names_its_row():
    with pytest.raises(ValueError, match="row 3 "):
        of_reliability(np.array([0.0, np.inf, 1.0, np.nan]), np.ones(4, dtype=bool))


@pytest.mark.parametrize("bins", [10, 15, 25])
def test_an_edge_belongs_to_the_bin_above_it(bins):
    edges = np.arange(bins) / bins
    assert confidence_bins(edges, bins).tolist() == list(range(bins))
    assert confidence_bins(np.nextafter(edges[1:], 0), bins).tolist() == list(range(bins - 1))
    assert confidence_bins(np.array([1.0]), bins) == bins - 1


@pytest.mark.parametrize(
    ("n", "metric", "kept"),
    [(n, "selacc_70", kept) for n, kept in ((10, 7), (11, 8), (19, 14), (90, 63), (170, 119), (180, 126))]
    + [(n, "selacc_10", 1) for n in (1, 9, 10)],
)
def test_coverage_is_rounded_up_in_whole_numbers_and_to_one_row_at_least(n, metric, kept):
    logit = -np.arange(n, dtype=np.float64)
    assert of_reliability(logit, np.arange(n) < kept)[metric] == 1  # the rows of lowest risk, and one more is wrong
    assert of_reliability(logit, np.arange(n) < kept - 1)[metric] < 1
