"""Summaries: how they are printed, shown in notebooks and copied."""

import pytest

from relmap.evaluation.summary import Cuts, Evaluation, FitSummary, Summary


def test_a_summary_is_printed_with_its_notes_at_the_end_and_escapes():
    summary = Summary(lines=("Use <it>.", "  table\x07row"), notes=("A & B.",), numbers={"parts": [1, 2]})
    assert str(summary) == "Use <it>.\n  table\\u0007row\nA & B."
    assert summary._repr_html_() == (
        '<p><strong>Use &lt;it&gt;.</strong></p><pre style="white-space: pre-wrap">  table\\u0007row\nA &amp; B.</pre>'
    )
    assert "parts" not in repr(summary)


def test_numbers_of_a_summary_are_copied():
    summary = Summary(lines=("x",), numbers={"parts": [1, 2]})
    copied = summary.to_dict()
    copied["parts"].append(3)
    assert summary.to_dict() == {"parts": [1, 2]}
    assert Summary(lines=("x",)).to_dict() == {}


@pytest.mark.parametrize("cut", [None, 0.0, 0.75])
def test_the_cut_of_a_summary_is_the_cut_for_all_decisions(cut):
    assert Cuts(lines=(), numbers={"overall": {"cut": cut}}).cut == cut


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (
            {"overall": {"cut": 0.75, "coverage": 0.12346, "accuracy": 0.98764}},
            "Cuts(cut=0.75, coverage=0.1235, accuracy=0.9876)",
        ),
        ({"overall": {"cut": 1.0, "coverage": 0.0, "accuracy": None}}, "Cuts(cut=1.0, coverage=0)"),
        ({"overall": {"cut": None}}, "Cuts(cut=None)"),
        (
            {
                "overall": {"cut": None},
                "only_label": "exact",
                "labels": [{"label": "exact", "cut": 0.5, "coverage": 0.5, "accuracy": 0.75}],
            },
            "Cuts(only_label=exact, cut=0.5, coverage=0.5, accuracy=0.75)",
        ),
        (
            {"overall": {"cut": 0.5, "coverage": 1.0, "accuracy": 0.5}, "only_label": None, "labels": []},
            "Cuts(cut=0.5, coverage=1, accuracy=0.5)",
        ),
        (
            {"overall": {}, "only_label": "exact", "labels": [{"label": "exact", "cut": None}]},
            "Cuts(only_label=exact, cut=None)",
        ),
    ],
)
def test_cuts_are_shown_with_coverage_and_accuracy(numbers, expected):
    assert repr(Cuts(lines=(), numbers=numbers)) == expected


@pytest.mark.parametrize("kind", [Summary, FitSummary, Evaluation])
def test_a_summary_is_immutable_and_shows_its_sentences_but_no_numbers(kind):
    summary = kind(lines=("First.",), notes=("Note.",), numbers={"secret": 1}, details=("Detail.",))
    with pytest.raises(AttributeError):
        summary.lines = ()
    for part in ("First.", "Note.", "Detail."):
        assert part in repr(summary)
    assert "secret" not in repr(summary)
    assert summary == kind(lines=("First.",), notes=("Note.",), numbers={"secret": 1}, details=("Detail.",))


def test_the_comparison_of_a_fit_is_not_shown():
    summary = FitSummary(lines=("First.",), comparison={"secret": 1})
    assert "secret" not in repr(summary)
    with pytest.raises(AttributeError):
        summary.comparison = {}
