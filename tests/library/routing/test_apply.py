"""Routes of decisions: the rule at its limits, the sentences of a summary, and the counts of a file."""

import re
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from relmap import InputError
from relmap.io import ranking
from relmap.io.column_layout import Reading
from relmap.io.frames import FramePredictions
from relmap.maps.document import MapDocument
from relmap.maps.score import RowScores
from relmap.routing import apply
from relmap.routing.apply import (
    RoutingRule,
    RoutingSummary,
    apply_map,
    apply_to_frame,
    default_threshold,
    route_scores,
    routing_rule,
)
from tests import maps
from tests.texts import numbers_in

MAP = maps.make_map()
FEW_ROWS = r"coverage .*only {}: .*threshold .*cut\b"


def make_rule(share: str, *thresholds: float, notes: tuple[str, ...] = ()) -> RoutingRule:
    return RoutingRule(Fraction(share), np.array(thresholds), notes)


def make_summary(**fields: object) -> RoutingSummary:
    values = {
        "rows": 12_000,
        "automatic": 4500,
        "min_reliability": 0.512345,
        "expected_accuracy": 0.8766,
        "below_half": 0,
        "pooled_labels": {},
        "labels_without_threshold": {},
    }
    return RoutingSummary(**values | fields)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        ("0", []),
        ("0.19", []),
        ("0.2", [3]),
        ("0.39", [3]),
        ("0.4", [3, 1]),
        ("0.99", [3, 1, 0, 4]),
        ("1", [3, 1, 0, 4, 2]),
    ],
)
def test_a_share_selects_the_most_reliable_rows_and_rounds_down(share, expected):
    rank = np.array([3, 4, 1, 5, 2])
    automatic = make_rule(share, 0.0).are_automatic(np.zeros(5, dtype=np.int64), np.full(5, 0.5), rank, n_rows=5)
    assert np.flatnonzero(automatic).tolist() == sorted(expected)


def test_a_row_must_be_in_the_share_and_reach_the_threshold_of_its_label():
    rule = make_rule("0.5", 0.6, 0.9, np.inf)
    decision = np.array([0, 0, 1, 1, 2, 0])
    reliability = np.array([0.6, 0.599, 0.9, 0.899, 1.0, 0.95])
    rank = np.array([5, 6, 7, 8, 8, 4])  # four of eight rows are in the share: the ranks 5 to 8
    assert rule.are_automatic(decision, reliability, rank, n_rows=8).tolist() == [
        True,
        False,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("share", "n_rows", "has_note"),
    [
        ("0.7", 0, False),
        ("0.7", 1, True),
        ("0.7", 99, True),
        ("0.7", 100, False),
        ("1", 1, False),
        ("0", 2, True),
    ],
)
def test_a_coverage_of_few_rows_has_a_note_after_the_others(share, n_rows, has_note):
    first, *others = make_rule(share, 0.0, notes=("First.",)).notes_for(n_rows)
    assert first == "First."
    assert [bool(re.search(FEW_ROWS.format(n_rows), note)) for note in others] == ([True] if has_note else [])


def test_automatic_rows_are_described_after_the_notes():
    *notes, automatic = make_summary(notes=("First.", "Second.")).describe(["no", "yes"])
    assert notes == ["First.", "Second."]
    assert re.match(r"4,500 of 12,000 rows \(37\.5%\) .*automatic, .* 0\.5123 .* accuracy .* 87\.7%\. ", automatic)


def test_a_summary_without_automatic_rows_sends_all_to_review():
    summary = make_summary(automatic=0, min_reliability=None, expected_accuracy=None)
    [line] = summary.describe(["no", "yes"])
    assert re.match(r"All 12,000 rows .*review", line)


@pytest.mark.parametrize(
    ("names", "has_other_label"),
    [(["no", "yes"], True), (["no", "some", "yes"], False)],
)
@pytest.mark.parametrize(("count", "shown"), [(1, "1"), (2345, "2,345")])
def test_automatic_rows_below_one_half_have_a_warning(names, has_other_label, count, shown):
    [warning] = make_summary(below_half=count, min_reliability=0.25).describe(names)[1:]
    assert warning.startswith(f"Warning: {shown} automatic ")
    assert numbers_in(warning) == [shown, "0.5", "0.5"]
    assert ("no and yes," in warning) == ("other label" in warning) == has_other_label


