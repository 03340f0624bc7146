"""Fits with and without each fold equal separate fits on the same rows, and out-of-fold scores come from them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from relmap.calibrators.identity import Identity
from relmap.calibrators.smart import fit_smart
from relmap.calibrators.spline import Spline, fit_spline_of_confidence
from relmap.calibrators.temperature import fit_temperature
from relmap.decisions import CalibratedDecisions, FixedDecisions, LabelledDecisions
from relmap.errors import InputError
from relmap.maps.cross_fit import CONSTANT_CALIBRATOR, CrossFit, cross_fit, fit_calibrator, fit_paper_protocol
from relmap.maps.folds import FoldSplit
from relmap.maps.options import FitOptions
from relmap.maps.score import FittedMap, calibrated_logit
from relmap.projection.registry import fit_variants
from relmap.projection.rows import FitBatch, split_validation
from tests import maps

N_ROWS = 100
VARIANTS = ("confidence", "label_intercept", "mrp_pooled")
CALIBRATORS = ("ts", "sms")
OPTIONS = FitOptions(calibrator="sms", variant="mrp_pooled", seed=4)
# Unequal folds of rows in no order; rows 90 to 99 are held out
NUMBERS = np.random.default_rng(5).permutation(90)
SPLIT = FoldSplit(folds=tuple(np.split(NUMBERS, [20, 47])), held_out=np.arange(90, 100))


def make_rows() -> FixedDecisions:
    """Make rows with logits, groups, weights, and a decision that is not always the largest logit."""
    rows = maps.rows_of_frame(maps.make_predictions(N_ROWS, shift=2.5, per_group=4), "group")
    generator = np.random.default_rng(3)
    decision = np.where(generator.random(N_ROWS) < 0.1, (rows.decision + 1) % 3, rows.decision)
    return replace(rows, decision=decision, weight=generator.uniform(0.2, 5, N_ROWS))


ROWS = make_rows()
PAPER = maps.SOURCE.model_copy(update={"protocol": maps.SETTINGS.protocol, "seed": 3})


def rows_outside(fold: int) -> np.ndarray:
    """Return the numbers of the rows of the other folds."""
    return np.concatenate([rows for k, rows in enumerate(SPLIT.folds) if k != fold])


@pytest.fixture(scope="module")
def result() -> CrossFit:
    return cross_fit(ROWS, SPLIT, 3, OPTIONS, maps.SETTINGS)


def fit_by_hand(numbers: np.ndarray, confidence_logit: np.ndarray, options: FitOptions) -> FittedMap:
    """Fit a map on some rows, and its projection on the given confidences of all rows, shape (n,)."""
    rows = ROWS.take(numbers)
    calibrator = fit_calibrator(options.calibrator, rows, seed=4)
    decisions = CalibratedDecisions(confidence_logit[numbers], rows.decision, None, rows.logits)
    labelled = LabelledDecisions([decisions], rows.correct)
    batch = FitBatch(fit_rows=labelled, n_labels=3, settings=maps.SETTINGS.projection)
    return FittedMap(calibrator, fit_variants(batch, (options.variant,))[options.variant][0])


def confidences_without(omitted: int, calibrator: str) -> np.ndarray:
    """Calibrate the rows of the other folds, each without its fold and the omitted one; logits, shape (n,)."""
    confidence_logit = np.full(N_ROWS, np.nan)
    for fold, numbers in enumerate(SPLIT.folds):
        others = [rows for k, rows in enumerate(SPLIT.folds) if k not in (fold, omitted)]
        fitted = fit_calibrator(calibrator, ROWS.take(np.concatenate(others)), seed=4)
        confidence_logit[numbers] = calibrated_logit(fitted, ROWS.take(numbers))
    return confidence_logit


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_projections_are_fitted_on_out_of_fold_confidences_and_rows_scored_without_their_fold(calibrator, variant):
    options = replace(OPTIONS, calibrator=calibrator, variant=variant)
    out_of_fold = np.full(N_ROWS, np.nan)
    baseline = np.full(N_ROWS, np.nan)
    for fold, numbers in enumerate(SPLIT.folds):
        others = ROWS.take(rows_outside(fold))
        out_of_fold[numbers] = calibrated_logit(fit_calibrator(calibrator, others, seed=4), ROWS.take(numbers))
        baseline[numbers] = calibrated_logit(fit_temperature(others.logits, others.label, seed=4), ROWS.take(numbers))
    expected = np.full(N_ROWS, np.nan)
    for fold, numbers in enumerate(SPLIT.folds):
        unseen = confidences_without(fold, calibrator)
        fitted = fit_by_hand(rows_outside(fold), unseen, options)
        expected[numbers] = fitted(ROWS.take(numbers)).logit

    result = cross_fit(ROWS, SPLIT, 3, options, maps.SETTINGS)

    np.testing.assert_allclose(result.scored.logit, expected[NUMBERS], rtol=1e-9)
    np.testing.assert_allclose(result.scored.confidence, expit(baseline[NUMBERS]), rtol=1e-9)
    deployed = fit_by_hand(NUMBERS, out_of_fold, options)(ROWS)
    np.testing.assert_allclose(result.deployed(ROWS).logit, deployed.logit, rtol=1e-9)
    np.testing.assert_allclose(result.deployed(ROWS).confidence, deployed.confidence, rtol=1e-9)
    has_baseline = [fitted.baseline is not None for fitted in (result.deployed, *result.folds)]
    assert has_baseline == [calibrator == "sms"] * 4


def test_the_result_has_the_rows_of_the_folds_with_their_folds(result):
    np.testing.assert_array_equal(result.rows.logits, ROWS.logits[NUMBERS])
    np.testing.assert_array_equal(result.rows.weight, ROWS.weight[NUMBERS])
    np.testing.assert_array_equal(result.rows.group, ROWS.group[NUMBERS])
    np.testing.assert_array_equal(result.fold, [0] * 20 + [1] * 27 + [2] * 43)
    np.testing.assert_array_equal(result.projection_decisions, ROWS.decision[NUMBERS])
    assert result.n_calibrator_rows == 90
    assert len(result.folds) == 3


def test_decisions_without_a_confidence_are_all_fitted_with_one_constant():
    """Constants without a fold would be low exactly where its rows are correct."""
    rows = replace(ROWS, logits=None)
    options = replace(OPTIONS, calibrator=CONSTANT_CALIBRATOR)
    result = cross_fit(rows, SPLIT, 3, options, maps.SETTINGS)
    share = fit_calibrator(CONSTANT_CALIBRATOR, rows.take(NUMBERS), seed=4).share
    decisions = CalibratedDecisions(np.full(90, logit(share)), ROWS.decision[NUMBERS])
    batch = FitBatch(LabelledDecisions([decisions], rows.correct[NUMBERS]), 3, maps.SETTINGS.projection)
    expected = fit_variants(batch, ("mrp_pooled",))["mrp_pooled"][0]
    np.testing.assert_array_equal(result.deployed.projection.line.intercept, expected.line.intercept)


def test_rows_without_logits_are_calibrated_by_their_confidence_or_by_the_share_of_correct_rows():
    confidence = np.random.default_rng(0).uniform(0.3, 1, N_ROWS)
    rows = FixedDecisions(decision=ROWS.decision, confidence=confidence, label=ROWS.label, weight=ROWS.weight)
    assert fit_calibrator("uncal", rows, seed=1) == Identity()
    spline = fit_calibrator("spline", rows, seed=1)
    assert isinstance(spline, Spline)
    np.testing.assert_array_equal(spline.coefficients, fit_spline_of_confidence(confidence, rows.correct).coefficients)
    share = (rows.correct * ROWS.weight).sum() / ROWS.weight.sum()
    constant = fit_calibrator(CONSTANT_CALIBRATOR, replace(rows, confidence=None), seed=1)
    assert constant.share == pytest.approx((100 * share + 1) / 102)  # one correct and one wrong row are added
    unweighted = fit_calibrator(CONSTANT_CALIBRATOR, replace(rows, confidence=None, weight=None), seed=1)
    assert unweighted.share == pytest.approx((rows.correct.sum() + 1) / 102)
    assert abs(constant.share - unweighted.share) > 0.005


def test_the_seed_of_a_calibrator_is_the_seed_of_the_fit():
    rows = ROWS.take(slice(60))
    expected = fit_smart(rows.logits, rows.label, seed=4)
    assert not np.array_equal(expected.parameters, fit_smart(rows.logits, rows.label, seed=1).parameters)
    np.testing.assert_array_equal(fit_calibrator("smart", rows, seed=4).parameters, expected.parameters)
    options = FitOptions(calibrator="smart", variant="confidence", seed=4)
    split = FoldSplit(folds=(np.arange(60), np.arange(60, 80)), held_out=np.arange(80, 100))
    fits = cross_fit(ROWS, split, 3, options, maps.SETTINGS)
    np.testing.assert_array_equal(fits.folds[1].calibrator.parameters, expected.parameters)


@pytest.mark.parametrize(
    ("calibrator", "temperature_rows", "calibrator_part"),  # index of the part; None for all rows
    [("ts", "validation", None), ("ts", "calibrator_fit", 0), ("diag", "validation", 0), ("diag", "calibrator_fit", 0)],
)
def test_the_paper_protocol_fits_each_model_on_its_part(calibrator, temperature_rows, calibrator_part):
    protocol = maps.SETTINGS.protocol.model_copy(update={"temperature_rows": temperature_rows})
    source = PAPER.model_copy(update={"protocol": protocol})
    parts = split_validation(N_ROWS, 3, protocol, ROWS.group)
    projection_fit = ROWS.take(parts.projection_fit)
    projection_selection = ROWS.take(parts.projection_selection)
    options = replace(OPTIONS, calibrator=calibrator, variant="label_intercept", seed=9)
    result = fit_paper_protocol(ROWS, source, 3, options, maps.SETTINGS)

    calibrator_rows = ROWS if calibrator_part is None else ROWS.take(parts[calibrator_part])
    expected = fit_calibrator(calibrator, calibrator_rows, seed=9)
    np.testing.assert_array_equal(result.deployed.calibrator(ROWS.logits), expected(ROWS.logits))
    assert result.n_calibrator_rows == len(calibrator_rows)
    assert result.folds == (result.deployed,)
    np.testing.assert_array_equal(result.rows.logits, projection_selection.logits)
    np.testing.assert_array_equal(result.fold, np.zeros(len(projection_selection)))
    assert result.fold.dtype == np.int64
    np.testing.assert_array_equal(result.projection_decisions, projection_fit.decision)

    labelled = []
    for rows in (projection_fit, projection_selection):
        decisions = CalibratedDecisions(calibrated_logit(expected, rows), rows.decision, None, rows.logits)
        labelled.append(LabelledDecisions([decisions], rows.correct))
    settings = maps.SETTINGS.projection.model_copy(update={"minimum_rows": 0})
    batch = FitBatch(fit_rows=labelled[0], n_labels=3, settings=settings, selection_rows=labelled[1])
    variant = fit_variants(batch, ("label_intercept",))["label_intercept"][0]
    each_label = CalibratedDecisions(np.zeros(3), np.arange(3))
    np.testing.assert_array_equal(result.deployed.projection(each_label), variant(each_label))


def test_the_paper_protocol_needs_three_groups():
    protocol = maps.SETTINGS.protocol.model_copy(update={"split": "group"})
    source = PAPER.model_copy(update={"protocol": protocol})
    two_groups = replace(ROWS, group=np.where(np.arange(N_ROWS) < 30, "a", "b"))
    with pytest.raises(InputError, match=r"three groups.*omit"):
        fit_paper_protocol(two_groups, source, 3, OPTIONS, maps.SETTINGS)
