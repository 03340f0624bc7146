"""Parts of the projections: searches, limits of logits, fallbacks, batches and the registry."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.decisions import CalibratedDecisions, LabelledDecisions, ProtocolDecisions
from relmap.projection import pooled as pooling
from relmap.projection import registry as variants
from relmap.projection.labelwise import Lines
from relmap.projection.mrp import Curves, build_curves_with_fallbacks, choose_fallbacks
from relmap.projection.mrp_exact import Bounds, NewtonState, _decreases_enough, _newton_direction
from relmap.projection.pooled import (
    MAX_SEARCH_ROUNDS,
    SIGNAL_DEVIATION,
    NewtonStep,
    PenalizedProblem,
    PooledRows,
    Prior,
    ShrunkCurves,
    SignalAdjusted,
    fit_pooled_line,
    search_prior,
)
from relmap.projection.registry import VARIANTS, variants_with_role
from relmap.projection.rows import FitBatch, ValidationRows, fit_batch_lattices, fit_mrp_batches
from relmap.projection.surface import fit_surfaces
from relmap.settings import ProjectionParams
from tests.fits import make_batch, simulate_logits_and_labels


def test_standard_deviations_are_listed_by_feature():
    prior = Prior(shared=0.1, intercept=0.2, slope=0.3)
    assert prior.shared_deviations(5).tolist() == [0.1, 0.1, *[SIGNAL_DEVIATION] * 3]
    assert prior.label_deviations(5).tolist() == [0.2, 0.3, 0.0, 0.0, 0.0]
    assert prior.shared_deviations(2).tolist() == [0.1, 0.1]
    assert prior.label_deviations(2).tolist() == [0.2, 0.3]


def pooled_rows(*arguments: object) -> PooledRows:
    """Return the rows that `fit_pooled_line` fits."""
    recorded = []

    def record(rows: PooledRows) -> np.ndarray:
        recorded.append(rows)
        return np.zeros((rows.n_labels, rows.features.shape[1]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "search_prior", lambda *_, **__: None)
        patch.setattr(pooling, "_average_over_priors", record)
        fit_pooled_line(*arguments)
    return recorded[0]


@pytest.mark.parametrize(
    ("logits", "limit"),
    [
        ([3.0, -50.0], 40.0),
        ([np.inf, 3.0, -5.0], 5 + np.log(2)),
        ([-np.inf, 3.0, 2.5], 3 + np.log(2)),
        ([np.inf, 1.5, -1.0], 2 + np.log(2)),
        ([np.inf, -np.inf], 2 + np.log(2)),
        ([np.inf, 39.0], 39 + np.log(2)),
        ([np.inf, 39.5], 40.0),
    ],
)
def test_infinite_logits_are_replaced_by_log_2_more_than_the_largest_finite_one(logits, limit):
    rows = pooled_rows(np.array(logits), np.zeros(len(logits), dtype=np.int64), np.arange(len(logits)) % 2 == 0, 1)
    np.testing.assert_allclose(np.sort(rows.offset), np.sort(np.clip(logits, -limit, limit)))


def test_features_of_pooled_lines_are_standardized_and_sorted_with_their_rows():
    generator = np.random.default_rng(2)
    logits = np.round(generator.normal(2, 3, 60))
    decision = generator.integers(0, 3, 60)
    correct = generator.random(60) < 0.5
    signals = generator.normal(size=(60, 2))
    rows = pooled_rows(logits, decision, correct, 4, signals)
    standardized = (logits - logits.mean()) / logits.std()
    expected = sorted(zip(decision, logits, correct, signals[:, 1], signals[:, 0], standardized, strict=True))
    columns = [rows.label, rows.offset, rows.correct, rows.features[:, 3], rows.features[:, 2], rows.features[:, 1]]
    np.testing.assert_allclose(np.array(columns).T, np.array(expected, dtype=float))
    assert (rows.features[:, 0] == 1).all()
    assert rows.n_labels == 4


@pytest.mark.parametrize(("spread", "scale"), [(0.0, 0.01), (0.004, 0.01), (0.02, 0.02)])
def test_a_small_spread_of_the_logits_is_not_stretched(spread, scale):
    logits = 1.5 + spread * np.tile([-1.0, 1.0], 10)
    rows = pooled_rows(logits, np.zeros(20, dtype=np.int64), np.arange(20) % 3 > 0, 1)
    np.testing.assert_allclose(rows.features[:, 1], (rows.offset - 1.5) / scale, atol=1e-9)


@pytest.mark.parametrize(
    ("n_rows", "max_rows", "selected"),
    [(10, 4, [0, 3, 6, 9]), (10, 10, range(10)), (10, 11, range(10)), (11, 3, [0, 5, 10]), (1, 1000, [0])],
)
def test_the_first_search_uses_evenly_spaced_rows(n_rows, max_rows, selected):
    numbers = np.arange(float(n_rows))
    rows = PooledRows(numbers, numbers[:, None] + 100, numbers.astype(int), numbers > 2, n_labels=77)
    found = pooling._evenly_spaced_rows(rows, max_rows)
    assert found.offset.tolist() == [*selected]
    assert found.features[:, 0].tolist() == [100 + number for number in selected]
    assert found.label.tolist() == [*selected]
    assert found.correct.tolist() == [number > 2 for number in selected]
    assert found.n_labels == 77


def make_problem() -> PenalizedProblem:
    """Make the problem of one shared shift and slope of six rows."""
    offset = np.array([0.5, -1.0, 2.0, 0.0, 1.0, -2.0])
    features = np.column_stack([np.ones(6), np.linspace(-1, 1, 6)])
    correct = np.array([True, False, True, False, True, True])
    return PenalizedProblem(PooledRows(offset, features, np.zeros(6, dtype=int), correct, 1), Prior(shared=1.0))


@pytest.mark.parametrize("factor", [0.5, 2.0, 16.0, -1.0])
def test_a_line_search_accepts_the_first_halved_step_that_decreases_the_objective_enough(factor):
    problem = make_problem()
    start = problem.initial_point(None)
    newton_step = problem.newton_system(start).solve()
    step = NewtonStep(factor * newton_step.shared, newton_step.by_label, 0.6 * newton_step.predicted_decrease)
    accepted = problem.line_search(start, step)
    expected = None
    for halvings in range(20):
        size = 0.5**halvings
        objective = problem.evaluate(size * step.shared, start.by_label).objective
        if objective <= start.objective - 1e-4 * size * step.predicted_decrease:
            expected = size * step.shared
            break
    assert (accepted is None) == (expected is None) == (factor == -1)
    if accepted is not None:
        np.testing.assert_allclose(accepted.shared, expected)


def test_a_line_search_tries_step_sizes_above_a_millionth():
    problem = make_problem()
    start = problem.initial_point(None)
    step = NewtonStep(np.zeros(2), start.by_label, predicted_decrease=1.0)
    problem.evaluate = Mock(side_effect=problem.evaluate)
    assert problem.line_search(start, step) is None
    assert problem.evaluate.call_count == 20  # 2^-19 is above a millionth, and 2^-20 is below


def test_a_decrease_just_below_the_required_one_is_not_accepted():
    problem = make_problem()
    start = problem.initial_point(None)
    shared = problem.newton_system(start).solve().shared
    decrease = start.objective - problem.evaluate(shared, start.by_label).objective
    for share, is_accepted in ((1.001, False), (0.999, True)):
        step = NewtonStep(shared, start.by_label, predicted_decrease=share * decrease / 1e-4)
        accepted = problem.line_search(start, step)
        is_full = accepted is not None and np.array_equal(accepted.shared, shared)
        assert is_full == is_accepted


class RecordedFits:
    """Rows whose log evidence rises with each level, and the priors that were fitted."""

    log_odds = 3.0

    def __init__(self) -> None:
        self.fits: dict[Prior, SimpleNamespace] = {}
        self.starts: list[tuple[Prior, Prior]] = []

    def fit(self, prior: Prior, start: Prior) -> SimpleNamespace:
        self.starts.append((prior, start))
        return SimpleNamespace(log_evidence=100 * (prior.shared + prior.intercept))


@pytest.mark.parametrize(("reach", "expected"), [(1, 1.0), (2, 4.0), (6, 4.0)])
def test_a_search_moves_each_part_by_its_reach_in_at_most_four_rounds(reach, expected):
    rows = RecordedFits()
    found = search_prior(Prior(), rows, reach)
    assert MAX_SEARCH_ROUNDS == 4
    assert found == Prior(shared=expected, intercept=expected)
    assert len(rows.starts) == len(rows.fits)
    assert set(rows.fits) == {prior for prior, _ in rows.starts}
    for prior, start in rows.starts:
        assert sum(getattr(prior, part) != getattr(start, part) for part in vars(prior)) <= 1


def test_signals_are_added_with_the_weights_that_labels_share():
    lines = Lines(np.array([1.0, 2.0]), np.array([0.5, -0.5]), farthest=3.0)
    curves = Curves(np.array([0.0, 1.0]), np.zeros((2, 2)), np.array([9, 9]), ("none", "none"))
    model = SignalAdjusted(ShrunkCurves(lines, curves, np.zeros(2)), np.array([1.0, 3.0]))
    decisions = CalibratedDecisions(
        np.array([2.0, 9.0, -1.0]), np.array([0, 1, 1]), signals=np.array([[1.0, 2.0], [0.5, 1.5], [0.0, 4.0]])
    )
    # the line of label 1 is evaluated at 3, the farthest logit, in place of 9
    np.testing.assert_allclose(model(decisions), [2.5 + 1 + 6, 5.5 + 0.5 + 4.5, -2.5 + 12])


@pytest.mark.parametrize(
    ("minimum_rows", "expected"),
    [
        (0, ("none", "none", "none", "none")),
        (1, ("identity", "none", "none", "none")),
        (20, ("identity", "shared", "shared", "none")),
        (21, ("identity", "shared", "shared", "shared")),
    ],
)
def test_labels_with_too_few_rows_use_another_model(minimum_rows, expected):
    assert choose_fallbacks(np.array([0, 1, 19, 20]), minimum_rows) == expected


def test_curves_of_labels_with_too_few_rows_are_replaced():
    knots = np.array([0.0, 0.25, 1.0])
    values = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    rows = np.array([20, 0, 19])
    curves = build_curves_with_fallbacks(knots, values, rows, np.array([-3.0, -2.0, -1.0]), 20)
    assert curves.fallback == ("none", "identity", "shared")
    assert curves.rows.tolist() == [20, 0, 19]
    np.testing.assert_allclose(curves.values, [[1, 2, 3], logit([1e-6, 0.25, 1 - 1e-6]), [-3, -2, -1]])
    scored = curves(CalibratedDecisions(np.array([0.75] * 3), np.array([0, 1, 2])))
    weight = (expit(0.75) - 0.25) / 0.75
    np.testing.assert_allclose(scored, [2 + weight, 0.75, -2 + weight])


def simulate_batch_rows(n_fits: int = 2, n_rows: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(4)
    confidence_logit = np.round(generator.normal(size=(n_fits, n_rows)), 1)
    return confidence_logit, generator.integers(0, 3, n_rows), generator.random(n_rows) < 0.6


def test_rows_of_a_label_are_sorted_by_confidence_then_by_correctness():
    confidence_logit, decision, correct = simulate_batch_rows()
    batch = make_batch((confidence_logit, decision, correct.astype(int)), 4)
    for fit, labels in enumerate(batch.rows_by_label):
        assert len(labels) == 4
        for label, rows in enumerate(labels):
            is_label = decision == label
            expected = sorted(zip(confidence_logit[fit, is_label], correct[is_label], strict=True))
            assert [*zip(rows.confidence_logit, rows.correct, strict=True)] == expected
            assert (rows.confidence_logit.dtype, rows.correct.dtype) == (np.float64, np.bool_)
    assert batch.rows_per_label.tolist() == np.bincount(decision, minlength=4).tolist()
    assert batch.n_fits == 2


def test_rows_of_a_lattice_have_their_label_or_share_one():
    confidence_logit, decision, correct = simulate_batch_rows()
    batch = make_batch((confidence_logit, decision, correct), 3)
    for is_shared, expected in ((False, decision), (True, np.zeros(40))):
        for fit, rows in enumerate(batch.lattice_rows(shared=is_shared)):
            np.testing.assert_allclose(rows.confidence, expit(confidence_logit[fit]))
            np.testing.assert_array_equal(rows.decision, expected)
            np.testing.assert_array_equal(rows.correct, correct)


@pytest.mark.parametrize(("minimum_rows", "uses_shared"), [(0, False), (100, True)])
def test_the_shared_curve_is_fitted_only_if_a_label_uses_it(minimum_rows, uses_shared):
    settings = ProjectionParams(minimum_rows=minimum_rows, knots=5)
    batch = make_batch(simulate_batch_rows(), 3, settings)
    shared = np.arange(10.0).reshape(2, 5)
    vars(batch)["shared_values"] = shared
    np.testing.assert_array_equal(batch.fallback_values, shared if uses_shared else np.zeros((2, 5)))


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
    np.testing.assert_array_equal(batch.fit_rows.label, labels[10:25])
    np.testing.assert_array_equal(batch.selection_rows.by_calibrator[0].logits, logits[25:])
    without_selection = parts._replace(projection_selection=rows.take(slice(0)))
    batch = FitBatch.from_validation_rows([calibrate], without_selection, settings, "cpu")
    assert batch.selection_rows is None


REGISTRY = {  # key -> title, role, color, whether a map can contain it
    "confidence": ("confidence", "paper", "confidence", True),
    "shared_1d": ("shared 1D", "paper", "", True),
    "label_intercept": ("label intercept", "paper", "", True),
    "label_isotonic": ("label isotonic", "paper", "isotonic", True),
    "label_platt": ("label Platt", "rival", "platt", True),
    "mrp": ("MRP", "paper", "mrp", True),
    "label_2d": ("label-wise 2D", "paper", "", False),
    "mrp_exact": ("MRP, optimum", "sensitivity", "", True),
    "mrp_pooled": ("MRP, pooled", "rival", "", True),
}


def test_the_registry_lists_where_each_variant_is_used():
    found = {}
    for key, variant in VARIANTS.items():
        found[key] = (variant.title, variant.role, variant.color, bool(variant.description))
    assert found == REGISTRY
    assert variants_with_role("rival") == ("label_platt", "mrp_pooled")
    assert variants_with_role("sensitivity", "rival") == ("label_platt", "mrp_exact", "mrp_pooled")
    assert set(variants.DEPLOYABLE_VARIANTS) == VARIANTS.keys() - {"label_2d"}


@pytest.mark.parametrize(("n_surfaces", "n_fitted"), [(None, 3), (0, 0), (2, 2)])
def test_surfaces_are_fitted_for_the_first_calibrators(n_surfaces, n_fitted, monkeypatch):
    monkeypatch.setattr(variants, "fit_surfaces", lambda *rows, **settings: (rows, settings))
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(8, 3))
    decision = logits.argmax(axis=1)
    by_calibrator = []
    for scale in (1.0, 0.5, 2.0):
        log_probabilities = scale * logits - np.log(np.exp(scale * logits).sum(axis=1, keepdims=True))
        confidence = log_probabilities[np.arange(8), decision]
        by_calibrator.append(CalibratedDecisions(logit(np.exp(confidence)), decision, log_probabilities, logits))
    correct = np.arange(8) % 2 == 0
    settings = ProjectionParams(knots=4)
    batch = FitBatch(LabelledDecisions(by_calibrator, correct), 3, settings, n_surfaces=n_surfaces)
    fits = variants._fit_surface(batch)
    assert len(fits) == n_fitted
    for (rows, given), decisions in zip(fits, by_calibrator, strict=False):
        for found, expected in zip(rows, (decisions.confidence, decisions.gap, decision, correct), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert given == {"n_labels": 3, "settings": settings}


@pytest.mark.parametrize(
    ("gap", "ends"),
    [
        ([], (0.0, 1.0)),
        ([2.0] * 5, (2.0, 3.0)),
        ([*[2.0] * 300, 5.0], (2.0, 5.0)),  # the quantiles coincide, but not all values do
        (np.linspace(-3, 7, 101), (-2.9, 6.9)),
    ],
)
def test_gap_knots_are_placed_between_the_outer_percentiles(gap, ends):
    gap = np.array(gap, dtype=float)
    n_rows = len(gap)
    confidence = np.full(n_rows, 0.5)
    decision = np.zeros(n_rows, dtype=np.int64)
    settings = ProjectionParams(epochs=1, knots=3)
    fitted = fit_surfaces(confidence, gap, decision, decision == 0, n_labels=2, settings=settings)
    np.testing.assert_allclose(fitted.gap_knots, np.linspace(*ends, 6), rtol=1e-12)
    assert fitted.values.shape == (2, 3, 6)


BOUNDS = Bounds(lower=np.array([-np.inf, 1.0, 1.0]), upper=np.array([np.inf, 5.0, 5.0]))


def test_variables_are_projected_on_their_bounds():
    theta = np.array([[-9.0, 0.5, 7.0], [9.0, 3.0, 1.0]])
    np.testing.assert_array_equal(BOUNDS.project(theta), [[-9, 1, 5], [9, 3, 1]])
    gradient = np.array([[0.25, 3.0, -0.5], [-0.125, 0.0, -9.0]])
    inside = BOUNDS.project(theta)
    np.testing.assert_allclose(BOUNDS.kkt_residual(inside, gradient), [0.25, 4.0])


@pytest.mark.parametrize(
    ("theta", "gradient", "kkt_residual", "free"),
    [
        ((0.0, 3.0, 3.0), (1.0, 2.0, -1.0), 0.5, (True, True, True)),
        ((0.0, 1.0, 3.0), (1.0, 2.0, -1.0), 0.5, (True, False, True)),
        ((0.0, 1.0, 3.0), (1.0, -2.0, -1.0), 0.5, (True, True, True)),
        ((0.0, 3.0, 5.0), (1.0, 2.0, -1.0), 0.5, (True, True, False)),
        ((0.0, 3.0, 5.0), (1.0, 2.0, 1.0), 0.5, (True, True, True)),
        ((0.0, 1.0009, 4.9992), (1.0, 2.0, -1.0), 0.5, (True, False, False)),
        ((0.0, 1.0011, 4.9988), (1.0, 2.0, -1.0), 0.5, (True, True, True)),
        ((0.0, 1.0004, 4.9997), (1.0, 2.0, -1.0), 0.00025, (True, True, True)),
        ((0.0, 1.0002, 4.9999), (1.0, 2.0, -1.0), 0.00025, (True, False, False)),
    ],
)
def test_variables_at_a_bound_take_a_scaled_gradient_step(theta, gradient, kkt_residual, free):
    """At a bound: the gradient pushes the variable there, and it is within 0.001 and within the KKT residual."""
    hessian = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
    direction = _newton_direction(
        np.array([theta]), np.array([gradient]), hessian[None], np.array([kkt_residual]), BOUNDS
    )[0]
    is_free = np.array(free)
    expected = -np.array(gradient) / np.diagonal(hessian)
    expected[is_free] = -np.linalg.solve(hessian[np.ix_(is_free, is_free)], np.array(gradient)[is_free])
    np.testing.assert_allclose(direction, expected, rtol=1e-10)


def test_an_objective_must_decrease_by_a_share_of_the_prediction_up_to_rounding():
    state = NewtonState(
        theta=np.array([[1.0, 2.0], [9.0, 9.0], [3.0, 1.0]]),
        objective=np.array([0.5, 9.0, 0.5]),
        gradient=np.array([[2.0, 4.0], [9.0, 9.0], [1.0, 0.0]]),
        direction=np.zeros((3, 2)),
        step_size=np.ones(3),
        kkt_residual=np.ones(3),
    )
    problems = np.array([0, 2])
    trial = np.array([[0.5, 1.5], [4.0, 1.0]])  # predicted decreases of 3 and -1
    limits = np.array([0.5 - 3e-4, 0.5])
    assert _decreases_enough(state, problems, trial, limits + 2e-15).tolist() == [True, True]
    assert _decreases_enough(state, problems, trial, limits + 6e-15).tolist() == [False, False]
