"""Fitting a reliability map: agreement with the pipeline, folds, choice of the model and advice."""

import dataclasses
from collections.abc import Iterator
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relmap.fitting.model_choice import AUTO, DEPLOYABLE_VARIANTS, MeanDifference
from relmap.metrics.advice import describe_insufficient_errors
from scipy.special import expit, logit

from relmap.decisions import FixedDecisions
from relmap.fitting import model_choice
from relmap.fitting.cross_fit import fit_calibrator
from relmap.fitting.folds import restore_fold_split, split_folds
from relmap.fitting.labelled_rows import score_out_of_fold
from relmap.maps.document import Candidate
from relmap.maps.reliability_map import FittedMap
from relmap.metrics.reliability import correctness_log_loss
from relmap.metrics.spread import LabelCells
from relmap.splits import select_validation_rows
from tasks.calibrate import calibrate
from tasks.project import project
from tasks.settings.params import load_params
from tests.maps import SETTINGS, fit_map, make_confidence_predictions, make_predictions, rows_of_frame

SMALLEST = SETTINGS.metrics.smallest_reliability
QUICK_PARAMS = SETTINGS.model_copy(update={"projection": SETTINGS.projection.model_copy(update={"epochs": 40})})


@pytest.mark.parametrize(
    ("calibrators", "variants", "split"),
    [
        (load_params().calibrators, ["mrp"], {}),
        (["ts"], ["mrp", "label_platt", "shared_1d", "label_intercept"], {"split": "group", "projection_cap": 200}),
    ],
)
def test_paper_protocol_reproduces_the_pipeline(calibrators, variants, split):
    validation = rows_of_frame(make_predictions(900, seed=0), "group")
    test = rows_of_frame(make_predictions(500, seed=1), "group")
    protocol = SETTINGS.protocol.model_copy(update=split)
    seed = 2
    parts = select_validation_rows(validation, 2, protocol)
    fits = [calibrate.fn(parts, calibrator, seed) for calibrator in calibrators]
    fit_rows = validation if split else dataclasses.replace(validation, group=None)
    projection_params = QUICK_PARAMS.projection.model_copy(
        update={"minimum_rows": 0}
    )  # as the flow does for the data sets of the paper
    projected = project.fn(fits, parts, test, load_params().model_copy(update={"projection": projection_params}), "cpu")

    for pipeline, variant in product(projected.projections, variants):
        document = fit_map(
            fit_rows, variant, pipeline.calibrator, seed, protocol, names=None, params=QUICK_PARAMS
        ).document
        scored = FittedMap.from_document(document)(test)
        np.testing.assert_allclose(scored.reliability, expit(pipeline.reliability_logits[variant]), rtol=0, atol=1e-12)
        confidence = np.exp(pipeline.log_probabilities[np.arange(len(test)), test.decision])
        np.testing.assert_allclose(scored.confidence, confidence, rtol=0, atol=1e-12)
        n_calibrator_rows = len(validation) if pipeline.calibrator == "ts" else len(parts.calibrator_fit)
        assert document.calibrator.rows == n_calibrator_rows
        assert len(parts.projection_selection) == document.held_out.rows
        assert document.folds == ()


@pytest.mark.parametrize("variant", [name for name in DEPLOYABLE_VARIANTS if name != "label_signals"])
def test_every_deployable_variant_can_be_fitted_by_name(variant):
    document = fit_map(rows_of_frame(make_predictions(300)), variant).document
    assert document.projection.name == document.choice.asked == variant


def test_map_reports_rows_and_pooling_of_each_label():
    frame = make_predictions(900)
    logits = np.array(frame["logits"].to_list()) - [0, 0, 6.5]  # the last label is rarely decided
    rows = rows_of_frame(frame.with_columns(logits=pl.Series(logits.tolist())))
    document = fit_map(rows, "mrp").document

    assert document.projection.rows_by_label == tuple(np.bincount(rows.decision, minlength=3))
    assert document.projection.fallback == ("none", "none", "shared")

    lines = fit_map(rows, "mrp").describe()
    assert any("exact" in line and "is mostly pooled with the other labels" in line for line in lines)

    unchanged_rows = rows_of_frame(frame)
    rows_without_a_label = FixedDecisions(
        decision=unchanged_rows.decision, logits=unchanged_rows.logits, label=np.minimum(unchanged_rows.label, 1)
    )  # the last label is never the true one
    warnings = fit_map(rows_without_a_label, "confidence").label_warnings

    assert "Labels that are never decided, or never the true label: exact." in warnings


def test_label_numbering_warning_requires_agreement_below_chance():
    generator = np.random.default_rng(0)
    decision, label = generator.integers(0, 3, (2, 900))
    label = np.where(generator.random(900) < 0.7, 0, decision)  # a poor judge; most labels are 0
    for decided, has_warning in ((decision, False), ((decision + 1) % 3, True)):
        rows = FixedDecisions(decision=decided, label=label)
        text = " ".join(fit_map(rows, calibrator="constant").describe())
        assert "Always deciding the most frequent label" in text
        assert ("check the numbering of the labels" in text) == has_warning


