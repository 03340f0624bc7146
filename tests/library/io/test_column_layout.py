"""Layouts of columns, and the sentences about columns that are missing."""

import re

import numpy as np
import polars as pl
import pytest

from relmap.decisions import FixedDecisions
from relmap.io.column_layout import Layout, Reading, find_layout, split_names, suggest_options
from relmap.io.columns import FileRows
from relmap.io.rows import (
    describe_doubts,
    read_rows,
)
from tests.texts import message_of

ROWS = FileRows("p.parquet")


def layout_of(frame: pl.DataFrame, *, labelled: bool = True, **options: object) -> Layout:
    return find_layout(frame.columns, "p.parquet", labelled=labelled, **options)


def read(frame: pl.DataFrame, n_labels: int | None = None, names: list[str] | None = None, **options) -> FixedDecisions:
    """Read a frame in the layout of its columns."""
    return read_rows(frame, layout_of(frame, **options), ROWS, names=names, n_labels=n_labels)


LAYOUTS = {  # columns, options of the reading, and the layout: kind, columns, decision, label
    "lists": ("logits label", {}, ("logits", ("logits",), None, "label")),
    "numbered": (
        "probabilities_1 probabilities_0 label",
        {},
        ("probabilities", ("probabilities_0", "probabilities_1")),
    ),
    "ten or more": (
        " ".join(f"logits_{label}" for label in range(11)) + " label",
        {},
        ("logits", tuple(f"logits_{label}" for label in range(11))),
    ),
    "decision of logits": ("logits decision label", {}, ("logits", ("logits",), "decision", "label")),
    "confidence": ("decision confidence label", {}, ("confidence_only", ("confidence",), "decision", "label")),
    "decision": ("decision label", {}, ("decision_only", (), "decision", "label")),
    "given confidence before logits": (
        "logits decision c label",
        {"confidence": "c"},
        ("confidence_only", ("c",), "decision", "label"),
    ),
    "probability": ("p label", {"probability": "p"}, ("probability", ("p",), None, "label")),
    "score": ("s label", {"score": "s", "border": 0}, ("score", ("s",), None, "label")),
    "given logits": ("mine probabilities label", {"logits": "mine"}, ("logits", ("mine",), None, "label")),
    "given prefix": (
        "mine_0 mine_1 logits truth",
        {"probabilities": "mine", "label": "truth"},
        ("probabilities", ("mine_0", "mine_1"), None, "truth"),
    ),
    "given decision": (
        "d c decision label",
        {"decision": "d", "confidence": "c"},
        ("confidence_only", ("c",), "d", "label"),
    ),
    "other numbers": ("logits_0 logits_1 logits_a logits_01 label", {}, ("logits", ("logits_0", "logits_1"))),
}


