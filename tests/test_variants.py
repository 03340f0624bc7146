"""Variants by name: one contract, the fallbacks of rare labels, and the laws that set the variants apart."""

import dataclasses
import pickle

import fits
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from tasks.projection.adam_lattice import fit_lattices
from tasks.projection.batch import Batch, optimality, project_together
from tasks.projection.curves import Curves, SharedCurve
from tasks.projection.decisions import Decisions
from tasks.projection.lattice import LatticeSettings
from tasks.projection.variants import VARIANTS, project_batch

SETTINGS = LatticeSettings(epochs=60)
LABELS = 3
every_variant = pytest.mark.parametrize("name", VARIANTS)


def batch(rows: fits.Rows, settings: LatticeSettings = SETTINGS) -> Batch:
    return fits.batch(rows, LABELS, settings)


def seen(at: np.ndarray, decision: np.ndarray, gap: np.ndarray | None = None) -> Decisions:
    """Decisions under one calibrator; with log-probabilities that have the given gap, or with none."""
    if gap is None:
        return Decisions(at, decision)
    log_probabilities, logits = np.zeros((2, len(at), LABELS))
    logits[np.arange(len(at)), (decision + 1) % LABELS] = 1
    log_probabilities[:] = -np.log(2)
    log_probabilities[np.arange(len(at)), decision] = -np.logaddexp(0, -gap)
    return Decisions(at, decision, log_probabilities, logits)


