"""SMART equals slow computations of the definition."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from relmap.calibrators import smart
from relmap.calibrators.identity import floored_log_softmax
from relmap.calibrators.registry import fit_prefixes
from relmap.calibrators.smart import Smart, SmartSettings, fit_smart, initial_parameters
from relmap.calibrators.temperature import fit_temperature
from tests import naive
from tests.fits import simulate_logits_and_labels

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [-4.0, -1.5, -2.0], [1.0, 1.25, 5.0]])


def test_seed_and_settings_reach_the_fit():
    logits, labels = simulate_logits_and_labels(30, 3)
    (fitted,) = fit_prefixes("smart", logits, labels, [25], seed=7, settings={"epochs": 4, "patience": 2})
    expected = fit_smart(logits[:25], labels[:25], seed=7, settings=SmartSettings(epochs=4, patience=2))
    np.testing.assert_array_equal(fitted.parameters, expected.parameters)
    (temperature,) = fit_prefixes("ts", logits, labels, [25], seed=7, settings={})
    assert temperature == fit_temperature(logits[:25], labels[:25], seed=1)  # the fit uses no random numbers


def mean_loss(calibrated: np.ndarray, labels: np.ndarray) -> float:
    return float(-calibrated[np.arange(len(labels)), labels].mean())


def network_by_hand(parameters: np.ndarray, margin: float) -> float:
    """Return the temperature of a margin."""
    weight_1, bias_1, weight_2, bias_2, weight_3, bias_3 = np.split(parameters, [16, 32, 288, 304, 320])
    hidden = np.maximum(weight_1 * margin + bias_1, 0)
    hidden = np.maximum(weight_2.reshape(16, 16) @ hidden + bias_2, 0)
    return float(np.log1p(np.exp(weight_3 @ hidden + bias_3[0])) + 0.1)


def test_smart_divides_log_probabilities_by_the_temperature_of_their_margin():
    parameters = initial_parameters(3)
    fitted = Smart(1.5, 0.7, parameters)
    for row, calibrated in zip(LOGITS, fitted(LOGITS), strict=True):
        log_p = np.log(softmax(row) + 1e-12)
        second, largest = np.sort(log_p)[-2:]
        expected_temperature = network_by_hand(parameters, (largest - second - 1.5) / 0.7)
        np.testing.assert_allclose(calibrated, log_softmax(log_p / expected_temperature), atol=1e-10)


def test_initial_parameters_are_uniform_within_the_bounds_of_their_layers():
    draws = np.array([initial_parameters(seed) for seed in range(40)])
    largest = np.abs(draws).max(axis=0)
    assert draws.shape == (40, 321)
    # the bound is 1 / sqrt(number of inputs): one input of the 32 parameters of layer 1, and 16 of the other layers
    assert (largest[:32] <= 1).all()
    assert (largest[:32] > 0.7).all()
    assert (largest[32:] <= 0.25).all()
    assert (largest[32:] > 0.15).all()
    np.testing.assert_array_equal(initial_parameters(7), draws[7])


def smart_by_hand(logits: np.ndarray, labels: np.ndarray, seed: int, settings: SmartSettings) -> Smart:
    """Return the network after the step of the epoch with the lowest loss, which is that before the step."""
    log_p = np.log(softmax(logits, axis=1) + 1e-12)
    ordered = np.sort(log_p, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    mean = margin.mean()
    deviation = margin.std(ddof=1)
    rows = smart.TrainingRows(
        (margin - mean) / deviation,
        (log_p - ordered[:, -1:]).T,
        log_p[np.arange(len(labels)), labels] - ordered[:, -1],
    )
    adam = naive.Adam(settings.learning_rate)
    parameters = initial_parameters(seed)
    path = []
    losses = []
    for _ in range(settings.epochs):
        summed = smart._summed_loss(parameters, rows)
        losses.append(summed.loss / len(labels))
        parameters = parameters + adam.step(summed.gradient / len(labels))
        path.append(parameters)
        if len(losses) - 1 - int(np.argmin(losses)) == settings.patience:
            break
    return Smart(mean, deviation, path[int(np.argmin(losses))])


@pytest.mark.parametrize("chunk_rows", [512, 7])
@pytest.mark.parametrize("learning_rate", [0.01, 1.0])
def test_smart_network_equals_a_plain_loop_in_any_chunks(learning_rate, chunk_rows, monkeypatch):
    monkeypatch.setattr(smart, "CHUNK_ROWS", chunk_rows)
    logits, labels = simulate_logits_and_labels(40, 3)
    settings = SmartSettings(learning_rate, epochs=10, patience=2)
    expected = smart_by_hand(logits, labels, 4, settings)
    fitted = fit_smart(logits, labels, seed=4, settings=settings)
    assert (fitted.mean, fitted.deviation) == pytest.approx((expected.mean, expected.deviation))
    np.testing.assert_allclose(fitted.parameters, expected.parameters, atol=1e-6)
    monkeypatch.setattr(smart, "CHUNK_ROWS", 512)
    whole = fitted(logits)
    monkeypatch.setattr(smart, "CHUNK_ROWS", chunk_rows)
    np.testing.assert_array_equal(fitted(logits), whole)


def test_loss_of_the_network_is_the_log_loss_at_its_temperatures():
    logits, labels = simulate_logits_and_labels(25, 3)
    fitted = fit_smart(logits, labels, seed=2, settings=SmartSettings(epochs=3))
    log_p = floored_log_softmax(logits)
    largest = log_p.max(axis=1)
    margin = (largest - np.sort(log_p, axis=1)[:, -2] - fitted.mean) / fitted.deviation
    rows = smart.TrainingRows(margin, (log_p - largest[:, None]).T, log_p[np.arange(25), labels] - largest)
    summed = smart._summed_loss(fitted.parameters, rows)
    assert summed.loss == pytest.approx(25 * mean_loss(fitted(logits), labels))


def test_deviation_of_equal_margins_is_positive():
    fitted = fit_smart(np.tile([2.0, 0.0], (5, 1)), np.array([0, 0, 0, 1, 0]), seed=1, settings=SmartSettings(epochs=1))
    assert fitted.deviation == 1e-8
    assert fitted.mean == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize(
    ("n_parameters", "is_valid"), [(321, True), (6, True), (13, True), (5, False), (1, False), (320, False)]
)
def test_a_number_of_parameters_that_no_network_has_is_a_violation(n_parameters, is_valid):
    violations = Smart(0.0, 1.0, np.zeros(n_parameters)).violations(3)
    assert len(violations) == (not is_valid)
    for violation in violations:
        assert f" {n_parameters} parameters" in violation
        assert "H^2 + 4 H + 1" in violation


def test_network_of_two_hidden_units_is_applied():
    layers = smart._split_layers(np.arange(13.0))
    assert [layer.tolist() for layer in layers] == [[0, 1], [2, 3], [[4, 5], [6, 7]], [8, 9], [10, 11], [12]]
    outputs = smart._run_network(layers, np.array([2.0, -9.0]))
    # margin 2: hidden 2, 5 -> 4 * 2 + 5 * 5 + 8 = 41, 6 * 2 + 7 * 5 + 9 = 56; margin -9: hidden 2, 0 -> 16, 21
    assert outputs.hidden_1.tolist() == [[2, 2], [5, 0]]
    assert outputs.hidden_2.tolist() == [[41, 16], [56, 21]]
    assert outputs.output.tolist() == [41 * 10 + 56 * 11 + 12, 16 * 10 + 21 * 11 + 12]
    np.testing.assert_array_equal(smart._score_margins(layers, np.array([2.0, -9.0])), outputs.output)


def test_margin_is_the_difference_of_the_two_largest_logits():
    assert smart._margin(np.array([[1.0, 5.0, 3.0], [2.0, 2.0, 1.0], [7.0, -1.0, 0.5]])).tolist() == [2, 0, 6.5]


# losses, patience, epochs; steps before the returned parameters, number of losses that are computed
SMART_PATIENCE_CASES = [
    ([5.0, 4.0, 6.0, 6.0, 3.0], 2, 9, 2, 4),
    ([5.0, 5.0, 5.0, 1.0], 2, 9, 1, 3),
    ([5.0, 5 - 5e-8, 5 - 9e-8, 1.0], 2, 9, 1, 3),  # lower by less than 1e-7
    ([5.0, 5 - 2e-7, 6.0, 6.0, 1.0], 2, 9, 2, 4),
    ([5.0, 4.0, 3.0, 2.0, 1.0], 9, 4, 4, 4),
]


@pytest.mark.parametrize(("losses", "patience", "epochs", "n_steps", "n_losses"), SMART_PATIENCE_CASES)
def test_smart_ends_after_its_patience_and_returns_the_network_after_the_best_epoch(
    losses, patience, epochs, n_steps, n_losses, monkeypatch
):
    """A constant gradient makes each step of Adam as long as the learning rate."""
    remaining = iter(losses)
    n_rows = len(LOGITS)
    monkeypatch.setattr(
        smart, "_summed_loss", lambda *_: smart.SummedLoss(n_rows * next(remaining), np.full(321, n_rows * 2.0))
    )
    fit_settings = SmartSettings(learning_rate=0.1, epochs=epochs, patience=patience)
    fitted = fit_smart(LOGITS, np.array([0, 1, 1, 2]), seed=3, settings=fit_settings)
    np.testing.assert_allclose(fitted.parameters, initial_parameters(3) - 0.1 * n_steps, atol=1e-6)
    assert len(list(remaining)) == len(losses) - n_losses
