"""Spline equals slow computations of the definition."""

import re

import numpy as np
import pytest
from scipy.special import expit, logit, softmax

from relmap.calibrators.registry import fit_prefixes
from relmap.calibrators.spline import (
    PublishedSpline,
    Spline,
    fit_published_spline,
    fit_spline,
    fit_spline_of_confidence,
)
from relmap.calibrators.temperature import Temperature
from relmap.decisions import decide
from tests.fits import simulate_logits_and_labels


def test_spline_is_a_cubic_between_knots_and_constant_outside():
    knots = np.array([0.2, 0.5, 0.9])
    coefficients = np.array([[0.1, 0.2, -0.3, 0.4], [1.0, -2.0, 0.5, 0.25]])
    fitted = Spline(knots, coefficients)

    def cubic(row: int, position: float) -> float:
        return float(expit(coefficients[row] @ position ** np.arange(4)))

    confidence = np.array([0.0, 0.2, 0.35, 0.5, 0.6, 0.9, 1.0])
    expected = [cubic(0, 0), cubic(0, 0), cubic(0, 0.5), cubic(1, 0), cubic(1, 0.25), cubic(1, 1), cubic(1, 1)]
    np.testing.assert_allclose(fitted.calibrate_confidence(confidence), expected, rtol=1e-12)


def test_spline_is_at_least_a_millionth_from_0_and_1():
    steep = Spline(np.array([0.0, 1.0]), np.array([[-30.0, 60.0, 0.0, 0.0]]))
    np.testing.assert_array_equal(steep.calibrate_confidence(np.array([0.0, 0.5, 1.0])), [1e-6, 0.5, 1 - 1e-6])
    calibrated = steep(np.array([[50.0, 0.0, 1.0]]))
    others = np.log(softmax([0.0, 1.0]) * 1e-6)
    np.testing.assert_allclose(calibrated, [[np.log(1 - 1e-6), *others]], rtol=1e-6)


