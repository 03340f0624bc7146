"""Parts of the model choice: available variants, differences of losses, selection, and their texts."""

from dataclasses import replace

import numpy as np
import pytest
from relmap.fitting.model_choice import (
    INTERVAL_INFLATION,
    MAX_CLASSWISE_LABELS,
    MeanDifference,
    available_variants,
    check_calibrator_and_variant,
    compare_candidates,
    describe_kept_confidence,
    describe_selection,
    is_correctable,
    lowest_loss_candidate,
    select_candidate,
    variant_with_gains,
)
from relmap.projection.whole_vector import MAX_LABELS
from scipy.stats import t as student

from relmap import InputError
from relmap.decisions import FixedDecisions
from relmap.fitting import correction, model_choice
from relmap.maps.document import Candidate
from relmap.projection.variants import AUTO_VARIANTS, DEPLOYABLE_VARIANTS, VARIANTS

DECISION = np.array([0, 1, 1])
LABEL = np.array([0, 0, 1])
LOGITS = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0]])
WITH_LOGITS = FixedDecisions(decision=DECISION, label=LABEL, logits=LOGITS)
WITH_CONFIDENCE = FixedDecisions(decision=DECISION, label=LABEL, confidence=np.array([0.6, 0.7, 0.9]))
DECISION_ONLY = FixedDecisions(decision=DECISION, label=LABEL)
SIGNALS = np.array([[0.0], [1.0], [2.0]])


def make_candidate(variant: str, loss: float) -> Candidate:
    return Candidate(variant=variant, nll_correct=loss, change=0.0, low=0.0, high=0.0)


def test_available_variants_depend_on_what_the_rows_have():
    with_logits = available_variants(WITH_LOGITS, 2)
    with_confidence = available_variants(WITH_CONFIDENCE, 2)
    assert "label_vector" in with_logits
    assert "label_signals" not in with_logits
    assert with_confidence == tuple(name for name in with_logits if name != "label_vector")
    assert available_variants(WITH_LOGITS, MAX_LABELS) == with_logits
    assert available_variants(WITH_LOGITS, MAX_LABELS + 1) == with_confidence
    assert "label_signals" in available_variants(replace(WITH_LOGITS, signals=SIGNALS), 2)
    assert available_variants(DECISION_ONLY, 2) == ("confidence", "label_intercept")
    with_signals = replace(DECISION_ONLY, signals=SIGNALS)
    assert set(available_variants(with_signals, 2)) == {"confidence", "label_intercept", "label_signals"}
    assert available_variants(WITH_LOGITS, 2, ("mrp", "confidence")) == ("mrp", "confidence")
    assert set(with_logits) <= set(AUTO_VARIANTS)


@pytest.mark.parametrize(
    ("calibrator", "variant", "rows", "n_labels", "message"),
    [
        ("ts", "auto", DECISION_ONLY, 2, "the calibrator ts needs a confidence, and the rows have only decisions"),
        ("platt", "auto", WITH_LOGITS, 2, "unknown calibrator 'platt'; choose one of uncal, ts, "),
        ("ts", "auto", WITH_CONFIDENCE, 2, "ts needs logits or probabilities; .*, use uncal or spline$"),
        ("matrix", "auto", WITH_LOGITS, MAX_CLASSWISE_LABELS + 1, "matrix takes too long for 51 labels; use ts"),
        (
            "ts",
            "label_2d",
            WITH_LOGITS,
            2,
            "the variant 'label_2d', which needs the runner-up .*; choose one of auto",
        ),
        ("ts", "x", WITH_LOGITS, 2, "the variant 'x'; choose one of auto, "),
        ("uncal", "label_vector", WITH_CONFIDENCE, 2, f"needs logits or probabilities of at most {MAX_LABELS} labels;"),
        ("ts", "label_vector", WITH_LOGITS, MAX_LABELS + 1, "label_vector needs logits or probabilities of at most"),
        ("ts", "label_signals", WITH_LOGITS, 2, "the variant label_signals needs signals; provide them, or use"),
        ("constant", "mrp", DECISION_ONLY, 2, "the variant mrp needs a confidence; provide them"),
    ],
)
def test_a_calibrator_or_variant_that_the_rows_do_not_allow_is_rejected(calibrator, variant, rows, n_labels, message):
    with pytest.raises(InputError, match=message):
        check_calibrator_and_variant(calibrator, variant, rows, n_labels)


