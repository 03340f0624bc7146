"""Lattice curves: their shape, the fit against independent solvers, and bits that do not depend on company or order."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit

from tasks.projection import lattice
from tasks.projection.cells import sort_into_cells
from tasks.projection.curves import Curves, place, with_fallbacks
from tasks.projection.lattice import LatticeSettings, fit_lattices, objective

SETTINGS = LatticeSettings()
BRIEF = LatticeSettings(epochs=30)
KNOTS = SETTINGS.places

sizes = {"B": st.integers(1, 3), "m": st.integers(1, 150), "K": st.integers(1, 6), "seed": st.integers(0, 2**32 - 1)}


def simulated(B: int, m: int, K: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidence `(B, m)`, decision and correct `(m,)`; a higher label is right less often at equal confidence."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.3, 1.0, m)
    decision = rng.integers(0, K, m)
    correct = rng.random(m) < np.clip(true - 0.3 * decision / K, 0, 1)
    return np.clip(true ** rng.uniform(0.5, 2.0, (B, 1)), 0, 1), decision, correct


def curves_of(values: np.ndarray, rows: int = 100) -> Curves:
    return Curves(np.linspace(0, 1, values.shape[1]), values, np.full(len(values), rows), ("none",) * len(values))


# The curves


def test_a_curve_of_two_intervals_by_hand():
    curves = Curves(np.array([0, 0.5, 1]), np.array([[-1.0, 0.0, 4.0], [0, 0, 0]]), np.array([9, 9]), ("none",) * 2)
    confidence = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.9])
    with np.errstate(divide="ignore"):
        at = curves(logit(confidence), np.array([0, 0, 0, 0, 0, 1]))
    np.testing.assert_allclose(at, [-1, -0.5, 0, 2, 4, 0], atol=1e-15)


@given(
    steps=st.lists(st.floats(0, 20), min_size=2, max_size=12),
    base=st.floats(-30, 30),
    logits=st.lists(st.floats(-60, 60), min_size=1, max_size=30),
)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_reliability_never_falls_with_confidence_to_the_last_bit(steps, base, logits):
    curves = curves_of(base + np.cumsum([[0.0, *steps]], axis=1))
    near_knots = logit(np.clip(curves.knots, 1e-12, 1 - 1e-12))
    at = np.concatenate([logits, near_knots])
    ascending = np.unique(np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]))
    reliability_logit = curves(ascending, np.zeros(len(ascending), dtype=int))
    assert (np.diff(reliability_logit) >= 0).all()
    assert reliability_logit.min() >= curves.values.min()
    assert reliability_logit.max() <= curves.values.max()


def test_rounding_lifts_no_curve_above_its_last_value():
    curves = curves_of(np.sort(np.random.default_rng(0).normal(size=(2000, 2)), axis=1))
    label = np.arange(2000)
    assert (curves(np.full(2000, 40.0), label) <= curves.values[:, -1]).all()


def test_saturated_confidences_are_finite_and_in_order():
    curves = curves_of(np.cumsum(np.ones((2, 8)), axis=1))
    at = np.array([-np.inf, -1000.0, -40.0, 0.0, 40.0, 1000.0, np.inf])
    for label in (0, 1):
        reliability_logit = curves(at, np.full(len(at), label))
        assert np.isfinite(reliability_logit).all()
        assert (np.diff(reliability_logit) >= 0).all()
        np.testing.assert_allclose(reliability_logit[[0, -1]], [1, 8])


def test_the_identity_returns_the_confidence_itself():
    curves = with_fallbacks(KNOTS, np.zeros((2, 8)), np.array([0, 50]), np.ones(8), least=20)
    at = np.array([-3.3, 0.1, 45.0])
    np.testing.assert_array_equal(curves(at, np.zeros(3, dtype=int)), at)
    np.testing.assert_array_equal(curves(at, np.ones(3, dtype=int)), 0)
    assert curves.violations() == []


def test_few_rows_take_the_shared_curve_and_none_the_identity():
    values = np.arange(4)[:, None] + np.linspace(0, 1, 8)
    shared = np.linspace(-1, 1, 8)
    curves = with_fallbacks(KNOTS, values, np.array([20, 19, 1, 0]), shared, least=20)
    assert curves.fallback == ("none", "shared", "shared", "identity")
    np.testing.assert_array_equal(curves.values[0], values[0])
    np.testing.assert_array_equal(curves.values[1:3], [shared, shared])


def broken(knot: int | None = None, value: float = 0.0, knots: np.ndarray = KNOTS) -> list[str]:
    values = np.tile(np.linspace(-1, 1, 8), (3, 1))
    if knot is not None:
        values[1, knot] = value
    return Curves(knots, values, np.full(3, 100), ("none",) * 3).violations()


def test_violations_name_what_is_broken():
    assert broken() == []
    assert broken(4, 9.0) == [f"label 1 falls from 9.0 at knot 4 to {np.linspace(-1, 1, 8)[5]} at knot 5"]
    assert broken(0, np.nan) == ["label 1 is nan at knot 0"]
    assert broken(7, np.inf) == ["label 1 is inf at knot 7"]
    for knots in (KNOTS + 0.1, KNOTS[::-1], np.r_[KNOTS[:3], KNOTS[2], KNOTS[4:]], KNOTS * 0.9):
        (message,) = broken(knots=knots)
        assert "knots do not rise from 0 to 1" in message


def test_curves_cannot_be_changed():
    values = np.tile(np.linspace(-1, 1, 8), (3, 1))
    curves = curves_of(values)
    values[:] = 0
    np.testing.assert_array_equal(curves.values[0], np.linspace(-1, 1, 8))
    with pytest.raises(dataclasses.FrozenInstanceError):
        curves.values = values
    with pytest.raises(ValueError, match="read-only"):
        curves.values[0, 0] = 5
    at, decision = np.linspace(-5, 5, 30), np.arange(30) % 3
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(curves))(at, decision), curves(at, decision))


@given(confidence=st.floats(0, 1), J=st.integers(3, 40))
@settings(deadline=None, max_examples=200, derandomize=True)
def test_a_confidence_lies_within_its_interval(confidence, J):
    knots = np.linspace(0, 1, J)
    interval, weight = place(np.array(confidence), knots)
    assert knots[interval] <= confidence <= knots[interval + 1]
    assert 0 <= weight <= 1
    np.testing.assert_allclose((1 - weight) * knots[interval] + weight * knots[interval + 1], confidence, atol=1e-15)


# The objective


def naive_objective(values, confidence, decision, correct, smoothness):
    K, J = values.shape
    loss = 0.0
    for c, d, z in zip(confidence, decision, correct, strict=True):
        j = min(int(c * (J - 1)), J - 2)
        a = values[d, j] * (j + 1 - c * (J - 1)) + values[d, j + 1] * (c * (J - 1) - j)
        q = 1 / (1 + np.exp(-a))
        loss -= (np.log(q) if z else np.log(1 - q)) / len(confidence)
    bend = sum((values[k, j + 1] - 2 * values[k, j] + values[k, j - 1]) ** 2 for k in range(K) for j in range(1, J - 1))
    return loss + smoothness * bend / (K * (J - 2))


@given(**sizes, J=st.integers(3, 10))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_the_objective_is_the_papers_double_sum(B, m, K, seed, J):
    confidence, decision, correct = simulated(B, m, K, seed)
    values = np.random.default_rng(seed).normal(size=(B, K, J))
    expected = [naive_objective(v, c, decision, correct, 0.3) for v, c in zip(values, confidence, strict=True)]
    np.testing.assert_allclose(objective(values, confidence, decision, correct, 0.3), expected, rtol=1e-12)


def test_the_slope_is_the_derivative_of_the_mean_loss():
    confidence, decision, correct = (np.broadcast_to(x, (2, 300)) for x in simulated(2, 300, 3))
    values = np.random.default_rng(1).normal(size=(2, 3, 8))
    cells = sort_into_cells(
        list(zip(confidence, decision, correct, strict=True)), n_labels=3, knots=KNOTS, device="cpu"
    )
    slope = cells.slope(torch.from_numpy(values)).numpy()
    for place_ in np.ndindex(values.shape):
        step = np.zeros_like(values)
        step[place_] = 1e-5
        up, down = (objective(values + sign * step, confidence, decision, correct, 0.0) for sign in (1, -1))
        np.testing.assert_allclose((up - down)[place_[0]] / 2e-5, slope[place_], atol=1e-9)


def plainest_fit(confidence, decision, correct, n_labels, chosen: LatticeSettings) -> np.ndarray:
    """The paper's fit with nothing of ours but the start: dense hat weights, torch's own Adam and gradient."""
    theta = torch.from_numpy(np.tile(lattice.first_curve(chosen.knots), (n_labels, 1))).requires_grad_()
    adam = torch.optim.Adam([theta], lr=chosen.learning_rate)
    c, d, z = (torch.from_numpy(np.asarray(x)) for x in (confidence, decision, correct))
    hats = (1 - (c[:, None] * (chosen.knots - 1) - torch.arange(chosen.knots)).abs()).clamp(min=0)

    def curves() -> torch.Tensor:
        return torch.cumsum(torch.cat([theta[:, :1], torch.nn.functional.softplus(theta[:, 1:])], dim=1), dim=1)

    for _ in range(chosen.epochs):
        adam.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits((hats * curves()[d]).sum(1), z.double())
        (loss + chosen.smoothness * curves().diff(n=2, dim=1).square().mean()).backward()
        adam.step()
    return curves().detach().numpy()


# The fit


def test_torchs_own_adam_takes_the_same_steps():
    confidence, decision, correct = simulated(1, 800, 3)
    plain = plainest_fit(confidence[0], decision, correct, 3, SETTINGS)
    values = fit_lattices(confidence, decision, correct, n_labels=3, settings=SETTINGS)[0]
    np.testing.assert_allclose(values, plain, rtol=0, atol=1e-8)


def test_a_known_curve_is_found_again():
    rng = np.random.default_rng(0)
    confidence, decision = rng.uniform(0.2, 1, 100_000), rng.integers(0, 2, 100_000)
    truth = np.array([[-3, -2, -1.5, -1, 0, 1, 1.2, 2], [-1, -1, -1, 0, 0.5, 0.6, 2, 3]])
    known = Curves(KNOTS, truth, np.array([1, 1]), ("none", "none"))(logit(confidence), decision)
    found = fit_lattices(confidence[None], decision, rng.random(100_000) < expit(known), n_labels=2, settings=SETTINGS)
    said = Curves(KNOTS, found[0], np.array([1, 1]), ("none", "none"))(logit(confidence), decision)
    assert np.abs(expit(said) - expit(known)).mean() < 0.01


@given(**sizes, chosen=st.builds(LatticeSettings, st.integers(3, 12), learning_rate=st.floats(0.001, 3)))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_curves_never_fall(B, m, K, seed, chosen):
    chosen = dataclasses.replace(chosen, epochs=20)
    values = fit_lattices(*simulated(B, m, K, seed), n_labels=K, settings=chosen)
    assert values.shape == (B, K, chosen.knots)
    assert np.isfinite(values).all()
    assert (np.diff(values, axis=2) >= 0).all()


@given(**sizes)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_a_batch_equals_its_single_fits_to_the_last_bit(B, m, K, seed):
    confidence, decision, correct = simulated(B, m, K, seed)
    together = fit_lattices(confidence, decision, correct, n_labels=K, settings=BRIEF)
    alone = [fit_lattices(c[None], decision, correct, n_labels=K, settings=BRIEF)[0] for c in confidence]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-10)  # the promise, on any device
    np.testing.assert_array_equal(together, alone)  # on the CPU


@given(**sizes)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_the_order_of_the_rows_does_not_matter(B, m, K, seed):
    confidence, decision, correct = simulated(B, m, K, seed)
    order = np.random.default_rng(seed).permutation(m)
    here = fit_lattices(confidence, decision, correct, n_labels=K, settings=BRIEF)
    there = fit_lattices(confidence[:, order], decision[order], correct[order], n_labels=K, settings=BRIEF)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("threads", [1, 3])
def test_two_runs_give_the_same_bits_under_any_number_of_threads(threads):
    rows = simulated(2, 30_011, 4)
    here = fit_lattices(*rows, n_labels=4, settings=BRIEF)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        there = fit_lattices(*rows, n_labels=4, settings=BRIEF)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("label", [0, 1, 2])
def test_labels_are_separable(label):
    confidence, decision, correct = simulated(2, 700, 3)
    others = decision != label
    shuffled = correct.copy()
    shuffled[others] = np.random.default_rng(5).permutation(correct[others])
    moved = np.where(others, confidence[:, ::-1], confidence)
    here = fit_lattices(confidence, decision, correct, n_labels=3, settings=BRIEF)
    for there in (
        fit_lattices(confidence, decision, shuffled, n_labels=3, settings=BRIEF),
        fit_lattices(moved, decision, correct, n_labels=3, settings=BRIEF),
    ):
        np.testing.assert_array_equal(here[:, label], there[:, label])
        assert not np.array_equal(here, there)


def convex_optimum(confidence, decision, correct, n_labels, J) -> float:
    """The lowest objective over b and increments >= 0, by a quasi-Newton method that knows bounds."""
    below = np.tril(np.ones((J, J)))
    hats = np.clip(1 - np.abs(confidence[:, None] * (J - 1) - np.arange(J)), 0, None)
    mine = np.eye(n_labels)[decision]
    bend = np.diff(np.eye(J), n=2, axis=0)
    rho = SETTINGS.smoothness / (n_labels * (J - 2))

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        values = x.reshape(n_labels, J) @ below.T
        t = (hats * values[decision]).sum(axis=1)
        slope = mine.T @ ((expit(t) - correct)[:, None] * hats) / len(t) + 2 * rho * values @ bend.T @ bend
        height = (np.logaddexp(0, t) - correct * t).mean() + rho * ((values @ bend.T) ** 2).sum()
        return height, (slope @ below).ravel()

    bounds = ([(-40, 40)] + [(0, 40)] * (J - 1)) * n_labels
    start = np.tile(np.r_[-1.0, np.full(J - 1, 0.2)], n_labels)
    options = {"maxiter": 5000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 30}
    return float(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun)


@pytest.mark.parametrize(("m", "K", "J", "seed"), [(2000, 5, 8, 0), (2000, 2, 8, 1), (500, 3, 8, 2), (1000, 1, 12, 3)])
def test_adam_ends_close_above_the_convex_optimum(m, K, J, seed):
    confidence, decision, correct = simulated(1, m, K, seed)
    values = fit_lattices(confidence, decision, correct, n_labels=K, settings=LatticeSettings(knots=J))
    reached = objective(values, confidence, decision, correct, SETTINGS.smoothness)[0]
    optimum = convex_optimum(confidence[0], decision, correct, K, J)
    assert optimum - 1e-9 <= reached <= optimum + 5e-3


def test_labels_that_are_always_right_or_always_wrong_stay_finite():
    confidence, decision, _ = simulated(1, 2000, 3)
    correct = np.where(decision == 0, 1, 0)
    values = fit_lattices(confidence, decision, correct, n_labels=4, settings=SETTINGS)[0]
    assert np.isfinite(values).all()
    assert (values[0, 3:] > 3).all()
    assert (values[1:3, 3:] < -3).all()
    at = logit(confidence[0])
    assert np.isfinite(curves_of(values)(at, decision)).all()


def test_extreme_confidences_can_be_fitted():
    confidence = np.array([[0.0, 1.0] * 50])
    decision, correct = np.zeros(100, dtype=int), np.tile([0, 1, 1, 1], 25)
    values = fit_lattices(confidence, decision, correct, n_labels=1, settings=SETTINGS)
    np.testing.assert_allclose(expit(values[0, 0, 0]), 0.5, atol=0.05)
    assert expit(values[0, 0, -1]) > 0.9


# Which epoch counts


def selection_loss(values, confidence, decision, correct):
    return objective(values, confidence, decision, correct, 0.0)


def test_fits_of_two_threads_are_those_of_one():
    problems = [simulated(B=6, m=8000, K=3, seed=seed) for seed in range(4)]

    def fit(problem):
        return fit_lattices(*problem, n_labels=3, settings=LatticeSettings(epochs=20))

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(fit, problems))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    for one, problem in zip(together, problems, strict=True):
        assert (one == fit(problem)).all()


def test_fits_with_different_numbers_of_rows_equal_single_fits():
    rng = np.random.default_rng(5)
    several = [(rng.uniform(0.3, 1, m), rng.integers(0, 3, m), rng.random(m) < 0.7) for m in (0, 1, 63, 64, 65, 700)]
    together = fit_lattices(*zip(*several, strict=True), n_labels=3, settings=LatticeSettings(epochs=40))
    for values, (confidence, decision, correct) in zip(together, several, strict=True):
        alone = fit_lattices(confidence[None], decision, correct, n_labels=3, settings=LatticeSettings(epochs=40))
        np.testing.assert_array_equal(values, alone[0])


def test_labels_without_rows_keep_the_start_of_the_authors():
    nothing = np.empty((1, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    values = lattice.fit_lattices(*nothing, n_labels=2, settings=lattice.LatticeSettings(smoothness=0))
    line = np.linspace(0.03, 0.97, 8)
    assert values == pytest.approx(np.tile(np.log(line / (1 - line)), (1, 2, 1)))
