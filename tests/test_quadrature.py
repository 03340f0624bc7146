"""Few nodes for many rows: their sums are those of the rows, and their number does not grow with the rows."""

import fits
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from tasks.projection.adam_lattice import Cells, fit_lattices, sort_into_cells
from tasks.projection.exact import CellRows, fit_exact
from tasks.projection.lattice import GENTLE, NODES, FitRows, nodes, uniform_knots
from tasks.protocol.params import ProjectionParams

K, SETTINGS = 3, ProjectionParams()
lengths_of_cells = st.lists(st.integers(0, 300), min_size=1, max_size=8)


def simulated(m: int, sharpness: float = 1.0) -> list[FitRows]:
    """Two fits of the same m rows; the sharper, the steeper the curves that fit them."""
    confidence, decision, _ = fits.simulated(2, m, K)
    chance = expit(sharpness * (10 * confidence[0] - 7 - 0.3 * decision))
    return fits.fits(confidence, decision, np.random.default_rng(1).random(m) < chance)


@given(lengths=lengths_of_cells, rise=st.floats(-GENTLE, GENTLE), left=st.floats(-20, 20), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_what_a_fit_sums_over_rows_it_may_sum_over_nodes_of_each_cell_by_itself(lengths, rise, left, seed):
    rng, lengths = np.random.default_rng(seed), np.array(lengths)
    weight = rng.beta(*rng.uniform(0.1, 3, 2), lengths.sum())
    places, masses = nodes(weight, lengths)
    assert places.shape == masses.shape == (len(lengths), NODES)
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
        alone = nodes(rows, lengths[[cell]])
        np.testing.assert_array_equal((places[[cell]], masses[[cell]]), alone)


@pytest.mark.parametrize("steep", [False, True])
def test_the_gradient_is_a_sum_over_all_rows(steep):
    rows = simulated(4000)
    cells = sort_into_cells(rows, n_labels=K, knots=uniform_knots(SETTINGS.knots), device="cpu")
    increments = np.random.default_rng(1).uniform(0, 3 * GENTLE if steep else GENTLE, (2, K, SETTINGS.knots))
    values = np.cumsum(increments, axis=2) - increments.sum(axis=2, keepdims=True) / 2
    gradient = cells.gradient(torch.from_numpy(values)).numpy()
    for b, (confidence, decision, correct) in enumerate(rows):
        hats = fits.hats(confidence, SETTINGS.knots)
        t = (hats * values[b, decision]).sum(axis=1)
        expected = np.stack([((expit(t) - correct) * (decision == k)) @ hats for k in range(K)]) / len(t)
        np.testing.assert_allclose(gradient[b], expected, rtol=0, atol=1e-14)


def test_steep_cells_are_known_by_themselves_and_give_the_bits_that_they_give_alone():
    rows, chosen = simulated(4000, sharpness=8.0), SETTINGS.model_copy(update={"epochs": 60, "learning_rate": 0.3})
    together = fit_lattices(rows, n_labels=K, settings=chosen)
    assert np.diff(together).max() > GENTLE
    np.testing.assert_array_equal(together, [fit_lattices([fit], n_labels=K, settings=chosen)[0] for fit in rows])


@pytest.mark.parametrize("m", [5000, 20_000])
def test_a_step_costs_the_nodes_of_each_cell_however_many_rows_there_are(monkeypatch, m):
    rows, cells, chosen = simulated(m, sharpness=0.5), 2 * K * (SETTINGS.knots - 1), ProjectionParams(epochs=50)
    evaluated: list[int] = []

    def count(owner, name, rises):
        method = getattr(owner, name)

        def counted(self, *places):
            assert (rises(*places) < GENTLE).all()
            evaluated.append(int(np.prod(self.masses.shape)))
            return method(self, *places)

        monkeypatch.setattr(owner, name, counted)

    count(Cells, "gradient", lambda values: values.diff())
    count(CellRows, "sums", lambda _, rise: np.abs(rise))
    fit_lattices(rows, n_labels=K, settings=chosen)
    assert evaluated == [cells * NODES] * chosen.epochs
    evaluated.clear()
    fit_exact(rows, n_labels=K, settings=SETTINGS)
    assert max(evaluated) <= cells * NODES
    assert sum(evaluated) <= 12 * cells * NODES
