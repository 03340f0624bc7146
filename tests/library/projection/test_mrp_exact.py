"""The convex optimum of the lattice satisfies the KKT conditions under the gradient that torch computes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.projection.lattices_torch import fit_lattices
from relmap.projection.mrp import Curves, FitRows, compute_nodes, uniform_knots
from relmap.projection.mrp_exact import MIN_INCREMENT, RIDGE, CellRows, ExactFit, fit_exact
from relmap.settings import ProjectionParams
from tests.fits import SimulatedRows, interpolation_weights, make_batch, make_decisions, make_fit_rows, simulate_rows
from tests.torch_fits import make_objective

SETTINGS = ProjectionParams()
DEVICES = ["cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]  # "cpu:0" is the CPU of torch, "cpu" NumPy
SIZES = {
    "n_fits": st.integers(1, 3),
    "n_rows": st.integers(1, 300),
    "n_labels": st.integers(1, 5),
    "seed": st.integers(0, 2**32 - 1),
}


def fit_rows_exactly(
    rows: SimulatedRows, n_labels: int, settings: ProjectionParams = SETTINGS, device: str = "cpu"
) -> ExactFit:
    return fit_exact(make_fit_rows(*rows), n_labels=n_labels, settings=settings, device=device)


def assert_is_optimal(
    exact: ExactFit, rows: SimulatedRows, settings: ProjectionParams = SETTINGS, tolerance: float = 1e-8
) -> None:
    """Check the objective and the KKT conditions: the gradient is zero, except outward at a bound."""
    confidence, decision, correct = rows
    for index, values in enumerate(exact.values):
        n_labels, n_knots = values.shape
        theta = np.diff(values, axis=1, prepend=0)
        variables = torch.from_numpy(theta).requires_grad_()
        n_correct = np.bincount(decision, correct, minlength=n_labels)
        n_decided = np.bincount(decision, minlength=n_labels)
        # The initial curve has the slope 1.4, and the logit of the accuracy at confidence 5 / 7
        accuracy_logit = np.log((n_correct + 1) / (n_decided - n_correct + 1))
        start = accuracy_logit[:, None] + 1.4 * (np.linspace(0, 1, n_knots) - 5 / 7)
        curve_values = variables.cumsum(dim=1)
        objective = make_objective((confidence[index], decision, correct), n_knots, settings.smoothness)(curve_values)
        has_ridge = torch.from_numpy(exact.has_ridge[index])[:, None]
        objective = objective + RIDGE * (has_ridge * (curve_values - torch.from_numpy(start)) ** 2).sum()
        np.testing.assert_allclose(exact.objective[index], objective.item(), rtol=0, atol=1e-13)
        objective.backward()
        gradient = variables.grad.numpy()
        assert (theta[:, 1:] >= MIN_INCREMENT - 1e-13).all()
        at_lowest = theta < MIN_INCREMENT + 1e-12
        at_highest = theta > 1000 - 1e-9
        at_lowest[:, 0] = False  # the value of the first knot has no lower bound
        assert (gradient[at_lowest] >= -tolerance).all()
        assert (gradient[at_highest] <= tolerance).all()
        assert (np.abs(gradient[~at_lowest & ~at_highest]) <= tolerance).all()


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
@given(**SIZES, n_knots=st.integers(3, 12), smoothness=st.sampled_from([0.0, 1e-8, 1e-4, 0.1]))
@example(n_fits=1, n_rows=300, n_labels=5, seed=31, n_knots=12, smoothness=1e-8)  # the curve is almost constant
@settings(deadline=None, max_examples=20, derandomize=True)
def test_optimum_satisfies_the_kkt_conditions_on_every_device(
    device, n_fits, n_rows, n_labels, seed, n_knots, smoothness
):
    projection_settings = ProjectionParams(knots=n_knots, smoothness=smoothness)
    rows = simulate_rows(n_fits, n_rows, n_labels, seed)
    exact = fit_rows_exactly(rows, n_labels, projection_settings, device)
    host_fit = fit_rows_exactly(rows, n_labels, projection_settings)

    assert exact.values.shape == (n_fits, n_labels, n_knots)
    assert exact.kkt_residual.shape == (n_fits, n_labels)
    assert exact.kkt_residual.max() <= 1e-8
    assert_is_optimal(exact, rows, projection_settings)
    np.testing.assert_array_equal(exact.values, fit_rows_exactly(rows, n_labels, projection_settings, device).values)
    np.testing.assert_array_equal(exact.has_ridge, host_fit.has_ridge)
    np.testing.assert_allclose(exact.objective, host_fit.objective, rtol=0, atol=1e-13)
    if smoothness >= 1e-4:  # with less smoothing the optimum is almost flat
        np.testing.assert_allclose(exact.values, host_fit.values, rtol=0, atol=1e-11)


def fit_exact_values(rows: list[FitRows], n_labels: int) -> np.ndarray:
    return fit_exact(rows, n_labels=n_labels, settings=SETTINGS).values


def fit_adam_values(rows: list[FitRows], n_labels: int) -> np.ndarray:
    return fit_lattices(rows, n_labels=n_labels, settings=ProjectionParams(epochs=30))


@pytest.mark.parametrize(("fit_values", "tolerance"), [(fit_exact_values, 1e-10), (fit_adam_values, 0)])
@given(**SIZES)
@settings(deadline=None, max_examples=10, derandomize=True)
def test_fit_does_not_depend_on_other_fits_or_row_order(fit_values, tolerance, n_fits, n_rows, n_labels, seed):
    confidence, decision, correct = simulate_rows(n_fits, n_rows, n_labels, seed)
    fits = []
    for fit_confidence, size in zip(confidence, (n_rows, n_rows // 2, 0), strict=False):
        fits.append(FitRows(fit_confidence[:size], decision[:size], correct[:size]))
    for fit, batch_values in zip(fits, fit_values(fits, n_labels), strict=True):
        order = np.random.default_rng(seed).permutation(len(fit.confidence))
        reordered = FitRows(fit.confidence[order], fit.decision[order], fit.correct[order])
        (separate_values,) = fit_values([reordered], n_labels)
        np.testing.assert_allclose(separate_values, batch_values, rtol=0, atol=tolerance)


def test_curves_of_perfect_and_separable_labels_are_finite():
    confidence, decision, correct = simulate_rows(1, 1000, 4)
    tied = np.flatnonzero(decision == 2)[
        :2
    ]  # one of the two is correct; rows with a tie at the border are separable too
    confidence[0, tied] = 0.5
    is_separated = (confidence[0] > 0.5) | (np.arange(1000) == tied[0])
    correct = np.select([decision == 0, decision == 1, decision == 2], [True, False, is_separated], correct)
    exact = fit_rows_exactly((confidence, decision, correct), 5)

    assert exact.has_ridge.tolist() == [[True, True, True, False, True]]
    assert exact.kkt_residual.max() <= 1e-8
    assert np.abs(exact.values).max() < 40
    assert (exact.values[0, 0, 3:] > 6).all()
    assert (exact.values[0, 1] < -6).all()


def test_label_without_rows_has_the_initial_curve():
    start = 1.4 * (np.linspace(0, 1, 8) - 5 / 7)
    no_rows = np.empty(0, dtype=int)
    for rows, n_labels in ((simulate_rows(2, 50, 1), 2), ((np.empty((2, 0)), no_rows, no_rows), 3)):
        exact = fit_rows_exactly(rows, n_labels)
        np.testing.assert_allclose(exact.values[:, 1:], np.tile(start, (2, n_labels - 1, 1)), atol=1e-12)

    np.testing.assert_allclose(exact.objective, 0, atol=1e-20)


@pytest.mark.parametrize(
    "confidence",
    [np.full(400, 0.37), 0.2 + 1e-9 * np.arange(400), np.tile([0.0, 1.0], 200), np.repeat([0.5, 1 - 1e-15], 200)],
)
def test_nearly_equal_or_saturated_confidences_have_a_finite_optimum(confidence):
    correct = np.arange(400) % 3 > 0
    exact = fit_rows_exactly((confidence[None], np.zeros(400, dtype=int), correct), 1)
    assert exact.kkt_residual.max() <= 1e-8
    assert np.isfinite(exact.values).all()

    # the value of the first knot is free, so the mean reliability is the accuracy
    reliability_logit = interpolation_weights(confidence, 8) @ exact.values[0, 0]
    np.testing.assert_allclose(expit(reliability_logit).mean(), correct.mean(), atol=1e-5)


def test_curves_are_strictly_increasing():
    generator = np.random.default_rng(0)
    confidence = generator.random((1, 3000))
    correct = generator.random(3000) < 1 - confidence[0]  # the true curve decreases
    exact = fit_rows_exactly((confidence, np.zeros(3000, dtype=int), correct), 1)
    np.testing.assert_allclose(np.diff(exact.values), MIN_INCREMENT, atol=1e-12)

    curves = Curves(uniform_knots(SETTINGS.knots), exact.values[0], np.array([3000]), ("none",))
    assert curves.violations() == []
    assert (np.diff(curves(make_decisions(np.linspace(-8, 8, 20_001), 0))) > 0).all()


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
@given(
    lengths=st.lists(st.integers(1, 120), max_size=12), spread=st.sampled_from([1.0, 30.0, 900.0]), seed=st.integers(0)
)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_cell_sums_equal_a_loop_over_cells(device, lengths, spread, seed):
    generator = np.random.default_rng(seed)
    counts = np.array(lengths, dtype=np.int64)
    weight = generator.random(counts.sum())
    host = CellRows(counts, weight, *compute_nodes(weight, counts))
    left, rise = generator.normal(scale=spread, size=(2, len(counts)))
    is_selected = generator.random(len(counts)) < 0.7
    rows = host if device == "cpu" else host.to_device(device)
    expected = np.empty((6, len(counts)))
    for cell, cell_weight in enumerate(np.split(weight, np.cumsum(counts)[:-1]) if lengths else []):
        logits = left[cell] + rise[cell] * cell_weight
        probability = expit(logits)
        variance = expit(logits) * expit(-logits)
        rows_of_terms = [
            np.logaddexp(0, logits),
            probability,
            probability * cell_weight,
            variance,
            variance * cell_weight,
            variance * cell_weight**2,
        ]
        expected[:, cell] = np.sum(rows_of_terms, axis=1)
    np.testing.assert_allclose(rows.sum_terms(left, rise), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(rows.sum_terms(left, rise), rows.sum_terms(left, rise))

    selected_terms = rows.select(is_selected).sum_terms(left[is_selected], rise[is_selected])
    np.testing.assert_allclose(selected_terms, expected[:, is_selected], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("property_name", ["exact_fit", "adam_values"])
def test_batch_is_fitted_on_its_device_under_a_lock(property_name, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    devices = []
    original_to_device = CellRows.to_device

    def recorded_to_device(rows: CellRows, device: str) -> object:
        devices.append(device)
        return original_to_device(rows, device)

    monkeypatch.setattr(CellRows, "to_device", recorded_to_device)
    confidence, decision, correct = simulate_rows(2, 60, 2)
    batch = make_batch((logit(confidence), decision, correct), 2, ProjectionParams(epochs=2))
    getattr(batch, property_name)
    assert not list(tmp_path.iterdir())  # NumPy needs no lock

    getattr(replace(batch, device="cpu:0"), property_name)
    assert [path.name.endswith("cpu-0.lock") for path in tmp_path.iterdir()] == [True]
    assert devices == (["cpu:0"] if property_name == "exact_fit" else [])
