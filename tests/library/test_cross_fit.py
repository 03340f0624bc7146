"""Fits with and without each fold equal separate fits on the same rows, and out-of-fold scores come from them."""

from dataclasses import replace

import numpy as np
import pytest
from relmap.fitting.correction import fit_correction
from relmap.projection.whole_vector import MAX_LABELS

from relmap.calibrators.identity import Identity
from relmap.calibrators.matrix import fit_matrix
from relmap.calibrators.smart import fit_smart
from relmap.calibrators.spline import Spline, fit_spline_of_confidence
from relmap.calibrators.temperature import fit_temperature
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.fitting.cross_fit import (
    CONSTANT_CALIBRATOR,
    CrossFitResult,
    FitOptions,
    cross_fit,
    fit_calibrator,
    fit_paper_protocol,
)
from relmap.fitting.folds import FoldSplit
from relmap.maps.reliability_map import FittedMap, calibrated_logit
from relmap.projection.batch import FitBatch
from relmap.projection.decisions import CalibratedDecisions, LabelledDecisions
from relmap.projection.variants import fit_variants
from relmap.splits import split_validation
from tests import maps, naive

N_ROWS = 100
VARIANTS = ("confidence", "label_intercept", "label_platt")
OPTIONS = FitOptions(n_labels=3, calibrator="ts", variants=VARIANTS, settings=maps.SETTINGS, seed=4)
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


@pytest.fixture(scope="module")
def result() -> CrossFitResult:
    return cross_fit(ROWS, SPLIT, OPTIONS)


