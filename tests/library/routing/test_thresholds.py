"""Thresholds on the reliability: their description, and how `apply` reads them."""

import json
import math

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


GUARANTEED = (
    "With 90% confidence, at least {} of such decisions are correct, if new rows are independent and from the same "
    "distribution."
)
USED = (
    "Use 62.5% of decisions as they are: those with a reliability of at least 0.75 (1,250 of 2,000 labelled rows, "
    "91.3% of them correct)."
)


def test_thresholds_for_an_accuracy_are_described_with_their_guarantee():
    found = make_thresholds(OVERALL, of_label(0), of_label(2, threshold=0), target=0.925)
    assert found.describe(["no", "some", "yes"]) == [
        USED,
        GUARANTEED.format("92.5%"),
        "A threshold for each label (`apply` uses these with --cuts); with 90% confidence, all of these hold together:",
        "  no: 25.0% of its decisions, with a reliability of at least 0.5 (25 of 100 labelled rows, 96.0% of them "
        "correct); accuracy at least 92.5%",
        "  yes: 25.0% of its decisions, of any reliability (25 of 100 labelled rows, 96.0% of them correct); accuracy "
        "at least 92.5%",
    ]


def test_a_label_without_threshold_has_a_reason_and_then_apply_uses_the_overall_one():
    lines = make_thresholds(OVERALL, of_label(0), of_label(1, threshold=None), target=0.9).describe()
    assert lines[2] == "A threshold for each label; with 90% confidence, all of these hold together:"
    assert lines[4] == "  1: no threshold; 12 rows are too few"


def test_thresholds_for_a_coverage_are_described_with_rounded_down_bounds():
    lines = make_thresholds(OVERALL, of_label(1), requested_coverage="0.625").describe()
    assert lines[:3] == [
        USED,
        GUARANTEED.format("89.9%"),
        "The same threshold for each label; with 90% confidence, all of these hold together:",
    ]
    assert lines[3].endswith("; accuracy at least 87.6%")


def test_a_coverage_that_ties_prevent_is_explained():
    [used, *_] = make_thresholds(OVERALL, of_label(1), requested_coverage="0.7").describe()
    assert used.startswith(f"{USED} The requested 70% are not reached, because rows with the same reliability")


def test_a_missing_threshold_is_described_with_advice():
    lines = make_thresholds(NO_OVERALL, target=0.9, advice=("Label more.", "Or less.")).describe()
    assert lines[:3] == ["No threshold for all decisions: there are few rows.", "Label more.", "Or less."]


def test_a_chosen_threshold_without_rows_has_unknown_accuracy():
    lines = make_thresholds(NO_OVERALL, of_label(1, threshold=None), chosen_threshold=0.99).describe()
    assert lines == [
        "The accuracy at the threshold 0.99 is unknown: there are few rows.",
        "The same threshold for each label; with 90% confidence, all of these hold together:",
        "  1: 12 rows are too few",
    ]


@pytest.mark.parametrize("n_more", [0, 1, 3])
def test_the_labels_with_the_most_rows_are_listed_by_number(n_more):
    labels = [of_label(k, n_rows=1000 - 100 * (k % 3) - k) for k in range(MAX_LISTED_LABELS + n_more)]
    lines = make_thresholds(OVERALL, *labels, target=0.9).describe()[3:]
    largest = sorted(labels, key=lambda estimate: estimate.n_rows, reverse=True)[:MAX_LISTED_LABELS]
    expected = sorted(estimate.label for estimate in largest)
    assert [int(line.split(":")[0]) for line in lines[:MAX_LISTED_LABELS]] == expected
    assert lines[MAX_LISTED_LABELS:] == ([f"  and {n_more} more labels"] if n_more else [])


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
            "the value of cuts has the thresholds of another map; run",
        ),
        (make_stored_thresholds(0.5, (3, 0.5)), r"has the labels \[3\]; the labels of the map are 0 to 2, each once"),
        (make_stored_thresholds(0.5, (1, 0.5), (1, 0.5)), r"has the labels \[1, 1\]"),
        (
            make_stored_thresholds(None, (1, None)),
            "has no threshold; run `thresholds` with a lower accuracy or more rows",
        ),
        (make_stored_thresholds(None), "has no threshold"),
        (
            make_stored_thresholds(1.5),
            "the value of cuts is not an output of `thresholds` .*overall.cut.*; run `thresholds` again",
        ),
        ({}, "is not an output of `thresholds`"),
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
    assert found.overall.reason.startswith("the best candidate is a reliability of at least ")
    assert ", less than 97%" in found.overall.reason

    nine_rows = find_accuracy_thresholds(MAP, reliability[:9], np.zeros(9, dtype=np.int64), correct[:9], target=0.97)
    n_needed = min_rows_to_reject(0.97, 0.05)
    assert nine_rows.overall.reason == f"9 rows are too few; {n_needed} are needed even if all are correct"


def test_a_chosen_threshold_includes_rows_at_the_threshold():
    reliability = np.array([0.5, 0.6, 0.6, 0.7])
    found = bound_accuracy(
        reliability, np.array([0, 0, 1, 1]), np.array([True, False, True, True]), threshold=0.6, confidence=0.8
    )
    assert (found.overall.n_automatic, found.overall.n_rows, found.overall.accuracy) == (3, 4, pytest.approx(2 / 3))
    assert [(e.label, e.n_automatic, e.accuracy) for e in found.labels] == [(0, 1, 0.0), (1, 2, 1.0)]
    assert found.labels[0].lower_bound == 0.0
    assert found.labels[1].lower_bound == pytest.approx(0.1**0.5)  # half of the level: 0.1 = bound^2


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
