"""The bootstrap over clusters: against repeated rows, nominal coverage and other people's implementations."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from scipy.stats import bootstrap

from tasks.metrics import resampling
from tasks.metrics.comparison import (
    BETTER,
    BOTH,
    NOT_CERTAIN,
    WORSE,
    Comparison,
    Estimate,
    sign_of,
    together,
)
from tasks.metrics.intervals import holm, interval, two_sided_p
from tasks.metrics.probability import brier_of_rows, ece, nll_of_rows, top_of_rows
from tasks.metrics.registry import METRICS, ByLabel, Probabilities, Reliability, View, of_reliability
from tasks.metrics.reliability import errors_retained, order_by_risk, ranking_metrics
from tasks.metrics.resampling import Resamples, resample
from tasks.metrics.spread import confidence_groups, label_spread
from tasks.protocol.params import METRIC_DEFAULTS

SCORES = st.sampled_from([-np.inf, -1.0, 0.0, 2.0, np.inf])
COVERAGE = np.arange(1, 101) / 100
ROWS = st.lists(st.tuples(SCORES, st.booleans(), st.integers(0, 4)), min_size=1, max_size=25)


def scored(n: int, seed: int = 0, levels: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reliability logits, of so many levels if given, correctness, and groups of five rows."""
    generator = np.random.default_rng(seed)
    t = generator.normal(size=n)
    if levels is not None:
        t = np.round(t * levels / 6)
    return t, generator.random(n) < expit(t), np.arange(n) // 5


def times_drawn(draws: Resamples) -> np.ndarray:
    """How often each row is in each resample, `(R, n)`."""
    n = len(draws.cluster)
    return draws.sums(np.ones(n), np.arange(n), n).T.astype(int)


# Weighted rows


@settings(deadline=None, max_examples=200)
@given(ROWS)
def test_a_weight_is_that_many_tied_rows(rows):
    t, correct, weight = (np.array(column) for column in zip(*rows, strict=True))
    order = order_by_risk(t, correct)
    weights = np.stack([np.ones(len(t), dtype=int), np.maximum(weight, weight.sum() == 0)])
    found = ranking_metrics(order, weights[:, order.row])
    retained = errors_retained(order, COVERAGE, weights[:, order.row])
    for at, repeats in enumerate(weights):
        are_repeated_rows(t, correct, repeats, {name: values[at] for name, values in found.items()}, retained[at])


def are_repeated_rows(
    t: np.ndarray, correct: np.ndarray, repeats: np.ndarray, found: dict[str, float], retained: np.ndarray
) -> None:
    """Fail unless these are the metrics, and the errors retained, of each row repeated so often."""
    t, correct = np.repeat(t, repeats), np.repeat(correct, repeats)
    expected = of_reliability(t, correct)
    assert {name: expected[name] for name in found} == pytest.approx(found, abs=1e-10, nan_ok=True)
    assert retained == pytest.approx(errors_retained(order_by_risk(t, correct), COVERAGE)[0], abs=1e-12)


@pytest.mark.parametrize("levels", [None, 40])
@pytest.mark.parametrize("parted", [False, True])
def test_a_resample_is_its_repeated_rows(levels, parted):
    t, correct, group = scored(3003, levels=levels)
    draws = resample(np.arange(3003) if parted else group, resamples=8, seed=3)
    found = of_reliability(t, correct, draws=draws)
    assert list(found) == list(of_reliability(t, correct))
    retained = draws.errors_retained(t, correct, COVERAGE)
    assert retained.shape == (8, 100)
    for at, repeats in enumerate(times_drawn(draws)):
        are_repeated_rows(t, correct, repeats, {name: values[at] for name, values in found.items()}, retained[at])


