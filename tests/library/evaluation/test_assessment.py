"""What an assessment reports about rows of each origin."""

import re

import numpy as np
import pytest

from relmap import InputError
from relmap.decisions import FixedDecisions
from relmap.errors import naming
from relmap.evaluation.assessment import MapAssessment
from relmap.io.frames import FramePredictions
from relmap.maps.document import MapDocument
from relmap.maps.score import FittedMap
from relmap.routing.choose import choose_cut
from relmap.routing.thresholds import (
    ReliabilityThresholds,
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
)
from relmap.settings import DEFAULTS
from tests import maps
from tests.maps import fit_file as fit_map

N_ROWS = 240
MAP = maps.make_map("confidence")
READING_NOTE = "How it was read."


def make_rows(group: str | None = None) -> FixedDecisions:
    return maps.rows_of_frame(maps.make_predictions(N_ROWS), group)


def assess(
    origin: str = "new", document: MapDocument = MAP, rows: FixedDecisions | None = None, n_fitted: int = 0
) -> MapAssessment:
    """Score rows, of which the first `n_fitted` were used for the fit."""
    rows = make_rows() if rows is None else rows
    fitted = np.arange(len(rows)) < n_fitted
    return MapAssessment(document, rows, FittedMap.from_document(document)(rows), origin, [READING_NOTE], fitted)


def thresholds_of(request: dict[str, object], confidence: float) -> ReliabilityThresholds:
    rows = make_rows()
    arrays = (FittedMap.from_document(MAP)(rows).reliability, rows.decision, rows.correct)
    if "target_accuracy" in request:
        target = request["target_accuracy"]
        return find_accuracy_thresholds(MAP, *arrays, target=target, confidence=confidence)
    if "cut" in request:
        return bound_accuracy(*arrays, threshold=request["cut"], confidence=confidence)
    return find_coverage_threshold(*arrays, coverage=request["coverage"], confidence=confidence)


@pytest.mark.parametrize("request_", [{"target_accuracy": 0.6}, {"coverage": "0.5"}, {"cut": 0.25}])
@pytest.mark.parametrize("origin", ["new", "held_out", "out_of_fold", "partly_out_of_fold"])
def test_cuts_of_each_origin_state_whether_they_are_guaranteed(request_, origin):
    cuts = choose_cut(assess(origin, n_fitted=7), **request_, confidence_level=0.8)
    expected = thresholds_of(request_, 0.8)
    is_guaranteed = origin in ("new", "held_out")
    patterns = []
    if not is_guaranteed:
        # 5 of the 7 fit rows show an accuracy of 60%: 0.6^5 is below half of the level of 0.2
        share = 0.65 if "target_accuracy" in request_ else 0.3
        patterns.append(rf"without a guarantee.* --hold-out {share}\.$")
    elif "cut" in request_:
        patterns.append("bounds hold if .*cut")
    reading_note, *notes = cuts.notes
    assert reading_note == READING_NOTE
    assert len(notes) == len(patterns)
    assert all(map(re.search, patterns, notes))
    assert list(cuts.lines) == expected.describe(maps.LABEL_NAMES, is_guaranteed=is_guaranteed)
    assert any("confidence" in line for line in cuts.lines) == is_guaranteed
    origin_of_cuts = {"guaranteed": is_guaranteed, "fitted_rows": 7, "map_fingerprint": MAP.fingerprint}
    assert cuts.to_dict() == origin_of_cuts | expected.as_json()


def test_the_hold_out_that_gives_a_guarantee_is_named_as_in_python():
    with naming("python"):
        assert choose_cut(assess("out_of_fold"), cut=0.5).notes[-1].endswith(" hold_out=0.3.")


