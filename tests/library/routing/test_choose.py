"""Cuts on the reliability: which requests are accepted, which rows are used, and whether there is a guarantee."""

import re

import pytest

from relmap import InputError
from relmap.errors import naming
from relmap.maps.score import FittedMap
from relmap.routing.choose import choose_cut, find_label
from relmap.routing.thresholds import (
    ReliabilityThresholds,
    bound_accuracy,
    find_accuracy_thresholds,
    find_coverage_threshold,
)
from tests import maps
from tests.assessments import MAP, N_ROWS, READING_NOTE, assess, make_rows


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


def test_at_most_eight_lines_are_printed_and_the_others_are_details(monkeypatch):
    sentences = [f"Sentence {number}." for number in range(11)]
    monkeypatch.setattr(ReliabilityThresholds, "describe", lambda *_, **__: sentences)
    cuts = choose_cut(assess(), cut=0.5)
    assert [*cuts.lines] == sentences[:8]
    assert [*cuts.details] == sentences[8:]


@pytest.mark.parametrize(("label", "expected"), [("fair", 1), (2, 2), (3, None), ("other", None)])
def test_a_label_is_found_by_its_name_or_number(label, expected):
    document = maps.make_map("confidence", names=("bad", "fair", "good"))
    assert find_label(document, label) == expected


@pytest.mark.parametrize(("label", "expected"), [(0, 0), ("2", 2), (3, None), (-1, None)])
def test_a_label_without_a_name_is_found_by_its_number(label, expected):
    assert find_label(maps.make_map("confidence", names=None), label) == expected
