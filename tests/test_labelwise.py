"""The simple label-wise variants: each against its law and an independent fit, and the fallbacks they share."""

import dataclasses
import pickle

import numpy as np
import pytest
from fits import Rows, batch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sorts import sorted_values

from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.decisions import Decisions
from tasks.projection.label_maps import Intercepts, Isotonic, Lines
from tasks.projection.labelwise import PENALTIES, RIDGE, WithFallbacks, fit_intercepts, fit_isotonic, fit_platt

LABELS = 3


FITS = {"intercepts": fit_intercepts, "isotonic": fit_isotonic, "platt": fit_platt}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
sizes = {"m": st.integers(0, 200), "spread": st.floats(0, 40), "seed": st.integers(0, 2**32 - 1)}


def simulated(B: int, m: int, seed: int = 0, slope: float = 0.7, shift: float = 0.5, spread: float = 1.5) -> Rows:
    """logit of the confidence `(B, m)`, decision and correct `(m,)`, right by a line in the logit of the first fit.

    The lines of labels 0, 1 and 2 have the same slope and intercepts `shift`, 0 and -`shift`.
    """
    rng = np.random.default_rng(seed)
    confidence_logit = rng.normal(0.5, 1, m) * spread
    decision = rng.integers(0, LABELS, m)
    correct = rng.random(m) < expit(slope * confidence_logit + shift * (1 - decision))
    return confidence_logit * rng.uniform(1, 2, (B, 1)) ** (np.arange(B) > 0)[:, None], decision, correct


def one_label(logits: list[float], correct: list[int]) -> Rows:
    return np.array([logits], dtype=float), np.zeros(len(logits), dtype=int), np.array(correct, dtype=bool)


@given(**sizes)
@settings(deadline=None, max_examples=80, derandomize=True)
def test_the_reliabilities_of_a_label_sum_to_its_right_rows(m, spread, seed):
    confidence_logit, decision, correct = simulated(2, m, seed, spread=spread)
    for fitted, at in zip(
        fit_intercepts(batch((confidence_logit, decision, correct), LABELS)), confidence_logit, strict=True
    ):
        for label, alpha in enumerate(fitted.alpha):
            mine = decision == label
            excess = expit(at[mine] + alpha).sum() - correct[mine].sum()
            if abs(alpha) < 12:
                assert abs(excess) < 1e-10
            else:  # at a bound the solution, if there is one, lies beyond it
                assert excess * alpha <= 1e-10
        assert fitted.violations() == []


def test_a_shift_worked_by_hand():
    # at confidence 1/2, three of four right: the shift is log 3, whatever other labels do
    (fitted,) = fit_intercepts(batch(one_label([0, 0, 0, 0], [1, 1, 1, 0]), 2))
    assert fitted.alpha[0] == pytest.approx(np.log(3), abs=1e-14)
    assert fitted.alpha[1] == 0


def test_a_label_always_right_or_always_wrong_ends_at_the_bound():
    confidence_logit, decision = np.array([[0.0, 40, 800, -3, -40, -800]]), np.array([0, 0, 0, 1, 1, 1])
    for right, alpha in (([1, 1, 1, 0, 0, 0], [12, -12]), ([0, 0, 0, 1, 1, 1], [-12, 12])):
        (fitted,) = fit_intercepts(batch((confidence_logit, decision, np.array(right, dtype=bool)), 2))
        assert fitted.alpha.tolist() == alpha
    (beyond,) = fit_intercepts(batch(one_label([30, 31], [0, 1]), 1))
    assert beyond.alpha.tolist() == [-12]


def test_a_shift_is_found_where_all_reliabilities_saturate():
    (fitted,) = fit_intercepts(batch(one_label([-50, 52], [0, 1]), 1))
    assert fitted.alpha[0] == pytest.approx(-1, abs=1e-9)  # half way between -50 and 52