def test_cuts_of_grouped_rows_use_every_row():
    cuts = choose_cut(assess(rows=make_rows("group")), coverage=0.5)
    assert (cuts.numbers["overall"]["rows"], cuts.numbers["groups"]) == (N_ROWS, N_ROWS // 10)
    (note,) = cuts.notes[1:]
    assert re.search("All 240 rows .*24 groups .*mean accuracy of groups", note)


def test_the_order_of_groups_depends_on_the_seed_of_the_map():
    bounds = set()
    for seed in range(6):
        document = MAP.model_copy(update={"source": MAP.source.model_copy(update={"seed": seed})})
        cuts = choose_cut(assess(document=document, rows=make_rows("group")), cut=0.8)
        bounds.add(cuts.numbers["overall"]["lower_bound"])
    assert len(bounds) > 1


def test_costs_use_all_rows_and_have_the_fingerprint_of_the_map():
    cuts = choose_cut(assess(rows=make_rows("group")), cost_error=4, cost_review=1)
    assert cuts.cut == pytest.approx(0.75)
    assert cuts.numbers["overall"]["rows"] == N_ROWS
    assert (cuts.numbers["map_fingerprint"], cuts.numbers["guaranteed"]) == (MAP.fingerprint, False)
    assert cuts.notes == (READING_NOTE,)


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"target_accuracy": 0.9, "coverage": 0.5},
        {"target_accuracy": 0.9, "cut": 0.5},
        {"coverage": 0.5, "cut": 0.0},
        {"cut": 0.5, "cost_error": 5},
        {"target_accuracy": 0.9, "cost_review": 1},
        {"coverage": 0.5, "cost_error": 5, "cost_review": 1},
    ],
)
def test_exactly_one_request_must_be_given(request_):
    with pytest.raises(InputError, match=r"exactly one.*target accuracy.*coverage.*costs.*cut"):
        choose_cut(assess(), **request_)


@pytest.mark.parametrize("request_", [{"cost_error": 5}, {"cost_review": 1}])
def test_both_costs_must_be_given(request_):
    with pytest.raises(InputError, match="error cost above 0"):
        choose_cut(assess(), **request_)


@pytest.mark.parametrize(
    ("origin", "n_fitted", "tests_drift"),
    [("new", 0, True), ("held_out", 0, True), ("out_of_fold", N_ROWS, False), ("partly_out_of_fold", 40, True)],
)
def test_drift_is_tested_on_the_rows_that_were_not_used_for_the_fit(origin, n_fitted, tests_drift):
    evaluation = assess(origin, n_fitted=n_fitted).evaluate()
    assert any(re.match("Drift is not .*fitted", line) for line in evaluation.lines) == (not tests_drift)
    assert len(evaluation.lines) <= 8
    assert (evaluation.numbers["drift"] is not None) == tests_drift
    assert evaluation.numbers["fitted_rows"] == n_fitted
    assert evaluation.numbers["rows"] == N_ROWS
    assert evaluation.notes == (READING_NOTE,)


def test_the_held_out_rows_of_the_protocol_are_the_reference_of_the_drift_test():
    source = MAP.source.model_copy(update={"protocol": DEFAULTS.protocol})
    evaluation = assess("held_out", MAP.model_copy(update={"source": source})).evaluate()
    assert evaluation.numbers["drift"] is None
    assert any("are the reference" in line for line in evaluation.lines)


def test_ranges_that_were_not_tested_are_always_named():
    few = np.flatnonzero(np.arange(N_ROWS) % 8 == 0)
    evaluation = assess(rows=make_rows().take(few)).evaluate()
    untested = [cell for cell in evaluation.numbers["drift"]["cells"] if cell["p"] is None]
    assert untested
    assert any("Not tested" in line for line in evaluation.lines)
    assert not any("Not tested" in line for line in evaluation.details)


INVALID_FITS = {
    "a group with a control character": (
        {"group": "q\x07"},
        r"group column.*'q\\x07'.*unprintable",
    ),
    "signals under the paper's protocol": (
        {"protocol": "paper", "signals": ("group",)},
        "paper's protocol .*--signals .*--hold-out",
    ),
    "a hold-out under the paper's protocol": (
        {"protocol": "paper", "hold_out": 0.25},
        "paper's protocol .*--signals .*--hold-out",
    ),
}


@pytest.mark.parametrize(("options", "pattern"), INVALID_FITS.values(), ids=INVALID_FITS)
def test_invalid_options_of_a_fit_are_rejected(options, pattern):
    with pytest.raises(InputError, match=pattern):
        fit_map(FramePredictions.from_frame(maps.make_predictions(60)), **options)