def simulated(B: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """logit of the confidence `(B, m)`, decision and correct `(m,)`; label 1 is right less often."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.3, 0.99, m)
    decision = rng.integers(0, LABELS, m)
    correct = rng.random(m) < np.clip(true - 0.4 * (decision == 1), 0, 1)
    return logit(true) * rng.uniform(0.5, 2.0, (B, 1)), decision, correct


@pytest.fixture(scope="module")
def rows():
    return simulated(2, 1500)


@pytest.fixture(scope="module")
def projected(rows):
    return project_batch(batch(rows))


def naive_aurc(risk: np.ndarray, correct: np.ndarray) -> float:
    """Mean over j of the share of errors among the j rows of lowest risk."""
    wrong = ~correct[np.argsort(risk, kind="stable")]
    return float(np.mean([wrong[: j + 1].mean() for j in range(len(wrong))]))


@every_variant
def test_a_fitted_variant_gives_a_logit_for_each_row_and_keeps_the_contract(name, rows, projected):
    confidence_logit, decision, _ = rows
    assert len(projected[name]) == 2
    for fitted, at in zip(projected[name], confidence_logit, strict=True):
        gap = 2 * at
        reliability_logit = fitted(seen(at, decision, gap))
        assert reliability_logit.shape == at.shape
        assert reliability_logit.dtype == np.float64
        assert not np.isnan(reliability_logit).any()
        assert np.isfinite(reliability_logit).all() or name == "label_isotonic"  # which says exactly 0 and 1
        assert not np.shares_memory(reliability_logit, at)
        assert fitted.violations() == []
        np.testing.assert_array_equal(fitted(seen(at[5:7], decision[5:7], gap[5:7])), reliability_logit[5:7])
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted))(seen(at, decision, gap)), reliability_logit)
        assert fitted(seen(at[:0], decision[:0], gap[:0])).shape == (0,)
        with pytest.raises(dataclasses.FrozenInstanceError):
            fitted.anything = 1


@every_variant
@pytest.mark.parametrize("label", range(LABELS))
def test_within_a_label_reliability_never_falls_with_confidence(name, label, projected):
    at = np.unique(np.concatenate([np.linspace(-45, 45, 4001), [0.1, np.nextafter(0.1, 1), np.nextafter(0.1, 0)]]))
    for fitted in projected[name]:
        reliability_logit = fitted(seen(at, np.full(len(at), label), np.full(len(at), 1.5)))
        assert not np.isnan(reliability_logit).any()
        assert (reliability_logit[1:] >= reliability_logit[:-1]).all()


def test_the_input_is_not_touched(rows):
    frozen = [np.array(array) for array in rows]
    for array in frozen:
        array.flags.writeable = False
    project_batch(batch(frozen, LatticeSettings(epochs=2)))


def test_confidence_is_returned_as_it_is(rows, projected):
    np.testing.assert_array_equal(projected["confidence"][1](seen(rows[0][1], rows[1])), rows[0][1])


@given(seed=st.integers(0, 2**32 - 1), m=st.integers(5, 200), epochs=st.integers(1, 30))
@settings(deadline=None, max_examples=25, derandomize=True)
def test_the_shared_curve_keeps_the_ranking_by_confidence(seed, m, epochs):
    confidence_logit, decision, correct = simulated(2, m, seed)
    of = batch((confidence_logit, decision, correct), LatticeSettings(epochs=epochs))
    together = project_batch(of, ("shared_1d",))["shared_1d"]
    for fitted, at in zip(together, confidence_logit, strict=True):
        reliability_logit = fitted(seen(at, decision))
        np.testing.assert_array_equal(np.argsort(reliability_logit), np.argsort(at))
        assert naive_aurc(-reliability_logit, correct) == naive_aurc(-at, correct)


def test_mrp_ranks_better_than_confidence_where_labels_differ(rows, projected):
    fresh_logit, decision, correct = simulated(2, 4000, seed=1)
    by_confidence = naive_aurc(-fresh_logit[0], correct)
    by_mrp = naive_aurc(-projected["mrp"][0](seen(fresh_logit[0], decision)), correct)
    assert by_mrp < by_confidence - 0.02


def test_a_batch_equals_its_single_fits(rows, projected):
    confidence_logit, decision, correct = rows
    for b, at in enumerate(confidence_logit):
        alone = project_batch(batch((at[None], decision, correct)))
        for name, values in projected.items():
            np.testing.assert_array_equal(
                alone[name][0](seen(at, decision, at)), values[b](seen(at, decision, at)), name
            )


def rare(first: int, second: int, minimum_rows: int = 20) -> dict[str, list]:
    """Variants fitted where label 0 has 300 rows, label 1 `first` and label 2 `second`."""
    confidence_logit, _, correct = simulated(1, 300 + first + second)
    rows = confidence_logit, np.repeat([0, 1, 2], [300, first, second]), correct
    return project_batch(batch(rows, dataclasses.replace(SETTINGS, minimum_rows=minimum_rows)))


@pytest.mark.parametrize("least", [20, 30])
def test_a_label_with_fewer_rows_than_the_least_takes_the_shared_curve_and_one_with_as_many_its_own(least):
    of_rare = rare(least - 1, least, minimum_rows=least)
    (mrp,), (shared,) = of_rare["mrp"], of_rare["shared_1d"]
    assert isinstance(mrp, Curves)
    assert isinstance(shared, SharedCurve)
    assert mrp.fallback == ("none", "shared", "none")
    assert mrp.rows.tolist() == [300, least - 1, least]
    np.testing.assert_array_equal(mrp.values[1], shared.curves.values[0])
    at, one = np.linspace(-10, 10, 50), np.ones(50, dtype=int)
    np.testing.assert_array_equal(mrp(seen(at, one)), shared(seen(at, one)))
    assert not np.array_equal(mrp(seen(at, 2 * one)), shared(seen(at, 2 * one)))


def test_a_label_without_rows_takes_the_identity():
    of_rare = rare(0, 40)
    (mrp,), (confidence,) = of_rare["mrp"], of_rare["confidence"]
    assert mrp.fallback == ("none", "identity", "none")
    at, one = np.linspace(-50, 50, 101), np.ones(101, dtype=int)
    np.testing.assert_array_equal(mrp(seen(at, one)), confidence(seen(at, one)))
    assert mrp.violations() == []


def test_the_shared_curve_is_fitted_however_few_the_rows():
    (shared,) = project_batch(batch(simulated(1, 3)))["shared_1d"]
    assert shared.curves.fallback == ("none",)
    assert shared.curves.rows.tolist() == [3]


def test_mrp_is_the_lattice_of_the_confidences(rows, projected):
    confidence_logit, decision, correct = rows
    values = fit_lattices(fits.fits(expit(confidence_logit), decision, correct), n_labels=LABELS, settings=SETTINGS)
    np.testing.assert_array_equal([fitted.values for fitted in projected["mrp"]], values)


@pytest.mark.parametrize("name", ["label_intercept", "label_isotonic", "label_platt", "mrp", "mrp_exact"])
def test_every_labelwise_variant_stands_on_the_same_for_a_rare_label(name):
    at, one = np.linspace(-10, 10, 50), np.ones(50, dtype=int)
    few, none = rare(19, 20), rare(0, 40)
    np.testing.assert_allclose(
        few[name][0](seen(at, one, 2 * at)), few["shared_1d"][0](seen(at, one)), rtol=0, atol=1e-12
    )
    np.testing.assert_array_equal(none[name][0](seen(at, one, 2 * at)), at)


def test_adam_never_ends_below_the_optimum_and_not_far_above_it(rows):
    found = optimality(batch(rows, LatticeSettings()))
    assert (found.kkt <= 1e-8).all()
    assert (found.excess > -1e-9).all()
    assert (found.excess < 3e-3).all()


def test_a_surface_asks_for_the_gap(projected):
    with pytest.raises(ValueError, match="gap"):
        projected["label_2d"][0](seen(np.zeros(2), np.zeros(2, dtype=int)))


def test_only_what_is_asked_for_is_fitted(rows):
    of = batch(rows)
    project_batch(of, ("mrp",))
    assert "shared" not in of.__dict__  # no label is rare here, so that nobody reads the shared curve


def test_batches_with_different_rows_fitted_together_equal_those_fitted_apart():
    batches = [batch(simulated(2, m, seed=m)) for m in (60, 500, 900)]  # in the first every label is rare
    for together, apart in zip(project_together(batches), batches, strict=True):
        for curves, alone in zip(together, project_batch(apart, ("mrp",))["mrp"], strict=True):
            assert curves.fallback == alone.fallback
            np.testing.assert_array_equal(curves.values, alone.values)