def test_labels_with_a_pooled_curve_or_without_a_threshold_are_listed_if_they_have_rows():
    summary = make_summary(pooled_labels={0: 1200, 1: 0, 2: 7}, labels_without_threshold={1: 0, 2: 3})
    without_curve, without_threshold = summary.describe(["no", "some", "yes"])[1:]
    assert re.fullmatch(r".* separate curve\b[^:]*: no \(1,200 rows\), yes \(7 rows\)\.", without_curve)
    assert re.fullmatch(r".* threshold\b[^:]*review: yes \(3 rows\)\.", without_threshold)


@pytest.mark.parametrize(
    ("options", "share", "threshold"),
    [
        ({"coverage": "0.25"}, Fraction(1, 4), 0.0),
        ({"coverage": " 1 "}, Fraction(1), 0.0),
        ({"coverage": "0."}, Fraction(0), 0.0),
        ({"coverage": ".5E-2"}, Fraction(1, 200), 0.0),
        ({"coverage": "2e-1", "cut": 0.75}, Fraction(1, 5), 0.75),
        ({"coverage": "0.25", "cut": 0.0}, Fraction(1, 4), 0.0),
        ({"cut": 0.75}, Fraction(1), 0.75),
        ({"cut": 0.0}, Fraction(1), 0.0),
        ({"cut": 1.0}, Fraction(1), 1.0),
    ],
)
def test_coverage_and_cut_give_a_share_and_one_threshold_for_all_labels(options, share, threshold):
    rule = routing_rule(MAP, **options)
    assert rule.share == share
    assert rule.thresholds.tolist() == [threshold] * 3
    assert rule.only_threshold == (threshold if share == 1 else None)
    assert rule.notes == ()


def test_without_options_the_threshold_of_the_map_is_used():
    document = MAP.model_copy(update={"default_threshold": 0.625})
    rule = routing_rule(document)
    assert default_threshold(document) == 0.625
    assert (rule.share, rule.thresholds.tolist(), rule.notes) == (1, [0.625] * 3, ())

    rule_of_earlier_map = routing_rule(MAP)
    assert default_threshold(MAP) == 0.5
    assert (rule_of_earlier_map.share, rule_of_earlier_map.thresholds.tolist()) == (1, [0.5] * 3)
    [note] = rule_of_earlier_map.notes
    assert note == apply.NO_THRESHOLD
    assert numbers_in(note) == ["0.5"]


def stored_cuts(*labels: tuple[int, float | None]) -> dict[str, object]:
    return {
        "map_fingerprint": MAP.fingerprint,
        "overall": {"cut": 0.5},
        "labels": [{"label": label, "cut": cut} for label, cut in labels],
    }


def test_cuts_give_each_label_its_threshold():
    rule = routing_rule(MAP, cuts=stored_cuts((0, 0.75), (2, 0.25)))
    assert (rule.share, rule.thresholds.tolist(), rule.only_threshold) == (1, [0.75, np.inf, 0.25], None)
    assert "partial none" in rule.notes[0]


def test_a_threshold_for_all_decisions_is_said_to_be_used_if_a_label_has_none():
    content = stored_cuts((0, 0.75), (1, None), (2, 0.25))
    rule = routing_rule(MAP, cuts=content)
    assert rule.thresholds.tolist() == [0.5, 0.5, 0.5]
    [note] = rule.notes
    assert "all decisions" in note
    assert numbers_in(note) == ["0.5"]


def test_a_file_without_rows_is_not_described_as_reviewed(tmp_path):
    maps.make_predictions(5).clear().drop("label").write_parquet(tmp_path / "empty.parquet")
    summary = apply_map(MAP, tmp_path / "empty.parquet", tmp_path / "out.parquet")
    assert summary.rows == 0
    assert "no rows" in summary.describe(maps.LABEL_NAMES)[-1]
    assert pl.read_parquet(tmp_path / "out.parquet").is_empty()


