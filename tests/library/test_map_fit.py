"""A fitted map stores the parts of its model choice, and its fit returns the numbers of the same rows."""

from dataclasses import replace

import numpy as np
import pytest
from relmap.fitting.model_choice import ModelChoice, choose_model

from relmap.decisions import FixedDecisions
from relmap.errors import InputError
from relmap.evaluation.drift import summarize_reference_cells, summarize_top_cells
from relmap.fitting import map_fit
from relmap.fitting.folds import paper_fit_rows, split_folds
from relmap.fitting.map_fit import MapFit, compute_default_threshold, fit_labelled_rows, summarize_out_of_fold_rows
from relmap.fitting.training_rows import hash_training_rows
from relmap.io.signals import NumberSignal, Signal
from relmap.maps.document import Source
from relmap.metrics.spread import LabelCells
from tests import maps

N_ROWS = 90
SETTINGS = maps.SETTINGS.model_copy(
    update={
        "metrics": maps.SETTINGS.metrics.model_copy(
            update={"resamples": 40, "smallest_relevant_change": 0.0123, "spread_minimum_cell": 2, "spread_groups": 3}
        ),
        "learning_curve_rows": (30,),
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
    return fit_labelled_rows(
        rows,
        source,
        SETTINGS,
        calibrator="diag",
        variant=variant,
        n_labels=4,
        names=names,
        signals=signals,
        ids=IDS,
        id_column="pair",
    )


@pytest.fixture(scope="module")
def model() -> ModelChoice:
    return choose_model(ROWS, SPLIT, 4, "diag", "label_platt", SETTINGS, SOURCE)


@pytest.fixture(scope="module")
def fitted() -> MapFit:
    return fit("label_platt")


def test_map_stores_the_parts_of_the_model_choice(model, fitted):
    document = fitted.document
    assert (document.input, document.n_labels, document.label_names) == ("logits", 4, NAMES)
    assert (document.calibrator.name, document.calibrator.rows) == ("diag", len(SPLIT.fit_rows))
    np.testing.assert_array_equal(document.calibrator.fitted.factors, model.result.full_fit.calibrator.factors)
    assert document.choice == model.choice
    decisions = ROWS.decision[SPLIT.fit_rows]
    assert (document.projection.name, document.projection.rows) == ("label_platt", len(decisions))
    assert document.projection.rows_by_label == tuple(np.bincount(decisions, minlength=4).tolist())
    assert (document.correction, document.signals) == (None, ())
    assert document.others.variants == {}
    np.testing.assert_array_equal(document.others.matrix.weights, model.result.full_fit.matrix.weights)
    assert document.default_threshold == compute_default_threshold(model.result, "label_platt")
    assert [fold.calibrator.factors.tolist() for fold in document.folds] == [
        fold_fit.calibrator.factors.tolist() for fold_fit in model.result.fold_fits
    ]
    expected = hash_training_rows(ROWS, SPLIT.folds, SOURCE, ids=IDS, id_column="pair")
    assert expected.by == "id"
    assert document.source == SOURCE.model_copy(update={"training_rows": expected})


def test_fit_returns_out_of_fold_scores_and_weighted_accuracy(model, fitted):
    expected = model.result.out_of_fold_scores("label_platt")
    np.testing.assert_array_equal(fitted.scored.logit, expected.logit)
    np.testing.assert_array_equal(fitted.scored.confidence, expected.confidence)
    np.testing.assert_array_equal(fitted.rows.logits, ROWS.logits[SPLIT.fit_rows])
    assert fitted.accuracy == pytest.approx(np.average(ROWS.correct, weights=ROWS.weight))
    assert fitted.advice == model.advice
    assert fitted.label_warnings[0] == "Labels that are never decided, or never the true label: d."
    assert fitted.correction_summary == ()
    assert fitted.smallest_relevant_change == 0.0123


def test_summary_of_out_of_fold_rows_equals_its_parts(model, fitted):
    rows = model.result.rows
    scored = model.result.out_of_fold_scores("label_platt")
    summary = summarize_out_of_fold_rows(model.result, "label_platt", 4, SETTINGS.metrics)
    assert fitted.document.held_out == summary
    cells = LabelCells.from_decisions(scored.confidence, rows.decision, rows.correct, SETTINGS.metrics)
    assert (summary.rows, summary.label_spread) == (len(rows), pytest.approx(cells.spread()))
    assert summary.label_spread_shuffled == pytest.approx(cells.shuffled_quantile(0))
    np.testing.assert_allclose(summary.quantiles, np.quantile(scored.reliability, np.linspace(0, 1, 101)))
    halves, reference = summarize_reference_cells(scored.reliability, rows.decision, rows.correct, rows.group, 4)
    assert (summary.halves, summary.cells) == (halves, reference)
    assert summary.top == summarize_top_cells(scored.reliability, rows.correct, rows.group, summary.quantiles)


def test_summary_uses_the_deployed_correction_for_residuals_only(model):
    corrected = model.result.with_correction("label_platt")
    summary = summarize_out_of_fold_rows(corrected, "label_platt", 4, SETTINGS.metrics)
    rows = corrected.rows
    own = corrected.out_of_fold_scores("label_platt").reliability
    deployed = corrected.with_deployed_correction().out_of_fold_scores("label_platt").reliability
    assert not np.array_equal(own, deployed)
    np.testing.assert_allclose(summary.quantiles, np.quantile(own, np.linspace(0, 1, 101)))
    halves, cells = summarize_reference_cells(deployed, rows.decision, rows.correct, rows.group, 4)
    assert (summary.halves, summary.cells) == (halves, cells)
    assert summary.top == summarize_top_cells(deployed, rows.correct, rows.group, summary.quantiles)


def test_map_without_names_has_none():
    assert fit("confidence", names=None).document.label_names is None
    assert fit("confidence", names=()).document.label_names is None


def test_auto_stores_its_correction_and_the_other_variants(model, monkeypatch):
    corrected = model.result.with_correction("label_platt")
    chosen = replace(model, result=corrected)
    monkeypatch.setattr(map_fit, "choose_model", lambda *_: chosen)
    fitted = fit("auto")
    stored = fitted.document.correction
    np.testing.assert_array_equal(stored.values, corrected.corrections["label_platt"].full.values)
    for fold, expected in zip(fitted.document.folds, corrected.corrections["label_platt"].folds, strict=True):
        np.testing.assert_array_equal(fold.correction.values, expected.values)
    assert fitted.correction_summary == map_fit._summarize_correction(chosen)
    assert len(fitted.correction_summary) == 1
    np.testing.assert_array_equal(fitted.scored.logit, corrected.out_of_fold_scores("label_platt").logit)


def test_signals_are_stored_only_if_the_map_uses_them():
    values = np.random.default_rng(0).normal(size=(N_ROWS, 1))
    signals = (NumberSignal(name="length", mean=0.1, deviation=1.5, lowest=-2.0, highest=2.5),)
    rows = replace(ROWS, signals=values)
    assert fit("label_platt", rows=rows, signals=signals).document.signals == ()
    with_signals = fit("label_signals", rows=rows, signals=signals).document
    assert with_signals.signals == signals
    assert with_signals.others.variants == {}


def test_map_of_the_paper_protocol_has_no_folds_and_one_list_of_hashes():
    source = SOURCE.model_copy(update={"protocol": SETTINGS.protocol, "hold_out": 0.0})
    document = fit("label_intercept", source=source).document
    fitted_part = paper_fit_rows(source, ROWS, document.calibrator.fitted)
    assert document.folds == ()
    assert document.source.training_rows == hash_training_rows(ROWS, (fitted_part,), source, ids=IDS, id_column="pair")


@pytest.mark.parametrize(
    ("variant", "n_rows", "message"),
    [
        ("mrp2", N_ROWS, "a map cannot contain the variant 'mrp2'"),
        ("mrp", 60, "there are 48 labelled rows to fit on"),  # 20% of 60 rows are held out
    ],
)
def test_rows_and_variant_are_checked_before_the_fit(variant, n_rows, message):
    with pytest.raises(InputError, match=message):
        fit(variant, rows=ROWS.take(slice(n_rows)))


def test_fit_that_a_map_cannot_store_is_rejected():
    rows = replace(ROWS, logits=ROWS.logits * 1e-250)
    with pytest.raises(InputError) as error:
        fit_labelled_rows(rows, SOURCE, SETTINGS, calibrator="matrix", variant="confidence", n_labels=4, names=None)
    assert str(error.value).startswith("a map cannot store the fit (")
    assert str(error.value).endswith(
        "), as happens with logits that are far too large or too small; rescale the logits, or use the calibrator ts"
    )
