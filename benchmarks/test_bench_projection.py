"""Fits of the projection: 108 at once compared with one at a time, and isotonic steps with scikit-learn."""

from collections.abc import Callable
from functools import cache
from timeit import repeat
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from benchmarks.conftest import ON_ONE_CORE_TOO
from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.labelwise import MIN_RELIABILITY, Isotonic, fit_isotonic
from relmap.projection.lattices_torch import fit_lattices
from relmap.projection.mrp import N_NODES, FitRows, mrp_objective
from relmap.projection.mrp_exact import fit_exact
from relmap.projection.rows import FitBatch
from relmap.settings import ProjectionParams
from tests.fits import make_fit_rows, simulate_rows
from tests.torch_fits import fit_mrp_with_torch

N_FITS = 108
ROWS = (8000, 400)  # of each fit: measured, and in a quick run
K = 5
N_TIMED = 2  # number of fits that torch computes, one at a time
ONE_AT_A_TIME = f"one at a time, torch autograd ({N_TIMED} of them, times {N_FITS // N_TIMED})"
SETTINGS = ProjectionParams()


class FitResults(NamedTuple):
    """Results of all fits.

    Attributes:
        rows: Rows of each fit.
        fitted: Result of the library.
        torch_values: Values of the first `N_TIMED` fits by torch.
    """

    rows: list[FitRows]
    fitted: Any
    torch_values: np.ndarray


def fit_with_torch(rows: list[FitRows], threads: int) -> np.ndarray:
    """Fit the first problems one after the other, and return their values."""
    import torch

    torch.set_num_threads(threads)
    return np.stack([fit_mrp_with_torch(fit, K, SETTINGS) for fit in rows[:N_TIMED]])


@cache
def fastest_number_of_threads(threads: int) -> int:
    """Return the fastest number of threads for torch, at most the given one."""
    first = make_fit_rows(*simulate_rows(1, ROWS[0], K))
    fit_with_torch(first, 1)  # torch loads code at the first step

    def longest_time(n_threads: int) -> float:
        # if another process uses a core, two threads are slower than one, but not in every repetition
        return max(repeat(lambda: fit_with_torch(first, n_threads), number=1, repeat=3))

    return min(range(1, threads + 1), key=longest_time)


def compare_with_torch(
    comparison,
    threads: int,
    n_rows: int,
    operation: str,
    fit: Callable,
    *,
    rounds: int,
    warm_up: bool = True,
) -> FitResults:
    """Measure `fit` for all fits, and compare its time with that of torch."""
    rows = make_fit_rows(*simulate_rows(N_FITS, n_rows, K))
    n_tenth = n_rows // 10
    tenth_of_rows = []
    for confidence, decision, correct in rows:
        tenth_of_rows.append(FitRows(confidence[:n_tenth], decision[:n_tenth], correct[:n_tenth]))
    best = fastest_number_of_threads(threads) if comparison.is_full else 1
    comparison.add_alternative(ONE_AT_A_TIME, lambda: fit_with_torch(rows, best), times=N_FITS / N_TIMED)
    comparison.add_growth(lambda: fit(tenth_of_rows, n_labels=K, settings=SETTINGS))
    fitted, torch_values, _ = comparison.run(
        operation,
        N_FITS * n_rows,
        lambda: fit(rows, n_labels=K, settings=SETTINGS),
        rounds=rounds,
        warm_up=warm_up,
    )
    return FitResults(rows, fitted, torch_values)


def compute_objectives(values: np.ndarray, rows: list[FitRows]) -> np.ndarray:
    """Compute the objective of MRP of the first `N_TIMED` fits."""
    objectives = [mrp_objective(values[index], *rows[index], SETTINGS.smoothness) for index in range(N_TIMED)]
    return np.array(objectives)


@ON_ONE_CORE_TOO
def test_exact_fits(comparison, threads, size):
    confidence, *_ = simulate_rows(N_FITS, size(*ROWS), K)
    # every row is read and sorted once; the steps read a tenth as many nodes
    comparison.add_floor(lambda: np.sort(confidence))
    results = compare_with_torch(comparison, threads, size(*ROWS), "mrp_exact", fit_exact, rounds=3)

    assert results.fitted.kkt_residual.max() <= 1e-8

    objectives = compute_objectives(results.fitted.values, results.rows)
    torch_objectives = compute_objectives(results.torch_values, results.rows)
    assert (objectives <= torch_objectives).all()


def test_fits_by_adam(comparison, threads, size):
    nodes = np.zeros((N_FITS * K * (SETTINGS.knots - 1), N_NODES))
    # one exponential of each node in each epoch
    comparison.add_floor(lambda: np.exp(nodes).sum(), times=SETTINGS.epochs)
    results = compare_with_torch(
        comparison,
        threads,
        size(*ROWS),
        "mrp, Adam as published",
        fit_lattices,
        rounds=1,
        warm_up=False,
    )
    np.testing.assert_allclose(results.fitted[:N_TIMED], results.torch_values, atol=1e-6)


def fit_isotonic_of_labels(confidence_logit: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> Isotonic:
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
        return fit_isotonic_of_labels(confidence_logit[:n], decision[:n], correct[:n])

    comparison.add_alternative("scikit-learn: isotonic of each label", scikit_learn)
    comparison.add_growth(lambda: fit_first_rows(rows // 10))
    comparison.add_floor(lambda: np.sort(confidence_logit))
    fitted, reference, _ = comparison.run("isotonic of each label", rows, fit_first_rows)

    for label, regression in enumerate(reference):
        of_label = confidence[decision == label]
        reliability = expit(fitted(CalibratedDecisions(logit(of_label), np.full(len(of_label), label))))
        np.testing.assert_allclose(reliability, regression.predict(of_label), rtol=0, atol=1e-10)