@pytest.mark.parametrize(
    ("calibrator", "variant", "rows", "n_labels"),
    [
        ("ts", "auto", WITH_LOGITS, MAX_CLASSWISE_LABELS + 1),
        ("matrix", "mrp", WITH_LOGITS, MAX_CLASSWISE_LABELS),
        ("spline", "label_platt", WITH_CONFIDENCE, 2),
        ("constant", "label_intercept", DECISION_ONLY, 2),
        *(("ts", variant, WITH_LOGITS, 2) for variant in DEPLOYABLE_VARIANTS if variant != "label_signals"),
    ],
)
def test_an_allowed_calibrator_and_variant_are_accepted(calibrator, variant, rows, n_labels):
    check_calibrator_and_variant(calibrator, variant, rows, n_labels)


def test_independent_rows_have_the_standard_error_of_a_mean():
    differences = np.array([0.1, 0.4, -0.3, 0.25, 0.05])
    result = MeanDifference.from_differences(differences, group=None)
    assert (result.mean, result.n_units) == (pytest.approx(0.1), 5)
    assert result.standard_error == pytest.approx(differences.std(ddof=1) / np.sqrt(5))


def test_the_standard_error_uses_weights_and_groups():
    """The weighted mean is 2 / 8. The weighted deviations sum to 2 * 0.75 - 0.25 in group a, and to -5 * 0.25 in b."""
    result = MeanDifference.from_differences(
        np.array([1.0, 0.0, 0.0]), group=np.array(["a", "a", "b"]), weight=np.array([2.0, 1.0, 5.0])
    )
    assert (result.mean, result.n_units) == (0.25, 2)
    assert result.standard_error == pytest.approx(np.sqrt(2 / 1 * (1.25**2 + 1.25**2)) / 8)


def test_the_interval_is_the_student_interval_times_a_factor():
    low, high = MeanDifference(mean=0.5, standard_error=0.25, n_units=8).interval
    half_width = student(7).ppf(0.975) * INTERVAL_INFLATION * 0.25
    assert (low, high) == (pytest.approx(0.5 - half_width), pytest.approx(0.5 + half_width))
    single = MeanDifference(mean=0.5, standard_error=0.25, n_units=1).interval
    assert single[1] == pytest.approx(0.5 + student(1).ppf(0.975) * INTERVAL_INFLATION * 0.25)


def test_candidates_are_compared_with_the_confidence_with_weights():
    rows = replace(WITH_CONFIDENCE, weight=np.array([1.0, 2.0, 5.0]))
    losses = {"confidence": np.array([0.5, 0.5, 0.25]), "mrp": np.array([0.25, 0.5, 0.125])}
    confidence, mrp = compare_candidates(losses, rows)
    assert (confidence.variant, confidence.nll_correct) == ("confidence", 2.75 / 8)
    assert (confidence.change, confidence.low, confidence.high) == (0, 0, 0)
    assert (mrp.variant, mrp.nll_correct, mrp.change) == ("mrp", 1.875 / 8, pytest.approx(-0.875 / 8))
    difference = MeanDifference.from_differences(losses["mrp"] - losses["confidence"], None, rows.weight)
    assert (mrp.low, mrp.high) == difference.interval


def test_the_first_of_equal_candidates_has_the_lowest_loss():
    candidates = [make_candidate("confidence", 0.5), make_candidate("label_intercept", 0.4), make_candidate("mrp", 0.4)]
    assert lowest_loss_candidate(candidates).variant == "label_intercept"


@pytest.mark.parametrize(("factor", "selected"), [(0.0, "label_vector"), (1.99, "label_vector"), (2.01, "mrp")])
def test_the_preferred_variant_may_be_two_standard_errors_behind(factor, selected):
    noise = np.array([0.3, -0.3, 0.1, -0.1, 0.2, -0.2])
    excess = noise + factor * noise.std(ddof=1) / np.sqrt(6)
    losses = {"confidence": np.full(6, 2.0), "label_vector": 1.0 + excess, "mrp": np.full(6, 1.0)}
    rows = FixedDecisions(decision=np.zeros(6, dtype=np.int64), label=np.array([0, 1, 0, 1, 0, 0]))
    assert select_candidate(compare_candidates(losses, rows), losses, rows).variant == selected


