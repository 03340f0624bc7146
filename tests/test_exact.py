"""The convex optimum of the lattice: its certificate, checked from scratch, and independent solvers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from fits import Rows, batch, fits, simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import expit, logit

from tasks.projection import exact as exact_module
from tasks.projection.adam_lattice import fit_lattices
from tasks.projection.curves import Curves
from tasks.projection.decisions import Decisions
from tasks.projection.exact import LEAST_INCREMENT, RIDGE, Exact, fit_exact
from tasks.projection.exact_rows import CellRows
from tasks.projection.lattice import LatticeSettings, objective
from tasks.projection.quadrature import nodes

SETTINGS = LatticeSettings()
DEVICES = ["cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]  # torch's CPU, for "cpu" means NumPy
sizes = {"B": st.integers(1, 3), "m": st.integers(1, 300), "K": st.integers(1, 5), "seed": st.integers(0, 2**32 - 1)}


def fitted(rows: Rows, K: int, chosen: LatticeSettings = SETTINGS, device: str = "cpu") -> Exact:
    return fit_exact(fits(*rows), n_labels=K, settings=chosen, device=device)


def adam(rows: Rows, K: int, epochs: int = 30) -> np.ndarray:
    return fit_lattices(fits(*rows), n_labels=K, settings=LatticeSettings(epochs=epochs))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """At these sizes a second thread of torch costs ten times what it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class OneFit:
    """The stated problem written out for one fit, with dense hat weights, in (b, increments)."""

    def __init__(self, rows: Rows, ridged: np.ndarray, K: int, chosen: LatticeSettings = SETTINGS) -> None:
        (confidence,), decision, correct = rows
        self.K, self.J = K, chosen.knots
        self.hats = np.clip(1 - np.abs(confidence[:, None] * (self.J - 1) - np.arange(self.J)), 0, None)
        self.mine, self.correct = np.eye(K)[decision], correct
        self.bend = np.diff(np.eye(self.J), n=2, axis=0)
        self.rho, self.below = chosen.smoothness / (K * (self.J - 2)), np.tril(np.ones((self.J, self.J)))
        right, all_rows = self.mine.T @ correct, self.mine.sum(axis=0)
        line = 1.4 * (np.linspace(0, 1, self.J) - 5 / 7)
        self.start = np.log((right + 1) / (all_rows - right + 1))[:, None] + line
        self.ridge = RIDGE * ridged[0][:, None]
        self.lowest = np.tile(np.r_[-np.inf, np.full(self.J - 1, LEAST_INCREMENT)], (K, 1))

    def height(self, theta: np.ndarray) -> float:
        values = theta.reshape(self.K, self.J) @ self.below.T
        t = (self.hats * (self.mine @ values)).sum(axis=1)
        loss = (np.logaddexp(0, t) - self.correct * t).mean()
        return float(
            loss + self.rho * ((values @ self.bend.T) ** 2).sum() + (self.ridge * (values - self.start) ** 2).sum()
        )

    def slope(self, theta: np.ndarray) -> np.ndarray:
        values = theta.reshape(self.K, self.J) @ self.below.T
        t = (self.hats * (self.mine @ values)).sum(axis=1)
        slope = self.mine.T @ ((expit(t) - self.correct)[:, None] * self.hats) / len(t)
        slope += 2 * self.rho * values @ self.bend.T @ self.bend + 2 * self.ridge * (values - self.start)
        return slope @ self.below

    def signs_hold(self, values: np.ndarray, tolerance: float = 1e-8) -> None:
        """At its bound a variable may only want to leave the box; every other is where the slope is 0."""
        theta = np.diff(values, axis=1, prepend=0)
        assert (theta[:, 1:] >= LEAST_INCREMENT - 1e-13).all()
        at_lowest, at_highest = theta < self.lowest + 1e-12, theta > 1000 - 1e-9
        slope = self.slope(theta)
        assert (slope[at_lowest] >= -tolerance).all()
        assert (slope[at_highest] <= tolerance).all()
        assert (np.abs(slope[~at_lowest & ~at_highest]) <= tolerance).all()


@given(**sizes, J=st.integers(3, 12), smoothness=st.sampled_from([0.0, 1e-8, 1e-4, 0.1]))
@settings(deadline=None, max_examples=40, derandomize=True)
def test_the_optimum_meets_the_sign_conditions_of_its_slope(B, m, K, seed, J, smoothness):
    chosen = LatticeSettings(knots=J, smoothness=smoothness)
    confidence, decision, correct = simulated(B, m, K, seed)
    exact = fitted((confidence, decision, correct), K, chosen)
    assert exact.values.shape == (B, K, J)
    assert exact.kkt.shape == (B, K)
    assert exact.kkt.max() <= 1e-8
    for b in range(B):
        problem = OneFit((confidence[[b]], decision, correct), exact.ridged[[b]], K, chosen)
        problem.signs_hold(exact.values[b])
        theta = np.diff(exact.values[b], axis=1, prepend=0)
        np.testing.assert_allclose(exact.objective[b], problem.height(theta), rtol=0, atol=1e-13)


