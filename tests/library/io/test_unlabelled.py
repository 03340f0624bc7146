"""Which rows have no label, and whether their scores differ from those of the labelled rows."""

import numpy as np
import polars as pl
import pytest

from relmap.io.unlabelled import describe_omitted_scores, find_omitted_rows, find_unlabelled
from tests.texts import numbers_in


def omitted_labels(labels: list[object], **options: object) -> list[object]:
    """Return the labels of the omitted rows."""
    names = options.pop("names", None)
    frame = pl.DataFrame({"label": labels, **options.pop("columns", {})}, strict=False)
    return frame["label"].filter(find_unlabelled(frame, "label", names, **options)).to_list()


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        (["a", None, "b"], {}, [None]),
        (["a", "NA", "b"], {}, ["NA"]),
        (["a", "NA", "b"], {"names": ["a", "b", "NA"]}, []),
        (["a", "b", "-1"], {}, ["-1"]),
        (["a", "b", "ERROR"], {}, ["ERROR"]),
        (["a", "b", "-1"], {"names": ["a", "b", "-1"]}, []),
        (["a", "b", "-1"], {"columns": {"decision": ["-1", "a", "a"]}, "decisions": ["decision"]}, []),
        (["a", "b", "-1"], {"columns": {"decision": ["b", "a", "a"]}, "decisions": ["decision"]}, ["-1"]),
        (["a", "b", "-1"], {"columns": {"decision": [["-1"]] * 3}, "decisions": ["decision"]}, ["-1"]),
        ([0, 1, -1], {}, [-1]),
        ([0, 1, -1], {"n_labels": 3}, []),
        ([0, 1, -1], {"n_labels": 2}, [-1]),
        ([0, 1, -1], {"n_labels": 3, "names": ["0", "1"]}, [-1]),
        ([-1, 1, 1], {}, []),  # the two labels of a binary task
        ([None, -1, 1], {}, [None]),
        ([0, 1, 99], {}, []),  # may be a grade, as long as nothing says how many there are
        ([0, 1, 99], {"n_labels": 3}, [99]),
        ([0, 1, 9], {"n_labels": 10}, []),
        ([0, 1, 9], {"n_labels": 9}, [9]),
        ([9, 1, 1], {"n_labels": 2}, []),  # 1 and 9 are the only two values
        ([True, False, None], {}, [None]),
        ([["a"], None], {}, [None]),
    ],
)
def test_missing_values_and_codes_that_cannot_be_labels_are_unlabelled(labels, options, expected):
    assert omitted_labels(labels, **options) == expected


def test_a_code_that_a_decision_has_before_it_may_be_a_label():
    columns = {"decision": ["0", "8", "0"]}
    assert omitted_labels(["0", "8", "9"], columns=columns, decisions=["decision"]) == []
    assert omitted_labels(["0", "1", "9"], columns=columns, decisions=["decision"]) == ["9"]


def score_notes(n_omitted: int, n_labelled: int, shift: float, **options: object) -> list[str]:
    """Omit rows whose scores are above those of the labelled rows by a shift; return the notes."""
    labels = [None] * n_omitted + ["a", "b"] * (n_labelled // 2)
    scores = [*np.linspace(0, 1, n_omitted) + shift, *np.linspace(0, 1, n_labelled)]
    frame = pl.DataFrame({"label": labels, "score": scores, "other": 0.5}, strict=False)
    return find_omitted_rows(frame, "label", None, scores=["score"], **options).notes


def test_omitted_rows_are_counted():
    frame = pl.DataFrame({"label": ["a", None, "b", "NA"]})
    found = find_omitted_rows(frame, "label", None)
    assert found.is_omitted.to_list() == [False, True, False, True]
    assert [numbers_in(note)[:2] for note in found.notes] == [["2", "4"]]
    assert find_omitted_rows(frame.head(1), "label", None).notes == []


@pytest.mark.parametrize(
    ("n_omitted", "n_labelled", "shift", "options", "is_noted"),
    [
        (100, 80, 0.5, {}, True),
        (100, 80, 0.0, {}, False),
        (100, 100, 0.5, {}, False),  # half of the rows are labelled
        (101, 100, 0.5, {}, True),
        (100, 80, 0.5, {"are_weighted": True}, False),
        (20, 18, 2.0, {}, False),  # fewer than 20 labelled rows
        (100, 20, 2.0, {}, True),
        (20000, 10000, 0.1, {}, False),  # clear, but too small to matter
        (20000, 10000, 0.2, {}, True),
        (22, 20, 0.3, {}, False),  # may be chance
    ],
)
def test_clearly_other_scores_of_most_rows_are_noted(n_omitted, n_labelled, shift, options, is_noted):
    notes = score_notes(n_omitted, n_labelled, shift, **options)
    assert len(notes) == 1 + is_noted
    if is_noted:
        assert numbers_in(notes[1]) == [f"{0.5 + shift:.4g}", "0.5"]


@pytest.mark.parametrize("dtype", [pl.List(pl.Float64), pl.Array(pl.Float64, 2), pl.String])
def test_the_largest_number_of_columns_lists_and_texts_is_compared(dtype):
    omitted = [[0.75, 0.25]] * 60
    labelled = [[0.5, 0.25]] * 30
    rows = [*omitted, *labelled]
    values = [f"[{first}, {second}]" for first, second in rows] if dtype == pl.String else rows
    frame = pl.DataFrame({"label": [None] * 60 + ["a"] * 30, "p": pl.Series(values, dtype=dtype), "q": 0.375})
    notes = find_omitted_rows(frame, "label", ["a", "b"], scores=["p", "q"]).notes
    assert numbers_in(notes[1]) == ["0.75", "0.5"]


def test_words_are_compared_by_their_numbers_and_percentages_without_their_sign():
    frame = pl.DataFrame({"label": [None] * 60 + ["a"] * 30, "p": ["Very sure"] * 40 + ["90%"] * 20 + ["unsure"] * 30})
    words = {"very sure": 0.875, "unsure": 0.25}
    notes = find_omitted_rows(frame, "label", ["a", "b"], scores=["p"], words=words).notes
    assert numbers_in(notes[1]) == ["0.875", "0.25"]
    assert len(find_omitted_rows(frame, "label", ["a", "b"], scores=["p"]).notes) == 1  # words have no number


def test_scores_that_are_no_numbers_are_not_compared():
    labelled = np.linspace(0, 1, 40)
    omitted = np.append(labelled + 1, [np.nan, np.inf])
    assert numbers_in(describe_omitted_scores(omitted, labelled)[0]) == ["1.5", "0.5"]
    assert describe_omitted_scores(np.full(40, np.nan), labelled) == []