def fit_by_hand(rows: FixedDecisions, variant: str) -> FittedMap:
    """Fit temperature scaling and a pooled variant."""
    calibrator = fit_temperature(rows.logits, rows.label, seed=1)
    decisions = CalibratedDecisions(calibrated_logit(calibrator, rows), rows.decision, None, rows.logits)
    labelled = LabelledDecisions([decisions], rows.correct, rows.label)
    batch = FitBatch(fit_rows=labelled, n_labels=3, settings=maps.SETTINGS.projection)
    return FittedMap(calibrator, fit_variants(batch, (variant,), pool_labels=True)[variant][0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_row_is_scored_by_the_fit_without_its_fold(result, variant):
    scored = result.out_of_fold_scores(variant)
    losses = result.out_of_fold_losses(variant)
    start = 0
    for fold in range(3):
        others = np.concatenate([rows for number, rows in enumerate(SPLIT.folds) if number != fold])
        fold_rows = ROWS.take(SPLIT.folds[fold])
        expected = fit_by_hand(ROWS.take(others), variant)(fold_rows)
        part = slice(start, start + len(fold_rows))
        np.testing.assert_allclose(scored.logit[part], expected.logit, rtol=1e-9)
        np.testing.assert_allclose(scored.confidence[part], expected.confidence, rtol=1e-9)
        np.testing.assert_allclose(losses[part], naive.log_losses(expected.logit, fold_rows.correct), rtol=1e-9)
        start = part.stop
    assert start == len(scored.logit) == 90


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_deployed_fit_uses_the_rows_of_all_folds(result, variant):
    expected = fit_by_hand(ROWS.take(NUMBERS), variant)(ROWS)
    deployed = result.deployed_map(variant)
    assert deployed.correction is None
    np.testing.assert_allclose(deployed(ROWS).logit, expected.logit, rtol=1e-9)


def test_the_result_has_the_rows_of_the_folds_with_their_folds(result):
    np.testing.assert_array_equal(result.rows.logits, ROWS.logits[NUMBERS])
    np.testing.assert_array_equal(result.rows.weight, ROWS.weight[NUMBERS])
    np.testing.assert_array_equal(result.rows.group, ROWS.group[NUMBERS])
    np.testing.assert_array_equal(result.fold, [0] * 20 + [1] * 27 + [2] * 43)
    np.testing.assert_array_equal(result.projection_decisions, ROWS.decision[NUMBERS])
    assert result.n_calibrator_rows == 90
    assert result.min_reliability == maps.SETTINGS.metrics.smallest_reliability
    assert tuple(result.full_fit.variants) == VARIANTS


def test_matrix_scaling_is_fitted_on_the_same_rows_and_compared_with_weights(result):
    losses = []
    is_changed = []
    for fold, numbers in enumerate(SPLIT.folds):
        others = ROWS.take(SPLIT.training_rows(fold))
        matrix = fit_matrix(others.logits, others.label, seed=1)
        np.testing.assert_array_equal(result.fold_fits[fold].matrix.weights, matrix.weights)
        fold_rows = ROWS.take(numbers)
        losses.extend(naive.log_losses(FittedMap(matrix)(fold_rows).logit, fold_rows.correct))
        is_changed.extend(matrix(fold_rows.logits).argmax(axis=1) != fold_rows.decision)
    comparison = result.matrix_scaling_comparison()
    np.testing.assert_allclose(comparison.log_loss, losses, rtol=1e-9)
    assert comparison.changed_share == pytest.approx(np.average(is_changed, weights=ROWS.weight[NUMBERS]))
    fit_rows = ROWS.take(NUMBERS)
    np.testing.assert_array_equal(result.full_fit.matrix.bias, fit_matrix(fit_rows.logits, fit_rows.label, seed=1).bias)


def test_matrix_scaling_is_not_compared_unless_each_fold_has_a_fit_and_rows_have_logits(result):
    one_without = (replace(result.fold_fits[0], matrix=None), *result.fold_fits[1:])
    assert replace(result, fold_fits=one_without).matrix_scaling_comparison() is None
    no_logits = replace(result.rows, logits=None)
    assert replace(result, rows=no_logits).matrix_scaling_comparison() is None


@pytest.mark.parametrize(
    ("n_labels", "calibrator", "has_matrix"),
    [
        (MAX_LABELS, "ts", True),
        (MAX_LABELS + 1, "ts", False),
        (3, "uncal", True),
        (3, "matrix", False),
        (3, "vector", False),
    ],
)
def test_matrix_scaling_is_fitted_unless_labels_are_many_or_the_calibrator_is_similar(n_labels, calibrator, has_matrix):
    options = FitOptions(n_labels, calibrator, ("confidence",), maps.SETTINGS, seed=1)
    fits = cross_fit(ROWS, SPLIT, options)
    assert [fit.matrix is not None for fit in (fits.full_fit, *fits.fold_fits)] == [has_matrix] * 4


@pytest.mark.parametrize("n_rows", [40, 1])
def test_a_limited_fit_uses_the_first_training_rows(n_rows):
    limited = cross_fit(ROWS, SPLIT, OPTIONS, max_training_rows=n_rows)
    assert limited.full_fit is limited.fold_fits[0]
    for fold in range(3):
        first = ROWS.take(SPLIT.training_rows(fold)[:n_rows])
        fit = limited.fold_fits[fold]
        assert fit.calibrator == fit_temperature(first.logits, first.label, seed=1)
        assert fit.matrix is None
    assert len(limited.rows) == len(limited.out_of_fold_scores("label_platt").logit) == 90


def expected_correction(result: CrossFitResult, numbers: np.ndarray) -> np.ndarray:
    rows = result.rows.take(numbers)
    logit = result.out_of_fold_scores("label_platt").logit[numbers]
    return fit_correction(logit, rows.correct, rows.weight, rows.group).values


@pytest.mark.parametrize(
    ("max_rows", "numbers"),
    [(None, np.arange(90)), (90, np.arange(90)), (30, np.linspace(0, 89, 30).astype(int)), (500, np.arange(90))],
)
def test_corrections_are_fitted_on_spread_rows_of_the_other_folds(result, max_rows, numbers):
    corrected = result.with_correction("label_platt", max_rows)
    fitted = corrected.corrections["label_platt"]
    np.testing.assert_array_equal(fitted.full.values, expected_correction(result, numbers))
    for fold in range(3):
        others = numbers[result.fold[numbers] != fold]
        np.testing.assert_array_equal(fitted.folds[fold].values, expected_correction(result, others))


def test_corrections_are_fitted_on_rows_without_groups_and_weights(result):
    rows = replace(result.rows, group=None, weight=None)
    plain = replace(result, rows=rows)
    logit = plain.out_of_fold_scores("label_platt").logit
    corrected = plain.with_correction("label_platt").corrections["label_platt"]
    np.testing.assert_array_equal(corrected.full.values, fit_correction(logit, rows.correct).values)


def test_corrections_change_the_scores_of_their_variant_only(result):
    corrected = result.with_correction("label_platt")
    both = corrected.with_correction("label_intercept")
    assert tuple(both.corrections) == ("label_platt", "label_intercept")
    before = result.out_of_fold_scores("label_platt")
    for each in (corrected, both):
        after = each.out_of_fold_scores("label_platt")
        for fold in range(3):
            in_fold = result.fold == fold
            expected = each.corrections["label_platt"].folds[fold](before.logit[in_fold])
            np.testing.assert_array_equal(after.logit[in_fold], expected)
        np.testing.assert_array_equal(after.confidence, before.confidence)
        assert each.deployed_map("label_platt").correction is None
    np.testing.assert_array_equal(
        corrected.out_of_fold_scores("label_intercept").logit, result.out_of_fold_scores("label_intercept").logit
    )
    assert dict(both.without_corrections().corrections) == {}
    deployed = both.with_deployed_correction()
    assert tuple(deployed.corrections) == ("label_platt", "label_intercept")
    np.testing.assert_array_equal(
        deployed.out_of_fold_scores("label_platt").logit, both.corrections["label_platt"].full(before.logit)
    )


def test_a_score_with_too_few_values_has_no_correction(result):
    constant = replace(ROWS, logits=np.tile([2.0, 1.0, 0.0], (N_ROWS, 1)), decision=np.zeros(N_ROWS, dtype=np.int64))
    tied = cross_fit(constant, SPLIT, OPTIONS)
    one_fold = replace(result, rows=result.rows.take(slice(20)), fold=np.zeros(20, dtype=np.int64))
    assert tied.with_correction("confidence", 1) is tied
    assert one_fold.with_correction("label_platt", 1) is one_fold


def test_a_fold_without_other_values_prevents_the_correction(result):
    """Both values of the score together give knots; without the rows of fold 0 one value is left."""
    numbers = np.r_[np.arange(20), np.full(30, 50)]
    rows = result.rows.take(numbers)
    few_values = replace(result, rows=rows, fold=result.fold[numbers])
    logit = few_values.out_of_fold_scores("label_platt").logit
    assert fit_correction(logit, rows.correct, rows.weight, rows.group) is not None
    assert fit_correction(logit[20:], rows.correct[20:], rows.weight[20:], rows.group[20:]) is None
    assert few_values.with_correction("label_platt") is few_values


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
    options = FitOptions(3, "smart", ("confidence",), maps.SETTINGS, seed=4)
    split = FoldSplit(folds=(np.arange(60), np.arange(60, 80)), held_out=np.arange(80, 100))
    fits = cross_fit(ROWS, split, options)
    np.testing.assert_array_equal(fits.fold_fits[1].calibrator.parameters, expected.parameters)


@pytest.mark.parametrize(
    ("calibrator", "temperature_rows", "calibrator_part"),  # index of the part; None for all rows
    [("ts", "validation", None), ("ts", "calibrator_fit", 0), ("diag", "validation", 0), ("diag", "calibrator_fit", 0)],
)
def test_the_paper_protocol_fits_each_model_on_its_part(calibrator, temperature_rows, calibrator_part):
    protocol = maps.SETTINGS.protocol.model_copy(update={"temperature_rows": temperature_rows})
    source = PAPER.model_copy(update={"protocol": protocol})
    parts = split_validation(N_ROWS, 3, protocol, ROWS.group)
    calibrator_fit = ROWS.take(parts.calibrator_fit)
    projection_fit = ROWS.take(parts.projection_fit)
    projection_selection = ROWS.take(parts.projection_selection)
    options = replace(OPTIONS, calibrator=calibrator, variants=("confidence", "label_intercept"), seed=9)
    result = fit_paper_protocol(ROWS, source, options)

    calibrator_rows = ROWS if calibrator_part is None else ROWS.take(parts[calibrator_part])
    expected = fit_calibrator(calibrator, calibrator_rows, seed=9)
    np.testing.assert_array_equal(result.full_fit.calibrator(ROWS.logits), expected(ROWS.logits))
    assert result.n_calibrator_rows == len(calibrator_rows)
    assert result.fold_fits == (result.full_fit,)
    np.testing.assert_array_equal(result.rows.logits, projection_selection.logits)
    np.testing.assert_array_equal(result.fold, np.zeros(len(projection_selection)))
    assert result.fold.dtype == np.int64
    np.testing.assert_array_equal(result.projection_decisions, projection_fit.decision)
    assert result.min_reliability == maps.SETTINGS.metrics.smallest_reliability
    matrix = fit_matrix(calibrator_fit.logits, calibrator_fit.label, seed=1)
    np.testing.assert_array_equal(result.full_fit.matrix.weights, matrix.weights)

    labelled = []
    for rows in (projection_fit, projection_selection):
        decisions = CalibratedDecisions(calibrated_logit(expected, rows), rows.decision, None, rows.logits)
        labelled.append(LabelledDecisions([decisions], rows.correct, rows.label))
    settings = maps.SETTINGS.projection.model_copy(update={"minimum_rows": 0})
    batch = FitBatch(fit_rows=labelled[0], n_labels=3, settings=settings, selection_rows=labelled[1])
    variant = fit_variants(batch, ("label_intercept",))["label_intercept"][0]
    each_label = CalibratedDecisions(np.zeros(3), np.arange(3))
    np.testing.assert_array_equal(result.full_fit.variants["label_intercept"](each_label), variant(each_label))


def test_the_paper_protocol_needs_three_groups():
    protocol = maps.SETTINGS.protocol.model_copy(update={"split": "group"})
    source = PAPER.model_copy(update={"protocol": protocol})
    two_groups = replace(ROWS, group=np.where(np.arange(N_ROWS) < 30, "a", "b"))
    with pytest.raises(InputError) as error:
        fit_paper_protocol(two_groups, source, OPTIONS)
    assert str(error.value) == (
        "there are fewer than three groups, which cannot be split in the three parts of the paper's protocol; omit the "
        "groups"
    )