def test_the_slope_that_the_certificate_takes_is_that_of_the_stated_objective():
    problem, theta = OneFit(simulated(1, 60, 2), np.array([[True, False]]), 2), np.linspace(-1, 1, 16)
    np.testing.assert_allclose(problem.slope(theta).ravel(), approx_fprime(theta, problem.height, 1e-7), atol=1e-6)


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize(
    "values", [lambda rows: fitted(rows, 3).values, lambda rows: adam(rows, 3)], ids=["exact", "adam"]
)
def test_labels_are_separable(values, label):
    confidence, decision, correct = simulated(2, 700, 3)
    others = decision != label
    here = values((confidence, decision, correct))
    there = values((np.where(others, confidence[:, ::-1], confidence), decision, np.where(others, ~correct, correct)))
    np.testing.assert_array_equal(here[:, label], there[:, label])
    assert not np.array_equal(here, there)


def test_the_certificate_sees_a_curve_that_is_not_the_optimum():
    rows = simulated(1, 500, 2)
    exact = fitted(rows, 2)
    moved = exact.values[0].copy()
    moved[1, 5:] += 1e-4
    with pytest.raises(AssertionError):
        OneFit(rows, exact.ridged, 2).signs_hold(moved)


@given(**sizes)
@settings(deadline=None, max_examples=10, derandomize=True)
def test_adam_ends_no_lower(B, m, K, seed):
    rows = simulated(B, m, K, seed)
    exact = fitted(rows, K)
    reached, optimum = (
        np.array([objective(own, *fit, SETTINGS.smoothness) for own, fit in zip(values, fits(*rows), strict=True)])
        for values in (adam(rows, K, epochs=100), exact.values)
    )
    plain = ~exact.ridged.any(axis=1)
    assert (optimum <= reached + 1e-5).all()  # the ridge and the least increment aside
    assert (optimum[plain] <= reached[plain] + 1e-8).all()
    np.testing.assert_allclose(exact.objective[plain], optimum[plain], rtol=1e-12)