def test_weights_by_hand():
    # low to high risk: right, wrong twice, right not at all, wrong: errors after each place 0 1 2 3
    order = order_by_risk(np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, False, True, False]))
    found = ranking_metrics(order, np.array([[1, 2, 0, 1]]))
    assert found["aurc"] == pytest.approx((0 + 1 / 2 + 2 / 3 + 3 / 4) / 4)
    assert found["augrc"] == pytest.approx((0 + 1 + 2 + 3) / 16)
    assert found["aupr_error"] == pytest.approx(1)
    assert [found[f"selacc_{c}0"][0] for c in (1, 5, 7, 9)] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    # right; a tie of wrong twice and right once; a wrong row that was not drawn; right
    order = order_by_risk(np.array([3.0, 2.0, 2.0, 1.0, 0.0]), np.array([True, False, True, False, True]))
    retained = errors_retained(order, np.arange(6) / 5, np.array([[1, 2, 1, 0, 1]])[:, order.row])
    assert retained[0] == pytest.approx(np.array([0, 0, 2 / 3, 4 / 3, 2, 2]) / 5)


def test_the_metrics_of_probabilities_are_those_of_repeated_rows(decisions):
    log_p = log_softmax(decisions.logits, axis=1)
    confidence = np.exp(log_p[np.arange(3000), decisions.decision])
    draws = resample(decisions.group, resamples=5, seed=0)
    found = [
        draws.mean(nll_of_rows(log_p, decisions.labels)),
        draws.mean(brier_of_rows(log_p, decisions.labels)),
        draws.mean(decisions.correct),
        draws.ece(confidence, decisions.correct),
        draws.ece(*top_of_rows(log_p, decisions.labels), bins=7),
    ]
    for one, repeats in enumerate(times_drawn(draws)):
        p, labels, correct = (np.repeat(x, repeats, axis=0) for x in (log_p, decisions.labels, decisions.correct))
        expected = [nll_of_rows(p, labels).mean(), brier_of_rows(p, labels).mean(), correct.mean()]
        expected += [ece(np.repeat(confidence, repeats), correct), ece(*top_of_rows(p, labels), bins=7)]
        assert [values[one] for values in found] == pytest.approx(expected, abs=1e-12)


