"""Partially pooled reliabilities: optima of their objectives, shrinkage and evidence."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, logit

from relmap.decisions import CalibratedDecisions
from relmap.metrics.reliability import log_loss_of_logits
from relmap.projection import pooled as pooling
from relmap.projection.labelwise import MAX_LOGIT, Lines
from relmap.projection.mrp import Curves, fit_optimum
from relmap.projection.pooled import (
    CURVE_WEIGHT_ROWS,
    DEVIATION_LEVELS,
    SLOPE_DEVIATION_SCALE,
    PenalizedProblem,
    PooledFit,
    PooledRows,
    Prior,
    ShrunkCurves,
    SignalAdjusted,
    fit_mrp_pooled,
    fit_pooled_line,
    search_prior,
)
from relmap.settings import ProjectionParams
from tests import fits

LOG_ODDS = 3.0  # of a deviation of 0, by default
SHIFTS = np.array([1.0, 0.0, -1.0, -2.0])


def simulate_rows(n: int, shifts: np.ndarray = SHIFTS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate logit of the confidence, decision and correct of shape (n,), with a shift of each label's logit."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=n) * 1.5
    decision = generator.integers(0, len(shifts), n)
    return z, decision, generator.random(n) < expit(z + shifts[decision])


def make_pooled_rows(n: int, seed: int = 0, n_signals: int = 0) -> PooledRows:
    """Simulate rows sorted by label, with standardized logits and signals as features."""
    z, decision, correct = simulate_rows(n, seed=seed)
    order = np.argsort(decision, kind="stable")
    signals = np.random.default_rng(1).normal(size=(n, n_signals))
    features = np.column_stack([np.ones(n), (z - z.mean()) / z.std(), signals])
    return PooledRows(z[order], features[order], decision[order], correct[order], len(SHIFTS))


def fit_precisely(rows: PooledRows, prior: Prior) -> PooledFit:
    """Fit rows with a last step that predicts a decrease of at most 1e-12 nats."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "TOLERANCE", 1e-12)
        return rows.fit(prior, prior)


def shift_at_half(line, labels: int = 4) -> np.ndarray:
    """Return the value of the line of each label at logit 0."""
    return line(CalibratedDecisions(np.zeros(labels), np.arange(labels)))


@pytest.mark.parametrize("prior", [Prior(1.0, 0.5, 0.25), Prior(0.5, 1.0), Prior(2.0), Prior(slope=1.0)])
def test_coefficients_minimize_the_objective_and_evidence_is_the_laplace_approximation(prior):
    rows = make_pooled_rows(200)
    evidence, shared, own = fit_precisely(rows, prior)
    shared_deviations = prior.shared_deviations(2)
    label_deviations = prior.label_deviations(2)
    free = np.r_[shared_deviations > 0, np.tile(label_deviations > 0, 4)]
    ridge = np.r_[shared_deviations, np.tile(label_deviations, 4)][free] ** -2.0

    def objective(coefficients: np.ndarray) -> float:
        theta = np.zeros(10)
        theta[free] = coefficients
        t = rows.offset + ((theta[:2] + theta[2:].reshape(4, 2)[rows.label]) * rows.features).sum(axis=1)
        return float(np.logaddexp(0, np.where(rows.correct, -t, t)).sum() + (ridge * coefficients**2).sum() / 2)

    fitted = np.r_[shared, own.ravel()][free]
    reference = minimize(objective, np.zeros(free.sum()), method="BFGS", options={"gtol": 1e-9})

    np.testing.assert_allclose(fitted, reference.x, atol=1e-5)

    hessian = approx_fprime(fitted, lambda point: approx_fprime(point, objective, 3e-5), 3e-5)
    laplace = -objective(fitted) + (np.log(ridge).sum() - np.linalg.slogdet(hessian)[1]) / 2
    assert evidence == pytest.approx(laplace, abs=1e-3)


