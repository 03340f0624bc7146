"""Fitting a reliability map: the pipeline's numbers, folds that see nothing of each other, and honest advice."""

import dataclasses
from collections.abc import Iterator
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from relmap.decisions import FixedDecisions
from relmap.fitting import model_choice
from relmap.fitting.cross_fit import fit_calibrator
from relmap.fitting.folds import restore_fold_split, split_folds
from relmap.fitting.labelled_rows import score_out_of_fold
from relmap.fitting.model_choice import AUTO, DEPLOYABLE_VARIANTS, MeanDifference
from relmap.io.rows import PredictedRows
from relmap.maps.document import Candidate
from relmap.maps.reliability_map import FittedMap
from relmap.metrics.advice import describe_insufficient_errors
from relmap.metrics.reliability import correctness_log_loss
from relmap.metrics.spread import LabelCells
from relmap.splits import select_validation_rows
from tasks.calibrate import calibrate
from tasks.project import project
from tasks.settings.params import load_params
from tests.maps import SETTINGS, fit_map, make_confidence_predictions, make_predictions, rows_of_frame

SMALLEST = SETTINGS.metrics.smallest_reliability
QUICK = SETTINGS.model_copy(update={"projection": SETTINGS.projection.model_copy(update={"epochs": 40})})


@pytest.mark.parametrize(
    ("calibrators", "variants", "split"),
    [
        (load_params().calibrators, ["mrp"], {}),
        (["ts"], ["mrp", "label_platt", "shared_1d", "label_intercept"], {"split": "group", "projection_cap": 200}),
    ],
)
def test_under_the_papers_protocol_the_same_rows_give_the_pipelines_numbers(calibrators, variants, split):
    behind, new = (rows_of_frame(make_predictions(n, seed=seed), "group") for seed, n in enumerate((900, 500)))
    validation, test = (FixedDecisions(rows.logits, rows.label, rows.decision, rows.group) for rows in (behind, new))
    protocol, seed = SETTINGS.protocol.model_copy(update=split), 2
    parts = select_validation_rows(validation, 2, protocol)
    fits = [calibrate.fn(parts, calibrator, seed) for calibrator in calibrators]
    behind = behind if split else dataclasses.replace(behind, group=None)
    alone = QUICK.projection.model_copy(update={"minimum_rows": 0})  # as the flow has it for the paper's sets
    projected = project.fn(fits, parts, test, load_params().model_copy(update={"projection": alone}), "cpu")
    for pipeline, variant in product(projected.projections, variants):
        document = fit_map(behind, variant, pipeline.calibrator, seed, protocol, names=None, params=QUICK).document
        scored = FittedMap.from_document(document)(new)
        np.testing.assert_allclose(scored.reliability, expit(pipeline.reliability_logits[variant]), rtol=0, atol=1e-12)
        confidence = np.exp(pipeline.log_probabilities[np.arange(len(new)), new.decision])
        np.testing.assert_allclose(scored.confidence, confidence, rtol=0, atol=1e-12)
        fitted_on = len(validation) if pipeline.calibrator == "ts" else len(parts.calibrator_fit)
        assert document.calibrator.rows == fitted_on
        assert len(parts.projection_selection) == document.held_out.rows
        assert document.folds == ()


@pytest.mark.parametrize("variant", [name for name in DEPLOYABLE_VARIANTS if name != "label_signals"])
def test_every_variant_that_a_map_can_hold_is_fitted_by_its_name(variant):
    document = fit_map(rows_of_frame(make_predictions(300)), variant).document
    assert document.projection.name == document.choice.asked == variant


def test_a_map_says_how_many_rows_are_behind_each_label_and_which_leans_on_the_others():
    made = make_predictions(900)
    logits = np.array(made["logits"].to_list()) - [0, 0, 6.5]  # the last label is hardly ever decided
    rows = rows_of_frame(made.with_columns(logits=pl.Series(logits.tolist())))
    document = fit_map(rows, "mrp").document
    assert document.projection.rows_by_label == tuple(np.bincount(rows.decision, minlength=3))
    assert document.projection.fallback == ("none", "none", "shared")
    lines = fit_map(rows, "mrp").describe()
    assert any("exact" in line and "is mostly pooled with the other labels" in line for line in lines)
    plain = rows_of_frame(made)
    never = PredictedRows(plain.logits, None, plain.decision, np.minimum(plain.label, 1), None)  # decided all the same
    warnings = fit_map(never, "confidence").label_warnings
    assert "Labels that are never decided, or never the true label: exact." in warnings


def test_numbers_of_labels_are_doubted_only_where_decisions_agree_less_than_by_chance():
    generator = np.random.default_rng(0)
    decision, label = generator.integers(0, 3, (2, 900))
    label = np.where(generator.random(900) < 0.7, 0, decision)  # a bad judge, of labels of which most are 0
    for decided, doubted in ((decision, False), ((decision + 1) % 3, True)):
        rows = PredictedRows(None, None, decided, label, None)
        said = " ".join(fit_map(rows, calibrator="constant").describe())
        assert "Always deciding the most frequent label" in said
        assert ("check the numbering of the labels" in said) == doubted


