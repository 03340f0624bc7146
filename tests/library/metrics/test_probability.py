"""Metrics of probabilities compared with their formulas."""

from collections.abc import Callable
from inspect import signature

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import binned_statistic
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from relmap.metrics.probability import accuracy, brier_score_per_row, confidence_bins, ece, log_loss_per_row, top_label
from relmap.metrics.registry import (
    ProbabilityView,
    compute_reliability_metrics,
    metrics_for_views,
)
from relmap.metrics.reliability import (
    average_precision_by_threshold,
    correctness_log_loss,
    expected_retained_errors,
    find_tie_groups,
)
from relmap.metrics.resampling import draw_resamples
from relmap.metrics.spread import LabelCells, assign_confidence_groups
from relmap.settings import METRIC_DEFAULTS


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
    with pytest.raises(ValueError, match=rf"{quantity} .*row 2 .*(NaN|nan, .*\[0, 1\])$"):
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


def test_confidences_may_exceed_one_by_rounding_only():
    assert confidence_bins(np.array([1 + 1e-9]), 10).tolist() == [9]
    for outside in (1 + 2e-9, 1.5, -1e-300, np.nan):
        with pytest.raises(ValueError, match=rf"confidence .*row 1 .*{outside}, .*\[0, 1\]"):
            confidence_bins(np.array([0.5, outside]), 10)


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
