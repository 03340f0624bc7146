"""Lattice curves: their shape, the fit against independent solvers, and bits that do not depend on company or order."""

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from fits import fits, simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from tasks.projection.adam_lattice import fit_lattices
from tasks.projection.curves import Curves, place, with_fallbacks
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import LatticeSettings, first_curve, objective

SETTINGS = LatticeSettings()
BRIEF = LatticeSettings(epochs=30)
KNOTS = SETTINGS.places

sizes = {"B": st.integers(1, 3), "m": st.integers(1, 150), "K": st.integers(1, 6), "seed": st.integers(0, 2**32 - 1)}


def curves_of(values: np.ndarray, rows: int = 100) -> Curves:
    return Curves(np.linspace(0, 1, values.shape[1]), values, np.full(len(values), rows), ("none",) * len(values))


# The curves


def test_a_curve_of_two_intervals_by_hand():
    curves = Curves(np.array([0, 0.5, 1]), np.array([[-1.0, 0.0, 4.0], [0, 0, 0]]), np.array([9, 9]), ("none",) * 2)
    confidence = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.9])
    with np.errstate(divide="ignore"):
        at = curves(Decisions(logit(confidence), np.array([0, 0, 0, 0, 0, 1])))
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
    reliability_logit = curves(Decisions(ascending, np.zeros(len(ascending), dtype=int)))
    assert (np.diff(reliability_logit) >= 0).all()
    assert reliability_logit.min() >= curves.values.min()
    assert reliability_logit.max() <= curves.values.max()


def test_rounding_lifts_no_curve_above_its_last_value():
    curves = curves_of(np.sort(np.random.default_rng(0).normal(size=(2000, 2)), axis=1))
    label = np.arange(2000)
    assert (curves(Decisions(np.full(2000, 40.0), label)) <= curves.values[:, -1]).all()


def test_saturated_confidences_are_finite_and_in_order():
    curves = curves_of(np.cumsum(np.ones((2, 8)), axis=1))
    at = np.array([-np.inf, -1000.0, -40.0, 0.0, 40.0, 1000.0, np.inf])
    for label in (0, 1):
        reliability_logit = curves(Decisions(at, np.full(len(at), label)))
        assert np.isfinite(reliability_logit).all()
        assert (np.diff(reliability_logit) >= 0).all()
        np.testing.assert_allclose(reliability_logit[[0, -1]], [1, 8])


def test_the_identity_returns_the_confidence_itself():
    curves = with_fallbacks(KNOTS, np.zeros((2, 8)), np.array([0, 50]), np.ones(8), least=20)
    at = np.array([-3.3, 0.1, 45.0])
    np.testing.assert_array_equal(curves(Decisions(at, np.zeros(3, dtype=int))), at)
    np.testing.assert_array_equal(curves(Decisions(at, np.ones(3, dtype=int))), 0)
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
    seen = Decisions(at, decision)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(curves))(seen), curves(seen))


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
    expected = [
        naive_objective(v, *fit, 0.3) for v, fit in zip(values, fits(confidence, decision, correct), strict=True)
    ]
    found = [objective(v, *fit, 0.3) for v, fit in zip(values, fits(confidence, decision, correct), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def plainest_fit(confidence, decision, correct, n_labels, chosen: LatticeSettings) -> np.ndarray:
    """The paper's fit with nothing of ours but the start: dense hat weights, torch's own Adam and gradient."""
    theta = torch.from_numpy(np.tile(first_curve(chosen.knots), (n_labels, 1))).requires_grad_()
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
    values = fit_lattices(fits(confidence, decision, correct), n_labels=3, settings=SETTINGS)[0]
    np.testing.assert_allclose(values, plain, rtol=0, atol=1e-8)


@given(**sizes, chosen=st.builds(LatticeSettings, st.integers(3, 12), learning_rate=st.floats(0.001, 3)))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_curves_never_fall(B, m, K, seed, chosen):
    chosen = dataclasses.replace(chosen, epochs=20)
    values = fit_lattices(fits(*simulated(B, m, K, seed)), n_labels=K, settings=chosen)
    assert values.shape == (B, K, chosen.knots)
    assert np.isfinite(values).all()
    assert (np.diff(values, axis=2) >= 0).all()


@given(**sizes)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_a_batch_equals_its_single_fits_to_the_last_bit(B, m, K, seed):
    confidence, decision, correct = simulated(B, m, K, seed)
    own = [slice(m), slice(m // 2), slice(0)]  # rows of each fit
    rows = [(c[mine], decision[mine], correct[mine]) for c, mine in zip(confidence, own, strict=False)]
    together = fit_lattices(rows, n_labels=K, settings=BRIEF)
    alone = [fit_lattices([fit], n_labels=K, settings=BRIEF)[0] for fit in rows]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-10)  # the promise, on any device
    np.testing.assert_array_equal(together, alone)  # on the CPU


@given(**sizes)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_the_order_of_the_rows_does_not_matter(B, m, K, seed):
    confidence, decision, correct = simulated(B, m, K, seed)
    order = np.random.default_rng(seed).permutation(m)
    here = fit_lattices(fits(confidence, decision, correct), n_labels=K, settings=BRIEF)
    there = fit_lattices(fits(confidence[:, order], decision[order], correct[order]), n_labels=K, settings=BRIEF)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("threads", [1, 3])
def test_two_runs_give_the_same_bits_under_any_number_of_threads(threads):
    rows = simulated(2, 30_011, 4)
    here = fit_lattices(fits(*rows), n_labels=4, settings=BRIEF)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        there = fit_lattices(fits(*rows), n_labels=4, settings=BRIEF)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(here, there)


def test_labels_that_are_always_right_or_always_wrong_stay_finite():
    confidence, decision, _ = simulated(1, 2000, 3)
    correct = np.where(decision == 0, 1, 0)
    values = fit_lattices(fits(confidence, decision, correct), n_labels=4, settings=SETTINGS)[0]
    assert np.isfinite(values).all()
    assert (values[0, 3:] > 3).all()
    assert (values[1:3, 3:] < -3).all()
    at = logit(confidence[0])
    assert np.isfinite(curves_of(values)(Decisions(at, decision))).all()


def test_fits_of_two_threads_are_those_of_one():
    problems = [simulated(B=6, m=8000, K=3, seed=seed) for seed in range(4)]

    def fit(problem):
        return fit_lattices(fits(*problem), n_labels=3, settings=LatticeSettings(epochs=20))

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


def test_labels_without_rows_keep_the_start_of_the_authors():
    nothing = np.empty((1, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    values = fit_lattices(fits(*nothing), n_labels=2, settings=LatticeSettings(smoothness=0))
    line = np.linspace(0.03, 0.97, 8)
    assert values == pytest.approx(np.tile(np.log(line / (1 - line)), (1, 2, 1)))