@pytest.mark.parametrize(("columns", "reading", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_columns_are_found_by_their_names(columns, reading, expected):
    layout = find_layout(columns.split(), "p.csv", labelled=True, reading=Reading(**reading))
    assert (layout.kind, layout.columns, layout.decision, layout.label)[: len(expected)] == expected


def test_labels_groups_and_weights_are_read_where_they_are_needed():
    names = ["logits", "label", "query", "inverse_probability"]
    labelled = find_layout(names, "p.csv", labelled=True, group="query")
    unlabelled = find_layout(names, "p.csv", labelled=False)
    assert (labelled.label, labelled.group, labelled.weight) == ("label", "query", "inverse_probability")
    assert (unlabelled.label, unlabelled.group, unlabelled.weight) == (None, None, None)
    assert labelled.all_columns == ["logits", "label", "query", "inverse_probability"]
    assert find_layout(["decision", "confidence", "label"], "p.csv", labelled=True).all_columns == [
        "confidence",
        "decision",
        "label",
    ]


@pytest.mark.parametrize(
    ("map_input", "expected"),
    [
        (None, "logits"),
        ("logits", "logits"),
        ("confidence_only", "confidence_only"),
        ("decision_only", "decision_only"),
    ],
)
def test_the_input_of_a_map_determines_which_columns_are_read(map_input, expected):
    names = ["logits", "decision", "confidence"]
    assert find_layout(names, "p.csv", labelled=False, map_input=map_input).kind == expected


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        (
            "logits probabilities label",
            {},
            r"p\.csv .*twice.*\blogits .*\bprobabilities; .*",
        ),
        (
            "logits logits_0 logits_1 label",
            {"map_input": "logits"},
            r"p\.csv .*twice.*\blogits .*\blogits_0; .*",
        ),
        (
            "logits_0 label",
            {},
            r"p\.csv .*columns logits_0; .*numbered 0, 1, .*",
        ),
        (
            "logits_0 logits_2 label",
            {},
            r"p\.csv .*columns logits_0, logits_2; .*numbered 0, 1, .*",
        ),
        (
            "logits label",
            {"group": "query"},
            r"p\.csv .*\bquery, .*--group .*; .*\blogits, label",
        ),
        (
            "logits y",
            {},
            r"p\.csv.*no column label,.*\blogits, y;.*--label y",
        ),
        (
            "logits other",
            {},
            r"p\.csv.*no column label,.*\blogits, other;.*--label COLUMN",
        ),
        *(
            ("logits decision label", {"group": name}, rf"p\.csv: {name} .*groups, .*")
            for name in ("logits", "decision", "label")
        ),
        (
            "logits d label",
            {"reading": Reading(decision="d", label="d")},
            r"p\.csv: .*\bd .*read twice, .*",
        ),
        (
            "logits inverse_probability",
            {"reading": Reading(label="inverse_probability")},
            r"p\.csv: .*\binverse_probability .*read twice, .*",
        ),
        *(
            (
                "logits label",
                {"reading": Reading(**{field: "x"} | ({"border": 0} if field == "score" else {}))},
                rf"p\.csv .*no column x, .*--{field} .*; .*\blogits, label",
            )
            for field in ("decision", "confidence", "probability", "score", "label")
        ),
        (
            "s label",
            {"reading": Reading(score="s")},
            r"--score.*--border: --score s --border 0 .*above 0\..*`thresholds`.*--precision,.*--recall.*--npv,"
            r".*--border,.*`fit`.*",
        ),
        (
            "conf y",
            {},
            r"p\.csv .* conf, y; .*\blogits .*\bprobabilities .*\blogits_0, logits_1, .*\bdecision .*\bconfidence, "
            r".*\bdecision; .*: --confidence conf --label y",
        ),
        (
            "a b",
            {"map_input": "decision_only", "reading": Reading(label="a")},
            r"p\.csv .* a, b; [^,]*\bdecision, .*\bmap .*; [^;]* --decision COLUMN",
        ),
        (
            "a",
            {"map_input": "confidence_only"},
            r"p\.csv .* a; [^,]*\bdecision .*\bconfidence, .*\bmap .*; .* --decision COLUMN .*--confidence COLUMN .*"
            r"--label COLUMN",
        ),
        (
            "Score gold",
            {"map_input": "logits"},
            r"p\.csv .* Score, gold; .*\blogits .*\bprobabilities .*\blogits_0, logits_1, .*\bmap .*; .*"
            r": --border 0 --score Score --label gold",
        ),
    ],
)
def test_columns_that_are_not_found_are_named_with_a_remedy(columns, options, expected):
    assert re.fullmatch(expected, message_of(find_layout, columns.split(), "p.csv", labelled=True, **options))


def test_names_with_spaces_at_an_end_suggest_another_separator():
    for names in (["a", " b"], ["a ", "b"]):
        message = message_of(find_layout, names, "p.csv", labelled=True)
        assert re.search(r"; [^;]*commas.*spaces\?$", message)
    inner_space = message_of(find_layout, ["a b", "c"], "p.csv", labelled=True)
    assert "spaces" not in inner_space
    assert re.match(r"p\.csv .*\(none\); ", message_of(find_layout, [], "p.csv", labelled=True))


def test_a_label_is_not_required_of_rows_without_labels():
    assert find_layout(["logits"], "p.csv", labelled=False).label is None
    assert "--label" not in message_of(find_layout, ["a"], "p.csv", labelled=False)
    assert find_layout(["logits"], "p.csv", labelled=False, reading=Reading(label="missing")).label is None


