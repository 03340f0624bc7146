"""Contents of the page of `relmap report` for made-up rows, before the page is rendered, and its parts."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logit

from relmap.decisions import FixedDecisions
from relmap.evaluation import assessment as assessment_module
from relmap.evaluation.assessment import MapAssessment
from relmap.evaluation.evaluate import evaluate_map
from relmap.evaluation.summary import FitSummary
from relmap.io.column_layout import TrecFiles
from relmap.maps.document import describe_map
from relmap.maps.score import ScoredDecisions
from relmap.report import page as page_module
from relmap.report.page import describe_automatic_rows, render_map_page
from relmap.routing.apply import default_threshold
from relmap.routing.choose import choose_cut
from tests import maps
from tests.texts import numbers_in

FIT = FitSummary(
    lines=("Better than your confidence.", "The map: a curve."),
    notes=("A label has few rows.",),
    details=("Label spread: 3 points.",),
)


def assess(
    decided: tuple[int, ...] = (0, 1, 2), n_rows: int = 300, variant: str = "mrp", **columns: np.ndarray
) -> MapAssessment:
    """Make rows that a made-up map has scored."""
    generator = np.random.default_rng(8)
    decision = generator.choice(decided, n_rows)
    confidence = generator.uniform(0.4, 0.95, n_rows)
    label = np.where(generator.random(n_rows) < confidence, decision, (decision + 1) % 3)
    return MapAssessment(
        document=maps.make_map(variant),
        rows=FixedDecisions(decision=decision, confidence=confidence, label=label, **columns),
        scored=ScoredDecisions(confidence=confidence, logit=1.5 * logit(confidence)),
        origin="new",
        notes=["A note on the rows."],
        fitted=np.zeros(n_rows, dtype=bool),
    )


@pytest.fixture(scope="module", autouse=True)
def _few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        maps.limit_resamples(patch, 20)
        yield


def page_variables(
    monkeypatch: pytest.MonkeyPatch, assessment: MapAssessment, *, with_figures: bool = False, **others: Any
) -> dict[str, Any]:
    """Return what the page is rendered from; without figures, which take most of the time, unless they are tested."""
    if not with_figures:
        monkeypatch.setattr(page_module, "_figures", lambda _: [])
    monkeypatch.setattr(page_module, "render_page", lambda template, **variables: {"template": template} | variables)
    map_file = others.get("map_file", Path("some folder/a.map.json"))
    return render_map_page(assessment, others.get("fit", FIT), map_file)


def test_the_page_names_the_map_and_its_commands(monkeypatch):
    variables = page_variables(monkeypatch, assess())
    assert variables["template"] == "map.html.jinja"
    assert (variables["name"], variables["map"]) == ("made-up.parquet", "a.map.json")
    assert variables["command"] == (
        "relmap apply --map 'some folder/a.map.json' --predictions new.parquet --out scored.parquet"
    )
    explorer = variables["explorer"]
    assert explorer.command_before == (
        "relmap thresholds --map 'some folder/a.map.json' --predictions other_labelled.parquet --cut "
    )


def test_the_page_shows_the_evaluation_first_and_repeats_no_sentence(monkeypatch):
    assessment = assess()
    evaluation = assessment.evaluate()
    repeated = replace(
        FIT,
        lines=(*FIT.lines, evaluation.lines[0], f"{evaluation.lines[-1].partition('%')[0]}%."),
        notes=(*FIT.notes, evaluation.notes[0]),
        details=(*FIT.details, evaluation.details[0]),
    )
    variables = page_variables(monkeypatch, assessment, fit=repeated)
    assert variables["comparison"] == evaluation.lines
    assert variables["fit"] == [*FIT.lines, *FIT.notes, *FIT.details]
    assert variables["notes"] == ("A note on the rows.",)


def test_the_page_omits_lines_whose_numbers_are_in_a_table(monkeypatch):
    assessment = assess()
    details = page_variables(monkeypatch, assessment)["details"]
    lines_of_table = [line for line in assessment.evaluate().details if line.startswith("  ")]
    assert len(lines_of_table) == len(maps.LABEL_NAMES)
    assert [*details, *lines_of_table] == sorted(assessment.evaluate().details, key=lambda line: line.startswith("  "))


@pytest.mark.parametrize("is_grouped", [False, True])
def test_the_page_states_facts_about_rows_map_and_software(monkeypatch, is_grouped):
    columns = {"group": np.array([f"q{row // 2}" for row in range(1200)])} if is_grouped else {}
    assessment = assess(n_rows=1200, **columns)
    document = assessment.document
    versions = {"relmap": "1.2", "numpy": "2.0"}
    source = document.source.model_copy(update={"versions": versions})
    assessment = replace(assessment, document=document.model_copy(update={"source": source}))
    variables = page_variables(monkeypatch, assessment)
    accuracy = assessment.evaluate().numbers["accuracy"]
    low_high = f"{100 * accuracy['low']:.1f} to {accuracy['high']:.1%}"
    groups = " in 600 groups" if is_grouped else ""
    assert variables["facts"] == {
        "labels": "irrelevant, partial, exact",
        "evaluated rows": f"1,200{groups}",
        "accuracy of the decisions": f"{accuracy['value']:.1%} ({low_high})",
        "map": describe_map(document),
        "predictions": f"made-up.parquet, SHA-256 {'0' * 64}",
        "fitted at": "2026-01-01T00:00:00+00:00",
        "software": "relmap 1.2, numpy 2.0",
    }
    assert variables["explorer"].rows == f"1,200 labelled rows{groups}"


def test_the_explorer_starts_at_the_default_threshold_and_names_its_labels(monkeypatch):
    assessment = assess()
    explorer = page_variables(monkeypatch, assessment)["explorer"]
    content = json.loads(explorer.content)
    threshold = default_threshold(assessment.document)
    automatic = content["lines"][0]["automatic"][content["initial"]]
    assert automatic == (assessment.scored.reliability >= threshold).sum()
    assert [line["name"] for line in content["lines"]] == ["All decisions", *maps.LABEL_NAMES]
    assert explorer.notes == []


WEIGHT_NOTE = ".*sampling weight.* review .*without weights."


@pytest.mark.parametrize(
    ("decided", "columns", "notes"),
    [
        ((0, 2), {}, ["No decision .*is partial."]),
        ((1,), {}, ["No decision .*is irrelevant, exact."]),
        ((0, 1, 2), {"weight": np.linspace(1, 2, 60)}, [WEIGHT_NOTE]),
        ((0, 1), {"weight": np.linspace(1, 2, 60)}, ["No decision .*is exact.", WEIGHT_NOTE]),
    ],
)
def test_notes_of_the_explorer_name_labels_without_decisions_and_weights(monkeypatch, decided, columns, notes):
    explorer = page_variables(monkeypatch, assess(decided, n_rows=60, **columns))["explorer"]
    for note, pattern in zip(explorer.notes, notes, strict=True):
        assert re.fullmatch(pattern, note)


@pytest.mark.parametrize(
    ("variant", "columns", "keys"),
    [
        ("mrp", {}, ["risk_coverage", "reliability_by_label", "errors_found"]),
        ("confidence", {}, ["risk_coverage", "reliability_by_label"]),
        ("mrp", {"weight": np.linspace(1, 2, 60)}, []),
    ],
)
def test_figures_need_rows_of_equal_weight_and_a_reliability(monkeypatch, variant, columns, keys):
    assessment = assess(n_rows=60, variant=variant, **columns)
    variables = page_variables(monkeypatch, assessment, with_figures=True)
    figures = [variables["first_figure"], *variables["figures"]]
    assert [figure.key for figure in figures if figure is not None] == keys


@pytest.mark.parametrize(("threshold", "start"), [(0.6, "Those with"), (0.0, "All of them"), (1.0, "None")])
def test_the_question_of_the_page_is_answered_with_the_numbers_of_the_threshold(monkeypatch, threshold, start):
    assessment = assess()
    document = assessment.document.model_copy(update={"default_threshold": threshold})
    assessment = replace(assessment, document=document)
    answer = page_variables(monkeypatch, assessment)["answer"]
    assert answer.startswith(start)
    is_automatic = assessment.scored.reliability >= threshold
    if threshold == 0.6:
        assert re.search(rf" 0\.6 .*default threshold .*: {is_automatic.mean():.1%} ", answer)
        assert f"{assessment.rows.correct[is_automatic].mean():.1%} (" in answer


def test_numbers_of_the_fit_are_used_only_for_the_same_rows(monkeypatch):
    assessment = replace(assess(), origin="out_of_fold")
    comparison = evaluate_map(assessment.document, assessment.sample)
    computed = []
    monkeypatch.setattr(assessment_module, "evaluate_map", lambda *args: computed.append(args) or comparison)
    fit = replace(FIT, comparison=comparison)
    known = page_variables(monkeypatch, assessment, fit=fit)
    assert computed == []
    assert known["comparison"] == page_variables(monkeypatch, assessment)["comparison"]
    page_variables(monkeypatch, replace(assessment, origin="new"), fit=fit)
    page_variables(monkeypatch, assessment, fit=replace(FIT, comparison=comparison | {"rows": 299}))
    assert len(computed) == 3


def test_the_page_has_three_tables_with_rows(monkeypatch):
    tables = page_variables(monkeypatch, assess())["tables"]
    assert [table.concept for table in tables] == ["guarantees", "intervals", "label-wise-reliability"]
    assert all(table.rows for table in tables)


def test_the_table_of_cuts_has_four_targets_and_only_its_own_notes(monkeypatch):
    assessment = assess()
    table = page_variables(monkeypatch, assessment)["tables"][0]
    assert [row[0] for row in table.rows] == ["80%", "90%", "95%", "99%"]
    for row, target in zip(table.rows, (0.8, 0.9, 0.95, 0.99), strict=True):
        cut = choose_cut(assessment, target_accuracy=target).cut
        assert row[1].startswith("none: " if cut is None else str(cut))
    assert assessment.notes[0] not in table.note
    estimated = replace(assessment, origin="out_of_fold")
    notes = choose_cut(estimated, target_accuracy=0.8).notes
    assert notes[0] == assessment.notes[0]
    table = page_variables(monkeypatch, estimated)["tables"][0]
    assert notes[0] not in table.note
    assert table.note.endswith(f". {' '.join(notes[1:])}")


def test_commands_read_a_run_of_trec_if_the_fit_did(monkeypatch):
    monkeypatch.setattr(page_module, "render_page", lambda _, **variables: variables)
    monkeypatch.setattr(page_module, "_figures", lambda _: [])
    trec = TrecFiles(Path("my.run"), Path("my_qrels.txt"), relevant_from=2)
    variables = render_map_page(assess(n_rows=60), FIT, Path("a.map.json"), trec)
    assert variables["command"] == "relmap apply --map a.map.json --run new.run --out scored.csv"
    assert variables["explorer"].command_before == (
        "relmap thresholds --map a.map.json --run other.run --qrels other_qrels.txt --relevant-from 2 --cut "
    )


def answer_at(threshold: float, reliability: list[float], *, correct: list[bool]) -> str:
    """Describe the rows at or above the default threshold of a map."""
    decision = np.zeros(len(reliability), dtype=np.int64)
    rows = FixedDecisions(decision=decision, confidence=np.array(reliability), label=1 - np.array(correct, dtype=int))
    document = maps.make_map().model_copy(update={"default_threshold": threshold})
    scored = ScoredDecisions(rows.confidence, logit(reliability))
    return describe_automatic_rows(MapAssessment(document, rows, scored, "new", [], np.zeros(len(rows), dtype=bool)))


def test_rows_at_the_threshold_are_automatic():
    answer = answer_at(0.5, [0.25, 0.5, 0.75, 0.125], correct=[True, True, False, True])
    assert numbers_in(answer) == ["0.5", "50.0%", "50.0%"]
    assert numbers_in(answer_at(0.5, [0.5, 0.75], correct=[True, True])) == ["0.5", "100.0%"]
    assert answer_at(0.5, [0.5, 0.75], correct=[True, True]).startswith("All")
    nobody = answer_at(0.8, [0.25, 0.75], correct=[True, True])
    assert nobody.startswith("None")
    assert numbers_in(nobody) == ["0.8"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (page_module.Table, {"title": "t", "note": "n", "columns": (), "rows": [], "concept": "c"}),
        (page_module.ExplorerSection, {"content": "", "rows": "", "notes": [], "command_before": ""}),
    ],
)
def test_parts_of_the_page_are_immutable(kind, fields):
    part = kind(**fields)
    for name in fields:
        with pytest.raises(AttributeError):
            setattr(part, name, None)
