"""Values stored in a map equal what was fitted: out-of-fold statistics, fingerprints, thresholds."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from relmap import ReliabilityMap, load_map
from relmap.evaluation.drift import summarize_reference_cells, summarize_top_cells
from relmap.fitting.cross_fit import fit_calibrator
from relmap.fitting.folds import split_folds
from relmap.fitting.labelled_rows import fingerprint_rows
from relmap.io.frames import FramePredictions
from relmap.maps.document import MapDocument
from relmap.maps.map_file import save_map
from relmap.maps.reliability_map import FittedMap, calibrated_logit
from relmap.metrics.spread import LabelCells
from relmap.projection.decisions import CalibratedDecisions
from relmap.projection.labelwise import PENALTIES
from relmap.settings import DEFAULTS
from relmap.splits import split_validation
from tests import maps, naive

N = 150
SEED = 3
LOGITS = maps.make_predictions(N, shift=2.5, seed=4, per_group=3)
JUDGE = maps.make_confidence_predictions(N, shift=2.5, seed=4).with_columns(group=LOGITS["group"])
SIGNALS = maps.make_predictions_with_signals(N, seed=4)
CASES = {  # rows and settings of a fit
    "auto": (LOGITS, {}),
    "mrp": (LOGITS, {"variant": "mrp"}),
    "vector": (LOGITS, {"variant": "label_vector", "calibrator": "uncal"}),
    "held out": (LOGITS, {"variant": "label_platt", "calibrator": "diag", "hold_out": 0.3}),
    "judge": (JUDGE, {}),
    "judge, spline": (JUDGE, {"variant": "shared_1d", "calibrator": "spline"}),
    "decisions": (JUDGE.drop("confidence"), {}),
    "signals": (SIGNALS, {"variant": "label_signals", "signals": ("agreement", "source", "group_rank")}),
}


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        maps.limit_resamples(patch, 30)
        maps.limit_prior_deviations(patch)
        yield


@pytest.fixture(scope="module", params=list(product(CASES, [False, True])), ids=str)
def fitted(request) -> tuple[pl.DataFrame, ReliabilityMap]:
    name, grouped = request.param
    frame, settings = CASES[name]
    if name == "signals" and not grouped:
        settings = settings | {"signals": ("agreement", "source")}  # the other one is of groups
    made = ReliabilityMap(seed=SEED, **settings).fit(frame, groups="group" if grouped else None)
    return frame, made


def without_truth(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop("label")


def test_a_map_that_is_read_again_is_the_same_and_scores_the_same(fitted, tmp_path):
    frame, made = fitted
    made.save(tmp_path / "map.json")
    again = ReliabilityMap.load(tmp_path / "map.json")
    assert again.document_.model_dump_json() == made.document_.model_dump_json()
    assert again.document_.fingerprint == made.document_.fingerprint
    np.testing.assert_array_equal(again.reliability(without_truth(frame)), made.reliability(without_truth(frame)))
    save_map(load_map(tmp_path / "map.json"), tmp_path / "twice.json")
    assert (tmp_path / "twice.json").read_bytes() == (tmp_path / "map.json").read_bytes()


def test_out_of_fold_numbers_are_those_of_the_stored_folds(fitted):
    frame, made = fitted
    document = made.document_
    held_out = made.document_.held_out
    if document.signals:
        return  # signals are read from the file; the others have all they need in the rows
    source = document.source
    rows = maps.rows_of_frame(frame, source.group)
    division = split_folds(N, rows.group, SEED, hold_out=source.hold_out)
    scored = {}
    deployed = {}
    for fold, members in zip(document.folds, division.folds, strict=True):
        part = rows.take(members)
        own = FittedMap(fold.calibrator, fold.projection, fold.correction)(part)
        shared = FittedMap(fold.calibrator, fold.projection, document.correction)(part)
        scored |= dict(zip(members.tolist(), zip(own.confidence, own.logit, strict=True), strict=True))
        deployed |= dict(zip(members.tolist(), shared.reliability, strict=True))
    at = np.array(sorted(scored))
    judged = rows.take(at)
    confidence, logits = np.array([scored[row] for row in at.tolist()]).T
    reliability = np.array([deployed[row] for row in at.tolist()])
    assert held_out.rows == len(at) == N - len(division.held_out)
    np.testing.assert_allclose(held_out.quantiles, np.quantile(expit(logits), np.linspace(0, 1, 101)))
    halves, cells = summarize_reference_cells(reliability, judged.decision, judged.correct, judged.group, 3)
    assert (list(held_out.halves), list(held_out.cells)) == (list(halves), list(cells))
    assert held_out.top == summarize_top_cells(reliability, judged.correct, judged.group, held_out.quantiles)
    spread = LabelCells.from_decisions(confidence, judged.decision, judged.correct, DEFAULTS.metrics)
    found = (held_out.label_spread, held_out.label_spread_shuffled)
    expected_spread = (spread.spread(), spread.shuffled_quantile(0))
    assert found == pytest.approx(tuple(None if np.isnan(value) else value for value in expected_spread))
    chosen = next(each for each in document.choice.candidates if each.variant == document.projection.name)
    assert chosen.nll_correct == pytest.approx(naive.log_losses(logits, judged.correct).mean())
    decided = np.bincount(judged.decision, minlength=3)
    assert document.projection.rows_by_label == tuple(decided.tolist())
    assert document.projection.rows == document.calibrator.rows == len(at)


def test_calibrators_are_those_of_the_rows_of_their_folds(fitted):
    frame, made = fitted
    document = made.document_
    source = made.document_.source
    rows = maps.rows_of_frame(frame, source.group)
    division = split_folds(N, rows.group, SEED, hold_out=source.hold_out)
    parts = [(document.calibrator.fitted, division.fit_rows)]
    parts += [(fold.calibrator, division.training_rows(place)) for place, fold in enumerate(document.folds)]
    for stored, members in parts:
        expected = fit_calibrator(document.calibrator.name, rows.take(members), seed=SEED)
        logits = [calibrated_logit(calibrator, rows) for calibrator in (stored, expected)]
        np.testing.assert_allclose(*logits, rtol=1e-6, atol=1e-8)
    assert [source.rows, source.seed, source.hold_out] == [N, SEED, made.hold_out]
    assert source.group == (None if rows.group is None else "group")


def test_each_part_that_decides_a_score_changes_the_fingerprint_of_a_map(tmp_path):
    made = ReliabilityMap().fit(LOGITS).document_
    other = ReliabilityMap(seed=9).fit(maps.make_predictions(N, shift=1.0, seed=8)).document_
    signals = [
        ReliabilityMap(variant="label_signals", signals=("agreement",)).fit(frame).document_
        for frame in (SIGNALS, SIGNALS.with_columns(agreement=pl.col("agreement") * 2))
    ]
    names = ("irrelevant", "partial", "exact")
    changes: dict[str, tuple[MapDocument, dict[str, object]]] = {
        "input": (made, {"input": "confidence_only"}),
        "n_labels": (made, {"n_labels": 4}),
        "label_names": (made, {"label_names": names}),
        "calibrator": (made, {"calibrator": other.calibrator}),
        "projection": (made, {"projection": maps.make_map("label_platt").projection}),
        "correction": (made, {"correction": maps.CORRECTION}),
        "signals": (signals[0], {"signals": signals[1].signals}),
    }
    for name, (document, change) in changes.items():
        assert document.model_copy(update=change).fingerprint != document.fingerprint, name
    for name in ("choice", "others", "held_out", "folds", "source", "default_threshold"):
        assert made.model_copy(update={name: getattr(other, name)}).fingerprint == made.fingerprint, name
    assert {*changes, "choice", "others", "held_out", "folds", "source", "default_threshold", "format", "version"} == {
        *MapDocument.model_fields
    }


ROWS = LOGITS.with_columns(inverse_probability=1.5, length=pl.int_range(N) * 0.1, id=pl.int_range(N) * 3)
OTHER: dict[str, pl.Expr] = {  # the same column with another value in one row
    "logits": pl.when(pl.int_range(N) == 7).then([9.0, 0.0, 1.0]).otherwise("logits"),
    "label": pl.when(pl.int_range(N) == 7).then((pl.col("label") + 1) % 3).otherwise("label"),
    "group": pl.when(pl.int_range(N) == 7).then(pl.lit("q1")).otherwise("group"),
    "inverse_probability": pl.when(pl.int_range(N) == 7).then(9.0).otherwise("inverse_probability"),
    "length": pl.when(pl.int_range(N) == 7).then(9.0).otherwise("length"),
    "id": pl.when(pl.int_range(N) == 7).then(1).otherwise("id"),
}


def test_each_column_changes_what_rows_in_memory_are_known_by():
    known = {FramePredictions.from_frame(ROWS).sha256}
    for name, change in OTHER.items():
        known.add(FramePredictions.from_frame(ROWS.with_columns(change.alias(name))).sha256)
    assert len(known) == len(OTHER) + 1 == len(ROWS.columns) + 1


@pytest.mark.parametrize(
    ("column", "parts"),
    [
        ("decision", {"rows"}),
        ("label", {"rows", "any_order"}),
        ("group", {"groups"}),
        ("logits", {"any_order"}),
        ("length", set()),
        ("inverse_probability", set()),
    ],
)
def test_rows_of_a_fit_are_known_by_decisions_labels_groups_and_predictions(column, parts):
    rows = maps.rows_of_frame(ROWS.with_columns(decision=pl.lit(0)), "group")
    change = OTHER.get(column, pl.when(pl.int_range(N) == 7).then(1).otherwise("decision"))
    frame = ROWS.with_columns(decision=pl.lit(0)).with_columns(change.alias(column))
    before = fingerprint_rows(rows)
    after = fingerprint_rows(maps.rows_of_frame(frame, "group"))
    changed = {name for name in ("rows", "groups", "any_order") if getattr(before, name) != getattr(after, name)}
    assert changed == parts


def penalty_by_hand(made: MapDocument, rows, selection: np.ndarray, shifts_of: Callable) -> np.ndarray:
    """The shifts of the penalty with the least log loss on the selection rows; of equals the larger penalty."""
    logits = calibrated_logit(made.calibrator.fitted, rows)
    best = None
    lowest = np.inf
    for penalty in PENALTIES:
        shifts = shifts_of(logits, penalty)
        loss = naive.log_losses((logits + shifts[rows.decision])[selection], rows.correct[selection]).mean()
        if loss < lowest - 1e-12:
            best = shifts
            lowest = loss
    return best


def test_under_the_papers_protocol_selection_rows_choose_the_penalty_of_shifts():
    """Each protocol seed has its own selection rows; some of them choose another penalty than none."""
    chosen = []
    for seed in range(6):
        rows = maps.rows_of_frame(maps.make_predictions(N, shift=0.8, seed=seed).drop("group"))
        made = ReliabilityMap(variant="label_intercept", protocol="paper", seed=seed).fit(rows.logits, rows.label)
        document = made.document_
        _, fit, selection = split_validation(N, seed, DEFAULTS.protocol, None)

        def shifts_of(logits: np.ndarray, penalty: float, rows=rows, fit=fit) -> np.ndarray:
            """Solve for each label: reliabilities less correct rows plus the pull of the penalty is 0."""
            shifts = np.zeros(3)
            for label in range(3):
                own = fit[rows.decision[fit] == label]
                low = -12.0
                high = 12.0
                for _ in range(60):
                    middle = (low + high) / 2
                    excess = expit(logits[own] + middle).sum() - rows.correct[own].sum()
                    rises = excess + 2 * penalty * len(fit) / 3 * middle > 0
                    low, high = (low, middle) if rises else (middle, high)
                shifts[label] = (low + high) / 2 if len(own) else 0.0
            return shifts

        expected = penalty_by_hand(document, rows, selection, shifts_of)
        decisions = CalibratedDecisions(np.zeros(3), np.arange(3))
        np.testing.assert_allclose(document.projection.fitted(decisions), expected, atol=1e-6)
        unpenalized = shifts_of(calibrated_logit(document.calibrator.fitted, rows), 0.0)
        chosen.append(np.abs(expected - unpenalized).max() > 1e-3)
        assert document.held_out.rows == len(selection)
    assert True in chosen


def test_the_papers_protocol_reads_what_it_holds_out_from_selection_rows_alone():
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    made = ReliabilityMap(variant="label_intercept", protocol="paper", calibrator="diag", seed=2)
    document = made.fit(rows.logits, rows.label).document_
    calibrator_fit, fit, selection = split_validation(N, 2, DEFAULTS.protocol, None)
    scored = FittedMap.from_document(document)(rows)
    np.testing.assert_allclose(
        document.held_out.quantiles, np.quantile(scored.reliability[selection], np.linspace(0, 1, 101))
    )
    chosen = next(each for each in document.choice.candidates if each.variant == "label_intercept")
    loss = naive.log_losses(scored.logit[selection], rows.correct[selection]).mean()
    assert chosen.nll_correct == pytest.approx(loss)
    expected = fit_calibrator("diag", rows.take(calibrator_fit), seed=2)
    np.testing.assert_allclose(
        calibrated_logit(document.calibrator.fitted, rows), calibrated_logit(expected, rows), rtol=1e-6, atol=1e-8
    )
    assert document.projection.rows_by_label == tuple(np.bincount(rows.decision[fit], minlength=3).tolist())


def test_what_is_held_out_is_not_in_the_map():
    rows = maps.rows_of_frame(LOGITS.drop("group"))
    aside = split_folds(N, None, SEED, hold_out=0.3).held_out
    label = rows.label.copy()
    label[aside] = (label[aside] + 1) % 3
    maps_of = [
        ReliabilityMap(variant="label_platt", seed=SEED, hold_out=0.3).fit(each.logits, each.label).document_
        for each in (rows, replace(rows, label=label))
    ]
    assert maps_of[0].fingerprint == maps_of[1].fingerprint
    assert maps_of[0].held_out == maps_of[1].held_out


def test_no_map_is_left_half_written(tmp_path):
    made = ReliabilityMap(variant="confidence").fit(LOGITS)
    made.save(tmp_path / "map.json")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["map.json"]