def test_placeholders_are_suggested_for_columns_without_a_common_name():
    placeholders = suggest_options(["x"], ["score", "label"])
    assert re.fullmatch(r"; .* --border 0 --score COLUMN .*--label COLUMN", placeholders)
    assert re.fullmatch(r"; .*: --label Truth", suggest_options(["Truth", "target"], ["label"]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"logits": "a", "score": "b"}, r"--logits .*--score exclude .*"),
        ({"border": 0.0}, r"--border.*--score: --score COLUMN --border 0 .*above 0"),
        ({"positive": "a"}, r"--positive .*--probability .*--score; .*--positive"),
        ({"label": "a\nb"}, r"--label .*unprintable .*"),
        (
            {"confidence_words": "low"},
            r"--confidence-words .*'low'; .*\[0, 1\]: --confidence-words low=\.3,medium=\.6,high=\.9",
        ),
        ({"confidence_words": "low=.3,LOW =.4"}, r"--confidence-words .*'low=\.3,LOW =\.4'; .*once .*"),
    ],
)
def test_options_that_exclude_or_need_each_other_are_named(options, expected):
    assert re.fullmatch(expected, message_of(Reading, **options))


@pytest.mark.parametrize("value", ["2", "1.1", "-0.1", ".", "", "0.5x", "01", "1e-3"])
def test_a_word_needs_a_number_between_zero_and_one(value):
    assert f"has 'low={value}'" in message_of(Reading, confidence_words=f"low={value}")


def test_words_of_confidence_are_read_in_lower_case():
    reading = Reading(confidence_words="Low = .25,very=high=1, b=0,c=1.00,,d=0.125")
    assert reading.words == {"low": 0.25, "very=high": 1, "b": 0, "c": 1, "d": 0.125}
    assert Reading().words == {}


@pytest.mark.parametrize(
    ("value", "min_names", "expected"),
    [
        (None, 2, None),
        ("a", 1, ("a",)),
        (" a, b ", 2, ("a", "b")),
        ('"a,b",c', 2, ("a,b", "c")),
        ("a", 2, r"'a'; .* 2 .*line, .*once"),
        ("a,a", 2, r"'a,a'; .* 2 .*line, .*once"),
        ("a,,b", 1, r"'a,,b'; \D*line, .*once"),
        ("", 1, r"''; \D*line, .*once"),
        ("a\nb", 1, r"'a\\nb'; \D*line, .*once"),
    ],
)
def test_names_are_split_at_commas(value, min_names, expected):
    if isinstance(expected, str):
        message = message_of(split_names, "labels", value, "no,yes", min_names)
        assert re.fullmatch(rf"--labels .*{expected}: no,yes", message)
    else:
        assert split_names("labels", value, "no,yes", min_names) == expected


def test_probabilities_become_their_logarithms_and_zero_a_small_number():
    frame = pl.DataFrame({"probabilities": [[0.25, 0.75], [1.0, 0.0]], "label": [0, 1]})
    rows = read(frame)
    np.testing.assert_array_equal(rows.logits, np.log([[0.25, 0.75], [1, 1e-12]]))
    assert rows.decision.tolist() == [1, 0]
    assert rows.label.tolist() == [0, 1]


def test_a_probability_or_score_of_one_of_two_labels_gives_logits_of_both():
    frame = pl.DataFrame({"p": [0.2, 0.9], "s": [-1.0, 2.5], "label": [0, 1]})
    probability = read(frame, reading=Reading(probability="p"))
    score = read(frame, reading=Reading(score="s", border=0.5))
    first = read(frame, reading=Reading(score="s", border=0.5, positive="0"))
    np.testing.assert_allclose(probability.logits, np.log([[0.8, 0.2], [0.1, 0.9]]))
    assert score.logits.tolist() == [[0, -1.5], [0, 2.0]]
    assert first.logits.tolist() == [[-1.5, 0], [2.0, 0]]
    assert [probability.decision.tolist(), score.decision.tolist(), first.decision.tolist()] == [[0, 1], [0, 1], [1, 0]]


def test_a_score_at_the_border_decides_for_the_other_label():
    frame = pl.DataFrame({"s": [0.5, 0.6], "label": [0, 1]})
    assert read(frame, reading=Reading(score="s", border=0.5)).decision.tolist() == [0, 1]
    assert read(frame, reading=Reading(score="s", border=0.5, positive="0")).decision.tolist() == [1, 0]
    named = read(frame, reading=Reading(score="s", border=0.5, positive="0"), names=["1", "0"])
    assert named.decision.tolist() == [0, 1]


