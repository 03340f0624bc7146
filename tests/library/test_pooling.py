"""Reliabilities in which labels lean on one another: each is the optimum of its problem, shrunk as it should be."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, log_softmax, logit

from relmap.calibrators.temperature import fit_temperature
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.labelwise import MAX_LOGIT
from relmap.projection.pooling import (
    DEVIATION_LEVELS,
    MIN_EVIDENCE_GAIN,
    SLOPE_DEVIATION_SCALE,
    TOLERANCE,
    PooledLineFitter,
    Prior,
    WithSignals,
    search_prior,
)
from relmap.projection.variants import CURVE_WEIGHT_ROWS, fit_pooled_curves, fit_pooled_lines
from relmap.projection.whole_vector import MAX_LABELS, fit_whole_vector
from relmap.settings import ProjectionParams
from tests import fits

FREE = ("shared", "intercept", "slope")
SHIFTS = np.array([1.0, 0.0, -1.0, -2.0])


def rows_of(n: int, shifts: np.ndarray = SHIFTS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """logit of the confidence, decision and correct `(n,)`; a label is correct as often as that plus its shift says."""
    generator = np.random.default_rng(seed)
    z, decision = generator.normal(size=n) * 1.5, generator.integers(0, len(shifts), n)
    return z, decision, generator.random(n) < expit(z + shifts[decision])


def shift_at_half(line, labels: int = 4) -> np.ndarray:
    """What a line adds to a logit of 0, for each label."""
    return line(CalibratedDecisions(np.zeros(labels), np.arange(labels)))


@pytest.mark.parametrize("prior", [Prior(1.0, 0.5, 0.25), Prior(0.5, 1.0), Prior(2.0), Prior(slope=1.0)])
def test_coefficients_minimize_the_objective_and_the_evidence_is_laplaces(prior):
    z, decision, correct = rows_of(200)
    rows = PooledLineFitter(z, decision, correct, 4).rows
    evidence, shared, own = rows.fit(prior, prior, TOLERANCE)
    of_shared = prior.shared_deviations(2)
    of_own = prior.label_deviations(2)
    free = np.r_[of_shared > 0, np.tile(of_own > 0, 4)]
    ridge = np.r_[of_shared, np.tile(of_own, 4)][free] ** -2.0

    def objective(some: np.ndarray) -> float:
        theta = np.zeros(10)
        theta[free] = some
        t = rows.offset + ((theta[:2] + theta[2:].reshape(4, 2)[rows.label]) * rows.features).sum(axis=1)
        return float(np.logaddexp(0, np.where(rows.correct, -t, t)).sum() + (ridge * some**2).sum() / 2)

    ours = np.r_[shared, own.ravel()][free]
    theirs = minimize(objective, np.zeros(free.sum()), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(ours, theirs.x, atol=1e-5)
    hessian = approx_fprime(ours, lambda at: approx_fprime(at, objective, 3e-5), 3e-5)
    laplace = -objective(ours) + (np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]) / 2
    assert evidence == pytest.approx(laplace, abs=1e-3)


def test_a_part_of_the_prior_is_included_only_with_enough_evidence():
    def found(evidence: Callable[[Prior], float], parts: tuple[str, ...], reach: int) -> Prior:
        rows = SimpleNamespace(fits={}, fit=lambda prior, _start: SimpleNamespace(log_evidence=evidence(prior)))
        return search_prior(Prior(), parts, rows, reach)

    for part, takes in (
        ("intercept", MIN_EVIDENCE_GAIN),
        ("slope", MIN_EVIDENCE_GAIN + (0.5 / SLOPE_DEVIATION_SCALE) ** 2 / 2),
    ):
        for best, expected in ((takes - 0.01, Prior()), (takes + 0.01, Prior(**{part: 0.5}))):
            assert found(lambda prior: best * (getattr(prior, part) == 0.5), (part,), 9) == expected  # noqa: B023
    assert found(lambda prior: 20 * prior.slope, FREE, 1).slope == DEVIATION_LEVELS[4]  # a step a round


def test_lines_are_the_confidence_without_a_label_spread_and_recover_one():
    z, decision, correct = rows_of(2000, np.zeros(4), seed=3)
    flat = PooledLineFitter(z, decision, correct, 4).fit_lines(*FREE)
    np.testing.assert_array_equal((flat.slope, flat.intercept), ([1] * 4, [0] * 4))
    line = PooledLineFitter(*rows_of(4000), 4).fit_lines(*FREE)
    np.testing.assert_allclose(shift_at_half(line), SHIFTS, atol=0.25)


def test_a_label_with_fewer_rows_is_pooled_more_and_without_rows_fully():
    z, decision, correct = rows_of(4000)
    shared, away = None, []
    for few in (0, 5, 50, 1000):
        kept = (decision != 3) | (np.cumsum(decision == 3) <= few)
        line = PooledLineFitter(z[kept], decision[kept], correct[kept], 4).fit_lines(*FREE)
        shifts = shift_at_half(line)
        shared = shifts[3] if shared is None else shared
        away.append(shared - shifts[3])
    assert away == sorted(away)
    assert away[1] < 0.5 * away[3]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), labels=st.integers(1, 5), certain=st.booleans())
def test_any_rows_give_lines_that_never_fall_whatever_their_order(seed, n, labels, certain):
    generator = np.random.default_rng(seed)
    z = np.round(generator.normal(size=n) * 4, 1)
    z[generator.random(n) < 0.2 * certain] = np.inf
    decision, correct = generator.integers(0, labels, n), generator.random(n) < 0.5
    line, order = PooledLineFitter(z, decision, correct, labels).fit_lines(*FREE), generator.permutation(n)
    assert line.violations(labels) == []
    again = PooledLineFitter(z[order], decision[order], correct[order], labels).fit_lines(*FREE)
    np.testing.assert_array_equal((line.slope, line.intercept), (again.slope, again.intercept))
    assert (line.farthest < MAX_LOGIT) == np.isinf(z).any()


def test_a_confidence_of_one_is_moved_to_half_the_distance_of_the_nearest_other():
    z, decision, correct = rows_of(500)
    z[:50] = np.inf
    line = PooledLineFitter(z, decision, correct, 4).fit_lines(*FREE)
    nearest, counted = (1 - expit(value) for value in (np.abs(z[50:]).max(), line.farthest))
    assert counted == pytest.approx(nearest / 2, rel=0.05)


def test_a_label_whose_line_would_fall_gets_its_mean_reliability():
    generator = np.random.default_rng(2)
    decision = generator.integers(0, 2, 4000)
    z = np.where(decision == 1, generator.uniform(2, 5, 4000), generator.normal(size=4000) / 5)
    correct = generator.random(4000) < np.where(decision == 1, 1.2 - z / 6, 0.5)
    for free in (FREE, FREE[:2], FREE[:1]):
        line = PooledLineFitter(z, decision, correct, 2).fit_lines(*free)
        mean = [expit(line(CalibratedDecisions(z, decision)))[decision == label].mean() for label in (0, 1)]
        np.testing.assert_allclose(mean, [correct[decision == label].mean() for label in (0, 1)], atol=0.1)
    assert PooledLineFitter(z, decision, correct, 2).fit_lines(*FREE).slope[1] == 0


def test_an_informative_signal_gets_a_weight_and_an_uninformative_one_none():
    z, decision, _ = rows_of(3000)
    generator = np.random.default_rng(5)
    signals = generator.normal(size=(3000, 2))
    correct = generator.random(3000) < expit(z + SHIFTS[decision] + 1.5 * signals[:, 0])
    fitted = PooledLineFitter(z, decision, correct, 4, signals).fit_lines(*FREE, "signals", "signals_by_label")
    assert isinstance(fitted, WithSignals)
    np.testing.assert_allclose(fitted.weights, [[1.5] * 4, [0] * 4], atol=0.2)
    at = CalibratedDecisions(z, decision, signals=signals)
    raised = replace(at, confidence_logit=z + 0.5)
    assert (fitted(raised) >= fitted(at)).all()


def test_the_weight_of_a_curve_grows_with_the_rows_of_its_label():
    z, decision, correct = rows_of(1500)
    batch = fits.make_batch((z[None], decision, correct), 4, ProjectionParams())
    (shrunk,), (line,) = fit_pooled_curves(batch), fit_pooled_lines(batch)
    counts = np.bincount(decision, minlength=4)
    np.testing.assert_allclose(shrunk.share, counts / (counts + CURVE_WEIGHT_ROWS))
    at = CalibratedDecisions(np.linspace(-9, 9, 40), np.arange(40) % 4)
    share = shrunk.share[at.decision]
    np.testing.assert_allclose(shrunk(at), (1 - share) * line(at) + share * shrunk.curves(at))
    for label in range(4):
        assert (np.diff(shrunk(CalibratedDecisions(np.linspace(-50, 50, 500), np.full(500, label)))) >= 0).all()


@pytest.mark.parametrize(("n_labels", "shift"), [(2, 0.0), (2, 0.3), (3, 0.2), (MAX_LABELS + 1, 1.0)])
def test_a_whole_vector_is_the_ridged_optimum_weighted_by_its_posterior_probability(n_labels, shift):
    hessian = pytest.importorskip("scipy.differentiate", reason="SciPy has it since 1.15").hessian
    logits, labels = fits.simulate_logits_and_labels(200, n_labels, shift=shift * np.arange(n_labels))
    fitted, beta = fit_whole_vector(logits, labels), fit_temperature(logits, labels, seed=0).beta
    start = np.c_[np.eye(n_labels), np.zeros(n_labels)]
    if n_labels > MAX_LABELS:
        np.testing.assert_allclose(np.c_[fitted.weights / beta, fitted.bias], start, rtol=1e-9)
        return
    penalty = np.full(start.shape, n_labels * (n_labels - 1) / 200)
    penalty[:, -1] = penalty[np.arange(n_labels), np.arange(n_labels)] = n_labels / 200
    beside = np.c_[beta * (logits - logits.max(axis=1, keepdims=True)), np.ones(200)]

    def objective(flat: np.ndarray) -> np.ndarray:  # of tables (places, ...), as SciPy asks for Hessians
        table = np.moveaxis(flat.reshape(*start.shape, -1), -1, 0)
        log_loss = -log_softmax(beside @ np.swapaxes(table, 1, 2), axis=2)[:, np.arange(200), labels].mean(axis=1)
        return (log_loss + (penalty * (table - start) ** 2).sum(axis=(1, 2))).reshape(flat.shape[1:])

    theirs = minimize(lambda x: float(objective(x)), start.ravel(), method="BFGS", options={"gtol": 1e-8})
    curvature = np.linalg.slogdet(hessian(objective, theirs.x).ddf)[1] - np.log(2 * penalty).sum()
    likely = expit(200 * (objective(start.ravel()) - theirs.fun) - curvature / 2)
    assert 0.05 < likely < 0.97
    moved = start.ravel() + likely * (theirs.x - start.ravel())
    np.testing.assert_allclose(np.c_[fitted.weights / beta, fitted.bias].ravel(), moved, atol=1e-4)


def test_a_whole_vector_recovers_a_shift_and_is_robust_to_extreme_logits():
    shift = np.array([1.5, 0.0, -1.5])
    logits, labels = fits.simulate_logits_and_labels(3000, 3, shift=shift, overconfidence=1)
    fitted, decision = fit_whole_vector(logits, labels), logits.argmax(axis=1)
    seen, row = CalibratedDecisions(np.zeros(3000), decision, None, logits), np.arange(3000)
    wanted = logit(np.exp(log_softmax(logits + shift, axis=1)[row, decision]))
    assert np.abs(fitted(seen) - wanted).mean() < 0.15
    np.testing.assert_allclose(fitted(replace(seen, logits=logits + row[:, None])), fitted(seen), atol=1e-6)
    far, farther = (np.where(np.eye(3)[2] == 1, -away, logits) for away in (1e3, 1e9))
    np.testing.assert_array_equal(fitted(replace(seen, logits=far)), fitted(replace(seen, logits=farther)))
