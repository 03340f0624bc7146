"""Variants by name: one contract, the fallbacks of rare labels, and the laws that set them apart, surfaces last."""

import dataclasses
import pickle
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.projection.batch import FitBatch, fit_mrp_batches, measure_optimality_gap
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.surface import Surfaces, fit_surfaces
from relmap.projection.variants import PIPELINE_VARIANTS, VARIANTS, fit_variants
from relmap.settings import ProjectionParams
from tests import fits
from tests.fits import make_decisions

SETTINGS = ProjectionParams(epochs=30)
LABELS = 3
LABELWISE = ["label_intercept", "label_isotonic", "label_platt", "mrp", "mrp_exact"]
every_variant = pytest.mark.parametrize(
    "name", [name for name in PIPELINE_VARIANTS if VARIANTS[name].required_input == "confidence"]
)


def batch(rows: fits.SimulatedRows, settings: ProjectionParams = SETTINGS) -> FitBatch:
    return fits.make_batch(rows, LABELS, settings)


def simulated(B: int, m: int, seed: int = 0) -> fits.SimulatedRows:
    """logit of the confidence `(B, m)`, decision and correct `(m,)`; labels 1 and 2 are correct less often."""
    confidence, decision, correct = fits.simulate_rows(B, m, LABELS, seed, spread=1)
    return logit(confidence), decision, correct


@pytest.fixture(scope="module")
def rows():
    """Rows that no fit may write to."""
    made = simulated(2, 600)
    for array in made:
        array.flags.writeable = False
    return made


@pytest.fixture(scope="module")
def projected(rows):
    return fit_variants(batch(rows))


def arrays(fitted: object) -> Iterator[np.ndarray]:
    """Every array of a fitted value, and of those that it holds."""
    for part in vars(fitted).values():
        for array in part if isinstance(part, tuple) else (part,):
            if isinstance(array, np.ndarray):
                yield array
            elif dataclasses.is_dataclass(array):
                yield from arrays(array)


@every_variant
def test_a_fitted_variant_gives_a_logit_for_each_row_and_keeps_the_contract(name, rows, projected):
    confidence_logit, decision, _ = rows
    assert len(projected[name]) == 2
    for fitted, at in zip(projected[name], confidence_logit, strict=True):
        gap = 2 * at
        reliability_logit = fitted(make_decisions(at, decision, gap))
        assert reliability_logit.shape == at.shape
        assert reliability_logit.dtype == np.float64
        assert np.isfinite(reliability_logit).all()
        assert not np.shares_memory(reliability_logit, at)
        assert fitted.violations() == []
        assert name != "confidence" or (reliability_logit == at).all()
        np.testing.assert_array_equal(fitted(make_decisions(at[5:7], decision[5:7], gap[5:7])), reliability_logit[5:7])
        np.testing.assert_array_equal(
            pickle.loads(pickle.dumps(fitted))(make_decisions(at, decision, gap)), reliability_logit
        )
        assert fitted(make_decisions(at[:0], decision[:0], gap[:0])).shape == (0,)
        assert not any(array.flags.writeable for array in arrays(fitted))
        with pytest.raises(ValueError, match="gap") if name == "label_2d" else nullcontext():
            fitted(make_decisions(at, decision))
        with pytest.raises(dataclasses.FrozenInstanceError):
            fitted.anything = 1


@given(seed=st.integers(0, 2**32 - 1), m=st.integers(3, 200), epochs=st.integers(1, 30))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_the_shared_curve_keeps_the_ranking_by_confidence_however_few_the_rows(seed, m, epochs):
    confidence_logit, decision, correct = simulated(2, m, seed)
    of = batch((confidence_logit, decision, correct), ProjectionParams(epochs=epochs))
    for fitted, at in zip(fit_variants(of, ("shared_1d",))["shared_1d"], confidence_logit, strict=True):
        np.testing.assert_array_equal(np.argsort(fitted(make_decisions(at, decision))), np.argsort(at))
        assert (fitted.curves.fallback, fitted.curves.rows.tolist()) == (("none",), [m])


