"""Page of `relmap report`: comparison, threshold control, figures and tables in one HTML file."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from relmap.errors import assignments
from relmap.evaluation.agreement import format_share
from relmap.evaluation.assessment import MapAssessment
from relmap.evaluation.evaluate import accuracy_of_rows
from relmap.evaluation.summary import Cuts, FitSummary, Summary
from relmap.evaluation.top_calibration import MIN_RELEVANT_GAP
from relmap.io.column_layout import NO_TREC_FILES, TrecFiles
from relmap.io.columns import join_names
from relmap.maps.document import describe_map
from relmap.metrics.intervals import SIGNIFICANCE_LEVEL
from relmap.report.curves import reliability_by_label
from relmap.report.figure import DrawnFigure
from relmap.report.html import read_script, render_page
from relmap.report.plot import results_of_map
from relmap.report.ranking import errors_found, risk_coverage
from relmap.report.threshold_explorer import ThresholdExplorer
from relmap.routing.apply import default_threshold
from relmap.routing.choose import choose_cut

TARGET_ACCURACIES = (0.8, 0.9, 0.95, 0.99)
CONCEPTS_OF_PAGE = ("fixed-decisions", "label-wise-reliability", "reliability-map", "guarantees", "intervals")

Numbers = Mapping[str, Any]  # part of the JSON of a summary


@dataclass(frozen=True)
class Table:
    """A table of the page, with formatted cells.

    Attributes:
        title: Heading of the section.
        note: Sentences below the table.
        columns: Header.
        rows: Cells of each row.
        concept: Concept that the note links to.
    """

    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[list[str]]
    concept: str


@dataclass(frozen=True)
class ExplorerSection:
    """The interactive part of the page.

    Attributes:
        content: JSON of the results at thresholds.
        rows: Description of the rows that the results are estimated from.
        notes: Sentences on these rows.
        command_before: The command that validates a threshold, up to the threshold.
    """

    content: Markup
    rows: str
    notes: list[str]
    command_before: str


def render_map_page(assessment: MapAssessment, fit: FitSummary, map_file: Path, trec: TrecFiles = NO_TREC_FILES) -> str:
    """Render the page of a map.

    Args:
        assessment: The map, and labelled rows that it has scored.
        fit: Summary of the fit.
        map_file: File of the map, which the commands on the page name.
        trec: Run and judgments of the fit, so that the commands read a run too.

    Returns:
        The page as HTML.
    """
    evaluation = assessment.evaluate(comparison=_known_comparison(assessment, fit))
    evaluation_sentences = (*evaluation.lines, *evaluation.details, *evaluation.notes)
    fit_sentences = []
    for line in (*fit.lines, *fit.notes, *fit.details):
        # the evaluation may have the same sentence with more numbers at its end
        is_repeated = any(sentence.startswith(line.removesuffix(".")) for sentence in evaluation_sentences)
        if not is_repeated:
            fit_sentences.append(line)
    tables = _tables(assessment, evaluation)
    figures = _figures(assessment)
    map_option = f"--map {shlex.quote(str(map_file))}"
    new_rows = "--predictions new.parquet --out scored.parquet"
    labelled_rows = "--predictions other_labelled.parquet"
    if trec.run is not None:
        new_rows = "--run new.run --out scored.csv"
        others = replace(trec, run=Path("other.run"), qrels=Path("other_qrels.txt"))
        labelled_rows = assignments(others.to_options())
    command = f"relmap apply {map_option} {new_rows}"
    return render_page(
        "map.html.jinja",
        name=assessment.document.source.file,
        answer=describe_automatic_rows(assessment),
        first_figure=figures[0] if figures else None,
        comparison=evaluation.lines,
        fit=fit_sentences,
        details=[line for line in evaluation.details if not line.startswith(" ")],  # the others are in a table
        notes=evaluation.notes,
        command=command,
        map=map_file.name,
        explorer=_explorer_section(assessment, f"{map_option} {labelled_rows}"),
        explorer_script=read_script("threshold_explorer.js"),
        concepts=CONCEPTS_OF_PAGE,
        figures=figures[1:],
        tables=[table for table in tables if table.rows],
        facts=_provenance(assessment, evaluation.to_dict()),
    )


def _known_comparison(assessment: MapAssessment, fit: FitSummary) -> Numbers | None:
    """Return the numbers of the fit if they are those of the assessed rows; their bootstrap is not repeated."""
    has_same_rows = assessment.origin == "out_of_fold" and fit.comparison.get("rows") == len(assessment.sample)
    return fit.comparison if has_same_rows else None


def describe_automatic_rows(assessment: MapAssessment) -> str:
    """Answer which decisions can be used as they are: those at or above the threshold of the map.

    Args:
        assessment: The map, and labelled rows that it has scored.

    Returns:
        A sentence.
    """
    sample = assessment.sample
    threshold = default_threshold(assessment.document)
    is_automatic = sample.scored.reliability[sample.row_number] >= threshold
    reach = f"a reliability of {threshold:.4g} or more, the default threshold of the map"
    if not is_automatic.any():
        return f"None: no decision has {reach}. Review all."
    accuracy = format_share(accuracy_of_rows(sample, is_automatic))
    if is_automatic.all():
        return f"All of them: each has {reach}, and {accuracy} are correct."
    return f"Those with {reach}: {is_automatic.mean():.1%} of all decisions, {accuracy} of them correct."


def _provenance(assessment: MapAssessment, numbers: Numbers) -> dict[str, str]:
    """Return a table of facts about the rows, the map and the software: name -> text."""
    document = assessment.document
    source = document.source
    grouped = f" in {numbers['groups']:,} groups" if numbers["grouped"] else ""
    return {
        "labels": ", ".join(document.shown_names),
        "evaluated rows": f"{numbers['rows']:,}{grouped}",
        "accuracy of the decisions": _share_with_interval(numbers["accuracy"]),
        "map": describe_map(document),
        "predictions": f"{source.file}, SHA-256 {source.sha256}",
        "fitted at": source.at,
        "software": ", ".join(f"{name} {version}" for name, version in source.versions.items()),
    }


def _explorer_section(assessment: MapAssessment, inputs: str) -> ExplorerSection:
    """Aggregate the rows at thresholds, and write the command that validates one of them."""
    names = assessment.document.shown_names
    explorer = ThresholdExplorer.from_sample(assessment.sample, default_threshold(assessment.document))
    decided = {results.label for results in explorer.labels}
    never_decided = [name for label, name in enumerate(names) if label not in decided]
    notes = []
    if never_decided:
        notes.append(f"No decision in these rows is {join_names(never_decided)}.")
    if explorer.weighted:
        notes.append(
            "Shares, accuracies and costs weight each row by its sampling weight. Rows to review are counted without "
            "weights."
        )
    grouped = f" in {assessment.sample.n_clusters:,} groups" if assessment.rows.group is not None else ""
    return ExplorerSection(
        content=Markup(explorer.to_json(names)),  # noqa: S704 - `<` is escaped
        rows=f"{len(assessment.rows):,} labelled rows{grouped}",
        notes=notes,
        command_before=f"relmap thresholds {inputs} --cut ",
    )


def _figures(assessment: MapAssessment) -> list[DrawnFigure]:
    """Draw the figures; none for rows with sampling weights, which the figures cannot represent."""
    if assessment.rows.weight is not None:
        return []
    results = results_of_map(assessment)
    figures = [risk_coverage, reliability_by_label]
    if results.variant != "confidence":
        figures.append(errors_found)
    drawn_figures = [figure(results) for figure in figures]
    return [figure for figure in drawn_figures if figure is not None]


def _tables(assessment: MapAssessment, evaluation: Summary) -> list[Table]:
    """Build all tables; some may be empty."""
    numbers = evaluation.to_dict()
    cuts = {target: choose_cut(assessment, target_accuracy=target) for target in TARGET_ACCURACIES}
    any_cut = cuts[TARGET_ACCURACIES[0]]  # the notes do not depend on the target
    notes_on_cuts = [note for note in any_cut.notes if note not in assessment.notes]
    return [
        cuts_table(cuts, notes_on_cuts),
        top_rows_table(numbers["top"]),
        label_table(numbers["labels"], numbers["agreement"]["labels"]),
    ]


def cuts_table(cuts: Mapping[float, Cuts], notes: Sequence[str]) -> Table:
    """Tabulate the cut for each target accuracy.

    Args:
        cuts: Cuts by target accuracy.
        notes: Sentences on the rows and the guarantee.

    Returns:
        The table.
    """
    rows = []
    for target, found in cuts.items():
        overall = found.numbers["overall"]
        if overall["cut"] is None:
            rows.append([f"{target:.0%}", f"none: {overall['why']}", "", ""])
            continue
        rows.append(
            [
                f"{target:.0%}",
                str(overall["cut"]),
                f"{overall['coverage']:.1%} ({overall['automatic']:,} of {overall['rows']:,} rows)",
                f"{overall['accuracy']:.1%}",
            ]
        )
    explanation = "Each line is a separate search. To use a cut, add --cut with its reliability to the command above."
    return Table(
        title="Cuts",
        note=" ".join([explanation, *notes]),
        columns=("target accuracy", "cut: minimum reliability", "automatic", "accuracy of these"),
        rows=rows,
        concept="guarantees",
    )


def top_rows_table(top: Sequence[Numbers]) -> Table:
    """Tabulate the calibration of the most reliable rows.

    Args:
        top: Numbers of each share of the rows.

    Returns:
        The table.
    """
    rows = []
    ties = []
    for numbers in top:
        if numbers["tied"]:
            ties.append(
                f"{numbers['share']:.0%} has {numbers['rows']:,} rows, because {numbers['tied']:,} rows with the same "
                "reliability are at its limit. Each of these counts in part."
            )
        difference = f"{numbers['gap']:+z.3f}"
        if numbers["low"] is not None:
            difference += f" ({numbers['low']:+z.3f} to {numbers['high']:+z.3f})"
        rows.append(
            [
                f"{numbers['share']:.0%}",
                f"{numbers['rows']:,}",
                f"{numbers['predicted']:.3f}",
                f"{numbers['correct']:.3f}",
                difference,
                "yes" if numbers["is_miscalibrated"] else "no",
            ]
        )
    return Table(
        title="The most reliable rows",
        note=" ".join(
            [
                "Difference: mean reliability minus accuracy, with its 95% interval. If it is positive, the "
                "reliability of these rows is too high. Significant: the p-value, corrected for the two tests (Holm), "
                f"is below {SIGNIFICANCE_LEVEL:g}, and the difference is at least {MIN_RELEVANT_GAP:g}. An interval "
                "without the correction can exclude 0 although the difference is not significant.",
                *ties,
            ]
        ),
        columns=("most reliable", "rows", "mean reliability", "accuracy", "difference", "significant"),
        rows=rows,
        concept="intervals",
    )


def label_table(labels: Sequence[Numbers], agreement: Sequence[Numbers]) -> Table:
    """Tabulate confidence, reliability, accuracy and recall of each label.

    Args:
        labels: Numbers of the decisions for each label.
        agreement: Agreement with the true labels, in the same order.

    Returns:
        The table.
    """
    rows = []
    for decided, agreed in zip(labels, agreement, strict=True):
        rows.append(
            [
                decided["name"],
                f"{decided['rows']:,}",
                _percent(decided["mean_confidence"]),
                _percent(decided["mean_reliability"]),
                _share_with_interval(decided["correct"]),
                _share_with_interval(agreed["recall"]),
            ]
        )
    return Table(
        title="Results by label",
        note="Mean confidence, mean reliability and accuracy of the decisions for each label. Recall: share of the "
        "rows with this true label whose decision is correct.",
        columns=("label", "decisions", "mean confidence", "mean reliability", "accuracy", "recall"),
        rows=rows,
        concept="label-wise-reliability",
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _share_with_interval(estimate: Numbers) -> str:
    """Format a share with its interval; empty if it is undefined."""
    return "" if estimate["value"] is None else format_share(dict(estimate))
