"""Sentences on an evaluation: limits, reasons and alternatives, for made-up numbers."""

from types import SimpleNamespace
from typing import Any

import pytest
from relmap.evaluation.verdict import (
    describe_candidates,
    describe_evaluation,
    describe_label_spread,
    describe_limits,
    describe_pooled_labels,
    describe_recalibration,
)
from relmap.metrics.advice import KEEP, USE, advise

from relmap.evaluation import verdict
from relmap.maps.document import Candidate
from tests import maps

MAP = maps.make_map("mrp")  # labels with 500, 7 and no rows
CONFIDENCE_MAP = maps.make_map("confidence")
BETTER = {"change": -0.02, "low": -0.03, "high": -0.01, "p": 0.01}
BETTER_RANKING = {"change": 0.02, "low": 0.01, "high": 0.03, "p": 0.01}
NO_CHANGE = {"change": 0.0, "low": -0.0001, "high": 0.0001, "p": 0.9}


def make_evaluation(changed: bool = True, errors: int = 150, rows: int = 1500, **values: Any) -> dict[str, Any]:
    """Make the numbers of an evaluation of `MAP`."""
    loss = BETTER if changed else NO_CHANGE
    return {
        "rows": rows,
        "errors": errors,
        "groups": rows,
        "grouped": False,
        "weighted": False,
        "reviews": [
            {"reviewed": 0.1, "confidence": 1.0, "reliability": 2.0, "low": 3.0, "high": 4.0, "at_random": 5.0},
            {"reviewed": 0.3, "confidence": 100.4, "reliability": 120.2, "low": 9.6, "high": 30, "at_random": 77.7},
        ],
        "metrics": {"nll_correct": loss, "aurc": loss, "aupr_error": BETTER_RANKING if changed else NO_CHANGE},
        "label_spread": {"value": 0.125, "shuffled_p95": 0.0625},
        "labels": [
            {"name": "irrelevant", "rows": 900, "fallback": "none", "fit_rows": 500},
            {"name": "partial", "rows": 600, "fallback": "shared", "fit_rows": 7},
            {"name": "exact", "rows": 0, "fallback": "identity", "fit_rows": 0},
        ],
        **values,
    }


LIMITS = (
    "Based on 1,500 rows, calibrator ts. Intervals reflect the sampling of rows, given the fit; they do not cover "
    "refitting or other data."
)
POOLED = (
    "Too few rows for a curve of its own: partial (7 rows) is mostly pooled with the other labels, exact (0 rows) "
    "keeps its confidence."
)


def test_a_useful_map_is_described_by_its_evidence_and_limits():
    assert describe_evaluation(make_evaluation(), MAP) == [
        f"{USE}: it predicts and ranks better.",
        "1,000 reviews of the least reliable 30% find 120 errors; 1,000 reviews of the least confident 30% find 100. "
        "The change is +20 (95% interval +10 to +30).",
        "It changes the correctness log loss by -0.0200 (95% interval -0.0300 to -0.0100), AUPR-Error by +0.0200 (95% "
        "interval +0.0100 to +0.0300), AURC by -0.0200 (95% interval -0.0300 to -0.0100).",
        LIMITS,
    ]


def test_a_map_without_gain_is_described_with_the_reasons():
    sentences = describe_evaluation(make_evaluation(changed=False), MAP)
    assert sentences[0] == f"{KEEP}: there is no relevant difference."
    assert sentences[-2:] == [POOLED, LIMITS]


def test_a_map_that_keeps_the_confidence_is_described_by_its_reviews():
    assert describe_evaluation(make_evaluation(), CONFIDENCE_MAP) == [
        f"{KEEP}: `fit` recommended the confidence.",
        "The map contains made up for a test.",
        "1,000 reviews of the least reliable 30% find 100 errors; 1,000 random reviews, 78.",
        LIMITS,
    ]
    without_reviews = [{"reviewed": 0.3, "confidence": None, "at_random": None}]
    assert len(describe_evaluation(make_evaluation(reviews=without_reviews), CONFIDENCE_MAP)) == 3


