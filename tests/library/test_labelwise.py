"""The simple label-wise variants: each against its law and an independent fit, and the fallbacks they share."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from relmap.projection import labelwise
from relmap.projection.curves import Curves, SharedCurve
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.labelwise import Intercepts, Isotonic, Lines, WithFallbacks, fit_intercepts, fit_isotonic
from tests.fits import SimulatedRows, make_batch, make_decisions

LABELS = 3
FITS = {"intercepts": fit_intercepts, "isotonic": fit_isotonic, "platt": labelwise.fit_platt}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
sizes = {"m": st.integers(0, 9) | st.integers(0, 200), "spread": st.floats(0, 40), "seed": st.integers(0, 2**32 - 1)}


def simulated(
    B: int, m: int, seed: int = 0, slope: float = 0.7, shift: float = 0.5, spread: float = 1.5
) -> SimulatedRows:
    """logit of the confidence `(B, m)`, decision and correct `(m,)`, right by a line in the logit of the first fit.

    The lines of labels 0, 1 and 2 have the same slope and intercepts `shift`, 0 and -`shift`.
    """
    rng = np.random.default_rng(seed)
    confidence_logit = rng.normal(0.5, 1, m) * spread
    decision = rng.integers(0, LABELS, m)
    correct = rng.random(m) < expit(slope * confidence_logit + shift * (1 - decision))
    return confidence_logit * rng.uniform(1, 2, (B, 1)) ** (np.arange(B) > 0)[:, None], decision, correct


@given(**sizes)
@settings(deadline=None, max_examples=50, derandomize=True)
def test_the_reliabilities_of_a_label_sum_to_its_correct_rows(m, spread, seed):
    rows = confidence_logit, decision, correct = simulated(2, m, seed, spread=spread)
    for fitted, at in zip(fit_intercepts(make_batch(rows, LABELS)), confidence_logit, strict=True):
        for label, alpha in enumerate(fitted.alpha):
            mine = decision == label
            excess = expit(at[mine] + alpha).sum() - correct[mine].sum()
            if abs(alpha) < 12:
                assert abs(excess) < 1e-10
            else:  # at a bound the solution, if there is one, lies beyond it
                assert excess * alpha <= 1e-10
        assert fitted.violations() == []


@pytest.mark.parametrize("seed", range(2))
def test_the_penalty_minimizes_the_log_loss_of_selection_rows(seed):
    fit, selection = (simulated(1, 120, seed=10 * seed + part, shift=0.3) for part in range(2))
    (fitted,) = fit_intercepts(make_batch(fit, LABELS, selection_rows=selection))

    def objective(alpha: np.ndarray, penalty: float, rows: SimulatedRows) -> float:
        (at,), decision, correct = rows
        t = at + alpha[decision]
        return float((np.logaddexp(0, t) - correct * t).mean() + penalty * (alpha**2).mean())

    tried = [minimize(objective, np.zeros(LABELS), (penalty, fit), tol=1e-12).x for penalty in labelwise.PENALTIES]
    losses = [objective(alpha, 0, selection) for alpha in tried]
    np.testing.assert_allclose(fitted.alpha, tried[int(np.argmin(losses))], atol=1e-5)
    assert list(labelwise.PENALTIES) == sorted(labelwise.PENALTIES, reverse=True)  # of equals, the first is taken
    certain = np.full((1, 4), 40.0), np.zeros(4, dtype=int), np.ones(4, dtype=bool)
    (fitted,) = fit_intercepts(make_batch(fit, LABELS, selection_rows=certain))
    assert fitted.alpha == pytest.approx(tried[0], abs=1e-5)


@given(**sizes)
@settings(deadline=None, max_examples=40, derandomize=True)
def test_isotonic_regression_equals_scikit_learn(m, spread, seed):
    confidence_logit, decision, correct = simulated(2, m, seed, spread=spread)
    confidence_logit = np.round(confidence_logit, 1)  # equal confidences
    at = np.concatenate([np.linspace(-45, 45, 301), confidence_logit[0]])
    for fitted, logits in zip(
        fit_isotonic(make_batch((confidence_logit, decision, correct), LABELS)), confidence_logit, strict=True
    ):
        assert fitted.violations() == []
        for label in np.unique(decision):
            mine = decision == label
            apart = np.diff(np.unique(expit(logits[mine])))
            if len(apart) and apart.min() < 1e-12:
                continue  # scikit-learn takes these for one confidence
            reference = IsotonicRegression(y_min=1e-6, y_max=1 - 1e-6, out_of_bounds="clip")
            expected = reference.fit(expit(logits[mine]), correct[mine]).predict(expit(at))
            np.testing.assert_allclose(expit(fitted(make_decisions(at, label))), expected, rtol=0, atol=1e-12)


def optimal(fitted: Lines, label: int, logits: np.ndarray, correct: np.ndarray) -> None:
    """Of the stated sum, convex in slope and intercept, no slope is left at a label's line; at slope 0 it may rise."""
    line = np.array([fitted.slope[label], fitted.intercept[label]])
    x = np.clip(logits, -40, 40)
    residual = expit(line[0] * x + line[1]) - correct
    gradient = np.array([(residual * x).mean(), residual.mean()]) + 2e-6 * (line - [1, 0])
    assert abs(gradient[1]) <= 1e-10
    assert abs(gradient[0]) <= 1e-10 if line[0] > 0 else gradient[0] >= -1e-10