@given(**sizes)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_neither_company_nor_order_matters(B, m, K, seed):
    confidence, decision, correct = simulated(B, m, K, seed)
    together = fitted((confidence, decision, correct), K)
    alone = [fitted((c[None], decision, correct), K).values[0] for c in confidence]
    np.testing.assert_allclose(together.values, alone, rtol=0, atol=1e-10)
    order = np.random.default_rng(seed).permutation(m)
    shuffled = fitted((confidence[:, order], decision[order], correct[order]), K)
    np.testing.assert_allclose(together.values, shuffled.values, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(together.values, fitted((confidence, decision, correct), K).values)


def test_labels_that_are_always_right_always_wrong_or_parted_stay_finite():
    confidence, decision, correct = simulated(1, 2000, 4)
    tied = np.flatnonzero(decision == 2)[:2]  # one of them right: a tie at the border parts them as well
    confidence[0, tied] = 0.5
    parted = (confidence[0] > 0.5) | (np.arange(2000) == tied[0])
    correct = np.select([decision == 0, decision == 1, decision == 2], [True, False, parted], correct)
    exact = fitted((confidence, decision, correct), 5)
    assert exact.ridged.tolist() == [[True, True, True, False, True]]
    assert exact.kkt.max() <= 1e-8
    assert np.abs(exact.values).max() < 40
    assert (exact.values[0, 0, 3:] > 6).all()
    assert (exact.values[0, 1] < -6).all()


def test_a_label_without_rows_keeps_its_start():
    exact = fitted(simulated(2, 50, 1), 2)
    start = 1.4 * (np.linspace(0, 1, 8) - 5 / 7)
    np.testing.assert_allclose(exact.values[:, 1], [start, start], atol=1e-12)
    nothing = np.empty(0, dtype=int)
    exact = fitted((np.empty((2, 0)), nothing, nothing), 3)
    np.testing.assert_allclose(exact.values, np.tile(start, (2, 3, 1)), atol=1e-12)
    np.testing.assert_allclose(exact.objective, 0, atol=1e-20)


@pytest.mark.parametrize(
    "confidence",
    [np.full(400, 0.37), 0.2 + 1e-9 * np.arange(400), np.tile([0.0, 1.0], 200), np.repeat([0.5, 1 - 1e-15], 200)],
)
def test_confidences_that_all_but_coincide_or_saturate_can_be_fitted(confidence):
    correct = np.arange(400) % 3 > 0
    exact = fitted((confidence[None], np.zeros(400, dtype=int), correct), 1)
    assert exact.kkt.max() <= 1e-8
    assert np.isfinite(exact.values).all()
    at = exact.values[0, 0] @ np.clip(1 - np.abs(confidence * 7 - np.arange(8)[:, None]), 0, None)
    np.testing.assert_allclose(expit(at).mean(), correct.mean(), atol=1e-5)  # b is free: on average it fits


def test_there_is_no_flat_piece():
    rng = np.random.default_rng(0)
    confidence = rng.random((1, 3000))
    exact = fitted((confidence, np.zeros(3000, dtype=int), rng.random(3000) < 1 - confidence[0]), 1)  # falls in truth
    np.testing.assert_allclose(np.diff(exact.values), LEAST_INCREMENT, atol=1e-12)
    curves = Curves(SETTINGS.places, exact.values[0], np.array([3000]), ("none",))
    assert curves.violations() == []
    at = np.linspace(-8, 8, 20_001)
    assert (np.diff(curves(Decisions(at, np.zeros(len(at), dtype=int)))) > 0).all()


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
@given(
    lengths=st.lists(st.integers(1, 120), max_size=12), spread=st.sampled_from([1.0, 30.0, 900.0]), seed=st.integers(0)
)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_the_sums_over_cells_are_those_of_each_cell_by_itself(device, lengths, spread, seed):
    rng, counts = np.random.default_rng(seed), np.array(lengths, dtype=np.int64)
    weight = rng.random(counts.sum())
    host = CellRows(counts, weight, *nodes(weight, counts))
    left, rise = rng.normal(scale=spread, size=(2, len(counts)))
    stays = rng.random(len(counts)) < 0.7
    rows = host if device == "cpu" else host.on(device)
    weights = np.split(host.weight, np.cumsum(counts)[:-1]) if lengths else []
    expected = np.empty((6, len(counts)))
    for cell, weight in enumerate(weights):
        t = left[cell] + rise[cell] * weight
        q, variance = expit(t), expit(t) * expit(-t)
        rows_of_terms = [np.logaddexp(0, t), q, q * weight, variance, variance * weight, variance * weight**2]
        expected[:, cell] = np.sum(rows_of_terms, axis=1)
    np.testing.assert_allclose(rows.sums(left, rise), expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(rows.sums(left, rise), rows.sums(left, rise))
    kept = rows.only(stays).sums(left[stays], rise[stays])
    np.testing.assert_allclose(kept, expected[:, stays], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("device", DEVICES)
@given(B=sizes["B"], m=st.integers(0, 300), K=sizes["K"], seed=sizes["seed"], smoothness=st.sampled_from([1e-4, 0.1]))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_a_device_finds_the_optimum_of_the_host(device, B, m, K, seed, smoothness):
    rows, chosen = simulated(B, m, K, seed), LatticeSettings(smoothness=smoothness)
    host, there = fitted(rows, K, chosen), fitted(rows, K, chosen, device)
    np.testing.assert_allclose(there.values, host.values, rtol=0, atol=1e-11)
    np.testing.assert_allclose(there.objective, host.objective, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(there.ridged, host.ridged)
    assert there.kkt.max() <= 1e-8
    np.testing.assert_array_equal(there.values, fitted(rows, K, chosen, device).values)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_proves_its_optimum_where_the_curve_all_but_lies_flat(device):
    chosen, rows = LatticeSettings(knots=12, smoothness=1e-8), simulated(1, 300, 5, 31)
    exact = fitted(rows, 5, chosen, device)
    assert exact.kkt.max() <= 1e-8
    OneFit(rows, exact.ridged, 5, chosen).signs_hold(exact.values[0])
    np.testing.assert_allclose(
        exact.values, fitted(rows, 5, chosen).values, atol=1e-6
    )  # here the height decides little


def test_a_batch_is_fitted_on_its_device_when_it_is_its_turn(monkeypatch):
    seen: list[str] = []

    @contextmanager
    def turn(device: str) -> Iterator[None]:
        seen.append(f"turn on {device}")
        yield
        seen.append("turn over")

    def on(rows: CellRows, device: str) -> CellRows:
        seen.append(f"rows on {device}")
        return rows

    monkeypatch.setattr(exact_module, "device_turn", turn)
    monkeypatch.setattr(CellRows, "on", on)
    confidence, decision, correct = simulated(2, 60, 2)
    of = batch((logit(confidence), decision, correct), 2)
    assert replace(of, device="elsewhere").exact.kkt.max() <= 1e-8
    assert seen == ["turn on elsewhere", "rows on elsewhere", "turn over"]
    assert of.exact.kkt.max() <= 1e-8
    assert seen[3:] == ["turn on cpu", "turn over"]
