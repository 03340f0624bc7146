"""A fitted map stores the parts of its cross-fit, and its fit returns the scores of the same rows."""

import re
from dataclasses import replace

import numpy as np
import pytest

from relmap.calibrators.temperature import Temperature
from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.io.signals import NumberSignal, Signal
from relmap.maps.cross_fit import CrossFit, cross_fit
from relmap.maps.document import Source
from relmap.maps.fit import MAX_CLASSWISE_LABELS, MapFit, check_calibrator, fit_labelled_rows
from relmap.maps.fit_rows import hash_training_rows
from relmap.maps.folds import paper_fit_rows, split_folds
from relmap.maps.held_out import (
    compute_default_threshold,
    summarize_out_of_fold_rows,
    summarize_reference_cells,
    summarize_top_cells,
)
from relmap.maps.labelled_rows import LabelledRows
from relmap.maps.options import FitOptions
from relmap.metrics.spread import LabelCells
from tests import maps

N_ROWS = 90
SETTINGS = maps.SETTINGS.model_copy(
    update={
        "metrics": maps.SETTINGS.metrics.model_copy(
            update={"resamples": 40, "spread_minimum_cell": 2, "spread_groups": 3}
        ),
    }
)
SOURCE = maps.SOURCE.model_copy(update={"rows": N_ROWS, "seed": 6, "group": "group", "hold_out": 0.2})
NAMES = ("a", "b", "c", "d")
IDS = np.array([f"r{7 * row}" for row in range(N_ROWS)])


def make_rows() -> FixedDecisions:
    """Make rows of unequal weight whose predictions repeat; the fourth label has no row."""
    frame = maps.make_predictions(N_ROWS, shift=2.5, per_group=4)
    rows = maps.rows_of_frame(frame, "group")
    logits = np.column_stack([np.round(rows.logits), np.full(N_ROWS, -4.0)])
    weight = np.random.default_rng(3).uniform(0.2, 5, N_ROWS)
    return replace(rows, logits=logits, decision=logits.argmax(axis=1), weight=weight)


ROWS = make_rows()
SPLIT = split_folds(N_ROWS, ROWS.group, 6, hold_out=0.2)


def fit(
    variant: str,
    *,
    rows: FixedDecisions = ROWS,
    source: Source = SOURCE,
    names: tuple[str, ...] | None = NAMES,
    signals: tuple[Signal, ...] = (),
) -> MapFit:
    labelled = LabelledRows(rows, n_labels=4, signals=signals, notes=[], names=names, ids=IDS, id_column="pair")
    return fit_with(labelled, FitOptions(calibrator="diag", variant=variant), source)


def fit_with(labelled: LabelledRows, options: FitOptions, source: Source = SOURCE) -> MapFit:
    options = replace(
        options, seed=source.seed, hold_out=source.hold_out, protocol="paper" if source.protocol else "own"
    )
    return fit_labelled_rows(labelled, options, source, SETTINGS)


def without_ids(rows: FixedDecisions) -> LabelledRows:
    return LabelledRows(rows, n_labels=4, signals=(), notes=[], names=None, ids=None, id_column=None)


@pytest.fixture(scope="module")
def result() -> CrossFit:
    options = FitOptions(calibrator="diag", variant="label_platt", seed=6)
    return cross_fit(ROWS, SPLIT, 4, options, SETTINGS)


@pytest.fixture(scope="module")
def fitted() -> MapFit:
    return fit("label_platt")


def test_a_map_stores_the_parts_of_the_cross_fit(result, fitted):
    document = fitted.document
    assert (document.input, document.n_labels, document.label_names) == ("logits", 4, NAMES)
    assert (document.calibrator.name, document.calibrator.rows) == ("diag", len(SPLIT.fit_rows))
    np.testing.assert_array_equal(document.calibrator.fitted.factors, result.deployed.calibrator.factors)
    decisions = ROWS.decision[SPLIT.fit_rows]
    assert (document.projection.name, document.projection.rows) == ("label_platt", len(decisions))
    assert document.projection.rows_by_label == tuple(np.bincount(decisions, minlength=4).tolist())
    assert (document.signals, document.baseline, document.earlier_version) == ((), None, None)
    assert document.default_threshold == compute_default_threshold(result)
    stored = [fold.calibrator.factors.tolist() for fold in document.folds]
    assert stored == [fold.calibrator.factors.tolist() for fold in result.folds]
    expected = hash_training_rows(ROWS, SPLIT.folds, SOURCE, ids=IDS, id_column="pair")
    assert expected.by == "id"
    assert document.source == SOURCE.model_copy(update={"training_rows": expected})


