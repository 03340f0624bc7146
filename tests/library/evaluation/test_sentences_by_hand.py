"""Sentences about made-up maps and numbers: when each is written, and the names and numbers in it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from relmap.calibrators.identity import Constant
from relmap.calibrators.structured import StructuredMatrix
from relmap.evaluation.sentences import (
    compare_log_loss,
    describe_baseline,
    describe_comparison,
    describe_label_spread,
    describe_limits,
    describe_low_accuracy,
    describe_lower_accuracy,
    describe_models,
    describe_pooled_labels,
    describe_training_doubts,
    find_errors,
)
from relmap.maps.document import Calibration, Cell, Fold, MapDocument
from tests.maps import make_map, make_map_with_held_out
from tests.texts import assert_matches, numbers_in


def make_numbers(low: float | None = -0.03, high: float | None = -0.01, **numbers: Any) -> dict[str, Any]:
    """Make the numbers of an evaluation of 2,000 rows in 500 groups, of which 600 are wrong."""
    reviews = []
    for reviewed, found in ((0.1, 700.0), (0.3, 500.0), (0.5, 400.0)):
        numbers_of_review = {"confidence": found - 60, "reliability": found, "low": 20.0, "high": 100.0}
        reviews.append({"reviewed": reviewed, **numbers_of_review})
    evaluation = {
        "rows": 2000,
        "errors": 600,
        "groups": 500,
        "grouped": True,
        "weighted": False,
        "accuracy": {"value": 0.7, "low": 0.68, "high": 0.72},
        "metrics": {"nll_correct": {"change": -0.02, "low": low, "high": high}},
        "reviews": reviews,
    }
    return evaluation | numbers


def make_calibration(name: str, fitted: object) -> Calibration:
    return Calibration.model_construct(name=name, rows=500, fitted=fitted)


def make_decision_map() -> MapDocument:
    """Make a map of decisions without a confidence."""
    update = {"input": "decision_only", "calibrator": make_calibration("constant", Constant(0.8))}
    return make_map("label_intercept").model_copy(update=update)


def test_a_comparison_has_the_change_of_the_log_loss_and_its_interval():
    comparison = compare_log_loss(make_numbers())
    assert (comparison.change, comparison.low, comparison.high) == (-0.02, -0.03, -0.01)


def test_the_baseline_is_the_confidence_that_the_map_is_compared_with():
    with_baseline = make_map().model_copy(update={"baseline": make_calibration("uncal", None)})
    assert describe_baseline(make_map()).endswith("calibrator ts")
    assert describe_baseline(make_map(confidence_only=True)) == "your confidence"
    assert describe_baseline(with_baseline) == "your confidence"
    assert describe_baseline(make_decision_map()) == "one reliability for all decisions"


@pytest.mark.parametrize(("low", "high", "n_lines"), [(-0.03, -0.01, 2), (-0.03, 0.01, 2), (0.01, 0.03, 3)])
def test_a_comparison_has_its_answer_advice_if_it_is_worse_and_the_errors_found(low, high, n_lines):
    first, *advice, errors = describe_comparison(make_numbers(low, high), make_map(), "on these rows")
    assert first.endswith("on these rows.")
    assert len(advice) + 2 == n_lines
    assert_matches(advice, ["variant confidence"] * (n_lines - 2))
    assert numbers_in(errors)[:2] == ["1,000", "30%"]
    assert {"500", "440"} <= set(numbers_in(errors))


def test_a_map_that_keeps_the_confidence_is_not_compared_with_it():
    kept = make_map("confidence")
    assert_matches(describe_comparison(make_numbers(), kept, "on rows"), ["^The map keeps .* ts .*, on rows\\.$"])
    with_baseline = kept.model_copy(update={"baseline": make_calibration("uncal", None)})
    assert_matches(describe_comparison(make_numbers(), with_baseline, "on rows"), ["^Better than", "errors"])


def test_a_comparison_of_few_groups_is_uncertain_and_wrong_decisions_come_first():
    accuracy = {"value": 0.4, "low": None, "high": None}
    numbers = make_numbers(groups=50, accuracy=accuracy)
    lines = describe_comparison(numbers, make_map(), "on rows")
    assert_matches(lines, ["40\\.0% are correct", "^Better", "errors", "^Uncertain.* 50 groups"])


@pytest.mark.parametrize(("accuracy", "is_stated"), [(None, False), (0.5, False), (0.4999, True), (0.0, True)])
def test_an_accuracy_below_one_half_is_stated(accuracy, is_stated):
    lines = describe_low_accuracy({"accuracy": {"value": accuracy}})
    assert len(lines) == is_stated
    if is_stated:
        assert f"{100 * accuracy:.1f}%" in numbers_in(lines[0])


def test_errors_found_are_those_of_reviews_of_30_percent():
    found = find_errors(make_numbers())
    assert (found.by_confidence, found.by_reliability, found.low, found.high) == (440, 500, 20, 100)


def make_matrix(n_labels: int) -> StructuredMatrix:
    return StructuredMatrix(scale=1.0, weights=np.eye(n_labels), bias=np.zeros(n_labels))


@pytest.mark.parametrize(
    ("name", "fitted", "n_labels", "expected"),
    [
        ("sms", make_matrix(12), 12, "structured matrix scaling"),
        ("sms", make_matrix(13), 13, "temperature scaling"),
        ("ts", None, 13, "TS"),
        ("uncal", None, 3, "the confidence as given"),
        ("of an earlier version", None, 3, "the confidence as given"),
    ],
)
def test_the_models_name_the_calibrator(name, fitted, n_labels, expected):
    update = {"calibrator": make_calibration(name, fitted), "n_labels": n_labels}
    (sentence,) = describe_models(make_map().model_copy(update=update)).splitlines()
    assert sentence.startswith(f"The map: {expected}; a monotone curve ")
    assert numbers_in(sentence) == ["507"]
    assert "signals" not in sentence


def test_the_models_name_the_accuracy_of_decisions_the_signals_and_the_folds():
    assert "; ".join(("the accuracy of all decisions", "a shift")) in describe_models(make_decision_map())
    document = make_map()
    fold = Fold(calibrator=document.calibrator.fitted, projection=document.projection.fitted)
    signals = tuple(SimpleNamespace(name=name) for name in ("length", "source"))
    projection = document.projection.model_copy(update={"rows": 1234})
    sentence = describe_models(
        document.model_copy(update={"folds": (fold,) * 5, "signals": signals, "projection": projection})
    )
    assert "; the signals length, source." in sentence
    assert numbers_in(sentence) == ["1,234", "5"]


@pytest.mark.parametrize(
    ("spread", "shuffled", "comparison"),
    [(0.125, 0.1, " more than"), (0.1, 0.1, "no more than"), (0.05, 0.1, "no more")],
)
def test_the_label_spread_is_compared_with_shuffled_labels(spread, shuffled, comparison):
    sentence = describe_label_spread(spread, shuffled)
    assert comparison in sentence
    assert ("no more" in sentence) == (spread <= shuffled)
    assert numbers_in(sentence) == [f"{100 * spread:.1f}", "95%", f"{100 * shuffled:.1f}"]


@pytest.mark.parametrize(("spread", "shuffled"), [(None, 0.1), (0.1, None), (None, None)])
def test_the_label_spread_is_unknown_without_numbers(spread, shuffled):
    assert "unknown" in describe_label_spread(spread, shuffled)


def test_labels_without_a_curve_of_their_own_are_named_with_their_rows():
    """The made-up curves are those of a label with rows, of a label with the shared curve, and of one without rows."""
    (sentence,) = describe_pooled_labels(make_map("mrp"))
    shared, identity = sentence.partition(": ")[2].split(", ")
    assert shared.startswith("partial (7 rows) mostly")
    assert identity.startswith("exact (0 rows) keeps")
    assert describe_pooled_labels(make_map("confidence")) == []


@pytest.mark.parametrize(
    ("rows", "errors", "is_doubted"),
    [(299, 0, False), (300, 0, True), (300, 1, False), (1000, 2, True), (1000, 3, False), (1500, 3, True)],
)
def test_hardly_any_wrong_decision_of_300_or_more_is_doubted(rows, errors, is_doubted):
    lines = describe_training_doubts({"rows": rows, "errors": errors})
    assert len(lines) == is_doubted
    if is_doubted:
        assert numbers_in(lines[0]) == [str(errors), f"{rows:,}"]


def make_cell(accuracy: float) -> Cell:
    return Cell(label=0, half="lower", rows=100, mean_reliability=0.5, mean_residual=accuracy - 0.5, variance=0.1)


@pytest.mark.parametrize(("high", "is_asked"), [(0.65, True), (0.64, True), (0.66, False), (None, False)])
def test_an_accuracy_that_is_lower_by_ten_points_or_more_raises_a_question(high, is_asked):
    document = make_map_with_held_out(cells=(make_cell(0.75),))
    lines = describe_lower_accuracy(document, {"accuracy": {"value": 0.6, "high": high}})
    assert len(lines) == is_asked
    if is_asked:
        assert numbers_in(lines[0]) == ["60.0%", "75.0%"]
    assert describe_lower_accuracy(make_map(), {"accuracy": {"value": 0.1, "high": 0.2}}) == []


def test_limits_name_the_rows_the_calibrator_and_what_is_sampled():
    (sentence,) = describe_limits(make_numbers(), make_map())
    assert numbers_in(sentence) == ["2,000"]
    assert "calibrator ts" in sentence
    assert "sampling of groups" in sentence
    first, second = describe_limits(make_numbers(grouped=False, weighted=True), make_decision_map())
    assert "calibrator" not in first
    assert "sampling of rows" in first
    assert "weighted" in second
