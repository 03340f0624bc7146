"""One contract for every calibrator, then what each of them promises on its own."""

import dataclasses
import pickle

import numpy as np
import pytest
from fits import logits_and_labels as simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp, softmax

from tasks.calibrators import CALIBRATORS, fit_on_first, temperature
from tasks.calibrators.hcalibration import HCalibrationSettings
from tasks.calibrators.identity import Identity
from tasks.calibrators.smart import SmartSettings
from tasks.calibrators.temperature import LOG_BETA_BOUNDS, Temperature, fit_temperature
from tasks.protocol.results import Calibrator

ORDER_PRESERVING = [
    name for name in CALIBRATORS if name not in {"spline", "hcal", "vector", "matrix"}
]  # within each row
MINIMISE_LOG_LOSS = [name for name in CALIBRATORS if name not in {"spline", "hcal", "diag"}]  # uncal: trivially
QUICK = {  # the laws hold after every step
    "hcal": HCalibrationSettings(epochs=20),
    "smart": SmartSettings(epochs=250),
}
every_calibrator = pytest.mark.parametrize("name", CALIBRATORS)


def fit(name: str, logits: np.ndarray, labels: np.ndarray, *, seed: int) -> Calibrator:
    """The calibrator as the pipeline fits it, but for the number of steps."""
    quick = {"settings": QUICK[name]} if name in QUICK else {}
    return CALIBRATORS[name].fit(logits, labels, seed=seed, **quick)


def log_loss(log_probabilities: np.ndarray, labels: np.ndarray) -> float:
    return float(-log_probabilities[np.arange(len(labels)), labels].mean())


def assert_log_probabilities(log_probabilities: np.ndarray, shape: tuple[int, ...]) -> None:
    assert log_probabilities.shape == shape
    assert log_probabilities.dtype == np.float64
    assert not np.isnan(log_probabilities).any()
    assert (log_probabilities <= 1e-12).all()
    np.testing.assert_allclose(logsumexp(log_probabilities, axis=1), 0, atol=1e-12)


@every_calibrator
@pytest.mark.parametrize("n_labels", range(2, 11))
def test_any_number_of_labels_gives_rows_that_sum_to_one(name, n_labels):
    logits, labels = simulated(300, n_labels)
    calibrator = fit(name, logits, labels, seed=1)
    other, _ = simulated(50, n_labels, seed=1)
    assert_log_probabilities(calibrator(other), (50, n_labels))
    assert calibrator(other[:0]).shape == (0, n_labels)


@every_calibrator
def test_a_fit_on_first_rows_is_that_of_those_rows_alone_bit_for_bit(name):
    logits, labels = simulated(260, 3)
    asked = [160, 40, 260, 101, 1000, 160]
    fits = fit_on_first(name, logits, labels, asked, seed=2)
    alone = {rows: CALIBRATORS[name].fit(logits[:rows], labels[:rows], seed=2)(logits) for rows in (160, 40, 260, 101)}
    for rows, calibrator in zip(asked, fits, strict=True):
        np.testing.assert_array_equal(calibrator(logits), alone[min(rows, 260)])
    assert fits[2] is fits[4]
    assert fits[0] is fits[5]
    assert fit_on_first(name, logits, labels, [], seed=2) == []


@every_calibrator
def test_a_row_is_calibrated_without_regard_to_its_neighbours(name):
    logits, labels = simulated(400, 3)
    calibrator = fit(name, logits, labels, seed=1)
    np.testing.assert_allclose(calibrator(logits)[7:9], calibrator(logits[7:9]), rtol=0, atol=1e-12)


@every_calibrator
def test_a_label_may_be_absent_from_the_fit(name):
    logits, labels = simulated(400, 4)
    present = labels != 2
    calibrator = fit(name, logits[present], labels[present], seed=1)
    assert_log_probabilities(calibrator(logits), logits.shape)


@every_calibrator
@pytest.mark.parametrize("n", [1, 2, 5, 29])
def test_few_rows_are_enough(name, n):
    logits, labels = simulated(n, 3)
    assert_log_probabilities(fit(name, logits, labels, seed=1)(logits), logits.shape)


@every_calibrator
def test_a_constant_confidence_can_be_calibrated(name):
    labels = np.array([0, 0, 1, 2] * 20)
    logits = np.tile([2.0, 1.0, 0.0], (len(labels), 1))
    assert_log_probabilities(fit(name, logits, labels, seed=1)(logits), logits.shape)


@pytest.mark.parametrize("name", ORDER_PRESERVING)
def test_equal_logits_stay_equal(name):
    logits = np.full((40, 3), 0.7)
    calibrated = fit(name, logits, np.arange(40) % 3, seed=1)(logits)
    np.testing.assert_allclose(calibrated, np.log(1 / 3), atol=1e-6)


@every_calibrator
def test_saturated_logits_stay_finite(name):
    logits, labels = simulated(200, 3, overconfidence=2000.0)
    assert_log_probabilities(fit(name, logits, labels, seed=1)(logits), logits.shape)


@pytest.mark.parametrize("name", ORDER_PRESERVING)
def test_the_order_of_labels_within_a_row_stays(name):
    logits, labels = simulated(500, 5)
    calibrated = fit(name, logits, labels, seed=1)(logits)
    np.testing.assert_array_equal(np.argsort(calibrated, axis=1), np.argsort(logits, axis=1))


