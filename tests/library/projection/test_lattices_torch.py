"""Surfaces fitted by torch, on every device of this machine."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logit

from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection import surface
from relmap.projection.lattices_torch import fit_surface_batch
from relmap.projection.rows import FitBatch
from relmap.projection.surface import SurfaceRows, fit_surfaces
from relmap.settings import ProjectionParams

DEVICES = ["cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]  # "cpu:0" is the CPU of torch


def simulate_fits(sizes: tuple[int, ...], n_labels: int) -> list[SurfaceRows]:
    generator = np.random.default_rng(3)
    fits = []
    for n_rows in sizes:
        confidence = generator.random(n_rows)
        correct = generator.random(n_rows) < confidence
        decision = generator.integers(n_labels, size=n_rows)
        fits.append(SurfaceRows(confidence, generator.normal(size=n_rows), decision, correct))
    return fits


@pytest.mark.parametrize("device", DEVICES)
def test_torch_fits_the_surfaces_of_the_cpu_on_every_device(device):
    settings = ProjectionParams(epochs=60)
    fits = simulate_fits((200, 1, 0, 50), n_labels=3)
    on_device = fit_surface_batch(fits, n_labels=3, settings=settings, device=device)
    assert len(on_device) == len(fits)
    for surfaces, rows in zip(on_device, fits, strict=True):
        expected = fit_surfaces(*rows, n_labels=3, settings=settings)
        np.testing.assert_array_equal(surfaces.gap_knots, expected.gap_knots)
        np.testing.assert_allclose(surfaces.values, expected.values, rtol=0, atol=1e-7)
        assert surfaces.violations() == []


@pytest.mark.parametrize("device", DEVICES)
def test_torch_returns_the_same_bits_in_any_order_of_the_rows(device):
    settings = ProjectionParams(epochs=20)
    (rows,) = simulate_fits((100,), n_labels=2)
    shuffled = SurfaceRows(*(column[::-1] for column in rows))
    (first,) = fit_surface_batch([rows], n_labels=2, settings=settings, device=device)
    (second,) = fit_surface_batch([shuffled], n_labels=2, settings=settings, device=device)
    assert first.values.tobytes() == second.values.tobytes()


def test_a_batch_on_another_device_is_fitted_by_torch():
    (rows,) = simulate_fits((40,), n_labels=2)
    logits = np.column_stack([rows.gap, -rows.gap])
    log_probabilities = logits - np.logaddexp(rows.gap, -rows.gap)[:, None]
    decisions = CalibratedDecisions(logit(rows.confidence), rows.decision, log_probabilities, logits)
    batch = FitBatch(LabelledDecisions([decisions], rows.correct), 2, ProjectionParams(epochs=5), device="cpu:0")
    (fitted,) = surface.fit_label_surfaces(batch)
    own_rows = SurfaceRows(decisions.confidence, decisions.gap, rows.decision, rows.correct)
    (expected,) = fit_surface_batch([own_rows], n_labels=2, settings=batch.settings, device="cpu:0")
    np.testing.assert_array_equal(fitted.values, expected.values)
    assert surface.fit_label_surfaces(replace(batch, n_surfaces=0)) == []
