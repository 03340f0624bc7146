"""Thresholds on the reliability: their description, and how `apply` reads them."""

import json
import math
import re

import numpy as np
import pytest

from relmap import InputError
from relmap.routing.group_tests import min_groups_to_reject
from relmap.routing.thresholds import (
    MAX_LISTED_LABELS,
    ReliabilityThresholds,
    ThresholdEstimate,
    bound_accuracy,
    find_accuracy_thresholds,
    min_rows_to_reject,
    read_label_thresholds,
    reject_in_order,
    round_threshold,
    suggest_hold_out,
)
from tests import maps
from tests.texts import numbers_in

OVERALL = ThresholdEstimate(
    label=None, threshold=0.75, n_rows=2000, n_automatic=1250, accuracy=0.9126, lower_bound=0.89999
)
NO_OVERALL = ThresholdEstimate(label=None, n_rows=2000, reason="there are few rows")
MAP = maps.make_map()


def of_label(label: int, n_rows: int = 100, threshold: float | None = 0.5) -> ThresholdEstimate:
    if threshold is None:
        return ThresholdEstimate(label=label, n_rows=n_rows, reason="12 rows are too few")
    return ThresholdEstimate(
        label=label, threshold=threshold, n_rows=n_rows, n_automatic=n_rows // 4, accuracy=0.96, lower_bound=0.8768
    )


def make_thresholds(overall: ThresholdEstimate, *labels: ThresholdEstimate, **fields: object) -> ReliabilityThresholds:
    values = {"target": None, "requested_coverage": None, "confidence": 0.9} | fields
    return ReliabilityThresholds(overall=overall, labels=labels, **values)


NUMBERS_OF_OVERALL = ["62.5%", "0.75", "1,250", "2,000", "91.3%"]


def test_thresholds_for_an_accuracy_are_described_with_their_guarantee():
    found = make_thresholds(OVERALL, of_label(0), of_label(2, threshold=0), target=0.925)
    used, guarantee, heading, of_no, of_yes = found.describe(["no", "some", "yes"])
    assert used.startswith("Use ")
    assert numbers_in(used) == NUMBERS_OF_OVERALL
    assert numbers_in(guarantee) == ["90%", "92.5%"]
    assert re.match(r"A threshold .*`apply` .*--cuts\b.*together", heading)
    assert numbers_in(heading) == ["90%"]
    assert of_no.startswith("  no: ")
    assert numbers_in(of_no) == ["25.0%", "0.5", "25", "100", "96.0%", "92.5%"]
    assert of_yes.startswith("  yes: ")
    assert "of any reliability" in of_yes
    assert numbers_in(of_yes) == ["25.0%", "25", "100", "96.0%", "92.5%"]


def test_a_label_without_threshold_has_a_reason_and_then_apply_uses_the_overall_one():
    missing = of_label(1, threshold=None)
    lines = make_thresholds(OVERALL, of_label(0), missing, target=0.9).describe()
    assert re.match(r"A threshold .*90% .*together", lines[2])
    assert "--cuts" not in lines[2]
    assert lines[4] == f"  1: no threshold; {missing.reason}"


def test_thresholds_for_a_coverage_are_described_with_rounded_down_bounds():
    used, guarantee, heading, of_label_1 = make_thresholds(OVERALL, of_label(1), requested_coverage="0.625").describe()
    assert numbers_in(used) == NUMBERS_OF_OVERALL
    assert numbers_in(guarantee) == ["90%", "89.9%"]
    assert re.match(r"The same threshold .*90% .*together", heading)
    assert of_label_1.endswith("; accuracy at least 87.6%")


def test_a_coverage_that_ties_prevent_is_explained():
    [used, *_] = make_thresholds(OVERALL, of_label(1), requested_coverage="0.7").describe()
    assert numbers_in(used) == [*NUMBERS_OF_OVERALL, "70%"]
    assert re.search(r"requested 70% .*same reliability", used)


def test_a_missing_threshold_is_described_with_advice():
    [missing, *advice, _] = make_thresholds(NO_OVERALL, target=0.9, advice=("Label more.", "Or less.")).describe()
    assert re.fullmatch(rf"No threshold .*all decisions: {NO_OVERALL.reason}\.", missing)
    assert advice == ["Label more.", "Or less."]