def explain(document: Any = None, **values: Any) -> list[str]:
    """Return the reasons for a missing gain, without the sentence on pooled labels."""
    evaluation = make_evaluation(changed=False, **values)
    return [line for line in verdict._explain_missing_gain(evaluation, document or MAP) if line != POOLED]


def make_label(name: str, rows: int, fit_rows: int, fallback: str = "none") -> dict[str, Any]:
    return {"name": name, "rows": rows, "fallback": fallback, "fit_rows": fit_rows}


TWO_LABELS = [make_label("irrelevant", 900, 200), make_label("partial", 600, 200)]
SPREAD = {"value": 0.125, "shuffled_p95": 0.0625}


@pytest.mark.parametrize(
    ("values", "reasons"),
    [
        ({"labels": TWO_LABELS, "errors": 100}, []),
        ({"labels": TWO_LABELS, "errors": 1400}, []),
        (
            {"labels": TWO_LABELS, "errors": 99},
            ["Few decisions are wrong: 99 of 1,500 rows, so intervals are long."],
        ),
        (
            {"labels": TWO_LABELS, "errors": 1401},
            ["Few decisions are correct: 99 of 1,500 rows, so intervals are long."],
        ),
        (
            {
                "labels": [
                    make_label("a", 1, 199),
                    make_label("b", 0, 3),
                    make_label("c", 9, 7, "shared"),
                    make_label("d", 5, 12),
                ]
            },
            ["Labels whose curve is fitted to fewer than 200 rows: a (199), d (12)."],
        ),
        (
            {"labels": [make_label("a", 9, 200), make_label("b", 0, 200)]},
            ["a is the only label decided on these rows, so labels cannot differ."],
        ),
        (
            {"labels": TWO_LABELS, "label_spread": {"value": 0.0625, "shuffled_p95": 0.0625}},
            [
                "Label spread: at equal confidence, the accuracy differs by 6.2 percentage points between decided "
                "labels, no more than between shuffled labels (95% of shuffles: up to 6.2)."
            ],
        ),
        (
            {"labels": TWO_LABELS, "label_spread": {"value": None, "shuffled_p95": None}},
            ["Label spread: unknown, since there are too few rows or decided labels."],
        ),
    ],
)
def test_reasons_for_a_missing_gain_are_listed(values, reasons):
    assert explain(**values) == reasons


def test_a_missing_gain_without_a_known_reason_is_stated():
    document = maps.make_map("mrp", maps.make_variants(2)["mrp"], n_labels=2)
    document = document.model_copy(
        update={"projection": document.projection.model_copy(update={"fitted": SimpleNamespace(kind="curves")})}
    )
    assert explain(document, labels=TWO_LABELS) == [
        "No common reason applies: labels have enough rows, there are errors, and labels differ."
    ]


def test_a_shared_curve_is_a_reason():
    (reason,) = explain(maps.make_map("shared_1d"), labels=TWO_LABELS)
    assert reason == "The map is one curve for all labels, so it ranks the rows as the confidence does."


def test_label_spread_is_described_compared_with_shuffled_labels():
    assert describe_label_spread(0.125, 0.0625) == (
        "Label spread: at equal confidence, the accuracy differs by 12.5 percentage points between decided labels, "
        "more than between shuffled labels (95% of shuffles: up to 6.2)."
    )
    for spread, shuffled in ((None, 0.1), (0.1, None)):
        assert "unknown" in describe_label_spread(spread, shuffled)


def test_pooled_labels_are_named_with_their_rows():
    assert describe_pooled_labels(MAP) == [POOLED]
    assert describe_pooled_labels(CONFIDENCE_MAP) == []


def test_limits_name_groups_and_weights():
    sizes = {"rows": 1234, "grouped": True, "weighted": True}
    assert describe_limits(sizes, MAP) == [
        "Based on 1,234 rows, calibrator ts. Intervals reflect the sampling of groups, given the fit; they do not "
        "cover refitting or other data.",
        "Rows are weighted by the inverse of their sampling probability.",
    ]


