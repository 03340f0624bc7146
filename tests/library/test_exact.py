"""The convex optimum of the lattice: its certificate, checked from scratch by the gradient that torch finds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.projection.adam_lattice import fit_lattices
from relmap.projection.cell_rows import CellRows
from relmap.projection.curves import Curves
from relmap.projection.exact import MIN_INCREMENT, RIDGE, ExactFit, fit_exact
from relmap.projection.lattice import FitRows, compute_nodes, uniform_knots
from relmap.settings import ProjectionParams
from tests.fits import SimulatedRows, interpolation_weights, make_batch, make_decisions, make_fit_rows, simulate_rows
from tests.torch_fits import make_objective

SETTINGS = ProjectionParams()
DEVICES = ["cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]  # torch's CPU, for "cpu" means NumPy
sizes = {"B": st.integers(1, 3), "m": st.integers(1, 300), "K": st.integers(1, 5), "seed": st.integers(0, 2**32 - 1)}


def fitted(rows: SimulatedRows, K: int, chosen: ProjectionParams = SETTINGS, device: str = "cpu") -> ExactFit:
    return fit_exact(make_fit_rows(*rows), n_labels=K, settings=chosen, device=device)


def certify(exact: ExactFit, rows: SimulatedRows, chosen: ProjectionParams = SETTINGS, tolerance: float = 1e-8) -> None:
    """Each fit has the stated objective, and at its bound a variable may only want to leave the box; no other moves."""
    confidence, decision, correct = rows
    for b, values in enumerate(exact.values):
        K, J = values.shape
        theta = np.diff(values, axis=1, prepend=0)
        variables = torch.from_numpy(theta).requires_grad_()
        hits, counts = (np.bincount(decision, weights, minlength=K) for weights in (correct, None))
        start = np.log((hits + 1) / (counts - hits + 1))[:, None] + 1.4 * (np.linspace(0, 1, J) - 5 / 7)
        at = variables.cumsum(dim=1)
        height = make_objective((confidence[b], decision, correct), J, chosen.smoothness)(at)
        height = (
            height + RIDGE * (torch.from_numpy(exact.has_ridge[b])[:, None] * (at - torch.from_numpy(start)) ** 2).sum()
        )
        np.testing.assert_allclose(exact.objective[b], height.item(), rtol=0, atol=1e-13)
        height.backward()
        slope = variables.grad.numpy()
        assert (theta[:, 1:] >= MIN_INCREMENT - 1e-13).all()
        at_lowest = theta < MIN_INCREMENT + 1e-12
        at_highest = theta > 1000 - 1e-9
        at_lowest[:, 0] = False
        assert (slope[at_lowest] >= -tolerance).all()
        assert (slope[at_highest] <= tolerance).all()
        assert (np.abs(slope[~at_lowest & ~at_highest]) <= tolerance).all()


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
@given(**sizes, J=st.integers(3, 12), smoothness=st.sampled_from([0.0, 1e-8, 1e-4, 0.1]))
@example(B=1, m=300, K=5, seed=31, J=12, smoothness=1e-8)  # the curve all but lies flat
@settings(deadline=None, max_examples=20, derandomize=True)
def test_the_optimum_meets_the_kkt_conditions_on_every_device(device, B, m, K, seed, J, smoothness):
    chosen = ProjectionParams(knots=J, smoothness=smoothness)
    rows = simulate_rows(B, m, K, seed)
    exact = fitted(rows, K, chosen, device)
    host = fitted(rows, K, chosen)
    assert exact.values.shape == (B, K, J)
    assert exact.kkt_residual.shape == (B, K)
    assert exact.kkt_residual.max() <= 1e-8
    certify(exact, rows, chosen)
    np.testing.assert_array_equal(exact.values, fitted(rows, K, chosen, device).values)
    np.testing.assert_array_equal(exact.has_ridge, host.has_ridge)
    np.testing.assert_allclose(exact.objective, host.objective, rtol=0, atol=1e-13)
    if smoothness >= 1e-4:  # with less the objective decides little
        np.testing.assert_allclose(exact.values, host.values, rtol=0, atol=1e-11)


def exact_values(rows: list[FitRows], K: int) -> np.ndarray:
    return fit_exact(rows, n_labels=K, settings=SETTINGS).values


def adam_values(rows: list[FitRows], K: int) -> np.ndarray:
    return fit_lattices(rows, n_labels=K, settings=ProjectionParams(epochs=30))


@pytest.mark.parametrize(("values", "tolerance"), [(exact_values, 1e-10), (adam_values, 0)])
@given(**sizes)
@settings(deadline=None, max_examples=10, derandomize=True)
def test_fits_do_not_depend_on_other_fits_or_row_order(values, tolerance, B, m, K, seed):
    confidence, decision, correct = simulate_rows(B, m, K, seed)
    own = [np.arange(rows) for rows in (m, m // 2, 0)]  # rows of each fit
    rows = [(c[mine], decision[mine], correct[mine]) for c, mine in zip(confidence, own, strict=False)]
    for fit, together in zip(rows, values(rows, K), strict=True):
        order = np.random.default_rng(seed).permutation(len(fit[0]))
        (alone,) = values([tuple(part[order] for part in fit)], K)
        np.testing.assert_allclose(alone, together, rtol=0, atol=tolerance)


def test_labels_that_are_always_correct_always_wrong_or_separable_have_finite_curves():
    confidence, decision, correct = simulate_rows(1, 1000, 4)
    tied = np.flatnonzero(decision == 2)[:2]  # one of them right: a tie at the border parts them as well
    confidence[0, tied] = 0.5
    parted = (confidence[0] > 0.5) | (np.arange(1000) == tied[0])
    correct = np.select([decision == 0, decision == 1, decision == 2], [True, False, parted], correct)
    exact = fitted((confidence, decision, correct), 5)
    assert exact.has_ridge.tolist() == [[True, True, True, False, True]]
    assert exact.kkt_residual.max() <= 1e-8
    assert np.abs(exact.values).max() < 40
    assert (exact.values[0, 0, 3:] > 6).all()
    assert (exact.values[0, 1] < -6).all()


def test_a_label_without_rows_gets_the_initial_curve():
    start = 1.4 * (np.linspace(0, 1, 8) - 5 / 7)
    nothing = np.empty(0, dtype=int)
    for rows, K in ((simulate_rows(2, 50, 1), 2), ((np.empty((2, 0)), nothing, nothing), 3)):
        exact = fitted(rows, K)
        np.testing.assert_allclose(exact.values[:, 1:], np.tile(start, (2, K - 1, 1)), atol=1e-12)
    np.testing.assert_allclose(exact.objective, 0, atol=1e-20)


@pytest.mark.parametrize(
    "confidence",
    [np.full(400, 0.37), 0.2 + 1e-9 * np.arange(400), np.tile([0.0, 1.0], 200), np.repeat([0.5, 1 - 1e-15], 200)],
)
def test_nearly_equal_or_saturated_confidences_can_be_fitted(confidence):
    correct = np.arange(400) % 3 > 0
    exact = fitted((confidence[None], np.zeros(400, dtype=int), correct), 1)
    assert exact.kkt_residual.max() <= 1e-8
    assert np.isfinite(exact.values).all()
    at = interpolation_weights(confidence, 8) @ exact.values[0, 0]
    np.testing.assert_allclose(expit(at).mean(), correct.mean(), atol=1e-5)  # b is free: on average it fits


def test_curves_are_strictly_increasing():
    rng = np.random.default_rng(0)
    confidence = rng.random((1, 3000))
    exact = fitted((confidence, np.zeros(3000, dtype=int), rng.random(3000) < 1 - confidence[0]), 1)  # falls in truth
    np.testing.assert_allclose(np.diff(exact.values), MIN_INCREMENT, atol=1e-12)
    curves = Curves(uniform_knots(SETTINGS.knots), exact.values[0], np.array([3000]), ("none",))
    assert curves.violations() == []
    assert (np.diff(curves(make_decisions(np.linspace(-8, 8, 20_001), 0))) > 0).all()


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
@given(
    lengths=st.lists(st.integers(1, 120), max_size=12), spread=st.sampled_from([1.0, 30.0, 900.0]), seed=st.integers(0)
)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_sums_over_cells_equal_sums_of_each_cell(device, lengths, spread, seed):
    rng = np.random.default_rng(seed)
    counts = np.array(lengths, dtype=np.int64)
    weight = rng.random(counts.sum())
    host = CellRows(counts, weight, *compute_nodes(weight, counts))
    left, rise = rng.normal(scale=spread, size=(2, len(counts)))
    stays = rng.random(len(counts)) < 0.7
    rows = host if device == "cpu" else host.to_device(device)
    expected = np.empty((6, len(counts)))
    for cell, w in enumerate(np.split(weight, np.cumsum(counts)[:-1]) if lengths else []):
        t = left[cell] + rise[cell] * w
        q = expit(t)
        variance = expit(t) * expit(-t)
        rows_of_terms = [np.logaddexp(0, t), q, q * w, variance, variance * w, variance * w**2]
        expected[:, cell] = np.sum(rows_of_terms, axis=1)
    np.testing.assert_allclose(rows.sum_terms(left, rise), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(rows.sum_terms(left, rise), rows.sum_terms(left, rise))
    kept = rows.select(stays).sum_terms(left[stays], rise[stays])
    np.testing.assert_allclose(kept, expected[:, stays], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("part", ["exact_fit", "adam_values"])
def test_a_batch_is_fitted_on_its_device_under_the_lock(part, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    placed = []
    on = CellRows.to_device
    monkeypatch.setattr(CellRows, "to_device", lambda rows, device: placed.append(device) or on(rows, device))
    confidence, decision, correct = simulate_rows(2, 60, 2)
    of = make_batch((logit(confidence), decision, correct), 2, ProjectionParams(epochs=2))
    getattr(of, part)
    assert not list(tmp_path.iterdir())  # the host needs no turn
    getattr(replace(of, device="cpu:0"), part)
    assert [path.name.endswith("cpu-0.lock") for path in tmp_path.iterdir()] == [True]
    assert placed == (["cpu:0"] if part == "exact_fit" else [])
