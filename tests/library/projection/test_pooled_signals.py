"""Signals of a map: one weight for each signal, fitted jointly with the lines of the labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.io.frames import FramePredictions
from relmap.maps.document import load_map, save_map
from relmap.maps.score import FittedMap
from relmap.projection.pooled import SIGNAL_DEVIATION, SignalAdjusted, fit_mrp_pooled, fit_pooled_line
from relmap.projection.rows import FitBatch
from relmap.settings import ProjectionParams
from tests import maps
from tests.maps import fit_file as fit_map
from tests.maps import read_labelled as read_labelled_rows

N_LABELS = 3


def simulate_rows(n: int, weights: list[float], seed: int = 0) -> tuple[CalibratedDecisions, np.ndarray]:
    """Simulate decisions whose logit of the reliability is that of the confidence plus weighted signals."""
    generator = np.random.default_rng(seed)
    confidence_logit = generator.normal(size=n) + 0.5
    decision = generator.integers(0, N_LABELS, n)
    signals = generator.normal(size=(n, len(weights)))
    correct = generator.random(n) < expit(confidence_logit + signals @ np.array(weights))
    return CalibratedDecisions(confidence_logit, decision, signals=signals), correct


def fit_model(decisions: CalibratedDecisions, correct: np.ndarray) -> SignalAdjusted:
    batch = FitBatch(LabelledDecisions([decisions], correct), N_LABELS, ProjectionParams())
    return fit_mrp_pooled(batch)[0]


@pytest.mark.parametrize(("n", "tolerance"), [(300, 0.4), (4000, 0.12)])
def test_weights_of_signals_are_recovered_and_shared_by_labels(n, tolerance):
    decisions, correct = simulate_rows(n, [1.0, 0.0, -0.5])
    model = fit_model(decisions, correct)
    assert model.weights.shape == (3,)
    np.testing.assert_allclose(model.weights, [1.0, 0.0, -0.5], atol=tolerance)
    assert not model.violations(N_LABELS)


def test_a_score_is_that_of_the_curves_plus_the_weighted_signals():
    decisions, correct = simulate_rows(200, [0.8, -0.3])
    model = fit_model(decisions, correct)
    without = CalibratedDecisions(decisions.confidence_logit, decisions.decision)
    expected = model.base.bound(model.base.unbounded_logit(without) + decisions.signals @ model.weights)
    np.testing.assert_allclose(model(decisions), expected, atol=1e-12)


def test_mean_reliability_of_a_signal_adjusted_map_is_the_share_of_correct_decisions():
    """Curves are lowered by the mean contribution of the signals, which is not 0 for each label."""
    decisions, correct = simulate_rows(6000, [1.0])
    signals = decisions.signals + decisions.decision[:, None]
    shifted = CalibratedDecisions(decisions.confidence_logit, decisions.decision, signals=signals)
    reliability = expit(fit_model(shifted, correct)(shifted))
    for label in range(N_LABELS):
        rows = decisions.decision == label
        assert reliability[rows].mean() == pytest.approx(correct[rows].mean(), abs=0.01)


def test_the_curve_of_a_label_is_the_optimum_less_the_mean_contribution_of_the_signals_to_its_rows():
    simulated, correct = simulate_rows(900, [1.0])
    signals = simulated.signals + simulated.decision[:, None]
    decisions = CalibratedDecisions(simulated.confidence_logit, simulated.decision, signals=signals)
    batch = FitBatch(LabelledDecisions([decisions], correct), N_LABELS, ProjectionParams())
    model = fit_mrp_pooled(batch)[0]
    contribution = signals[:, 0] * model.weights[0]  # its mean rises with the label
    for label in range(N_LABELS):
        mean = contribution[decisions.decision == label].mean()
        np.testing.assert_allclose(model.base.curves.values[label], batch.exact_fit.values[0][label] - mean, atol=1e-12)


def test_weights_are_bounded_by_their_prior_if_a_signal_predicts_perfectly():
    decisions, correct = simulate_rows(400, [0.0])
    signals = np.where(correct, 1.0, -1.0)[:, None]
    model = fit_model(CalibratedDecisions(decisions.confidence_logit, decisions.decision, signals=signals), correct)
    assert 1 < model.weights[0] < 10 * SIGNAL_DEVIATION


@given(n=st.integers(1, 60), n_signals=st.integers(0, 2), seed=st.integers(0, 1000), n_levels=st.sampled_from([2, 9]))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_the_order_of_the_rows_changes_no_bit_of_the_lines(n, n_signals, seed, n_levels):
    generator = np.random.default_rng(seed)
    confidence = logit(generator.integers(0, n_levels + 1, n) / n_levels)  # ties, and confidences of 0 and 1
    decision = generator.integers(0, N_LABELS, n)
    correct = generator.random(n) < 0.7
    signals = generator.integers(-1, 2, (n, n_signals)).astype(float) if n_signals else None
    fitted = fit_pooled_line(confidence, decision, correct, N_LABELS, signals)
    order = generator.permutation(n)
    reordered = fit_pooled_line(
        confidence[order], decision[order], correct[order], N_LABELS, None if signals is None else signals[order]
    )
    np.testing.assert_array_equal(reordered.line.slope, fitted.line.slope)
    np.testing.assert_array_equal(reordered.line.intercept, fitted.line.intercept)
    np.testing.assert_array_equal(reordered.signal_weights, fitted.signal_weights)
    assert len(fitted.signal_weights) == n_signals
    assert (fitted.line.slope >= 0).all()


def test_a_map_with_signals_scores_the_same_rows_after_it_was_saved(tmp_path):
    file = FramePredictions.from_frame(maps.make_predictions_with_signals(300))
    labelled = read_labelled_rows(file, group=None, names=None, signals=("agreement", "source"))
    document = fit_map(file, signals=("agreement", "source"))[0]
    save_map(document, tmp_path / "map.json")
    loaded = load_map(tmp_path / "map.json")
    assert isinstance(loaded.projection.fitted, SignalAdjusted)
    assert loaded.projection.name == "mrp_pooled"
    before = FittedMap.from_document(document)(labelled.rows).logit
    np.testing.assert_array_equal(FittedMap.from_document(loaded)(labelled.rows).logit, before)
