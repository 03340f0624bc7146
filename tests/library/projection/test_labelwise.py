"""The simple label-wise variants satisfy their optimality conditions and agree with independent fits; fallbacks."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from relmap.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection import labelwise
from relmap.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks, fit_intercepts, fit_isotonic
from relmap.projection.mrp import Curves, SharedCurve
from relmap.projection.rows import FitBatch
from relmap.settings import ProjectionParams
from tests.fits import SimulatedRows, make_batch, make_decisions
from tests.texts import assert_matches

N_LABELS = 3
FITS = {"intercepts": fit_intercepts, "isotonic": fit_isotonic, "platt": labelwise.fit_platt}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
SIZES = {
    "n_rows": st.integers(0, 9) | st.integers(0, 200),
    "spread": st.floats(0, 40),
    "seed": st.integers(0, 2**32 - 1),
}


def simulate_line_rows(
    n_fits: int, n_rows: int, seed: int = 0, slope: float = 0.7, shift: float = 0.5, spread: float = 1.5
) -> SimulatedRows:
    """Simulate confidence logits, shape (n_fits, n_rows), decisions and correctness, shape (n_rows,).

    Correctness is logistic in the logit of the first fit. The lines of labels 0, 1 and 2 have the same slope and the
    intercepts `shift`, 0 and -`shift`.
    """
    generator = np.random.default_rng(seed)
    confidence_logit = generator.normal(0.5, 1, n_rows) * spread
    decision = generator.integers(0, N_LABELS, n_rows)
    correct = generator.random(n_rows) < expit(slope * confidence_logit + shift * (1 - decision))
    scale = generator.uniform(1, 2, (n_fits, 1))
    scale[0] = 1
    return confidence_logit * scale, decision, correct


@given(**SIZES)
@settings(deadline=None, max_examples=50, derandomize=True)
def test_reliabilities_of_a_label_sum_to_its_correct_rows(n_rows, spread, seed):
    rows = simulate_line_rows(2, n_rows, seed, spread=spread)
    confidence_logit, decision, correct = rows
    for intercepts, logits in zip(fit_intercepts(make_batch(rows, N_LABELS)), confidence_logit, strict=True):
        for label, alpha in enumerate(intercepts.alpha):
            is_label = decision == label
            excess = expit(logits[is_label] + alpha).sum() - correct[is_label].sum()
            if abs(alpha) < 12:
                assert abs(excess) < 1e-10
            else:  # at a bound: the solution, if any, is beyond it
                assert excess * alpha <= 1e-10
        assert intercepts.violations() == []


def test_a_label_is_not_shifted_by_rows_that_are_certain_and_rightly_so():
    """Their loss is 0 with every shift, so that they say as little as no rows; label 2 has none."""
    confidence_logit = np.array([[np.inf, np.inf, -np.inf, np.inf, 0.0, 0.0, 0.0]])
    decision = np.array([0, 0, 0, 1, 1, 1, 1])
    correct = np.array([True, True, False, True, True, True, False])
    (intercepts,) = fit_intercepts(make_batch((confidence_logit, decision, correct), N_LABELS))
    np.testing.assert_allclose(intercepts.alpha, [0, np.log(2), 0], rtol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_penalty_minimizes_the_log_loss_of_selection_rows(seed):
    fit_rows = simulate_line_rows(1, 120, seed=10 * seed, shift=0.3)
    selection_rows = simulate_line_rows(1, 120, seed=10 * seed + 1, shift=0.3)
    (fitted,) = fit_intercepts(make_batch(fit_rows, N_LABELS, selection_rows=selection_rows))

    def objective(alpha: np.ndarray, penalty: float, rows: SimulatedRows) -> float:
        (logits,), decision, correct = rows
        score = logits + alpha[decision]
        return float((np.logaddexp(0, score) - correct * score).mean() + penalty * (alpha**2).mean())

    alphas = [
        minimize(objective, np.zeros(N_LABELS), (penalty, fit_rows), tol=1e-12).x for penalty in labelwise.PENALTIES
    ]
    losses = [objective(alpha, 0, selection_rows) for alpha in alphas]
    np.testing.assert_allclose(fitted.alpha, alphas[int(np.argmin(losses))], atol=1e-5)
    assert list(labelwise.PENALTIES) == sorted(labelwise.PENALTIES, reverse=True)  # the first of equal losses is chosen
    # these rows have a loss of 0 with every penalty
    certain_rows = np.full((1, 4), 40.0), np.zeros(4, dtype=int), np.ones(4, dtype=bool)
    (fitted,) = fit_intercepts(make_batch(fit_rows, N_LABELS, selection_rows=certain_rows))
    assert fitted.alpha == pytest.approx(alphas[0], abs=1e-5)


@given(**SIZES)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_isotonic_regression_equals_scikit_learn(n_rows, spread, seed):
    confidence_logit, decision, correct = simulate_line_rows(2, n_rows, seed, spread=spread)
    confidence_logit = np.round(confidence_logit, 1)  # equal confidences
    grid = np.concatenate([np.linspace(-45, 45, 301), confidence_logit[0]])
    for fitted, logits in zip(
        fit_isotonic(make_batch((confidence_logit, decision, correct), N_LABELS)), confidence_logit, strict=True
    ):
        assert fitted.violations() == []
        for label in np.unique(decision):
            is_label = decision == label
            gaps = np.diff(np.unique(expit(logits[is_label])))
            if len(gaps) and gaps.min() < 1e-12:
                continue  # scikit-learn treats these as ties
            reference = IsotonicRegression(y_min=1e-6, y_max=1 - 1e-6, out_of_bounds="clip")
            expected = reference.fit(expit(logits[is_label]), correct[is_label]).predict(expit(grid))
            np.testing.assert_allclose(expit(fitted(make_decisions(grid, label))), expected, rtol=0, atol=1e-12)


def assert_line_is_optimal(fitted: Lines, label: int, logits: np.ndarray, correct: np.ndarray) -> None:
    """Check that the gradient of the convex penalized loss vanishes, or increases the loss at slope 0."""
    line = np.array([fitted.slope[label], fitted.intercept[label]])
    clipped = np.clip(logits, -40, 40)
    residual = expit(line[0] * clipped + line[1]) - correct
    gradient = np.array([(residual * clipped).mean(), residual.mean()]) + 2e-6 * (line - [1, 0])
    assert abs(gradient[1]) <= 1e-10
    assert abs(gradient[0]) <= 1e-10 if line[0] > 0 else gradient[0] >= -1e-10


@given(n_rows=st.integers(1, 200), spread=st.floats(0, 60), slope=st.floats(-1, 2), seed=st.integers(0, 2**32 - 1))
@example(n_rows=200, spread=1.5, slope=-2, seed=0)  # the unconstrained slopes are negative
@example(n_rows=2, spread=60, slope=2, seed=0)  # the likelihood has no maximum
@settings(deadline=None, max_examples=60, derandomize=True)
def test_lines_satisfy_the_kkt_conditions(n_rows, spread, slope, seed):
    rows = simulate_line_rows(2, n_rows, seed, slope=slope, spread=spread)
    confidence_logit, decision, correct = rows
    for lines, logits in zip(labelwise.fit_platt(make_batch(rows, N_LABELS)), confidence_logit, strict=True):
        assert lines.violations() == []
        for label in np.unique(decision):
            assert_line_is_optimal(lines, label, logits[decision == label], correct[decision == label])
        if slope == -2:  # the first example
            assert (lines.slope == 0).all()


def test_each_fit_sorts_its_rows_once(monkeypatch):
    batch = make_batch(simulate_line_rows(2, 300), N_LABELS)
    lexsort = np.lexsort
    unique = np.unique
    lexsort_lengths = []
    unique_lengths = []

    def recorded_lexsort(keys: tuple[np.ndarray, ...]) -> np.ndarray:
        lexsort_lengths.append(len(keys[0]))
        return lexsort(keys)

    def recorded_unique(array: np.ndarray, *, return_counts: bool) -> tuple[np.ndarray, ...]:
        unique_lengths.append(len(array))
        return unique(array, return_counts=return_counts)

    monkeypatch.setattr(np, "lexsort", recorded_lexsort)
    monkeypatch.setattr(np, "unique", recorded_unique)
    for fit in FITS.values():
        fit(batch)
    assert lexsort_lengths == [300, 300]
    n_correct = np.count_nonzero(batch.fit_rows.correct)
    assert sum(unique_lengths) == 2 * (300 + n_correct)  # all rows of each fit, and the correct ones


@every_fit
@given(**SIZES)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_reliability_of_a_label_never_decreases_with_confidence(fit, n_rows, spread, seed):
    confidence_logit, decision, correct = simulate_line_rows(1, n_rows, seed, spread=spread)
    neighbors = confidence_logit[0, :20, None] + np.arange(-3, 4) * np.spacing(confidence_logit[0, :20, None])
    grid = np.unique(
        np.r_[np.linspace(-45, 45, 2001), np.nextafter(0.1, [0, 1]), -np.inf, 0.1, np.inf, neighbors.ravel()]
    )
    confidence_logit[0, : n_rows // 10] = np.resize([-np.inf, np.inf, 900.0], n_rows // 10)
    (fitted,) = fit(make_batch((confidence_logit, decision, correct), N_LABELS))
    assert fitted.violations() == []

    for label in range(N_LABELS):
        reliability_logit = fitted(make_decisions(grid, label))
        assert reliability_logit.dtype == np.float64
        assert not np.isnan(reliability_logit).any()
        assert (reliability_logit[1:] >= reliability_logit[:-1]).all()


@every_fit
def test_fits_do_not_depend_on_row_order_or_other_labels(fit):
    confidence_logit, decision, correct = simulate_line_rows(1, 500)
    confidence_logit = np.round(confidence_logit, 1)
    grid = np.linspace(-9, 9, 99)
    (fitted,) = fit(make_batch((confidence_logit, decision, correct), N_LABELS))
    order = np.random.default_rng(1).permutation(500)
    for label in range(N_LABELS):
        members = order[decision[order] == label]
        (separate_fit,) = fit(make_batch((confidence_logit[:, members], decision[members], correct[members]), N_LABELS))
        np.testing.assert_array_equal(separate_fit(make_decisions(grid, label)), fitted(make_decisions(grid, label)))


def assert_violations(violations: list[str], *patterns: str) -> None:
    """Compare each violation with its pattern."""
    assert_matches(violations, patterns)


def test_violations_name_the_label_and_its_numbers():
    assert_violations(Intercepts([0.0, np.nan, 31]).violations(), "label 1 .*nan$", r"label 2 .* 31\.0$")
    assert_violations(
        Lines([1, -1, np.inf], [0, 0, 0]).violations(),
        r"label 1 .*slope -1\.0 .*intercept 0\.0$",
        r"label 2 .*slope inf .*intercept 0\.0$",
    )

    isotonic = Isotonic(([0.2, 0.4], [0.4, 0.2], []), ([0.6, 0.5], [0.5, 1.5], []))
    assert_violations(
        isotonic.violations(),
        r"reliability .*label 0 falls: \[0\.6, 0\.5\]$",
        r"label 1 .*value .*\[0, 1\].*\[0\.5, 1\.5\]$",
        r"thresholds .*label 1 .*increase: \[0\.4, 0\.2\]$",
        "label 2 .* 0 thresholds .* 0 values$",
    )


def test_fallbacks_use_the_shared_curve_or_the_identity():
    def make_shared_curve(*values: float) -> SharedCurve:
        return SharedCurve(Curves(np.array([0, 0.5, 1]), np.array([values]), np.array([9]), ("none",)))

    fitted = WithFallbacks(
        Intercepts([1.5, 7, 8]), make_shared_curve(-2, 0, 1), ("none", "shared", "identity"), [20, 19, 0]
    )
    logits = np.linspace(-30, 30, 61)
    expected = np.stack([logits + 1.5, fitted.shared(make_decisions(logits, 0)), logits])
    decision = np.arange(61) % N_LABELS
    np.testing.assert_array_equal(fitted(CalibratedDecisions(logits, decision)), expected[decision, np.arange(61)])
    assert fitted.violations() == []
    invalid = dataclasses.replace(fitted, own=Intercepts([np.inf, 0, 0]), shared=make_shared_curve(1, 0, 1))
    assert_violations(
        invalid.violations(),
        "label 0 .*inf$",
        r"shared curve: .*label 0 falls .* 1\.0 .*knot 0 .* 0\.0 .*knot 1$",
    )


def test_a_shift_can_lead_from_the_largest_clipped_confidence_to_any_share_of_correct_rows():
    """Saturated rows of an overconfident predictor need shifts beyond -12."""
    n_rows = 400
    logits = np.full((n_rows, 2), [600.0, 0.0])
    correct = np.arange(n_rows) < 60
    decisions = CalibratedDecisions(np.full(n_rows, 600.0), np.zeros(n_rows, dtype=np.int64), logits=logits).clip(1e-6)
    batch = FitBatch(LabelledDecisions([decisions], correct), n_labels=2, settings=ProjectionParams())
    (shifts,) = fit_intercepts(batch)
    assert shifts.alpha[0] < -15  # from 13.8 to -1.7
    np.testing.assert_allclose(expit(shifts(decisions)), 60 / n_rows, rtol=1e-9)