def test_a_part_of_the_prior_is_included_only_with_enough_evidence():
    def search(evidence: Callable[[Prior], float], reach: int) -> Prior:
        rows = SimpleNamespace(
            fits={}, log_odds=LOG_ODDS, fit=lambda prior, _start: SimpleNamespace(log_evidence=evidence(prior))
        )
        return search_prior(Prior(), rows, reach)

    # the half-normal prior of a slope deviation lowers its score by (deviation / scale)^2 / 2
    slope_cost = (0.5 / SLOPE_DEVIATION_SCALE) ** 2 / 2
    for part, min_gain in (("shared", LOG_ODDS), ("intercept", LOG_ODDS), ("slope", LOG_ODDS + slope_cost)):
        for gain, expected in ((min_gain - 0.01, Prior()), (min_gain + 0.01, Prior(**{part: 0.5}))):
            assert search(lambda prior: gain * (getattr(prior, part) == 0.5), 9) == expected  # noqa: B023
    # a search of reach 1 raises a deviation by one level in each of four rounds
    assert search(lambda prior: 40 * prior.slope, 1).slope == DEVIATION_LEVELS[4]


def test_pooled_lines_recover_label_shifts_and_their_absence():
    z, decision, correct = simulate_rows(2000, np.zeros(4), seed=3)
    flat = fit_pooled_line(z, decision, correct, 4).line
    np.testing.assert_allclose((flat.slope, flat.intercept), ([1] * 4, [0] * 4), atol=0.05)
    line = fit_pooled_line(*simulate_rows(4000), 4).line
    np.testing.assert_allclose(shift_at_half(line), SHIFTS, atol=0.25)


def test_labels_with_fewer_rows_are_pooled_more():
    z, decision, correct = simulate_rows(4000)
    shared_shift = None
    distances = []
    for n_rows in (0, 5, 50, 1000):
        selected = (decision != 3) | (np.cumsum(decision == 3) <= n_rows)
        line = fit_pooled_line(z[selected], decision[selected], correct[selected], 4).line
        shifts = shift_at_half(line)
        shared_shift = shifts[3] if shared_shift is None else shared_shift
        distances.append(shared_shift - shifts[3])
    assert distances == sorted(distances)
    assert distances[1] < 0.5 * distances[3]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), labels=st.integers(1, 5), certain=st.booleans())
def test_pooled_lines_never_fall_and_ignore_row_order(seed, n, labels, certain):
    generator = np.random.default_rng(seed)
    z = np.round(generator.normal(size=n) * 4, 1)
    z[generator.random(n) < 0.2 * certain] = np.inf
    decision = generator.integers(0, labels, n)
    correct = generator.random(n) < 0.5
    line = fit_pooled_line(z, decision, correct, labels).line
    order = generator.permutation(n)

    assert line.violations(labels) == []

    shuffled = fit_pooled_line(z[order], decision[order], correct[order], labels).line
    np.testing.assert_array_equal((line.slope, line.intercept), (shuffled.slope, shuffled.intercept))
    assert (line.farthest < MAX_LOGIT) == np.isinf(z).any()


def test_a_confidence_of_one_is_moved_to_half_the_distance_of_the_next_one_from_one():
    z, decision, correct = simulate_rows(500)
    z[:50] = np.inf
    line = fit_pooled_line(z, decision, correct, 4).line
    nearest = 1 - expit(np.abs(z[50:]).max())
    moved = 1 - expit(line.farthest)
    assert moved == pytest.approx(nearest / 2, rel=0.05)


def test_falling_line_is_replaced_by_the_mean_reliability():
    generator = np.random.default_rng(2)
    decision = generator.integers(0, 2, 4000)
    z = np.where(decision == 1, generator.uniform(2, 5, 4000), generator.normal(size=4000) / 5)
    correct = generator.random(4000) < np.where(decision == 1, 1.2 - z / 6, 0.5)
    lines = fit_pooled_line(z, decision, correct, 2).line
    reliability = expit(lines(CalibratedDecisions(z, decision)))
    for label in (0, 1):
        has_label = decision == label
        assert reliability[has_label].mean() == pytest.approx(correct[has_label].mean(), abs=0.1)
    assert lines.slope[1] == 0


