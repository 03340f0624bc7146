"""The report as one HTML file that loads nothing: styles, script, charts and their data are inside the file."""

import csv
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from relmap.metrics.comparison import BETTER, NO_DIFFERENCE, WORSE
from relmap.report.figure import FEW_ROWS, MIN_FIT_ROWS, DrawnFigure
from relmap.report.html import render_page, template_environment, vega_script
from tasks.records.store import base_folder, runs_folder
from tasks.results.values import FAILED, display_name
from tasks.tables import TABLES
from tasks.tables.display import format_table
from tasks.tables.overview import COLUMN_TITLES

TEMPLATE_FOLDER = Path(__file__).parent
GROUP_SENTENCES = {  # word of the comparison -> start of a sentence that lists data sets
    BETTER: "The reliability is better on",
    NO_DIFFERENCE: "There is no measurable difference on",
    WORSE: "The reliability is worse on",
}
CONCEPTS_OF_PAGE = ("fixed-decisions", "label-wise-reliability", "intervals", "simulated-and-real-data")
MAX_LISTED_DATASETS = 3  # a sentence that holds for all data sets lists no more names than this
LIBRARIES = ("python", "torch", "polars", "prefect", "dvc", "great-expectations")


@dataclass(frozen=True, kw_only=True)
class GateSummary:
    """An expectation of a gate, with its results in all checks of a run.

    Attributes:
        gate: Name of the check.
        description: Requirement in plain words.
        n_checks: Number of times that the expectation was checked.
        failures: Coordinates, values found and values allowed of each failure.
    """

    gate: str
    description: str
    n_checks: int
    failures: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DatasetSection:
    """Section of one data set on the page.

    Attributes:
        name: Key of the data set.
        title: Name for people, such as "wands (simulated)".
        gates: Expectations of the gates of this data set.
        facts: Title -> fact about the data set.
        figures: Its figures; none if it failed.
        comparison: Comparison of reliability and confidence, in a sentence.
        remarks: Remarks on the comparison.
        command: Command that fits a map on the predictions of the data set.
        failure: Reason of the failure; empty if it finished.
    """

    name: str
    title: str
    gates: Sequence[GateSummary]
    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Sequence[DrawnFigure] = ()
    comparison: str = ""
    remarks: str = ""
    command: str = ""
    failure: str = ""


def render_report(
    tables: Mapping[str, pl.DataFrame],
    sections: Sequence[DatasetSection],
    *,
    summary: Sequence[str],
    overview_figures: Sequence[DrawnFigure],
    simulated: Sequence[str],
    provenance: Mapping[str, str],
) -> str:
    """Render the page.

    Args:
        tables: Key -> rows of each table.
        sections: Sections of the data sets.
        summary: Sentences, the main result first.
        overview_figures: Figures about all data sets.
        simulated: Names of simulated data sets.
        provenance: Title -> fact about the origin of data and code.

    Returns:
        HTML.
    """
    return render_page(
        "page.html.jinja",
        folders=(TEMPLATE_FOLDER,),
        tables=[(table.placement, format_table(table, tables[key])) for key, table in TABLES.items()],
        column_titles=COLUMN_TITLES,
        concepts=CONCEPTS_OF_PAGE,
        sections=sections,
        summary=summary,
        overview_figures=overview_figures,
        simulated=simulated,
        provenance=provenance,
    )


def render_dvc_plots_page() -> str:
    """Render the page template of `dvc plots`, with Vega inside; DVC's own template would load it from a CDN.

    Returns:
        HTML with the placeholder `{plot_divs}`.
    """
    script = Markup(vega_script())  # noqa: S704 - the script is part of vl-convert
    return template_environment(TEMPLATE_FOLDER).get_template("dvc_plots.html.jinja").render(library=script) + "\n"


def summarize_overview(overview: pl.DataFrame, headline: str) -> list[str]:
    """Describe the main result, the comparison of each data set, and the evidence.

    Args:
        overview: The table `overview`, with display names in `dataset`.
        headline: Sentences about the intervals.

    Returns:
        Sentences: the main result first, the headline last.
    """
    finished = overview.filter(pl.col("source") != FAILED)
    sentences = [describe_finding(finished)]
    for word, start in GROUP_SENTENCES.items():
        names = finished.filter(comparison=word)["dataset"].to_list()
        holds_for_all = len(names) == len(finished)
        if holds_for_all and len(names) > MAX_LISTED_DATASETS:
            sources = "+".join(finished["source"].unique(maintain_order=True))
            sentences.append(f"{start} all {len(names)} data sets ({sources}).")
        elif names:
            sentences.append(f"{start} {_enumerate(names)} ({len(names)} of {len(finished)}).")
    sentences += _describe_review_gains(finished)
    failed = overview.filter(source=FAILED)["dataset"].unique(maintain_order=True).to_list()
    if failed:
        sentences.append(f"Not in these results: {_enumerate(failed)}.")
    return [*sentences, headline]