COVERAGE_MESSAGE = r"coverage is '{}';.* \[0, 1\] .*0\.7$"
CUT_MESSAGE = r"cut is {};.* \[0, 1\]$"
COMBINED_MESSAGE = "`thresholds` .*combined .*cut .*coverage;"
INVALID_RULES = {
    "a coverage above 1": ({"coverage": "1.0000000001"}, COVERAGE_MESSAGE.format(r"1\.0000000001")),
    "a percentage": ({"coverage": "70%"}, COVERAGE_MESSAGE.format("70%")),
    "a fraction": ({"coverage": "1/2"}, COVERAGE_MESSAGE.format("1/2")),
    "a negative coverage": ({"coverage": "-0.1"}, COVERAGE_MESSAGE.format(r"-0\.1")),
    "an exponent of three digits": ({"coverage": "1e-100"}, COVERAGE_MESSAGE.format("1e-100")),
    "fifty characters": ({"coverage": "0." + "1" * 48}, COVERAGE_MESSAGE.format(r"0\." + "1" * 48)),
    "an empty coverage": ({"coverage": " "}, COVERAGE_MESSAGE.format("")),
    "a cut below 0": ({"cut": -0.001}, CUT_MESSAGE.format(r"-0\.001")),
    "a cut above 1": ({"cut": 1.001, "coverage": "0.5"}, CUT_MESSAGE.format(r"1\.001")),
    "a cut that is no number": ({"cut": np.nan}, CUT_MESSAGE.format("nan")),
    "cuts and a cut": ({"cuts": stored_cuts(), "cut": 0.0}, COMBINED_MESSAGE),
    "cuts and a coverage": ({"cuts": stored_cuts(), "coverage": "0"}, COMBINED_MESSAGE),
}


@pytest.mark.parametrize(("options", "message"), INVALID_RULES.values(), ids=INVALID_RULES)
def test_invalid_coverages_and_cuts_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        routing_rule(MAP, **options)


def test_a_coverage_of_49_characters_is_parsed_exactly():
    text = "0." + "1" * 47
    assert routing_rule(MAP, coverage=text).share == Fraction(text)


LOGITS = np.array([-0.5, 2.0, 0.0, 2.0, 1.0, -0.5, 3.0])
DECISIONS = np.array([0, 2, 1, 0, 1, 2, 0])
CONFIDENCES = np.array([0.4, 0.8, 0.5, 0.9, 0.6, 0.45, 0.99])
RANKS = [1, 5, 3, 6, 4, 2, 7]  # ties by row order


def make_scores() -> RowScores:
    return RowScores(decision=DECISIONS, confidence=CONFIDENCES, logit=LOGITS)


def test_scores_are_ranked_and_routed_together():
    routed = route_scores(MAP, make_scores(), cut=float(expit(1.0)))
    assert list(routed) == ["decision", "decision_name", "confidence", "reliability", "review_rank", "route"]
    assert routed["decision"].dtype == np.int64
    assert routed["decision"].tolist() == DECISIONS.tolist()
    assert routed["decision_name"].tolist() == [maps.LABEL_NAMES[decision] for decision in DECISIONS]
    assert routed["confidence"].tolist() == CONFIDENCES.tolist()
    np.testing.assert_allclose(routed["reliability"], expit(LOGITS), rtol=1e-15)
    assert routed["review_rank"].tolist() == RANKS
    automatic = ["automatic" if value >= 1.0 else "review" for value in LOGITS]
    assert routed["route"].tolist() == automatic


def test_scores_of_a_map_without_names_have_no_name_of_the_decision():
    assert "decision_name" not in route_scores(maps.make_map(names=None), make_scores())


@pytest.mark.parametrize(
    ("options", "automatic"),
    [
        ({"coverage": "0.43"}, [1, 3, 6]),
        ({"coverage": "0.42"}, [3, 6]),
        ({"coverage": "0.9", "cut": 0.95}, [6]),
        ({"cuts": stored_cuts((0, 0.9), (1, 0.5))}, [2, 4, 6]),
        ({}, [1, 2, 3, 4, 6]),
    ],
)
def test_each_option_of_a_rule_routes_scores(options, automatic):
    routed = route_scores(MAP, make_scores(), **options)
    assert np.flatnonzero(routed["route"] == "automatic").tolist() == automatic


