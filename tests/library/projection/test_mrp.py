"""Lattice curves are monotone and equal the fit of torch, and results do not depend on other fits or row order.

A fixed number of nodes per cell replaces the rows of the cell in sums.
"""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.decisions import CalibratedDecisions
from relmap.projection.lattices_torch import CellTensors, build_cell_tensors, fit_lattices
from relmap.projection.mrp import (
    MAX_NODE_RISE,
    N_NODES,
    Curves,
    FitRows,
    compute_nodes,
    mrp_objective,
    sort_into_cells,
    uniform_knots,
)
from relmap.projection.mrp_exact import CellRows, fit_exact
from relmap.settings import ProjectionParams
from tests.fits import interpolation_weights, make_decisions, make_fit_rows, simulate_rows
from tests.torch_fits import fit_mrp_with_torch, make_objective

N_LABELS = 3
SETTINGS = ProjectionParams()
KNOTS = uniform_knots(SETTINGS.knots)

SIZES = {
    "n_fits": st.integers(1, 3),
    "n_rows": st.integers(1, 150),
    "n_labels": st.integers(1, 6),
    "seed": st.integers(0, 2**32 - 1),
}


def curves_of(values: np.ndarray, knots: np.ndarray | None = None) -> Curves:
    knots = np.linspace(0, 1, values.shape[1]) if knots is None else knots
    return Curves(knots, values, np.full(len(values), 100), ("none",) * len(values))


def test_curve_interpolates_between_knots():
    curves = curves_of(np.array([[-1.0, 0.0, 4.0], [0, 0, 0]]))
    confidence = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.9])
    with np.errstate(divide="ignore"):
        reliability_logit = curves(CalibratedDecisions(logit(confidence), np.array([0, 0, 0, 0, 0, 1])))

    np.testing.assert_allclose(reliability_logit, [-1, -0.5, 0, 2, 4, 0], atol=1e-15)