def test_a_chosen_threshold_without_rows_has_unknown_accuracy():
    missing = of_label(1, threshold=None)
    overall, heading, of_label_1 = make_thresholds(NO_OVERALL, missing, chosen_threshold=0.99).describe()
    assert re.fullmatch(rf".*accuracy .* 0\.99 .*unknown: {NO_OVERALL.reason}\.", overall)
    assert re.match(r"The same threshold .*90% .*together", heading)
    assert of_label_1 == f"  1: {missing.reason}"


@pytest.mark.parametrize("n_more", [0, 1, 3])
def test_the_labels_with_the_most_rows_are_listed_by_number(n_more):
    labels = [of_label(k, n_rows=1000 - 100 * (k % 3) - k) for k in range(MAX_LISTED_LABELS + n_more)]
    lines = make_thresholds(OVERALL, *labels, target=0.9).describe()[3:]
    largest = sorted(labels, key=lambda estimate: estimate.n_rows, reverse=True)[:MAX_LISTED_LABELS]
    expected = sorted(estimate.label for estimate in largest)
    assert [int(line.split(":")[0]) for line in lines[:MAX_LISTED_LABELS]] == expected
    assert lines[MAX_LISTED_LABELS:] == ([f"  labels not shown: {n_more}"] if n_more else [])


def test_thresholds_as_json_have_every_number():
    content = make_thresholds(OVERALL, of_label(0), target=0.925).as_json()
    assert content == {
        "target_accuracy": 0.925,
        "asked_coverage": None,
        "asked_cut": None,
        "only_label": None,
        "confidence": 0.9,
        "groups": None,
        "overall": {
            "cut": 0.75,
            "rows": 2000,
            "automatic": 1250,
            "accuracy": 0.9126,
            "lower_bound": 0.89999,
            "why": None,
            "coverage": 0.625,
        },
        "labels": [
            {
                "label": 0,
                "cut": 0.5,
                "rows": 100,
                "automatic": 25,
                "accuracy": 0.96,
                "lower_bound": 0.8768,
                "why": None,
                "coverage": 0.25,
            }
        ],
    }


def make_stored_thresholds(
    overall: float | None, *labels: tuple[int, float | None], **fields: object
) -> dict[str, object]:
    content = {
        "map_fingerprint": MAP.fingerprint,
        "overall": {"cut": overall},
        "labels": [{"label": label, "cut": cut} for label, cut in labels],
    }
    return content | fields


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (make_stored_thresholds(0.75, (0, 0.5), (2, 0.25)), [0.5, math.inf, 0.25]),
        (make_stored_thresholds(None, (0, 0.5), (1, None)), [0.5, math.inf, math.inf]),
        (make_stored_thresholds(0.75, (0, 0.5), (1, None)), [0.75, 0.75, 0.75]),
        (make_stored_thresholds(0.75), [0.75, 0.75, 0.75]),
        (make_stored_thresholds(0.75, (0, 0.5), asked_coverage="0.7"), [0.75, 0.75, 0.75]),
        (make_stored_thresholds(0.75, (0, 0.5), asked_cut=0.75), [0.75, 0.75, 0.75]),
    ],
)
@pytest.mark.parametrize("in_file", [False, True])
def test_thresholds_by_label_are_used_if_each_listed_label_has_one_or_no_overall_one_exists(
    content, expected, in_file, tmp_path
):
    source = content
    if in_file:
        source = tmp_path / "cuts.json"
        source.write_text(json.dumps(content), encoding="utf-8")
    np.testing.assert_array_equal(read_label_thresholds(MAP, source), expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            make_stored_thresholds(0.5) | {"map_fingerprint": "x"},
            "cuts .*another map; run `thresholds`",
        ),
        (make_stored_thresholds(0.5, (3, 0.5)), r"labels \[3\]; .*map are 0 to 2\b"),
        (make_stored_thresholds(0.5, (1, 0.5), (1, 0.5)), r"labels \[1, 1\]"),
        (
            make_stored_thresholds(None, (1, None)),
            "no threshold;.*`thresholds`.*lower accuracy",
        ),
        (make_stored_thresholds(None), "has no threshold"),
        (
            make_stored_thresholds(1.5),
            r"cuts .*output of `thresholds`.*overall\.cut.*`thresholds`",
        ),
        ({}, "not an output of `thresholds`"),
    ],
)
def test_invalid_thresholds_are_rejected(content, message):
    with pytest.raises(InputError, match=message):
        read_label_thresholds(MAP, content)


