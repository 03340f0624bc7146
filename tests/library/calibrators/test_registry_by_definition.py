"""Calibrators of the registry equal slow computations of the definition."""

import numpy as np
import pytest

from relmap.calibrators.linear import transform_rows
from relmap.calibrators.registry import fit_prefixes
from relmap.errors import InputError
from tests.fits import simulate_logits_and_labels

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [-4.0, -1.5, -2.0], [1.0, 1.25, 5.0]])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("smart", {"epochs": 3, "depth": 2}, "smart .*setting epochs, depth;"),
        ("ts", {"epochs": 3}, "ts .*setting epochs;"),
    ],
)
def test_unknown_settings_are_rejected(name, settings, message):
    with pytest.raises(InputError, match=message):
        fit_prefixes(name, LOGITS, np.array([0, 1, 1, 2]), [4], seed=1, settings=settings)


def test_transformed_rows_are_a_matrix_product_that_skips_weights_of_zero():
    weights = np.array([[0.5, 0.0, -2.0], [3.0, 1.5, 0.0]])
    np.testing.assert_allclose(transform_rows(LOGITS, weights), LOGITS @ weights.T, rtol=1e-14)
    infinite = LOGITS.copy()
    infinite[1, 1] = np.inf
    assert np.isfinite(transform_rows(infinite, weights)[:, 0]).all()


def shuffled_labels(n_labels: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n_labels)


@pytest.mark.parametrize("name", ["uncal", "ts", "diag", "spline", "vector", "matrix"])
def test_renumbering_the_labels_does_not_change_the_calibration(name):
    logits, labels = simulate_logits_and_labels(120, 4, shift=np.array([0.0, 1.0, -1.0, 0.5]))
    order = shuffled_labels(4, 3)  # new label k is the old label order[k]
    (expected,) = fit_prefixes(name, logits, labels, [120], seed=1)
    (renumbered,) = fit_prefixes(name, logits[:, order], np.argsort(order)[labels], [120], seed=1)
    np.testing.assert_allclose(renumbered(logits[:, order]), expected(logits)[:, order], atol=1e-6)


@pytest.mark.parametrize("name", ["ts", "diag", "spline", "vector", "matrix"])
def test_repeated_rows_do_not_change_a_fit_by_mean_loss(name):
    logits, labels = simulate_logits_and_labels(80, 3)
    (once,) = fit_prefixes(name, logits, labels, [80], seed=1)
    (twice,) = fit_prefixes(name, np.tile(logits, (2, 1)), np.tile(labels, 2), [160], seed=1)
    # the ridge of the spline is relative to the number of rows
    tolerance = 0.1 if name == "spline" else 1e-6
    np.testing.assert_allclose(np.exp(twice(logits)), np.exp(once(logits)), atol=tolerance)
