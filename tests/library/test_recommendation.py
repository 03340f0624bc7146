"""What people read about a map agrees with its numbers, whatever these are, and with what the map contains."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relmap import ReliabilityMap, api
from relmap.evaluation.top_calibration import TopCalibration
from relmap.evaluation.verdict import describe_candidates, describe_label_spread, describe_recalibration
from relmap.metrics.advice import (
    KEEP,
    MIN_ADVICE_GROUPS,
    MIN_ERRORS,
    MIXED,
    SAFE,
    UNKNOWN,
    USE,
    WORSENS,
    additional_labels_needed,
    advise_map,
    describe_evidence,
    format_change,
    format_labels_needed,
)
from relmap.metrics.registry import COMPARED_METRICS, METRICS
from tests import maps

SMALLEST = 0.001
SIZES = st.sampled_from([0.0, 3.5e-6, 4e-5, 6e-5, 9e-4, 1.1e-3, 0.0029, 0.05, 0.7])
SIGNS = st.sampled_from([-1, 1])


@st.composite
def changes(draw):
    """A change with an interval around it, and a p-value that agrees with the interval; or one that is not known."""
    change = draw(SIGNS) * draw(SIZES)
    if draw(st.integers(0, 9)) == 0:
        return {"change": change, "low": None, "high": None, "p": None}
    half = draw(SIZES)
    low, high = change - half, change + half
    return {"change": change, "low": low, "high": high, "p": 0.01 if low > 0 or high < 0 else 0.5}


MEASURED = st.fixed_dictionaries(
    {metric: changes() for metric in {*COMPARED_METRICS, "nll_correct", "aupr_error", "aurc"}}
)
COUNTS = st.tuples(st.integers(60, 100_000), st.integers(0, 60), st.integers(1, 100))


def better(metric: str, of: dict) -> bool:
    """Whether a change is certain, relevant and an improvement."""
    up = METRICS[metric].direction
    certain = of["low"] is not None and of["p"] < 0.05 and (of["low"] > 0 or of["high"] < 0)
    return certain and up * of["change"] >= SMALLEST


@settings(max_examples=400, deadline=None)
@given(MEASURED, COUNTS)
def test_the_headline_claims_what_the_intervals_bear_out(measured, counts):
    rows, errors, groups = counts
    advice = advise_map(measured, rows=rows, errors=errors, groups=groups, smallest=SMALLEST)
    improves = any(better(metric, measured[metric]) for metric in ("nll_correct", "aupr_error", "aurc"))
    enough = groups >= MIN_ADVICE_GROUPS and MIN_ERRORS <= errors <= rows - MIN_ERRORS
    assert (advice.answer == UNKNOWN) == (not enough)
    if advice.answer in (USE, MIXED):
        assert improves
    if advice.answer in (SAFE, KEEP, WORSENS):
        assert not improves
    if advice.answer == SAFE:
        assert measured["nll_correct"]["change"] < SMALLEST
        assert "more labelled rows" in advice.because
    assert not re.search(r"[+-]0(\.0+)?\b|nan|inf|None", str(advice))


@settings(max_examples=400, deadline=None)
@given(st.floats(-1, 1), st.just("") | st.just(" (95% interval -0.1 to +0.1)"))
def test_a_change_is_lowered_or_raised_by_a_number_above_zero_or_no_relevant_difference(change, interval):
    said = format_change("the log loss", change, interval, SMALLEST)
    assert ("No relevant difference" in said) == (abs(change) < SMALLEST)
    assert ("lowers" in said) == (change <= -SMALLEST)
    assert ("raises" in said) == (change >= SMALLEST)
    assert "by -" not in said
    assert "by 0.0000" not in said
    assert interval in said


@settings(max_examples=400, deadline=None)
@given(st.tuples(*[st.floats(0, 1000)] * 2, *[st.floats(-500, 500)] * 2), MEASURED)
def test_no_sentence_shows_a_change_of_zero_or_a_minus_zero(found, measured):
    for sentence in describe_evidence(found, measured, SMALLEST):
        assert not re.search(r"-0(\.0+)?\b(?!\.)|by \+0\.0000|change of \+0\b", sentence), sentence


@settings(max_examples=400, deadline=None)
@given(st.integers(60, 20_000), st.sampled_from([0.0, 1e-5, 0.002, -0.03]), st.floats(1e-6, 1))
def test_with_so_many_more_labels_the_interval_is_as_narrow_as_the_change(rows, change, half):
    more = additional_labels_needed(rows, change, half, SMALLEST)
    assert more >= 1
    if more > 1:
        narrower = half * np.sqrt(rows / (rows + more))
        assert narrower <= max(abs(change), SMALLEST) * (1 + 1e-9)
    assert re.fullmatch(
        r"about [\d,]+ more labelled rows would suffice|even 1,000,000 more labelled rows might not suffice",
        format_labels_needed(more),
    )


@st.composite
def candidates(draw):
    """The confidence and another candidate, whose change lies in its interval or has none."""
    of_other = draw(changes())
    loss = draw(st.floats(0.01, 2))
    numbers = {"nll_correct": loss, "change": of_other["change"], "low": of_other["low"], "high": of_other["high"]}
    confidence = {"variant": "confidence", "nll_correct": loss, "change": 0.0, "low": 0.0, "high": 0.0}
    return [confidence, {"variant": "mrp", **numbers}]


@settings(max_examples=200, deadline=None)
@given(candidates())
def test_the_gain_of_a_candidate_has_the_sign_of_its_change_and_lies_in_the_interval_that_is_shown(listed):
    _, of_confidence, of_other = describe_candidates(listed, maps.make_map("mrp"), "out of fold")
    assert of_confidence.split()[2] == "+0.0000"
    numbers = [float(number) for number in re.findall(r"[+-]\d+\.\d{4}", of_other)]
    assert numbers[0] == pytest.approx(-listed[1]["change"], abs=5.1e-5)
    assert "-0.0000" not in of_other
    if listed[1]["low"] is not None:
        assert numbers[1] <= numbers[0] <= numbers[2]


@settings(max_examples=200, deadline=None)
@given(changes(), st.floats(0, 1), st.floats(0, 0.01))
def test_matrix_scaling_is_named_only_where_its_numbers_are_not_behind(of_matrix, decisions_changed, standard_error):
    numbers = {"decisions_changed": decisions_changed, "standard_error": standard_error, **of_matrix}
    sentences = describe_recalibration(numbers, maps.make_map("mrp"))
    better = of_matrix["high"] is not None and of_matrix["high"] < 0 and of_matrix["change"] <= -SMALLEST
    if of_matrix["low"] is None:
        assert sentences == []
    elif of_matrix["low"] <= 0 <= of_matrix["high"]:
        assert len(sentences) == (of_matrix["change"] <= standard_error)
    for sentence in sentences:
        assert ("is significantly better" in sentence) == better
        assert "-0.0000" not in sentence


@settings(max_examples=200, deadline=None)
@given(st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
def test_a_label_spread_is_more_than_that_of_shuffled_labels_only_where_it_is(spread, shuffled):
    sentence = describe_label_spread(spread, shuffled)
    unknown = spread is None or shuffled is None
    assert ("too few" in sentence) == unknown
    if not unknown:
        assert (" more than between shuffled" in sentence and "no more than" not in sentence) == (spread > shuffled)


@settings(max_examples=300, deadline=None)
@given(st.floats(0, 1), changes())
def test_a_warning_about_the_top_shows_a_gap_above_zero_in_its_direction(correct, of_gap):
    gap, low, high = (of_gap[key] for key in ("change", "low", "high"))
    top = TopCalibration(0.1, 900, correct + gap, correct, gap, None if low is None else 0.01, low, high, of_gap["p"])
    sentence = top.describe()
    shown = float(re.findall(r"difference ([+-][\d.]+\d)", sentence)[0])
    assert shown == pytest.approx(gap, abs=5.1e-4)
    assert "-0.000 " not in sentence
    assert ("Warning" in sentence) == (of_gap["p"] is not None and of_gap["p"] < 0.05 and abs(gap) >= SMALLEST)
    if "Warning" in sentence:
        assert ("overstates" if shown > 0 else "understates") in sentence
        assert shown != 0


@pytest.mark.parametrize("shift", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("n", [150, 900])
def test_the_headline_of_a_fit_agrees_with_what_the_map_contains(n, shift):
    for seed in range(3):
        learned = maps.fit_map(maps.rows_of_frame(maps.make_predictions(n, seed=seed, shift=shift)))
        assert learned.advice.answer in (USE, SAFE, KEEP)
        assert (learned.advice.answer == KEEP) == (learned.document.projection.name == "confidence")
        words = "\n".join(learned.describe())
        assert ("The map contains your confidence" in words) == (learned.advice.answer == KEEP)
        assert "Keep" not in words
        assert not re.search(r"(lowers|raises) .*by -|by 0\.0000", words)


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_a_fit_and_an_evaluation_of_its_rows_report_the_same_label_spread_and_recommendation(shift):
    frame = maps.make_predictions(900, shift=shift)
    fitted = ReliabilityMap().fit(frame)
    held_out = fitted.document_.held_out
    evaluation = fitted.evaluate(frame)
    expected = {"value": held_out.label_spread, "shuffled_p95": held_out.label_spread_shuffled}
    assert evaluation.to_dict()["label_spread"] == pytest.approx(expected, rel=1e-12)
    sentence = describe_label_spread(held_out.label_spread, held_out.label_spread_shuffled)
    assert sentence in fitted.recommendation_.lines
    assert evaluation.to_dict()["advice"] == fitted.recommendation_.to_dict()["advice"]
    if fitted.document_.projection.name != "confidence":
        assert evaluation.lines[0] == fitted.recommendation_.lines[0]


def test_the_smallest_relevant_change_is_a_setting_of_the_fit_and_of_the_evaluation(monkeypatch):
    frame = maps.make_predictions(900, shift=2.0)
    assert ReliabilityMap().fit(frame).recommendation_.to_dict()["advice"] == USE
    by_name = ReliabilityMap(variant="label_platt").fit(frame)
    assert by_name.evaluate(frame).to_dict()["advice"] == USE
    larger = api.DEFAULTS.metrics.model_copy(update={"smallest_relevant_change": 1.0})
    monkeypatch.setattr(api, "DEFAULTS", api.DEFAULTS.model_copy(update={"metrics": larger}))
    kept = ReliabilityMap().fit(frame)
    assert kept.recommendation_.lines[0] == f"{KEEP}: there is no relevant difference."
    assert kept.document_.projection.name == "confidence"
    assert by_name.evaluate(frame).lines[0] == f"{KEEP}: there is no relevant difference."
    again = ReliabilityMap(variant="label_platt").fit(frame)
    assert any("No relevant difference in the log loss" in line for line in again.recommendation_.lines)


@settings(max_examples=400, deadline=None)
@given(st.floats(-1, 1), st.sampled_from([1e-6, 3e-4, 0.0011, 0.05]), st.sampled_from(["mrp", "confidence"]))
def test_recalibrating_is_clearly_better_only_by_a_certain_and_relevant_change(change, half, variant):
    low, high = change - half, change + half
    beside = {"change": change, "low": low, "high": high, "standard_error": half / 2, "decisions_changed": 0.1}
    words = " ".join(describe_recalibration(beside, maps.make_map(variant)))
    assert ("significantly better" in words) == (change <= -SMALLEST and high < 0)
    assert ("is as good" in words) <= (variant != "confidence" and change <= half / 2)
    assert ("less than 0.001" in words) == (bool(words) and abs(change) < SMALLEST)
    assert not re.search(r"-0(\.0+)?\b(?!\.)|by \+0\.0000", words)


UNREADABLE = r"-0(\.0+)?(?![\d.])|(lowers|raises) .*by [-+]|by \+?0\.0000|\bnan\b|\binf\b|None"


@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("n", [60, 600])
def test_no_sentence_of_a_fit_or_an_evaluation_shows_a_minus_zero_a_missing_number_or_a_second_sign(n, shift):
    frame = maps.make_predictions(n, shift=shift)
    fitted = ReliabilityMap().fit(frame)
    for sentence in (*fitted.recommendation_.lines, *fitted.evaluate(frame).lines):
        assert not re.search(UNREADABLE, sentence), sentence