@pytest.mark.parametrize(
    ("reliability", "observed", "up", "expected"),
    [
        (0.123456, [], False, 0.1234),
        (0.123456, [], True, 0.1235),
        (0.1234, [], False, 0.1233),  # below, and not equal
        (0.1234, [], True, 0.1235),
        (0.123456, [0.1234], False, 0.12345),  # five digits, since four would tie
        (0.123456, [0.1234, 0.12345], False, 0.123455),
        (0.0, [], False, 0.0),
        (0.999987654, [], False, 0.9999876),  # digits that distinguish it from 1
        (0.000012345, [], True, 0.0000124),
    ],
)
def test_thresholds_are_rounded_to_as_few_digits_as_possible(reliability, observed, up, expected):
    assert round_threshold(reliability, np.array(observed), up=up) == expected


def test_the_smallest_sample_that_can_reject_has_no_error():
    assert min_rows_to_reject(0.9, 0.05) == 29  # 0.9^29 = 0.0471, 0.9^28 = 0.0523
    assert min_rows_to_reject(0.5, 0.25) == 2


def test_a_rejected_hypothesis_passes_its_level_on():
    p_values = np.array([[0.01, 0.03, 0.02, 0.03], [0.03, 0.02, 0.02, 0.04]])
    levels = np.array([[0.01, 0.02, 0.0, 0.005], [0.02, 0.02, 0.01, 0.0]])
    # first row: 0.01, 0.01 + 0.02, 0.03 + 0 and 0.03 + 0.005; second row: 0.03 > 0.02 and 0.04 > 0.03 are not rejected
    expected = [[0.01, 0.03, 0.03, 0.035], [0.0, 0.02, 0.03, 0.0]]
    np.testing.assert_allclose(reject_in_order(p_values, levels), expected)


def test_the_reason_for_a_missing_threshold_names_the_best_candidate():
    reliability = np.repeat([0.95, 0.9, 0.4], [40, 60, 100])
    correct = np.ones(200, dtype=bool)
    correct[[0, 1, 50, 51, 52]] = False
    correct[100:160] = False
    found = find_accuracy_thresholds(MAP, reliability, np.zeros(200, dtype=np.int64), correct, target=0.97)
    assert found.overall.threshold is None
    assert re.match(r"the best candidate .* 0\.\d+, .* less than 97%$", found.overall.reason)

    nine_rows = find_accuracy_thresholds(MAP, reliability[:9], np.zeros(9, dtype=np.int64), correct[:9], target=0.97)
    n_needed = min_rows_to_reject(0.97, 0.05)
    assert re.match(rf"9 rows .*too few; {n_needed} ", nine_rows.overall.reason)


def test_a_chosen_threshold_includes_rows_at_the_threshold():
    reliability = np.array([0.5, 0.6, 0.6, 0.7])
    found = bound_accuracy(
        reliability, np.array([0, 0, 1, 1]), np.array([True, False, True, True]), threshold=0.6, confidence=0.8
    )
    assert (found.overall.n_automatic, found.overall.n_rows, found.overall.accuracy) == (3, 4, pytest.approx(2 / 3))
    assert [(e.label, e.n_automatic, e.accuracy) for e in found.labels] == [(0, 1, 0.0), (1, 2, 1.0)]
    assert found.labels[0].lower_bound == 0.0
    assert found.labels[1].lower_bound == pytest.approx(0.1**0.5)  # half of the level: 0.1 = bound^2


def test_a_label_that_alone_has_automatic_rows_has_the_whole_level():
    found = bound_accuracy(
        np.array([0.5, 0.5, 0.6, 0.7]), np.array([0, 0, 1, 1]), np.full(4, True), threshold=0.6, confidence=0.8
    )
    assert [e.n_automatic for e in found.labels] == [0, 2]
    assert found.labels[1].lower_bound == found.overall.lower_bound == pytest.approx(0.2**0.5)


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("target", [0.5, 0.8, 0.9, 0.97])
@pytest.mark.parametrize("n_units", [10, 40, 80, 150, 5000])
def test_the_suggested_share_is_the_smallest_one_that_shows_the_target_if_all_are_correct(n_units, target, is_grouped):
    def suffices(share: float) -> bool:
        n_held_out = round(share * n_units)
        if is_grouped:
            return n_held_out >= min_groups_to_reject(target, 0.025)
        return target**n_held_out <= 0.025

    shares = [percent / 100 for percent in range(30, 91, 5)]
    expected = next((share for share in shares if suffices(share)), None)
    assert suggest_hold_out(n_units, target, 0.05, is_grouped=is_grouped) == expected