@given(
    steps=st.lists(st.floats(0, 20), min_size=2, max_size=12),
    base=st.floats(-30, 30),
    logits=st.lists(st.floats(-60, 60), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_reliability_never_decreases_with_confidence(steps, base, logits):
    curves = curves_of(base + np.cumsum([[0.0, *steps]], axis=1))
    knot_logits = logit(np.clip(curves.knots, 1e-12, 1 - 1e-12))
    points = np.concatenate([logits, knot_logits, [-np.inf, -1000, 1000, np.inf]])
    next_larger = np.nextafter(points, np.inf)
    next_smaller = np.nextafter(points, -np.inf)
    ascending = np.unique(np.concatenate([points, next_larger, next_smaller]))
    reliability_logit = curves(make_decisions(ascending, 0))
    assert (np.diff(reliability_logit) >= 0).all()

    end_values = curves.values[0, [0, -1]]
    assert reliability_logit[[0, -1]] == pytest.approx(end_values, rel=0, abs=1e-13)  # up to rounding, never above
    assert (reliability_logit[[0, -1]] <= end_values).all()


def test_curve_never_exceeds_its_last_value_by_rounding():
    curves = curves_of(np.sort(np.random.default_rng(0).normal(size=(2000, 2)), axis=1))
    assert (curves(make_decisions(np.full(2000, 40.0), np.arange(2000))) <= curves.values[:, -1]).all()


def test_violations_name_the_invalid_entry():
    valid = np.tile(np.linspace(-1, 1, 8), (3, 1))
    assert curves_of(valid).violations() == []

    for knot, value, message in (
        (4, 9.0, rf"label 1 falls .* 9\.0 .*knot 4 .* {valid[1, 5]} .*knot 5$"),
        (0, np.nan, "label 1 .*value nan .*knot 0$"),
        (7, np.inf, "label 1 .*value inf .*knot 7$"),
    ):
        values = valid.copy()
        values[1, knot] = value
        (violation,) = curves_of(values).violations()
        assert re.search(message, violation)
    for knots in (KNOTS + 0.1, KNOTS[::-1], np.r_[KNOTS[:3], KNOTS[2], KNOTS[4:]], KNOTS * 0.9):
        assert re.search("knots .*increase .*0 to 1:", curves_of(valid, knots).violations()[0])


@given(**SIZES, n_knots=st.integers(3, 10))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_objective_equals_the_double_sum_of_the_paper(n_fits, n_rows, n_labels, seed, n_knots):
    rows = make_fit_rows(*simulate_rows(n_fits, n_rows, n_labels, seed))
    for values, fit_rows in zip(
        np.random.default_rng(seed).normal(size=(n_fits, n_labels, n_knots)), rows, strict=True
    ):
        expected = make_objective(fit_rows, n_knots, 0.3)(torch.from_numpy(values)).item()
        assert mrp_objective(values, *fit_rows, 0.3) == pytest.approx(expected, rel=1e-12)


def test_adam_takes_the_same_steps_as_torch():
    (fit_rows,) = make_fit_rows(*simulate_rows(1, 200, 3))
    settings = ProjectionParams(epochs=100)
    (values,) = fit_lattices([fit_rows], n_labels=3, settings=settings)

    np.testing.assert_allclose(values, fit_mrp_with_torch(fit_rows, 3, settings), rtol=0, atol=1e-8)


def test_fit_does_not_depend_on_threads_or_concurrent_fits():
    problems = [make_fit_rows(*simulate_rows(n_fits=2, n_rows=8000, n_labels=3, seed=seed)) for seed in range(4)]

    def fit(problem):
        return fit_lattices(problem, n_labels=3, settings=ProjectionParams(epochs=20))

    n_threads_before = torch.get_num_threads()
    separate_fits = [fit(problem) for problem in problems]
    try:
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            with ThreadPoolExecutor(2) as pool:
                np.testing.assert_array_equal(list(pool.map(fit, problems)), separate_fits)
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(n_threads_before)


def test_label_without_rows_keeps_the_initial_curve_of_the_paper():
    no_rows = np.empty((1, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    values = fit_lattices(make_fit_rows(*no_rows), n_labels=2, settings=ProjectionParams(smoothness=0))
    np.testing.assert_allclose(values, np.tile(logit(np.linspace(0.03, 0.97, 8)), (1, 2, 1)))


def simulate_two_fits(n_rows: int, sharpness: float = 1.0) -> list[FitRows]:
    """Simulate two fits of the same rows; sharper rows have steeper curves."""
    confidence, decision, _ = simulate_rows(2, n_rows, N_LABELS)
    probability = expit(sharpness * (10 * confidence[0] - 7 - 0.3 * decision))
    return make_fit_rows(confidence, decision, np.random.default_rng(1).random(n_rows) < probability)


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=8),
    rise=st.floats(-MAX_NODE_RISE, MAX_NODE_RISE),
    left=st.floats(-20, 20),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_sums_over_nodes_equal_sums_over_rows(lengths, rise, left, seed):
    generator = np.random.default_rng(seed)
    lengths = np.array(lengths)
    weight = generator.beta(*generator.uniform(0.1, 3, 2), lengths.sum())
    nodes, masses = compute_nodes(weight, lengths)
    assert nodes.shape == masses.shape == (len(lengths), N_NODES)

    by_cell = np.split(weight, np.cumsum(lengths)[:-1])
    for function in (
        np.ones_like,
        lambda node: expit(left + rise * node) * node,
        lambda node: expit(left + rise * node) * expit(-left - rise * node) * node**2,
        lambda node: np.logaddexp(0, left + rise * node),
    ):
        by_row = [function(rows).sum() for rows in by_cell]
        scale = np.abs(function(np.linspace(0, 1, 101))).max() * np.maximum(lengths, 1)
        assert (np.abs((function(nodes) * masses).sum(axis=1) - by_row) <= 2e-14 * scale).all()
    for cell, rows in enumerate(by_cell[:3]):
        separate_nodes = compute_nodes(rows, lengths[[cell]])
        np.testing.assert_array_equal((nodes[[cell]], masses[[cell]]), separate_nodes)


@pytest.mark.parametrize("steep", [False, True])
def test_gradient_equals_a_sum_over_all_rows(steep):
    rows = simulate_two_fits(4000)
    cells = build_cell_tensors(rows, n_labels=N_LABELS, knots=uniform_knots(SETTINGS.knots), device="cpu")
    increments = np.random.default_rng(1).uniform(
        0, 3 * MAX_NODE_RISE if steep else MAX_NODE_RISE, (2, N_LABELS, SETTINGS.knots)
    )
    values = np.cumsum(increments, axis=2) - increments.sum(axis=2, keepdims=True) / 2
    gradient = cells.gradient(torch.from_numpy(values)).numpy()
    for index, (confidence, decision, correct) in enumerate(rows):
        weight = interpolation_weights(confidence, SETTINGS.knots)
        reliability_logit = (weight * values[index, decision]).sum(axis=1)
        expected = np.stack(
            [((expit(reliability_logit) - correct) * (decision == k)) @ weight for k in range(N_LABELS)]
        ) / len(reliability_logit)
        np.testing.assert_allclose(gradient[index], expected, rtol=0, atol=1e-14)


def test_steep_cells_do_not_change_the_result_of_other_fits():
    rows = simulate_two_fits(4000, sharpness=8.0)
    settings = SETTINGS.model_copy(update={"epochs": 60, "learning_rate": 0.3})
    batch_values = fit_lattices(rows, n_labels=N_LABELS, settings=settings)

    assert np.diff(batch_values).max() > MAX_NODE_RISE
    np.testing.assert_array_equal(
        batch_values, [fit_lattices([fit], n_labels=N_LABELS, settings=settings)[0] for fit in rows]
    )


@pytest.mark.parametrize("n_rows", [5000, 20_000])
def test_cost_of_an_iteration_does_not_depend_on_the_number_of_rows(monkeypatch, n_rows):
    rows = simulate_two_fits(n_rows, sharpness=0.5)
    n_cells = 2 * N_LABELS * (SETTINGS.knots - 1)
    settings = ProjectionParams(epochs=50)
    n_evaluated: list[int] = []

    def count_evaluations(owner, name, rises):
        method = getattr(owner, name)

        def counted(self, *arguments):
            assert (rises(*arguments) < MAX_NODE_RISE).all()
            n_evaluated.append(int(np.prod(self.masses.shape)))
            return method(self, *arguments)

        monkeypatch.setattr(owner, name, counted)

    count_evaluations(CellTensors, "gradient", lambda values: values.diff())
    count_evaluations(CellRows, "sum_terms", lambda _, rise: np.abs(rise))
    fit_lattices(rows, n_labels=N_LABELS, settings=settings)
    assert n_evaluated == [n_cells * N_NODES] * settings.epochs
    n_evaluated.clear()
    fit_exact(rows, n_labels=N_LABELS, settings=SETTINGS)
    assert max(n_evaluated) <= n_cells * N_NODES
    assert sum(n_evaluated) <= 12 * n_cells * N_NODES  # at most twelve iterations


def test_the_order_of_the_rows_changes_no_bit_of_their_cells():
    generator = np.random.default_rng(0)
    n_rows = 2000
    confidence = generator.random(n_rows).round(2)  # many ties
    decision = generator.integers(0, N_LABELS, n_rows)
    correct = generator.random(n_rows) < confidence
    order = generator.permutation(n_rows)
    rows = FitRows(confidence, decision, correct)
    shuffled_rows = FitRows(confidence[order], decision[order], correct[order])
    expected = sort_into_cells([rows], N_LABELS, KNOTS)
    shuffled = sort_into_cells([shuffled_rows], N_LABELS, KNOTS)
    for name in ("rows_per_cell", "confidence", "weight", "correct_weight", "nodes", "masses"):
        np.testing.assert_array_equal(getattr(shuffled, name), getattr(expected, name), err_msg=name)