@pytest.mark.parametrize(
    ("confidence", "n_correct"),
    [
        (np.linspace(0.3, 0.9, 8), 8),
        (np.linspace(0.3, 0.9, 8), 0),
        (np.full(8, 0.6), 5),
        (0.6 + np.arange(8) * 1e-10, 5),
    ],
)
def test_spline_without_information_is_the_share_of_correct_rows(confidence, n_correct):
    fitted = fit_spline_of_confidence(confidence, np.arange(8) < n_correct)
    share = (n_correct + 0.5) / 9
    assert fitted.knots.tolist() == [0, 1]
    np.testing.assert_allclose(fitted.coefficients, [[logit(share), 0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(fitted.calibrate_confidence(np.array([0.0, 0.4, 1.0])), share)


def test_spline_of_slightly_different_confidences_has_eight_knots():
    confidence = 0.6 + np.arange(8) * 1e-8
    fitted = fit_spline_of_confidence(confidence, np.arange(8) % 3 > 0)
    np.testing.assert_allclose(fitted.knots, np.linspace(0.6, 0.6 + 7e-8, 8), rtol=1e-12)
    assert fitted.coefficients.shape == (7, 4)


def test_spline_of_logits_is_fitted_to_the_confidence_of_the_decision():
    logits, labels = simulate_logits_and_labels(60, 3)
    confidence = softmax(logits, axis=1).max(axis=1)
    expected = fit_spline_of_confidence(confidence, decide(logits) == labels)
    np.testing.assert_allclose(fit_spline(logits, labels, seed=1).coefficients, expected.coefficients, rtol=1e-9)


@pytest.mark.parametrize(
    ("knots", "is_valid"), [([0.0, 0.5, 1.0], True), ([0.0, 0.5, 0.5], False), ([0.5, 0.4, 1.0], False)]
)
def test_knots_of_a_spline_increase(knots, is_valid):
    violations = Spline(np.array(knots), np.zeros((2, 4))).violations(2)
    assert len(violations) == (not is_valid)
    for violation in violations:
        assert re.search("knots .*increase", violation)


def test_published_spline_floors_the_rest_of_saturated_rows():
    """With m = 0.7: other labels share 0.3 / max(1 - c, 1e-8), at least 1e-8 each, and all are normalized."""
    calibrate = PublishedSpline(Spline(np.array([0.0, 1.0]), np.array([[logit(0.7), 0, 0, 0]])))
    logits = np.array([[0.0, -1.0, -2.0], [0.0, -40.0, -50.0], [0.0, -19.0, -np.inf]])
    probabilities = np.exp(calibrate(logits))
    np.testing.assert_allclose(probabilities[0], [0.7, *(0.3 * softmax([-1.0, -2.0]))], rtol=1e-6)
    np.testing.assert_allclose(probabilities[1], np.array([0.7, 3e-5, 3e-5]) / 0.70006, rtol=1e-3)
    assert 0.7 < probabilities[2, 0] < 1
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    own_form = np.exp(calibrate.curve(logits))
    np.testing.assert_allclose(own_form[:, 0], 0.7, rtol=1e-12)  # maps give the mapped confidence


def test_published_spline_is_at_least_its_floor_from_0_and_1():
    steep = PublishedSpline(Spline(np.array([0.0, 1.0]), np.array([[-30.0, 60.0, 0.0, 0.0]])))
    np.testing.assert_array_equal(steep.calibrate_confidence(np.array([0.0, 0.5, 1.0])), [1e-8, 0.5, 1 - 1e-8])


def test_published_spline_equals_the_spline_where_confidences_are_not_saturated():
    logits, labels = simulate_logits_and_labels(200, 3)
    published = fit_published_spline(logits, labels, seed=1)
    own_form = fit_spline(logits, labels, seed=1)
    np.testing.assert_allclose(np.exp(published(logits)), np.exp(own_form(logits)), atol=1e-6)


@pytest.mark.parametrize(("label", "expected"), [(0, 1 - 1e-8), (1, 1e-8)])
def test_published_spline_of_equal_outcomes_is_constant(label, expected):
    logits = np.array([[2.0, 0.0], [3.0, 0.0], [0.5, 0.0]])
    fitted = fit_published_spline(logits, np.full(3, label), seed=1)
    np.testing.assert_allclose(fitted.calibrate_confidence(np.array([0.0, 0.6, 1.0])), expected, rtol=1e-9)


@pytest.mark.parametrize(("n_distinct", "n_knots"), [(1, 2), (2, 2), (3, 3), (7, 7), (8, 8), (20, 8)])
def test_published_spline_has_at_most_as_many_knots_as_confidences(n_distinct, n_knots):
    margins = np.arange(60) % n_distinct / 4 + 0.5
    logits = np.stack([margins, np.zeros(60)], axis=1)
    fitted = fit_published_spline(logits, (np.arange(60) % 4 == 0).astype(int), seed=1)
    assert len(fitted.curve.knots) == n_knots


def test_only_tables_of_the_paper_use_published_fits():
    logits, labels = simulate_logits_and_labels(60, 3)
    (for_maps,) = fit_prefixes("spline", logits, labels, [60], seed=1)
    (for_tables,) = fit_prefixes("spline", logits, labels, [60], seed=1, published=True)
    assert isinstance(for_maps, Spline)
    assert isinstance(for_tables, PublishedSpline)
    assert isinstance(fit_prefixes("ts", logits, labels, [60], seed=1, published=True)[0], Temperature)


def test_confidences_in_single_precision_give_the_spline_of_double_precision():
    generator = np.random.default_rng(5)
    confidence = generator.random(300).astype(np.float32)
    correct = generator.random(300) < confidence
    single = fit_spline_of_confidence(confidence, correct)
    double = fit_spline_of_confidence(confidence.astype(np.float64), correct)
    np.testing.assert_array_equal(single.knots, double.knots)
    np.testing.assert_array_equal(single.coefficients, double.coefficients)