@given(m=st.integers(1, 200), spread=st.floats(0, 60), slope=st.floats(-1, 2), seed=st.integers(0, 2**32 - 1))
@example(m=200, spread=1.5, slope=-2, seed=0)  # the lines would fall
@example(m=2, spread=60, slope=2, seed=0)  # the likelihood has no maximum
@settings(deadline=None, max_examples=60, derandomize=True)
def test_a_line_meets_the_kkt_conditions(m, spread, slope, seed):
    rows = confidence_logit, decision, correct = simulated(2, m, seed, slope=slope, spread=spread)
    for fitted, at in zip(labelwise.fit_platt(make_batch(rows, LABELS)), confidence_logit, strict=True):
        assert fitted.violations() == []
        for label in np.unique(decision):
            optimal(fitted, label, at[decision == label], correct[decision == label])
        assert slope > -2 or (fitted.slope == 0).all()


def test_the_rows_of_each_fit_are_sorted_once_and_isotonic_sorts_values_only(monkeypatch):
    of = make_batch(simulated(2, 300), LABELS)
    lexsort = np.lexsort
    unique = np.unique
    rows = []
    values = []
    monkeypatch.setattr(np, "lexsort", lambda keys: rows.append(len(keys[0])) or lexsort(keys))
    monkeypatch.setattr(np, "unique", lambda at, **counts: values.append((len(at), *counts)) or unique(at, **counts))
    for fit in FITS.values():
        fit(of)
    assert rows == [300] * 2
    lengths, options = zip(*values, strict=True)
    assert set(options) == {"return_counts"}
    assert sum(lengths) == 2 * (300 + np.count_nonzero(of.fit_rows.correct))  # all, and those of right rows


@every_fit
@given(**sizes)
@settings(deadline=None, max_examples=15, derandomize=True)
def test_within_a_label_reliability_never_falls_with_confidence_not_even_infinite(fit, m, spread, seed):
    confidence_logit, decision, correct = simulated(1, m, seed, spread=spread)
    near = confidence_logit[0, :20, None] + np.arange(-3, 4) * np.spacing(confidence_logit[0, :20, None])
    at = np.unique(np.r_[np.linspace(-45, 45, 2001), np.nextafter(0.1, [0, 1]), -np.inf, 0.1, np.inf, near.ravel()])
    confidence_logit[0, : m // 10] = np.resize([-np.inf, np.inf, 900.0], m // 10)
    (fitted,) = fit(make_batch((confidence_logit, decision, correct), LABELS))
    assert fitted.violations() == []
    for label in range(LABELS):
        t = fitted(make_decisions(at, label))
        assert t.dtype == np.float64
        assert not np.isnan(t).any()
        assert (t[1:] >= t[:-1]).all()


@every_fit
def test_fits_do_not_depend_on_row_order_or_other_labels(fit):
    confidence_logit, decision, correct = simulated(1, 500)
    confidence_logit = np.round(confidence_logit, 1)
    at = np.linspace(-9, 9, 99)
    (fitted,) = fit(make_batch((confidence_logit, decision, correct), LABELS))
    order = np.random.default_rng(1).permutation(500)
    for label in range(LABELS):
        mine = order[decision[order] == label]
        (alone,) = fit(make_batch((confidence_logit[:, mine], decision[mine], correct[mine]), LABELS))
        np.testing.assert_array_equal(alone(make_decisions(at, label)), fitted(make_decisions(at, label)))


def test_violations_are_described_in_sentences():
    assert Intercepts([0.0, np.nan, 13]).violations() == ["label 1 is shifted by nan", "label 2 is shifted by 13.0"]
    assert Lines([1, -1, np.inf], [0, 0, 0]).violations() == [
        "label 1 has the line -1.0 l + 0.0",
        "label 2 has the line inf l + 0.0",
    ]
    isotonic = Isotonic(([0.2, 0.4], [0.4, 0.2], []), ([0.6, 0.5], [0.5, 1.5], []))
    assert isotonic.violations() == [
        "the reliability of label 0 falls: [0.6, 0.5]",
        "label 1 has a value outside [0, 1]: [0.5, 1.5]",
        "the thresholds of label 1 do not rise: [0.4, 0.2]",
        "label 2 has 0 thresholds and 0 values",
    ]


def test_a_label_with_few_rows_takes_the_shared_curve_and_one_without_the_identity():
    def shared(*values: float) -> SharedCurve:
        return SharedCurve(Curves(np.array([0, 0.5, 1]), np.array([values]), np.array([9]), ("none",)))

    fitted = WithFallbacks(Intercepts([1.5, 7, 8]), shared(-2, 0, 1), ("none", "shared", "identity"), [20, 19, 0])
    at = np.linspace(-30, 30, 61)
    expected = np.stack([at + 1.5, fitted.shared(make_decisions(at, 0)), at])
    mixed = np.arange(61) % LABELS
    np.testing.assert_array_equal(fitted(CalibratedDecisions(at, mixed)), expected[mixed, np.arange(61)])
    assert fitted.violations() == []
    wrong = dataclasses.replace(fitted, own=Intercepts([np.inf, 0, 0]), shared=shared(1, 0, 1))
    assert wrong.violations() == [
        "label 0 is shifted by inf",
        "shared curve: label 0 falls from 1.0 at knot 0 to 0.0 at knot 1",
    ]
