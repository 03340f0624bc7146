"""Structured matrix scaling: its limit without evidence, its optimum, invariances, and bounds."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from relmap.calibrators.matrix import median_spread
from relmap.calibrators.structured import (
    COMPRESSION_SPREADS,
    MAX_LABELS,
    RIDGE_SCALE,
    StructuredMatrix,
    compress,
    fit_sms,
)
from relmap.calibrators.temperature import fit_bounded_temperature, fit_temperature
from relmap.metrics.probability import log_loss_per_row
from tests.fits import simulate_logits_and_labels

SHIFT = np.array([1.5, 0.0, -1.0])  # of the logits that the labels are drawn from


@pytest.mark.parametrize("n_labels", [2, 3, MAX_LABELS, MAX_LABELS + 1, 40])
def test_the_result_has_log_probabilities_of_each_label(n_labels):
    logits, labels = simulate_logits_and_labels(200, n_labels)
    calibrator = fit_sms(logits, labels, seed=1)
    log_probabilities = calibrator(logits)
    assert (log_probabilities.shape, log_probabilities.dtype) == (logits.shape, np.float64)
    np.testing.assert_allclose(np.exp(log_probabilities).sum(axis=1), 1, rtol=1e-12)
    assert (calibrator.weights.shape, calibrator.bias.shape) == ((n_labels, n_labels), (n_labels,))
    assert not calibrator.violations(n_labels)
    is_diagonal = (calibrator.weights == np.diag(np.diag(calibrator.weights))).all()
    assert is_diagonal == (n_labels > MAX_LABELS)


@pytest.mark.parametrize("n_labels", [2, 3, 20])
def test_the_fit_ignores_a_constant_that_is_added_to_the_logits_of_a_row(n_labels):
    logits, labels = simulate_logits_and_labels(300, n_labels)
    shift = np.random.default_rng(1).normal(size=(300, 1)) * 50
    calibrator = fit_sms(logits, labels, seed=1)
    shifted = fit_sms(logits + shift, labels, seed=1)
    np.testing.assert_allclose(shifted(logits + shift), calibrator(logits), atol=1e-6)
    np.testing.assert_allclose(calibrator(logits + shift), calibrator(logits), atol=1e-9)


def test_the_fit_ignores_the_numbering_of_the_labels():
    logits, labels = simulate_logits_and_labels(300, 3, shift=SHIFT)
    order = np.array([2, 0, 1])
    renumbered = fit_sms(logits[:, order], np.argsort(order)[labels], seed=1)
    calibrated = fit_sms(logits, labels, seed=1)(logits)
    np.testing.assert_allclose(renumbered(logits[:, order]), calibrated[:, order], atol=1e-5)


@pytest.mark.parametrize("n_labels", [3, 20])
def test_without_evidence_the_order_of_the_labels_is_that_of_temperature_scaling(n_labels):
    """Labels are drawn from the logits divided by a temperature, so that nothing else can be learned."""
    logits, labels = simulate_logits_and_labels(400, n_labels)
    calibrated = fit_sms(logits, labels, seed=1)(logits)
    temperature_scaled = fit_temperature(logits, labels, seed=1)(logits)
    assert (calibrated.argmax(axis=1) == logits.argmax(axis=1)).mean() > 0.995
    losses = [log_loss_per_row(each, labels, 0).mean() for each in (calibrated, temperature_scaled)]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


def test_a_label_shift_is_learned():
    logits, labels = simulate_logits_and_labels(3000, 3, overconfidence=1.0, shift=SHIFT)
    test_logits, test_labels = simulate_logits_and_labels(3000, 3, seed=1, overconfidence=1.0, shift=SHIFT)
    losses = []
    for calibrator in (fit_sms(logits, labels, seed=1), fit_temperature(logits, labels, seed=1)):
        losses.append(log_loss_per_row(calibrator(test_logits), test_labels, 0).mean())
    oracle = log_loss_per_row(log_softmax(test_logits + SHIFT, axis=1), test_labels, 0).mean()
    assert losses[0] < oracle + 0.01 < losses[1] - 0.05


def test_weights_are_the_ridge_optimum_weighted_by_its_posterior_probability():
    logits, labels = simulate_logits_and_labels(80, 3, shift=np.array([0.5, 0.0, -0.3]))
    calibrator = fit_sms(logits, labels, seed=1)
    compressed = compress(logits, calibrator.scale)
    beta = fit_temperature(compressed, labels, seed=1).beta
    start = np.eye(3, 4)
    ridge = np.full((3, 4), RIDGE_SCALE * 2 * 3 * 2 / 80)
    ridge[np.arange(3), np.arange(3)] = RIDGE_SCALE * 2 * 3 / 80
    ridge[:, 3] = RIDGE_SCALE * 2 * 3 / 80

    def objective(table: np.ndarray) -> float:
        table = table.reshape(3, 4)
        loss = log_loss_per_row(log_softmax(beta * compressed @ table[:, :3].T + table[:, 3], axis=1), labels, 0).mean()
        return float(loss + (ridge * (table - start) ** 2).sum() / 2)

    optimum = minimize(objective, start.ravel(), method="BFGS", options={"gtol": 1e-9})
    optimum_table = optimum.x.reshape(3, 4)
    features = np.column_stack([beta * compressed, np.ones(80)])
    probability = np.exp(log_softmax(features @ optimum_table.T, axis=1))
    hessian = np.diag(ridge.ravel())
    for x, p in zip(features, probability, strict=True):
        hessian += np.kron(np.diag(p) - np.outer(p, p), np.outer(x, x)) / 80
    log_evidence = 80 * (objective(start) - optimum.fun)
    log_evidence += (np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]) / 2
    posterior = expit(log_evidence)
    expected = start + posterior * (optimum_table - start)
    assert 0.01 < posterior < 0.99
    assert calibrator.scale == COMPRESSION_SPREADS * median_spread(logits)
    np.testing.assert_allclose(np.column_stack([calibrator.weights / beta, calibrator.bias]), expected, atol=1e-4)


@pytest.mark.parametrize("n_labels", [2, 3, 20])
@pytest.mark.parametrize("kind", ["all correct", "all wrong", "one label", "equal logits"])
def test_weights_are_bounded(n_labels, kind):
    """Without an error, the odds of the median decision are at most 2 n + 2 after the temperature."""
    n_rows = 600
    logits, labels = simulate_logits_and_labels(n_rows, n_labels)
    decision = logits.argmax(axis=1)
    if kind == "equal logits":
        logits = np.zeros_like(logits)
    else:
        labels = {"all correct": decision, "all wrong": (decision + 1) % n_labels, "one label": 0 * decision}[kind]
    calibrator = fit_sms(logits, labels, seed=1)
    assert max(np.abs(calibrator.weights).max(), np.abs(calibrator.bias).max()) < 50
    log_probabilities = calibrator(logits)
    assert np.isfinite(log_probabilities).all()
    if kind == "all correct" and n_labels > MAX_LABELS:
        runner_up = np.sort(log_probabilities, axis=1)[:, -2]
        gap = np.median(log_probabilities.max(axis=1) - runner_up)
        assert gap == pytest.approx(np.log(2 * n_rows + 2))


@pytest.mark.parametrize("absent", [[3], [0, 2], [1, 2, 3], []])
def test_a_label_that_no_row_has_or_decides_has_only_the_temperature(absent):
    logits, labels = simulate_logits_and_labels(600, 4, shift=np.array([0.5, 0.0, -0.5, 1.0]))
    is_kept = ~(np.isin(labels, absent) | np.isin(logits.argmax(axis=1), absent))
    logits, labels = logits[is_kept], labels[is_kept]
    calibrator = fit_sms(logits, labels, seed=1)
    beta = fit_bounded_temperature(compress(logits, calibrator.scale), labels, seed=1).beta
    unchanged = beta * np.eye(4)
    np.testing.assert_array_equal(calibrator.weights[absent], unchanged[absent])
    np.testing.assert_array_equal(calibrator.weights[:, absent], unchanged[:, absent])
    assert (calibrator.bias[absent] == 0).all()
    present = np.setdiff1d(np.arange(4), absent)
    if len(present) > 1:
        assert (calibrator.bias[present] != 0).any()
        # the ridge centres the biases of the other labels, so that they do not shift a label without rows either
        assert calibrator.bias[present].sum() == pytest.approx(0, abs=1e-6)


def test_a_new_label_is_predicted_as_well_as_with_temperature_scaling():
    logits, labels = simulate_logits_and_labels(2000, 4, shift=np.array([0.5, 0.0, -0.5, 0.0]))
    test_logits, test_labels = simulate_logits_and_labels(2000, 4, seed=1, shift=np.array([0.5, 0.0, -0.5, 0.0]))
    is_kept = (labels != 3) & (logits.argmax(axis=1) != 3)
    losses = []
    for fit in (fit_sms, fit_bounded_temperature):
        calibrated = fit(logits[is_kept], labels[is_kept], seed=1)(test_logits)
        losses.append(log_loss_per_row(calibrated, test_labels, 0).mean())
    assert losses[0] < losses[1] + 0.02


def test_decisions_for_a_label_that_is_never_true_lower_its_probability():
    logits, labels = simulate_logits_and_labels(2000, 4)
    is_kept = labels != 3
    calibrated = fit_sms(logits[is_kept], labels[is_kept], seed=1)(logits)
    assert np.exp(calibrated[:, 3]).max() < 0.2


def test_compression_is_linear_near_the_largest_logit_and_logarithmic_far_from_it():
    logits = np.array([[5.0, 4.99, 3.0, -1e300], [0.0, -1e-3, -1e6, -1e6]])
    compressed = compress(logits, 2.0)
    assert (compressed[:, 0] == 0).all()
    np.testing.assert_allclose(compressed[[0, 1], [1, 1]], [-0.01, -1e-3], rtol=1e-4)
    assert compressed[1, 2] == pytest.approx(-2 * np.log(1e6), rel=1e-6)
    assert np.isfinite(compressed).all()
    assert (np.diff(compressed[0]) < 0).all()


@pytest.mark.parametrize("label", [0, 1, 2])
def test_one_wrong_row_with_extreme_logits_changes_the_fit_less_than_temperature_scaling(label):
    logits, labels = simulate_logits_and_labels(500, 3, shift=SHIFT)
    extreme = logits.copy()
    extreme[0] = [0.0, 1e5, -1e5]  # label 1 is decided
    labels[0] = label
    changes = []
    for fit in (fit_sms, fit_temperature):
        before = fit(logits, labels, seed=1)(logits[1:])
        after = fit(extreme, labels, seed=1)(logits[1:])
        changes.append(np.abs(np.exp(before) - np.exp(after)).mean())
    assert changes[0] < (0.005 if label == 1 else 0.5 * changes[1])


def test_decisions_far_from_each_other_are_scored_without_overflow():
    calibrator = StructuredMatrix(scale=1.0, weights=np.eye(3), bias=np.zeros(3))
    with np.errstate(over="raise", invalid="raise"):
        log_probabilities = calibrator(np.array([[0.0, 1e300, -1e300]]))
    assert log_probabilities[0, 1] == pytest.approx(0)
