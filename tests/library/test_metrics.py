"""Metrics of probabilities and of reliability, against the paper's own sums and other people's implementations."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from scipy.stats import binned_statistic
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, log_loss

from relmap.metrics.probability import accuracy, brier_score_per_row, confidence_bins, ece, log_loss_per_row, top_label
from relmap.metrics.registry import ProbabilityView, ReliabilityView, compute_reliability_metrics, metrics_for_views
from relmap.metrics.reliability import correctness_log_loss, expected_retained_errors, find_tie_groups
from relmap.metrics.resampling import draw_resamples
from relmap.metrics.spread import LabelCells
from relmap.settings import METRIC_DEFAULTS, MetricParams
from tests.fits import simulate_reliability_logits


def of_ranked(correct: np.ndarray) -> dict[str, np.ndarray]:
    """The paper's sums, written as they stand there, for rows `(..., n)` from low to high risk and no ties."""
    n, wrong = correct.shape[-1], (~correct).astype(float)
    from_high_risk, place = wrong[..., ::-1], np.arange(1, n + 1)
    errors, kept = wrong.cumsum(axis=-1), {tenths: max(1, -(-tenths * n // 10)) for tenths in (1, 5, 7, 9)}
    with np.errstate(invalid="ignore"):  # no error to find
        precision = (from_high_risk * from_high_risk.cumsum(axis=-1) / place).sum(axis=-1) / wrong.sum(axis=-1)
    return {
        "aupr_error": precision,
        "aurc": (errors / place).mean(axis=-1),
        "augrc": (errors / n).mean(axis=-1),
        **{f"selacc_{tenths}0": 1 - errors[..., rows - 1] / rows for tenths, rows in kept.items()},
    }


@pytest.mark.parametrize("bins", [2, 15])
def test_ece_equals_binned_means_away_from_edges(bins):
    confidence, chance = np.random.default_rng(0).random((2, 5000))
    correct = chance < confidence**2
    counts = np.histogram(confidence, bins, (0, 1))[0]
    means = [binned_statistic(confidence, x, "mean", bins, (0, 1)).statistic for x in (confidence, correct * 1.0)]
    assert ece(confidence, correct, bins) == pytest.approx(counts @ np.abs(means[0] - means[1]) / 5000, abs=1e-14)


@pytest.mark.parametrize("bins", [10, 15, 25])
def test_an_edge_belongs_to_the_bin_above_it_and_1_to_the_last(bins):
    edges = np.arange(bins) / bins
    assert confidence_bins(np.append(edges, 1), bins).tolist() == [*range(bins), bins - 1]
    assert confidence_bins(np.nextafter(edges[1:], 0), bins).tolist() == list(range(bins - 1))


def test_probability_metrics_agree_with_scikit_learn_and_the_top_label_is_the_first_of_equals(decisions):
    log_p, labels = log_softmax(decisions.logits, axis=1), decisions.labels
    assert accuracy(decisions.decision, labels) == accuracy_score(labels, decisions.decision)
    assert log_loss_per_row(log_p, labels).mean() == pytest.approx(log_loss(labels, np.exp(log_p)), abs=1e-12)
    reference = brier_score_loss(labels, np.exp(log_p), labels=range(3), scale_by_half=False)
    assert brier_score_per_row(log_p, labels).mean() == pytest.approx(reference, abs=1e-12)
    top, correct = top_label(log_p, decisions.labels)
    assert (top == np.exp(log_p.max(axis=1))).all()
    assert (correct == decisions.correct).all()
    assert top_label(log_softmax(np.zeros((2, 3)), axis=1), np.array([0, 2]))[1].tolist() == [True, False]


def test_the_lower_bound_of_probabilities_is_a_setting():
    with np.errstate(divide="ignore"):
        log_p = np.log(np.array([[1.0, 0.0], [0.5, 0.5]]))
    for smallest, most in ((1e-3, -np.log(1e-3)), (0, np.inf)):
        assert log_loss_per_row(log_p, np.array([1, 0]), smallest) == pytest.approx([most, np.log(2)])
    assert log_loss_per_row(log_p, np.array([0, 0])) == pytest.approx([0, np.log(2)])


RIGHT, LABELS = np.ones(4, dtype=bool), np.zeros(4, dtype=int)
DRAWS = draw_resamples(LABELS, resamples=2, seed=0)
NAMED: list[tuple[str, Callable[[np.ndarray], object]]] = [
    ("confidence", lambda values: ece(values, RIGHT)),
    ("confidence", lambda values: LabelCells.from_decisions(values, LABELS, RIGHT)),
    ("residual", lambda values: LabelCells.from_decisions(np.zeros(4), LABELS, values)),
    ("reliability logit", lambda values: compute_reliability_metrics(values, RIGHT)),
    ("reliability logit", lambda values: compute_reliability_metrics(values, RIGHT, draws=DRAWS)),
    ("log-probability", lambda values: top_label(values[:, None], LABELS)),
    ("log-probability", lambda values: log_loss_per_row(values[:, None], LABELS)),
]


@pytest.mark.parametrize(("what", "metric"), NAMED)
def test_a_nan_is_rejected_with_its_row(what, metric):
    with pytest.raises(ValueError, match=f"the {what} of row 2 is"):
        metric(np.array([0.0, 0.0, np.nan, 0.0]))


def test_metrics_of_no_rows_are_nan():
    none, empty = np.empty(0), np.empty((0, 3))
    labels, correct = np.empty(0, dtype=int), np.empty(0, dtype=bool)
    values = [accuracy(labels, labels), ece(none, correct), *compute_reliability_metrics(none, correct).values()]
    probabilities = ProbabilityView(correct, METRIC_DEFAULTS, None, labels, empty, labels)
    values += [metric.function(probabilities) for metric in metrics_for_views(ProbabilityView)]
    values += expected_retained_errors(find_tie_groups(none, correct), np.array([0.2, 1.0])).ravel().tolist()
    assert np.isnan(values).all()


SCORES = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 5e-324, 2.0, np.nextafter(2.0, 3), np.inf])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=6))
def test_metrics_with_ties_are_means_over_all_orders_of_tied_rows(rows):
    t, correct = np.array([score for score, _ in rows]), np.array([right for _, right in rows])
    orders = np.array(list(permutations(range(len(rows)))))  # a stable sort of every order is every tie order
    ranked = correct[np.take_along_axis(orders, np.argsort(-t[orders], axis=1, kind="stable"), axis=1)]
    measured = compute_reliability_metrics(t, correct)
    for name, values in of_ranked(ranked).items():
        assert measured[name] == pytest.approx(values.mean(), abs=1e-12, nan_ok=True)
    at_places = np.append(0, np.cumsum(~ranked, axis=1).mean(axis=0)) / len(rows)
    halves = np.arange(2 * len(rows) + 1) / 2  # between two places the line is straight
    retained = expected_retained_errors(find_tie_groups(t, correct), halves / len(rows))[0]
    assert retained == pytest.approx(np.interp(halves, np.arange(len(rows) + 1), at_places), abs=1e-12)