def test_the_label_spread_keeps_the_groups_and_cells_of_all_rows():
    generator = np.random.default_rng(0)
    confidence, decision = generator.uniform(0.4, 1, 90), generator.choice([0, 2, 5], 90, p=[0.5, 0.35, 0.15])
    correct = generator.random(90) < confidence
    draws = resample(np.arange(90) // 3, resamples=40, seed=1)
    found = draws.label_spread(confidence, decision, correct, groups=4, minimum_cell=4)
    group = confidence_groups(confidence, 4)
    cells = [(g, d) for g in range(4) for d in (0, 2, 5) if ((group == g) & (decision == d)).sum() >= 4]
    assert len(cells) < 12  # some are too small to count
    emptied = 0
    for repeats, value in zip(times_drawn(draws), found, strict=True):
        means: dict[int, list[tuple[float, int]]] = {}
        for g, d in cells:
            rows = np.repeat(np.flatnonzero((group == g) & (decision == d)), repeats[(group == g) & (decision == d)])
            emptied += len(rows) == 0
            if len(rows):
                means.setdefault(g, []).append((np.mean(correct[rows] - confidence[rows]), len(rows)))
        several = [np.array(of).T for of in means.values() if len(of) > 1]
        weights = [rows.sum() for _, rows in several]
        assert value == pytest.approx(np.average([np.ptp(m) for m, _ in several], weights=weights), abs=1e-12)
    assert emptied > 0


def test_resampling_adds_noise_to_a_spread_but_keeps_its_place():
    generator = np.random.default_rng(0)
    confidence, decision = generator.uniform(0.4, 1, 6000), generator.integers(0, 3, 6000)
    correct = generator.random(6000) < confidence - 0.25 * (decision == 0)
    value = label_spread(confidence, decision, correct)
    replicates = resample(np.arange(6000), resamples=100, seed=0).label_spread(confidence, decision, correct)
    assert value < replicates.mean() < value + 0.03


def test_a_spread_without_two_cells_is_nan():
    draws = resample(np.arange(30), resamples=3, seed=0)
    assert np.isnan(draws.label_spread(np.full(30, 0.5), np.zeros(30, dtype=int), np.ones(30, dtype=bool))).all()


# Draws


def test_a_cluster_is_drawn_as_a_whole():
    group = np.array(["b", "a", "b", "c", "a", "b"])
    drawn = times_drawn(resample(group, resamples=50, seed=0))
    for name in "abc":
        assert (drawn[:, group == name] == drawn[:, group == name][:, :1]).all()
    assert (drawn[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert len(np.unique(drawn, axis=0)) == 10  # every way to draw 3 of 3


def test_every_cluster_is_drawn_once_on_average():
    drawn = times_drawn(resample(np.arange(20), resamples=4000, seed=0))
    assert drawn.mean(axis=0) == pytest.approx(np.ones(20), abs=0.07)  # 4.5 deviations
    assert drawn.var(axis=0) == pytest.approx(np.full(20, 0.95), abs=0.15)


def test_the_order_of_rows_does_not_matter():
    t, correct, group = scored(900, levels=20)
    found = []
    for order in (np.arange(900), np.random.default_rng(4).permutation(900)):
        draws, rows = resample(group[order], resamples=30, seed=1), (t[order], correct[order])
        found.append(of_reliability(*rows, draws=draws) | {"retained": draws.errors_retained(*rows, COVERAGE)})
    one, other = found
    assert one.pop("nll_correct") == pytest.approx(other.pop("nll_correct"), abs=1e-12)
    for name, values in one.items():  # to the last bit
        assert (values == other[name]).all()


@pytest.mark.parametrize("kept", [0, 2**26])
@pytest.mark.parametrize("at_once", [1, 7 * 900])
def test_memory_changes_no_bit(monkeypatch, kept, at_once):
    t, correct, group = scored(900)
    expected = of_reliability(t, correct, draws=resample(group, resamples=20, seed=1))
    retained = resample(group, resamples=20, seed=1).errors_retained(t, correct, COVERAGE)
    monkeypatch.setattr(resampling, "KEPT", kept)
    monkeypatch.setattr(resampling, "AT_ONCE", at_once)
    monkeypatch.setattr(resampling, "SUMMED_AT_ONCE", at_once)
    found = of_reliability(t, correct, draws=resample(group, resamples=20, seed=1))
    for name, values in expected.items():
        assert (values == found[name]).all()
    assert (resample(group, resamples=20, seed=1).errors_retained(t, correct, COVERAGE) == retained).all()


def test_a_draw_belongs_to_its_seed():
    one, again, other = (times_drawn(resample(np.arange(50), resamples=3, seed=seed)) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


def test_what_is_equal_has_no_difference_in_any_resample():
    t, correct, group = scored(1000)
    draws = resample(group, resamples=200, seed=0)
    one, other = (
        of_reliability(t, correct, draws=draws),
        of_reliability(0.3 * t + 1, correct, draws=draws),
    )  # the same ranks
    difference = one["aurc"] - other["aurc"]
    assert (difference == 0).all()
    assert two_sided_p(difference) == 1
    assert interval(difference).low == interval(difference).high == 0


def test_a_difference_is_surer_than_what_it_is_between():
    t, correct, group = scored(2000)
    draws = resample(group, resamples=300, seed=0)
    noisy = t + np.random.default_rng(1).normal(size=2000) / 3
    one, other = of_reliability(t, correct, draws=draws)["aurc"], of_reliability(noisy, correct, draws=draws)["aurc"]
    assert interval(other - one).standard_error < interval(one).standard_error / 2


@pytest.mark.parametrize(("rows", "resamples"), [(0, 10), (10, 0)])
def test_nothing_to_draw_is_an_error(rows, resamples):
    with pytest.raises(ValueError, match=f"{resamples} resamples of {rows} rows"):
        resample(np.arange(rows), resamples=resamples, seed=0)


def test_a_nan_names_its_row():
    draws, correct = resample(np.arange(4), resamples=2, seed=0), np.ones(4, dtype=bool)
    with pytest.raises(ValueError, match="row 2 "):
        of_reliability(np.array([0, 1, np.nan, 0]), correct, draws=draws)
    with pytest.raises(ValueError, match="row 1 "):
        draws.ece(np.array([0, np.nan, 0, 0]), correct)


def test_rows_that_were_not_drawn_from_are_an_error():
    draws = resample(np.arange(10), resamples=2, seed=0)
    with pytest.raises(ValueError):  # noqa: PT011, NumPy's and SciPy's words
        of_reliability(np.zeros(9), np.zeros(9, dtype=bool), draws=draws)


# Intervals


def test_an_interval_by_hand():
    found = interval(np.arange(101.0), level=0.9)
    assert [found.low, found.high] == pytest.approx([5, 95])
    assert found.standard_error == pytest.approx(np.sqrt(101 * 102 / 12))


def test_the_interval_of_a_mean_is_that_of_scipy():
    values = np.random.default_rng(0).exponential(size=400)
    draws = resample(np.arange(400), resamples=5000, seed=0)
    ours = interval(draws.mean(values))
    theirs = bootstrap(
        (values,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(1), batch=500
    )
    width = ours.high - ours.low
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.05 * width)
    assert ours.standard_error == pytest.approx(theirs.standard_error, rel=0.05)


def simulated(runs: int, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """Of means whose truth is 0, over 60 clusters of 1 to 8 like rows: how often inside, and the p-values."""
    generator = np.random.default_rng(5)
    inside, p_values = [], []
    for seed in range(runs):
        cluster = np.repeat(np.arange(60), generator.integers(1, 9, 60))
        values = generator.normal(size=60)[cluster] + generator.normal(size=len(cluster)) / 2
        draws = resample(cluster if whole else np.arange(len(cluster)), resamples=299, seed=seed)
        replicates = draws.mean(values)
        found = interval(replicates)
        inside.append(found.low <= 0 <= found.high)
        p_values.append(two_sided_p(replicates))
    return np.array(inside), np.array(p_values)


def test_an_interval_covers_what_is_drawn_in_clusters_only_if_clusters_are_drawn():
    inside, p_values = simulated(300, whole=True)
    assert 0.90 <= inside.mean() <= 0.98
    assert (inside == (p_values >= 0.05)).mean() > 0.97  # the two say the same, but for the borders
    assert np.mean(p_values < 0.5) == pytest.approx(0.5, abs=0.12)
    parted, _ = simulated(150, whole=False)
    assert parted.mean() < 0.8


def test_p_values_by_hand():
    assert two_sided_p(np.array([1.0, 2.0, 3.0, -1.0, 5.0, 1.0, 1.0, 1.0, 1.0])) == pytest.approx(2 * 2 / 10)
    assert two_sided_p(np.full(99, 2.0)) == pytest.approx(2 / 100)  # never 0
    assert two_sided_p(np.array([-1.0, 1.0, 0.0])) == 1
    assert two_sided_p(np.repeat([-1.0, 0.0], [20, 1])) == pytest.approx(2 * 2 / 22)  # 0 is on both sides


def test_a_p_value_does_not_depend_on_the_sign():
    replicates = np.random.default_rng(0).normal(1, 1, 500)
    assert two_sided_p(replicates) == two_sided_p(-replicates) < 1


def test_a_resample_without_errors_is_left_out():
    t, correct = scored(40)[0], np.arange(40) >= 3  # three errors: 1 resample in 20 has none
    draws = resample(np.arange(40), resamples=1000, seed=0)
    replicates = of_reliability(t, correct, draws=draws)["aupr_error"]
    undefined = np.isnan(replicates)
    assert (undefined == (draws.mean(correct) == 1)).all()
    assert 0 < undefined.mean() < 0.08
    allowed = replicates[np.argsort(~undefined, kind="stable")][undefined.sum() - 10 :]  # ten of them
    found = interval(allowed)
    assert found.low == np.quantile(allowed[10:], 0.025)


def test_too_many_undefined_replicates_leave_no_interval():
    five, six = (np.append(np.full(n, np.nan), np.ones(100 - n)) for n in (5, 6))
    assert (interval(five).low, two_sided_p(five)) == (1, 2 / 96)
    found = interval(six)
    assert np.isnan([found.low, found.high, found.standard_error, two_sided_p(six)]).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_that_is_none_is_an_error(level):
    with pytest.raises(ValueError, match="level"):
        interval(np.zeros(10), level)


def test_holm_by_hand():
    # rising .01 .02 .03 .04 times 4 3 2 1: .04 .06 .06 .04, and never below the one before
    assert holm(np.array([0.04, 0.01, 0.03, 0.02])) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm(np.array([0.5, 0.9])) == pytest.approx([1, 1])
    assert holm(np.array([0.03, np.nan, 0.02])) == pytest.approx([0.04, np.nan, 0.04], nan_ok=True)
    assert len(holm(np.array([]))) == 0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    # a hypothesis is rejected where every set that holds it is: the largest of their Bonferroni p-values
    m = range(len(p_values))
    sets = [s for size in m for s in combinations(m, size + 1)]
    of_set = {s: min(1, len(s) * min(p_values[i] for i in s)) for s in sets}
    expected = [max(p for s, p in of_set.items() if i in s) for i in m]
    assert holm(np.array(p_values)) == pytest.approx(expected)


# Comparisons


@pytest.mark.parametrize(
    ("low", "high", "p", "direction", "sign"),
    [
        (0.1, 0.2, 0.01, 1, BETTER),
        (0.1, 0.2, 0.01, -1, WORSE),
        (-0.2, -0.1, 0.01, -1, BETTER),
        (-0.2, -0.1, 0.01, 1, WORSE),
        (0.0, 0.2, 0.01, 1, NOT_CERTAIN),
        (-0.1, 0.2, 0.01, 1, NOT_CERTAIN),
        (0.1, 0.2, 0.05, 1, NOT_CERTAIN),  # the interval alone is not enough
        (0.1, 0.2, None, 1, NOT_CERTAIN),
        (None, None, 0.01, 1, NOT_CERTAIN),
        (np.nan, np.nan, np.nan, -1, NOT_CERTAIN),
    ],
)
def test_a_claim_takes_an_interval_and_a_corrected_p(low, high, p, direction, sign):
    assert sign_of(direction, low, high, p) == sign


def test_signs_together_claim_what_none_of_them_denies():
    assert together([]) == together([NOT_CERTAIN]) == NOT_CERTAIN
    assert together([NOT_CERTAIN, BETTER]) == BETTER
    assert together([WORSE, NOT_CERTAIN]) == WORSE
    assert together([WORSE, BETTER, NOT_CERTAIN]) == BOTH


def test_a_comparison_is_paired():
    before, after = np.random.default_rng(0).normal(size=(2, 300))
    pair = Comparison(Estimate(1.0, before), Estimate(3.0, after))
    assert (pair.change.value, pair.change.interval, pair.change.p) == (
        2.0,
        interval(after - before),
        two_sided_p(after - before),
    )
    alone = Comparison(Estimate(1.0), Estimate(3.0, after)).change
    assert np.isnan([alone.interval.low, alone.interval.high, alone.p]).all()


@pytest.mark.parametrize("metric", [m for m in METRICS.values() if m.resampled], ids=lambda metric: metric.key)
def test_a_metric_has_one_number_for_all_rows_and_one_for_each_resample(metric, decisions):
    log_p, whole = log_softmax(decisions.logits, axis=1), np.arange(len(decisions))
    given = {
        View: (),
        Reliability: (np.round(decisions.logits[:, 0], 1),),
        Probabilities: (decisions.decision, log_p, decisions.labels),
        ByLabel: (decisions.decision, log_p, decisions.labels, 1),
    }[metric.view]
    once = Resamples(whole, len(whole), 1, 0)
    vars(once)["_kept"] = np.ones((1, len(whole)), dtype=np.uint8)  # a draw in which each row comes once
    value, drawn = (
        metric.function(metric.view(decisions.correct, METRIC_DEFAULTS, draws, *given)) for draws in (None, once)
    )
    assert drawn == pytest.approx([value], abs=1e-12)
