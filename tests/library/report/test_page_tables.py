"""Tables of the page of `relmap report`, cell by cell."""

import re
from types import SimpleNamespace

import pytest

from relmap.report.page import cuts_table, label_table, top_rows_table


def make_cuts(**overall: object) -> SimpleNamespace:
    return SimpleNamespace(numbers={"overall": overall})


def test_the_table_of_cuts_has_a_row_for_each_target():
    table = cuts_table(
        {
            0.9: make_cuts(cut=0.875, coverage=0.6254, accuracy=0.9126, automatic=1251, rows=2000, why=None),
            0.99: make_cuts(cut=None, coverage=None, accuracy=None, automatic=0, rows=2000, why="too few rows"),
            0.95: make_cuts(cut=0.9375, coverage=0.25, accuracy=0.96, automatic=500, rows=2000, why=None),
        },
        ["First note.", "Second note."],
    )
    assert table.title == "Cuts"
    assert table.concept == "guarantees"
    assert re.fullmatch(r".*separate .* --cut .*\. First note\. Second note\.", table.note)
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "target accuracy": "90%",
        "cut: minimum reliability": "0.875",
        "automatic": "62.5% (1,251 of 2,000 rows)",
        "accuracy of these": "91.3%",
    }
    assert table.rows[1:] == [
        ["99%", "none: too few rows", "", ""],
        ["95%", "0.9375", "25.0% (500 of 2,000 rows)", "96.0%"],
    ]


def test_the_table_of_the_most_reliable_rows_marks_significant_gaps():
    first = {"share": 0.1, "rows": 1500, "tied": 0, "predicted": 0.9712, "correct": 0.9, "gap": 0.0712}
    second = {"share": 0.3, "rows": 4800, "tied": 900, "predicted": 0.9, "correct": 0.9004, "gap": -0.0004}
    table = top_rows_table(
        [
            first | {"low": 0.05, "high": 0.0923, "is_miscalibrated": True},
            second | {"low": None, "high": None, "is_miscalibrated": False},
        ]
    )
    assert re.search(r"\b30% has 4,800 rows, .* 900 .*same reliability", table.note)
    assert "10% has" not in table.note
    assert "most reliable" in table.title
    assert table.concept == "intervals"
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "most reliable": "10%",
        "rows": "1,500",
        "mean reliability": "0.971",
        "accuracy": "0.900",
        "difference": "+0.071 (+0.050 to +0.092)",
        "significant": "yes",
    }
    assert table.rows[1] == ["30%", "4,800", "0.900", "0.900", "+0.000", "no"]


def test_the_table_of_labels_combines_decisions_and_recall():
    known = {"value": 0.75, "low": 0.5, "high": 0.875}
    unknown = {"value": None, "low": None, "high": None}
    decided = [
        {"name": "exact", "rows": 1234, "mean_confidence": 0.81, "mean_reliability": 0.7123, "correct": known},
        {"name": "partial", "rows": 0, "mean_confidence": None, "mean_reliability": None, "correct": unknown},
    ]
    agreement = [{"recall": {"value": 0.25, "low": None, "high": None}}, {"recall": unknown}]
    table = label_table(decided, agreement)
    assert table.title == "Results by label"
    assert table.concept == "label-wise-reliability"
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "label": "exact",
        "decisions": "1,234",
        "mean confidence": "81.0%",
        "mean reliability": "71.2%",
        "accuracy": "75.0% (50.0 to 87.5%)",
        "recall": "25.0%",
    }
    assert table.rows[1] == ["partial", "0", "", "", "", ""]
    with pytest.raises(ValueError, match="zip"):
        label_table(decided, agreement[:1])
