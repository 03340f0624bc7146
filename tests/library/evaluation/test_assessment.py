"""What an assessment reports about rows of each origin."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from relmap import InputError
from relmap.calibrators.identity import Constant
from relmap.decisions import FixedDecisions
from relmap.evaluation import assessment as assessment_module
from relmap.evaluation.agreement import PopulationSummary, format_share, measure_agreement
from relmap.evaluation.assessment import describe_fit
from relmap.evaluation.drift import FIT_AGAIN
from relmap.evaluation.evaluate import evaluate_map
from relmap.io.frames import FramePredictions
from relmap.maps.document import Calibration, Cell, MapDocument
from relmap.maps.fit import MapFit
from relmap.maps.score import FittedMap
from relmap.settings import DEFAULTS
from tests import maps
from tests.assessments import MAP, N_ROWS, READING_NOTE, assess, make_rows
from tests.maps import fit_file as fit_map
from tests.texts import numbers_in


@pytest.mark.parametrize(
    ("origin", "n_fitted", "tests_drift"),
    [("new", 0, True), ("held_out", 0, True), ("out_of_fold", N_ROWS, False), ("partly_out_of_fold", 40, True)],
)
def test_drift_is_tested_on_the_rows_that_were_not_used_for_the_fit(origin, n_fitted, tests_drift):
    evaluation = assess(origin, n_fitted=n_fitted).evaluate()
    assert any(re.match("Drift is not .*fitted", line) for line in evaluation.lines) == (not tests_drift)
    assert len(evaluation.lines) <= 8
    assert (evaluation.numbers["drift"] is not None) == tests_drift
    assert evaluation.numbers["fitted_rows"] == n_fitted
    assert evaluation.numbers["rows"] == N_ROWS
    assert evaluation.notes == (READING_NOTE,)


def test_the_held_out_rows_of_the_protocol_are_the_reference_of_the_drift_test():
    source = MAP.source.model_copy(update={"protocol": DEFAULTS.protocol})
    evaluation = assess("held_out", MAP.model_copy(update={"source": source})).evaluate()
    assert evaluation.numbers["drift"] is None
    assert any("are the reference" in line for line in evaluation.lines)


def test_ranges_that_were_not_tested_are_always_named():
    few = np.flatnonzero(np.arange(N_ROWS) % 8 == 0)
    evaluation = assess(rows=make_rows().take(few)).evaluate()
    untested = [cell for cell in evaluation.numbers["drift"]["cells"] if cell["p"] is None]
    assert untested
    assert any("Not tested" in line for line in evaluation.lines)
    assert not any("Not tested" in line for line in evaluation.details)


INVALID_FITS = {
    "a group with a control character": (
        {"group": "q\x07"},
        r"group column.*'q\\x07'.*unprintable",
    ),
    "signals under the paper's protocol": (
        {"protocol": "paper", "signals": ("group",)},
        "paper's protocol .*--signals .*--hold-out",
    ),
    "a hold-out under the paper's protocol": (
        {"protocol": "paper", "hold_out": 0.25},
        "paper's protocol .*--signals .*--hold-out",
    ),
}


@pytest.mark.parametrize(("options", "pattern"), INVALID_FITS.values(), ids=INVALID_FITS)
def test_invalid_options_of_a_fit_are_rejected(options, pattern):
    with pytest.raises(InputError, match=pattern):
        fit_map(FramePredictions.from_frame(maps.make_predictions(60)), **options)


@dataclass(frozen=True)
class MadeUpDrift:
    """Result of a drift test that found the given number of changes."""

    n_changes: int

    @property
    def holds(self) -> bool:
        return self.n_changes == 0

    @property
    def changed(self) -> range:
        return range(self.n_changes)

    def describe(self, names: tuple[str, ...]) -> list[str]:
        changes = [f"Change {number} of {names[0]}." for number in self.changed]
        return [*(changes or ["No change."]), *self.describe_untested(names), "False alarms."]

    def describe_untested(self, names: tuple[str, ...]) -> list[str]:
        return [f"Untested {names[1]}."]

    def as_json(self) -> dict[str, int]:
        return {"changes": self.n_changes}


@pytest.fixture
def few_resamples(monkeypatch):
    maps.limit_resamples(monkeypatch, 20)


def find_changes(monkeypatch: pytest.MonkeyPatch, n_changes: int) -> list[tuple]:
    """Let the drift test find the given number of changes, and return the list of its arguments."""
    calls = []
    monkeypatch.setattr(assessment_module, "detect_drift", lambda *args: calls.append(args) or MadeUpDrift(n_changes))
    return calls


def set_fit_accuracy(document: MapDocument, accuracy: float) -> MapDocument:
    """Give a map fit rows with an accuracy."""
    cell = Cell(label=0, half="lower", rows=100, mean_reliability=0.5, mean_residual=accuracy - 0.5, variance=0.1)
    return document.model_copy(update={"held_out": document.held_out.model_copy(update={"cells": (cell,)})})


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("n_changes", [1, 3, 4])
def test_a_map_that_no_longer_holds_is_described_by_at_most_three_changes(monkeypatch, n_changes):
    find_changes(monkeypatch, n_changes)
    evaluation = assess(document=set_fit_accuracy(MAP, 0.99)).evaluate()
    *changes, advice, untested, doubt, accuracy = evaluation.lines
    assert changes == [f"Change {number} of irrelevant." for number in range(min(n_changes, 3))]
    assert (advice, untested) == (FIT_AGAIN, "Untested partial.")
    assert "99.0%" in doubt
    assert accuracy.startswith("Accuracy of the decisions")
    other_lines = [line for line in evaluation.details if line.startswith(("Change ", "Untested", "False alarms"))]
    assert other_lines == [*(["Change 3 of irrelevant."] if n_changes == 4 else []), "False alarms."]
    assert any("keeps your confidence" in line for line in evaluation.details)
    assert any("10%" in line for line in evaluation.details)
    assert evaluation.numbers["drift"] == {"changes": n_changes}


@pytest.mark.usefixtures("few_resamples")
def test_a_map_that_holds_is_described_by_its_comparison_first(monkeypatch):
    find_changes(monkeypatch, 0)
    evaluation = assess(document=set_fit_accuracy(MAP, 0.99)).evaluate()
    assert evaluation.lines[0].startswith("The map keeps")
    assert "on these 240 rows" in evaluation.lines[0]
    drift, top, doubt, accuracy = evaluation.lines[-4:]
    assert drift == "No change. Untested partial."
    assert "most reliable 10%" in top
    assert "99.0%" in doubt
    assert "on 240 rows" in accuracy
    assert "False alarms." in evaluation.details
    assert "No change." not in evaluation.details
    assert any("most reliable 30%" in line for line in evaluation.details)
    assert len(set(evaluation.details)) == len(evaluation.details)


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize(
    ("origin", "phrase", "is_doubted"),
    [
        ("new", "on these 240 rows", True),
        ("held_out", "on these 240 rows", False),
        ("out_of_fold", "out of fold on 240 rows", False),
        ("partly_out_of_fold", "out of fold on 240 rows", False),
    ],
)
def test_rows_are_named_by_their_origin_and_only_new_rows_question_the_fit(origin, phrase, is_doubted):
    evaluation = assess(origin, set_fit_accuracy(MAP, 0.99)).evaluate()
    assert phrase in evaluation.lines[0]
    assert any("99.0%" in line for line in evaluation.lines) == is_doubted


@pytest.mark.usefixtures("few_resamples")
def test_the_drift_test_gets_the_rows_that_were_not_used_for_the_fit(monkeypatch):
    calls = find_changes(monkeypatch, 0)
    assessment = assess("partly_out_of_fold", rows=make_rows("group"), n_fitted=40)
    assert assessment.evaluate().numbers["fitted_rows"] == 40
    ((document, reliability, decision, correct, group),) = calls
    assert document is assessment.document
    assert reliability.tolist() == assessment.scored.reliability[40:].tolist()
    for values, of_rows in ((decision, "decision"), (correct, "correct"), (group, "group")):
        assert values.tolist() == getattr(assessment.rows, of_rows)[40:].tolist()


@pytest.mark.parametrize(
    ("origin", "protocol", "reason"),
    [
        ("out_of_fold", None, "fitted on these rows"),
        ("out_of_fold", DEFAULTS.protocol, "fitted on these rows"),
        ("held_out", DEFAULTS.protocol, "reference of the test"),
        ("held_out", None, None),
        ("new", DEFAULTS.protocol, None),
    ],
)
@pytest.mark.usefixtures("few_resamples")
def test_drift_is_not_tested_on_fit_rows_and_on_the_rows_of_the_reference(monkeypatch, origin, protocol, reason):
    calls = find_changes(monkeypatch, 0)
    source = MAP.source.model_copy(update={"protocol": protocol})
    evaluation = assess(origin, MAP.model_copy(update={"source": source})).evaluate()
    assert len(calls) == (reason is None)
    found = [line for line in evaluation.lines if line.startswith("Drift is not tested")]
    assert bool(found) == (reason is not None)
    assert all(reason in line for line in found)
    assert (evaluation.numbers["drift"] is None) == (reason is not None)


@pytest.mark.usefixtures("few_resamples")
def test_the_accuracy_of_the_rows_has_one_interval_and_that_of_a_file_its_own():
    assessment = assess()
    evaluation = assessment.evaluate()
    numbers = evaluation.numbers
    assert numbers["agreement"]["accuracy"] == numbers["accuracy"]
    precisions = [label["precision"] for label in numbers["agreement"]["labels"]]
    assert precisions == [label["correct"] for label in numbers["labels"]]
    assert format_share(numbers["accuracy"]) in evaluation.lines[-1]
    decision = np.repeat(assessment.rows.decision, 3)
    population = PopulationSummary.from_scores(decision, np.repeat(assessment.scored.logit, 3) - 1, 3)
    population = replace(population, notes=("Read the file.",))
    of_file = assessment.evaluate(population)
    agreement = measure_agreement(MAP, assessment.sample, population)
    assert of_file.numbers["agreement"] == agreement
    assert agreement["accuracy"] != numbers["accuracy"]
    assert of_file.notes == (READING_NOTE, "Read the file.")
    assert "on 720 rows" in of_file.lines[-1]
    assert format_share(agreement["accuracy"]) in of_file.lines[-1]


@pytest.mark.usefixtures("few_resamples")
def test_a_known_comparison_is_not_computed_again(monkeypatch):
    assessment = assess()
    comparison = evaluate_map(assessment.document, assessment.sample)
    expected = assessment.evaluate().to_dict()
    monkeypatch.setattr(assessment_module, "evaluate_map", None)
    evaluation = assessment.evaluate(comparison=comparison)
    assert evaluation.to_dict() == expected
    assert expected["comparison"] == "no measurable difference"
    with pytest.raises(ValueError, match="zip"):
        assessment.evaluate(comparison=comparison | {"labels": comparison["labels"][:2]})
    assert [top["share"] for top in expected["top"]] == [0.1, 0.3]


def make_fit(document: MapDocument = MAP, rows: FixedDecisions | None = None) -> MapFit:
    """Make a fit of a made-up map, whose scores serve as out-of-fold scores."""
    rows = make_rows() if rows is None else rows
    return MapFit(
        document=document,
        rows=rows,
        scored=FittedMap.from_document(document)(rows),
        label_warnings=("A warning.",),
        settings=maps.SETTINGS.model_copy(
            update={"metrics": maps.METRIC_SETTINGS.model_copy(update={"resamples": 20})}
        ),
        notes=(READING_NOTE,),
    )


def test_a_fit_is_described_by_its_comparison_its_accuracy_and_its_models():
    document = maps.make_map("mrp")
    fit = make_fit(document)
    summary = describe_fit(fit)
    assert "out of fold on 240 rows" in " ".join(summary.lines)
    accuracy = next(line for line in summary.lines if line.startswith("Accuracy"))
    assert accuracy == f"Accuracy of the decisions: {100 * fit.rows.correct.mean():.1f}%. A warning."
    assert summary.lines[-1].startswith("The map: ")
    assert summary.notes[0] == READING_NOTE
    assert "partial (7 rows)" in summary.notes[1]
    (spread,) = [line for line in summary.details if line.startswith("Label spread")]
    assert numbers_in(spread) == ["10.0", "95%", "5.0"]
    numbers = summary.numbers
    assert (numbers["variant"], numbers["calibrator"], numbers["baseline"]) == ("mrp", "ts", None)
    assert (numbers["rows"], numbers["errors"], numbers["groups"]) == (240, (~fit.rows.correct).sum(), 240)
    assert numbers["accuracy"] == fit.rows.correct.mean()
    assert summary.comparison["reviews"][1]["reliability"] == numbers["errors_found"]["by_reliability"]
    with_baseline = document.model_copy(update={"baseline": document.calibrator})
    assert describe_fit(make_fit(with_baseline)).numbers["baseline"] == "ts"


def test_a_fit_of_decisions_only_has_no_label_spread():
    update = {
        "input": "decision_only",
        "calibrator": Calibration(name="constant", rows=500, fitted=Constant(0.8)),
    }
    document = maps.make_map("label_intercept").model_copy(update=update)
    rows = replace(make_rows(), logits=None)
    assert not any("Label spread" in line for line in describe_fit(make_fit(document, rows)).details)


def test_an_assessment_is_immutable_and_compared_by_identity():
    assessment = assess()
    with pytest.raises(AttributeError):
        assessment.origin = "held_out"
    assert len({assessment, replace(assessment)}) == 2
