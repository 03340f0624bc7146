"""Metrics of the reliability compared with their formulas."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import average_precision_score, log_loss

from relmap.metrics.registry import (
    ReliabilityView,
    compute_compared_metrics,
    compute_reliability_metrics,
    metrics_for_views,
)
from relmap.metrics.reliability import (
    correctness_log_loss,
    count_retained_rows,
    expected_retained_errors,
    find_tie_groups,
    harmonic_sums,
)
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
