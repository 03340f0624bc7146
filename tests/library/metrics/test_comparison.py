"""Comparison of reliability and confidence: three words, numbers of errors found, and sentences on uncertainty."""

import re

import pytest

from relmap.evaluation.sentences import describe_comparison
from relmap.metrics.comparison import (
    BETTER,
    FEW_UNITS,
    NO_DIFFERENCE,
    WORSE,
    Comparison,
    ErrorsFound,
    describe_uncertainty,
    rarer_outcome,
)
from tests import maps


@pytest.mark.parametrize(
    ("change", "low", "high", "word"),
    [
        (-0.02, -0.03, -1e-9, BETTER),
        (-0.02, -0.03, 0.0, NO_DIFFERENCE),
        (0.0, -0.01, 0.01, NO_DIFFERENCE),
        (0.02, 0.0, 0.03, NO_DIFFERENCE),
        (0.02, 1e-9, 0.03, WORSE),
        (-0.5, None, None, NO_DIFFERENCE),  # too few groups for an interval
        (None, None, None, NO_DIFFERENCE),
    ],
)
def test_the_word_follows_from_the_interval_alone(change, low, high, word):
    comparison = Comparison(change=change, low=low, high=high)
    assert comparison.word == word
    description = comparison.describe("your confidence", "out of fold on 500 rows")
    assert description.lower().startswith(word)
    assert "your confidence" in description
    if change is not None:
        assert f"{change:+z.4f}" in description


@pytest.mark.parametrize(
    ("rows", "errors", "groups", "numbers"),
    [
        (500, 250, 500, []),
        (2000, 100, 100, []),
        (2000, 1900, 100, []),
        (2000, 1000, 99, ["99 groups"]),
        (2000, 99, 2000, ["99 of 2,000 .*wrong"]),
        (2000, 1901, 2000, ["99 of 2,000 .*correct"]),
        (99, 49, 99, ["99 rows", "49 of 99 .*wrong"]),
        (99, 49, 21, ["21 groups", "49 of 99 .*wrong"]),
    ],
)
def test_few_rows_groups_or_outcomes_are_called_uncertain(rows, errors, groups, numbers):
    assert FEW_UNITS == 100
    sentence = describe_uncertainty(rows, errors, groups)
    assert bool(sentence) == bool(numbers)
    assert all(re.search(number, sentence) for number in numbers)


def test_the_rarer_outcome_is_counted_and_named():
    assert rarer_outcome(100, 3) == (3, "wrong")
    assert rarer_outcome(100, 96) == (4, "correct")


@pytest.mark.parametrize(
    ("found", "part"),
    [
        ((100.4, 110.6, 2.0, 20.0), r" 111 errors; 1,000 .*confident 30% .* 100 \(\+11, 95%"),
        ((110.6, 100.4, None, None), r" 100 errors; 1,000 .*confident 30% .* 111 \(-11\)\."),
        ((100.4, 99.6, None, None), r" 100 errors, as many .*1,000 .*confident 30%\."),
        ((None, 100.4, None, None), None),
        ((100.4, None, None, None), None),
    ],
)
def test_numbers_of_errors_are_compared_after_rounding(found, part):
    sentences = ErrorsFound(*found).describe()
    assert len(sentences) == (part is not None)
    if part is not None:
        assert re.search(part, sentences[0])


def evaluation_of(accuracy: float, low: float = 0.01) -> dict[str, object]:
    """Make the numbers of an evaluation whose log loss is worse if `low` is above 0."""
    review = {"reviewed": 0.3, "confidence": 10.0, "reliability": 12.0, "low": 1.0, "high": 3.0}
    return {
        "metrics": {"nll_correct": {"change": 0.02, "low": low, "high": 0.03}},
        "accuracy": {"value": accuracy},
        "reviews": [review],
        "rows": 2000,
        "errors": 1000,
        "groups": 2000,
    }


@pytest.mark.parametrize(("accuracy", "is_said"), [(0.0, True), (0.4999, True), (0.5, False), (0.9, False)])
def test_the_first_line_says_that_most_decisions_are_wrong(accuracy, is_said):
    lines = describe_comparison(evaluation_of(accuracy), maps.make_map(), "on these rows")
    assert bool(re.search(f"wrong.* {100 * accuracy:.1f}%", lines[0])) == is_said
    assert len(lines) <= 5


def test_worse_comes_with_the_advice_to_keep_the_confidence():
    worse = describe_comparison(evaluation_of(0.9), maps.make_map(), "on these rows")
    no_difference = describe_comparison(evaluation_of(0.9, low=-0.01), maps.make_map(), "on these rows")
    assert "variant confidence" in worse[1]
    assert "variant confidence" not in " ".join(no_difference)


def test_a_map_that_keeps_the_confidence_is_not_compared_with_itself():
    where = "on these rows"
    (line,) = describe_comparison(evaluation_of(0.9), maps.make_map("confidence"), where)
    assert all(part in line for part in ("keeps", "calibrator ts", where))
