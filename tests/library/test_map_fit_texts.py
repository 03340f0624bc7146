"""Texts that a fit prints about its gain and its learning curve."""

import pytest

from relmap.fitting.map_fit import _describe_gain, _describe_gains_by_rows
from relmap.maps.document import Candidate, Gain, MapDocument
from relmap.projection.variants import VARIANTS
from tests import maps

SMALLEST_RELEVANT_CHANGE = 0.001


def make_document(variant: str = "mrp", *, change: float = -0.03, kind: str = "logits") -> MapDocument:
    """Make a map with 500 held-out rows and a gain with an interval of ±0.02."""
    document = maps.make_map(variant)
    candidates = (
        Candidate(variant="confidence", nll_correct=0.5, change=0.0, low=0.0, high=0.0),
        Candidate(variant="mrp", nll_correct=0.47, change=change, low=change - 0.02, high=change + 0.02),
    )
    gains = (
        Gain(rows=100, nll_correct=-0.0123, nll_correct_standard_error=0.004, aurc=0.00004),
        Gain(rows=1000, nll_correct=0.02, nll_correct_standard_error=0.03, aurc=-0.5),
    )
    choice = document.choice.model_copy(update={"candidates": candidates, "gains": gains})
    return document.model_copy(update={"choice": choice, "input": kind})


GAIN = (
    "It lowers the log loss compared with the confidence by 0.0300 (95% interval, adjusted for the model choice: "
    "-0.0500 to -0.0100). With 1,500 more labelled rows, that interval would be half as wide."
)


def test_the_gain_is_described_with_the_rows_that_halve_its_interval():
    assert _describe_gain(make_document(), None, SMALLEST_RELEVANT_CHANGE) == [GAIN]


@pytest.mark.parametrize(
    ("target", "n_more_rows"),
    [(0.011, "1,153"), (0.015, "389"), (0.0199, "6"), (0.03, "0")],  # 500 * (0.02 / target)^2 rows, rounded up
)
def test_the_rows_needed_for_a_target_half_width_grow_with_its_inverse_square(target, n_more_rows):
    _, line = _describe_gain(make_document(), target, SMALLEST_RELEVANT_CHANGE)
    assert line == f"For an interval of ±{target:g}, about {n_more_rows} more labelled rows are needed."


def test_without_a_confidence_the_gain_is_compared_with_one_reliability():
    (line,) = _describe_gain(make_document(change=0.03, kind="decision_only"), None, SMALLEST_RELEVANT_CHANGE)
    assert line.startswith("It raises the log loss compared with one reliability for all decisions by 0.0300 (")


def test_a_gain_below_the_smallest_relevant_change_is_described_as_irrelevant():
    (line,) = _describe_gain(make_document(), None, 0.05)
    assert line.startswith(
        "No relevant difference in the log loss compared with the confidence was found: it changes by"
    )


def test_a_map_that_keeps_the_confidence_has_no_gain():
    assert _describe_gain(make_document("confidence"), 0.01, SMALLEST_RELEVANT_CHANGE) == []


def test_the_learning_curve_has_a_line_for_each_number_of_rows():
    assert _describe_gains_by_rows(make_document()) == [
        f"Change of the metrics from the confidence to {VARIANTS['mrp'].description}, by number of labelled rows:",
        "       100 rows: log loss -0.0123 (standard error 0.0040), AURC +0.0000",
        "     1,000 rows: log loss +0.0200 (standard error 0.0300), AURC -0.5000",
    ]


def test_a_map_without_a_learning_curve_has_no_lines_about_it():
    assert _describe_gains_by_rows(maps.make_map()) == []
