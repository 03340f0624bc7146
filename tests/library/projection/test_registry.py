"""Variants: the common contract, the fallbacks of rare labels, and surfaces."""

import dataclasses
import pickle
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.decisions import CalibratedDecisions
from relmap.projection.registry import PIPELINE_VARIANTS, fit_variants
from relmap.projection.rows import FitBatch, fit_mrp_batches, measure_optimality_gap
from relmap.projection.surface import Surfaces, fit_surfaces
from relmap.settings import ProjectionParams
from tests import fits
from tests.fits import make_decisions

SETTINGS = ProjectionParams(epochs=30)
N_LABELS = 3
LABELWISE = ["label_intercept", "label_isotonic", "label_platt", "mrp", "mrp_exact"]
every_variant = pytest.mark.parametrize("name", PIPELINE_VARIANTS)


def make_batch(rows: fits.SimulatedRows, settings: ProjectionParams = SETTINGS) -> FitBatch:
    return fits.make_batch(rows, N_LABELS, settings)


def simulate_rows(n_fits: int, n_rows: int, seed: int = 0) -> fits.SimulatedRows:
    """Simulate rows whose labels 1 and 2 are correct less often.

    Returns:
        Logit of the confidence, shape (n_fits, n_rows); decision and correctness, shape (n_rows,).
    """
    confidence, decision, correct = fits.simulate_rows(n_fits, n_rows, N_LABELS, seed, spread=1)
    return logit(confidence), decision, correct


@pytest.fixture(scope="module")
def rows():
    """Return read-only rows."""
    rows = simulate_rows(2, 600)
    for array in rows:
        array.flags.writeable = False
    return rows


@pytest.fixture(scope="module")
def projected(rows):
    return fit_variants(make_batch(rows))


def arrays(fitted: object) -> Iterator[np.ndarray]:
    """Yield every array of a fitted value and of its parts."""
    for part in vars(fitted).values():
        for array in part if isinstance(part, tuple) else (part,):
            if isinstance(array, np.ndarray):
                yield array
            elif dataclasses.is_dataclass(array):
                yield from arrays(array)


@every_variant
def test_fitted_variant_satisfies_the_contract(name, rows, projected):
    confidence_logit, decision, _ = rows
    assert len(projected[name]) == 2
    for fitted, logit_of_fit in zip(projected[name], confidence_logit, strict=True):
        gap = 2 * logit_of_fit
        reliability_logit = fitted(make_decisions(logit_of_fit, decision, gap))
        assert reliability_logit.shape == logit_of_fit.shape
        assert reliability_logit.dtype == np.float64
        assert np.isfinite(reliability_logit).all()
        assert not np.shares_memory(reliability_logit, logit_of_fit)
        assert fitted.violations() == []
        if name == "confidence":
            assert (reliability_logit == logit_of_fit).all()
        np.testing.assert_array_equal(
            fitted(make_decisions(logit_of_fit[5:7], decision[5:7], gap[5:7])), reliability_logit[5:7]
        )
        np.testing.assert_array_equal(
            pickle.loads(pickle.dumps(fitted))(make_decisions(logit_of_fit, decision, gap)), reliability_logit
        )
        assert fitted(make_decisions(logit_of_fit[:0], decision[:0], gap[:0])).shape == (0,)
        assert not any(array.flags.writeable for array in arrays(fitted))
        with pytest.raises(ValueError, match="gap") if name == "label_2d" else nullcontext():
            fitted(make_decisions(logit_of_fit, decision))
        with pytest.raises(dataclasses.FrozenInstanceError):
            fitted.anything = 1


@given(seed=st.integers(0, 2**32 - 1), n_rows=st.integers(3, 200), epochs=st.integers(1, 30))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_shared_curve_preserves_the_ranking_by_confidence(seed, n_rows, epochs):
    confidence_logit, decision, correct = simulate_rows(2, n_rows, seed)
    fit_batch = make_batch((confidence_logit, decision, correct), ProjectionParams(epochs=epochs))
    for fitted, logit_of_fit in zip(
        fit_variants(fit_batch, ("shared_1d",))["shared_1d"], confidence_logit, strict=True
    ):
        np.testing.assert_array_equal(
            np.argsort(fitted(make_decisions(logit_of_fit, decision))), np.argsort(logit_of_fit)
        )
        assert (fitted.curves.fallback, fitted.curves.rows.tolist()) == (("none",), [n_rows])


