"""The common contract of all calibrators, and properties of temperature scaling."""

import dataclasses
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

from relmap.calibrators import temperature
from relmap.calibrators.registry import CALIBRATORS, fit_prefixes
from relmap.calibrators.temperature import LOG_BETA_BOUNDS, Temperature, _find_root, fit_temperature
from relmap.decisions import Calibrator
from relmap.errors import InputError
from tests.fits import simulate_logits_and_labels

ORDER_PRESERVING = ["uncal", "ts", "diag", "smart"]  # within each row
QUICK = {"hcal": {"epochs": 10}, "smart": {"epochs": 60}}  # the tested properties hold after every step
every_calibrator = pytest.mark.parametrize("name", CALIBRATORS)


def fit(name: str, logits: np.ndarray, labels: np.ndarray) -> Calibrator:
    """Fit a calibrator as the pipeline does, but `hcal` and `smart` with fewer epochs."""
    return fit_prefixes(name, logits, labels, [len(labels)], seed=1, settings=QUICK.get(name))[0]


LOGITS_OF_FOUR, LABELS_OF_FOUR = simulate_logits_and_labels(400, 4)
CASES = {
    **{f"{K} labels": simulate_logits_and_labels(300, K) for K in (2, 3, 4, 5, 7, 10)},
    **{f"{n} rows": simulate_logits_and_labels(n, 3) for n in (1, 2, 5, 29)},
    **{
        f"{n} rows of one of {K} labels": (simulate_logits_and_labels(n, K)[0], np.zeros(n, dtype=int))
        for n in (1, 30)
        for K in (2, 10)
    },
    "an absent label": (LOGITS_OF_FOUR[LABELS_OF_FOUR != 2], LABELS_OF_FOUR[LABELS_OF_FOUR != 2]),
    "a constant confidence": (np.tile([2.0, 1.0, 0.0], (80, 1)), np.array([0, 0, 1, 2] * 20)),
    "saturated logits": simulate_logits_and_labels(200, 3, overconfidence=2000.0),
}


@every_calibrator
@pytest.mark.parametrize("case", CASES)
def test_calibrator_returns_finite_normalized_log_probabilities(name, case):
    logits, labels = CASES[case]
    logits.flags.writeable = labels.flags.writeable = False
    calibrator = fit(name, logits, labels)
    calibrated = calibrator(logits)

    assert calibrated.shape == logits.shape
    assert calibrated.dtype == np.float64
    assert np.isfinite(calibrated).all()
    np.testing.assert_allclose(logsumexp(calibrated, axis=1), 0, atol=1e-12)
    assert not np.shares_memory(calibrated, logits)
    assert calibrator(logits[:0]).shape == logits[:0].shape
    np.testing.assert_allclose(calibrated[7:9], calibrator(logits[7:9]), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(calibrator))(logits), calibrated)
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibrator.anything = 1


@every_calibrator
@pytest.mark.parametrize("n_labels", [2, 4, 7])
def test_calibration_of_a_row_does_not_depend_on_other_rows(name, n_labels):
    logits, labels = simulate_logits_and_labels(131, n_labels)
    calibrator = fit(name, logits, labels)
    all_rows = calibrator(logits)
    row_by_row = np.vstack([calibrator(logits[row : row + 1]) for row in range(len(logits))])

    np.testing.assert_array_equal(row_by_row, all_rows)


@every_calibrator
def test_fit_prefixes_equals_separate_fits_on_the_first_rows(name):
    logits, labels = simulate_logits_and_labels(260, 3)
    prefix_lengths = [160, 40, 260, 1000, 160]
    settings = QUICK.get(name)
    fits = fit_prefixes(name, logits, labels, prefix_lengths, seed=2, settings=settings)
    for n_rows, calibrator in zip(prefix_lengths, fits, strict=True):
        (expected,) = fit_prefixes(name, logits[:n_rows], labels[:n_rows], [n_rows], seed=2, settings=settings)
        np.testing.assert_array_equal(calibrator(logits), expected(logits))

    assert fits[2] is fits[3]
    assert fits[0] is fits[4]
    assert fit_prefixes(name, logits, labels, [], seed=2) == []
    with pytest.raises(InputError, match=f"{name} .*setting depth;"):
        fit_prefixes(name, logits, labels, [260], seed=2, settings={"depth": 3})


