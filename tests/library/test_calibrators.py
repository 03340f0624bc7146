"""One contract for every calibrator, then what temperature scaling promises on its own."""

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
QUICK = {"hcal": {"epochs": 10}, "smart": {"epochs": 60}}  # the laws hold after every step
every_calibrator = pytest.mark.parametrize("name", CALIBRATORS)


def fit(name: str, logits: np.ndarray, labels: np.ndarray) -> Calibrator:
    """The calibrator as the pipeline fits it, but for the number of steps."""
    return fit_prefixes(name, logits, labels, [len(labels)], seed=1, settings=QUICK.get(name))[0]


FOUR = simulate_logits_and_labels(400, 4)
CASES = {
    **{f"{K} labels": simulate_logits_and_labels(300, K) for K in (2, 3, 4, 5, 7, 10)},
    **{f"{n} rows": simulate_logits_and_labels(n, 3) for n in (1, 2, 5, 29)},
    **{
        f"{n} rows of one of {K} labels": (simulate_logits_and_labels(n, K)[0], np.zeros(n, dtype=int))
        for n in (1, 30)
        for K in (2, 10)
    },
    "an absent label": tuple(values[FOUR[1] != 2] for values in FOUR),
    "a constant confidence": (np.tile([2.0, 1.0, 0.0], (80, 1)), np.array([0, 0, 1, 2] * 20)),
    "saturated logits": simulate_logits_and_labels(200, 3, overconfidence=2000.0),
}


@every_calibrator
@pytest.mark.parametrize("case", CASES)
def test_every_calibrator_gives_each_row_finite_log_probabilities_and_keeps_the_contract(name, case):
    logits, labels = CASES[case]
    logits.flags.writeable = labels.flags.writeable = False
    fitted = fit(name, logits, labels)
    calibrated = fitted(logits)
    assert calibrated.shape == logits.shape
    assert calibrated.dtype == np.float64
    assert np.isfinite(calibrated).all()
    np.testing.assert_allclose(logsumexp(calibrated, axis=1), 0, atol=1e-12)
    assert not np.shares_memory(calibrated, logits)
    assert fitted(logits[:0]).shape == logits[:0].shape
    np.testing.assert_allclose(calibrated[7:9], fitted(logits[7:9]), rtol=0, atol=1e-12)  # whatever its neighbours
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted))(logits), calibrated)
    with pytest.raises(dataclasses.FrozenInstanceError):
        fitted.anything = 1


@every_calibrator
@pytest.mark.parametrize("n_labels", [2, 4, 7])
def test_a_row_is_calibrated_to_the_same_bits_alone_and_among_others(name, n_labels):
    logits, labels = simulate_logits_and_labels(131, n_labels)
    fitted = fit(name, logits, labels)
    together = fitted(logits)
    alone = np.vstack([fitted(logits[row : row + 1]) for row in range(len(logits))])
    np.testing.assert_array_equal(alone, together)


@every_calibrator
def test_a_fit_on_first_rows_equals_a_fit_on_those_rows_only(name):
    logits, labels = simulate_logits_and_labels(260, 3)
    asked = [160, 40, 260, 1000, 160]
    chosen = QUICK.get(name)
    fits = fit_prefixes(name, logits, labels, asked, seed=2, settings=chosen)
    for rows, calibrator in zip(asked, fits, strict=True):
        (alone,) = fit_prefixes(name, logits[:rows], labels[:rows], [rows], seed=2, settings=chosen)
        np.testing.assert_array_equal(calibrator(logits), alone(logits))
    assert fits[2] is fits[3]
    assert fits[0] is fits[4]
    assert fit_prefixes(name, logits, labels, [], seed=2) == []
    with pytest.raises(InputError, match=f"{name} has no settings depth"):
        fit_prefixes(name, logits, labels, [260], seed=2, settings={"depth": 3})


@pytest.mark.parametrize("name", ORDER_PRESERVING)
def test_the_order_of_labels_within_a_row_does_not_change(name):
    logits, labels = simulate_logits_and_labels(500, 5)
    calibrated = fit(name, logits, labels)(logits)
    np.testing.assert_array_equal(np.argsort(calibrated, axis=1), np.argsort(logits, axis=1))
    equal = np.full((40, 3), 0.7)
    np.testing.assert_allclose(fit(name, equal, np.arange(40) % 3)(equal), np.log(1 / 3), atol=1e-6)


AFFINE = [*product(["ts", "vector", "matrix"], [1e-3, 1, 1e3]), ("diag", 1), ("spline", 1)]


@pytest.mark.parametrize(("name", "scale"), AFFINE)
def test_fits_do_not_depend_on_row_offsets_or_the_scale_of_the_logits(name, scale):
    logits, labels = simulate_logits_and_labels(500, 4)
    moved = scale * (logits + np.random.default_rng(1).normal(size=(500, 1)) * 10)
    here = fit(name, logits, labels)(logits)
    there = fit(name, moved, labels)(moved)
    np.testing.assert_allclose(np.exp(there), np.exp(here), atol=1e-6)


def derivative(logits: np.ndarray, labels: np.ndarray, beta: float) -> float:
    expected = (softmax(beta * logits, axis=1) * logits).sum(axis=1)
    return float((expected - logits[np.arange(len(labels)), labels]).mean())


@given(
    n=st.integers(20, 300),
    n_labels=st.integers(2, 10),
    seed=st.integers(0, 2**32 - 1),
    overconfidence=st.floats(0.02, 50) | st.floats(-20, -0.05),  # logits that say the contrary
    certain=st.booleans(),
)
@settings(deadline=None, max_examples=60, derandomize=True)
def test_the_gradient_vanishes_at_beta_or_beta_is_a_bound(n, n_labels, seed, overconfidence, certain):
    logits, labels = simulate_logits_and_labels(n, n_labels, seed, overconfidence)
    labels = logits.argmax(axis=1) if certain else labels
    fitted = fit_temperature(logits, labels, seed=1)
    low, high = np.exp(LOG_BETA_BOUNDS)
    assert np.isfinite(fitted(logits)).all()
    assert fitted.beta == high or not certain
    if fitted.beta == low:
        assert derivative(logits, labels, low) >= 0
    elif fitted.beta == high:
        assert derivative(logits, labels, high) <= 0
    else:
        assert abs(derivative(logits, labels, fitted.beta)) < 1e-10


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_beta_is_found_in_few_passes_over_the_rows(monkeypatch, scale):
    logits, labels = simulate_logits_and_labels(2000, 5)
    passes: list[float] = []

    def counted(derivatives, start):
        return _find_root(lambda log_beta: passes.append(log_beta) or derivatives(log_beta), start)

    monkeypatch.setattr(temperature, "_find_root", counted)
    fit_temperature(scale * logits, labels, seed=1)
    assert 0 < len(passes) <= 5


def test_a_discontinuous_root_is_found_by_bisection_and_constant_logits_give_beta_one():
    root = _find_root(lambda at: (1.0 if at > np.pi else -1.0, 0.0), start=0.0)
    np.testing.assert_allclose(root, np.pi, rtol=1e-13)
    assert fit_temperature(np.full((10, 3), 4.2), np.zeros(10, dtype=int), seed=1) == Temperature(1.0)