@pytest.mark.parametrize("seed", range(4))
def test_the_penalty_is_the_larger_of_those_that_selection_rows_like_best(seed):
    fit, selection = (simulated(1, 120, seed=10 * seed + part, shift=0.3) for part in range(2))
    (fitted,) = fit_intercepts(batch(fit, LABELS, judge=selection))

    def objective(alpha: np.ndarray, penalty: float, rows: Rows) -> float:
        (at,), decision, correct = rows
        t = at + alpha[decision]
        return float((np.logaddexp(0, t) - correct * t).mean() + penalty * (alpha**2).mean())

    tried = [minimize(objective, np.zeros(LABELS), (penalty, fit), tol=1e-12).x for penalty in PENALTIES]
    losses = [objective(alpha, 0, selection) for alpha in tried]
    np.testing.assert_allclose(fitted.alpha, tried[int(np.argmin(losses))], atol=1e-5)
    assert list(PENALTIES) == sorted(PENALTIES, reverse=True)  # of equals, the first is taken
    certain = np.full((1, 4), 40.0), np.zeros(4, dtype=int), np.ones(4, dtype=bool)
    (fitted,) = fit_intercepts(batch(fit, LABELS, judge=certain))
    assert fitted.alpha == pytest.approx(tried[0], abs=1e-5)


def test_a_shift_makes_no_ties_and_keeps_the_order_within_a_label():
    rows = simulated(1, 3000)
    (fitted,) = fit_intercepts(batch(rows, LABELS))
    for label in range(LABELS):
        mine = rows[0][0][rows[1] == label]
        t = fitted(Decisions(mine, np.full(len(mine), label)))
        assert len(np.unique(t)) == len(mine)
        np.testing.assert_array_equal(np.argsort(t), np.argsort(mine))


@given(**sizes)
@settings(deadline=None, max_examples=60, derandomize=True)
def test_isotonic_is_scikit_learns(m, spread, seed):
    confidence_logit, decision, correct = simulated(2, m, seed, spread=spread)
    confidence_logit = np.round(confidence_logit, 1)  # equal confidences
    at = np.concatenate([np.linspace(-45, 45, 301), confidence_logit[0]])
    for fitted, logits in zip(
        fit_isotonic(batch((confidence_logit, decision, correct), LABELS)), confidence_logit, strict=True
    ):
        assert fitted.violations() == []
        for label in np.unique(decision):
            mine = decision == label
            apart = np.diff(np.unique(expit(logits[mine])))
            if len(apart) and apart.min() < 1e-12:
                continue  # scikit-learn takes these for one confidence
            reference = IsotonicRegression(y_min=1e-6, y_max=1 - 1e-6, out_of_bounds="clip")
            expected = reference.fit(expit(logits[mine]), correct[mine]).predict(expit(at))
            q = expit(fitted(Decisions(at, np.full(len(at), label))))
            np.testing.assert_allclose(q, expected, rtol=0, atol=1e-12)


def test_isotonic_sorts_the_values_of_each_label_once(monkeypatch):
    confidence_logit, decision, correct = simulated(2, 300)
    counted = sorted_values(monkeypatch)
    fit_isotonic(batch((confidence_logit, decision, correct), LABELS))
    assert sum(counted) == 2 * (300 + np.count_nonzero(correct))  # of both fits: all values, and those of right rows


@given(**sizes)
@settings(deadline=None, max_examples=60, derandomize=True)
def test_sorted_values_give_the_steps_of_sorted_rows_to_the_last_bit(m, spread, seed):
    confidence_logit, decision, correct = simulated(1, m, seed, spread=spread)
    confidence_logit = np.round(confidence_logit, 1)
    (fitted,) = fit_isotonic(batch((confidence_logit, decision, correct), LABELS))
    for label in np.unique(decision):
        mine = decision == label
        places, tie, rows = np.unique(expit(confidence_logit[0][mine]), return_inverse=True, return_counts=True)
        steps = isotonic_regression(np.bincount(tie, correct[mine]) / rows, weights=rows).x
        at = np.searchsorted(places, fitted.confidence[label])
        assert (fitted.confidence[label] == places[at]).all()
        assert (fitted.reliability[label] == np.clip(steps[at], 1e-6, 1 - 1e-6)).all()