@pytest.mark.parametrize("least", [20, 30])
@pytest.mark.parametrize("stand_in", ["shared_1d", "confidence"])
def test_labels_with_few_rows_use_the_shared_curve_and_without_rows_the_identity(least, stand_in):
    counts = [300, least - 1 if stand_in == "shared_1d" else 0, least]
    confidence_logit, _, correct = simulated(1, sum(counts))
    of = batch(
        (confidence_logit, np.repeat([0, 1, 2], counts), correct), ProjectionParams(epochs=5, minimum_rows=least)
    )
    fitted = {name: value for name, (value,) in fit_variants(of).items()}
    at = np.linspace(-10, 10, 50)
    expected = fitted[stand_in](make_decisions(at, 1))
    for name in LABELWISE:
        assert fitted[name].fallback == ("none", "shared" if stand_in == "shared_1d" else "identity", "none")
        assert fitted[name].rows.tolist() == counts
        assert fitted[name].violations() == []
        np.testing.assert_allclose(fitted[name](make_decisions(at, 1)), expected, rtol=0, atol=1e-12)
        assert not np.allclose(fitted[name](make_decisions(at, 2)), expected, atol=1e-6)


def test_batches_with_different_rows_fitted_together_equal_those_fitted_apart():
    some_rare = SETTINGS.model_copy(update={"minimum_rows": 30})
    batches = [batch(simulated(2, m, seed=m), some_rare) for m in (60, 500, 900)]  # in the first every label is rare
    for together, apart in zip(fit_mrp_batches(batches), batches, strict=True):
        for curves, alone in zip(together, fit_variants(apart, ("mrp",))["mrp"], strict=True):
            assert curves.fallback == alone.fallback
            np.testing.assert_array_equal(curves.values, alone.values)


@pytest.mark.parametrize(
    ("probabilities", "logits", "expected"),
    [
        ([0.5, 0.3, 0.2], [3.0, 1.0, 2.0], logit(0.5) - logit(0.2)),
        ([0.1, 0.2, 0.7], [3.0, 3.0, 1.0], logit(0.1) - logit(0.2)),  # of equals the first is the runner-up
        ([0.8, 0.2], [2.0, 1.0], 2 * logit(0.8)),  # of two labels
        ([1.0, 0.0], [9.0, 0.0], 2 * logit(1 - 1e-6)),
        ([0.0, 1.0], [9.0, 0.0], -2 * logit(1 - 1e-6)),
    ],
)
def test_the_gap_is_that_to_the_runner_up_of_the_logits_and_saturated_probabilities_are_cut(
    probabilities, logits, expected
):
    with np.errstate(divide="ignore"):
        gap = CalibratedDecisions(np.zeros(1), np.zeros(1, dtype=int), np.log([probabilities]), np.array([logits])).gap
    np.testing.assert_allclose(gap, expected, rtol=1e-9)


@pytest.mark.parametrize(("gap", "expected"), [(0.0, (0.25 + 2.75) / 2), (9.0, 3)], ids=["between", "beyond"])
def test_a_cell_worked_by_hand(gap, expected):
    # corners 0, 1 along the gap at confidence 0, and 2, 5 at confidence 1/2: a quarter up, half right
    surfaces = Surfaces(np.array([0, 0.5, 1]), np.array([-1.0, 3.0]), np.array([[[0.0, 1.0], [2.0, 5.0], [6.0, 9.0]]]))
    assert surfaces(make_decisions(logit(np.array([0.25])), 0, np.array([gap]))) == pytest.approx(expected)


def test_fitted_surfaces_are_monotone_recover_the_truth_and_ignore_row_order():
    rng = np.random.default_rng(0)
    confidence, gap, decision = rng.uniform(size=1000), rng.normal(size=1000), rng.integers(3, size=1000)
    rows = confidence, gap, decision, rng.uniform(size=1000) < expit(4 * confidence - 2 + gap)
    fitted = fit_surfaces(*rows, n_labels=3, settings=ProjectionParams())
    assert fitted.violations() == []
    reliability = expit(fitted(make_decisions(logit(confidence), decision, gap)))
    assert np.abs(reliability - expit(4 * confidence - 2 + gap)).mean() < 0.08
    at = np.linspace(-45, 45, 4001)
    assert (np.diff(fitted(make_decisions(at, 1, np.full(4001, 1.5)))) >= 0).all()
    order = rng.permutation(1000)
    again = fit_surfaces(*(part[order] for part in rows), n_labels=3, settings=ProjectionParams())
    assert (again.values == fitted.values).all()


def test_adam_ends_slightly_above_the_optimum():
    confidence, decision, correct = fits.simulate_rows(2, 600, LABELS)
    excess, kkt = measure_optimality_gap(batch((logit(confidence), decision, correct), ProjectionParams()))
    assert (kkt <= 1e-8).all()
    assert (excess > -1e-9).all()
    assert (excess < 3e-3).all()
