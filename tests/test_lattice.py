"""Lattice curves: their shape, the fit beside torch's own, and bits that do not depend on company or order."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from fits import fits, mrp_of_torch, seen, simulated, stated_objective
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from tasks.projection.adam_lattice import fit_lattices
from tasks.projection.curves import Curves
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import objective, uniform_knots
from tasks.protocol.params import ProjectionParams

SETTINGS = ProjectionParams()
KNOTS = uniform_knots(SETTINGS.knots)

sizes = {"B": st.integers(1, 3), "m": st.integers(1, 150), "K": st.integers(1, 6), "seed": st.integers(0, 2**32 - 1)}


def curves_of(values: np.ndarray, knots: np.ndarray | None = None) -> Curves:
    knots = np.linspace(0, 1, values.shape[1]) if knots is None else knots
    return Curves(knots, values, np.full(len(values), 100), ("none",) * len(values))


def test_a_curve_of_two_intervals_by_hand():
    curves = curves_of(np.array([[-1.0, 0.0, 4.0], [0, 0, 0]]))
    confidence = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.9])
    with np.errstate(divide="ignore"):
        at = curves(Decisions(logit(confidence), np.array([0, 0, 0, 0, 0, 1])))
    np.testing.assert_allclose(at, [-1, -0.5, 0, 2, 4, 0], atol=1e-15)


@given(
    steps=st.lists(st.floats(0, 20), min_size=2, max_size=12),
    base=st.floats(-30, 30),
    logits=st.lists(st.floats(-60, 60), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_reliability_never_falls_with_confidence_to_the_last_bit(steps, base, logits):
    curves = curves_of(base + np.cumsum([[0.0, *steps]], axis=1))
    at = np.concatenate([logits, logit(np.clip(curves.knots, 1e-12, 1 - 1e-12)), [-np.inf, -1000, 1000, np.inf]])
    ascending = np.unique(np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]))
    reliability_logit = curves(seen(ascending, 0))
    assert (np.diff(reliability_logit) >= 0).all()
    ends = curves.values[0, [0, -1]]  # the last one up to rounding, which never lifts it
    assert reliability_logit[[0, -1]] == pytest.approx(ends, rel=0, abs=1e-13)
    assert (reliability_logit[[0, -1]] <= ends).all()


def test_violations_name_what_is_broken():
    sound = np.tile(np.linspace(-1, 1, 8), (3, 1))
    assert curves_of(sound).violations() == []
    for knot, value, message in (
        (4, 9.0, f"label 1 falls from 9.0 at knot 4 to {sound[1, 5]} at knot 5"),
        (0, np.nan, "label 1 is nan at knot 0"),
        (7, np.inf, "label 1 is inf at knot 7"),
    ):
        values = sound.copy()
        values[1, knot] = value
        assert curves_of(values).violations() == [message]
    for knots in (KNOTS + 0.1, KNOTS[::-1], np.r_[KNOTS[:3], KNOTS[2], KNOTS[4:]], KNOTS * 0.9):
        (message,) = curves_of(sound, knots).violations()
        assert "knots do not rise from 0 to 1" in message


@given(**sizes, J=st.integers(3, 10))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_the_objective_is_the_papers_double_sum(B, m, K, seed, J):
    rows = fits(*simulated(B, m, K, seed))
    for values, fit in zip(np.random.default_rng(seed).normal(size=(B, K, J)), rows, strict=True):
        expected = stated_objective(fit, J, 0.3)(torch.from_numpy(values)).item()
        assert objective(values, *fit, 0.3) == pytest.approx(expected, rel=1e-12)


def test_torchs_own_adam_takes_the_same_steps():
    (fit,), chosen = fits(*simulated(1, 200, 3)), ProjectionParams(epochs=100)
    (values,) = fit_lattices([fit], n_labels=3, settings=chosen)
    np.testing.assert_allclose(values, mrp_of_torch(fit, 3, chosen), rtol=0, atol=1e-8)


def test_fits_have_the_same_bits_under_any_number_of_threads_and_beside_one_another():
    problems = [fits(*simulated(B=2, m=8000, K=3, seed=seed)) for seed in range(4)]

    def fit(problem):
        return fit_lattices(problem, n_labels=3, settings=ProjectionParams(epochs=20))

    before, alone = torch.get_num_threads(), [fit(problem) for problem in problems]
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            with ThreadPoolExecutor(2) as pool:
                np.testing.assert_array_equal(list(pool.map(fit, problems)), alone)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_labels_without_rows_keep_the_start_of_the_authors():
    nothing = np.empty((1, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    values = fit_lattices(fits(*nothing), n_labels=2, settings=ProjectionParams(smoothness=0))
    np.testing.assert_allclose(values, np.tile(logit(np.linspace(0.03, 0.97, 8)), (1, 2, 1)))