def test_pools_worked_by_hand():
    # confidences .2 .4 .6 .8, right 1 0 1 1: the first two pool to 1/2
    (fitted,) = fit_isotonic(batch(one_label(list(logit([0.2, 0.4, 0.6, 0.8])), [1, 0, 1, 1]), 1))
    q = expit(fitted(Decisions(logit(np.array([0.1, 0.3, 0.5, 0.7, 0.9])), np.zeros(5, dtype=int))))
    np.testing.assert_allclose(q, [0.5, 0.5, 0.75, 1, 1], atol=1e-6)


def test_isotonic_never_says_0_or_1():
    (fitted,) = fit_isotonic(batch(one_label([-1, 1], [0, 1]), 1))
    q = expit(fitted(Decisions(np.array([-2.0, 0, 2]), np.zeros(3, dtype=int))))
    np.testing.assert_allclose(q, [1e-6, 0.5, 1 - 1e-6], rtol=1e-9)


def test_a_label_of_one_confidence_gets_the_mean_of_its_rows():
    (fitted,) = fit_isotonic(batch(one_label([2, 2, 2, 2], [1, 0, 0, 0]), 1))
    np.testing.assert_allclose(expit(fitted(Decisions(np.array([-9.0, 2, 9]), np.zeros(3, dtype=int)))), 0.25)


def ridged_loss(line: np.ndarray, logits: np.ndarray, correct: np.ndarray) -> tuple[float, np.ndarray]:
    """The stated sum of one label at (slope, intercept), and its slope."""
    t = line[0] * np.clip(logits, -40, 40) + line[1]
    residual = expit(t) - correct
    loss = (np.logaddexp(0, t) - correct * t).mean() + RIDGE * ((line - [1, 0]) ** 2).sum()
    slope = np.array([(residual * np.clip(logits, -40, 40)).mean(), residual.mean()])
    return float(loss), slope + 2 * RIDGE * (line - [1, 0])