def test_scores_must_be_finite():
    for value, shown in [(np.inf, "inf"), (2e12, "2000000000000.0")]:
        frame = pl.DataFrame({"s": [0.0, value], "label": [0, 1]})
        message = message_of(read, frame, reading=Reading(score="s", border=0.0))
        assert re.fullmatch(rf"p\.parquet, row 1 .*: s is {re.escape(shown)}; .*±1e\+12", message)
    limit = pl.DataFrame({"s": [1e12, -1e12], "label": [0, 1]})
    assert read(limit, reading=Reading(score="s", border=0.0)).logits[:, 1].tolist() == [1e12, -1e12]


@pytest.mark.parametrize(
    ("frame", "reading", "found"),
    [
        ({"logits": [[0.0, 1.0, 2.0]]}, {}, "3 logits"),
        ({"p": [0.5]}, {"probability": "p"}, "probability .*two labels"),
        ({"s": [0.5]}, {"score": "s", "border": 0}, "score .*two labels"),
    ],
)
def test_another_number_of_labels_is_reported(frame, reading, found):
    rows = pl.DataFrame(frame).with_columns(label=pl.lit(0))
    expected = rf"p\.parquet .*\b{found}\b.*, .*\b4 labels; .*"
    assert re.fullmatch(expected, message_of(read, rows, n_labels=4, reading=Reading(**reading)))
    names = ["a", "b", "c", "d"]
    assert re.fullmatch(expected, message_of(read, rows, names=names, n_labels=2, reading=Reading(**reading)))


def test_decisions_with_and_without_confidence_are_read_by_name():
    frame = pl.DataFrame({"decision": ["no", "yes"], "confidence": [0.5, 0.75], "label": ["yes", "yes"]})
    rows = read(frame, names=["no", "yes"])
    only = read(frame.drop("confidence"), names=["no", "yes"])
    assert (rows.decision.tolist(), rows.label.tolist()) == ([0, 1], [1, 1])
    assert rows.confidence.tolist() == [0.5, 0.75]
    assert (only.decision.tolist(), only.confidence, only.logits) == ([0, 1], None, None)
    assert read(frame, names=["no", "yes"], labelled=False).label is None


def test_unknown_names_suggest_the_names_of_the_file():
    lists = pl.DataFrame({"logits": [[0.0, 1.0]] * 2, "label": ["b", "a"]})
    decisions = pl.DataFrame({"decision": ["b", "a"], "confidence": [0.5, 0.6], "label": ["b", "a"]})
    assert re.search(r"\blabel is 'b'; .*--labels .*\blogits; .* a, b \(2 of", message_of(read, lists))
    irrelevant_order = r"\bdecision is 'b'; .*\bfit: --labels a,b \(.*signals .*\) \(2 of"
    assert re.search(irrelevant_order, message_of(read, decisions, n_labels=2))


def test_groups_of_every_plain_type_are_read_as_text():
    frame = pl.DataFrame({"decision": [0, 1], "label": [0, 1], "g": [7, 8], "t": ["x", "y"], "list": [[1], [2]]})
    assert read(frame, 2, group="g").group.tolist() == ["7", "8"]
    assert read(frame, 2, group="t").group.tolist() == ["x", "y"]
    assert read(frame, 2).group is None
    nested = message_of(read, frame, 2, group="list")
    assert re.fullmatch(r"p\.parquet: .*groups .*\blist, .*; .*numbers .*text", nested)
    gap = frame.with_columns(g=pl.Series([None, 8]))
    assert re.fullmatch(r"p\.parquet, row 0 .*: g is missing; .*", message_of(read, gap, 2, group="g"))


def test_weights_must_be_positive_and_finite():
    frame = pl.DataFrame({"decision": [0, 1], "label": [0, 1], "inverse_probability": [1e-9, 1e12]})
    assert read(frame, 2).weight.tolist() == [1e-9, 1e12]
    assert read(frame.drop("inverse_probability"), 2).weight is None
    for weight in (0.0, -1.0, 1.1e12, np.inf):
        invalid = frame.with_columns(inverse_probability=pl.Series([1.0, weight]))
        expected = rf"p\.parquet, row 1 .*: inverse_probability is {re.escape(str(weight))}; .*above 0 .*1e12: 1 / .*"
        assert re.fullmatch(expected, message_of(read, invalid, 2))


