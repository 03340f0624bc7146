"""Entries of the registry of metrics, and how each is computed from its view."""

import numpy as np
import pytest
from scipy.special import log_softmax

from relmap.metrics.registry import (
    COMPARED_METRICS,
    METRICS,
    DecisionView,
    LabelView,
    ProbabilityView,
    ReliabilityView,
    SimplexView,
    compute_reliability_metrics,
    metrics_for_views,
)
from relmap.metrics.resampling import Resamples, draw_resamples
from relmap.metrics.spread import LabelCells
from relmap.settings import METRIC_DEFAULTS, MetricParams

N_ROWS = 40
SPREAD = ("spread_groups", "spread_minimum_cell", "smallest_probability")
PARAMS = METRIC_DEFAULTS.model_copy(
    update={
        "ece_bins": 4,
        "smallest_probability": 0.2,
        "smallest_reliability": 0.3,
        "spread_groups": 3,
        "spread_minimum_cell": 2,
        "spread_permutations": 20,
    }
)


@pytest.mark.parametrize(
    ("key", "title", "direction", "view", "choices"),
    [
        ("accuracy", "accuracy", 1, DecisionView, ()),
        ("ece", "ECE", -1, ProbabilityView, ("ece_bins", "smallest_probability")),
        ("top_ece", "ECE of the top label", -1, ProbabilityView, ("ece_bins", "smallest_probability")),
        ("nll", "NLL", -1, ProbabilityView, ("smallest_probability",)),
        ("brier", "Brier score", -1, ProbabilityView, ("smallest_probability",)),
        ("label_spread", "label spread", 0, LabelView, SPREAD),
        ("label_spread_null_p95", "label spread, shuffled", 0, LabelView, (*SPREAD, "spread_permutations")),
        ("nll_correct", "correctness log loss", -1, ReliabilityView, ("smallest_reliability",)),
        ("aupr_error", "AUPR-Error", 1, ReliabilityView, ("ties",)),
        ("aurc", "AURC", -1, ReliabilityView, ()),
        ("augrc", "AUGRC", -1, ReliabilityView, ()),
        ("selacc_10", "selective accuracy at 10%", 1, ReliabilityView, ()),
        ("selacc_50", "selective accuracy at 50%", 1, ReliabilityView, ()),
        ("selacc_70", "selective accuracy at 70%", 1, ReliabilityView, ()),
        ("selacc_90", "selective accuracy at 90%", 1, ReliabilityView, ()),
        ("infeasible_share", "infeasible", 0, SimplexView, ()),
        ("solved_share", "solved", 0, SimplexView, ()),
    ],
)
def test_each_metric_is_registered_with_its_view_and_settings(key, title, direction, view, choices):
    (metric,) = [metric for metric in metrics_for_views(view) if metric.key == key]
    assert METRICS[key] is metric
    assert (metric.title, metric.direction, metric.choices) == (title, direction, choices)
    assert metric.resampled == (key not in {"label_spread_null_p95", "infeasible_share", "solved_share"})
    assert metric.compared == (key in COMPARED_METRICS)


def test_metrics_are_listed_in_the_order_of_the_registry_and_for_the_given_views_only():
    assert len(METRICS) == 17
    assert COMPARED_METRICS == ("nll_correct", "aupr_error", "aurc")
    metrics = metrics_for_views(LabelView, DecisionView)
    assert [metric.key for metric in metrics] == ["accuracy", "label_spread", "label_spread_null_p95"]