@given(m=st.integers(1, 200), spread=st.floats(0, 60), slope=st.floats(-1, 2), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_a_line_meets_the_sign_conditions_of_its_slope(m, spread, slope, seed):
    confidence_logit, decision, correct = simulated(2, m, seed, slope=slope, spread=spread)
    for fitted, at in zip(
        fit_platt(batch((confidence_logit, decision, correct), LABELS)), confidence_logit, strict=True
    ):
        assert fitted.violations() == []
        for label in np.unique(decision):
            mine, line = decision == label, np.array([fitted.slope[label], fitted.intercept[label]])
            gradient = ridged_loss(line, at[mine], correct[mine])[1]
            assert abs(gradient[1]) <= 1e-10
            assert abs(gradient[0]) <= 1e-10 if line[0] > 0 else gradient[0] >= -1e-10


def test_a_line_is_scikit_learns_without_penalty():
    confidence_logit, decision, correct = simulated(2, 3000)
    for fitted, at in zip(
        fit_platt(batch((confidence_logit, decision, correct), LABELS)), confidence_logit, strict=True
    ):
        for label in range(LABELS):
            mine = decision == label
            reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(at[mine, None], correct[mine])
            assert fitted.slope[label] == pytest.approx(reference.coef_[0, 0], abs=1e-4)
            assert fitted.intercept[label] == pytest.approx(reference.intercept_[0], abs=1e-4)


def test_a_line_that_would_fall_is_flat_at_the_base_rate():
    confidence_logit, decision, correct = simulated(1, 600, slope=-2)
    (fitted,) = fit_platt(batch((confidence_logit, decision, correct), LABELS))
    for label in range(LABELS):
        mine = decision == label
        assert fitted.slope[label] == 0
        assert expit(fitted.intercept[label]) == pytest.approx(correct[mine].mean(), abs=1e-4)
        rows, bounds = (confidence_logit[0][mine], correct[mine]), [(0, None), (None, None)]
        reference = minimize(ridged_loss, [1, 0], rows, "L-BFGS-B", jac=True, bounds=bounds)
        np.testing.assert_allclose([0, fitted.intercept[label]], reference.x, atol=1e-4)


def test_true_reliabilities_have_the_identity_as_their_line():
    (fitted,) = fit_platt(batch(simulated(1, 200_000, slope=1, shift=0), LABELS))
    np.testing.assert_allclose(fitted.slope, 1, atol=0.03)
    np.testing.assert_allclose(fitted.intercept, 0, atol=0.03)


@pytest.mark.parametrize(
    ("logits", "correct"),
    [([1, 2, 3], [1, 1, 1]), ([1, 2, 3], [0, 0, 0]), ([-40, 0, 1, 40], [0, 0, 1, 1]), ([2, 2], [1, 0]), ([40], [0])],
)
def test_a_line_stays_finite_where_the_likelihood_has_no_maximum(logits, correct):
    (fitted,) = fit_platt(batch(one_label(logits, correct), 1))
    assert fitted.violations() == []
    line = np.array([fitted.slope[0], fitted.intercept[0]])
    assert np.abs(line).max() < 50
    height = ridged_loss(line, np.array(logits), np.array(correct))[0]
    for step in 1e-3 * np.array([[1, 0], [0, 1], [0, -1], [1, -1], [-1, 1], [-1, 0]]):
        if (line + step)[0] >= 0:
            assert height <= ridged_loss(line + step, np.array(logits), np.array(correct))[0] + 1e-15


@every_fit
@given(**sizes)
@settings(deadline=None, max_examples=25, derandomize=True)
def test_within_a_label_reliability_never_falls_with_confidence(fit, m, spread, seed):
    at = np.unique(np.concatenate([np.linspace(-45, 45, 2001), np.nextafter(0.1, [0, 1]), [-np.inf, 0.1, np.inf]]))
    confidence_logit, decision, correct = simulated(1, m, seed, spread=spread)
    (fitted,) = fit(batch((confidence_logit, decision, correct), LABELS))
    near = confidence_logit[0, :20, None] + np.arange(-3, 4) * np.spacing(confidence_logit[0, :20, None])
    at = np.unique(np.concatenate([at, near.ravel()]))
    for label in range(LABELS):
        t = fitted(Decisions(at, np.full(len(at), label)))
        assert t.dtype == np.float64
        assert not np.isnan(t).any()
        assert (t[1:] >= t[:-1]).all()


def contents(fitted: object) -> list:
    """Every number of a fitted map."""
    return [
        [array.tolist() for array in (value if isinstance(value, tuple) else (value,))]
        for name, value in vars(fitted).items()
        if name != "kind"
    ]


@every_fit
def test_infinite_confidence_logits_make_no_nan(fit):
    confidence_logit, decision, correct = simulated(1, 300)
    confidence_logit[0, :30] = np.repeat([-np.inf, np.inf, 900.0], 10)
    (fitted,) = fit(batch((confidence_logit, decision, correct), LABELS))
    assert fitted.violations() == []
    assert not np.isnan(fitted(Decisions(confidence_logit[0], decision))).any()


@every_fit
def test_the_order_of_the_rows_does_not_matter(fit):
    confidence_logit, decision, correct = simulated(1, 700)
    confidence_logit = np.round(confidence_logit, 1)
    order = np.random.default_rng(1).permutation(700)
    (fitted,) = fit(batch((confidence_logit, decision, correct), LABELS))
    (shuffled,) = fit(batch((confidence_logit[:, order], decision[order], correct[order]), LABELS))
    assert contents(shuffled) == contents(fitted)


@every_fit
def test_a_label_does_not_feel_the_others(fit):
    confidence_logit, decision, correct = simulated(1, 500)
    at, one = np.linspace(-9, 9, 99), np.ones(99, dtype=int)
    (fitted,) = fit(batch((confidence_logit, decision, correct), LABELS))
    mine = decision == 1
    (alone,) = fit(batch((confidence_logit[:, mine], decision[mine], correct[mine]), LABELS))
    np.testing.assert_array_equal(alone(Decisions(at, one)), fitted(Decisions(at, one)))


@every_fit
def test_without_rows_every_label_has_a_harmless_value(fit):
    nothing = np.empty(0, dtype=int)
    at, decision = np.linspace(-3, 3, 9), np.arange(9) % LABELS
    for fitted in fit(batch((np.empty((2, 0)), nothing, nothing), LABELS)):
        np.testing.assert_allclose(fitted(Decisions(at, decision)), at, atol=1e-12)
        assert fitted.violations() == []


def test_what_is_wrong_is_said_in_a_sentence():
    assert Intercepts([0.0, np.nan, 13]).violations() == ["label 1 is shifted by nan", "label 2 is shifted by 13.0"]
    assert Lines([1, -1, np.inf], [0, 0, 0]).violations() == [
        "label 1 has the line -1.0 l + 0.0",
        "label 2 has the line inf l + 0.0",
    ]
    isotonic = Isotonic(([0.2, 0.4], [0.4, 0.2], [0.5], []), ([0.6, 0.5], [0.5, 1.5], [0.1, 0.2], []))
    assert isotonic.violations() == [
        "the reliability of label 0 falls: [0.6, 0.5]",
        "label 1 has a value outside [0, 1]: [0.5, 1.5]",
        "the thresholds of label 1 do not rise: [0.4, 0.2]",
        "label 2 has 1 thresholds and 2 values",
        "label 3 has 0 thresholds and 0 values",
    ]


@pytest.fixture
def with_fallbacks() -> WithFallbacks:
    """Label 0 stands on its own shift, label 1 on a shared curve and label 2 on the identity."""
    shared = SharedCurve(Curves(np.array([0, 0.5, 1]), np.array([[-2.0, 0, 1]]), np.array([9]), ("none",)))
    return WithFallbacks(Intercepts([1.5, 7, 8]), shared, ("none", "shared", "identity"), np.array([20, 19, 0]))


def test_a_label_with_few_rows_takes_the_shared_curve_and_one_without_the_identity(with_fallbacks):
    at = np.linspace(-30, 30, 61)
    shared = with_fallbacks.shared(Decisions(at, np.zeros(61, dtype=int)))
    for label, expected in enumerate([at + 1.5, shared, at]):
        np.testing.assert_array_equal(with_fallbacks(Decisions(at, np.full(61, label))), expected)
    mixed = with_fallbacks(Decisions(np.array([0.0, 0, at[40]]), np.array([2, 0, 1])))
    assert mixed.tolist() == [0, 1.5, shared[40]]
    assert with_fallbacks(Decisions(at[:0], np.empty(0, dtype=int))).shape == (0,)


def test_fallbacks_keep_the_contract(with_fallbacks):
    assert with_fallbacks.violations() == []
    seen = Decisions(np.linspace(-5, 5, 9), np.arange(9) % 3)
    t = with_fallbacks(seen)
    assert not np.shares_memory(t, seen.confidence_logit)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(with_fallbacks))(seen), t)
    with pytest.raises(dataclasses.FrozenInstanceError):
        with_fallbacks.own = None
    with pytest.raises(ValueError, match="read-only"):
        with_fallbacks.rows[0] = 1
    falling = SharedCurve(Curves(np.array([0, 0.5, 1]), np.array([[1.0, 0, 1]]), np.array([9]), ("none",)))
    wrong = dataclasses.replace(with_fallbacks, own=Intercepts([np.inf, 0, 0]), shared=falling)
    assert wrong.violations() == [
        "label 0 is shifted by inf",
        "shared curve: label 0 falls from 1.0 at knot 0 to 0.0 at knot 1",
    ]
