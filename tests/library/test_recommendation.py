"""Printed recommendations agree with the numbers and with the map."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    ErrorsFound,
    additional_rows_needed,
    advise_map,
    describe_evidence,
    format_change,
    format_rows_needed,
)

from relmap import ReliabilityMap, api
from relmap.evaluation.top_calibration import TopCalibration
from relmap.metrics.registry import COMPARED_METRICS, METRICS
from tests import maps

MIN_RELEVANT_CHANGE = 0.001
SIGNIFICANCE_LEVEL = 0.05
MAGNITUDES = st.sampled_from([0.0, 3.5e-6, 4e-5, 6e-5, 9e-4, 1.1e-3, 0.0029, 0.05, 0.7])
SIGNS = st.sampled_from([-1, 1])


@st.composite
def changes(draw):
    """Draw a change with an interval and a p-value that agrees with it, or a change without an interval."""
    change = draw(SIGNS) * draw(MAGNITUDES)
    if draw(st.integers(0, 9)) == 0:
        return {"change": change, "low": None, "high": None, "p": None}
    half_width = draw(MAGNITUDES)
    low = change - half_width
    high = change + half_width
    excludes_zero = low > 0 or high < 0
    return {"change": change, "low": low, "high": high, "p": 0.01 if excludes_zero else 0.5}


MEASURED = st.fixed_dictionaries(
    {metric: changes() for metric in {*COMPARED_METRICS, "nll_correct", "aupr_error", "aurc"}}
)
COUNTS = st.tuples(st.integers(60, 100_000), st.integers(0, 60), st.integers(1, 100))


def is_significant_improvement(metric: str, comparison: dict) -> bool:
    """Return whether a change is a significant and relevant improvement."""
    if comparison["low"] is None:
        return False
    excludes_zero = comparison["low"] > 0 or comparison["high"] < 0
    is_significant = excludes_zero and comparison["p"] < SIGNIFICANCE_LEVEL
    return is_significant and METRICS[metric].direction * comparison["change"] >= MIN_RELEVANT_CHANGE


@settings(max_examples=80, deadline=None)
@given(MEASURED, COUNTS)
def test_headline_is_supported_by_the_intervals(measured, counts):
    rows, errors, groups = counts
    advice = advise_map(measured, rows=rows, errors=errors, groups=groups, smallest=MIN_RELEVANT_CHANGE)
    deciding_metrics = ("nll_correct", "aupr_error", "aurc")
    any_improves = any(is_significant_improvement(metric, measured[metric]) for metric in deciding_metrics)
    has_enough_data = groups >= MIN_ADVICE_GROUPS and MIN_ERRORS <= errors <= rows - MIN_ERRORS

    assert (advice.answer == UNKNOWN) == (not has_enough_data)
    if advice.answer in (USE, MIXED):
        assert any_improves
    if advice.answer in (SAFE, KEEP, WORSENS):
        assert not any_improves
    if advice.answer == SAFE:
        assert measured["nll_correct"]["change"] < MIN_RELEVANT_CHANGE
        assert "more labelled rows" in advice.reason
    assert not re.search(r"[+-]0(\.0+)?\b|nan|inf|None", str(advice))


@settings(max_examples=80, deadline=None)
@given(st.floats(-1, 1), st.just("") | st.just(" (95% interval -0.1 to +0.1)"))
def test_change_is_worded_with_a_positive_number_or_as_irrelevant(change, interval):
    sentence = format_change("the log loss", change, interval, MIN_RELEVANT_CHANGE)
    assert ("No relevant difference" in sentence) == (abs(change) < MIN_RELEVANT_CHANGE)
    assert ("lowers" in sentence) == (change <= -MIN_RELEVANT_CHANGE)
    assert ("raises" in sentence) == (change >= MIN_RELEVANT_CHANGE)
    assert "by -" not in sentence
    assert "by 0.0000" not in sentence
    assert interval in sentence


@settings(max_examples=80, deadline=None)
@given(
    errors_found=st.tuples(st.floats(0, 1000), st.floats(0, 1000)),  # by confidence, by reliability
    interval=st.tuples(st.floats(-500, 500), st.floats(-500, 500)),
    measured=MEASURED,
)
def test_evidence_shows_no_zero_change(errors_found, interval, measured):
    for sentence in describe_evidence(ErrorsFound(*errors_found, *interval), measured, MIN_RELEVANT_CHANGE):
        assert not re.search(r"-0(\.0+)?\b(?!\.)|by \+0\.0000|change of \+0\b", sentence), sentence


@settings(max_examples=80, deadline=None)
@given(st.integers(60, 20_000), st.sampled_from([0.0, 1e-5, 0.002, -0.03]), st.floats(1e-6, 1))
def test_additional_rows_narrow_the_interval_to_the_change(rows, change, half_width):
    n_more = additional_rows_needed(rows, change, half_width, MIN_RELEVANT_CHANGE)
    assert n_more >= 1
    if n_more > 1:
        narrower = half_width * np.sqrt(rows / (rows + n_more))
        assert narrower <= max(abs(change), MIN_RELEVANT_CHANGE) * (1 + 1e-9)
    assert re.fullmatch(
        r"about [\d,]+ more labelled rows would suffice|even 1,000,000 more labelled rows might not suffice",
        format_rows_needed(n_more),
    )


@st.composite
def candidates(draw):
    """Draw the rows of the confidence and of another candidate."""
    comparison = draw(changes())
    loss = draw(st.floats(0.01, 2))
    confidence = {"variant": "confidence", "nll_correct": loss, "change": 0.0, "low": 0.0, "high": 0.0}
    other = {"variant": "mrp", "nll_correct": loss}
    for name in ("change", "low", "high"):
        other[name] = comparison[name]
    return [confidence, other]


@settings(max_examples=60, deadline=None)
@given(candidates())
def test_candidate_gain_has_the_sign_of_its_change_and_lies_in_its_interval(rows):
    _, confidence_line, other_line = describe_candidates(rows, maps.make_map("mrp"), "out of fold")
    _, _, confidence_gain, *_ = confidence_line.split()  # variant, log loss, gain, interval
    assert confidence_gain == "+0.0000"
    gain, *interval = [float(number) for number in re.findall(r"[+-]\d+\.\d{4}", other_line)]
    assert gain == pytest.approx(-rows[1]["change"], abs=5.1e-5)
    assert "-0.0000" not in other_line
    if rows[1]["low"] is not None:
        low, high = interval
        assert low <= gain <= high


@settings(max_examples=60, deadline=None)
@given(changes(), st.floats(0, 1), st.floats(0, 0.01))
def test_matrix_scaling_is_named_only_if_it_is_not_worse(comparison, decisions_changed, standard_error):
    numbers = {"decisions_changed": decisions_changed, "standard_error": standard_error, **comparison}
    sentences = describe_recalibration(numbers, maps.make_map("mrp"))
    is_better = (
        comparison["high"] is not None and comparison["high"] < 0 and comparison["change"] <= -MIN_RELEVANT_CHANGE
    )
    if comparison["low"] is None:
        assert sentences == []
    elif comparison["low"] <= 0 <= comparison["high"]:
        n_expected = 1 if comparison["change"] <= standard_error else 0
        assert len(sentences) == n_expected
    for sentence in sentences:
        assert ("is significantly better" in sentence) == is_better
        assert "-0.0000" not in sentence


@settings(max_examples=60, deadline=None)
@given(st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
def test_label_spread_is_compared_with_shuffled_labels_correctly(spread, shuffled):
    sentence = describe_label_spread(spread, shuffled)
    unknown = spread is None or shuffled is None
    assert ("too few" in sentence) == unknown
    if not unknown:
        is_described_as_larger = " more than between shuffled" in sentence and "no more than" not in sentence
        assert is_described_as_larger == (spread > shuffled)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), changes())
def test_top_calibration_warning_has_the_direction_of_the_gap(correct, comparison):
    gap = comparison["change"]
    p_value = comparison["p"]
    top = TopCalibration(
        share=0.1,
        rows=900,
        predicted=correct + gap,
        correct=correct,
        gap=gap,
        standard_error=None if p_value is None else 0.01,
        low=comparison["low"],
        high=comparison["high"],
        p_value=p_value,
    )
    sentence = top.describe()
    shown = float(re.findall(r"difference ([+-][\d.]+\d)", sentence)[0])

    assert shown == pytest.approx(gap, abs=5.1e-4)
    assert "-0.000 " not in sentence
    is_significant = p_value is not None and p_value < SIGNIFICANCE_LEVEL
    assert ("Warning" in sentence) == (is_significant and abs(gap) >= MIN_RELEVANT_CHANGE)
    if "Warning" in sentence:
        assert ("overstates" if shown > 0 else "understates") in sentence
        assert shown != 0


@pytest.mark.parametrize("shift", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("n", [150, 900])
def test_headline_of_a_fit_agrees_with_the_map(n, shift):
    for seed in range(3):
        result = maps.fit_map(maps.rows_of_frame(maps.make_predictions(n, seed=seed, shift=shift)))
        assert result.advice.answer in (USE, SAFE, KEEP)
        assert (result.advice.answer == KEEP) == (result.document.projection.name == "confidence")
        text = "\n".join(result.describe())
        assert ("The map contains your confidence" in text) == (result.advice.answer == KEEP)
        assert "Keep" not in text
        assert not re.search(r"(lowers|raises) .*by -|by 0\.0000", text)


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_fit_and_evaluation_of_its_rows_agree(shift):
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


def test_smallest_relevant_change_applies_to_fit_and_evaluation(monkeypatch):
    frame = maps.make_predictions(900, shift=2.0)
    assert ReliabilityMap().fit(frame).recommendation_.to_dict()["advice"] == USE

    by_name = ReliabilityMap(variant="label_platt").fit(frame)
    assert by_name.evaluate(frame).to_dict()["advice"] == USE

    metrics = api.DEFAULTS.metrics.model_copy(update={"smallest_relevant_change": 1.0})
    monkeypatch.setattr(api, "DEFAULTS", api.DEFAULTS.model_copy(update={"metrics": metrics}))
    refitted = ReliabilityMap().fit(frame)

    assert refitted.recommendation_.lines[0] == f"{KEEP}: there is no relevant difference."
    assert refitted.document_.projection.name == "confidence"
    assert by_name.evaluate(frame).lines[0] == f"{KEEP}: there is no relevant difference."

    by_name_again = ReliabilityMap(variant="label_platt").fit(frame)
    assert any("No relevant difference in the log loss" in line for line in by_name_again.recommendation_.lines)


@settings(max_examples=80, deadline=None)
@given(st.floats(-1, 1), st.sampled_from([1e-6, 3e-4, 0.0011, 0.05]), st.sampled_from(["mrp", "confidence"]))
def test_recalibration_is_better_only_with_a_significant_relevant_change(change, half_width, variant):
    low = change - half_width
    high = change + half_width
    numbers = {"change": change, "low": low, "high": high, "standard_error": half_width / 2, "decisions_changed": 0.1}
    text = " ".join(describe_recalibration(numbers, maps.make_map(variant)))

    assert ("significantly better" in text) == (change <= -MIN_RELEVANT_CHANGE and high < 0)
    if "is as good" in text:
        assert variant != "confidence"
        assert change <= half_width / 2
    assert ("less than 0.001" in text) == (bool(text) and abs(change) < MIN_RELEVANT_CHANGE)
    assert not re.search(r"-0(\.0+)?\b(?!\.)|by \+0\.0000", text)


MALFORMED_NUMBER = r"-0(\.0+)?(?![\d.])|(lowers|raises) .*by [-+]|by \+?0\.0000|\bnan\b|\binf\b|None"


@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("n", [60, 600])
def test_sentences_contain_no_malformed_number(n, shift):
    frame = maps.make_predictions(n, shift=shift)
    fitted = ReliabilityMap().fit(frame)
    for sentence in (*fitted.recommendation_.lines, *fitted.evaluate(frame).lines):
        assert not re.search(MALFORMED_NUMBER, sentence), sentence
