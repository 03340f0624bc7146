"""Label-wise 2D: surfaces that fall along neither axis, their certificate, and what they owe the curve."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, minimize
from scipy.special import expit, log_softmax, logit

from tasks.projection.curves import Curves, place
from tasks.projection.exact import fit_exact
from tasks.projection.lattice import LatticeSettings
from tasks.projection.surface import Surfaces, decision_gap, fit_surfaces

SETTINGS = LatticeSettings()
SHARED = np.linspace(-1, 2, 8)


def simulated(m: int, K: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Confidence, gap, decision and correct of m rows, `(m,)` each, of a calibrated multinomial model."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(m, K))
    log_probabilities = log_softmax(logits, axis=1)
    decision = logits.argmax(axis=1)
    truth = (np.exp(log_probabilities).cumsum(axis=1) > rng.random((m, 1))).argmax(axis=1)
    confidence = np.exp(log_probabilities.max(axis=1))
    return confidence, decision_gap(log_probabilities, logits, decision), decision, truth == decision


def fitted(rows: tuple[np.ndarray, ...], K: int, chosen: LatticeSettings = SETTINGS) -> Surfaces:
    confidence, gap, decision, correct = rows
    shared = np.linspace(-1, 2, chosen.knots)[None]
    return fit_surfaces(confidence[None], gap[None], decision, correct, n_labels=K, settings=chosen, shared=shared)[0]


def height(surfaces: Surfaces, rows: tuple[np.ndarray, ...], smoothness: float) -> float:
    """The objective written out, row by row."""
    confidence, gap, decision, correct = rows
    i, u = place(confidence, surfaces.knots)
    j, v = place(np.clip(gap, surfaces.gap_knots[0], surfaces.gap_knots[-1]), surfaces.gap_knots)
    loss = 0.0
    for row in range(len(gap)):
        a = surfaces.values[decision[row]]
        t = 0.0
        for di, dj in ((0, 0), (0, 1), (1, 0), (1, 1)):
            t += (u[row] if di else 1 - u[row]) * (v[row] if dj else 1 - v[row]) * a[i[row] + di, j[row] + dj]
        loss += np.logaddexp(0, t) - correct[row] * t
    bends = (np.diff(surfaces.values, n=2, axis=axis) ** 2 for axis in (1, 2))
    return loss / len(gap) + smoothness * sum(bend.mean() for bend in bends if bend.size)


def surface_of(values: np.ndarray, gap_knots: np.ndarray) -> Surfaces:
    K, J, _ = values.shape
    return Surfaces(np.linspace(0, 1, J), gap_knots, values, np.full(K, 100), ("none",) * K, np.zeros(K))


# The gap


def test_the_gap_of_two_rows_by_hand():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    logits = np.array([[3.0, 1.0, 2.0], [3.0, 3.0, 1.0]])  # runners-up: label 2, then label 1
    gap = decision_gap(np.log(probabilities), logits, np.array([0, 0]))
    np.testing.assert_allclose(gap, logit([0.5, 0.1]) - logit([0.2, 0.2]), rtol=1e-12)


def test_saturated_probabilities_are_cut():
    with np.errstate(divide="ignore"):
        log_probabilities = np.log(np.array([[1.0, 0.0], [0.0, 1.0]]))
    gap = decision_gap(log_probabilities, np.array([[9.0, 0.0], [9.0, 0.0]]), np.array([0, 0]))
    np.testing.assert_allclose(gap, [2 * logit(1 - 1e-6), -2 * logit(1 - 1e-6)], rtol=1e-9)


def test_with_two_labels_the_gap_is_twice_the_logit_of_the_confidence():
    confidence, gap, _, _ = simulated(500, 2)
    np.testing.assert_allclose(gap, 2 * logit(confidence), rtol=1e-9, atol=1e-12)


# The surfaces


def test_a_surface_of_one_cell_by_hand():
    surfaces = surface_of(np.array([[[0.0, 1.0], [2.0, 4.0]]]), np.array([1.0, 3.0]))
    confidence, gap = np.array([0.5, 0.25, 0.25, 0.5]), np.array([2.0, 1.0, 3.0, 99.0])
    np.testing.assert_allclose(surfaces(logit(confidence), np.zeros(4, dtype=int), gap), [1.75, 0.5, 1.75, 2.5])


@given(
    seed=st.integers(0, 2**32 - 1), J=st.integers(3, 9), G=st.integers(2, 9), spread=st.sampled_from([1e-15, 1, 1e4])
)
@settings(deadline=None, max_examples=60, derandomize=True)
def test_reliability_never_falls_along_either_axis(seed, J, G, spread):
    rng = np.random.default_rng(seed)
    values = np.sort(np.sort(3 + rng.normal(size=(1, J, G)) * spread, axis=1), axis=2)  # 1e-15: a few bits apart
    surfaces = surface_of(values, np.cumsum(rng.uniform(0.01, 3, G)) - 1)
    near = rng.normal(size=20) * 3
    at = np.unique(np.concatenate([near, np.nextafter(near, 9), logit(surfaces.knots[1:-1]), [-np.inf, np.inf]]))
    gap = np.unique(np.concatenate([rng.normal(size=20) * 5, surfaces.gap_knots]))
    label = np.zeros(len(at) * len(gap), dtype=int)
    table = surfaces(np.repeat(at, len(gap)), label, np.tile(gap, len(at))).reshape(len(at), len(gap))
    assert (np.diff(table, axis=0) >= 0).all()  # along the confidence, to the last bit
    assert (np.diff(table, axis=1) >= -1e-14 * max(spread, 1)).all()
    assert values.min() <= table.min() <= table.max() <= values.max()


def test_rounding_just_below_a_gap_knot_lets_no_curve_fall():
    low = -1.9258526249726229  # found by search: straight interpolation puts the curve's second knot below its first
    values = np.array([[[low, 1.5380269892265113], [np.nextafter(low, 0), 1.5380269892265113]]])
    surfaces = surface_of(np.repeat(values, 2, axis=1), np.array([0.0, 1.0]))
    at = np.linspace(-30, 30, 501)
    reliability_logit = surfaces(at, np.zeros(501, dtype=int), np.full(501, np.nextafter(1, 0)))
    assert (np.diff(reliability_logit) >= 0).all()


@pytest.fixture(scope="module")
def rows():
    return simulated(1500, 4)


@pytest.fixture(scope="module")
def surfaces(rows):
    return fitted(rows, 4)


@given(seed=st.integers(0, 2**32 - 1), m=st.integers(25, 300), K=st.integers(2, 4), J=st.integers(3, 9))
@settings(deadline=None, max_examples=12, derandomize=True)
def test_fitted_surfaces_fall_nowhere_and_prove_their_optimum(seed, m, K, J):
    fit = fitted(simulated(m, K, seed), K, LatticeSettings(knots=J, minimum_rows=1))
    assert fit.violations() == []
    assert (np.diff(fit.values, axis=1) >= 0).all()
    assert (np.diff(fit.values, axis=2) >= 0).all()
    assert fit.excess.max() <= 1e-6
    assert np.abs(fit.values).max() <= 14


def test_the_contract_of_a_variant_with_a_gap(rows, surfaces):
    confidence, gap, decision, _ = rows
    reliability_logit = surfaces(logit(confidence), decision, gap)
    assert reliability_logit.shape == gap.shape
    assert reliability_logit.dtype == np.float64
    assert np.isfinite(reliability_logit).all()
    np.testing.assert_array_equal(surfaces(logit(confidence[5:7]), decision[5:7], gap[5:7]), reliability_logit[5:7])
    assert surfaces(gap[:0], decision[:0], gap[:0]).shape == (0,)
    again = pickle.loads(pickle.dumps(surfaces))
    np.testing.assert_array_equal(again(logit(confidence), decision, gap), reliability_logit)
    with pytest.raises(dataclasses.FrozenInstanceError):
        surfaces.values = 0
    with pytest.raises(ValueError, match="read-only"):
        surfaces.values[0, 0, 0] = 5


def test_violations_name_what_is_broken(surfaces):
    assert surfaces.violations() == []

    def broken(**changes):
        return " ".join(dataclasses.replace(surfaces, **changes).violations())

    values = surfaces.values.copy()
    values[1, 4, 3] = 99
    assert "label 1 falls along the confidence after knot 4, gap knot 3" in broken(values=values)
    assert "label 1 falls along the gap after knot 4, gap knot 3" in broken(values=values)
    values[1, 4, 3] = np.nan
    assert "label 1 is nan at knot 4, gap knot 3" in broken(values=values)
    assert "gap knots do not rise" in broken(gap_knots=surfaces.gap_knots[::-1])
    assert "knots do not rise from 0 to 1" in broken(knots=surfaces.knots * 0.9)
    assert "label 2 may lie 0.1 above" in broken(excess=np.array([0, 0, 0.1, 0]))
    assert "label 0 may lie nan above" in broken(excess=np.array([np.nan, 0, 0, 0]))


# The optimum


def dense_optimum(rows: tuple[np.ndarray, ...], like: Surfaces, smoothness: float) -> float:
    """The lowest objective of one label over the cone, by a general solver with dense weights."""
    confidence, gap, _, correct = rows
    J, G = like.values.shape[1:]
    hat = [np.zeros((len(gap), size)) for size in (J, G)]
    for weights, at, knots in zip(hat, (confidence, gap), (like.knots, like.gap_knots), strict=True):
        interval, weight = place(np.clip(at, knots[0], knots[-1]), knots)
        weights[np.arange(len(at)), interval] = 1 - weight
        weights[np.arange(len(at)), interval + 1] = weight
    hats = (hat[0][:, :, None] * hat[1][:, None, :]).reshape(len(gap), -1)
    bends = [np.kron(np.diff(np.eye(J), 2, axis=0), np.eye(G)), np.kron(np.eye(J), np.diff(np.eye(G), 2, axis=0))]
    quadratic = smoothness * sum(bend.T @ bend / len(bend) for bend in bends)
    rises = np.concatenate(
        [np.kron(np.diff(np.eye(J), axis=0), np.eye(G)), np.kron(np.eye(J), np.diff(np.eye(G), axis=0))]
    )

    def loss(a: np.ndarray) -> tuple[float, np.ndarray]:
        t = hats @ a
        slope = hats.T @ (expit(t) - correct) / len(t) + 2 * quadratic @ a
        return float((np.logaddexp(0, t) - correct * t).mean() + a @ quadratic @ a), slope

    start = np.add.outer(np.linspace(-1, 1, J), np.linspace(-1, 1, G)).ravel()
    rising = LinearConstraint(rises, 0, np.inf)
    options = {"maxiter": 1000, "ftol": 1e-13}
    return float(
        minimize(loss, start, jac=True, method="SLSQP", bounds=Bounds(-12, 12), constraints=rising, options=options).fun
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_a_general_solvers_optimum(seed):
    confidence, gap, _, correct = simulated(600, 3, seed)
    one = confidence, gap, np.zeros(600, dtype=int), correct
    chosen = LatticeSettings(knots=5)
    fit = fitted(one, 1, chosen)
    optimum = dense_optimum(one, fit, chosen.smoothness)
    assert optimum - 1e-6 <= height(fit, one, chosen.smoothness) <= optimum + 1e-6


@pytest.mark.parametrize(("m", "K"), [(1500, 2), (1500, 3), (300, 1)])
def test_the_best_surface_is_no_worse_than_the_best_curve(m, K):
    confidence, gap, decision, correct = simulated(m, max(K, 2))
    decision = decision % K
    curve = fit_exact(confidence[None], decision, correct, n_labels=K, settings=SETTINGS)
    assert not curve.ridged.any()
    assert np.abs(curve.values).max() < 12
    fit = fitted((confidence, gap, decision, correct), K)
    assert height(fit, (confidence, gap, decision, correct), SETTINGS.smoothness) <= curve.objective[0] + 1e-6


def test_a_gap_that_says_nothing_leaves_the_curve():
    confidence, _, decision, correct = simulated(1500, 2)
    fit = fitted((confidence, np.zeros(1500), decision, correct), 2)
    curve = fit_exact(confidence[None], decision, correct, n_labels=2, settings=SETTINGS)
    curves = Curves(SETTINGS.places, curve.values[0], fit.rows, ("none", "none"))
    assert fit.gap_knots.tolist() == [0, 1]
    at = logit(confidence)
    ours, theirs = fit(at, decision, np.zeros(1500)), curves(at, decision)
    np.testing.assert_allclose(expit(ours), expit(theirs), atol=3e-3)


def test_a_surface_that_needs_the_gap_is_found_again():
    rng = np.random.default_rng(0)
    n = 20_000
    confidence, gap = rng.random(n), rng.uniform(0, 7, n)
    true = 3 * confidence + 0.5 * gap - 3
    fit = fitted((confidence, gap, np.zeros(n, dtype=int), rng.random(n) < expit(true)), 1)
    found = fit(logit(confidence), np.zeros(n, dtype=int), gap)
    assert np.abs(expit(found) - expit(true)).mean() < 0.02


# Knots, rare labels, company


def test_gap_knots_reach_below_zero_only_where_a_gap_does():
    confidence, gap, decision, correct = simulated(500, 3)
    assert fitted((confidence, gap + 0.5, decision, correct), 3).gap_knots[0] == 0
    fit = fitted((confidence, gap - 0.5, decision, correct), 3)
    np.testing.assert_allclose(fit.gap_knots[[0, -1]], [gap.min() - 0.5, gap.max() - 0.5], atol=1e-6)
    assert len(fit.gap_knots) == 8
    merged = fitted((confidence, np.where(gap < 1, 0, 5), decision, correct), 3)
    assert merged.gap_knots.tolist() == [0, 5]
    assert merged.violations() == []


def test_few_rows_take_the_shared_curve_and_none_the_identity():
    confidence, gap, _, correct = simulated(339, 3)
    fit = fitted((confidence, gap, np.repeat([0, 1, 2], [300, 19, 20]), correct), 4)
    assert fit.fallback == ("none", "shared", "none", "identity")
    assert fit.rows.tolist() == [300, 19, 20, 0]
    assert fit.violations() == []
    at, wide = np.linspace(-10, 10, 50), np.linspace(-20, 20, 50)
    shared = Curves(SETTINGS.places, SHARED[None], np.array([339]), ("none",))
    one = np.ones(50, dtype=int)
    np.testing.assert_array_equal(fit(at, one, wide), shared(at, 0 * one))
    np.testing.assert_array_equal(fit(at, 3 * one, wide), at)


def test_no_rows_leave_the_identity():
    nothing = np.empty(0)
    fit = fitted((nothing, nothing, nothing.astype(int), nothing), 2)
    assert fit.violations() == []
    np.testing.assert_array_equal(fit(np.array([0.3, -2]), np.array([0, 1]), np.array([1.0, -1])), [0.3, -2])


@pytest.mark.parametrize("right", [True, False])
def test_labels_that_are_always_right_or_always_wrong_stay_finite(right):
    confidence, gap, decision, correct = simulated(400, 2)
    fit = fitted((confidence, gap, decision, np.where(decision == 0, right, correct)), 2)
    assert fit.violations() == []
    assert np.abs(fit.values).max() <= 12
    reliability_logit = fit(logit(confidence), decision, gap)[decision == 0]
    assert (reliability_logit > 5).all() if right else (reliability_logit < -5).all()


def test_labels_are_separable(rows, surfaces):
    confidence, gap, decision, correct = rows
    flipped = fitted((confidence, gap, decision, np.where(decision == 2, correct, ~correct)), 4)
    np.testing.assert_array_equal(flipped.values[2], surfaces.values[2])
    assert not np.array_equal(flipped.values[1], surfaces.values[1])


def test_neither_company_nor_order_matters(rows, surfaces):
    confidence, gap, decision, correct = rows
    both = fit_surfaces(
        np.stack([confidence, confidence**2]),
        np.stack([gap, 2 * gap]),
        decision,
        correct,
        n_labels=4,
        settings=SETTINGS,
        shared=np.stack([SHARED, SHARED]),
    )
    np.testing.assert_array_equal(both[0].values, surfaces.values)
    assert not np.array_equal(both[1].values, surfaces.values)
    order = np.random.default_rng(0).permutation(len(gap))
    np.testing.assert_array_equal(fitted(tuple(x[order] for x in rows), 4).values, surfaces.values)