def test_a_classwise_calibrator_is_compared_with_temperature_scaling():
    document = fit_with(without_ids(ROWS), FitOptions(variant="confidence")).document
    assert (document.calibrator.name, document.baseline.name) == ("sms", "ts")
    assert isinstance(document.baseline.fitted, Temperature)
    assert all(isinstance(fold.baseline, Temperature) for fold in document.folds)


def test_a_fit_returns_its_out_of_fold_scores_in_the_order_of_the_rows(result, fitted):
    order = np.argsort(SPLIT.fit_rows)
    np.testing.assert_array_equal(fitted.scored.logit, result.scored.logit[order])
    np.testing.assert_array_equal(fitted.scored.confidence, result.scored.confidence[order])
    np.testing.assert_array_equal(fitted.rows.logits, ROWS.logits[np.sort(SPLIT.fit_rows)])
    assert re.search(r"never .*: d\.$", fitted.label_warnings[0])


def test_summary_of_out_of_fold_rows_equals_its_parts(result, fitted):
    rows = result.rows
    scored = result.scored
    summary = summarize_out_of_fold_rows(result, 4, SETTINGS.metrics)
    assert fitted.document.held_out == summary
    cells = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct, SETTINGS.metrics)
    assert (summary.rows, summary.label_spread) == (len(rows), pytest.approx(cells.spread()))
    assert summary.label_spread_shuffled == pytest.approx(cells.shuffled_quantile(0))
    np.testing.assert_allclose(summary.quantiles, np.quantile(scored.reliability, np.linspace(0, 1, 101)))
    halves, reference = summarize_reference_cells(scored.reliability, rows.decision, rows.correct, rows.group, 4)
    assert (summary.halves, summary.cells) == (halves, reference)
    assert summary.top == summarize_top_cells(scored.reliability, rows.correct, rows.group, summary.quantiles)


def test_map_without_names_has_none():
    assert fit("confidence", names=None).document.label_names is None
    assert fit("confidence", names=()).document.label_names is None


def test_signals_are_stored_with_one_weight_each():
    values = np.random.default_rng(0).normal(size=(N_ROWS, 1))
    signals = (NumberSignal(name="length", mean=0.1, deviation=1.5, lowest=-2.0, highest=2.5),)
    document = fit("mrp_pooled", rows=replace(ROWS, signals=values), signals=signals).document
    assert document.signals == signals
    assert document.projection.fitted.weights.shape == (1,)


def test_map_of_the_paper_protocol_has_no_folds_and_one_list_of_hashes():
    source = SOURCE.model_copy(update={"protocol": SETTINGS.protocol, "hold_out": 0.0})
    document = fit("label_intercept", source=source).document
    fitted_part = paper_fit_rows(source, ROWS, document.calibrator.fitted)
    assert document.folds == ()
    assert document.source.training_rows == hash_training_rows(ROWS, (fitted_part,), source, ids=IDS, id_column="pair")


@pytest.mark.parametrize(
    ("variant", "n_rows", "message"),
    [
        ("mrp2", N_ROWS, "variant 'mrp2'"),
        ("auto", N_ROWS, "variant auto .*--variant"),
        ("label_2d", N_ROWS, "variant 'label_2d'"),
        ("mrp_pooled", 2, r"hold-out of 0\.2 of 2 rows"),
    ],
)
def test_rows_and_variant_are_checked_before_the_fit(variant, n_rows, message):
    with pytest.raises(InputError, match=message):
        fit(variant, rows=ROWS.take(slice(n_rows)))


@pytest.mark.parametrize(("calibrator", "is_slow"), [("vector", True), ("matrix", True), ("sms", False), ("ts", False)])
def test_only_vector_and_matrix_scaling_have_a_largest_number_of_labels(calibrator, is_slow):
    check_calibrator(calibrator, ROWS, MAX_CLASSWISE_LABELS)
    n_labels = MAX_CLASSWISE_LABELS + 1
    if not is_slow:
        check_calibrator(calibrator, ROWS, n_labels)
        return
    with pytest.raises(InputError, match=rf"calibrator {calibrator} .*\b{n_labels} labels"):
        check_calibrator(calibrator, ROWS, n_labels)


def test_fit_that_a_map_cannot_store_is_rejected():
    rows = replace(ROWS, logits=ROWS.logits * 1e-250)
    with pytest.raises(InputError, match=r"cannot store.*\(.+\),.*logits.* ts$"):
        fit_with(without_ids(rows), FitOptions(calibrator="matrix", variant="confidence"))