def identity_map() -> MapDocument:
    """Make a map whose reliability is the confidence."""
    return maps.make_map("confidence", confidence_only=True)


def make_frame_of_confidences() -> pl.DataFrame:
    decision = [0, 0, 0, 1, 1, 2]
    return pl.DataFrame({"decision": decision, "confidence": [0.95, 0.4, 0.7, 0.3, 0.8, 0.6]})


@pytest.mark.parametrize(
    ("options", "automatic", "below_half", "min_reliability", "mean_reliability"),
    [
        ({"cut": 0.0}, 6, 2, 0.3, 0.625),
        ({"cut": 0.69}, 3, 0, 0.7, (0.95 + 0.7 + 0.8) / 3),
        ({"cut": 0.39}, 5, 1, 0.4, (0.95 + 0.4 + 0.7 + 0.8 + 0.6) / 5),
        ({"coverage": "0.34"}, 2, 0, 0.8, (0.95 + 0.8) / 2),
        ({"cut": 0.99}, 0, 0, None, None),
    ],
)
def test_the_summary_counts_the_automatic_rows(options, automatic, below_half, min_reliability, mean_reliability):
    rows = FramePredictions(make_frame_of_confidences(), "the frame")
    columns, summary = apply_to_frame(identity_map(), rows, **options)
    assert (columns["route"] == "automatic").sum() == automatic
    assert (summary.rows, summary.automatic, summary.below_half) == (6, automatic, below_half)
    assert summary.min_reliability == pytest.approx(min_reliability)
    assert summary.expected_accuracy == pytest.approx(mean_reliability)
    assert (summary.pooled_labels, summary.labels_without_threshold) == ({}, {})


def test_the_summary_counts_rows_of_labels_with_pooled_curves_and_without_threshold():
    document = maps.make_map("mrp", confidence_only=True)
    cuts = stored_cuts((0, 0.5)) | {"map_fingerprint": document.fingerprint}
    rows = FramePredictions(make_frame_of_confidences(), "the frame")
    _, summary = apply_to_frame(document, rows, cuts=cuts)
    assert summary.pooled_labels == {1: 2, 2: 1}
    assert summary.labels_without_threshold == {1: 2, 2: 1}


def test_notes_of_reading_come_before_the_notes_of_routing(tmp_path):
    path = tmp_path / "new.parquet"
    make_frame_of_confidences().with_columns(pl.col("confidence") * 100).write_parquet(path)
    stages = []
    summary = apply_map(
        identity_map(),
        path,
        tmp_path / "out.parquet",
        coverage="0.5",
        progress=lambda stage, rows: stages.append((stage, rows)),
        reading=Reading(percent=True),
    )
    of_reading, of_routing = summary.notes[-2:]
    assert of_reading == apply.NO_CHECKSUMS
    assert re.search(FEW_ROWS.format(6), of_routing)
    assert summary.min_reliability == pytest.approx(0.7)
    assert [(stage, rows) for stage, rows in stages if rows] == [("scored", 6), ("written", 6)]


@pytest.mark.parametrize(("options", "expected"), [({}, 2**23), ({"in_memory": 4}, 4)])
def test_the_number_of_rows_in_memory_is_limited(options, expected, tmp_path, monkeypatch):
    limits = []

    def rank(*arguments: object, in_memory: int) -> object:
        limits.append(in_memory)
        return ranking.rank_rows(*arguments, in_memory=in_memory)

    monkeypatch.setattr(apply, "rank_rows", rank)
    make_frame_of_confidences().write_csv(tmp_path / "new.csv")
    apply_map(identity_map(), tmp_path / "new.csv", tmp_path / "out.csv", **options)
    assert limits == [expected]


def test_ranks_follow_logits_where_reliabilities_are_equal():
    scores = make_scores()._replace(logit=np.array([40.0, 60.0, 50.0, 40.0, 45.0, 41.0, 39.0]))
    routed = route_scores(MAP, scores, coverage="0.3")
    assert set(routed["reliability"]) == {1.0}
    assert routed["review_rank"].tolist() == [2, 7, 6, 3, 5, 4, 1]
    assert np.flatnonzero(routed["route"] == "automatic").tolist() == [1, 2]