def describe_finding(finished: pl.DataFrame) -> str:
    """Describe the main result in one sentence: on how many data sets the reliability is better.

    Args:
        finished: The rows of the table `overview` that did not fail.

    Returns:
        One sentence.
    """
    compared = finished.drop_nulls("comparison")
    if compared.is_empty():
        return "No interval was computed, so there is no comparison."
    n_better = compared.filter(comparison=BETTER).height
    sources = compared["source"].unique(maintain_order=True).to_list()
    n_datasets = "1 data set" if len(finished) == 1 else f"{len(finished)} data sets"
    datasets = f"{n_datasets} ({', '.join(sources)})"
    if not n_better:
        return f"The reliability is not better than the confidence on any of {datasets}."
    return f"The reliability is better than the confidence on {n_better} of {datasets}."


def _describe_review_gains(finished: pl.DataFrame) -> list[str]:
    """Describe on how many of the improved data sets the interval of the errors found is above zero."""
    improved = finished.filter(comparison=BETTER).drop_nulls("found_per_1000_mrp")
    if improved.is_empty():
        return []
    n_above_zero = int((improved["found_per_1000_low"] > 0).sum())
    return [
        f"Data sets where the reliability is better: on {n_above_zero} of {len(improved)}, 1,000 reviews of the least "
        "reliable 30% find more errors than 1,000 reviews of the least confident 30%, with a 95% interval above zero; "
        "the table has the numbers. All decisions and probabilities are unchanged."
    ]


def map_command(dataset: str, labels: Sequence[str]) -> str:
    """Return the command that fits a reliability map on the logits of a data set.

    Args:
        dataset: Key of the data set.
        labels: Names of the labels.

    Returns:
        A shell command.
    """
    label_list = io.StringIO()
    csv.writer(label_list, lineterminator="").writerow(labels)
    options = {
        "predictions": str(base_folder(dataset) / "logits.parquet"),
        "group": "group",
        "labels": label_list.getvalue(),
    }
    arguments = [f"--{option} {shlex.quote(value)}" for option, value in options.items()]
    return f"relmap fit {' '.join(arguments)} --out {shlex.quote(f'{dataset}.json')}"


def _enumerate(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def describe_facts(facts: Mapping[str, Any], labels_with_few_rows: Sequence[str] = ()) -> dict[str, str]:
    """Describe a data set.

    Args:
        facts: Content of its base.json.
        labels_with_few_rows: Labels to mark, since their curves are fitted on few rows.

    Returns:
        Title -> fact.
    """
    rows = facts["rows"]
    groups = facts["groups"]
    labels = [f"{label} ({FEW_ROWS})" if label in labels_with_few_rows else label for label in facts["labels"]]
    label_text = ", ".join(labels)
    if labels_with_few_rows:
        label_text += f"; {FEW_ROWS}: fewer than {MIN_FIT_ROWS} projection-fit rows"
    return {
        "labels": label_text,
        "test rows": f"{rows['test']:,} in {groups['test']:,} groups",
        "validation rows": f"{rows['validation']:,} in {groups['validation']:,} groups",
        "base predictor": f"{facts['predictor']}, class weights: {facts['class_weight']}",
        "accuracy on test rows": f"{facts['accuracy']['test']:.3f}",
    }


def describe_provenance(
    facts: Sequence[Mapping[str, Any]], *, commit: str, digests: Mapping[str, str], versions: Mapping[str, str]
) -> dict[str, str]:
    """Describe the origin of data and code of a report.

    Args:
        facts: Content of the base.json of each data set.
        commit: Commit of the code.
        digests: Path of an output in dvc.lock -> its MD5 sum.
        versions: Library -> version.

    Returns:
        Title -> description.
    """
    provenance = {"Commit": commit}
    for fact in facts:
        origin = fact.get("origin", {})
        parts = [fact["source"], origin.get("origin"), origin.get("revision"), origin.get("licence")]
        if fact.get("preset"):
            parts.append(f"preset {fact['preset']}")
        for folder in (base_folder(fact["dataset"]), runs_folder(fact["dataset"])):
            parts.append(f"{folder}: {digests.get(str(folder), 'not in dvc.lock')}")
        description = "; ".join(str(part) for part in parts if part)
        provenance[display_name(fact["dataset"], fact["source"])] = description
    libraries = [f"{name} {versions[name]}" for name in LIBRARIES if name in versions]
    provenance["Libraries"] = ", ".join(libraries)
    return provenance


def summarize_gates(records: Iterable[Mapping[str, Any]]) -> list[GateSummary]:
    """Summarize the results of each expectation in all checks of a run.

    Args:
        records: Records in gates.json.

    Returns:
        The expectations in the order in which they were first checked.
    """
    n_checks: dict[tuple[str, str], int] = {}
    failures: dict[tuple[str, str], list[str]] = {}
    for record in records:
        for check in record["checks"]:
            coordinates = ", ".join(str(value) for value in check["coordinates"].values())
            for expectation in check["expectations"]:
                key = (check["gate"], expectation["description"])
                n_checks[key] = n_checks.get(key, 0) + 1
                failures.setdefault(key, [])
                if not expectation["success"]:
                    failures[key].append(f"{coordinates}: {expectation['found']} (allowed: {expectation['allowed']})")
    return [
        GateSummary(gate=gate, description=description, n_checks=count, failures=tuple(failures[gate, description]))
        for (gate, description), count in n_checks.items()
    ]
