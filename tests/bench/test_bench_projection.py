"""Fits of the projection: 108 at once compared with one at a time, and isotonic steps with scikit-learn."""

from collections.abc import Callable
from functools import cache
from timeit import repeat

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.projection.adam_lattice import fit_lattices
from relmap.projection.batch import FitBatch
from relmap.projection.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.exact import fit_exact
from relmap.projection.labelwise import MIN_RELIABILITY, Isotonic, fit_isotonic
from relmap.projection.lattice import N_NODES, FitRows, mrp_objective
from relmap.settings import ProjectionParams
from tests.bench.conftest import ON_ONE_CORE_TOO
from tests.fits import make_fit_rows, simulate_rows
from tests.torch_fits import fit_mrp_with_torch

pytestmark = pytest.mark.bench
FITS = 108
ROWS = 8000
K = 5
N_TIMED = 2  # of the fits, one at a time
ONE_AT_A_TIME = f"one at a time, torch autograd ({N_TIMED} of them, times {FITS // N_TIMED})"
SETTINGS = ProjectionParams()
Rows = list[FitRows]


def one_at_a_time(rows: Rows, threads: int) -> np.ndarray:
    """Fit the first problems one after the other with torch, and return their values."""
    import torch

    torch.set_num_threads(threads)
    return np.stack([fit_mrp_with_torch(fit, K, SETTINGS) for fit in rows[:N_TIMED]])


@cache
def fastest_number_of_threads(threads: int) -> int:
    """Return the fastest number of threads for torch, at most the given one."""
    first = make_fit_rows(*simulate_rows(1, ROWS, K))
    one_at_a_time(first, 1)  # torch loads code at the first step
    # the longest of three, because another process on a core delays two threads more than one, but not always
    return min(range(1, threads + 1), key=lambda n: max(repeat(lambda: one_at_a_time(first, n), number=1, repeat=3)))


def compare_with_torch(
    comparison, threads: int, operation: str, fit: Callable, aim: float, **run
) -> tuple[Rows, object, np.ndarray]:
    """Compare all fits with torch; return the rows, the result and the values of the first fits by torch."""
    rows = make_fit_rows(*simulate_rows(FITS, ROWS, K))
    first_rows = slice(ROWS // 10)
    tenth = [tuple(part[first_rows] for part in fit_rows) for fit_rows in rows]
    best = fastest_number_of_threads(threads)
    comparison.add_alternative(ONE_AT_A_TIME, lambda: one_at_a_time(rows, best), aim=aim, times=FITS / N_TIMED)
    comparison.add_growth(lambda: fit(tenth, n_labels=K, settings=SETTINGS))
    fitted, reference, _ = comparison.run(
        operation, FITS * ROWS, lambda: fit(rows, n_labels=K, settings=SETTINGS), **run
    )
    return rows, fitted, reference


@ON_ONE_CORE_TOO
def test_exact_fits(comparison, threads):
    confidence = simulate_rows(FITS, ROWS, K)[0]
    comparison.add_floor(
        lambda: np.sort(confidence)
    )  # every row is read and sorted once; the steps read a tenth as many nodes
    rows, exact, reference = compare_with_torch(comparison, threads, "mrp_exact", fit_exact, 250, rounds=3)

    assert exact.kkt_residual.max() <= 1e-8

    losses = np.array(
        [
            mrp_objective(fit_values, *fit, SETTINGS.smoothness)
            for fit_values, fit in zip(exact.values[:N_TIMED], rows, strict=False)
        ]
    )
    torch_losses = np.array(
        [
            mrp_objective(fit_values, *fit, SETTINGS.smoothness)
            for fit_values, fit in zip(reference[:N_TIMED], rows, strict=False)
        ]
    )
    assert (losses <= torch_losses).all()


def test_fits_by_adam(comparison, threads):
    node = np.zeros((FITS * K * (SETTINGS.knots - 1), N_NODES))
    comparison.add_floor(
        lambda: np.exp(node).sum(), times=SETTINGS.epochs
    )  # one exponential of each node in each epoch
    _, values, reference = compare_with_torch(
        comparison, threads, "mrp, Adam as published", fit_lattices, aim=20, rounds=1, warm_up=False
    )
    np.testing.assert_allclose(values[:N_TIMED], reference, atol=1e-6)


def isotonic(confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> Isotonic:
    """Fit the isotonic steps of each label to logits of the confidence, shape (m,)."""
    labelled = LabelledDecisions([CalibratedDecisions(confidence_logit, decision)], correct)
    return fit_isotonic(FitBatch(labelled, K, SETTINGS))[0]


def test_isotonic_of_each_label(comparison, rows):
    from sklearn.isotonic import IsotonicRegression

    ((confidence, decision, correct),) = make_fit_rows(*simulate_rows(1, rows, K))
    confidence_logit = logit(confidence)
    confidence = expit(confidence_logit)  # identical to the input of the library

    def scikit_learn() -> list[IsotonicRegression]:
        fits = []
        for label in range(K):
            of_label = decision == label
            regression = IsotonicRegression(y_min=MIN_RELIABILITY, y_max=1 - MIN_RELIABILITY, out_of_bounds="clip")
            fits.append(regression.fit(expit(confidence_logit[of_label]), correct[of_label]))
        return fits

    def fit_first_rows(n: int = rows) -> Isotonic:
        return isotonic(confidence_logit[:n], decision[:n], correct[:n])

    comparison.add_alternative("scikit-learn: isotonic of each label", scikit_learn, aim=1)
    comparison.add_growth(lambda: fit_first_rows(rows // 10))
    comparison.add_floor(lambda: np.sort(confidence_logit))
    fitted, reference, _ = comparison.run("isotonic of each label", rows, fit_first_rows)

    for label, regression in enumerate(reference):
        of_label = confidence[decision == label]
        reliability = expit(fitted(CalibratedDecisions(logit(of_label), np.full(len(of_label), label))))
        np.testing.assert_allclose(reliability, regression.predict(of_label), rtol=0, atol=1e-10)