@pytest.mark.parametrize("name", ORDER_PRESERVING)
def test_order_preserving_calibrators_keep_the_order_of_labels(name):
    logits, labels = simulate_logits_and_labels(500, 5)
    calibrated = fit(name, logits, labels)(logits)
    np.testing.assert_array_equal(np.argsort(calibrated, axis=1), np.argsort(logits, axis=1))

    equal = np.full((40, 3), 0.7)
    np.testing.assert_allclose(fit(name, equal, np.arange(40) % 3)(equal), np.log(1 / 3), atol=1e-6)


# Calibrator, factor of all logits; diag and spline are invariant only to offsets of the rows
INVARIANCES = [*product(["ts", "vector", "matrix"], [1e-3, 1, 1e3]), ("diag", 1), ("spline", 1)]


@pytest.mark.parametrize(("name", "scale"), INVARIANCES)
def test_fit_is_invariant_to_row_offsets_and_logit_scale(name, scale):
    logits, labels = simulate_logits_and_labels(500, 4)
    transformed = scale * (logits + np.random.default_rng(1).normal(size=(500, 1)) * 10)
    expected = fit(name, logits, labels)(logits)
    calibrated = fit(name, transformed, labels)(transformed)

    np.testing.assert_allclose(np.exp(calibrated), np.exp(expected), atol=1e-6)


def loss_derivative(logits: np.ndarray, labels: np.ndarray, beta: float) -> float:
    mean_logit = (softmax(beta * logits, axis=1) * logits).sum(axis=1)
    return float((mean_logit - logits[np.arange(len(labels)), labels]).mean())


@given(
    n=st.integers(20, 300),
    n_labels=st.integers(2, 10),
    seed=st.integers(0, 2**32 - 1),
    overconfidence=st.floats(0.02, 50) | st.floats(-20, -0.05),  # negative: logits of the opposite order
    all_correct=st.booleans(),
)
@settings(deadline=None, max_examples=60, derandomize=True)
def test_temperature_has_zero_gradient_or_is_at_a_bound(n, n_labels, seed, overconfidence, all_correct):
    logits, labels = simulate_logits_and_labels(n, n_labels, seed, overconfidence)
    if all_correct:
        labels = logits.argmax(axis=1)
    calibrator = fit_temperature(logits, labels, seed=1)
    low, high = np.exp(LOG_BETA_BOUNDS)

    assert np.isfinite(calibrator(logits)).all()
    if all_correct:
        assert calibrator.beta == high
    if calibrator.beta == low:
        assert loss_derivative(logits, labels, low) >= 0
    elif calibrator.beta == high:
        assert loss_derivative(logits, labels, high) <= 0
    else:
        assert abs(loss_derivative(logits, labels, calibrator.beta)) < 1e-10


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_temperature_fit_needs_at_most_five_passes_over_the_rows(monkeypatch, scale):
    logits, labels = simulate_logits_and_labels(2000, 5)
    passes: list[float] = []

    def find_root_with_counted_passes(derivatives, start):
        def counted_derivatives(log_beta: float) -> tuple[float, float]:
            passes.append(log_beta)
            return derivatives(log_beta)

        return _find_root(counted_derivatives, start)

    monkeypatch.setattr(temperature, "_find_root", find_root_with_counted_passes)
    fit_temperature(scale * logits, labels, seed=1)
    assert 0 < len(passes) <= 5


def test_root_of_a_step_is_found_and_constant_logits_give_temperature_one():
    root = _find_root(lambda x: (1.0 if x > np.pi else -1.0, 0.0), start=0.0)
    np.testing.assert_allclose(root, np.pi, rtol=1e-13)
    assert fit_temperature(np.full((10, 3), 4.2), np.zeros(10, dtype=int), seed=1) == Temperature(1.0)
