"""Surfaces of some of the fits, and at their limits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logit

from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection import rows as rows_module
from relmap.projection import surface
from relmap.projection.rows import FitBatch
from relmap.projection.surface import SurfaceRows, fit_surfaces
from relmap.projection.surface_torch import fit_surface_batch
from relmap.settings import ProjectionParams

DEVICES = ["cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]  # "cpu:0" is the CPU of torch


@pytest.mark.parametrize(("n_surfaces", "n_fitted"), [(None, 3), (0, 0), (2, 2)])
def test_surfaces_are_fitted_for_the_first_calibrators(n_surfaces, n_fitted, monkeypatch):
    monkeypatch.setattr(rows_module, "fit_surfaces", lambda *rows, **settings: (rows, settings))
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(8, 3))
    decision = logits.argmax(axis=1)
    by_calibrator = []
    for scale in (1.0, 0.5, 2.0):
        log_probabilities = scale * logits - np.log(np.exp(scale * logits).sum(axis=1, keepdims=True))
        confidence = log_probabilities[np.arange(8), decision]
        by_calibrator.append(CalibratedDecisions(logit(np.exp(confidence)), decision, log_probabilities, logits))
    correct = np.arange(8) % 2 == 0
    settings = ProjectionParams(knots=4)
    batch = FitBatch(LabelledDecisions(by_calibrator, correct), 3, settings, n_surfaces=n_surfaces)
    fits = surface.fit_label_surfaces(batch)
    assert len(fits) == n_fitted
    for (rows, given), decisions in zip(fits, by_calibrator, strict=False):
        for found, expected in zip(rows, (decisions.confidence, decisions.gap, decision, correct), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert given == {"n_labels": 3, "settings": settings}


@pytest.mark.parametrize(
    ("gap", "ends"),
    [
        ([], (0.0, 1.0)),
        ([2.0] * 5, (2.0, 3.0)),
        ([*[2.0] * 300, 5.0], (2.0, 5.0)),  # the quantiles coincide, but not all values do
        (np.linspace(-3, 7, 101), (-2.9, 6.9)),
    ],
)
def test_gap_knots_are_placed_between_the_outer_percentiles(gap, ends):
    gap = np.array(gap, dtype=float)
    n_rows = len(gap)
    confidence = np.full(n_rows, 0.5)
    decision = np.zeros(n_rows, dtype=np.int64)
    settings = ProjectionParams(epochs=1, knots=3)
    fitted = fit_surfaces(confidence, gap, decision, decision == 0, n_labels=2, settings=settings)
    np.testing.assert_allclose(fitted.gap_knots, np.linspace(*ends, 6), rtol=1e-12)
    assert fitted.values.shape == (2, 3, 6)


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
