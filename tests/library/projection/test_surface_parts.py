"""Surfaces of some of the fits, and at their limits."""

import numpy as np
import pytest
from scipy.special import logit

from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection import rows as rows_module
from relmap.projection import surface
from relmap.projection.rows import FitBatch
from relmap.projection.surface import fit_surfaces
from relmap.settings import ProjectionParams


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