@given(st.integers(60, 400), st.integers(2, 60), st.sampled_from([0, 0.3]), st.sampled_from([50, 10**6]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_folds_are_a_partition_and_keep_groups_together(n, groups, hold_out, cap):
    group = np.random.default_rng(n).integers(0, groups, n).astype(str)
    for names in (None, group):
        split = split_folds(n, names, groups, hold_out=hold_out, max_fit_rows=cap)
        parts = [*split.folds, split.held_out]
        assert sorted(np.concatenate(parts).tolist()) == list(range(n))
        assert all(len(fold) for fold in split.folds)
        if names is not None:
            groups_of_parts = [name for part in parts for name in set(names[part])]
            assert len(groups_of_parts) == len(set(groups_of_parts))
        elif hold_out and cap > n:
            assert len(split.held_out) == round(hold_out * n)


def test_fold_models_have_not_seen_their_groups():
    """Changed labels of one fold change the models of the other folds only."""
    rows = rows_of_frame(make_predictions(1200), "group")
    document = fit_map(rows, "label_platt").document
    division = restore_fold_split(document, rows)
    label = rows.label.copy()
    label[division.folds[2]] = 0
    changed = fit_map(dataclasses.replace(rows, label=label), "label_platt").document
    is_same = [
        before.model_dump_json() == after.model_dump_json()
        for before, after in zip(document.folds, changed.folds, strict=True)
    ]

    assert is_same == [False, False, True, False, False]

    scored = score_out_of_fold(document, rows, division)
    assert document.held_out.quantiles[50] == pytest.approx(np.median(expit(scored.logit)))

    spread = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct).spread()
    assert document.held_out.label_spread == pytest.approx(spread)

    fold_map = FittedMap(document.folds[2].calibrator, document.folds[2].projection)
    np.testing.assert_array_equal(scored.logit[division.folds[2]], fold_map(rows.take(division.folds[2])).logit)


def test_map_is_fitted_to_confidences_with_ties():
    rows = rows_of_frame(make_confidence_predictions(1500, shift=2.5))
    assert {0.9, 0.95, 1.0} <= set(rows.confidence.tolist())
    for calibrator in ("uncal", "spline"):
        result = fit_map(rows, AUTO, calibrator)
        assert result.document.input == "confidence_only"
        assert result.document.projection.name.startswith(("label", "mrp"))
        scored = FittedMap.from_document(result.document)(rows)
        assert np.isfinite(scored.logit).all()
        assert (scored.confidence == rows.confidence).all() == (calibrator == "uncal")  # unchanged to the last bit
        assert result.document.others.recalibrated is None


def test_standard_error_of_a_difference_is_clustered_by_group():
    losses = np.array([1.0, 2.0, 4.0, 5.0])
    group = np.array(["a", "a", "b", "b"])
    by_row = MeanDifference.from_differences(losses, None)
    by_group = MeanDifference.from_differences(losses, group)

    assert by_row.mean == by_group.mean == 3
    assert by_row.standard_error == pytest.approx(losses.std(ddof=1) / 2)
    # two groups whose sums lie 3 above and below their mean: sqrt(2 / 1 * (9 + 9)) / 4
    assert by_group.standard_error == pytest.approx(1.5)

    rows = FixedDecisions(decision=np.zeros(4, dtype=int), group=group)
    best, other = model_choice.compare_candidates({"confidence": losses - losses, "mrp": losses}, rows)
    assert (best.low, best.change, best.high) == (0, 0, 0)
    assert (other.change, other.high - other.low) == (
        3,
        pytest.approx(2 * 12.706 * model_choice.INTERVAL_INFLATION * 1.5, rel=1e-4),
    )


@pytest.mark.parametrize("rarer", [True, False])
def test_choice_requires_ten_correct_and_ten_wrong_decisions(rarer):
    nine = describe_insufficient_errors(300, 300 - 9 if rarer else 9)
    ten = describe_insufficient_errors(300, 300 - 10 if rarer else 10)
    assert (nine.split(",")[0], ten) == (f"9 of 300 decisions are {'correct' if rarer else 'wrong'}", "")


def simulate_choices(n_sets: int, shift: float, n: int) -> Iterator[tuple[Candidate, float]]:
    """Yield the candidate chosen for each simulated data set, and its change of the log loss on 10,000 new rows."""
    for seed in range(n_sets):
        n_labels = (2, 3, 5)[seed % 3]
        rows = rows_of_frame(make_predictions(n, n_labels, shift=shift, seed=seed), n_labels=n_labels)
        fresh = rows_of_frame(make_predictions(10_000, n_labels, shift=shift, seed=(10**6 + seed)), n_labels=n_labels)
        document = fit_map(rows, names=None, params=QUICK_PARAMS).document
        scored = FittedMap.from_document(document)(fresh)
        losses = (correctness_log_loss(t, fresh.correct, SMALLEST) for t in (scored.logit, logit(scored.confidence)))
        name = document.projection.name
        chosen = next(candidate for candidate in document.choice.candidates if candidate.variant == name)
        yield chosen, float(np.subtract(*losses).mean())


@pytest.mark.parametrize(
    ("mrp_change", "vector_change", "selected"),
    [
        (-0.1, -0.2, "label_vector"),
        (-0.2, -0.17, "label_vector"),
        (-0.2, -0.1, "mrp"),
        (0.02, 0.01, "label_vector"),
        (0.02, 0.05, "confidence"),
    ],
)
def test_whole_vector_is_selected_unless_another_is_two_standard_errors_better(mrp_change, vector_change, selected):
    noise = np.tile([-0.3, 0.3], 100)  # a standard error of .02
    losses = {
        "confidence": np.ones(200),
        "mrp": 1 + mrp_change - noise / 2,
        "label_vector": 1 + vector_change + noise / 2,
    }
    rows = rows_of_frame(make_predictions(200))
    compared = model_choice.compare_candidates(losses, rows)
    assert model_choice.select_candidate(compared, losses, rows).variant == selected
    assert (
        model_choice.select_candidate(compared[:2], losses, rows).variant
        == model_choice.lowest_loss_candidate(compared[:2]).variant
    )


@pytest.mark.parametrize("n_sets", [3, pytest.param(200, marks=pytest.mark.study)])
@pytest.mark.parametrize("n", [300, 1000])
def test_choice_without_label_spread_rarely_claims_a_gain_and_costs_little(n_sets, n):
    chosen, change = zip(*simulate_choices(n_sets, 0.0, n), strict=True)
    assert np.mean([candidate.high < 0 for candidate in chosen]) <= 0.05
    assert np.mean(change) <= (0.001 if n_sets == 200 else 0.003)


@pytest.mark.parametrize("n_sets", [3, pytest.param(200, marks=pytest.mark.study)])
def test_choice_with_label_spread_gains_within_its_interval(n_sets):
    pairs = list(simulate_choices(n_sets, 1.5, 600))
    assert np.mean([change for _, change in pairs]) < -0.03
    assert np.mean([chosen.low <= change <= chosen.high for chosen, change in pairs]) >= (
        0.92 if n_sets == 200 else 0.5
    )


def test_gain_is_reported_for_fewer_rows():
    document = fit_map(rows_of_frame(make_predictions(2500, shift=2.5)), "label_platt").document
    gains = document.choice.gains
    last = gains[-1]

    assert [gain.rows for gain in gains] == [100, 300, 1000, 2500]
    assert last.nll_correct < gains[0].nll_correct
    assert last.nll_correct < -2 * last.nll_correct_standard_error
    assert last.aurc < 0

    change = {candidate.variant: candidate.change for candidate in document.choice.candidates}
    assert last.nll_correct == pytest.approx(change["label_platt"])


def test_matrix_scaling_is_recommended_where_it_is_as_good():
    rows = rows_of_frame(make_predictions(1500, shift=2.5))
    result = fit_map(rows)
    division = restore_fold_split(result.document, rows)
    n = len(rows)
    loss = np.empty(n)
    is_changed = np.empty(n)
    for number, fold in enumerate(division.folds):
        matrix = fit_calibrator("matrix", rows.take(division.training_rows(number)), seed=1)
        unseen = rows.take(fold)
        loss[fold] = correctness_log_loss(FittedMap(matrix)(unseen).logit, unseen.correct, SMALLEST)
        is_changed[fold] = matrix(unseen.logits).argmax(axis=1) != unseen.decision
    expected_loss = correctness_log_loss(
        score_out_of_fold(result.document, rows, division).logit, rows.correct, SMALLEST
    )
    recalibrated = result.document.others.recalibrated

    assert recalibrated.change == pytest.approx((loss - expected_loss).mean())
    assert recalibrated.decisions_changed == is_changed.mean()

    text = "\n".join(result.describe(target=0.001))
    assert "more labelled rows, that interval would be half as wide" in text
    assert "For an interval of ±0.001" in text
    assert "between decided labels, more than between shuffled labels" in text


def test_weights_change_the_choice_like_repeated_rows():
    """The rows of the miscalibrated label have ten times the weight of the others."""
    frame = make_predictions(1200, shift=2.0)
    candidates = fit_map(rows_of_frame(frame)).document.choice.candidates
    weight = pl.when(pl.col("logits").list.arg_max() == 1).then(10.0).otherwise(1.0)
    weighted_candidates = fit_map(
        rows_of_frame(frame.with_columns(inverse_probability=weight))
    ).document.choice.candidates
    gain = next(candidate.change for candidate in candidates if candidate.variant == "label_platt")
    weighted_gain = next(candidate.change for candidate in weighted_candidates if candidate.variant == "label_platt")

    assert weighted_gain < 1.5 * gain < 0


def test_the_same_rows_give_the_same_map():
    rows = rows_of_frame(make_predictions(600), "group")
    assert fit_map(rows).document.model_dump_json() == fit_map(rows).document.model_dump_json()
