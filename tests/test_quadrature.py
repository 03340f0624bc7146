"""Few nodes for many rows: their sums are those of the rows, and their number does not grow with the rows."""

import dataclasses

import numpy as np
import pytest
import torch
from fits import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from tasks.projection.adam_lattice import Cells, fit_lattices, sort_into_cells
from tasks.projection.exact import fit_exact
from tasks.projection.exact_rows import CellRows
from tasks.projection.lattice import LatticeSettings
from tasks.projection.quadrature import GENTLE, NODES, nodes

K, SETTINGS = 3, LatticeSettings()
lengths_of_cells = st.lists(st.integers(0, 300), min_size=1, max_size=8)


def simulated(m: int, sharpness: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidence `(2, m)`, decision and correct `(m,)`; the sharper, the steeper the curves that fit it."""
    rng = np.random.default_rng(seed)
    true, decision = rng.uniform(0.3, 1.0, m), rng.integers(0, K, m)
    correct = rng.random(m) < expit(sharpness * (10 * true - 7 - 0.3 * decision))
    return true ** np.array([[0.7], [1.5]]), decision, correct


@given(lengths=lengths_of_cells, rise=st.floats(-GENTLE, GENTLE), left=st.floats(-20, 20), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_what_a_fit_sums_over_rows_it_may_sum_over_nodes(lengths, rise, left, seed):
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


@given(lengths=lengths_of_cells, seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=20, derandomize=True)
def test_the_nodes_of_a_cell_do_not_feel_the_other_cells(lengths, seed):
    weight = np.random.default_rng(seed).random(sum(lengths))
    together, starts = nodes(weight, np.array(lengths)), np.cumsum([0, *lengths])
    for cell, length in enumerate(lengths):
        alone = nodes(weight[starts[cell] : starts[cell + 1]], np.array([length]))
        for here, there in zip(together, alone, strict=True):
            np.testing.assert_array_equal(here[cell], there[0])


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 8.0])
def test_the_optimum_is_that_of_sums_over_all_rows(monkeypatch, sharpness):
    rows = simulated(4000, sharpness)
    exact = fit_exact(fits(*rows), n_labels=K, settings=SETTINGS)
    monkeypatch.setattr(CellRows, "sums", CellRows.sums_by_row)
    slow = fit_exact(fits(*rows), n_labels=K, settings=SETTINGS)
    assert (np.diff(slow.values).max() > GENTLE) == (sharpness == 8)  # then some cells are summed by row
    np.testing.assert_allclose(exact.objective, slow.objective, rtol=1e-12)
    np.testing.assert_allclose(exact.values, slow.values, rtol=0, atol=1e-10)


@pytest.mark.parametrize("steep", [False, True])
def test_the_slope_is_a_sum_over_all_rows(steep):
    confidence, decision, correct = simulated(4000)
    cells = sort_into_cells(fits(confidence, decision, correct), n_labels=K, knots=SETTINGS.places, device="cpu")
    increments = np.random.default_rng(1).uniform(0, 3 * GENTLE if steep else GENTLE, (2, K, SETTINGS.knots))
    values = np.cumsum(increments, axis=2) - increments.sum(axis=2, keepdims=True) / 2
    slope = cells.gradient(torch.from_numpy(values)).numpy()
    for b, c in enumerate(confidence):
        hats = np.clip(1 - np.abs(c[:, None] * (SETTINGS.knots - 1) - np.arange(SETTINGS.knots)), 0, None)
        t = (hats * values[b, decision]).sum(axis=1)
        expected = np.stack([((expit(t) - correct) * (decision == k)) @ hats for k in range(K)]) / len(t)
        np.testing.assert_allclose(slope[b], expected, rtol=0, atol=1e-14)


def test_steep_cells_are_told_by_themselves_and_give_the_bits_that_they_give_alone():
    confidence, decision, correct = simulated(4000, sharpness=8.0)
    chosen = dataclasses.replace(SETTINGS, epochs=60, learning_rate=0.3)
    together = fit_lattices(fits(confidence, decision, correct), n_labels=K, settings=chosen)
    assert np.diff(together).max() > GENTLE
    alone = [fit_lattices([(c, decision, correct)], n_labels=K, settings=chosen)[0] for c in confidence]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("m", [5000, 20_000])
def test_a_step_costs_the_nodes_of_each_cell_however_many_rows_there_are(monkeypatch, m):
    rows, cells = simulated(m, sharpness=0.5), 2 * K * (SETTINGS.knots - 1)
    evaluated: list[int] = []
    gradient, terms = Cells.gradient, CellRows._terms

    def counted_gradient(self, values):
        assert self.masses.numel() == cells * NODES
        assert (values.diff() < GENTLE).all()
        evaluated.append(self.masses.numel())
        return gradient(self, values)

    def counted_terms(self, t, weight):
        evaluated.append(t.size)
        return terms(self, t, weight)

    monkeypatch.setattr(Cells, "gradient", counted_gradient)
    fit_lattices(fits(*rows), n_labels=K, settings=SETTINGS)
    assert len(evaluated) == SETTINGS.epochs
    evaluated.clear()
    monkeypatch.setattr(CellRows, "_terms", counted_terms)
    fit_exact(fits(*rows), n_labels=K, settings=SETTINGS)
    assert max(evaluated) <= cells * NODES
    assert sum(evaluated) <= 12 * cells * NODES