def test_candidates_are_listed_with_their_gain():
    candidates = [
        {"variant": "confidence", "nll_correct": 0.5, "change": 0.0, "low": None, "high": None},
        {"variant": "mrp", "nll_correct": 0.475, "change": -0.025, "low": -0.05, "high": 0.01},
    ]
    assert describe_candidates(candidates, MAP, "on these rows") == [
        "  log loss on these rows, and gain over the confidence (95% interval):",
        "    confidence       0.5000  +0.0000",
        "    mrp              0.4750  +0.0250 (-0.0100 to +0.0500)  <- this map",
    ]


def make_comparison(
    change: float, low: float | None, high: float | None, standard_error: float = 0.01
) -> dict[str, Any]:
    return {"change": change, "low": low, "high": high, "standard_error": standard_error, "decisions_changed": 0.0625}


@pytest.mark.parametrize(
    ("comparison", "document", "result", "difference"),
    [
        (
            make_comparison(-0.02, -0.03, -0.01),
            MAP,
            "is significantly better",
            "-0.0200 (95% interval -0.0300 to -0.0100)",
        ),
        (
            make_comparison(-0.02, -0.03, -0.01),
            CONFIDENCE_MAP,
            "is significantly better",
            "-0.0200 (95% interval -0.0300 to -0.01",
        ),
        (make_comparison(0.01, -0.02, 0.04), MAP, "is as good", "+0.0100 (95% interval -0.0200 to +0.0400)"),
        (make_comparison(0.0005, -0.02, 0.04), MAP, "is as good", "less than 0.001 (95% interval -0.0200 to +0.0400)"),
        (make_comparison(0.0101, -0.02, 0.04), MAP, None, None),
        (make_comparison(0.0, -0.02, 0.04), CONFIDENCE_MAP, None, None),
        (make_comparison(-0.02, None, None), MAP, None, None),
        (None, MAP, None, None),
    ],
)
def test_matrix_scaling_is_recommended_if_it_is_as_good(comparison, document, result, difference):
    sentences = describe_recalibration(comparison, document)
    assert len(sentences) == (result is not None)
    if result is not None:
        assert f"instead (the calibrator matrix), which {result}: the log loss" in sentences[0]
        assert f"differs from that of this map by {difference}" in sentences[0]
        assert sentences[0].endswith("It would change 6.2% of the decisions.")


def test_alternatives_are_described_only_with_enough_rows_and_candidates():
    considered = [
        Candidate(variant=name, nll_correct=0.5, change=0.0, low=0.0, high=0.0)
        for name in ("confidence", "mrp", "label_platt")
    ]
    document = MAP.model_copy(update={"choice": MAP.choice.model_copy(update={"candidates": tuple(considered)})})
    candidates = [{"variant": "mrp", "nll_correct": 0.475, "change": -0.025, "low": None, "high": None}]
    evaluation = make_evaluation(recalibrated=None, candidates=candidates)
    lines = verdict.describe_alternatives(evaluation, document, "out of fold")
    assert [line.split()[0] for line in lines[1:]] == ["mrp", "confidence", "label_platt"]
    assert lines[-1] == "    label_platt      is not part of the map"
    assert verdict.describe_alternatives(make_evaluation(errors=9), document, "out of fold") == []
    assert verdict.describe_alternatives(evaluation | {"candidates": None}, document, "out of fold") == [
        "The gains of the other candidates are unknown, since this map does not contain them. Fit the map again."
    ]
    assert verdict.describe_alternatives(evaluation, MAP, "out of fold") == []


def test_the_recommendation_uses_the_smallest_relevant_change():
    evaluation = make_evaluation()
    assert verdict.advise_from_evaluation(evaluation, MAP).answer == USE
    assert verdict.advise_from_evaluation(evaluation, MAP, smallest=0.05).answer == KEEP
    assert advise(evaluation["metrics"], rows=1500, errors=150, groups=1500, smallest=0.05).answer == KEEP