@pytest.mark.parametrize("minimum", [20, 30])
@pytest.mark.parametrize("fallback", ["shared_1d", "confidence"])
def test_labels_with_few_rows_use_the_shared_curve_and_without_rows_the_identity(minimum, fallback):
    counts = [300, minimum - 1 if fallback == "shared_1d" else 0, minimum]
    confidence_logit, _, correct = simulate_rows(1, sum(counts))
    fit_batch = make_batch(
        (confidence_logit, np.repeat([0, 1, 2], counts), correct), ProjectionParams(epochs=5, minimum_rows=minimum)
    )
    fitted = {name: value for name, (value,) in fit_variants(fit_batch).items()}
    grid = np.linspace(-10, 10, 50)
    expected = fitted[fallback](make_decisions(grid, 1))

    for name in LABELWISE:
        assert fitted[name].fallback == ("none", "shared" if fallback == "shared_1d" else "identity", "none")
        assert fitted[name].rows.tolist() == counts
        assert fitted[name].violations() == []
        np.testing.assert_allclose(fitted[name](make_decisions(grid, 1)), expected, rtol=0, atol=1e-12)
        assert not np.allclose(fitted[name](make_decisions(grid, 2)), expected, atol=1e-6)


def test_batches_fitted_together_equal_batches_fitted_separately():
    settings_with_rare_labels = SETTINGS.model_copy(update={"minimum_rows": 30})
    # with 60 rows every label is rare
    batches = [
        make_batch(simulate_rows(2, n_rows, seed=n_rows), settings_with_rare_labels) for n_rows in (60, 500, 900)
    ]
    for together, single_batch in zip(fit_mrp_batches(batches), batches, strict=True):
        for curves, expected in zip(together, fit_variants(single_batch, ("mrp",))["mrp"], strict=True):
            assert curves.fallback == expected.fallback
            np.testing.assert_array_equal(curves.values, expected.values)


@pytest.mark.parametrize("n_rows", [1, 2])
def test_the_shared_curve_is_fitted_to_any_number_of_rows(n_rows):
    (fitted,) = fit_variants(make_batch(simulate_rows(1, n_rows)), ("shared_1d",))["shared_1d"]
    assert fitted.curves.fallback == ("none",)


@pytest.mark.parametrize(
    ("probabilities", "logits", "expected"),
    [
        ([0.5, 0.3, 0.2], [3.0, 1.0, 2.0], logit(0.5) - logit(0.2)),
        ([0.1, 0.2, 0.7], [3.0, 3.0, 1.0], logit(0.1) - logit(0.2)),  # the first of two equal labels is the runner-up
        ([0.8, 0.2], [2.0, 1.0], 2 * logit(0.8)),  # with two labels, logit(0.2) = -logit(0.8)
        ([1.0, 0.0], [9.0, 0.0], 2 * logit(1 - 1e-6)),
        ([0.0, 1.0], [9.0, 0.0], -2 * logit(1 - 1e-6)),
    ],
)
def test_gap_is_measured_to_the_runner_up_and_clips_saturated_probabilities(probabilities, logits, expected):
    with np.errstate(divide="ignore"):
        gap = CalibratedDecisions(np.zeros(1), np.zeros(1, dtype=int), np.log([probabilities]), np.array([logits])).gap
    np.testing.assert_allclose(gap, expected, rtol=1e-9)


@pytest.mark.parametrize(("gap", "expected"), [(0.0, (0.25 + 2.75) / 2), (9.0, 3)], ids=["between", "beyond"])
def test_surface_interpolation_equals_a_hand_calculation(gap, expected):
    # The gap 0 is a quarter of the way from -1 to 3: the values are 0.25 at confidence 0 and 2.75 at confidence 1/2
    surfaces = Surfaces(np.array([0, 0.5, 1]), np.array([-1.0, 3.0]), np.array([[[0.0, 1.0], [2.0, 5.0], [6.0, 9.0]]]))
    assert surfaces(make_decisions(logit(np.array([0.25])), 0, np.array([gap]))) == pytest.approx(expected)


def test_fitted_surfaces_are_monotone_recover_the_truth_and_ignore_row_order():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=1000)
    gap = rng.normal(size=1000)
    decision = rng.integers(3, size=1000)
    rows = confidence, gap, decision, rng.uniform(size=1000) < expit(4 * confidence - 2 + gap)
    fitted = fit_surfaces(*rows, n_labels=3, settings=ProjectionParams())

    assert fitted.violations() == []

    reliability = expit(fitted(make_decisions(logit(confidence), decision, gap)))
    assert np.abs(reliability - expit(4 * confidence - 2 + gap)).mean() < 0.08

    grid = np.linspace(-45, 45, 4001)
    assert (np.diff(fitted(make_decisions(grid, 1, np.full(4001, 1.5)))) >= 0).all()

    order = rng.permutation(1000)
    shuffled = fit_surfaces(*(part[order] for part in rows), n_labels=3, settings=ProjectionParams())
    assert (shuffled.values == fitted.values).all()


def test_adam_ends_slightly_above_the_optimum():
    confidence, decision, correct = fits.simulate_rows(2, 600, N_LABELS)
    excess, kkt = measure_optimality_gap(make_batch((logit(confidence), decision, correct), ProjectionParams()))
    assert (kkt <= 1e-8).all()
    assert (excess > -1e-9).all()
    assert (excess < 3e-3).all()