def doubts_of(frame: pl.DataFrame, n_labels: int, names: list[str] | None = None, **reading: object) -> list[str]:
    layout = layout_of(frame, reading=Reading(**reading))
    rows = read_rows(frame, layout, ROWS, names=names, n_labels=n_labels)
    return describe_doubts(rows, layout, names, n_labels)


def test_a_confidence_below_chance_needs_an_option():
    frame = pl.DataFrame({"decision": [1, 0, 0, 0], "confidence": [0.9, 0.494, 0.495, 0.2], "label": [0, 1, 0, 1]})
    message = message_of(doubts_of, frame, 2)
    assert re.search(r"\b2 of 4 rows .*\bconfidence .*below 1/2\b", message)
    assert "--probability confidence --positive 1. " in message
    assert "give --confidence confidence" in message
    assert "--probability confidence --positive yes" in message_of(doubts_of, frame, 2, ["no", "yes"])
    assert doubts_of(frame.filter(pl.col("confidence") >= 0.495), 2) == []  # 0.5 with two decimals
    (doubt,) = doubts_of(frame, 2, confidence="confidence")
    assert re.search(r"\b2 of 4 rows .*\bconfidence .*below 1/2\b", doubt)
    three = frame.with_columns(confidence=pl.Series([0.9, 0.5, 0.5, 0.2]))
    assert re.search(r"\b1 of 4 rows .*\bconfidence .*below 1/3\b", message_of(doubts_of, three, 3))


def test_labels_numbered_from_one_need_names():
    frame = pl.DataFrame({"decision": [1, 2, 1], "label": [3, 1, 1]})
    (doubt,) = doubts_of(frame, 4)
    assert re.fullmatch(r".*\blabel 0\. .*\b1 to 3, .*: --labels 1,2,3", doubt)
    assert doubts_of(frame, 4, ["a", "b", "c", "d"]) == []
    assert doubts_of(frame.with_columns(label=pl.Series([0, 1, 1])), 4) == []
    assert doubts_of(frame.with_columns(decision=pl.Series([0, 1, 1])), 4) == []
    lists = pl.DataFrame({"logits": [[0.0, 5.0]] * 2, "label": [1, 1]})
    assert doubts_of(lists, 2) == []


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        ([[0.25, 0.75], [1.0, 0.0]], "1"),
        ([[0.25, 0.755], [1.0, 0.0]], "1"),
        ([[25.0, 75.0], [100.0, 0.0]], "100"),
        ([[0.3, 1.0], [1.25, 0.05]], "1.3"),
        ([[0.25, 0.81], [1.0, 0.0]], None),
        ([[0.25, 0.69], [1.0, 0.0]], None),
        ([[0.25, 0.75], [1.02, -0.02]], None),
        ([[0.25, 0.75], [1.0, 1.0]], None),
    ],
)
def test_logits_with_one_constant_sum_are_read_only_with_an_option(rows, total):
    logits = rows * 3
    frame = pl.DataFrame({"logits": logits, "label": [0, 1] * 3})
    columns = pl.DataFrame(np.array(logits), schema=["logits_0", "logits_1"]).with_columns(label=pl.Series([0, 1] * 3))
    for table in (frame, columns):
        if total is None:
            assert doubts_of(table, 2) == []
            continue
        message = message_of(doubts_of, table, 2)
        assert re.search(rf"\blogits sums to {re.escape(total)} .*negative", message)
        assert "--probabilities logits" in message
        assert ("--percent" in message) is (total == "100")
        assert len(doubts_of(table, 2, logits="logits")) == 1


@pytest.mark.parametrize(
    "reading",
    [
        Reading(score="score", border=0.0),
        Reading(probability="probability"),
        Reading(probability="p", positive="positive"),
    ],
)
def test_a_column_or_label_named_like_its_option_is_remembered(reading):
    assert Reading().completed_by(reading.to_stored()) == reading
