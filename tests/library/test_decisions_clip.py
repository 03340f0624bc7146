"""Clipped probabilities: bounds, ties, and what they change in fits and rankings; maps are not clipped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, logit

from relmap import ReliabilityMap
from relmap.calibrators.identity import Identity
from relmap.decisions import (
    CalibratedDecisions,
    LabelledDecisions,
    ProtocolDecisions,
    clip_log_probabilities,
    clip_logits,
    decide,
)
from relmap.metrics.registry import compute_reliability_metrics
from relmap.projection.rows import split_validation
from relmap.settings import DEFAULTS

CLIP = 1e-6


def make_decisions(logits: np.ndarray) -> ProtocolDecisions:
    n_rows = len(logits)
    labels = np.arange(n_rows) % logits.shape[1]
    return ProtocolDecisions(decision=decide(logits), logits=logits, label=labels, group=np.arange(n_rows).astype(str))


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=20), st.sampled_from([1e-6, 1e-3, 0.2]))
@settings(deadline=None)
def test_logits_and_probabilities_are_clipped_to_the_same_bounds(values, smallest):
    logits = np.array(values)
    clipped = expit(clip_logits(logits, smallest))
    np.testing.assert_allclose(clipped, np.clip(expit(logits), smallest, 1 - smallest), rtol=1e-9)
    log_p = np.log(expit(logits) + 1e-300)
    np.testing.assert_allclose(np.exp(clip_log_probabilities(log_p, smallest)), clipped, rtol=1e-9)


def test_infinite_logits_are_clipped_and_a_bound_of_0_changes_nothing():
    logits = np.array([-np.inf, 0.0, np.inf])
    np.testing.assert_allclose(clip_logits(logits, CLIP), [logit(CLIP), 0, -logit(CLIP)])
    assert clip_logits(logits, 0) is logits
    assert clip_log_probabilities(logits, 0) is logits


def test_rows_beyond_the_bounds_tie_and_the_rows_between_keep_their_values():
    logits = np.array([[13.0, 0.0], [14.0, 0.0], [500.0, 0.0], [2.0, 0.0]])
    decisions = CalibratedDecisions.from_calibrator(Identity(), make_decisions(logits))
    clipped = decisions.clip(CLIP)
    assert clipped.confidence_logit[1] == clipped.confidence_logit[2] > clipped.confidence_logit[0]
    np.testing.assert_array_equal(clipped.confidence_logit[[0, 3]], decisions.confidence_logit[[0, 3]])
    assert clipped.confidence[1] == clipped.confidence[2] == pytest.approx(1 - 1e-6, rel=1e-12)
    # the vector is not normalized again
    np.testing.assert_allclose(np.exp(clipped.log_probabilities[2]), [1 - 1e-6, 1e-6], rtol=1e-9)
    three = CalibratedDecisions.from_calibrator(Identity(), make_decisions(np.array([[90.0, 0.0, 1.0]]))).clip(CLIP)
    assert np.exp(three.log_probabilities).sum() == pytest.approx(1 + 1e-6)


def test_tied_rows_change_the_ranking_of_saturated_decisions():
    """Of three saturated rows the surest is wrong; without a clip it is the first of the ranking."""
    logit_of_rows = np.array([400.0, 300.0, 200.0, 1.0])
    correct = np.array([False, True, True, True])
    exact = compute_reliability_metrics(logit_of_rows, correct)
    tied = compute_reliability_metrics(clip_logits(logit_of_rows, CLIP), correct)
    assert exact["aurc"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert tied["aurc"] == pytest.approx((3 * (1 / 3) + 1 / 4) / 4)


def test_labelled_decisions_are_clipped_for_each_calibrator():
    fixed = make_decisions(np.array([[50.0, 0.0], [1.0, 0.0]]))
    labelled = LabelledDecisions.from_calibrators([Identity(), lambda z: log_softmax(2 * z, axis=1)], fixed, CLIP)
    for decisions in labelled.by_calibrator:
        assert decisions.confidence_logit[0] == pytest.approx(-logit(CLIP))
    unclipped = LabelledDecisions.from_calibrators([Identity()], fixed)
    assert unclipped.by_calibrator[0].confidence_logit[0] == pytest.approx(50)


def test_maps_distinguish_confidences_beyond_the_clip():
    generator = np.random.default_rng(0)
    margins = generator.uniform(0, 30, 600)
    wrong = generator.random(600) < 0.3 * np.exp(-margins / 8) + 0.05
    logits = np.stack([margins, np.zeros(600)], axis=1)
    fitted = ReliabilityMap(calibrator="uncal").fit(log_softmax(logits, axis=1), wrong.astype(int))
    scored = fitted.apply(log_softmax(np.array([[15.0, 0.0], [20.0, 0.0], [25.0, 0.0]]), axis=1))
    assert np.all(np.diff(scored["reliability"]) > 0)


@given(st.integers(1, 3000), st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_each_part_of_the_validation_rows_is_rounded_by_itself(n_rows, seed):
    parts = split_validation(n_rows, seed, DEFAULTS.protocol)
    n_calibrator_fit = round(n_rows / 2)
    n_rest = n_rows - n_calibrator_fit
    n_projection_fit = max(0, min(round(n_rest / 2), n_rest - 1))
    assert [len(part) for part in parts] == [n_calibrator_fit, n_projection_fit, n_rest - n_projection_fit]
    assert sorted(np.concatenate(parts).tolist()) == list(range(n_rows))


def test_projection_fit_has_a_row_more_than_a_rounded_quarter():
    assert [len(part) for part in split_validation(13, 1, DEFAULTS.protocol)] == [6, 4, 3]