@pytest.mark.parametrize("name", MINIMISE_LOG_LOSS)
@pytest.mark.parametrize("overconfidence", [0.2, 1.0, 5.0])
def test_the_log_loss_of_the_fitted_rows_does_not_rise(name, overconfidence):
    logits, labels = simulated(500, 4, overconfidence=overconfidence)
    calibrator = fit(name, logits, labels, seed=1)
    assert log_loss(calibrator(logits), labels) <= log_loss(log_softmax(logits, axis=1), labels) + 1e-12


@every_calibrator
def test_the_fitted_value_cannot_be_changed_and_pickles(name):
    logits, labels = simulated(200, 3)
    calibrator = fit(name, logits, labels, seed=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibrator.anything = 1
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(calibrator))(logits), calibrator(logits))


@every_calibrator
def test_the_input_is_not_touched(name):
    logits, labels = simulated(200, 3)
    logits.flags.writeable = labels.flags.writeable = False
    calibrated = fit(name, logits, labels, seed=1)(logits)
    assert not np.shares_memory(calibrated, logits)


def test_uncal_is_the_softmax():
    logits, labels = simulated(100, 3)
    assert CALIBRATORS["uncal"].fit(logits, labels, seed=1) == Identity()
    np.testing.assert_allclose(np.exp(Identity()(logits)), softmax(logits, axis=1), atol=1e-15)


# Temperature


def test_beta_of_a_hand_worked_example():
    # gaps of 2 in all rows, 3 of 4 rows right: sigmoid(2 beta) = 3/4, so beta = ln(3) / 2
    logits = np.array([[2.0, 0.0]] * 4)
    np.testing.assert_allclose(fit_temperature(logits, np.array([0, 0, 0, 1]), seed=1).beta, np.log(3) / 2, rtol=1e-14)


def slope(logits: np.ndarray, labels: np.ndarray, beta: float) -> float:
    expected = (softmax(beta * logits, axis=1) * logits).sum(axis=1)
    return float((expected - logits[np.arange(len(labels)), labels]).mean())


@given(
    n=st.integers(20, 300),
    n_labels=st.integers(2, 10),
    seed=st.integers(0, 2**32 - 1),
    overconfidence=st.floats(0.02, 50),
)
@settings(deadline=None, max_examples=60, derandomize=True)
def test_the_gradient_vanishes_at_beta_or_beta_is_a_bound(n, n_labels, seed, overconfidence):
    logits, labels = simulated(n, n_labels, seed, overconfidence)
    beta = fit_temperature(logits, labels, seed=1).beta
    low, high = np.exp(LOG_BETA_BOUNDS)
    if beta == low:
        assert slope(logits, labels, beta) >= 0
    elif beta == high:
        assert slope(logits, labels, beta) <= 0
    else:
        assert abs(slope(logits, labels, beta)) < 1e-10


@pytest.mark.parametrize("scale", [1e-4, 0.3, 1.0, 3.0, 1e4])
def test_few_passes_over_the_rows_find_beta(monkeypatch, scale):
    logits, labels = simulated(8000, 5)
    passes: list[float] = []
    root = temperature._root

    def counted(slope, start):
        return root(lambda log_beta: passes.append(log_beta) or slope(log_beta), start)

    monkeypatch.setattr(temperature, "_root", counted)
    fit_temperature(scale * logits, labels, seed=1)
    assert 0 < len(passes) <= 5


def test_a_slope_that_jumps_past_zero_is_found_by_halving():
    found = temperature._root(lambda at: (1.0 if at > np.pi else -1.0, 0.0), start=0.0)
    np.testing.assert_allclose(found, np.pi, rtol=1e-13)


def test_beta_agrees_with_scikit_learn():
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    logits, labels = simulated(1000, 3)
    identity = LogisticRegression()  # whose decision function is its input
    identity.classes_, identity.coef_, identity.intercept_ = np.arange(3), np.eye(3), np.zeros(3)
    reference = CalibratedClassifierCV(FrozenEstimator(identity), method="temperature").fit(logits, labels)
    ours = np.exp(fit_temperature(logits, labels, seed=1)(logits))
    np.testing.assert_allclose(ours, reference.predict_proba(logits), atol=1e-6)


def test_logits_that_say_nothing_leave_beta_at_one():
    assert fit_temperature(np.full((10, 3), 4.2), np.zeros(10, dtype=int), seed=1) == Temperature(1.0)


def test_logits_that_say_the_contrary_push_beta_to_its_lower_bound():
    logits, labels = simulated(500, 2)
    calibrator = fit_temperature(-logits, labels, seed=1)
    assert calibrator.beta == np.exp(LOG_BETA_BOUNDS[0])
    np.testing.assert_allclose(np.exp(calibrator(logits)), 0.5, atol=1e-5)


def test_rows_that_are_all_right_push_beta_to_its_upper_bound():
    logits, _ = simulated(500, 3)
    calibrator = fit_temperature(logits, logits.argmax(axis=1), seed=1)
    assert calibrator.beta == np.exp(LOG_BETA_BOUNDS[1])
    assert np.isfinite(calibrator(logits)).all()


@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-100, 100))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_scaling_or_shifting_the_logits_does_not_change_the_probabilities(scale, shift):
    logits, labels = simulated(200, 3)
    moved = scale * logits + shift
    there, here = fit_temperature(moved, labels, seed=1)(moved), fit_temperature(logits, labels, seed=1)(logits)
    np.testing.assert_allclose(there, here, atol=1e-7 * max(1.0, 1 / scale))
