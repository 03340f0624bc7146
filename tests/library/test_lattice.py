"""Lattice curves: their shape, the fit beside torch's own, and bits that do not depend on company or order.

Few nodes stand for many rows: their sums are those of the rows, and their number does not grow with the rows.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.projection.adam_lattice import CellTensors, build_cell_tensors, fit_lattices
from relmap.projection.cell_rows import CellRows
from relmap.projection.curves import Curves
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.exact import fit_exact
from relmap.projection.lattice import MAX_NODE_RISE, N_NODES, FitRows, compute_nodes, mrp_objective, uniform_knots
from relmap.settings import ProjectionParams
from tests.fits import interpolation_weights, make_decisions, make_fit_rows, simulate_rows
from tests.torch_fits import fit_mrp_with_torch, make_objective

K = 3
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
        at = curves(CalibratedDecisions(logit(confidence), np.array([0, 0, 0, 0, 0, 1])))
    np.testing.assert_allclose(at, [-1, -0.5, 0, 2, 4, 0], atol=1e-15)


@given(
    steps=st.lists(st.floats(0, 20), min_size=2, max_size=12),
    base=st.floats(-30, 30),
    logits=st.lists(st.floats(-60, 60), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_reliability_never_falls_with_confidence_even_by_rounding(steps, base, logits):
    curves = curves_of(base + np.cumsum([[0.0, *steps]], axis=1))
    at = np.concatenate([logits, logit(np.clip(curves.knots, 1e-12, 1 - 1e-12)), [-np.inf, -1000, 1000, np.inf]])
    ascending = np.unique(np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]))
    reliability_logit = curves(make_decisions(ascending, 0))
    assert (np.diff(reliability_logit) >= 0).all()
    ends = curves.values[0, [0, -1]]  # the last one up to rounding, which never lifts it
    assert reliability_logit[[0, -1]] == pytest.approx(ends, rel=0, abs=1e-13)
    assert (reliability_logit[[0, -1]] <= ends).all()


def test_rounding_never_exceeds_the_last_value_of_a_curve():
    curves = curves_of(np.sort(np.random.default_rng(0).normal(size=(2000, 2)), axis=1))
    assert (curves(make_decisions(np.full(2000, 40.0), np.arange(2000))) <= curves.values[:, -1]).all()


def test_violations_name_the_invalid_entry():
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
        assert "knots do not rise from 0 to 1" in curves_of(sound, knots).violations()[0]


@given(**sizes, J=st.integers(3, 10))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_the_objective_equals_the_papers_double_sum(B, m, K, seed, J):
    rows = make_fit_rows(*simulate_rows(B, m, K, seed))
    for values, fit in zip(np.random.default_rng(seed).normal(size=(B, K, J)), rows, strict=True):
        expected = make_objective(fit, J, 0.3)(torch.from_numpy(values)).item()
        assert mrp_objective(values, *fit, 0.3) == pytest.approx(expected, rel=1e-12)


def test_torchs_own_adam_takes_the_same_steps():
    (fit,) = make_fit_rows(*simulate_rows(1, 200, 3))
    chosen = ProjectionParams(epochs=100)
    (values,) = fit_lattices([fit], n_labels=3, settings=chosen)
    np.testing.assert_allclose(values, fit_mrp_with_torch(fit, 3, chosen), rtol=0, atol=1e-8)


def test_fits_do_not_depend_on_threads_or_concurrent_fits():
    problems = [make_fit_rows(*simulate_rows(n_fits=2, n_rows=8000, n_labels=3, seed=seed)) for seed in range(4)]

    def fit(problem):
        return fit_lattices(problem, n_labels=3, settings=ProjectionParams(epochs=20))

    before = torch.get_num_threads()
    alone = [fit(problem) for problem in problems]
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            with ThreadPoolExecutor(2) as pool:
                np.testing.assert_array_equal(list(pool.map(fit, problems)), alone)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_labels_without_rows_keep_the_authors_initial_curve():
    nothing = np.empty((1, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    values = fit_lattices(make_fit_rows(*nothing), n_labels=2, settings=ProjectionParams(smoothness=0))
    np.testing.assert_allclose(values, np.tile(logit(np.linspace(0.03, 0.97, 8)), (1, 2, 1)))


def two_fits(m: int, sharpness: float = 1.0) -> list[FitRows]:
    """Two fits of the same m rows; the sharper, the steeper the curves that fit them."""
    confidence, decision, _ = simulate_rows(2, m, K)
    chance = expit(sharpness * (10 * confidence[0] - 7 - 0.3 * decision))
    return make_fit_rows(confidence, decision, np.random.default_rng(1).random(m) < chance)


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=8),
    rise=st.floats(-MAX_NODE_RISE, MAX_NODE_RISE),
    left=st.floats(-20, 20),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_sums_over_nodes_equal_sums_over_rows_of_each_cell(lengths, rise, left, seed):
    rng = np.random.default_rng(seed)
    lengths = np.array(lengths)
    weight = rng.beta(*rng.uniform(0.1, 3, 2), lengths.sum())
    places, masses = compute_nodes(weight, lengths)
    assert places.shape == masses.shape == (len(lengths), N_NODES)
    by_cell = np.split(weight, np.cumsum(lengths)[:-1])
    for f in (
        np.ones_like,
        lambda w: expit(left + rise * w) * w,
        lambda w: expit(left + rise * w) * expit(-left - rise * w) * w**2,
        lambda w: np.logaddexp(0, left + rise * w),
    ):
        by_row = [f(rows).sum() for rows in by_cell]
        scale = np.abs(f(np.linspace(0, 1, 101))).max() * np.maximum(lengths, 1)
        assert (np.abs((f(places) * masses).sum(axis=1) - by_row) <= 2e-14 * scale).all()
    for cell, rows in enumerate(by_cell[:3]):
        alone = compute_nodes(rows, lengths[[cell]])
        np.testing.assert_array_equal((places[[cell]], masses[[cell]]), alone)


@pytest.mark.parametrize("steep", [False, True])
def test_the_gradient_equals_a_sum_over_all_rows(steep):
    rows = two_fits(4000)
    cells = build_cell_tensors(rows, n_labels=K, knots=uniform_knots(SETTINGS.knots), device="cpu")
    increments = np.random.default_rng(1).uniform(
        0, 3 * MAX_NODE_RISE if steep else MAX_NODE_RISE, (2, K, SETTINGS.knots)
    )
    values = np.cumsum(increments, axis=2) - increments.sum(axis=2, keepdims=True) / 2
    gradient = cells.gradient(torch.from_numpy(values)).numpy()
    for b, (confidence, decision, correct) in enumerate(rows):
        weight = interpolation_weights(confidence, SETTINGS.knots)
        t = (weight * values[b, decision]).sum(axis=1)
        expected = np.stack([((expit(t) - correct) * (decision == k)) @ weight for k in range(K)]) / len(t)
        np.testing.assert_allclose(gradient[b], expected, rtol=0, atol=1e-14)


def test_steep_cells_do_not_change_the_result_of_other_fits():
    rows = two_fits(4000, sharpness=8.0)
    chosen = SETTINGS.model_copy(update={"epochs": 60, "learning_rate": 0.3})
    together = fit_lattices(rows, n_labels=K, settings=chosen)
    assert np.diff(together).max() > MAX_NODE_RISE
    np.testing.assert_array_equal(together, [fit_lattices([fit], n_labels=K, settings=chosen)[0] for fit in rows])


@pytest.mark.parametrize("m", [5000, 20_000])
def test_an_iteration_costs_the_nodes_of_each_cell_for_any_number_of_rows(monkeypatch, m):
    rows = two_fits(m, sharpness=0.5)
    cells = 2 * K * (SETTINGS.knots - 1)
    chosen = ProjectionParams(epochs=50)
    evaluated: list[int] = []

    def count(owner, name, rises):
        method = getattr(owner, name)

        def counted(self, *places):
            assert (rises(*places) < MAX_NODE_RISE).all()
            evaluated.append(int(np.prod(self.masses.shape)))
            return method(self, *places)

        monkeypatch.setattr(owner, name, counted)

    count(CellTensors, "gradient", lambda values: values.diff())
    count(CellRows, "sum_terms", lambda _, rise: np.abs(rise))
    fit_lattices(rows, n_labels=K, settings=chosen)
    assert evaluated == [cells * N_NODES] * chosen.epochs
    evaluated.clear()
    fit_exact(rows, n_labels=K, settings=SETTINGS)
    assert max(evaluated) <= cells * N_NODES
    assert sum(evaluated) <= 12 * cells * N_NODES