@pytest.mark.parametrize("n", [1237, 50_000])
def test_untied_rows_give_the_sums_of_the_paper(n):
    t, correct = simulate_reliability_logits(n)
    measured, expected = compute_reliability_metrics(t, correct), of_ranked(correct[np.argsort(-t)])
    assert {name: measured[name] for name in expected} == pytest.approx(expected, abs=1e-10)
    assert measured["aupr_error"] == pytest.approx(average_precision_score(~correct, -t), abs=1e-10)
    assert measured["nll_correct"] == pytest.approx(log_loss(correct, expit(t)), abs=1e-10)


def test_many_tied_rows_give_sums_over_their_ranks():
    # all rows are one tie: of E errors, place j finds E/n (1 + (j-1) (E-1)/(n-1))
    correct, place = simulate_reliability_logits(50_000)[1], np.arange(1, 50_001)
    measured, rate, others = (
        compute_reliability_metrics(np.zeros(50_000), correct),
        1 - correct.mean(),
        (~correct).sum() - 1,
    )
    assert measured["aurc"] == pytest.approx(rate, abs=1e-12)
    assert measured["augrc"] == pytest.approx(rate * 50_001 / 100_000, abs=1e-12)
    assert [measured[f"selacc_{tenths}0"] for tenths in (1, 5, 7, 9)] == pytest.approx([1 - rate] * 4)
    assert measured["aupr_error"] == pytest.approx(((1 + (place - 1) * others / 49_999) / place).mean(), rel=1e-9)
    # an error of lowest risk, found last, and one in the tie of the three rows before it
    measured = compute_reliability_metrics(-np.arange(30_000.0) // 3, np.arange(30_000) >= 2)
    in_tie = (1 / 29_997 + 1 / 29_998 + 1 / 29_999) / 3
    assert measured["aupr_error"] == pytest.approx((in_tie + 2 / 30_000) / 2, rel=1e-9)


def test_all_ranking_metrics_share_one_sort(monkeypatch):
    (t, correct), sorts = simulate_reliability_logits(500), []
    for name in ("unique", "sort", "argsort", "lexsort", "partition", "argpartition"):
        sort = getattr(np, name)
        monkeypatch.setattr(np, name, lambda at, sort=sort, **kind: sorts.append((len(at), *kind)) or sort(at, **kind))
    compute_reliability_metrics(t, correct)
    assert sorts == [(500,), ((~correct).sum(), "return_counts")]  # the wrong rows' risks once more, among themselves


@pytest.mark.parametrize("levels", [None, 2, 9])
def test_one_threshold_per_tie_group_equals_scikit_learn(levels):
    t, correct = simulate_reliability_logits(700, levels=levels)
    measured = compute_reliability_metrics(t, correct, MetricParams(ties="threshold"))
    assert measured.pop("aupr_error") == pytest.approx(average_precision_score(~correct, -t), abs=1e-12)
    expected = compute_reliability_metrics(t, correct)
    assert measured == {name: expected[name] for name in measured}  # and of no other metric
    all_right = compute_reliability_metrics(t, np.full(700, True), MetricParams(ties="threshold"))
    assert np.isnan(all_right["aupr_error"])


def test_a_perfect_order_is_best_and_its_reverse_worst():
    correct = simulate_reliability_logits(200)[1]
    best, other, worst = (
        compute_reliability_metrics(t, correct)
        for t in (1.0 * correct, simulate_reliability_logits(200, 5)[0], -1.0 * correct)
    )
    for metric in metrics_for_views(ReliabilityView):
        scores = [metric.direction * values[metric.key] for values in (best, other, worst)]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] > scores[2]