def test_without_the_preferred_variant_the_lowest_loss_is_selected():
    losses = {"confidence": np.array([0.5, 0.5, 0.5]), "mrp": np.array([0.6, 0.5, 0.3])}
    candidates = compare_candidates(losses, WITH_CONFIDENCE)
    assert select_candidate(candidates, losses, WITH_CONFIDENCE).variant == "mrp"


def test_gains_are_computed_for_the_chosen_variant_or_the_best_alternative():
    candidates = [make_candidate("confidence", 0.1), make_candidate("label_platt", 0.3), make_candidate("mrp", 0.2)]
    assert variant_with_gains("label_platt", candidates) == "label_platt"
    assert variant_with_gains("confidence", candidates) == "mrp"
    assert variant_with_gains("confidence", candidates[:1]) is None


def test_only_scores_that_depend_on_the_confidence_are_corrected():
    assert is_correctable("mrp", WITH_LOGITS)
    assert is_correctable("mrp", WITH_CONFIDENCE)
    assert not is_correctable("confidence", WITH_LOGITS)
    assert not is_correctable("label_intercept", DECISION_ONLY)


def test_the_selection_is_described_with_its_reason():
    best = make_candidate("mrp", 0.41234)
    preferred = make_candidate("label_vector", 0.5)
    confidence = make_candidate("confidence", 0.4)
    assert describe_selection(best, best, 1500, "ts", is_corrected=False) == (
        f"{VARIANTS['mrp'].description}, which has the lowest log loss on 1,500 out-of-fold rows (0.4123)"
    )
    assert describe_selection(preferred, best, 1500, "ts", is_corrected=True) == (
        f"{VARIANTS['label_vector'].description}, which is within 2 standard errors of the lowest log loss "
        f"(that of {VARIANTS['mrp'].title}) on 1,500 out-of-fold rows (0.5000 before its correction)"
    )
    assert describe_selection(confidence, confidence, 9, "spline", is_corrected=False) == (
        "your confidence, calibrated by spline, which has the lowest log loss on 9 out-of-fold rows (0.4000)"
    )


def test_a_kept_confidence_is_described_by_its_calibrator():
    assert describe_kept_confidence(model_choice.CONSTANT_CALIBRATOR) == "the same reliability for every decision"
    assert describe_kept_confidence("uncal") == "your confidence"
    assert describe_kept_confidence("ts") == "your confidence, calibrated by ts"


def test_the_design_effect_is_the_ratio_of_clustered_and_independent_variance():
    """The weighted mean residual is 0.2; the weighted deviations are 0.8 and -0.2, and -1.4 and 0.8, by group."""
    residual = np.array([1.0, 0.0, -0.5, 1.0])
    weight = np.array([1.0, 1.0, 2.0, 1.0])
    group = np.array([0, 0, 1, 1])
    expected = (0.6**2 + 0.6**2) * 2 / 1 / (0.8**2 + 0.2**2 + 1.4**2 + 0.8**2)
    assert expected < 1
    assert correction._design_effect(residual, weight, group) == 1.0

    clustered = np.array([1.0, 1.0, -1.0, -0.5, 0.0])
    deviation = clustered - 0.1
    sums = np.array([deviation[:2].sum(), deviation[2:].sum()])
    assert correction._design_effect(clustered, np.ones(5), np.array([3, 3, 9, 9, 9])) == pytest.approx(
        (sums**2).sum() * 2 / (deviation**2).sum()
    )
    assert correction._design_effect(np.full(4, 0.25), np.ones(4), group) == 1.0


def test_distances_are_the_covered_parts_of_the_intervals():
    distances = correction._interval_distances(np.array([-3.0, 0.5, 7.0]), np.array([-1.0, 2.0]))
    np.testing.assert_array_equal(distances, [[-2, 0, 0], [0, 1.5, 0], [0, 3, 5]])
