"""Values stored in a map equal the fitted ones: out-of-fold statistics, fingerprints, thresholds."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from relmap import ReliabilityMap, load_map
from relmap.decisions import CalibratedDecisions
from relmap.io.frames import FramePredictions
from relmap.maps.cross_fit import fit_calibrator
from relmap.maps.document import MapDocument, save_map
from relmap.maps.fit_rows import fingerprint_rows
from relmap.maps.folds import split_folds
from relmap.maps.held_out import summarize_reference_cells, summarize_top_cells
from relmap.maps.score import FittedMap, calibrated_logit
from relmap.metrics.spread import LabelCells
from relmap.projection.labelwise import PENALTIES
from relmap.projection.rows import split_validation
from relmap.settings import DEFAULTS
from tests import maps, naive

N_ROWS = 150
SEED = 3
LOGITS = maps.make_predictions(N_ROWS, shift=2.5, seed=4, per_group=3)
CONFIDENCES = maps.make_confidence_predictions(N_ROWS, shift=2.5, seed=4).with_columns(group=LOGITS["group"])
SIGNALS = maps.make_predictions_with_signals(N_ROWS, seed=4)
CASES = {  # rows and settings of a fit
    "logits": (LOGITS, {}),
    "exact": (LOGITS, {"variant": "mrp_exact", "calibrator": "uncal"}),
    "held out": (LOGITS, {"variant": "label_platt", "calibrator": "diag", "hold_out": 0.3}),
    "judge": (CONFIDENCES, {}),
    "judge, spline": (CONFIDENCES, {"variant": "shared_1d", "calibrator": "spline"}),
    "decisions": (CONFIDENCES.drop("confidence"), {}),
    "signals": (SIGNALS, {"signals": ("agreement", "source", "group_rank")}),
}


@pytest.fixture(scope="module", autouse=True)
def _limit_work():
    with pytest.MonkeyPatch.context() as patch:
        maps.limit_resamples(patch, 30)
        maps.limit_prior_deviations(patch)
        yield


@pytest.fixture(scope="module", params=list(product(CASES, [False, True])), ids=str)
def fitted_map(request) -> tuple[pl.DataFrame, ReliabilityMap]:
    name, grouped = request.param
    frame, settings = CASES[name]
    if name == "signals" and not grouped:
        settings = settings | {"signals": ("agreement", "source")}  # group_rank needs groups
    model = ReliabilityMap(seed=SEED, **settings).fit(frame, groups="group" if grouped else None)
    return frame, model


def without_labels(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop("label")


def test_restored_map_equals_the_saved_map(fitted_map, tmp_path):
    frame, model = fitted_map
    model.save(tmp_path / "map.json")
    restored = ReliabilityMap.load(tmp_path / "map.json")
    assert restored.document_.model_dump_json() == model.document_.model_dump_json()
    assert restored.document_.fingerprint == model.document_.fingerprint
    np.testing.assert_array_equal(restored.reliability(without_labels(frame)), model.reliability(without_labels(frame)))

    save_map(load_map(tmp_path / "map.json"), tmp_path / "twice.json")
    assert (tmp_path / "twice.json").read_bytes() == (tmp_path / "map.json").read_bytes()


def test_held_out_statistics_are_computed_with_the_stored_folds(fitted_map):
    frame, model = fitted_map
    document = model.document_
    held_out = model.document_.held_out
    if document.signals:
        return  # signals are read from the file, not from the rows
    source = document.source
    rows = maps.rows_of_frame(frame, source.group)
    fold_split = split_folds(N_ROWS, rows.group, SEED, hold_out=source.hold_out)
    all_confidences, all_logits = np.full((2, N_ROWS), np.nan)
    for fold, members in zip(document.folds, fold_split.folds, strict=True):
        fold_rows = rows.take(members)
        all_confidences[members] = FittedMap(fold.baseline or fold.calibrator)(fold_rows).confidence
        all_logits[members] = FittedMap(fold.calibrator, fold.projection)(fold_rows).logit
    scored_rows = np.sort(fold_split.fit_rows)
    if document.calibrator.name == "constant":
        all_confidences[scored_rows] = all_confidences[scored_rows].mean()  # constants would rank the rows by fold
    evaluated_rows = rows.take(scored_rows)
    confidence = all_confidences[scored_rows]
    reliability = expit(all_logits[scored_rows])
    assert held_out.rows == len(scored_rows) == N_ROWS - len(fold_split.held_out)
    np.testing.assert_allclose(held_out.quantiles, np.quantile(reliability, np.linspace(0, 1, 101)))

    halves, cells = summarize_reference_cells(
        reliability, evaluated_rows.decision, evaluated_rows.correct, evaluated_rows.group, 3
    )
    assert (list(held_out.halves), list(held_out.cells)) == (list(halves), list(cells))
    assert held_out.top == summarize_top_cells(
        reliability, evaluated_rows.correct, evaluated_rows.group, held_out.quantiles
    )

    spread = LabelCells.from_decisions(confidence, evaluated_rows.decision, evaluated_rows.correct, DEFAULTS.metrics)
    spreads = (held_out.label_spread, held_out.label_spread_shuffled)
    expected_spread = (spread.spread(), spread.shuffled_quantile(0))
    assert spreads == pytest.approx(tuple(None if np.isnan(value) else value for value in expected_spread))

    if document.projection.name != "confidence":
        losses = naive.log_losses(all_logits[scored_rows], evaluated_rows.correct)
        assert model.summary_.to_dict()["log_loss"]["reliability"] == pytest.approx(losses.mean())

    decision_counts = np.bincount(evaluated_rows.decision, minlength=3)
    assert document.projection.rows_by_label == tuple(decision_counts.tolist())
    assert document.projection.rows == document.calibrator.rows == len(scored_rows)


def test_stored_calibrators_equal_fits_to_the_rows_of_their_folds(fitted_map):
    frame, model = fitted_map
    document = model.document_
    source = model.document_.source
    rows = maps.rows_of_frame(frame, source.group)
    fold_split = split_folds(N_ROWS, rows.group, SEED, hold_out=source.hold_out)
    calibrators_and_rows = [(document.calibrator.fitted, fold_split.fit_rows)]
    calibrators_and_rows += [
        (fold.calibrator, np.setdiff1d(fold_split.fit_rows, fold_split.folds[index]))
        for index, fold in enumerate(document.folds)
    ]
    for stored, members in calibrators_and_rows:
        expected = fit_calibrator(document.calibrator.name, rows.take(members), seed=SEED)
        logits = [calibrated_logit(calibrator, rows) for calibrator in (stored, expected)]
        np.testing.assert_allclose(*logits, rtol=1e-6, atol=1e-8)

    assert [source.rows, source.seed, source.hold_out] == [N_ROWS, SEED, model.hold_out]
    assert source.group == (None if rows.group is None else "group")


def test_fingerprint_changes_with_the_fields_that_determine_scores(tmp_path):
    map_document = ReliabilityMap().fit(LOGITS).document_
    other_document = ReliabilityMap(seed=9).fit(maps.make_predictions(N_ROWS, shift=1.0, seed=8)).document_
    signal_documents = [
        ReliabilityMap(signals=("agreement",)).fit(frame).document_
        for frame in (SIGNALS, SIGNALS.with_columns(agreement=pl.col("agreement") * 2))
    ]
    names = ("irrelevant", "partial", "exact")
    changes: dict[str, tuple[MapDocument, dict[str, object]]] = {
        "input": (map_document, {"input": "confidence_only"}),
        "n_labels": (map_document, {"n_labels": 4}),
        "label_names": (map_document, {"label_names": names}),
        "calibrator": (map_document, {"calibrator": other_document.calibrator}),
        "projection": (map_document, {"projection": maps.make_map("label_platt").projection}),
        "earlier_version": (map_document, {"earlier_version": 3}),
        "signals": (signal_documents[0], {"signals": signal_documents[1].signals}),
    }

    for name, (document, change) in changes.items():
        assert document.model_copy(update=change).fingerprint != document.fingerprint, name
    unscored = ("baseline", "reading", "held_out", "seen", "folds", "source", "default_threshold")
    for name in unscored:
        changed = map_document.model_copy(update={name: getattr(other_document, name)})
        assert changed.fingerprint == map_document.fingerprint, name
    assert {*changes, *unscored, "format", "version"} == {*MapDocument.model_fields}


ROWS = LOGITS.with_columns(inverse_probability=1.5, length=pl.int_range(N_ROWS) * 0.1, id=pl.int_range(N_ROWS) * 3)
CHANGED_COLUMNS: dict[str, pl.Expr] = {  # column -> the column with another value in one row
    "logits": pl.when(pl.int_range(N_ROWS) == 7).then([9.0, 0.0, 1.0]).otherwise("logits"),
    "label": pl.when(pl.int_range(N_ROWS) == 7).then((pl.col("label") + 1) % 3).otherwise("label"),
    "group": pl.when(pl.int_range(N_ROWS) == 7).then(pl.lit("q1")).otherwise("group"),
    "inverse_probability": pl.when(pl.int_range(N_ROWS) == 7).then(9.0).otherwise("inverse_probability"),
    "length": pl.when(pl.int_range(N_ROWS) == 7).then(9.0).otherwise("length"),
    "id": pl.when(pl.int_range(N_ROWS) == 7).then(1).otherwise("id"),
}


def test_hash_of_rows_in_memory_changes_with_each_column():
    hashes = {FramePredictions.from_frame(ROWS).sha256}
    for name, change in CHANGED_COLUMNS.items():
        hashes.add(FramePredictions.from_frame(ROWS.with_columns(change.alias(name))).sha256)
    assert len(hashes) == len(CHANGED_COLUMNS) + 1 == len(ROWS.columns) + 1


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("decision", {"rows"}),
        ("label", {"rows", "any_order"}),
        ("group", {"groups"}),
        ("logits", {"any_order"}),
        ("length", set()),
        ("inverse_probability", set()),
    ],
)
def test_row_fingerprints_change_with_their_columns(column, expected):
    rows = maps.rows_of_frame(ROWS.with_columns(decision=pl.lit(0)), "group")
    change = CHANGED_COLUMNS.get(column, pl.when(pl.int_range(N_ROWS) == 7).then(1).otherwise("decision"))
    frame = ROWS.with_columns(decision=pl.lit(0)).with_columns(change.alias(column))
    before = fingerprint_rows(rows)
    after = fingerprint_rows(maps.rows_of_frame(frame, "group"))
    changed_fields = {name for name in ("rows", "groups", "any_order") if getattr(before, name) != getattr(after, name)}

    assert changed_fields == expected


def expected_shifts(document: MapDocument, rows, selection: np.ndarray, shifts_of: Callable) -> np.ndarray:
    """Return the shifts of the penalty with the lowest log loss on selection rows; the larger penalty if equal."""
    logits = calibrated_logit(document.calibrator.fitted, rows)
    best = None
    lowest = np.inf
    for penalty in PENALTIES:
        shifts = shifts_of(logits, penalty)
        loss = naive.log_losses((logits + shifts[rows.decision])[selection], rows.correct[selection]).mean()
        if loss < lowest - 1e-12:
            best = shifts
            lowest = loss
    return best


def test_paper_protocol_selects_the_penalty_on_selection_rows():
    """Each protocol seed has its own selection rows; some of them select a positive penalty."""
    is_penalized = []
    for seed in range(6):
        rows = maps.rows_of_frame(maps.make_predictions(N_ROWS, shift=0.8, seed=seed).drop("group"))
        model = ReliabilityMap(variant="label_intercept", protocol="paper", seed=seed).fit(rows.logits, rows.label)
        document = model.document_
        parts = split_validation(N_ROWS, seed, DEFAULTS.protocol, None)
        selection = parts.projection_selection

        def shifts_of(logits: np.ndarray, penalty: float, rows=rows, fit=parts.projection_fit) -> np.ndarray:
            """Solve the first-order condition of each label by bisection."""
            shifts = np.zeros(3)
            for label in range(3):
                label_rows = fit[rows.decision[fit] == label]
                low = -12.0
                high = 12.0
                for _ in range(60):
                    center = (low + high) / 2
                    excess = expit(logits[label_rows] + center).sum() - rows.correct[label_rows].sum()
                    derivative = excess + 2 * penalty * len(fit) / 3 * center
                    if derivative > 0:
                        high = center
                    else:
                        low = center
                shifts[label] = (low + high) / 2 if len(label_rows) else 0.0
            return shifts

        expected = expected_shifts(document, rows, selection, shifts_of)
        decisions = CalibratedDecisions(np.zeros(3), np.arange(3))
        np.testing.assert_allclose(document.projection.fitted(decisions), expected, atol=1e-6)
        unpenalized = shifts_of(calibrated_logit(document.calibrator.fitted, rows), 0.0)
        is_penalized.append(np.abs(expected - unpenalized).max() > 1e-3)
        assert document.held_out.rows == len(selection)
    assert True in is_penalized


def test_paper_protocol_computes_held_out_statistics_on_selection_rows():
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    model = ReliabilityMap(variant="label_intercept", protocol="paper", calibrator="diag", seed=2)
    document = model.fit(rows.logits, rows.label).document_
    calibrator_fit, fit, selection = split_validation(N_ROWS, 2, DEFAULTS.protocol, None)
    scored = FittedMap.from_document(document)(rows)
    np.testing.assert_allclose(
        document.held_out.quantiles, np.quantile(scored.reliability[selection], np.linspace(0, 1, 101))
    )

    found = model.summary_.to_dict()["log_loss"]["reliability"]
    assert found == pytest.approx(naive.log_losses(scored.logit[selection], rows.correct[selection]).mean())

    expected = fit_calibrator("diag", rows.take(calibrator_fit), seed=2)
    np.testing.assert_allclose(
        calibrated_logit(document.calibrator.fitted, rows), calibrated_logit(expected, rows), rtol=1e-6, atol=1e-8
    )
    assert document.projection.rows_by_label == tuple(np.bincount(rows.decision[fit], minlength=3).tolist())


def test_held_out_rows_do_not_change_the_map():
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    held_out = split_folds(N_ROWS, None, SEED, hold_out=0.3).held_out
    label = rows.label.copy()
    label[held_out] = (label[held_out] + 1) % 3
    documents = [
        ReliabilityMap(variant="label_platt", seed=SEED, hold_out=0.3)
        .fit(given_rows.logits, given_rows.label)
        .document_
        for given_rows in (rows, replace(rows, label=label))
    ]

    assert documents[0].fingerprint == documents[1].fingerprint
    assert documents[0].held_out == documents[1].held_out


def test_save_leaves_only_the_map_file(tmp_path):
    model = ReliabilityMap(variant="confidence").fit(LOGITS)
    model.save(tmp_path / "map.json")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["map.json"]