def simulate_signals(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Simulate rows whose logit has 1.5 times the first of two signals added, with the same weight for all labels."""
    z, decision, _ = simulate_rows(n)
    generator = np.random.default_rng(5)
    signals = generator.normal(size=(n, 2))
    correct = generator.random(n) < expit(z + SHIFTS[decision] + 1.5 * signals[:, 0])
    return z, decision, correct, signals


def test_signals_have_one_weight_each_which_shrinks_to_zero_with_few_rows():
    z, decision, correct, signals = simulate_signals(3000)
    np.testing.assert_allclose(fit_pooled_line(z, decision, correct, 4, signals).signal_weights, [1.5, 0], atol=0.2)
    n = 40
    few = fit_pooled_line(z[:n], decision[:n], correct[:n], 4, signals[:n]).signal_weights
    assert 0 < few[0] < 1.5
    without_effect = fit_pooled_line(*simulate_rows(3000), 4, signals).signal_weights
    np.testing.assert_allclose(without_effect, [0, 0], atol=0.1)


def test_a_pooled_model_with_signals_adds_them_to_its_curves():
    z, decision, correct, signals = simulate_signals(900)
    batch = fits.make_batch((z[None], decision, correct), 4, ProjectionParams())
    decisions = CalibratedDecisions(z, decision, signals=signals)
    with_signals = replace(batch, fit_rows=batch.fit_rows._replace(by_calibrator=[decisions]))
    (fitted,) = fit_mrp_pooled(with_signals)
    assert isinstance(fitted, SignalAdjusted)
    unbounded = fitted.base.unbounded_logit(decisions) + signals @ fitted.weights
    np.testing.assert_allclose(expit(-fitted(decisions)), 1 - 1 / (1 + np.exp(-unbounded) + 1 / (10 * 900 - 1)))
    raised = replace(decisions, confidence_logit=z + 0.5)
    assert (fitted(raised) >= fitted(decisions)).all()
    mean = expit(fitted(decisions)).mean()
    assert mean == pytest.approx(correct.mean(), abs=0.02)
    (without,) = fit_mrp_pooled(batch)
    assert isinstance(without, ShrunkCurves)


def test_the_curves_that_are_averaged_with_lines_are_those_of_the_optimum():
    z, decision, correct = simulate_rows(300)
    batch = fits.make_batch((z[None], decision, correct), 4, ProjectionParams())
    (shrunk,) = fit_mrp_pooled(batch)
    (optimum,) = fit_optimum(batch)
    assert np.ptp(optimum.values) > 1
    np.testing.assert_array_equal(shrunk.curves.values, optimum.values)


def test_a_curve_counts_where_its_rows_fit_it_better_than_its_knots_explain():
    z, decision, correct = simulate_rows(1500)
    batch = fits.make_batch((z[None], decision, correct), 4, ProjectionParams())
    (shrunk,) = fit_mrp_pooled(batch)
    counts = np.bincount(decision, minlength=4)

    rows = CalibratedDecisions(z, decision)
    gain = log_loss_of_logits(shrunk.line(rows), correct) - log_loss_of_logits(shrunk.curves(rows), correct)
    akaike_weight = expit(np.bincount(decision, gain) - 6)  # eight knots, and the two parameters of a line
    np.testing.assert_allclose(shrunk.share, akaike_weight * counts**2 / (counts**2 + CURVE_WEIGHT_ROWS**2))

    decisions = CalibratedDecisions(np.linspace(-9, 9, 40), np.arange(40) % 4)
    share = shrunk.share[decisions.decision]
    line = fit_pooled_line(z, decision, correct, 4).line
    mean = (1 - share) * line(decisions) + share * shrunk.curves(decisions)
    np.testing.assert_allclose(shrunk.unbounded_logit(decisions), mean)
    for label in range(4):
        assert (np.diff(shrunk(CalibratedDecisions(np.linspace(-50, 50, 500), np.full(500, label)))) >= 0).all()


@pytest.mark.parametrize("n_rows", [20, 600])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_reliabilities_of_correct_rows_differ_and_stay_below_the_bound(n_rows, n_labels):
    generator = np.random.default_rng(n_rows)
    z = generator.normal(size=n_rows) + 3
    decision = generator.integers(0, n_labels, n_rows)
    batch = fits.make_batch((z[None], decision, np.ones(n_rows, dtype=bool)), n_labels, ProjectionParams())
    (fitted,) = fit_mrp_pooled(batch)
    for label in range(n_labels):
        logits = np.linspace(-4, 8, 600)
        scores = fitted(CalibratedDecisions(logits, np.full(600, label)))
        assert (np.diff(scores) > 0).all()
        assert len(np.unique(expit(scores))) == 600
        assert expit(scores[-1]) < 1 - 1 / (10 * n_rows)


@given(
    logits=st.lists(st.floats(-30, 30), min_size=1, max_size=20),
    largest=st.floats(0.1, 20),
)
@settings(deadline=None, derandomize=True)
def test_the_bound_keeps_the_order_and_hardly_changes_what_is_far_below(logits, largest):
    logits = np.unique(logits)
    lines = Lines(np.ones(1), np.zeros(1), farthest=40.0)
    curves = Curves(np.array([0.0, 1.0]), np.zeros((1, 2)), np.array([9]), ("none",))
    decisions = CalibratedDecisions(logits, np.zeros(len(logits), dtype=np.int64))
    unbounded = ShrunkCurves(lines, curves, np.zeros(1))(decisions)
    bounded = ShrunkCurves(lines, curves, np.zeros(1), largest)(decisions)
    np.testing.assert_array_equal(unbounded, logits)
    assert (np.diff(bounded) >= 0).all()
    is_distinct = (np.diff(logits) > 1e-3) & (logits[1:] < largest + 15)
    assert (np.diff(bounded)[is_distinct] > 0).all()
    assert (bounded <= np.minimum(logits, largest)).all()
    np.testing.assert_allclose(np.exp(-bounded), np.exp(-logits) + np.exp(-largest), rtol=1e-12)
    is_far_below = logits < largest - 7
    assert (logits - bounded)[is_far_below].max(initial=0) < 0.001


@pytest.mark.parametrize(
    "correct",
    [
        np.ones(300, dtype=bool),
        np.zeros(300, dtype=bool),
        np.arange(300) < 3,
        np.arange(300) >= 3,
    ],
    ids=["all", "none", "three", "all but three"],
)
@pytest.mark.parametrize("has_one_confidence", [False, True])
def test_the_mean_reliability_is_near_the_share_of_correct_rows(correct, has_one_confidence):
    z, decision, _ = simulate_rows(300)
    decision = np.minimum(decision, 2)  # the last of four labels has no row
    z = np.zeros(300) if has_one_confidence else z
    (fitted,) = fit_mrp_pooled(fits.make_batch((z[None], decision, correct), 4, ProjectionParams()))
    reliability = expit(fitted(CalibratedDecisions(z, decision)))
    assert fitted.violations(4) == []
    assert reliability.mean() == pytest.approx(correct.mean(), abs=0.02)


def test_lines_in_logits_equal_the_coefficients_of_standardized_features(monkeypatch):
    prior = Prior(0.7, 0.4, 0.3)
    recorded = []

    def fit_one_prior(_prior: Prior, rows: PooledRows, reach: int) -> Prior:
        rows.fits = {prior: fit_precisely(rows, prior)}
        recorded.append(rows)
        return prior

    monkeypatch.setattr(pooling, "search_prior", fit_one_prior)
    confidence_logit, decision, correct = simulate_rows(400, seed=5)
    signals = np.random.default_rng(1).normal(size=(400, 1))
    pooled = fit_pooled_line(5 + 3 * confidence_logit, decision, correct, 4, signals)
    rows = recorded[-1]
    fit = rows.fits[prior]
    expected = rows.offset + (rows.features * (fit.shared + fit.by_label[rows.label])).sum(axis=1)
    found = pooled.line(CalibratedDecisions(rows.offset, rows.label)) + rows.features[:, 2] * pooled.signal_weights
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("prior", [Prior(1.0, 0.5, 0.25), Prior(0.5, 1.0), Prior(slope=0.5)])
def test_gradient_and_hessian_agree_with_differences_of_the_objective(prior):
    problem = PenalizedProblem(make_pooled_rows(60, seed=2, n_signals=2), prior)
    point = np.random.default_rng(3).normal(size=problem.starting_point(None).shape)
    n_shared = len(problem.evaluate(point).shared)

    def gradient(coefficients: np.ndarray) -> np.ndarray:
        system = problem.evaluate(coefficients).system
        return np.r_[system.shared_gradient, system.label_gradient.ravel()]

    step = 1e-5 * np.eye(len(point))
    slopes = [(problem.evaluate(point + h).value - problem.evaluate(point - h).value) / 2e-5 for h in step]
    assert gradient(point) == pytest.approx(slopes, abs=1e-5)

    system = problem.evaluate(point).system
    curvatures = np.array([(gradient(point + h) - gradient(point - h)) / 2e-5 for h in step])
    np.testing.assert_allclose(system.shared_hessian, curvatures[:n_shared, :n_shared], atol=1e-5)
    np.testing.assert_allclose(
        np.concatenate([*system.cross_hessian], axis=1), curvatures[:n_shared, n_shared:], atol=1e-5
    )
    n_by_label = system.label_gradient.shape[1]
    for label, block in enumerate(system.label_hessian):
        own_coefficients = slice(n_shared + label * n_by_label, n_shared + (label + 1) * n_by_label)
        np.testing.assert_allclose(block, curvatures[own_coefficients, own_coefficients], atol=1e-5)


@pytest.mark.parametrize("n_rows", [20, 200, 4000])
@pytest.mark.parametrize("prior", [Prior(1.0, 0.5, 0.25), Prior(4.0, 4.0, 4.0), Prior(slope=0.1)])
def test_a_fit_is_within_a_thousandth_of_a_nat_of_its_optimum(prior, n_rows):
    rows = make_pooled_rows(n_rows, seed=4)
    problem = PenalizedProblem(rows, prior)
    found = problem.evaluate(problem.starting_point(rows.fit(prior, Prior())))
    assert found.newton_step().predicted_decrease < 1e-3


def test_the_fit_under_another_prior_is_the_starting_point_of_the_free_coefficients():
    rows = make_pooled_rows(60, seed=2)
    fit = rows.fit(Prior(1.0, 0.5, 0.25), Prior())
    problem = PenalizedProblem(rows, Prior(0.5, slope=1.0))
    point = problem.evaluate(problem.starting_point(fit))
    np.testing.assert_array_equal(point.shared, fit.shared)
    np.testing.assert_array_equal(point.by_label, fit.by_label[:, 1:])


def test_mean_logits_are_logits_of_the_mean_reliability_of_each_label():
    rows = pooling.PooledRows(
        offset=np.array([0.5, -1.0, 2.0, 3.0]),
        features=np.column_stack([np.ones(4), np.array([1.0, 2.0, -1.0, 0.5])]),
        label=np.array([0, 1, 1, 3]),
        correct=np.array([True, False, True, True]),
        n_labels=4,
    )
    line = np.array([[0.1, 0.2], [0.3, -0.4], [9.0, 9.0], [0.0, 1.0]])
    reliability = expit([0.5 + 0.1 + 0.2, -1 + 0.3 - 0.8, 2 + 0.3 + 0.4, 3.5])
    expected = [reliability[0], reliability[1:3].mean(), reliability.mean(), reliability[3]]
    np.testing.assert_allclose(rows.mean_logits(line), logit(expected))