@pytest.mark.parametrize("smallest", [1e-3, 1e-12])
def test_the_value_of_an_infinite_logit_is_a_setting(smallest):
    t = np.array([np.inf, -np.inf, np.inf, -np.inf, 50.0])
    correct = np.array([True, False, False, True, False])
    losses = correctness_log_loss(t, correct, smallest)
    most = -np.log(smallest)
    assert losses[:2] == pytest.approx(-np.log1p(-smallest), rel=1e-9)
    assert losses[2:] == pytest.approx([most, most, min(50, most)])
    assert (
        compute_reliability_metrics(t, correct, MetricParams(smallest_reliability=smallest))["nll_correct"]
        == losses.mean()
    )
    for nothing in (0, 0.5, np.nan):
        with pytest.raises(ValueError, match="smallest"):
            correctness_log_loss(t, correct, nothing)


@pytest.mark.parametrize(("n", "kept"), [(11, 8), (90, 63), (170, 119), (180, 126), (1, 1)])
def test_retained_rows_are_rounded_up_and_at_least_one(n, kept):
    logit = -np.arange(n, dtype=np.float64)
    assert (
        compute_reliability_metrics(logit, np.arange(n) < kept)["selacc_70"] == 1
    )  # the rows of lowest risk; one more is wrong
    assert compute_reliability_metrics(logit, np.arange(n) < kept - 1)["selacc_70"] < 1