class Rows:
    """Rows whose decision is often not the most probable label, with each number that the metrics need."""

    def __init__(self) -> None:
        generator = np.random.default_rng(3)
        self.log_p = log_softmax(generator.normal(size=(N_ROWS, 3)) * 1.5, axis=1)
        self.decision = generator.integers(3, size=N_ROWS)
        self.label = generator.integers(3, size=N_ROWS)
        self.correct = self.decision == self.label
        self.resamples = draw_resamples(np.arange(N_ROWS) // 2, resamples=5, seed=1)

    def view(self, draws: Resamples | None = None) -> ProbabilityView:
        return ProbabilityView(self.correct, PARAMS, draws, self.decision, self.log_p, self.label)

    def label_view(self, seed: int, draws: Resamples | None = None) -> LabelView:
        return LabelView(self.correct, PARAMS, draws, self.decision, self.log_p, self.label, seed)


ROWS = Rows()


def four_bin_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Compute the calibration error over four bins by a loop."""
    total = 0.0
    for bin_number in range(4):
        in_bin = np.floor(4 * confidence) == bin_number
        total += abs((confidence - correct)[in_bin].sum())
    return total / len(confidence)


def test_probability_metrics_equal_their_formulas_with_the_settings_given():
    probability = np.clip(np.exp(ROWS.log_p), 0.2, 0.8)
    row = np.arange(N_ROWS)
    top = probability.argmax(axis=1)
    expected = {
        "ece": four_bin_error(probability[row, ROWS.decision], ROWS.correct),
        "top_ece": four_bin_error(probability.max(axis=1), top == ROWS.label),
        "nll": -np.log(probability[row, ROWS.label]).mean(),
        "brier": ((probability - np.eye(3)[ROWS.label]) ** 2).sum(axis=1).mean(),
    }
    measured = {metric.key: metric.function(ROWS.view()) for metric in metrics_for_views(ProbabilityView)}
    assert measured == pytest.approx(expected, abs=1e-12)
    assert {type(value) for value in measured.values()} == {float}


def test_accuracy_is_the_share_of_correct_decisions():
    accuracy = METRICS["accuracy"].function
    correct = np.array([True, False, True, True])
    assert accuracy(DecisionView(correct, PARAMS, None)) == 0.75
    assert np.isnan(accuracy(DecisionView(correct[:0], PARAMS, None)))

    resamples = draw_resamples(np.arange(4), resamples=6, seed=0)
    row_counts = resamples.sums(np.ones(4), np.arange(4), 4)  # how often each row (first axis) is in each resample
    resampled = accuracy(DecisionView(correct, PARAMS, resamples))
    assert resampled == pytest.approx(correct @ row_counts / 4, abs=1e-12)


def test_confidence_is_the_clipped_probability_of_the_decision():
    expected = np.clip(np.exp(ROWS.log_p)[np.arange(N_ROWS), ROWS.decision], 0.2, 0.8)
    assert ROWS.view().confidence == pytest.approx(expected, abs=1e-15)


def test_class_log_loss_is_clipped_at_both_ends():
    """A true label of probability 1, 0 and 5e-10 costs 1e-6, 13.8 and 13.8 nats."""
    rows = np.log(np.array([[1, 1e-300, 1e-300], [1e-300, 1, 1e-300], [1 - 1e-9, 5e-10, 5e-10]]))
    labels = np.array([0, 0, 1])
    params = METRIC_DEFAULTS.model_copy(update={"smallest_probability": 1e-6})
    log_loss = METRICS["nll"].function
    found = [
        log_loss(ProbabilityView(np.ones(1, bool), params, None, labels[[i]], rows[[i]], labels[[i]])) for i in range(3)
    ]
    np.testing.assert_allclose(found, [1.0000005e-06, 13.8155106, 13.8155106], rtol=1e-8)


def test_label_spread_uses_the_confidence_the_settings_and_the_seed():
    confidence = ROWS.view().confidence
    cells = LabelCells.from_decisions(confidence, ROWS.decision, ROWS.correct, PARAMS)
    view = ROWS.label_view(5)
    spread = METRICS["label_spread"].function
    assert spread(view) == cells.spread()
    assert spread(view) > 0

    shuffled = METRICS["label_spread_null_p95"].function
    assert shuffled(view) == cells.shuffled_quantile(5)
    assert shuffled(view) > 0
    other_seed = ROWS.label_view(6)
    assert shuffled(other_seed) == cells.shuffled_quantile(6)
    assert shuffled(other_seed) != shuffled(view)

    expected = ROWS.resamples.label_spread(confidence, ROWS.decision, ROWS.correct, PARAMS)
    assert spread(ROWS.label_view(5, ROWS.resamples)).tolist() == expected.tolist()
    assert len(set(expected)) == 5


def test_shares_of_infeasible_and_of_solved_rows():
    view = SimplexView(
        ROWS.correct[:8],
        PARAMS,
        None,
        feasible=np.array([True, True, True, True, True, False, True, True]),
        solved=np.array([True, False, True, True, False, True, True, False]),
    )
    assert METRICS["infeasible_share"].function(view) == 1 / 8
    assert METRICS["solved_share"].function(view) == 5 / 8


def test_average_precision_by_threshold_is_nan_in_resamples():
    logit = np.round(ROWS.log_p[:, 0], 1)
    by_threshold = MetricParams(ties="threshold")
    measured = compute_reliability_metrics(logit, ROWS.correct, by_threshold, ROWS.resamples)
    expected = compute_reliability_metrics(logit, ROWS.correct, METRIC_DEFAULTS, ROWS.resamples)

    assert measured["aupr_error"].shape == (5,)
    assert np.isnan(measured.pop("aupr_error")).all()
    assert np.isfinite(expected.pop("aupr_error")).all()
    for name, replicates in expected.items():
        assert measured[name].tolist() == replicates.tolist()


def test_metrics_of_a_reliability_have_the_order_of_the_registry():
    measured = compute_reliability_metrics(ROWS.log_p[:, 0], ROWS.correct, PARAMS)
    assert list(measured) == [metric.key for metric in metrics_for_views(ReliabilityView)]


def test_correctness_log_loss_equals_its_formula_with_clipped_reliability():
    measured = compute_reliability_metrics(ROWS.log_p[:, 0], ROWS.correct, PARAMS)
    reliability = np.clip(1 / (1 + np.exp(-ROWS.log_p[:, 0])), 0.3, 0.7)
    probability_of_outcome = np.where(ROWS.correct, reliability, 1 - reliability)
    assert measured["nll_correct"] == pytest.approx(-np.log(probability_of_outcome).mean(), abs=1e-12)


@pytest.mark.parametrize("number_type", [np.uint8, np.int64, np.float32, list])
def test_logits_and_correctness_may_have_any_type_of_numbers(number_type):
    logit = np.array([3, 0, 2, 2, 1])
    correct = np.array([1, 0, 1, 0, 0])
    if number_type is list:
        given = logit.tolist(), correct.tolist()
    else:
        given = logit.astype(number_type), correct
    for draws in (None, draw_resamples(np.arange(5), resamples=4, seed=1)):
        expected = compute_reliability_metrics(logit.astype(np.float64), correct.astype(bool), draws=draws)
        measured = compute_reliability_metrics(*given, draws=draws)
        assert list(measured) == list(expected)
        for name, value in expected.items():
            np.testing.assert_array_equal(measured[name], value)
