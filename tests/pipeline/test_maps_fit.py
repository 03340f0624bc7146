"""Fitting a reliability map: agreement with the pipeline, folds, and what is measured of it."""

import dataclasses
import re
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from relmap.calibrators.registry import CALIBRATORS
from relmap.decisions import FixedDecisions
from relmap.evaluation.assessment import describe_fit
from relmap.maps.fit_rows import score_out_of_fold
from relmap.maps.folds import restore_fold_split, split_folds
from relmap.maps.score import FittedMap
from relmap.metrics.spread import LabelCells
from relmap.projection.registry import DEPLOYABLE_VARIANTS
from relmap.projection.rows import select_validation_rows
from tasks.calibrate import calibrate
from tasks.project import project
from tasks.settings.params import load_params
from tests.maps import SETTINGS, fit_map, make_confidence_predictions, make_predictions, rows_of_frame

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
        # the published fit computes in single precision
        tolerance = 1e-12 if CALIBRATORS[pipeline.calibrator].published_fit is None else 1e-5
        reliability = expit(pipeline.reliability_logits[variant])
        np.testing.assert_allclose(scored.reliability, reliability, rtol=0, atol=tolerance)
        confidence = np.exp(pipeline.log_probabilities[np.arange(len(test)), test.decision])
        np.testing.assert_allclose(scored.confidence, confidence, rtol=0, atol=tolerance)
        n_calibrator_rows = len(validation) if pipeline.calibrator == "ts" else len(parts.calibrator_fit)
        assert document.calibrator.rows == n_calibrator_rows
        assert len(parts.projection_selection) == document.held_out.rows
        assert document.folds == ()


@pytest.mark.parametrize("variant", DEPLOYABLE_VARIANTS)
def test_every_deployable_variant_can_be_fitted_by_name(variant):
    document = fit_map(rows_of_frame(make_predictions(300)), variant).document
    assert document.projection.name == variant


def test_the_default_is_pooled_mrp_on_structured_matrix_scaling():
    document = fit_map(rows_of_frame(make_predictions(300))).document
    assert (document.projection.name, document.calibrator.name, document.baseline.name) == ("mrp_pooled", "sms", "ts")


def test_map_reports_rows_and_pooling_of_each_label():
    frame = make_predictions(900)
    logits = np.array(frame["logits"].to_list()) - [0, 0, 6.5]  # the last label is rarely decided
    rows = rows_of_frame(frame.with_columns(logits=pl.Series(logits.tolist())))
    result = fit_map(rows, calibrator="ts")
    document = result.document

    assert document.projection.rows_by_label == tuple(np.bincount(rows.decision, minlength=3))
    assert document.projection.fallback == ("none", "none", "shared")

    assert any("exact" in line and "common curve" in line for line in describe_fit(result).notes)

    unchanged_rows = rows_of_frame(frame)
    rows_without_a_label = FixedDecisions(
        decision=unchanged_rows.decision, logits=unchanged_rows.logits, label=np.minimum(unchanged_rows.label, 1)
    )  # the last label is never the true one
    warnings = fit_map(rows_without_a_label, "confidence").label_warnings

    assert any(re.search(r"never decided.*: exact\.$", warning) for warning in warnings)


def test_label_numbering_warning_requires_agreement_below_chance():
    generator = np.random.default_rng(0)
    decision, label = generator.integers(0, 3, (2, 900))
    label = np.where(generator.random(900) < 0.7, 0, decision)  # a poor judge; most labels are 0
    for decided, has_warning in ((decision, False), ((decision + 1) % 3, True)):
        rows = FixedDecisions(decision=decided, label=label)
        text = " ".join(describe_fit(fit_map(rows)).lines)
        assert re.search(rf"most frequent .* {100 * (label == 0).mean():.1f}%", text)
        assert ("numbering" in text) == has_warning


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
    document = fit_map(rows, "label_platt", "uncal").document
    division = restore_fold_split(document, rows)
    label = rows.label.copy()
    label[division.folds[2]] = 0
    changed = fit_map(dataclasses.replace(rows, label=label), "label_platt", "uncal").document
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


def test_the_confidence_of_decisions_without_confidence_ranks_no_row():
    frame = make_confidence_predictions(600).drop("confidence")
    rows = rows_of_frame(frame)
    numbers = describe_fit(fit_map(rows)).numbers
    assert numbers["errors_found"]["by_confidence"] == pytest.approx(1000 * (1 - rows.correct.mean()))


def test_map_is_fitted_to_confidences_with_ties():
    rows = rows_of_frame(make_confidence_predictions(1500, shift=2.5))
    assert {0.9, 0.95, 1.0} <= set(rows.confidence.tolist())
    for calibrator in ("uncal", "spline"):
        result = fit_map(rows, calibrator=calibrator)
        assert result.document.input == "confidence_only"
        assert result.document.projection.name == "mrp_pooled"
        scored = FittedMap.from_document(result.document)(rows)
        assert np.isfinite(scored.logit).all()
        assert (scored.confidence == rows.confidence).all() == (calibrator == "uncal")  # unchanged to the last bit


def test_the_same_rows_give_the_same_map():
    rows = rows_of_frame(make_predictions(600), "group")
    assert fit_map(rows).document.model_dump_json() == fit_map(rows).document.model_dump_json()