@given(st.integers(60, 400), st.integers(2, 60), st.sampled_from([0, 0.3]), st.sampled_from([50, 10**6]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_every_row_is_dealt_once_and_no_group_is_parted(n, groups, hold_out, cap):
    group = np.random.default_rng(n).integers(0, groups, n).astype(str)
    for names in (None, group):
        dealt = split_folds(n, names, groups, hold_out=hold_out, max_fit_rows=cap)
        parts = [*dealt.folds, dealt.held_out]
        assert sorted(np.concatenate(parts).tolist()) == list(range(n))
        assert all(len(fold) for fold in dealt.folds)
        if names is not None:
            seen = [name for part in parts for name in set(names[part])]
            assert len(seen) == len(set(seen))
        elif hold_out and cap > n:
            assert len(dealt.held_out) == round(hold_out * n)


def test_what_judges_a_row_has_not_seen_its_group():
    """Other labels in one fold move the fits of the others alone, and what is deployed."""
    rows = rows_of_frame(make_predictions(1200), "group")
    document = fit_map(rows, "label_platt").document
    division = restore_fold_split(document, rows)
    label = rows.label.copy()
    label[division.folds[2]] = 0
    other = fit_map(dataclasses.replace(rows, label=label), "label_platt").document
    same = [
        before.model_dump_json() == after.model_dump_json()
        for before, after in zip(document.folds, other.folds, strict=True)
    ]
    assert same == [False, False, True, False, False]
    scored = score_out_of_fold(document, rows, division)
    assert document.held_out.quantiles[50] == pytest.approx(np.median(expit(scored.logit)))
    spread = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct).spread()
    assert document.held_out.label_spread == pytest.approx(spread)
    apart = FittedMap(document.folds[2].calibrator, document.folds[2].projection)
    np.testing.assert_array_equal(scored.logit[division.folds[2]], apart(rows.take(division.folds[2])).logit)


def test_label_and_confidence_alone_are_enough_ties_and_round_numbers_included():
    rows = rows_of_frame(make_confidence_predictions(1500, shift=2.5))
    assert {0.9, 0.95, 1.0} <= set(rows.confidence.tolist())
    for calibrator in ("uncal", "spline"):
        result = fit_map(rows, AUTO, calibrator)
        assert result.document.input == "confidence_only"
        assert result.document.projection.name.startswith(("label", "mrp"))
        scored = FittedMap.from_document(result.document)(rows)
        assert np.isfinite(scored.logit).all()
        assert (scored.confidence == rows.confidence).all() == (calibrator == "uncal")  # kept to the last bit
        assert result.document.others.recalibrated is None


def test_the_standard_error_is_that_of_the_difference_by_group():
    losses, group = np.array([1.0, 2.0, 4.0, 5.0]), np.array(["a", "a", "b", "b"])
    by_row, by_group = MeanDifference.from_differences(losses, None), MeanDifference.from_differences(losses, group)
    assert by_row.mean == by_group.mean == 3
    assert by_row.standard_error == pytest.approx(losses.std(ddof=1) / 2)
    # two groups whose sums lie 3 above and below their mean: sqrt(2 / 1 * (9 + 9)) / 4
    assert by_group.standard_error == pytest.approx(1.5)
    rows = PredictedRows(None, None, np.zeros(4, dtype=int), None, group)
    best, other = model_choice.compare_candidates({"confidence": losses - losses, "mrp": losses}, rows)
    assert (best.low, best.change, best.high) == (0, 0, 0)
    assert (other.change, other.high - other.low) == (
        3,
        pytest.approx(2 * 12.706 * model_choice.INTERVAL_INFLATION * 1.5, rel=1e-4),
    )


@pytest.mark.parametrize("rarer", [True, False])
def test_it_takes_ten_correct_and_ten_wrong_decisions_to_choose(rarer):
    nine, ten = (describe_insufficient_errors(300, 300 - few if rarer else few) for few in (9, 10))
    assert (nine.split(",")[0], ten) == (f"9 of 300 decisions are {'right' if rarer else 'wrong'}", "")


def simulated(sets: int, shift: float, n: int) -> Iterator[tuple[Candidate, float]]:
    """What auto takes of several sets, and what it gains on 10,000 fresh rows: log loss less that of the confidence."""
    for seed in range(sets):
        n_labels = (2, 3, 5)[seed % 3]
        rows, fresh = (
            rows_of_frame(make_predictions(count, n_labels, shift=shift, seed=at), n_labels=n_labels)
            for count, at in ((n, seed), (10_000, 10**6 + seed))
        )
        document = fit_map(rows, names=None, params=QUICK).document
        scored = FittedMap.from_document(document)(fresh)
        losses = (correctness_log_loss(t, fresh.correct, SMALLEST) for t in (scored.logit, logit(scored.confidence)))
        name = document.projection.name
        chosen = next(each for each in document.choice.candidates if each.variant == name)
        yield chosen, float(np.subtract(*losses).mean())


@pytest.mark.parametrize(
    ("mrp", "vector", "taken"),
    [
        (-0.1, -0.2, "label_vector"),
        (-0.2, -0.17, "label_vector"),
        (-0.2, -0.1, "mrp"),
        (0.02, 0.01, "label_vector"),
        (0.02, 0.05, "confidence"),
    ],
)
def test_the_whole_vector_is_taken_unless_another_is_more_than_two_standard_errors_better(mrp, vector, taken):
    noise = np.tile([-0.3, 0.3], 100)  # a standard error of .02
    losses = {"confidence": np.ones(200), "mrp": 1 + mrp - noise / 2, "label_vector": 1 + vector + noise / 2}
    rows = rows_of_frame(make_predictions(200))
    judged = model_choice.compare_candidates(losses, rows)
    assert model_choice.select_candidate(judged, losses, rows).variant == taken
    assert (
        model_choice.select_candidate(judged[:2], losses, rows).variant
        == model_choice.lowest_loss_candidate(judged[:2]).variant
    )


@pytest.mark.parametrize("sets", [3, pytest.param(200, marks=pytest.mark.study)])
@pytest.mark.parametrize("n", [300, 1000])
def test_without_a_label_spread_hardly_a_gain_is_claimed_and_what_is_chosen_costs_next_to_nothing(sets, n):
    chosen, change = zip(*simulated(sets, 0.0, n), strict=True)
    assert np.mean([candidate.high < 0 for candidate in chosen]) <= 0.05
    assert np.mean(change) <= (0.001 if sets == 200 else 0.003)


@pytest.mark.parametrize("sets", [3, pytest.param(200, marks=pytest.mark.study)])
def test_with_a_label_spread_the_gain_is_had_and_lies_in_its_interval(sets):
    pairs = list(simulated(sets, 1.5, 600))
    assert np.mean([change for _, change in pairs]) < -0.03
    assert np.mean([chosen.low <= change <= chosen.high for chosen, change in pairs]) >= (0.92 if sets == 200 else 0.5)


def test_the_gain_is_told_for_fewer_rows_and_shrinks_with_them():
    document = fit_map(rows_of_frame(make_predictions(2500, shift=2.5)), "label_platt").document
    gains, last = document.choice.gains, document.choice.gains[-1]
    assert [gain.rows for gain in gains] == [100, 300, 1000, 2500]
    assert last.nll_correct < gains[0].nll_correct
    assert last.nll_correct < -2 * last.nll_correct_standard_error
    assert last.aurc < 0
    change = {candidate.variant: candidate.change for candidate in document.choice.candidates}
    assert last.nll_correct == pytest.approx(change["label_platt"])


def test_matrix_scaling_is_recommended_where_it_does_as_well():
    rows = rows_of_frame(make_predictions(1500, shift=2.5))
    result = fit_map(rows)
    division, n = restore_fold_split(result.document, rows), len(rows)
    loss, moved = np.empty(n), np.empty(n)
    for place, fold in enumerate(division.folds):
        matrix, unseen = fit_calibrator("matrix", rows.take(division.training_rows(place)), seed=1), rows.take(fold)
        loss[fold] = correctness_log_loss(FittedMap(matrix)(unseen).logit, unseen.correct, SMALLEST)
        moved[fold] = matrix(unseen.logits).argmax(axis=1) != unseen.decision
    ours = correctness_log_loss(score_out_of_fold(result.document, rows, division).logit, rows.correct, SMALLEST)
    recalibrated = result.document.others.recalibrated
    assert recalibrated.change == pytest.approx((loss - ours).mean())
    assert recalibrated.decisions_changed == moved.mean()
    said = "\n".join(result.describe(target=0.001))
    assert "more labelled rows, that interval would be half as wide" in said
    assert "For an interval of ±0.001" in said
    assert "between decided labels, more than between shuffled labels" in said


def test_weights_move_the_choice_as_repeated_rows_would():
    """The rows of the label that is off count ten times as much as the others."""
    frame = make_predictions(1200, shift=2.0)
    plain = fit_map(rows_of_frame(frame)).document.choice.candidates
    weight = pl.when(pl.col("logits").list.arg_max() == 1).then(10.0).otherwise(1.0)
    weighted = fit_map(rows_of_frame(frame.with_columns(inverse_probability=weight))).document.choice.candidates
    gain, more = (next(each.change for each in all_ if each.variant == "label_platt") for all_ in (plain, weighted))
    assert more < 1.5 * gain < 0


def test_the_same_rows_give_the_same_map():
    rows = rows_of_frame(make_predictions(600), "group")
    assert fit_map(rows).document.model_dump_json() == fit_map(rows).document.model_dump_json()
