"""Fits of the projection: 108 at once beside one at a time, and isotonic steps beside scikit-learn's."""

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
FITS, ROWS, K = 108, 8000, 5
TIMED = 2  # of the fits, one at a time
ALONE = f"one at a time, torch autograd ({TIMED} of them, times {FITS // TIMED})"
SETTINGS = ProjectionParams()
Rows = list[FitRows]


def one_at_a_time(rows: Rows, threads: int) -> np.ndarray:
    """The values of the first fits in a loop of torch, with so many threads."""
    import torch

    torch.set_num_threads(threads)
    return np.stack([fit_mrp_with_torch(fit, K, SETTINGS) for fit in rows[:TIMED]])


@cache
def quickest(threads: int) -> int:
    """The number of threads, of at most so many, that suits the loop best."""
    first = make_fit_rows(*simulate_rows(1, ROWS, K))
    one_at_a_time(first, 1)  # what torch loads at the first step
    # the longest of three: another process on a core holds up two threads far more than one, if not each time
    return min(range(1, threads + 1), key=lambda n: max(repeat(lambda: one_at_a_time(first, n), number=1, repeat=3)))


def beside_torch(
    race, threads: int, operation: str, fit: Callable, aim: float, **run
) -> tuple[Rows, object, np.ndarray]:
    """The rows of all fits, our result and the values of the first fits by torch."""
    rows, first = make_fit_rows(*simulate_rows(FITS, ROWS, K)), slice(ROWS // 10)
    tenth = [tuple(part[first] for part in own) for own in rows]
    best = quickest(threads)
    race.beside(ALONE, lambda: one_at_a_time(rows, best), aim=aim, times=FITS / TIMED)
    race.growth(lambda: fit(tenth, n_labels=K, settings=SETTINGS))
    ours, theirs, _ = race.run(operation, FITS * ROWS, lambda: fit(rows, n_labels=K, settings=SETTINGS), **run)
    return rows, ours, theirs


@ON_ONE_CORE_TOO
def test_exact_fits(race, threads):
    confidence = simulate_rows(FITS, ROWS, K)[0]
    race.floor(lambda: np.sort(confidence))  # every row is read and sorted once; the steps read a tenth as many nodes
    rows, exact, theirs = beside_torch(race, threads, "mrp_exact", fit_exact, 250, rounds=3)
    assert exact.kkt_residual.max() <= 1e-8
    ours, torchs = (
        np.array(
            [mrp_objective(own, *fit, SETTINGS.smoothness) for own, fit in zip(values[:TIMED], rows, strict=False)]
        )
        for values in (exact.values, theirs)
    )
    assert (ours <= torchs).all()


def test_fits_by_adam(race, threads):
    node = np.zeros((FITS * K * (SETTINGS.knots - 1), N_NODES))
    race.floor(lambda: np.exp(node).sum(), times=SETTINGS.epochs)  # one exponential of each node in each epoch
    _, values, theirs = beside_torch(
        race, threads, "mrp, Adam as published", fit_lattices, aim=20, rounds=1, warm_up=False
    )
    np.testing.assert_allclose(values[:TIMED], theirs, atol=1e-6)


def isotonic(at: np.ndarray, decision: np.ndarray, correct: np.ndarray) -> Isotonic:
    """The isotonic steps of each label by logit of the confidence `(m,)`."""
    labelled = LabelledDecisions([CalibratedDecisions(at, decision)], correct)
    return fit_isotonic(FitBatch(labelled, K, SETTINGS))[0]


def test_isotonic_of_each_label(race, rows):
    from sklearn.isotonic import IsotonicRegression

    ((confidence, decision, correct),) = make_fit_rows(*simulate_rows(1, rows, K))
    at = logit(confidence)
    confidence = expit(at)  # to the last bit what ours reads

    def scikit_learn() -> list[IsotonicRegression]:
        fits = []
        for label in range(K):
            mine = decision == label
            regression = IsotonicRegression(y_min=MIN_RELIABILITY, y_max=1 - MIN_RELIABILITY, out_of_bounds="clip")
            fits.append(regression.fit(expit(at[mine]), correct[mine]))
        return fits

    def ours(n: int = rows) -> Isotonic:
        return isotonic(at[:n], decision[:n], correct[:n])

    race.beside("scikit-learn: isotonic of each label", scikit_learn, aim=1)
    race.growth(lambda: ours(rows // 10))
    race.floor(lambda: np.sort(at))
    fitted, theirs, _ = race.run("isotonic of each label", rows, ours)
    for label, regression in enumerate(theirs):
        mine = confidence[decision == label]
        here = expit(fitted(CalibratedDecisions(logit(mine), np.full(len(mine), label))))
        np.testing.assert_allclose(here, regression.predict(mine), rtol=0, atol=1e-10)
