"""Metrics of probabilities and of reliability compared with the formulas of the paper and other implementations."""

from collections.abc import Callable
from inspect import signature
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax
from scipy.stats import binned_statistic
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, log_loss

from relmap.metrics.probability import accuracy, brier_score_per_row, confidence_bins, ece, log_loss_per_row, top_label
from relmap.metrics.registry import (
    ProbabilityView,
    ReliabilityView,
    compute_compared_metrics,
    compute_reliability_metrics,
    metrics_for_views,
)
from relmap.metrics.reliability import (
    average_precision_by_threshold,
    correctness_log_loss,
    count_retained_rows,
    expected_retained_errors,
    find_tie_groups,
    harmonic_sums,
)
from relmap.metrics.resampling import draw_resamples
from relmap.metrics.spread import LabelCells, assign_confidence_groups
from relmap.settings import METRIC_DEFAULTS, MetricParams
from tests.fits import simulate_reliability_logits


def paper_formulas(correct: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the formulas of the paper for rows of shape (..., n) from low to high risk, without ties."""
    n = correct.shape[-1]
    wrong = (~correct).astype(float)
    from_high_risk = wrong[..., ::-1]
    rank = np.arange(1, n + 1)
    errors = wrong.cumsum(axis=-1)
    retained_rows = {tenths: max(1, -(-tenths * n // 10)) for tenths in (1, 5, 7, 9)}
    with np.errstate(invalid="ignore"):  # no error to find
        precision = (from_high_risk * from_high_risk.cumsum(axis=-1) / rank).sum(axis=-1) / wrong.sum(axis=-1)
    return {
        "aupr_error": precision,
        "aurc": (errors / rank).mean(axis=-1),
        "augrc": (errors / n).mean(axis=-1),
        **{f"selacc_{tenths}0": 1 - errors[..., rows - 1] / rows for tenths, rows in retained_rows.items()},
    }


@pytest.mark.parametrize("bins", [2, 15])
def test_ece_equals_binned_means_away_from_edges(bins):
    confidence, uniform = np.random.default_rng(0).random((2, 5000))
    correct = uniform < confidence**2
    counts = np.histogram(confidence, bins, (0, 1))[0]
    means = [binned_statistic(confidence, x, "mean", bins, (0, 1)).statistic for x in (confidence, correct * 1.0)]
    assert ece(confidence, correct, bins) == pytest.approx(counts @ np.abs(means[0] - means[1]) / 5000, abs=1e-14)


@pytest.mark.parametrize("bins", [10, 15, 25, 49])  # 49 * (1 / 49) is below 1 in floats
def test_bin_edges_belong_to_the_bin_above_and_one_to_the_last_bin(bins):
    edges = np.arange(bins) / bins
    assert confidence_bins(np.append(edges, 1), bins).tolist() == [*range(bins), bins - 1]
    assert confidence_bins(np.nextafter(edges[1:], 0), bins).tolist() == list(range(bins - 1))


def test_probability_metrics_agree_with_scikit_learn_and_ties_choose_the_first_label(decisions):
    log_p = log_softmax(decisions.logits, axis=1)
    labels = decisions.label
    assert accuracy(decisions.decision, labels) == accuracy_score(labels, decisions.decision)
    assert log_loss_per_row(log_p, labels).mean() == pytest.approx(log_loss(labels, np.exp(log_p)), abs=1e-12)

    if "scale_by_half" in signature(brier_score_loss).parameters:
        reference = brier_score_loss(labels, np.exp(log_p), labels=range(3), scale_by_half=False)
    else:  # scikit-learn before 1.7 has no score of several labels
        reference = sum(brier_score_loss(labels == label, np.exp(log_p[:, label])) for label in range(3))
    assert brier_score_per_row(log_p, labels).mean() == pytest.approx(reference, abs=1e-12)

    top, correct = top_label(log_p, decisions.label)
    assert (top == np.exp(log_p.max(axis=1))).all()
    assert (correct == decisions.correct).all()
    assert top_label(log_softmax(np.zeros((2, 3)), axis=1), np.array([0, 2]))[1].tolist() == [True, False]


def test_log_loss_clips_probabilities_at_the_given_bound():
    with np.errstate(divide="ignore"):
        log_p = np.log(np.array([[1.0, 0.0], [0.5, 0.5]]))
    for bound, expected in ((1e-3, -np.log(1e-3)), (0, np.inf)):
        assert log_loss_per_row(log_p, np.array([1, 0]), bound) == pytest.approx([expected, np.log(2)])
    assert log_loss_per_row(log_p, np.array([0, 0])) == pytest.approx([0, np.log(2)])


ALL_CORRECT = np.ones(4, dtype=bool)
LABELS = np.zeros(4, dtype=int)
DRAWS = draw_resamples(LABELS, resamples=2, seed=0)
METRICS_WITH_INPUT: list[tuple[str, Callable[[np.ndarray], object]]] = [
    ("confidence", lambda values: ece(values, ALL_CORRECT)),
    ("confidence", lambda values: LabelCells.from_decisions(values, LABELS, ALL_CORRECT)),
    ("residual", lambda values: LabelCells.from_decisions(np.zeros(4), LABELS, values)),
    ("reliability logit", lambda values: compute_reliability_metrics(values, ALL_CORRECT)),
    ("reliability logit", lambda values: compute_reliability_metrics(values, ALL_CORRECT, draws=DRAWS)),
    ("reliability logit", lambda values: correctness_log_loss(values, ALL_CORRECT)),
    ("reliability logit", lambda values: find_tie_groups(values, ALL_CORRECT)),
    ("reliability logit", lambda values: average_precision_by_threshold(values, ALL_CORRECT)),
    ("confidence", lambda values: assign_confidence_groups(values, 2)),
    ("confidence", lambda values: DRAWS.ece(values, ALL_CORRECT)),
    ("confidence", lambda values: DRAWS.label_spread(values, LABELS, ALL_CORRECT)),
    ("log-probability", lambda values: brier_score_per_row(values[:, None], LABELS)),
    ("log-probability", lambda values: top_label(values[:, None], LABELS)),
    ("log-probability", lambda values: log_loss_per_row(values[:, None], LABELS)),
]


@pytest.mark.parametrize(("quantity", "metric"), METRICS_WITH_INPUT)
def test_nan_is_rejected_with_its_row(quantity, metric):
    with pytest.raises(ValueError, match=rf"^the {quantity} of row 2 is (NaN|nan, not in \[0, 1\])$"):
        metric(np.array([0.0, 0.0, np.nan, 0.0]))


def test_metrics_of_no_rows_are_nan():
    no_values = np.empty(0)
    no_logits = np.empty((0, 3))
    labels = np.empty(0, dtype=int)
    correct = np.empty(0, dtype=bool)
    values = [
        accuracy(labels, labels),
        ece(no_values, correct),
        *compute_reliability_metrics(no_values, correct).values(),
    ]
    probabilities = ProbabilityView(correct, METRIC_DEFAULTS, None, labels, no_logits, labels)
    values += [metric.function(probabilities) for metric in metrics_for_views(ProbabilityView)]
    values += expected_retained_errors(find_tie_groups(no_values, correct), np.array([0.2, 1.0])).ravel().tolist()

    assert np.isnan(values).all()


SCORES = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 5e-324, 2.0, np.nextafter(2.0, 3), np.inf])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=6))
def test_metrics_with_ties_are_means_over_all_orders_of_tied_rows(rows):
    n_rows = len(rows)
    score = np.array([score for score, _ in rows])
    correct = np.array([is_correct for _, is_correct in rows])
    # sorting every order of the rows by a stable sort gives every order of tied rows equally often
    orders = np.array(list(permutations(range(n_rows))))
    ranks = np.argsort(-score[orders], axis=1, kind="stable")
    ranked = correct[np.take_along_axis(orders, ranks, axis=1)]

    measured = compute_reliability_metrics(score, correct)
    half_rows = np.arange(2 * n_rows + 1) / 2
    retained = expected_retained_errors(find_tie_groups(score, correct), half_rows / n_rows)[0]

    for name, values in paper_formulas(ranked).items():
        assert measured[name] == pytest.approx(values.mean(), abs=1e-12, nan_ok=True)
    mean_errors = np.cumsum(~ranked, axis=1).mean(axis=0) / n_rows
    expected = np.interp(half_rows, np.arange(n_rows + 1), np.append(0, mean_errors))  # linear between two ranks
    assert retained == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [1237, 50_000])
def test_metrics_without_ties_equal_the_formulas_of_the_paper(n):
    logit, correct = simulate_reliability_logits(n)
    measured = compute_reliability_metrics(logit, correct)
    expected = paper_formulas(correct[np.argsort(-logit)])
    assert {name: measured[name] for name in expected} == pytest.approx(expected, abs=1e-10)
    assert measured["aupr_error"] == pytest.approx(average_precision_score(~correct, -logit), abs=1e-10)
    assert measured["nll_correct"] == pytest.approx(log_loss(correct, expit(logit)), abs=1e-10)


def test_metrics_of_one_large_tie_equal_closed_forms():
    # All n rows are one tie. If the row at rank j is an error, each of the j - 1 rows before it is an error with the
    # probability (n_errors - 1) / (n - 1). The expected precision at j is (1 + (j - 1) (n_errors - 1) / (n - 1)) / j.
    correct = simulate_reliability_logits(50_000)[1]
    rank = np.arange(1, 50_001)
    measured = compute_reliability_metrics(np.zeros(50_000), correct)
    error_rate = 1 - correct.mean()
    n_other_errors = (~correct).sum() - 1

    assert measured["aurc"] == pytest.approx(error_rate, abs=1e-12)
    assert measured["augrc"] == pytest.approx(error_rate * 50_001 / 100_000, abs=1e-12)
    assert [measured[f"selacc_{tenths}0"] for tenths in (1, 5, 7, 9)] == pytest.approx([1 - error_rate] * 4)
    assert measured["aupr_error"] == pytest.approx(((1 + (rank - 1) * n_other_errors / 49_999) / rank).mean(), rel=1e-9)

    # Row 0 is an error of the lowest risk, which is found last. Row 1 is an error, and tied with the rows 2 and 3.
    measured = compute_reliability_metrics(-np.arange(30_000.0) // 3, np.arange(30_000) >= 2)
    in_tie = (1 / 29_997 + 1 / 29_998 + 1 / 29_999) / 3
    assert measured["aupr_error"] == pytest.approx((in_tie + 2 / 30_000) / 2, rel=1e-9)


def test_all_ranking_metrics_share_one_sort(monkeypatch):
    logit, correct = simulate_reliability_logits(500)
    sorted_lengths = []

    def record(sort: Callable[..., object]) -> Callable[..., object]:
        def recorded_sort(array: np.ndarray, **options: object) -> object:
            sorted_lengths.append(len(array))
            return sort(array, **options)

        return recorded_sort

    for name in ("unique", "sort", "argsort", "lexsort", "partition", "argpartition"):
        monkeypatch.setattr(np, name, record(getattr(np, name)))
    compute_reliability_metrics(logit, correct)
    assert sorted_lengths == [500, np.count_nonzero(~correct)]  # all rows, and then the wrong ones


@pytest.mark.parametrize("levels", [None, 2, 9])
def test_one_threshold_per_tie_group_equals_scikit_learn(levels):
    logit, correct = simulate_reliability_logits(700, levels=levels)
    measured = compute_reliability_metrics(logit, correct, MetricParams(ties="threshold"))
    assert measured.pop("aupr_error") == pytest.approx(average_precision_score(~correct, -logit), abs=1e-12)

    expected = compute_reliability_metrics(logit, correct)
    assert measured == {name: expected[name] for name in measured}  # the other metrics do not change

    all_right = compute_reliability_metrics(logit, np.full(700, True), MetricParams(ties="threshold"))
    assert np.isnan(all_right["aupr_error"])


def test_perfect_ranking_is_best_and_its_reverse_worst():
    correct = simulate_reliability_logits(200)[1]
    best = compute_reliability_metrics((1.0 * correct), correct)
    random = compute_reliability_metrics(simulate_reliability_logits(200, 5)[0], correct)
    worst = compute_reliability_metrics((-1.0 * correct), correct)
    for metric in metrics_for_views(ReliabilityView):
        scores = [metric.direction * values[metric.key] for values in (best, random, worst)]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] > scores[2]


@pytest.mark.parametrize("smallest", [1e-3, 1e-12])
def test_log_loss_clips_infinite_logits_at_the_given_bound(smallest):
    logit = np.array([np.inf, -np.inf, np.inf, -np.inf, 50.0])
    correct = np.array([True, False, False, True, False])
    losses = correctness_log_loss(logit, correct, smallest)
    max_loss = -np.log(smallest)

    assert losses[:2] == pytest.approx(-np.log1p(-smallest), rel=1e-9)
    assert losses[2:] == pytest.approx([max_loss, max_loss, min(50, max_loss)])
    assert (
        compute_reliability_metrics(logit, correct, MetricParams(smallest_reliability=smallest))["nll_correct"]
        == losses.mean()
    )
    for invalid in (0, 0.5, np.nan):
        with pytest.raises(ValueError, match="smallest"):
            correctness_log_loss(logit, correct, invalid)


@pytest.mark.parametrize(("n", "n_retained"), [(11, 8), (90, 63), (170, 119), (180, 126), (1, 1)])
def test_retained_rows_are_rounded_up_and_at_least_one(n, n_retained):
    logit = -np.arange(n, dtype=np.float64)
    all_retained_correct = np.arange(n) < n_retained
    assert compute_reliability_metrics(logit, all_retained_correct)["selacc_70"] == 1
    one_retained_wrong = np.arange(n) < n_retained - 1
    assert compute_reliability_metrics(logit, one_retained_wrong)["selacc_70"] < 1


def test_confidences_may_exceed_one_by_rounding_only():
    assert confidence_bins(np.array([1 + 1e-9]), 10).tolist() == [9]
    for outside in (1 + 2e-9, 1.5, -1e-300, np.nan):
        with pytest.raises(ValueError, match=r"the confidence of row 1 is .*, not in \[0, 1\]"):
            confidence_bins(np.array([0.5, outside]), 10)


def test_compared_metrics_are_computed_for_each_variant():
    generator = np.random.default_rng(5)
    correct = generator.random(50) < 0.7
    logits = {"confidence": generator.normal(size=50), "mrp": generator.normal(size=50)}
    expected = []
    for variant, logit in logits.items():
        metrics = compute_reliability_metrics(logit, correct, METRIC_DEFAULTS)
        expected += [(variant, metric, metrics[metric]) for metric in ("nll_correct", "aupr_error", "aurc")]
    assert list(compute_compared_metrics(logits, correct, METRIC_DEFAULTS)) == expected


def test_retained_rows_are_counted_for_one_number_and_for_many():
    assert count_retained_rows(0, 7) == 1
    assert count_retained_rows(90, 7) == 63
    assert count_retained_rows(np.array([0, 1, 10, 11]), 5).tolist() == [1, 1, 5, 6]


def test_harmonic_sums_equal_running_sums():
    harmonic = np.append(0, np.cumsum(1 / np.arange(1, 31)))
    expected = [harmonic, np.append(0, np.cumsum(harmonic)[:-1])]
    measured = harmonic_sums(30)
    assert measured == pytest.approx(np.array(expected), abs=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        measured[0, 0] = 1
    assert harmonic_sums(0).shape == (2, 1)


def test_calibration_error_is_computed_in_double_precision():
    confidence = np.random.default_rng(0).random(50).astype(np.float32)
    correct = np.arange(50) % 3 > 0
    expected = ece(confidence.astype(np.float64), correct, 2)
    assert ece(confidence, correct, 2) == ece(confidence.tolist(), correct, 2) == expected
    assert confidence_bins(np.array([0, 1, 0]), 2).tolist() == [0, 1, 0]


def test_functions_have_the_defaults_of_the_settings():
    confidence, correct = np.random.default_rng(1).random((2, 200))
    correct = correct < 0.5
    assert ece(confidence, correct) == ece(confidence, correct, METRIC_DEFAULTS.ece_bins)
    impossible = np.array([[0.0, -np.inf]])
    assert log_loss_per_row(impossible, np.array([1])) == pytest.approx([-np.log(METRIC_DEFAULTS.smallest_probability)])
    certain = np.array([np.inf])
    assert correctness_log_loss(certain, np.array([False])) == pytest.approx(
        [-np.log(METRIC_DEFAULTS.smallest_reliability)]
    )
