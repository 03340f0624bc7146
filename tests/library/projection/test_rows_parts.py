"""Batches of fits."""

import numpy as np

from relmap.decisions import ProtocolDecisions
from relmap.projection.rows import FitBatch, ValidationRows, fit_batch_lattices, fit_mrp_batches
from relmap.settings import ProjectionParams
from tests.fits import simulate_logits_and_labels


def test_without_batches_no_lattice_is_fitted():
    assert fit_batch_lattices([]) == []
    assert fit_mrp_batches([]) == []


def test_a_batch_of_validation_rows_has_selection_rows_if_there_are_any():
    logits, labels = simulate_logits_and_labels(30, 3)
    rows = ProtocolDecisions(decision=logits.argmax(axis=1), logits=logits, label=labels, group=np.arange(30))
    parts = ValidationRows(
        seed=1,
        temperature_fit=rows,
        calibrator_fit=rows.take(slice(10)),
        projection_fit=rows.take(slice(10, 25)),
        projection_selection=rows.take(slice(25, 30)),
    )
    settings = ProjectionParams(knots=4)

    def calibrate(given: np.ndarray) -> np.ndarray:
        return given - np.log(np.exp(given).sum(axis=1, keepdims=True))

    batch = FitBatch.from_validation_rows([calibrate, calibrate], parts, settings, "cpu:0")
    assert (batch.n_fits, batch.n_labels, batch.device, batch.n_surfaces) == (2, 3, "cpu:0", None)
    assert batch.settings is settings
    np.testing.assert_array_equal(batch.fit_rows.by_calibrator[1].logits, logits[10:25])
    np.testing.assert_array_equal(batch.selection_rows.by_calibrator[0].logits, logits[25:])
    without_selection = parts._replace(projection_selection=rows.take(slice(0)))
    batch = FitBatch.from_validation_rows([calibrate], without_selection, settings, "cpu")
    assert batch.selection_rows is None
